"""What `exact bandit` and `exact mdp` are asked: environments, learners, their tries, and the two presets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Habit:
    """What is usual in an environment.

    Attributes:
      rate: learning rate at which a few rollouts learn much there, without a mask.
      advantage: a key of `ESTIMATORS`.
      k: tokens of mu that the engine shows; 0 for all.
    """

    rate: float
    advantage: str
    k: int = 0


HABITS = {
    "gaussian": Habit(2.0, "group", 5),
    "bernoulli": Habit(4.0, "group", 5),
    "language": Habit(5.0, "group", 20),
    "chain": Habit(4.0, "gae"),
    "grid": Habit(4.0, "gae"),
    "tree": Habit(20.0, "group"),
    "layered": Habit(60.0, "group"),
}
"""By environment. Rewards of one step have the scale of 1, and a gradient is a mean over tokens."""


@dataclass(frozen=True)
class Config:
    """Settings of `exact bandit` and `exact mdp`; every number of a result follows from them.

    Attributes:
      environments: keys of `ENVIRONMENTS`.
      learners: keys of `LEARNERS`.
      rates: factors of the environment's learning rate.
      scales: factors of a rule's radii.
      minibatches: of each pass over a rollout; every number is a condition of its own.
      ks: tokens of mu that the engine shows, 0 for all; every number is a condition, none what is usual.
      rollouts, episodes, passes: see `Recipe`.
      advantage: a key of `ESTIMATORS`, or "" for what is usual in the environment.
      engine_noise: standard deviation of the engine's logit error, nats.
      kl_targets: at which learners are compared, nats: KL(mu || pi) at the end of a rollout, mean over them.
      drop_targets: likewise, shares of dropped tokens.
      seeds: on which learners are compared.
      tuning_seeds: others, on which settings are chosen.
      step_minibatches: of the one rollout that is compared with the best step of the same KL.
      seed: of all random streams.
    """

    environments: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    rates: tuple[float, ...] = (0.25, 1.0, 4.0, 16.0)
    scales: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0)
    rollouts: int = 20
    episodes: int = 64
    minibatches: tuple[int, ...] = (16,)
    ks: tuple[int, ...] = ()
    passes: int = 2
    advantage: str = ""
    engine_noise: float = 0.0
    kl_targets: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3)
    drop_targets: tuple[float, ...] = (0.05, 0.2)
    seeds: int = 24
    tuning_seeds: int = 12
    step_minibatches: int = 64
    seed: int = 0


@dataclass(frozen=True)
class Condition:
    """Where learners are compared with one another.

    Attributes:
      environment: a key of `ENVIRONMENTS`.
      minibatches: of each pass over a rollout.
      k: tokens of mu that the engine shows; 0 for all.

    >>> Condition("chain", 16, 0).name
    'chain-16-0'
    """

    environment: str
    minibatches: int
    k: int

    @property
    def name(self) -> str:
        """In the keys of tiles."""
        return f"{self.environment}-{self.minibatches}-{self.k}"

    @property
    def key(self) -> dict[str, str | int]:
        """The key fields of a row."""
        return {"environment": self.environment, "minibatches": self.minibatches, "k": self.k}


def conditions(config: Config) -> tuple[Condition, ...]:
    """All conditions of a config.

    >>> [condition.name for condition in conditions(Config(environments=("language",), minibatches=(4, 16)))]
    ['language-4-20', 'language-16-20']
    """
    return tuple(
        Condition(environment, minibatches, k)
        for environment in config.environments
        for minibatches in config.minibatches
        for k in (config.ks or (HABITS[environment].k,))
    )
