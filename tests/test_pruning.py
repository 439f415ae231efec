"""Post-pruning and growth best first: against twins, against XGBoost, and where they differ from stopping early."""

from __future__ import annotations

import dataclasses
import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from experiments import nano
from jboost import Hyper, Spec, losses
from jboost._tree.pruning import best_first, leaves_after, stays
from tests.twin import assert_same_scores, assert_same_trees, problem, same_structure, settings

SPEC = Spec(penalties="absolute", n_estimators=4, max_depth=3, post_prune=True)
HYPER = Hyper(learning_rate=0.3, gamma=15.0)


def exclusive_or() -> tuple[np.ndarray, np.ndarray]:
    """Two features whose exclusive or is the target, all but balanced: a first split gains next to nothing."""
    X = np.repeat([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [10, 10, 10, 11], axis=0)
    return X, (X[:, 0] != X[:, 1]).astype(float)


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_a_weak_split_stays_above_strong_ones(policy):
    X, y = exclusive_or()
    spec = dataclasses.replace(SPEC, n_estimators=1, max_depth=2, grow_policy=policy)
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, gamma=0.5)
    stopped, _ = jboost.fit(
        losses.squared_error, X, y, spec=dataclasses.replace(spec, post_prune=False), hyper=hyper
    )
    assert not stopped.trees.gain.any()
    pruned, _ = jboost.fit(losses.squared_error, X, y, spec=spec, hyper=hyper)
    np.testing.assert_allclose(jboost.predict(pruned, X), y, atol=1e-6)
    assert 0 < pruned.trees.gain[0, 0] < 0.5
    too_dear, _ = jboost.fit(
        losses.squared_error, X, y, spec=spec, hyper=dataclasses.replace(hyper, gamma=6.0)
    )
    assert not too_dear.trees.gain.any()
    np.testing.assert_allclose(jboost.predict(too_dear, X), y.mean(), rtol=1e-6)


def test_what_gains_nothing_is_split_in_neither_way():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 8)
    model, _ = jboost.fit(
        losses.squared_error, X, X[:, 0] != X[:, 1], spec=dataclasses.replace(SPEC, max_depth=2)
    )
    assert not model.trees.gain.any()


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("mixed", "symmetric"),
        ("missing", "depthwise"),
        pytest.param("missing", "symmetric", marks=pytest.mark.slow),
        pytest.param("mixed", "depthwise", marks=pytest.mark.slow),
    ],
)
def test_trees_and_scores_equal_the_twins(policy, kind, x64):
    rows, spec = problem(kind), dataclasses.replace(SPEC, grow_policy=policy)
    y = rows.targets["real"]
    model, _ = jboost.fit(
        losses.squared_error, rows.data, y, spec=spec, hyper=HYPER, sample_weight=rows.weight
    )
    categorical = rows.data.edges.features.categorical
    base, twins = nano.fit(
        *(nano.squared_error, rows.codes, y, settings(spec, HYPER)),
        weight=rows.weight,
        n_codes=rows.data.edges.n_codes,
        categorical=categorical,
    )
    assert_same_trees(model, twins, 1e-9)
    assert_same_scores(model, base, twins, rows, 1e-9)
    stopped, _ = jboost.fit(
        losses.squared_error,
        rows.data,
        y,
        spec=dataclasses.replace(spec, post_prune=False),
        hyper=HYPER,
        sample_weight=rows.weight,
    )
    assert not same_structure(model, stopped)


@pytest.mark.parametrize("post_prune", [pytest.param(False, marks=pytest.mark.slow), True])
def test_depthwise_trees_are_those_of_xgboost(post_prune, x64):
    """Its `exact` grows and then prunes, its `hist` stops; the gain of XGBoost has no factor of 1/2."""
    xgboost = pytest.importorskip("xgboost", reason="the peer is not installed")
    rows = problem("missing")
    y, gamma = rows.targets["real"], 4.0
    spec = dataclasses.replace(SPEC, n_estimators=6, grow_policy="depthwise", post_prune=post_prune)
    hyper = Hyper(learning_rate=0.3, reg_lambda=1.0, gamma=gamma)
    model, _ = jboost.fit(
        losses.squared_error, rows.data, y, spec=spec, hyper=hyper, sample_weight=rows.weight
    )
    features = np.where(rows.codes == 0, np.nan, rows.codes).T.astype(np.float32)
    data = xgboost.DMatrix(features, y, weight=rows.weight, base_margin=np.full(len(y), float(model.base[0])))
    booster = xgboost.train(
        {
            "tree_method": "exact" if post_prune else "hist",
            "grow_policy": "depthwise",
            "max_depth": 3,
            "eta": 0.3,
            "lambda": 1.0,
            "gamma": 2 * gamma,
            "nthread": 1,
        },
        data,
        6,
    )
    peer = booster.predict(data, output_margin=True)
    np.testing.assert_allclose(jboost.predict(model, rows.data), peer, rtol=1e-5, atol=1e-5)
    n_splits = sum(dump.count("yes=") for dump in booster.get_dump())
    assert n_splits == int((model.trees.gain > 0).sum())


