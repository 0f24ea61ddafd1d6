r"""How a divergence changes under a step: to first order, exactly, to second order, and until its sign flips.

The first-order change of a token's own policy-gradient step is read from a `View`. Everything that needs
whole policies (finite steps, other step geometries) takes log-probabilities (..., V). All of it speaks of
logits, one token and one step; a network, many tokens or momentum are another question.
"""

from ._array import Array, namespace, take
from ._checks import require_known, require_record
from .divergences import FORWARD_KL, Divergence, kl_and_difference
from .softmax import logsumexp, policy_gradient_direction
from .tail import TAILS
from .view import View


def change(view: View, divergence: Divergence = FORWARD_KL, tail: str = "full") -> Array:
    r"""First-order change c_k of a divergence under one policy-gradient logit step on the sampled token.

        dD/d eta = A r c_k,   c_k = q_k - sum_C q_C nu_C,   q = grad_z D on the cells    (change)

    with nu_C = pi_C on retained tokens and the tail model's nu on the tail. For forward KL at full resolution
    c_k = (pi_k - mu_k) + sum_i pi_i (mu_i - pi_i). Computed as sum_{C != k} (pi_C q_k - nu_C q_C), the same
    because the pi_C sum to one, so that a confident token (pi_k near 1) keeps its digits.

    Args:
      view: what is seen of (mu, pi), leading shape (...).
      divergence: the divergence D.
      tail: a name of `TAILS`; "full" demands a full view.

    Returns: (...), nats per unit logit step for KL (the divergence's unit otherwise).
    Errors: ValueError for an unknown tail, or a field that the view lacks.
    Source: [PDM] Proposition 1 (forward KL); derived here, derivations, T2, T4 and T7 (the rest).

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([[0.4, 0.3, 0.3]]), np.log([[0.45, 0.5, 0.05]])
    >>> change(View.full(log_mu, log_pi, np.array([0]))).round(6).tolist()
    [-0.06]
    """
    require_known("tail", tail, TAILS)
    require_record("view", view, View, "View.full, View.top_k, View.sampled or View.from_logits")
    require_record("divergence", divergence, Divergence, "an entry of DIVERGENCES")
    xp = namespace(view.log_pi)
    q = divergence.logit_grad(*view.cells)
    q_k, q_tail = take(q, view.cell_k), q[..., -1]
    payments = xp.exp(view.log_pi) * (q_k[..., None] - q[..., :-1])
    return xp.sum(payments, axis=-1) + xp.exp(view.log_pi_tail) * q_k - TAILS[tail].nu(view) * q_tail


def directional_change(divergence: Divergence, log_mu: Array, log_pi: Array, direction: Array) -> Array:
    r"""First-order change of D when the logits move along any direction v: `q . v`.

    Args: log_mu, log_pi, direction: (..., V); logs in nats.
    Returns: (...), change of D per unit step along v.
    Source: chain rule; derivations, T5 (natural gradient) and T11 (kernels).

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([0.4, 0.3, 0.3]), np.log([0.45, 0.5, 0.05])
    >>> natural = np.array([1.0, 0.0, 0.0]) / 0.45  # e_k / pi_k: r - 1 over r
    >>> float(directional_change(FORWARD_KL, log_mu, log_pi, natural).round(6))
    0.111111
    """
    return namespace(log_pi).sum(divergence.logit_grad(log_mu, log_pi) * direction, axis=-1)


def forward_kl_along(log_mu: Array, log_pi: Array, direction: Array) -> tuple[Array, Array]:
    r"""`FORWARD_KL.measure` and `directional_change`, the two questions of a mask, in one pass.

    Args: log_mu, log_pi, direction: (..., V); logs in nats.
    Returns: (D, dD), each (...): D in nats, and its change per unit step along v.
    Source: as those; derivations, T2.

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([0.4, 0.3, 0.3]), np.log([0.45, 0.5, 0.05])
    >>> kl, slope = forward_kl_along(log_mu, log_pi, policy_gradient_direction(log_pi, np.array(0)))
    >>> round(float(kl), 6), round(float(slope), 6)
    (0.337167, -0.06)
    """
    kl, q = kl_and_difference(log_mu, log_pi)
    return kl, namespace(q).sum(q * direction, axis=-1)


def kernel_change(divergence: Divergence, log_mu: Array, log_pi: Array, action: Array, gram: Array) -> Array:
    r"""First-order change when logits move by `K (e_k - pi)`: the step of a shared head, K = J J^T.

        c_k^K = q . K (e_k - pi)                                                 (change.kernel)

    Args:
      log_mu, log_pi: (..., V), nats.
      action: (...) int.
      gram: (..., V, V) symmetric positive semi-definite K; the identity gives `change`.

    Source: derived here; derivations, T11.

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([0.4, 0.3, 0.3]), np.log([0.45, 0.5, 0.05])
    >>> float(kernel_change(FORWARD_KL, log_mu, log_pi, np.array(0), np.eye(3)).round(6))
    -0.06
    """
    xp = namespace(log_pi)
    step = policy_gradient_direction(log_pi, action)
    return directional_change(divergence, log_mu, log_pi, xp.matmul(gram, step[..., None])[..., 0])


