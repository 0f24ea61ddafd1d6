r"""Update rules as data: clauses that drop, a gain that weighs, one result record for all of them.

A mask drops a token where one of its clauses is far AND outward. Every method, mask or not, ends in a
detached gradient weight and sometimes a pull: the token's update is `(weight * A + pull) * grad log pi_k`.
The named rules are in `catalogue.py`; adding one is adding a record.
"""

from dataclasses import dataclass

from . import _checks as checks
from ._array import Array, detach, namespace
from .clauses import Clause, ratio_outward
from .gains import GainOf
from .view import View


@dataclass(frozen=True)
class Decision:
    """What a rule does with every token. All arrays have the view's leading shape (...).

    Nothing here carries a gradient: a trainer's loss is `-sum(w * (weight * advantage + pull) * log_pi_k)`
    with its own differentiable `log_pi_k` and the weights w of `loss_weights`.

    Attributes:
      keep: bool, False where a clause dropped the token; True at padding.
      weight: detached gradient weight, 0 at dropped tokens and at padding.
      pull: advantage-free gradient term, 0 for most rules and at padding.
      surrogate: the method's objective per token, 0 at padding.
      divergence: the rule's distance (its first clause's), or None for rules without one.
      change: the first-order change c_k the rule asked, or None.
      far: bool, beyond the radius of some clause.
      outward: bool, outward by some clause.
      ratio_outward: bool, A (r - 1) > 0: what the ratio test says, for comparison.
      certified: bool or None, whether the sign of c_k was proven.
      advantage: the advantage, 0 at padding.
      is_response: bool, False at padding.
    """

    keep: Array
    weight: Array
    pull: Array
    surrogate: Array
    divergence: Array | None
    change: Array | None
    far: Array
    outward: Array
    ratio_outward: Array
    certified: Array | None
    advantage: Array
    is_response: Array


@dataclass(frozen=True)
class Rule:
    """An update rule; call it on a view and advantages.

    Attributes:
      name: its name in tables and flags, with its settings.
      source: key of REFERENCES.md and place.
      gain: how a kept or dropped token weighs.
      clauses: a token is dropped where one of them is far and outward.
      drops: False for soft rules, whose clauses only tell the gain what is far.

    >>> import numpy as np
    >>> from divsim.formulas import View, predictive
    >>> log_mu, log_pi = np.log([[0.4, 0.3, 0.3]]), np.log([[0.45, 0.5, 0.05]])
    >>> view = View.full(log_mu, log_pi, np.array([0]))
    >>> decision = predictive(delta=0.05)(view, np.array([1.0]))
    >>> decision.far.tolist(), decision.ratio_outward.tolist(), decision.keep.tolist()
    ([True], [True], [True])
    """

    name: str
    source: str
    gain: GainOf
    clauses: tuple[Clause, ...] = ()
    drops: bool = True

    def __call__(
        self, view: View, advantage: Array, is_response: Array | None = None, *, check: bool = True
    ) -> Decision:
        """Decide on every token.

        Args:
          view: what is seen of (mu, pi), leading shape (...), time last.
          advantage: (...) A, any sign; ignored at padding.
          is_response: (...) bool or None; narrows the view's own, which counts in any case.
          check: validate shapes and finite values; a non-finite weight at a kept token is an error.

        Errors: ValueError that names the argument, the value and the remedy.
        """
        advantage, is_response = _admit(view, advantage, is_response, check)
        xp = namespace(advantage)
        nothing = xp.zeros_like(is_response)
        far, outward, drop = nothing, nothing, nothing
        answers = [(clause.far(view), clause.outward(view, advantage)) for clause in self.clauses]
        for proximity, direction in answers:
            far, outward = far | proximity.far, outward | direction.outward
            drop = drop | (proximity.far & direction.outward)
        far, outward = far & is_response, outward & is_response
        keep = ~(drop & is_response) if self.drops else ~nothing
        gain = self.gain(view, advantage, keep, far)
        pull = xp.zeros_like(advantage) if gain.pull is None else gain.pull
        if check:
            changes = [direction.change for _, direction in answers if direction.change is not None]
            _require_finite({"change": changes, "weight": [gain.weight], "pull": [pull]}, is_response)
        zero = xp.zeros_like(advantage)
        return Decision(
            keep=keep,
            weight=xp.where(is_response, gain.weight, zero),
            pull=xp.where(is_response, pull, zero),
            surrogate=xp.where(is_response, gain.surrogate, zero),
            divergence=answers[0][0].distance if answers else None,
            change=answers[0][1].change if answers else None,
            far=far,
            outward=outward,
            ratio_outward=ratio_outward(view, advantage).outward,
            certified=answers[0][1].certified if answers else None,
            advantage=advantage,
            is_response=is_response,
        )


def _admit(view: View, advantage: Array, is_response: Array | None, check: bool) -> tuple[Array, Array]:
    """Advantage in the view's dtype, detached and 0 at padding; is_response as a boolean array."""
    checks.require_record("view", view, View, "View.full, View.top_k, View.sampled or View.from_logits")
    given = {} if is_response is None else {"is_response": is_response}
    checks.require_one_library({"advantage": advantage, "view.log_pi": view.log_pi} | given)
    shape = tuple(view.cell_k.shape)
    checks.require_shape("advantage", advantage, shape, "one number a token of the view")
    xp = namespace(advantage, view.log_pi)
    if is_response is None:
        is_response = xp.ones_like(view.cell_k, dtype=xp.bool)
    checks.require_bool("is_response", is_response)
    checks.require_shape("is_response", is_response, shape, "one entry a token of the view")
    if view.is_response is not None:
        is_response = is_response & view.is_response
    advantage = xp.astype(detach(advantage), view.log_pi.dtype)
    advantage = xp.where(is_response, advantage, xp.zeros_like(advantage))
    if check:
        remedy = "score it, or give it advantage 0"
        checks.require(xp.isfinite(advantage), "advantage", advantage, "must be finite at a response", remedy)
    return advantage, is_response


REMEDIES = {
    "change": "take a divergence that stays finite here, such as forward_kl or tv",
    "weight": "lower ratio_cap",
    "pull": "switch it off, or do not mask the logits of sampled tokens",
}
"""What to do about a number that is not finite at a response."""


def _require_finite(named: dict[str, list[Array]], is_response: Array) -> None:
    xp = namespace(is_response)
    for name, arrays in named.items():
        for values in arrays:
            ok = xp.isfinite(values) | ~is_response
            checks.require(ok, name, values, "must be finite at a response", REMEDIES[name])
