"""Splits of many outputs by a sketch of their gradients: what the columns are, and what is left as it was."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from jboost._objective.leaves import Derivatives
from jboost._objective.sketching import sketched
from tests.twin import assert_same_models

K = 6
SPEC = Spec(n_estimators=3, max_depth=2, sketch_size=2)
PLAIN = dataclasses.replace(SPEC, sketch_size=None)
HYPER = Hyper(learning_rate=0.5, reg_lambda=2.0)


def rows(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    return jboost.bin_features(X), np.tanh(X @ rng.normal(size=(5, K))) + 0.1 * rng.normal(size=(n, K))


def test_squares_of_projected_sums_are_those_of_the_sums_on_average():
    """Their variance is known: 2 |G|^4 / m for m columns of a Gaussian projection."""
    rng = np.random.default_rng(1)
    g = jnp.asarray(rng.normal(size=(40, K)), jnp.float32)
    h = jnp.asarray(rng.uniform(0.5, 2.0, (40, K)), jnp.float32)
    keys, m = jax.random.split(jax.random.key(0), 4000), 3

    @jax.jit
    @jax.vmap
    def drawn(key):
        found = sketched(Derivatives(g, h), key, m, "projection")
        return jnp.square(found.g.sum(axis=0)).sum(), found.h

    squares, of_h = drawn(keys)
    exact = np.square(np.asarray(g).sum(axis=0)).sum()
    error = exact * np.sqrt(2 / m / len(keys))
    assert abs(np.mean(squares) - exact) < 4 * error
    assert np.std(squares) == pytest.approx(exact * np.sqrt(2 / m), rel=0.1)
    mean = np.broadcast_to(np.asarray(h).mean(axis=1)[:, None], (40, m))
    np.testing.assert_allclose(of_h, np.broadcast_to(mean, of_h.shape), rtol=1e-6)


def test_the_top_outputs_are_those_with_the_largest_squares():
    g = np.random.default_rng(2).normal(size=(50, K)).astype(np.float32) * [1, 5, 2, 0.1, 4, 1]
    h = np.arange(50 * K, dtype=np.float32).reshape(50, K)
    found = sketched(Derivatives(jnp.asarray(g, jnp.float32), jnp.asarray(h)), jax.random.key(0), 2, "top")
    np.testing.assert_array_equal(found.g, g[:, [1, 4]].astype(np.float32))
    np.testing.assert_array_equal(found.h, h[:, [1, 4]])


@pytest.mark.parametrize("kind", ["projection", "top"])
def test_leaves_hold_the_newton_steps_of_all_outputs(kind):
    data, y = rows()
    spec = dataclasses.replace(SPEC, sketch=kind)
    model, history = jboost.fit(losses.squared_error, data, y, spec=spec, hyper=HYPER)
    assert history.train_loss[-1] < 0.8 * history.train_loss[0]
    score = np.broadcast_to(np.asarray(model.base), y.shape).astype(np.float64)
    staged = [np.asarray(one) for one in jboost.staged_predict(model, data)]
    for t, after in enumerate(staged):
        step = after - score
        in_leaf = np.round(step[:, 0], 4)  # differences of scores: the last digits are rounded
        for value in np.unique(in_leaf):
            inside = in_leaf == value
            residual = (y - score)[inside]
            expected = 0.5 * residual.sum(axis=0) / (inside.sum() + 2.0)
            np.testing.assert_allclose(step[inside][0], expected, atol=2e-5, err_msg=f"round {t}")
        score = after


def test_enough_columns_change_nothing_and_few_are_drawn_by_the_key():
    data, y = rows()

    def fit(spec, seed=0):
        return jboost.fit(losses.squared_error, data, y, spec=spec, hyper=HYPER, key=jax.random.key(seed))[0]

    assert_same_models(fit(dataclasses.replace(SPEC, sketch_size=K)), fit(PLAIN), rtol=0)
    first = fit(SPEC)
    assert_same_models(fit(SPEC), first, rtol=0)
    others = [fit(SPEC, seed) for seed in range(1, 6)]
    assert any(not np.array_equal(one.trees.threshold, first.trees.threshold) for one in others)


def test_a_sketched_fit_runs_inside_of_transformations():
    data, y = rows()

    @jax.jit
    @jax.vmap
    def fitted(rate):
        hyper = dataclasses.replace(HYPER, learning_rate=rate)
        return jboost.fit(losses.squared_error, data, jnp.asarray(y), spec=SPEC, hyper=hyper)[0]

    models = fitted(jnp.array([0.5, 0.1]))
    plain, _ = jboost.fit(losses.squared_error, data, y, spec=SPEC, hyper=HYPER)
    assert_same_models(jax.tree.map(lambda leaf: leaf[0], models), plain, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sketch_size": 0}, "sketch_size must be at least 1"),
        ({"sketch_size": 2.5}, "sketch_size must be an integer"),
        ({"sketch_size": 2, "sketch": "middle"}, "sketch must be one of"),
        ({"sketch_size": 2, "multi_output": "separate"}, "sketch_size must be None"),
        ({"sketch_size": 2, "split_hessian": "full"}, "sketch_size must be None"),
    ],
)
def test_bad_sketches_are_refused(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        Spec(**options)
