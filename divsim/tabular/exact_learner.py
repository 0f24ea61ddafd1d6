r"""Learning by exact trust-region steps: what masks imitate, one whole step a rollout.

Each algorithm sees the behaviour policy, a table of advantages and how often each state is visited, and
answers with the next policy. The table is exact, or estimated from the very episodes that a mask would see:
the mean advantage of each action in each state, 0 where it was never tried. How often a state is visited is
exact in either case. What is left out: minibatches, and engines that err.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divsim.formulas import FORWARD_KL, log_softmax

from .environments import Environment, draw_worlds
from .learner import History, Watch, distances, state_of, state_share, table_cell
from .policies import Floats
from .policy_steps import adapt, conservative, conservative_rate, mdpo, mirror, natural_gradient, penalised
from .rollouts import ESTIMATORS, Episodes, by_time, sample
from .trust_region import REGIONS, Problem, distance, optimum
from .worlds import World, occupancy, optimal_return, values

Memory = Floats | None
"""What a step remembers from rollout to rollout: (n,) or nothing."""


@dataclass(frozen=True)
class Step:
    """An exact algorithm.

    Attributes:
      name: its name in tables and flags.
      radius: its default: nats of forward KL, of its own divergence, or a rate; see `meaning`.
      meaning: what it does, and what its radius is.
      take: (problem, radius, memory) -> (log_pi (n, S, V), memory).
      aims: whether the radius is a mean KL(mu || pi) that it tries to meet.
    """

    name: str
    radius: float
    meaning: str
    take: Callable[[Problem, float, Memory], tuple[Floats, Memory]]
    aims: bool = False


def _plain(
    step: Callable[[Problem, float], Floats],
) -> Callable[[Problem, float, Memory], tuple[Floats, Memory]]:
    return lambda problem, radius, memory: (step(problem, radius), memory)


def _within(region: str, scope: str) -> Callable[[Problem, float, Memory], tuple[Floats, Memory]]:
    return _plain(lambda problem, radius: optimum(problem, REGIONS[region], radius, scope))


def _adaptive(problem: Problem, radius: float, memory: Memory) -> tuple[Floats, Memory]:
    beta = np.full(len(problem.weight), 1.0) if memory is None else memory
    log_pi = penalised(problem, beta)
    return log_pi, adapt(beta, distance(problem, log_pi, FORWARD_KL, "mean"), radius)


def _conservative(problem: Problem, radius: float) -> Floats:
    return conservative(problem, conservative_rate(problem, radius, REGIONS["forward_kl"], "mean"))


STEPS: dict[str, Step] = {
    step.name: step
    for step in (
        Step("trpo", 0.1, "optimum under mean KL(mu || pi)", _within("forward_kl", "mean"), aims=True),
        Step("trpo_state", 0.1, "optimum under KL(mu || pi) in every state", _within("forward_kl", "state")),
        Step("reverse_kl", 0.1, "optimum under mean KL(pi || mu)", _within("reverse_kl", "mean")),
        Step("tv", 0.1, "optimum under mean TV", _within("tv", "mean")),
        Step("natural", 0.1, "natural gradient, mean KL by its quadratic model",
             _plain(lambda problem, radius: natural_gradient(problem, radius, "mean")), aims=True),
        Step("mirror", 10.0, "mirror descent, closed form; the radius is its rate", _plain(mirror)),
        Step("mdpo", 10.0, "mirror descent by ten gradient steps; the radius is its rate",
             _plain(lambda problem, radius: mdpo(problem, radius, steps=10, lr=1.0))),
        Step("adaptive_kl", 0.1, "penalty of KL(mu || pi) adapted to a target", _adaptive, aims=True),
        Step("conservative", 0.1, "mixture with the greedy policy, mean KL(mu || pi)",
             _plain(_conservative), aims=True),
    )
}  # fmt: skip
"""The exact algorithms by name."""


def improve(
    environment: Environment, step: Step, radius: float, rngs: Sequence[np.random.Generator], rollouts: int,
    episodes: int, advantage: str = "exact", watch: Watch = lambda world, log_mu, log_pi: None,
) -> History:  # fmt: skip
    """Learn in one world a generator by exact steps.

    Args:
      environment: draws the world of each seed and the policy that it starts from.
      step, radius: the algorithm and how far it goes.
      rngs: n generators.
      rollouts: number of steps.
      episodes: of each rollout; the exact table needs none.
      advantage: a key of `ESTIMATORS`.
      watch: sees the policies after every step.

    Returns: a `History` with one minibatch a rollout, which drops nothing and has no ratios.
    Source: the algorithms' own, see `trust_region.py` and `policy_steps.py`.

    >>> from .environments import ENVIRONMENTS
    >>> rngs = [np.random.default_rng(seed) for seed in range(3)]
    >>> history = improve(ENVIRONMENTS["chain"], STEPS["trpo"], 0.1, rngs, rollouts=5, episodes=0)
    >>> bool(np.all(np.diff(history.ret) > 0)), history.kl.shape
    (True, (3, 5, 1))
    """
    world, logits = draw_worlds(environment, rngs)
    policy = log_softmax(logits)
    states, steps, memory = [state_of(world, policy)], [], None
    for _ in range(rollouts):
        log_mu = policy
        problem = problem_of(environment, world, log_mu, rngs, episodes, advantage)
        policy, memory = step.take(problem, radius, memory)
        steps.append(distances(log_mu, policy, problem.weight))
        states.append(state_of(world, policy))
        watch(world, log_mu, policy)
    ret, entropy = (np.stack(found, axis=-1) for found in zip(*states, strict=True))
    kl, largest_kl = (np.stack(found, axis=-1)[..., None] for found in zip(*steps, strict=True))
    nothing = np.full_like(kl, np.nan)
    return History(ret, entropy, kl, largest_kl, nothing, nothing, nothing, policy, optimal_return(world))


def problem_of(
    environment: Environment, world: World, log_mu: Floats, rngs: Sequence[np.random.Generator],
    episodes: int, advantage: str,
) -> Problem:  # fmt: skip
    """The one-step problem at mu (n, S, V): exact advantages, or those of sampled episodes."""
    if advantage == "exact":
        return exact_problem(world, log_mu)
    seen = sample(rngs, world, log_mu, episodes, environment.noise)
    estimated = ESTIMATORS[advantage](world, log_mu, seen)
    return Problem(log_mu, _table(log_mu, seen, estimated), state_share(world, log_mu))


def exact_problem(world: World, log_mu: Floats) -> Problem:
    """The one-step problem of a stationary policy: advantages averaged over the steps that are spent there.

    The surrogate of a step, times T, is L' of the finite-horizon theorems: the sum over steps of E_pi[A_t].

    Source: derived here; derivations, T12.

    >>> from .worlds import bandit
    >>> world = bandit(np.array([[0.0, 1.0]]))
    >>> exact_problem(world, np.log(np.array([[[0.25, 0.75]]]))).advantage.tolist()
    [[[-0.75, 0.25]]]
    """
    share = occupancy(world, by_time(world, log_mu))
    visits = share.sum(axis=-2)
    total = np.einsum("...ts,...tsa->...sa", share, values(world, by_time(world, log_mu)).advantage)
    mean = total / np.where(visits > 0, visits, 1.0)[..., None]
    return Problem(log_mu, mean, visits / world.horizon)


def _table(log_mu: Floats, episodes: Episodes, advantage: Floats) -> Floats:
    """(n, S, V) the mean advantage of every action in every state, 0 where it was never taken."""
    cell = table_cell(log_mu, episodes.state, episodes.action)
    total = np.bincount(cell.ravel(), np.ravel(advantage), log_mu.size)
    count = np.bincount(cell.ravel(), minlength=log_mu.size)
    return np.asarray((total / np.maximum(count, 1)).reshape(log_mu.shape))