@pytest.mark.parametrize("gamma", [0.0, pytest.param(4.0, marks=pytest.mark.slow)])
def test_trees_of_so_many_leaves_are_those_of_xgboost(gamma, x64):
    xgboost = pytest.importorskip("xgboost", reason="the peer is not installed")
    rows = problem("missing")
    y = rows.targets["real"]
    spec = dataclasses.replace(SPEC, grow_policy="depthwise", max_depth=5, max_leaves=6, post_prune=False)
    hyper = Hyper(learning_rate=0.3, gamma=gamma)
    model, _ = jboost.fit(
        losses.squared_error, rows.data, y, spec=spec, hyper=hyper, sample_weight=rows.weight
    )
    features = np.where(rows.codes == 0, np.nan, rows.codes).T.astype(np.float32)
    data = xgboost.DMatrix(features, y, weight=rows.weight, base_margin=np.full(len(y), float(model.base[0])))
    choices = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_depth": 5,
        "max_leaves": 6,
        "nthread": 1,
    }
    booster = xgboost.train({**choices, "eta": 0.3, "lambda": 1.0, "gamma": 2 * gamma}, data, 4)
    peer = booster.predict(data, output_margin=True)
    np.testing.assert_allclose(jboost.predict(model, rows.data), peer, rtol=1e-5, atol=1e-5)
    n_leaves = [int((count > 0).sum()) for count in np.asarray(model.leaf_count)]
    assert n_leaves == [dump.count("leaf=") for dump in booster.get_dump()]
    assert max(n_leaves) == 6


@pytest.mark.parametrize("policy", [pytest.param("symmetric", marks=pytest.mark.slow), "depthwise"])
def test_each_output_is_pruned_by_itself(policy):
    rows = problem("missing")
    pair = rows.targets["pair"]
    spec = dataclasses.replace(SPEC, grow_policy=policy, multi_output="separate")
    model, _ = jboost.fit(losses.squared_error, rows.data, pair, spec=spec, hyper=HYPER)
    for k in range(2):
        alone, _ = jboost.fit(losses.squared_error, rows.data, pair[:, k], spec=spec, hyper=HYPER)
        for name in ("threshold", "missing_right", "gain"):
            np.testing.assert_array_equal(getattr(model.trees, name)[:, k], getattr(alone.trees, name)[:, 0])


@pytest.mark.parametrize("policy", [pytest.param("depthwise", marks=pytest.mark.slow), "symmetric"])
def test_under_vmap_each_gamma_prunes_its_own_trees(policy):
    rows, spec = problem("missing"), dataclasses.replace(SPEC, grow_policy=policy)
    y = rows.targets["pair"]  # a vector in each leaf

    def fit(gamma):
        return jboost.fit(losses.squared_error, rows.data, y, spec=spec, hyper=Hyper(gamma=gamma))[0]

    gammas = jnp.array([0.0, 15.0, 60.0])
    batch = jax.jit(jax.vmap(fit))(gammas)
    for i, gamma in enumerate(gammas.tolist()):
        one = jax.tree.map(lambda array, i=i: array[i], batch)
        assert same_structure(one, fit(gamma))
    n_splits = [int((gain > 0).sum()) for gain in batch.trees.gain]
    assert n_splits[0] > n_splits[2] > 0


@pytest.mark.parametrize("policy", [pytest.param("symmetric", marks=pytest.mark.slow), "depthwise"])
def test_without_gamma_both_ways_are_the_same(policy):
    rows, spec = problem("mixed"), dataclasses.replace(SPEC, grow_policy=policy)
    y = rows.targets["binary"]
    pruned, stopped = (
        jboost.fit(losses.logistic, rows.data, y, spec=dataclasses.replace(spec, post_prune=choice))[0]
        for choice in (True, False)
    )
    jax.tree.map(np.testing.assert_array_equal, pruned.trees, stopped.trees)
    np.testing.assert_array_equal(pruned.leaf_value, stopped.leaf_value)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("depth", [1, 4])
