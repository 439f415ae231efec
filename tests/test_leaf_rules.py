"""Leaf rules of the user's, full Hessians that are not positive, and losses that JAX can hardly differentiate."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jboost
from jboost import Hyper, LeafRule, Loss, Newton, Quantile, Spec, losses
from jboost._objective.leaf_rules import _positive
from tests.twin import assert_same_models, problem

SMALL = Spec(n_estimators=3, max_depth=2)


def fit(loss: Any, target: str = "real", **options: Any) -> Any:
    rows = problem("plain")
    return jboost.fit(loss, rows.data, rows.targets[target], spec=SMALL, **options)


# --- A rule of one's own ------------------------------------------------------------------------------------


class ShrunkenMean:
    """The mean residual of a leaf, shrunk as if some rows more had a residual of 0: a Newton step on squares."""

    needs_all_rows: ClassVar[bool] = False

    def leaf_values(self, leaves):
        residual = leaves.rows.y[:, None] - leaves.score
        total = leaves.sum((residual * leaves.weight[:, None])[..., None])[..., 0]
        return total / (leaves.weight_of_leaf() + leaves.hyper.reg_lambda)[:, None]

    def base_score(self, loss, rows, reduce):
        return jboost.best_constant(loss, rows, reduce)


def test_a_rule_of_ones_own(x64):
    rule = ShrunkenMean()
    assert isinstance(rule, LeafRule)
    loss = Loss(losses.squared_error.function, leaf=rule)
    expected, _ = fit(losses.squared_error)
    assert_same_models(fit(loss)[0], expected, rtol=1e-9)
    sweep = jax.jit(jax.vmap(lambda ridge: fit(loss, hyper=Hyper(reg_lambda=ridge))[0].leaf_value))
    swept = sweep(jnp.array([0.0, 5.0]))
    np.testing.assert_allclose(
        swept[1], fit(losses.squared_error, hyper=Hyper(reg_lambda=5.0))[0].leaf_value, rtol=1e-9
    )


def test_what_is_no_rule_is_refused():
    wrong: Any
    for wrong in ("newton", Newton, None, 3):
        with pytest.raises(TypeError, match="leaf must be Newton"):
            Loss(losses.squared_error.function, leaf=wrong)
    assert isinstance(Quantile(0.2), LeafRule)


# --- Full Hessians ------------------------------------------------------------------------------------------


def test_eigenvalues_are_turned_round_and_raised(rng, x64):
    h = rng.normal(size=(50, 3, 3))
    h = h + np.swapaxes(h, 1, 2)
    h[0], h[1] = np.diag([2.0, 1.0, 0.5]), np.diag([1.0, 0.0, -4.0])
    found = np.asarray(_positive(jnp.asarray(h), jnp.full(50, 1e-3)))
    for one, before in zip(found, h, strict=True):
        values, vectors = np.linalg.eigh(before)
        expected = vectors @ np.diag(np.maximum(np.abs(values), 1e-3)) @ vectors.T
        np.testing.assert_allclose(one, expected, atol=1e-10)
    np.testing.assert_array_equal(found[0], h[0])  # positive already: the same bits


@pytest.mark.slow
def test_the_derivative_of_what_is_made_positive(rng, x64):
    """First and second derivatives against differences, of matrices whose eigenvalues are equal too."""
    h = rng.normal(size=(6, 3, 3))
    h = h + np.swapaxes(h, 1, 2)
    h[0], h[1], h[2] = -2 * np.eye(3), np.diag([1.0, 1e-4, -4.0]), 3 * np.eye(3)
    direction = rng.normal(size=h.shape)
    direction = direction + np.swapaxes(direction, 1, 2)
    least = jnp.full(6, 1e-2)

    def along(step, floor):
        return jnp.sum(jnp.sin(_positive(jnp.asarray(h + step * direction), floor)), axis=(1, 2))

    slope = jax.jacfwd(along, argnums=(0, 1))
    by_step, by_floor = slope(0.0, least)
    d = 1e-6
    np.testing.assert_allclose(by_step, (along(d, least) - along(-d, least)) / (2 * d), rtol=1e-6, atol=1e-6)
    moved = [along(0.0, least + sign * d) for sign in (1, -1)]
    np.testing.assert_allclose(jnp.diag(by_floor), (moved[0] - moved[1]) / (2 * d), rtol=1e-6, atol=1e-6)
    h, direction = (
        h[1:],
        direction[1:],
    )  # of equal eigenvalues that are negative there are no second derivatives
    by_both = jax.jit(jax.jacrev(lambda step: slope(step, least[1:])[0]))(0.0)
    differences = (slope(d, least[1:])[0] - slope(-d, least[1:])[0]) / (2 * d)
    np.testing.assert_allclose(by_both, differences, rtol=1e-5, atol=1e-5)


def saddle(score, y):
    """Two outputs whose Hessian has a negative eigenvalue where they are near 0: cos(s0 - s1) and squares."""
    return 0.5 * jnp.sum((score - y) ** 2) + 2.0 * jnp.cos(score[0] - score[1])


def scaled_saddle(score, y, *, scale):  # a parameter: all scales are one program
    return scale * saddle(score, y)


@pytest.mark.parametrize("scale", [1.0, *(pytest.param(one, marks=pytest.mark.slow) for one in (1e-3, 1e3))])
def test_a_step_along_an_indefinite_hessian_lowers_the_loss(scale, x64):
    y = np.random.default_rng(0).normal(size=(400, 2)) * 0.2
    loss = Loss(Partial(scaled_saddle, scale=scale), n_outputs=2, hessian="full")
    spec, hyper = (
        Spec(n_estimators=12, max_depth=2),
        Hyper(learning_rate=0.3, reg_lambda=0.0, min_child_weight=0.0),
    )
    _, history = jboost.fit(loss, problem("plain").data, y, spec=spec, hyper=hyper)
    assert (np.diff(history.train_loss) < 1e-9 * scale).all()


@pytest.mark.slow
def test_derivatives_go_through_what_was_made_positive(x64):
    """Of a fit whose leaves have negative eigenvalues, once and twice, against central differences."""
    data = problem("plain").data
    y = np.random.default_rng(0).normal(size=(400, 2)) * 0.2
    loss = Loss(saddle, n_outputs=2, hessian="full")

    @jax.jit
    def risk(rate):
        hyper = Hyper(learning_rate=rate, reg_lambda=0.5, min_child_weight=0.0)
        model, _ = jboost.fit(loss, data, y, spec=Spec(n_estimators=3, max_depth=1), hyper=hyper)
        return jnp.sum(jnp.sin(3 * model.leaf_value))

    slope, step = jax.jit(jax.grad(risk)), 1e-5
    np.testing.assert_allclose(slope(0.2), (risk(0.2 + step) - risk(0.2 - step)) / (2 * step), rtol=1e-6)
    twice = jax.jit(jax.grad(jax.grad(risk)))(0.2)
    np.testing.assert_allclose(twice, (slope(0.2 + step) - slope(0.2 - step)) / (2 * step), rtol=1e-5)


@pytest.mark.slow
def test_a_matrix_that_the_loss_brings(x64):
    """The Fisher matrix of a normal with mean s0 and log deviation s1 is diag(exp(-2 s1), 2): natural gradients."""

    def normal(score, y):
        return 0.5 * ((y - score[0]) * jnp.exp(-score[1])) ** 2 + score[1]

    def fisher(score, y):
        return jnp.diag(jnp.stack([jnp.exp(-2 * score[1]), 2.0 * jnp.ones_like(score[1])]))

    loss = Loss(normal, n_outputs=2, hessian="full", curvature=fisher)
    one = Spec(n_estimators=1, max_depth=2)
    rows, hyper = problem("plain"), Hyper(learning_rate=1.0, reg_lambda=0.0)
    y = rows.targets["real"]
    model, _ = jboost.fit(loss, rows.data, y, spec=one, hyper=hyper)
    np.testing.assert_allclose(model.base, [y.mean(), np.log(y.std())], rtol=1e-5)
    added = np.asarray(jboost.predict(model, rows.data)) - np.asarray(model.base)
    for leaf in np.unique(added[:, 0]):
        here = added[:, 0] == leaf
        residual = (y[here] - y.mean()) / y.std()
        expected = [residual.mean() * y.std(), (np.mean(residual**2) - 1) / 2]
        np.testing.assert_allclose(added[here][0], expected, rtol=1e-3, atol=1e-5)


# --- Losses without the derivatives that are asked for ------------------------------------------------------


@jax.custom_vjp
def reverse_only(score, y):
    return 0.5 * (score - y) ** 2


reverse_only.defvjp(lambda s, y: (0.5 * (s - y) ** 2, s - y), lambda r, ct: (ct * r, -ct * r))


def looping(score, y):
    return jax.lax.while_loop(
        lambda c: c[0] < 3.0, lambda c: (c[0] + 1, c[1] * 0.5), (0.0, (score - y) ** 2)
    )[1]


def calling(score, y):
    return jax.pure_callback(
        lambda s, y: np.asarray(0.5 * (s - y) ** 2), jax.ShapeDtypeStruct((), score.dtype), score, y
    )


@jax.custom_vjp
def differentiated_elsewhere(score, y):  # as by another library: the derivative has none of its own
    return 0.5 * (score - y) ** 2


def called_derivative(residual, ct):
    form = jax.ShapeDtypeStruct((), residual.dtype)
    g = ct * jax.pure_callback(np.asarray, form, residual, vmap_method="expand_dims")
    return g, -g


differentiated_elsewhere.defvjp(lambda s, y: (0.5 * (s - y) ** 2, s - y), called_derivative)


@pytest.mark.parametrize("function", [looping, calling], ids=["while_loop", "callback"])
def test_a_loss_without_derivatives_is_named_with_a_way_out(function):
    with pytest.raises(TypeError, match=r'loss: JAX cannot differentiate .* use hessian="first_order"'):
        fit(Loss(function, name="mine"))


def test_a_loss_with_a_first_derivative_alone_finds_its_start():
    expected, _ = fit(losses.squared_error)
    loss = Loss(differentiated_elsewhere, hessian="first_order")
    assert_same_models(fit(loss)[0], expected, rtol=1e-5)
    one = Loss(differentiated_elsewhere, curvature=lambda score, y: jnp.ones_like(score))
    assert_same_models(fit(one)[0], expected, rtol=1e-5)


@pytest.mark.slow
def test_a_first_order_loss_does_with_reverse_mode(x64):
    """Squares by a custom_vjp: h = 1 as in the built-in loss, the base score by reverse mode alone."""
    expected, _ = fit(losses.squared_error)
    assert_same_models(fit(Loss(reverse_only, hessian="first_order"))[0], expected, rtol=1e-9)
    assert_same_models(
        fit(Loss(reverse_only))[0], expected, rtol=1e-9
    )  # its reverse rule is differentiated forward
    one = Loss(reverse_only, curvature=lambda score, y: jnp.ones_like(score))
    assert_same_models(fit(one)[0], expected, rtol=1e-9)


@pytest.mark.slow
def test_gaps_in_several_targets(x64):
    """NaN where a target was not taken: each output is fitted on the rows that have it, as in separate fits."""
    rows = problem("plain")
    y = rows.targets["pair"].copy()
    y[::3, 0], y[1::4, 1] = np.nan, np.nan

    def of_known(score, y):
        known = ~jnp.isnan(y)
        return 0.5 * jnp.sum(jnp.where(known, score - jnp.where(known, y, 0.0), 0.0) ** 2)

    spec = dataclasses.replace(SMALL, multi_output="separate")
    loss = Loss(of_known, allow_nan=True, hessian_floor=1e-12)
    model, _ = jboost.fit(loss, rows.data, y, spec=spec)
    score = np.asarray(jboost.predict(model, rows.data))
    for j in range(2):
        known = ~np.isnan(y[:, j])
        alone, _ = jboost.fit(
            losses.squared_error,
            rows.data,
            np.where(known, y[:, j], 0.0),
            spec=SMALL,
            sample_weight=known.astype(float),
        )
        np.testing.assert_allclose(score[:, j], jboost.predict(alone, rows.data), rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="y must be finite"):
        jboost.fit(Loss(of_known), rows.data, y, spec=spec)


@pytest.mark.slow
def test_partial_functions_are_losses_too():
    assert fit(partial(lambda score, y, p: jnp.abs(score - y) ** p, p=2.0))[0].n_trees == 3