def mean_under(log_pi: Array, values: Array) -> Array:
    """E_pi[x]: (..., V) and (..., V) -> (...).

    >>> import numpy as np
    >>> float(mean_under(np.log([0.25, 0.75]), np.array([1.0, 5.0])))
    4.0
    """
    xp = namespace(log_pi)
    return xp.sum(xp.exp(log_pi) * values, axis=-1)


def curvature(log_pi: Array, direction: Array) -> Array:
    r"""Second derivative of forward KL along a logit direction: Var_pi(v), whatever mu is.

    Args: log_pi: (..., V), nats. direction: (..., V), logits per unit step.
    Returns: (...) >= 0, nats per squared unit step.
    Source: derived here; derivations, T3.

    >>> import numpy as np
    >>> float(curvature(np.log([0.5, 0.5]), np.array([1.0, -1.0])))
    1.0
    """
    centre = mean_under(log_pi, direction)
    return mean_under(log_pi, (direction - centre[..., None]) ** 2)


def finite_change(log_mu: Array, log_pi: Array, displacement: Array) -> Array:
    r"""Exact change of forward KL when the logits of pi move by x, at any size and in any direction.

        D(pi_x) - D(pi) = log E_pi[e^x] - E_mu[x]                                (change.finite)

    computed as (pi - mu) . x + KL(pi || pi_x), so that small steps keep their digits.

    Args:
      log_mu, log_pi: (..., V) whole policies, nats.
      displacement: (..., V) logit displacement x, for one token's step s (e_k - pi).

    Returns: (...), nats.
    Source: derived here; derivations, T3.

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([0.4, 0.3, 0.3]), np.log([0.45, 0.5, 0.05])
    >>> step = 0.1 * policy_gradient_direction(log_pi, np.array(0))
    >>> float(finite_change(log_mu, log_pi, step).round(6))  # first order says -.006
    -0.004692
    """
    first_order = directional_change(FORWARD_KL, log_mu, log_pi, displacement)
    return first_order + step_kl(log_pi, displacement)


def step_kl(log_pi: Array, displacement: Array) -> Array:
    r"""How far a logit step moves pi itself: what the change of forward KL has beyond its first order.

        KL(pi || pi_x) = log E_pi[e^{x - E_pi x}]                                (change.step_kl)

    Args:
      log_pi: (..., V) training log-probabilities, nats.
      displacement: (..., V) logit displacement x.

    Returns: (...) >= 0, nats.
    Source: derived here; derivations, T3.

    >>> import numpy as np
    >>> log_pi = np.log([0.45, 0.5, 0.05])
    >>> float(step_kl(log_pi, 0.1 * policy_gradient_direction(log_pi, np.array(0))).round(6))
    0.001308
    """
    xp = namespace(log_pi, displacement)
    pi = xp.exp(log_pi)
    shifted = displacement - xp.sum(pi * displacement, axis=-1, keepdims=True)
    one = xp.ones((), dtype=shifted.dtype, device=shifted.device)
    near = xp.minimum(shifted, one)  # where a row has more, `large` is taken
    small = xp.log1p(xp.sum(pi * (xp.expm1(near) - near), axis=-1))
    large = logsumexp(log_pi + shifted)
    return xp.abs(xp.where(xp.max(shifted, axis=-1) < 1, small, large))  # a negative one is rounding of 0


def flip_step_bracket(log_mu: Array, log_pi: Array, action: Array) -> tuple[Array, Array]:
    r"""Where a predicted decrease of forward KL turns into an increase: a closed bracket of the step |s*|.

        6 |c| / (3 V0 + 2 R |c|)  <=  s*  <=  2 |c| / (V0 - R |c|)               (change.flip_step)

    V0 = Var_pi(e_k - pi), R = 1 - pi_k + max_{i != k} pi_i; the upper end is +inf where V0 <= R |c|.

    Args: log_mu, log_pi: (..., V), nats. action: (...) int.
    Returns: (low, high), each (...), in units of the logit step s = eta A r against the sign of c_k.
    Source: derived here; derivations, T3.

    >>> import numpy as np
    >>> log_mu, log_pi = np.log([0.4, 0.3, 0.3]), np.log([0.45, 0.5, 0.05])
    >>> [round(float(end), 3) for end in flip_step_bracket(log_mu, log_pi, np.array(0))]
    [0.396, 0.605]
    """
    xp = namespace(log_mu, log_pi)
    direction = policy_gradient_direction(log_pi, action)
    size = xp.abs(directional_change(FORWARD_KL, log_mu, log_pi, direction))
    variance = curvature(log_pi, direction)
    span = xp.max(direction, axis=-1) - xp.min(direction, axis=-1)
    low_scale, high_scale = 3 * variance + 2 * span * size, variance - span * size
    return _ratio_or(6 * size, low_scale, 0.0), _ratio_or(2 * size, high_scale, xp.inf)


def _ratio_or(numerator: Array, denominator: Array, otherwise: float) -> Array:
    """numerator / denominator where that is defined and positive, else a constant."""
    xp = namespace(numerator)
    is_defined = denominator > 0
    quotient = numerator / xp.where(is_defined, denominator, xp.ones_like(denominator))
    return xp.where(is_defined, quotient, otherwise)