def test_what_stays_and_where_leaves_go_by_walking_the_tree(symmetric, depth, rng):
    slots = depth if symmetric else 2**depth - 1
    pays = rng.random(slots) < 0.2
    kept = np.asarray(stays(jnp.asarray(pays), depth, symmetric))

    def walk(level: int, node: int) -> bool:
        """Say whether a split of this subtree pays."""
        if level == depth:
            return False
        slot = level if symmetric else 2**level - 1 + node
        below = walk(level + 1, 2 * node) | walk(level + 1, 2 * node + 1)
        assert kept[slot] == (pays[slot] or below)
        return bool(kept[slot])

    walk(0, 0)
    moved = np.asarray(leaves_after(jnp.asarray(kept), depth, symmetric))
    for leaf in range(2**depth):
        node = 0
        for level in range(depth):
            slot = level if symmetric else 2**level - 1 + node
            node = 2 * node + (leaf >> (depth - 1 - level) & 1 if kept[slot] else 0)
        assert moved[leaf] == node


@pytest.mark.parametrize("n_splits", [1, 4, 9])
def test_the_leaf_of_largest_gain_is_split_next(n_splits, rng):
    """Against a heap of leaves; a node without a split passes its rows on, and of equal gains the first is next."""
    depth, slots = 4, 15
    for _ in range(20):
        is_split, gain = rng.random(slots) < 0.8, rng.integers(1, 5, slots).astype(np.float32)
        leaves: list[tuple[float, int]] = []

        def open_below(slot: int, is_split=is_split, gain=gain, leaves=leaves) -> None:
            if slot < slots and is_split[slot]:
                heapq.heappush(leaves, (-gain[slot], slot))
            elif slot < slots:
                open_below(2 * slot + 1)
                open_below(2 * slot + 2)

        open_below(0)
        made = np.zeros(slots, bool)
        while leaves and made.sum() < n_splits:
            _, slot = heapq.heappop(leaves)
            made[slot] = True
            open_below(2 * slot + 1)
            open_below(2 * slot + 2)
        found = best_first(jnp.asarray(is_split), jnp.asarray(gain), n_splits, depth)
        np.testing.assert_array_equal(found, made)


def test_so_many_leaves_are_pruned_too_and_enough_change_nothing():
    X, y = exclusive_or()
    spec = dataclasses.replace(SPEC, n_estimators=1, max_depth=2, grow_policy="depthwise", max_leaves=3)
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, gamma=0.5)
    model, _ = jboost.fit(losses.squared_error, X, y, spec=spec, hyper=hyper)
    np.testing.assert_array_equal(model.trees.gain[0] > 0.5, [False, False, True])  # of 21 rows, not of 20
    assert 0 < model.trees.gain[0, 0] < 0.5
    corners = [y[np.all(corner == X, axis=1)].mean() for corner in ([1, 0], [1, 1])]
    np.testing.assert_allclose(jboost.predict(model, [[1.0, 0.0], [1.0, 1.0]]), corners, atol=1e-6)
    np.testing.assert_allclose(jboost.predict(model, [[0.0, 0.0], [0.0, 1.0]]), 0.5, rtol=1e-6)
    assert not dataclasses.replace(spec, max_leaves=4).limits_leaves


def test_the_choice_is_checked():
    with pytest.raises(TypeError, match="post_prune must be True or False, got 1"):
        Spec(post_prune=1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="max_leaves must be at least 2, got 1"):
        Spec(grow_policy="depthwise", max_leaves=1)
    with pytest.raises(ValueError, match=r'max_leaves must be None with grow_policy="symmetric".*got 6'):
        Spec(max_leaves=6)
    X, y = exclusive_or()
    estimator = jboost.JBoostRegressor(
        n_estimators=1, max_depth=2, learning_rate=1.0, reg_lambda=0.0, penalties="absolute", gamma=0.5
    )
    assert estimator.fit(X, y).score(X, y) < 0.1
    assert estimator.set_params(post_prune=True).fit(X, y).score(X, y) > 0.99
