r"""Learning from stale samples under an update rule, exactly as a trainer does, for many seeds at once.

Each rollout: the engine's policy mu acts, the batch is cut into minibatches, and the training policy pi takes
one gradient step on each, so that pi moves away from mu while it learns. Every minibatch records how far away
it is, with every state enumerated. Policies are softmax tables, one row of logits a state. What is left out:
shared weights (`shared_head.py`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from divsim.formulas import FORWARD_KL, Decision, Rule, View, entropy, log_softmax, share

from .environments import Environment, draw_worlds
from .optimisers import Moments, Optimiser
from .policies import Floats, Ints
from .rollouts import ESTIMATORS, Episodes, by_time, sample, uniform
from .trust_region import over_states
from .worlds import World, expected_return, occupancy, optimal_return

Number = TypeVar("Number", np.float64, np.int64)


@dataclass(frozen=True)
class Recipe:
    """How to learn.

    Attributes:
      rule: what a token's update weighs.
      optimiser: what a gradient becomes.
      rollouts: how often mu is renewed.
      episodes: of each rollout.
      minibatches: of each pass over a rollout.
      passes: over a rollout.
      advantage: a key of `ESTIMATORS`.
      k: tokens of mu that the engine shows; None for all.
      bracket: whether the view of K tokens brackets what is hidden, for rules that certify.
      engine_noise: standard deviation of the engine's error on every logit, nats; drawn anew each rollout.
    """

    rule: Rule
    optimiser: Optimiser
    rollouts: int
    episodes: int
    minibatches: int
    passes: int = 1
    advantage: str = "exact"
    k: int | None = None
    bracket: bool = False
    engine_noise: float = 0.0


@dataclass(frozen=True)
class History:
    """What happened, seeds first: n seeds, N rollouts, M minibatches in all of a rollout.

    Attributes:
      ret: (n, N + 1) expected return J(pi), before the first and after every rollout.
      entropy: (n, N + 1) of pi, nats, averaged over the states that pi visits.
      kl: (n, N, M) KL(mu || pi) after every minibatch, averaged over the states that mu visits.
      largest_kl: (n, N, M) the same, the largest of the states that mu visits.
      drop: (n, N, M) share of tokens with A != 0 that the rule dropped; NaN without such tokens.
      disagree: (n, N, M) share of far tokens that the rule and the ratio test read differently; NaN likewise.
      sample_size: (n, N, M) effective sample size of the ratios of a minibatch, as a share of its tokens.
      policy: (n, S, V) log-probabilities at the end, nats.
      best: (n,) the return of the best policy of the world.
    """

    ret: Floats
    entropy: Floats
    kl: Floats
    largest_kl: Floats
    drop: Floats
    disagree: Floats
    sample_size: Floats
    policy: Floats
    best: Floats


Watch = Callable[[World, Floats, Floats], None]
"""(worlds, log_mu (n, S, V), log_pi (n, S, V)), called after every minibatch."""


def learn(
    environment: Environment, recipe: Recipe, rngs: Sequence[np.random.Generator],
    watch: Watch = lambda world, log_mu, log_pi: None,
) -> History:  # fmt: skip
    """Learn in one world a generator, all of them together.

    Args:
      environment: draws the world of each seed and the policy that it starts from.
      recipe: how to learn.
      rngs: n generators; all randomness of a seed comes from its own, so a seed does not depend on the rest.
      watch: sees the policies after every minibatch.

    Returns: a `History`.
    Source: derived here; the loop of [PPO] algorithm 1 with the rule's weights.

    >>> from divsim.formulas import ppo_clip
    >>> from .environments import ENVIRONMENTS
    >>> from .optimisers import sgd
    >>> recipe = Recipe(ppo_clip(), sgd(1.0), rollouts=20, episodes=32, minibatches=4)
    >>> history = learn(ENVIRONMENTS["bernoulli"], recipe, [np.random.default_rng(seed) for seed in range(4)])
    >>> bool(np.all(history.ret[:, -1] > history.ret[:, 0]))
    True
    """
    world, logits = draw_worlds(environment, rngs)
    moments = Moments(np.zeros_like(logits), np.zeros_like(logits))
    policy = log_softmax(logits)
    states, traces = [state_of(world, policy)], []
    for _ in range(recipe.rollouts):
        log_mu = _engine(policy, recipe.engine_noise, rngs)
        episodes = sample(rngs, world, log_mu, recipe.episodes, environment.noise)
        advantage = ESTIMATORS[recipe.advantage](world, log_mu, episodes)
        steps = []
        for part in _minibatches(rngs, recipe):
            view, decision, gradient = _update(recipe, _tokens(log_mu, episodes, advantage, part), policy)
            move, moments = recipe.optimiser.step(gradient, moments)
            logits = logits + move
            policy = log_softmax(logits)
            steps.append(_Step(view, decision, policy))
            watch(world, log_mu, policy)
        traces.append(_trace(log_mu, state_share(world, log_mu), steps))
        states.append(state_of(world, policy))
    ret, spread = (np.stack(values, axis=-1) for values in zip(*states, strict=True))
    kl, largest_kl, drop, disagree, size = (np.stack(values, axis=1) for values in zip(*traces, strict=True))
    return History(ret, spread, kl, largest_kl, drop, disagree, size, policy, optimal_return(world))


@dataclass(frozen=True)
class Tokens:
    """The tokens of a minibatch in each of n worlds: all arrays (n, B), but the policy (n, S, V)."""

    log_mu: Floats
    state: Ints
    action: Ints
    advantage: Floats


def _tokens(log_mu: Floats, episodes: Episodes, advantage: Floats, part: Ints) -> Tokens:
    """The episodes of a minibatch (n, E / M), their steps side by side."""
    n = len(log_mu)

    def chosen(values: NDArray[Number]) -> NDArray[Number]:
        return np.take_along_axis(values, part[..., None], axis=1).reshape(n, -1)

    return Tokens(log_mu, chosen(episodes.state), chosen(episodes.action), chosen(advantage))


def view_of(recipe: Recipe, tokens: Tokens, policy: Floats) -> View:
    """What the rule sees of the tokens."""
    rows = np.arange(len(policy))[:, None]
    log_mu, log_pi = tokens.log_mu[rows, tokens.state], policy[rows, tokens.state]
    if recipe.k is None or recipe.k >= policy.shape[-1]:
        return View.full(log_mu, log_pi, tokens.action, check=False)
    return View.top_k(log_mu, log_pi, tokens.action, recipe.k, bracket=recipe.bracket, check=False)


def _update(recipe: Recipe, tokens: Tokens, policy: Floats) -> tuple[View, Decision, Floats]:
    """What the rule sees and decides of a minibatch, and the gradient (n, S, V)."""
    view = view_of(recipe, tokens, policy)
    decision = recipe.rule(view, tokens.advantage, check=False)
    push = decision.weight * tokens.advantage + decision.pull
    return view, decision, logit_gradient(policy, tokens.state, tokens.action, push)


def logit_gradient(policy: Floats, state: Ints, action: Ints, push: Floats) -> Floats:
    """The mean over tokens of `push (e_k - pi)`, in the row of logits of each token's state.

    Args:
      policy: (n, S, V) log-probabilities, nats.
      state, action: (n, B) int.
      push: (n, B) what each token's score is multiplied by.

    Returns: (n, S, V).
    Source: the softmax policy gradient; derivations, T1.

    >>> log_pi = np.log(np.array([[[0.25, 0.75]]]))
    >>> logit_gradient(log_pi, np.array([[0]]), np.array([[1]]), np.array([[2.0]])).tolist()
    [[[-0.5, 0.5]]]
    """
    cell = table_cell(policy, state, action)
    pushed = np.bincount(cell.ravel(), push.ravel(), policy.size).reshape(policy.shape)
    return np.asarray((pushed - np.exp(policy) * pushed.sum(axis=-1, keepdims=True)) / state.shape[-1])


def table_cell(table: Floats, state: Ints, action: Ints) -> Ints:
    """Where the entries of states and actions (n, ...) are in a flattened table (n, S, V)."""
    n, states, actions = table.shape
    first = np.arange(n).reshape(n, *[1] * (state.ndim - 1)) * states
    return np.asarray((first + state) * actions + action)


def _minibatches(rngs: Sequence[np.random.Generator], recipe: Recipe) -> list[Ints]:
    """Which episodes, (n, E / M) each: every pass is a new order of all of them."""
    order = np.argsort(uniform(rngs, (recipe.passes, recipe.episodes)), axis=-1)
    parts = order.reshape(len(rngs), recipe.passes * recipe.minibatches, -1)
    return list(np.moveaxis(parts, 1, 0))


def _engine(policy: Floats, noise: float, rngs: Sequence[np.random.Generator]) -> Floats:
    if noise == 0:
        return policy
    error = np.stack([rng.standard_normal(policy.shape[1:]) for rng in rngs])
    return np.asarray(log_softmax(policy + noise * error))


def state_share(world: World, log_policy: Floats) -> Floats:
    """How much of an episode a stationary policy spends in each state: (n, S, V) -> (n, S), sums to 1."""
    return np.asarray(occupancy(world, by_time(world, log_policy)).mean(axis=-2))


def state_of(world: World, policy: Floats) -> tuple[Floats, Floats]:
    """(n,) the expected return, and the entropy averaged over the states that the policy visits."""
    by_state = np.sum(state_share(world, policy) * np.asarray(entropy(policy)), axis=-1)
    return expected_return(world, by_time(world, policy)), np.asarray(by_state)


def distances(log_mu: Floats, policy: Floats, visited: Floats) -> tuple[Floats, Floats]:
    """(n,) KL(mu || pi) averaged over the states that mu visits, and the largest of them."""
    kl = np.asarray(FORWARD_KL.measure(log_mu, policy))
    return over_states(kl, visited, "mean"), over_states(kl, visited, "state")


@dataclass(frozen=True)
class _Step:
    """What is remembered of a minibatch until the rollout is over."""

    view: View
    decision: Decision
    policy: Floats


def _trace(log_mu: Floats, visited: Floats, steps: Sequence[_Step]) -> tuple[Floats, ...]:
    """`History.kl` and the fields that follow it, of one rollout: (n, M) each."""

    def stacked_over(pick: Callable[[_Step], object]) -> NDArray[Any]:
        return np.stack([np.asarray(pick(step)) for step in steps], axis=1)

    policy = stacked_over(lambda step: step.policy)
    kl, largest_kl = distances(log_mu[:, None], policy, visited[:, None])
    pushed = stacked_over(lambda step: step.decision.advantage) != 0
    dropped = ~stacked_over(lambda step: step.decision.keep)
    far = stacked_over(lambda step: step.decision.far) & pushed
    differs = stacked_over(lambda step: step.decision.outward ^ step.decision.ratio_outward)
    log_ratio = stacked_over(lambda step: step.view.log_pi_k - step.view.log_mu_k)
    drop, disagree = share(dropped, pushed, axis=-1), share(differs, far, axis=-1)
    return kl, largest_kl, drop, disagree, sample_size(log_ratio)


def sample_size(log_ratio: Floats) -> Floats:
    """Effective sample size of importance ratios, as a share of their number: (..., B) nats -> (...).

    Source: Kish, (sum r)^2 / sum r^2.

    >>> sample_size(np.log(np.array([1.0, 1.0, 1e-9, 1e-9]))).round(6).tolist()
    0.5
    """
    # Of the largest ratio, so that a policy that has left all its samples does not divide 0 by 0.
    scaled = np.exp(log_ratio - np.max(log_ratio, axis=-1, keepdims=True))
    return np.asarray(np.sum(scaled, axis=-1) ** 2 / np.sum(scaled**2, axis=-1) / log_ratio.shape[-1])
