"""Losses whose numbers follow the scores from round to round, and the Huber losses that do."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import optimize

import jboost
from jboost import BatchLoss, Hyper, Loss, Spec, losses

N = 400
SPEC = Spec(n_estimators=6, max_depth=2)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=N)
    y[::25] *= 50  # outliers
    return jboost.bin_features(X, 16), y


def huber(residual, delta):
    size = np.abs(residual)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def pseudo_huber(residual, delta):
    return delta**2 * (np.sqrt(1 + (residual / delta) ** 2) - 1)


def quantile(residual, level):
    around = np.quantile(residual, 0.5, method="averaged_inverted_cdf")
    return np.quantile(np.abs(residual - around), level, method="averaged_inverted_cdf")


@pytest.mark.parametrize("level", [0.9, 0.6])
@pytest.mark.parametrize(
    ("make", "formula"),
    [
        (losses.huber, huber),
        pytest.param(losses.pseudo_huber, pseudo_huber, marks=pytest.mark.slow),
    ],
    ids=["huber", "pseudo_huber"],
)
def test_delta_is_the_quantile_of_the_residuals_before_each_round(rows, make, formula, level):
    """By hand: the base score under the quantile of y around its median, then the loss under that of each round."""
    data, y = rows
    model, history = jboost.fit(make(level=level), data, y, spec=SPEC)
    first = quantile(y, level)
    base = optimize.minimize_scalar(lambda c: formula(y - c, first).mean(), bracket=(-1, 1), tol=1e-10).x
    np.testing.assert_allclose(model.base, base, atol=2e-4)
    for n_trees in (1, 5, 6):
        score = np.asarray(jboost.predict(jboost.truncate(model, n_trees), data), np.float64)
        expected = formula(y - score, quantile(y - score, level)).mean()
        np.testing.assert_allclose(history.train_loss[n_trees - 1], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["huber", pytest.param("pseudo_huber", marks=pytest.mark.slow)])
def test_named_losses_do_not_mind_the_unit_of_y(rows, name):
    data, y = rows
    X = np.asarray(data.bins).T
    options = {"loss": name, "n_estimators": 30, "max_depth": 3}
    known = jboost.JBoostRegressor(**options).fit(X, y)
    for factor in (1e-6, 1e6):
        found = jboost.JBoostRegressor(**options).fit(X, factor * y)
        np.testing.assert_array_equal(found.model_.trees.feature, known.model_.trees.feature)
        np.testing.assert_allclose(found.predict(X) / factor, known.predict(X), rtol=1e-3, atol=1e-3)
    clean = np.abs(y) < 10
    squared = jboost.JBoostRegressor(**{**options, "loss": "squared_error"}).fit(X, y)
    errors = [np.mean(np.square(one.predict(X) - y)[clean]) for one in (known, squared)]
    assert errors[0] < 0.5 * errors[1]


def test_each_output_has_its_own_delta_wherever_it_lies(rows):
    data, y = rows
    alone, _ = jboost.fit(losses.huber(), data, y, spec=SPEC)
    both = np.stack([y, 1000 * (y + 7)], axis=1)
    spec = dataclasses.replace(SPEC, multi_output="separate")
    together, _ = jboost.fit(losses.huber(), data, both, spec=spec)
    scores, expected = np.asarray(jboost.predict(together, data)), np.asarray(jboost.predict(alone, data))
    np.testing.assert_allclose(scores[:, 0], expected, atol=1e-3)
    np.testing.assert_allclose(scores[:, 1] / 1000 - 7, expected, atol=1e-3)


def test_a_number_is_still_possible(rows):
    data, y = rows
    fixed = losses.huber(2.0)
    assert fixed.adapt is None
    _, history = jboost.fit(fixed, data, y, spec=SPEC)
    assert history.train_loss[-1] < history.train_loss[0]


def test_a_target_that_is_fitted_exactly_or_nearly_so():
    X = np.arange(64.0)[:, None]
    for y in (np.full(64, 3.0), (X[:, 0] == 63) * 5.0):  # most residuals are 0
        model, history = jboost.fit(losses.huber(), X, y, spec=SPEC)
        assert np.isfinite(history.train_loss).all()
        assert np.isfinite(jboost.predict(model, X)).all()


def test_a_continued_fit_equals_a_longer_one(rows):
    data, y = rows
    whole, _ = jboost.fit(losses.huber(), data, y, spec=SPEC)
    first, _ = jboost.fit(losses.huber(), data, y, spec=Spec(n_estimators=3, max_depth=2))
    both, _ = jboost.fit(losses.huber(), data, y, spec=Spec(n_estimators=3, max_depth=2), init_model=first)
    np.testing.assert_array_equal(both.leaf_value, whole.leaf_value)


def scaled(score, y, scale):
    return 0.5 * jnp.square((score - y) / scale)


def with_mean_residual(function, score, y, weight):
    return Partial(function.func, scale=1 + jnp.sum(weight * jnp.abs(score - y)) / jnp.sum(weight))


def own(adapt=with_mean_residual):
    return Loss(Partial(scaled, scale=1.0), adapt=adapt)


@pytest.mark.slow
def test_a_loss_of_ones_own_under_jit_and_grad(rows, x64):
    """The derivative goes through what a loss adapts to."""
    data, y = rows
    y = jnp.asarray(np.clip(y, -3, 3))

    @jax.jit
    def total(rate, y):
        hyper = Hyper(learning_rate=rate, reg_lambda=5.0)
        model, _ = jboost.fit(own(), data, y, spec=Spec(n_estimators=3, max_depth=2), hyper=hyper)
        return jnp.sum(jnp.sin(jboost.predict(model, data)))

    by_rate, by_target = jax.jit(jax.grad(total, argnums=(0, 1)))(0.5, y)
    step = 1e-6
    np.testing.assert_allclose(by_rate, (total(0.5 + step, y) - total(0.5 - step, y)) / (2 * step), rtol=1e-5)
    moved = [total(0.5, y.at[3].add(sign * step)) for sign in (1, -1)]
    np.testing.assert_allclose(by_target[3], (moved[0] - moved[1]) / (2 * step), rtol=1e-5)


def test_what_adapts_in_another_form_is_refused(rows):
    data, y = rows
    with pytest.raises(ValueError, match=r"adapt must be a function adapt\(function, score, y, weight\)"):
        jboost.fit(own(lambda function, score, y, weight: Partial(function.func, other=1.0)), data, y)
    with pytest.raises(TypeError, match="adapt must be callable or None, got 3"):
        own(3)
    with pytest.raises(ValueError, match="adapt must be None for a BatchLoss"):
        BatchLoss(lambda score, y, weight: jnp.sum(weight * (score - y) ** 2), adapt=with_mean_residual)
    with pytest.raises(ValueError, match="level must"):
        losses.huber(level=1.5)


def test_a_width_far_below_the_residuals_is_told():
    """Nearly all rows lie where the loss is straight: it falls in every round by as little as in the first."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = 1e3 * (X[:, 0] + 0.5 * rng.normal(size=400))
    spec, hyper = jboost.Spec(n_estimators=40, max_depth=3), jboost.Hyper(learning_rate=0.3)
    with pytest.warns(
        UserWarning, match=r"fell by .* in the first 13 rounds, .*: the way is much longer than the steps"
    ):
        jboost.fit(jboost.losses.huber(1.0), X, y, spec=spec, hyper=hyper)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for loss in (jboost.losses.huber(), jboost.losses.huber(1e3), jboost.losses.squared_error):
            jboost.fit(loss, X, y, spec=spec, hyper=hyper)
