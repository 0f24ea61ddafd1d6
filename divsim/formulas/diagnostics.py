"""What a mask did to a batch, as shares of tokens: drop rates by case, disagreement, what was not proven.

Shares are taken over response tokens with A != 0: a token without a push can be neither dropped nor kept. A
share over no tokens is NaN, not 0.
"""

from ._array import Array, namespace
from .rules import Decision


def share(part: Array, whole: Array, axis: int | None = None) -> Array:
    """The share of `whole` that is also in `part`: bool arrays of one shape -> 0-d; NaN if `whole` is empty.

    With an `axis`, the share along it: the axis is gone from the shape.

    >>> import numpy as np
    >>> float(share(np.array([True, False, True]), np.array([True, True, False])))
    0.5
    """
    xp = namespace(part)
    count = xp.sum(xp.astype(whole, xp.float64), axis=axis)
    hits = xp.sum(xp.astype(part & whole, xp.float64), axis=axis)
    return xp.where(count > 0, hits / xp.clip(count, min=1.0), xp.nan)


def diagnostics(decision: Decision) -> dict[str, Array]:
    """Shares of a decision, each a 0-d array in [0, 1] or NaN; tokens count if they are responses, A != 0.

    Of all counted tokens: `far`, `drop`. Of those with A > 0 and A < 0: `drop_raised`, `drop_lowered`. Of
    those that the ratio test calls outward with A > 0, outward with A < 0, and not outward: `drop_above`,
    `drop_below`, `drop_inward`. Of the far ones: `disagree` (the rule's direction differs from the ratio
    test's) and `uncertified` (the sign was not proven; absent for rules that prove nothing).

    Args: decision: any rule's.
    Source: definitions here.

    >>> import numpy as np
    >>> from divsim.formulas import View, ppo_clip
    >>> view = View.sampled(np.log([0.2, 0.2, 0.2]), np.log([0.4, 0.4, 0.2]), vocab_size=10)
    >>> rates = diagnostics(ppo_clip()(view, np.array([1.0, -1.0, 0.0])))
    >>> {name: float(rate) for name, rate in rates.items() if name in ("drop", "drop_raised", "drop_lowered")}
    {'drop': 0.5, 'drop_raised': 1.0, 'drop_lowered': 0.0}
    """
    pushed = decision.is_response & (decision.advantage != 0)
    raised, lowered = decision.advantage > 0, decision.advantage < 0
    drop, by_ratio = ~decision.keep, decision.ratio_outward
    far = pushed & decision.far
    rates = {
        "far": share(decision.far, pushed),
        "drop": share(drop, pushed),
        "drop_raised": share(drop, pushed & raised),
        "drop_lowered": share(drop, pushed & lowered),
        "drop_above": share(drop, pushed & by_ratio & raised),
        "drop_below": share(drop, pushed & by_ratio & lowered),
        "drop_inward": share(drop, pushed & ~by_ratio),
        "disagree": share(decision.outward ^ by_ratio, far),
    }
    if decision.certified is not None:
        rates["uncertified"] = share(~decision.certified, far)
    return rates
