"""Rows of a batch do not speak to one another, whatever stands in the next row, and padding says nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from divsim.formulas import (
    DIVERGENCES,
    REVERSE_KL,
    Divergence,
    View,
    change,
    finite_change,
    forward_kl_along,
    log_softmax,
    policy_gradient_direction,
    step_kl,
)

rng = np.random.default_rng(0)
LOG_MU = log_softmax(rng.standard_normal((2, 3, 5)))
LOG_PI = log_softmax(rng.standard_normal((2, 3, 5)))
LOG_PI[0, 1] = np.log([0.25, 0.25, 0.25, 0.25, 1e-300])
LOG_PI[0, 1, 4] = -np.inf  # pi misses a token of mu in this row, and in no other
ACTION = np.array([[0, 1, 2], [3, 4, 0]])
# one row moves far, the others little
MOVE = np.array([[[9.0], [0.1], [0.2]], [[-8.0], [0.3], [0.1]]]) * policy_gradient_direction(LOG_PI, ACTION)

each = pytest.mark.parametrize("divergence", DIVERGENCES.values(), ids=list(DIVERGENCES))
Rowwise = Callable[[Any, Any, Any, Any], Any]


def check_rows(function: Rowwise) -> None:
    whole = function(LOG_MU, LOG_PI, ACTION, MOVE)
    for place in np.ndindex(2, 3):
        alone = function(LOG_MU[place], LOG_PI[place], np.array(ACTION[place]), MOVE[place])
        # sums of five terms, whose order a batch may change
        np.testing.assert_allclose(np.asarray(whole)[place], alone, rtol=1e-13, atol=1e-15)


@each
def test_measures_row_by_row(divergence: Divergence) -> None:
    check_rows(lambda log_mu, log_pi, action, move: divergence.measure(log_mu, log_pi))


def test_one_missed_token_makes_one_row_infinite() -> None:
    found = DIVERGENCES["forward_kl"].measure(LOG_MU, LOG_PI)
    assert np.isinf(found).sum() == 1 and np.isinf(found[0, 1])


def test_steps_row_by_row() -> None:
    check_rows(lambda log_mu, log_pi, action, move: step_kl(log_pi, move))
    check_rows(lambda log_mu, log_pi, action, move: finite_change(log_mu, log_pi, move))
    for part in (0, 1):
        check_rows(
            lambda log_mu, log_pi, action, move, part=part: forward_kl_along(log_mu, log_pi, move)[part]
        )


def test_changes_row_by_row() -> None:
    check_rows(lambda log_mu, log_pi, action, move: change(View.full(log_mu, log_pi, action)))


def test_a_gradient_that_does_not_exist_is_not_finite() -> None:
    log_mu, log_pi = np.array([-np.inf, 0.0]), np.log(np.array([0.5, 0.5]))
    with np.errstate(invalid="ignore"):  # inf - inf: there is nothing to say but NaN
        assert not np.any(np.isfinite(REVERSE_KL.logit_grad(log_mu, log_pi)))


IS_RESPONSE = np.array([[True, False, True], [True, True, False]])


def test_views_of_three_axes_know_their_padding() -> None:
    dirty_mu, dirty_pi = LOG_MU.copy(), LOG_PI.copy()
    dirty_mu[~IS_RESPONSE], dirty_pi[~IS_RESPONSE] = np.nan, 7.0
    found = change(View.full(dirty_mu, dirty_pi, ACTION, is_response=IS_RESPONSE))
    np.testing.assert_array_equal(found[IS_RESPONSE], change(View.full(LOG_MU, LOG_PI, ACTION))[IS_RESPONSE])


def test_a_padded_record_may_hold_anything() -> None:
    top_ids = np.argsort(-LOG_MU, axis=-1)[..., :2]
    top = np.take_along_axis(LOG_MU, top_ids, axis=-1)
    own = np.take_along_axis(LOG_MU, ACTION[..., None], axis=-1)[..., 0]
    ids, action, record, mu_k = top_ids.copy(), ACTION.copy(), top.copy(), own.copy()
    ids[~IS_RESPONSE], action[~IS_RESPONSE], record[~IS_RESPONSE], mu_k[~IS_RESPONSE] = -9, -9, np.nan, 3.0
    logits = np.where(np.isfinite(LOG_PI), LOG_PI, -50.0)
    found = View.from_logits(logits, action, mu_k, ids, record, is_response=IS_RESPONSE)
    clean = View.from_logits(logits, ACTION, own, top_ids, top)
    for tail in ("uniform", "proportional"):
        ours, theirs = change(found, tail=tail), change(clean, tail=tail)
        np.testing.assert_array_equal(ours[IS_RESPONSE], theirs[IS_RESPONSE])


def test_a_mask_of_the_wrong_type_or_shape_is_refused_at_every_door() -> None:
    ids = np.argsort(-LOG_MU, axis=-1)[..., :2]
    top = np.take_along_axis(LOG_MU, ids, axis=-1)
    own = np.take_along_axis(LOG_MU, ACTION[..., None], axis=-1)[..., 0]
    logits = np.where(np.isfinite(LOG_PI), LOG_PI, -50.0)
    for bad in (IS_RESPONSE.astype(float), IS_RESPONSE[:1]):
        for door in (
            lambda bad=bad: View.full(LOG_MU, LOG_PI, ACTION, is_response=bad),
            lambda bad=bad: View.from_logits(logits, ACTION, own, ids, top, is_response=bad),
            lambda bad=bad: View.sampled(own, own, 5, is_response=bad),
        ):
            with pytest.raises((TypeError, ValueError), match="is_response"):
                door()


def test_a_tiny_step_keeps_its_digits_beside_a_large_one() -> None:
    log_pi = np.log(np.array([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]))
    move = np.array([[9.0], [1e-6]]) * policy_gradient_direction(log_pi, np.array([0, 0]))
    # half the variance of the move, up to the third order: 1e-6 relative
    half_variance = 0.5e-12 * float(
        np.exp(log_pi[1]) @ (move[1] / 1e-6 - np.exp(log_pi[1]) @ move[1] / 1e-6) ** 2
    )
    np.testing.assert_allclose(step_kl(log_pi, move)[1], half_variance, rtol=2e-6)
