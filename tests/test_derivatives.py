"""Derivatives of all rows: shapes, memory, floor, full Hessians, pytree targets, the check on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost import losses
from jboost._objective import derivatives
from jboost._objective.derivatives import check_derivatives, check_range
from jboost.losses import BatchLoss, Loss
from tests.of_rows import raw_value_grad_hess, rows_of, value_grad_hess

may_fail: Any = jax.jit(derivatives.may_fail)

N, K = 50, 4


def gaussian(score, y):
    """Negative log-likelihood of a normal with mean score[0] and log standard deviation score[1]."""
    return 0.5 * ((y - score[0]) * jnp.exp(-score[1])) ** 2 + score[1]


def test_pytree_target_with_exposure_matches_the_closed_form(rng):
    loss = Loss(lambda s, y: jnp.exp(s) * y["exposure"] - y["count"] * s)
    s, count, exposure = rng.normal(size=N), rng.poisson(2.0, N), rng.uniform(size=N)
    value, g, h = value_grad_hess(loss, jnp.asarray(s), {"count": count, "exposure": exposure})
    np.testing.assert_allclose(value, exposure * np.exp(s) - count * s, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(g, exposure * np.exp(s) - count, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h, exposure * np.exp(s), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "loss", [losses.softmax(K), Loss(gaussian, n_outputs=2)], ids=["softmax", "gaussian"]
)
def test_diagonal_and_full_hessian_match_jax_hessian(loss, rng, x64):
    k = loss.n_outputs
    score = jnp.asarray(rng.normal(size=(N, k)))
    y = jnp.asarray(rng.integers(0, k, N))
    expected = jax.jit(jax.vmap(jax.hessian(loss.function)))(score, y)
    _, _, h = raw_value_grad_hess(loss, score, y)
    np.testing.assert_allclose(h, np.diagonal(expected, axis1=1, axis2=2), rtol=1e-10, atol=1e-12)
    full = loss.full_hessian(score, rows_of(y))
    np.testing.assert_allclose(full, expected, rtol=1e-10, atol=1e-12)


def test_diagonal_hessian_needs_no_k_by_k_memory():
    score, y = jnp.zeros((N, K)), jnp.zeros(N, int)
    program = str(jax.make_jaxpr(lambda s, y: value_grad_hess(losses.softmax(K), s, y))(score, y))
    assert f"[{N},{K}]" in program
    assert f"{N},{K},{K}" not in program
    assert f"{K},{N},{K}" not in program


def test_floor_and_first_order():
    wavy = Loss(lambda s, y: jnp.cos(s) * y, hessian_floor=0.25)
    score, y = jnp.array([0.0, np.pi, 1.5]), jnp.ones(3)
    _, g, h = value_grad_hess(wavy, score, y)
    np.testing.assert_allclose(h, [0.25, 1.0, 0.25], rtol=1e-6)
    np.testing.assert_allclose(raw_value_grad_hess(wavy, score, y)[2], -np.cos(score), rtol=1e-6, atol=1e-6)
    first = value_grad_hess(replace(wavy, hessian="first_order"), score, y)
    np.testing.assert_allclose(first[1], g)
    np.testing.assert_array_equal(first[2], 1.0)


def test_results_take_the_dtype_of_the_score(precision):
    for dtype in {np.float32, precision}:
        results = value_grad_hess(losses.logistic, jnp.zeros(3, dtype), jnp.ones(3, precision))
        assert [r.dtype for r in results] == [dtype] * 3


def test_derivatives_are_differentiable(x64):
    score, y, step = jnp.array([0.3, -0.8]), jnp.array([1.0, 0.0]), 1e-5

    def total(score):
        value, g, h = value_grad_hess(losses.logistic, score, y)
        return jnp.sum(value + 2 * g + 3 * h)

    for j in range(2):
        shift = step * jnp.arange(2).__eq__(j)
        slope = (total(score + shift) - total(score - shift)) / (2 * step)
        np.testing.assert_allclose(jax.grad(total)(score)[j], slope, rtol=1e-7)


# --- check_derivatives --------------------------------------------------------------------------------------


def check(loss: Any, score: Any, y: Any, weight: Any = None) -> None:
    """Check on the host; the device must have said before whether that is needed."""
    value, g, h = raw_value_grad_hess(loss, jnp.asarray(score), y)
    weight = np.ones(len(score)) if weight is None else weight
    try:
        check_derivatives(loss, value, g, h, weight)
    except ValueError:
        assert may_fail(loss, value, g, h, weight)
        raise


def test_zero_second_derivative_is_refused_with_advice():
    with pytest.raises(ValueError, match=r"(?s)second derivative.*hessian=\"first_order\".*Quantile"):
        check(Loss(lambda s, y: jnp.abs(s - y)), jnp.zeros(3), jnp.array([-1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="nowhere positive"):
        check(Loss(lambda s, y: -((s - y) ** 2)), jnp.zeros(3), jnp.ones(3))
    with pytest.raises(ValueError, match="nowhere positive"):  # one output of two
        check(Loss(lambda s, y: s[0] ** 2 + s[1] * y, n_outputs=2), jnp.ones((3, 2)), jnp.ones(3))
    advice, none, one = (
        r"use BatchLoss\(.*, hessian=\"first_order\"\), or give a curvature$",
        np.zeros(3),
        np.ones(3),
    )
    with pytest.raises(ValueError, match=advice):
        check_derivatives(BatchLoss(lambda s, y, w: s.sum()), none, one, none, one)


def test_a_second_derivative_that_is_zero_in_some_rows_passes():
    check(replace(losses.huber(1.0), hessian="diagonal"), jnp.zeros(3), jnp.array([0.5, 2.0, 3.0]))


def test_first_order_and_saturated_losses_pass():
    check(losses.absolute_error, jnp.zeros(3), jnp.array([-1.0, 2.0, 3.0]))
    check(losses.logistic, jnp.full(3, 40.0), jnp.ones(3))  # one class only: g and h have both vanished
    check(losses.softmax(3), jnp.full((3, 3), 40.0).at[:, 1:].set(-40.0), jnp.zeros(3, int))


@pytest.mark.parametrize(
    ("function", "what"),
    [
        (lambda s, y: jnp.log(y) + (s - y) ** 2, "value"),
        (lambda s, y: jnp.sqrt(jnp.abs(s - y)), "first derivative"),
        (lambda s, y: jnp.abs(s - y) ** 1.5, "second derivative"),
    ],
)
def test_results_that_are_not_finite_are_named_unless_their_row_has_no_weight(function, what):
    score, y = jnp.zeros(3), jnp.array([1.0, 0.0, 2.0])
    with pytest.raises(ValueError, match=f"the {what} of .* not finite at the base score .row 1"):
        check(Loss(function), score, y)
    check(Loss(lambda s, y: function(s, y) + s**2), score, y, weight=np.array([1.0, 0.0, 2.0]))


@pytest.mark.parametrize("shape", [(N,), (N, 3)])
def test_the_range_of_gradients(shape, precision, rng):
    """The sum is refused beyond its limit; on the device, from half of it on if all are alike."""
    limit = np.finfo(precision).max / 100
    unit = np.full(shape, limit / np.prod(shape) / 2, precision)  # with weights of 2
    value, h, weight = jnp.zeros(N), jnp.ones(shape), np.full(N, 2.0, precision)
    signs = rng.choice([-1.0, 1.0], shape).astype(precision)
    with pytest.raises(ValueError, match="y is out of the range of"):
        check_range(1.01 * signs * unit, h, weight)
    check_range(0.99 * signs * unit, h, weight)
    with pytest.raises(ValueError, match="the second derivatives of the loss sum to"):
        check_range(signs, 1.01 * unit, weight)
    for share, expected in ((0.49, False), (0.51, True), (50.0, True), (np.inf, True), (np.nan, True)):
        g = (share * signs * unit).astype(precision)
        found = may_fail(losses.squared_error, value, jnp.asarray(g), h, jnp.asarray(weight))
        assert bool(found) is expected
        weightless = jnp.asarray(weight).at[-1].set(0)
        last = np.where(np.arange(N).reshape(-1, *[1] * (len(shape) - 1)) == N - 1, g, 0)
        assert not may_fail(losses.squared_error, value, jnp.asarray(last), h, weightless)


def test_ordinary_rows_need_no_closer_look(rng):
    y = jnp.asarray(rng.normal(size=N))
    for loss, target in ((losses.squared_error, y), (losses.absolute_error, y), (losses.logistic, y > 0)):
        results = raw_value_grad_hess(loss, jnp.zeros(N), target.astype(float))
        assert not may_fail(loss, *results, jnp.ones(N))
    results = raw_value_grad_hess(losses.softmax(K), jnp.zeros((N, K)), jnp.arange(N) % K)
    assert not may_fail(losses.softmax(K), *results, jnp.ones(N))
