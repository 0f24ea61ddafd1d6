"""What `exact drpo` is asked: radii, pairs of policies, environments to learn in, and the rules compared.

The paper states one number, 12.5, and not its meaning. It is read twice: as the radius delta of the penalty,
and as one over it.
"""

from dataclasses import dataclass

from divsim.formulas import TV, Rule, dppo, drpo, drpo_unweighted, importance_sampling, mask_drpo, spo

from .tails_config import Pairs

READING = 12.5
"""Of the threshold in [DRPO] section 4."""
RADIUS = 0.15
"""|pi_k - mu_k| beyond which [DPPO] drops a token in its binary TV form, and Mask-DRPO penalises it."""

PAIRS = tuple(
    Pairs(world, mismatch, 2000)
    for world in ("language", "flat")
    for mismatch in ("stale_16", "noise_0.5", "engine", "sharpen_1.5")
)


@dataclass(frozen=True)
class Config:
    """Settings of `exact drpo`; every number of a result follows from them.

    Attributes:
      pairs: sources of mu and pi at which tokens are weighed.
      deltas: radii of DRPO's penalty, probabilities; both readings of 12.5 are added to them.
      widths: eps of SPO, ratios.
      far: radii of the regions, nats of forward KL.
      steps: learning rates of one token's update, whose realised change of KL is taken.
      tokens: of one seed of a pair.
      seeds: independent repetitions at each pair.
      environments: keys of `ENVIRONMENTS` to learn in.
      rates: factors of the environment's learning rate, the same for all rules.
      rollouts, episodes, minibatches, passes: see `Recipe`.
      learning_seeds: worlds to learn in, the same for all rules.
      seed: of all random streams.
    """

    pairs: tuple[Pairs, ...] = PAIRS
    deltas: tuple[float, ...] = (0.1, 0.15, 0.2, 1.0, 2.5, 12.5)
    widths: tuple[float, ...] = (0.2, 12.5)
    far: tuple[float, ...] = (0.05, 0.15)
    steps: tuple[float, ...] = (0.01, 1.0)
    tokens: int = 512
    seeds: int = 30
    environments: tuple[str, ...] = ("bernoulli", "language", "tree", "chain")
    rates: tuple[float, ...] = (0.25, 1.0, 4.0)
    rollouts: int = 20
    episodes: int = 64
    minibatches: int = 16
    passes: int = 2
    learning_seeds: int = 32
    seed: int = 0

    @property
    def radii(self) -> tuple[float, ...]:
        """The deltas and both readings of 12.5, each once, small ones first."""
        return tuple(sorted({*self.deltas, READING, 1 / READING}))

    def pairs_named(self, name: str) -> Pairs:
        """The pairs of that name."""
        return next(pairs for pairs in self.pairs if pairs.name == name)


def soft_rules(config: Config) -> dict[str, Rule]:
    """The rules that scale the importance weight r by a factor of their own, by name.

    >>> list(soft_rules(Config()))[:2]
    ['drpo(0.08)', 'drpo(0.1)']
    """
    rules = (*map(drpo, config.radii), *map(spo, config.widths), mask_drpo(RADIUS, RADIUS))
    return {rule.name: rule for rule in rules}


def learning_rules(config: Config) -> dict[str, Rule]:
    """What learns, by name: no penalty first, the soft rules, DRPO without |A|, and the mask.

    >>> names = list(learning_rules(Config()))
    >>> names[0], names[-1], len(names)
    ('importance_sampling', 'dppo(tv, binary, 0.15)', 19)
    """
    first, last = importance_sampling(), dppo(TV, "binary", RADIUS)
    plain = {rule.name: rule for rule in map(drpo_unweighted, config.radii)}
    return {first.name: first} | soft_rules(config) | plain | {last.name: last}


def contrasts(config: Config) -> tuple[tuple[str, str], ...]:
    """(rule, baseline) of the paired differences: all against no penalty, and the paper's two ablations.

    >>> contrasts(Config())[-1]
    ('drpo_unweighted(12.5)', 'drpo(12.5)')
    """
    none, *others = learning_rules(config)
    own = [(mask_drpo(RADIUS, RADIUS).name, drpo(RADIUS).name)] if RADIUS in config.radii else []
    own += [(drpo_unweighted(delta).name, drpo(delta).name) for delta in config.radii]
    return (*((name, none) for name in others), *own)
