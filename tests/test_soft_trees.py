"""Soft trees against loops in NumPy, finite differences and the hard model; what hardening keeps."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import twin
from jax.flatten_util import ravel_pytree

import jboost
from jboost import losses
from jboost.differentiable import finetune, harden, soften

FORMS = [pytest.param("symmetric", "vector", marks=pytest.mark.slow), ("depthwise", "separate")]
TEMPERATURE = 0.3
SOME = slice(0, 25)  # rows


@functools.cache
def model_of(policy: Any = "symmetric", multi_output: Any = "vector", kind: str = "mixed") -> jboost.Ensemble:
    given = twin.problem(kind)
    spec = jboost.Spec(n_estimators=3, max_depth=2, grow_policy=policy, multi_output=multi_output)
    y = given.targets["pair" if kind == "mixed" else "real"]
    model, _ = jboost.fit(losses.squared_error, given.data, y, spec=spec)
    return dataclasses.replace(model, tree_weight=jnp.array([1.0, 0.5, 2.0]))


def squared(score, y):
    return jnp.square(score - y).sum()


# ---------------------------------------------------------------- a slow and obvious twin


def spread_of(edges: np.ndarray) -> tuple[float, float]:
    known = edges[np.isfinite(edges)]
    if known.size == 0:
        return 0.0, 1.0
    spread = np.subtract(*np.quantile(known, [0.75, 0.25])) / 1.349 if known.size > 1 else abs(known[0])
    return float(np.float32(np.median(known))), float(np.float32(spread))


def share_of_right(model, tree, slot, X, bins) -> np.ndarray:
    """Return the share of each row, values [n f] and codes [f n], that goes right at one split."""
    feature, threshold = int(tree.feature[slot]), int(tree.threshold[slot])
    codes = bins[feature]
    hard = twin.route_table(model, tree, slot)[codes].astype(float)
    if model.edges.features.categories[feature] is not None or threshold in (0, model.edges.n_codes):
        return hard
    edges = model.edges.exact[feature]
    centre, spread = spread_of(edges)
    distance = (X[:, feature] - centre) / spread - (edges[threshold - 1] - centre) / spread
    return np.where(codes == 0, hard, 1 / (1 + np.exp(-distance / TEMPERATURE)))


def score_in_numpy(model, X, bins) -> np.ndarray:
    """Score rows by loops over outputs, trees and leaves."""
    score = np.tile(np.asarray(model.base, float), (len(X), 1))
    separate = model.trees.feature.ndim == 3
    for k, t in np.ndindex(model.n_outputs, model.n_trees):
        place = (t, k) if separate else (t,)
        tree = jax.tree.map(lambda field, place=place: np.asarray(field[place]), model.trees)
        for leaf in range(4):
            share, node = 1.0, 0
            for level, goes_right in enumerate([leaf // 2, leaf % 2]):
                slot = level if model.symmetric else 2**level - 1 + node
                right = share_of_right(model, tree, slot, X, bins)
                share = share * (right if goes_right else 1 - right)
                node = 2 * node + goes_right
            score[:, k] += share * float(model.leaf_value[t, leaf, k]) * float(model.tree_weight[t])
    return score


@pytest.mark.parametrize(("policy", "multi_output"), FORMS)
def test_scores_are_those_of_the_loops(policy, multi_output):
    """With missing values, categories, several outputs, weights of trees and an offset."""
    model, given = model_of(policy, multi_output), twin.problem()
    X, bins, offset = given.X[SOME], np.asarray(given.data.bins)[:, SOME], np.ones((25, 2))
    expected = score_in_numpy(model, X, bins)
    soft = soften(model, TEMPERATURE)
    np.testing.assert_allclose(soft(X), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(soft(X, offset=offset), expected + 1, rtol=1e-4, atol=1e-5)
    traced = jax.jit(lambda soft, x: (soft(x), soft(X)))(soft, jnp.asarray(X, jnp.float32))
    for found in traced:  # the model traced, and features that are traced or not
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("policy", "multi_output"), FORMS)
def test_the_limit_is_the_hard_model_and_hardening_gives_it_back(policy, multi_output):
    model, given = model_of(policy, multi_output), twin.problem()
    soft = soften(model, 1e-6)
    np.testing.assert_allclose(soft(given.X), jboost.predict(model, given.X), rtol=1e-5, atol=1e-5)
    again = harden(soften(model, 0.5))
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)
    assert jax.tree.structure(again) == jax.tree.structure(model)


def assert_goes_on(hard, given, path):
    """Hold that a model can be saved, read and continued."""
    jboost.save(hard, path)
    np.testing.assert_array_equal(jboost.predict(jboost.load(path), given.X), jboost.predict(hard, given.X))
    spec = jboost.Spec(n_estimators=2, max_depth=2, grow_policy="depthwise", multi_output="separate")
    y = given.targets["pair"]
    longer, _ = jboost.fit(losses.squared_error, given.X, y, spec=spec, init_model=hard)
    assert longer.n_trees == 5


@pytest.mark.parametrize(("policy", "multi_output"), FORMS)
def test_thresholds_that_have_moved_become_edges(policy, multi_output, tmp_path):
    """The hard model has them where the soft one has; others stay at their edge, and the model is continued."""
    model, given = model_of(policy, multi_output), twin.problem()
    soft = soften(model, 1e-6)
    shift = 0.37 * (np.arange(soft.threshold.size) % 2).reshape(soft.threshold.shape)
    moved = dataclasses.replace(soft, threshold=jnp.where(soft.kind == 1, soft.threshold + shift, 0))
    hard = harden(moved)
    expected = np.asarray(moved(given.X))
    np.testing.assert_allclose(jboost.predict(hard, given.X), expected, rtol=1e-5, atol=1e-5)
    assert not np.allclose(expected, jboost.predict(model, given.X))
    for feature, row in enumerate(model.edges.exact):
        assert np.isin(row, hard.edges.exact[feature]).all()
    if policy == "depthwise":
        assert_goes_on(hard, given, tmp_path / "model")
    snapped = harden(moved, snap=True)
    assert snapped.edges is model.edges
    nearest = np.abs(snapped.trees.threshold - model.trees.threshold)[np.asarray(soft.kind) == 1]
    assert nearest.max() > 0
    assert (nearest[shift[np.asarray(soft.kind) == 1] == 0] == 0).all()


def test_derivatives_are_those_of_central_differences(x64):
    with jax.enable_x64(False):
        model = model_of("depthwise", "separate")
    model = jax.tree.map(lambda leaf: leaf.astype(float) if leaf.dtype == np.float32 else leaf, model)
    given, soft = twin.problem(), soften(model, jnp.array(TEMPERATURE))
    rows = [0, 1, 2, np.flatnonzero(np.isnan(given.X).any(axis=1))[0]]
    X, y = given.X[rows], given.targets["pair"][rows]
    names = ("threshold", "leaf_value", "temperature", "base")
    at, tree_of = ravel_pytree((X, {name: getattr(soft, name) for name in names}))

    def loss(vector):
        x, fields = tree_of(vector)
        return jnp.square(dataclasses.replace(soft, **fields)(x) - y).sum()

    step = 1e-6 * np.eye(len(at))
    slope, up, down = map(np.asarray, jax.jit(_slope_and_moved, static_argnums=0)(loss, at, step))
    absent = np.isnan(at)
    assert absent.any()
    np.testing.assert_array_equal(slope[absent], 0)
    np.testing.assert_allclose(slope[~absent], ((up - down) / 2e-6)[~absent], rtol=1e-5, atol=1e-6)
    assert all(np.abs(part).max() > 0 for part in jax.tree.leaves(tree_of(jnp.asarray(slope))))


def _slope_and_moved(function, at, step):
    return jax.grad(function)(at), *(jax.vmap(function)(at[None] + by) for by in (step, -step))


def test_the_units_of_the_features_do_not_matter():
    """Nor where they begin, even beyond the digits of a float32."""
    given = twin.problem("plain")
    y, spec = given.targets["real"], jboost.Spec(n_estimators=3, max_depth=2)
    found = []
    for unit, start in ((1.0, 0.0), (1e-6, 0.0), (2.0**20, 2.0**40)):
        X = unit * given.X + start
        model, _ = jboost.fit(losses.squared_error, X, y, spec=spec)
        soft = soften(model, TEMPERATURE)
        found.append(soft(X))
    found.append(jax.jit(lambda soft: soft(X))(soft))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=1e-3)


def test_thresholds_and_leaf_values_are_trained_together():
    """A step is one down the gradient; more of them lower the loss, also in mini-batches and with a decay."""
    given = twin.problem("plain")
    X, y = given.X, given.targets["real"]
    soft = soften(model_of(kind="plain"), TEMPERATURE)
    by = ("leaf_value", "threshold")
    optimizer = optax.sgd(1.0)
    moved, _ = finetune(soft, losses.squared_error, X, y, by=by, optimizer=optimizer, steps=1)

    def mean_loss(fields):
        return jnp.square(dataclasses.replace(soft, **fields)(X) - y).mean() / 2

    slope = jax.jit(jax.grad(mean_loss))({name: getattr(soft, name) for name in by})
    for name in by:
        expected = getattr(soft, name) - slope[name]
        np.testing.assert_allclose(getattr(moved, name), expected, rtol=1e-4, atol=1e-5)
    options = {"valid": (X, y), "batch_size": 100, "decay": 0.1, "steps": 80}
    better, history = finetune(soft, losses.squared_error, X, y, by=by, **options)
    assert history.valid_metric[-1] < 0.95 * history.valid_metric[0]
    assert not np.allclose(better.threshold, soft.threshold)
    loss = np.square(np.asarray(better(X)) - y).mean() / 2
    np.testing.assert_allclose(loss, history.valid_metric[history.best_step], rtol=1e-4)


def test_features_of_every_kind():
    """A column of two values, one that is constant, infinities, a cut of the missing from the others, text."""
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {
            "two": rng.integers(0, 2, n) * 1e-3,
            "constant": 1.0,
            "far": np.where(
                rng.random(n) < 0.3, np.inf, np.where(rng.random(n) < 0.3, -np.inf, rng.random(n))
            ),
            "absent": np.where(rng.random(n) < 0.5, np.nan, 3.0),
            "text": pd.Categorical(rng.choice(["a", "b", "c"], n)),
        }
    )
    y = 1e3 * frame["two"] + np.isinf(frame["far"]) + 2 * np.isnan(frame["absent"]) + (frame["text"] == "b")
    model, _ = jboost.fit(losses.squared_error, frame, y, spec=jboost.Spec(n_estimators=20, max_depth=2))
    finite = np.where(np.isfinite(frame["far"]), frame["far"], 0)
    frame = frame[frame["far"] != finite.max()]  # the edge below infinity: this row lies on a threshold
    soft = soften(model, 1e-4)
    np.testing.assert_allclose(soft(frame), jboost.predict(model, frame), atol=1e-5)
    swapped = frame[frame.columns[::-1]]
    np.testing.assert_array_equal(soft(swapped), soft(frame))
    unseen = frame.assign(text=pd.Categorical(["z"] * len(frame)))
    np.testing.assert_allclose(soft(unseen), jboost.predict(model, unseen), atol=1e-5)
    assert soft(frame[:0]).shape == (0,)
    assert repr(soft) == "SoftEnsemble(n_trees=20, leaves=4, n_features=5, n_outputs=1)"


def test_a_number_that_stands_for_missing_values_does_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    X[:30, 0] = -999.0
    data = jboost.bin_features(X, missing=-999.0)
    model, _ = jboost.fit(
        losses.squared_error, data, X[:, 1] + (X[:, 0] == -999.0), spec=jboost.Spec(n_estimators=5)
    )
    soft = soften(model, 1e-6)
    expected = jboost.predict(model, X)
    np.testing.assert_allclose(soft(X), expected, atol=1e-5)
    np.testing.assert_allclose(jax.jit(soft)(jnp.asarray(X, jnp.float32)), expected, atol=1e-5)


def test_a_batch_of_temperatures_and_second_derivatives():
    model, X = model_of(kind="plain"), jnp.asarray(twin.problem("plain").X[:3], jnp.float32)
    temperatures = jnp.array([0.1, 0.5])
    found = jax.jit(jax.vmap(lambda one: soften(model, one)(X)))(temperatures)
    for one, row in zip(temperatures, found, strict=True):
        np.testing.assert_allclose(soften(model, float(one))(X), row, rtol=1e-5, atol=1e-6)
    hessian = jax.jit(jax.hessian(lambda x: soften(model, 0.3)(x[None])[0]))(X[0])
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-4)
    assert np.abs(hessian).max() > 0


def test_what_does_not_fit_is_named():
    model, X = model_of(kind="plain"), twin.problem("plain").X
    soft: Any = soften(model, 0.1)
    hard: Any = model
    for wrong in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="temperature must be positive"):
            soften(model, wrong)
    for wrong in (None, "low", [0.1], True):
        with pytest.raises(TypeError, match="temperature must be a number"):
            soften(model, wrong)
    with pytest.raises(TypeError, match=r"model must be a jboost\.Ensemble"):
        soften(soft, 0.1)
    with pytest.raises(
        TypeError, match="got SoftEnsemble: call it with X for its scores, or make it hard by"
    ):
        jboost.predict(soft, X)
    with pytest.raises(TypeError, match=r"soft must be a jboost\.differentiable\.SoftEnsemble"):
        harden(hard)
    with pytest.raises(TypeError, match="X must be features as they are"):
        soft(jboost.bin_features(X))
    with pytest.raises(ValueError, match="X has 2 features"):
        soft(X[:, :2])
    with pytest.raises(ValueError, match="X has 2 features"):
        jax.jit(soft)(X[:, :2])
    with pytest.raises(ValueError, match="finite thresholds"):
        harden(dataclasses.replace(soft, threshold=soft.threshold * jnp.nan))
    with pytest.raises(TypeError, match="harden it outside of jit"):
        jax.jit(lambda soft: harden(soft).base)(soft)
    with pytest.raises(TypeError, match="soften it outside of jit"):
        jax.jit(lambda model: soften(model, 0.1).base)(model)
    with pytest.raises(TypeError, match="X must be features as they are"):
        finetune(soft, losses.squared_error, jboost.bin_features(X, edges=model.edges), X[:, 0], steps=1)
    with pytest.raises(ValueError, match="range of float32"):
        soften(jboost.fit(losses.squared_error, 1e300 * X, X[:, 0], spec=jboost.Spec(n_estimators=1))[0], 0.1)
