"""Scores moved in C++, and what the loss of each row may be there, against NumPy in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost._objective import native

BOUND, TYPICAL, ROUNDING = 9.5, 0.3, 1e-3  # of which the last is large, for its product to be seen


def _draw(n, k, c, n_leaves=8):
    rng = np.random.default_rng(n + k + c)
    of_rows = {name: rng.normal(size=(n, k)) for name in ("score", "g", "h")}
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    return {
        "score": of_rows["score"],
        "leaf": rng.integers(0, n_leaves, (n, c)),
        "leaf_value": rng.normal(size=(n_leaves, k)),
        "g": of_rows["g"] * weight[:, None],
        "h": np.abs(of_rows["h"]) * weight[:, None],
        "value": rng.normal(size=n),
        "weight": weight,
        "units": rng.random((2, k)) + 0.5,
        "numbers": np.array([BOUND, TYPICAL, ROUNDING]),
    }


def _twin(score, leaf, leaf_value, g, h, value, weight, units, numbers):
    bound, typical, rounding = numbers
    move = np.take_along_axis(leaf_value, np.broadcast_to(leaf, score.shape), 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = (g * units[0] * move + bound * h * units[1] * move**2).sum(axis=1) / weight
    most = value + expected + rounding * (np.abs(value) + typical)
    return score + move, np.where(weight > 0, most, np.inf)


def _found(given, dtype):
    native_library.require(native.moves_available)
    arrays = {name: jnp.asarray(x, jnp.int32 if name == "leaf" else dtype) for name, x in given.items()}
    return jax.jit(lambda arrays: native.move_scores(**arrays))(arrays)


@pytest.mark.parametrize(("n", "k", "c"), [(0, 1, 1), (1, 1, 1), (9000, 1, 1), (1000, 3, 1), (1000, 3, 3)])
def test_moves_equal_numpy(n, k, c):
    given = _draw(n, k, c)
    with jax.enable_x64(True):
        moved, most = _found(given, jnp.float64)
        np.testing.assert_array_equal(moved, _twin(**given)[0])
        np.testing.assert_allclose(most, _twin(**given)[1], rtol=1e-13, atol=1e-13)
    moved, most = _found(given, jnp.float32)
    as_float32 = {name: x if name == "leaf" else x.astype(np.float32) for name, x in given.items()}
    np.testing.assert_array_equal(moved, _twin(**as_float32)[0])
    np.testing.assert_allclose(most, _twin(**given)[1], rtol=1e-5, atol=2e-5)


def test_what_floats_do_not_hold_is_nan_or_below_all():
    given = _draw(4, 1, 1) | {
        "weight": np.ones(4),
        "leaf": np.zeros((4, 1)),
        "leaf_value": np.full((1, 1), 1e30),
    }
    given |= {"g": np.array([[0.0], [np.nan], [-1e30], [0.0]]), "h": np.array([[1.0], [1.0], [0.0], [0.0]])}
    _, most = _found(given, jnp.float32)
    assert np.isnan(most[:2]).all()
    assert most[2] == -np.inf
    assert np.isfinite(most[3])


def test_each_of_a_batch_is_moved_alone():
    native_library.require(native.moves_available)
    given = {
        name: jnp.asarray(x, jnp.int32 if name == "leaf" else jnp.float32)
        for name, x in _draw(50, 2, 1).items()
    }
    several = jnp.stack([given["leaf_value"], -given["leaf_value"], 2 * given["leaf_value"]])
    together = jax.vmap(lambda leaf_value: native.move_scores(**given | {"leaf_value": leaf_value}))(several)
    for i in range(3):
        alone = native.move_scores(**given | {"leaf_value": several[i]})
        np.testing.assert_array_equal(together[0][i], alone[0])
        np.testing.assert_array_equal(together[1][i], alone[1])


@pytest.mark.parametrize("n_outputs", [None, 2])
def test_a_fit_is_the_same_without_the_library(n_outputs):
    """By a loss without a majorant, whose rows are looked at in the next round, and one of which rises."""

    def cauchy(score, y):
        return jnp.sum(jnp.log1p(jnp.square(score - y)))

    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 5 * X[:, 0] + rng.standard_cauchy(300)
    loss = jboost.Loss(cauchy, n_outputs=n_outputs)
    spec = jboost.Spec(n_estimators=8, max_depth=3)
    weight = rng.choice([0.0, 1.0, 2.0], 300)
    model, history = jboost.fit(loss, X, y, spec=spec, sample_weight=weight, verbose=False)
    with jboost.plain_jax():
        plain, of_plain = jboost.fit(loss, X, y, spec=spec, sample_weight=weight, verbose=False)
    np.testing.assert_array_equal(model.trees.feature, plain.trees.feature)
    np.testing.assert_allclose(model.leaf_value, plain.leaf_value, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(history.train_loss, of_plain.train_loss, rtol=1e-5)
