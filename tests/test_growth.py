"""What nodes hand down to their children: interaction constraints and columns by node, written as a `Growth`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from jboost._sampling import columns_by_node
from jboost._split import Rules, leaf_value, totals
from jboost._split.formulas import sum_of_gains
from jboost._tree import Growth, choose_engine
from jboost._tree.engines import BY_LEVEL, PLAIN, WHOLE_TREE
from jboost.boosting import finish, init
from jboost.boosting.rounds import run

DEPTH = 3
SETS = np.array([[True, True, False, False], [False, False, True, True]])


def interactions(sets):
    """Allow below a split only columns of sets that hold all columns split on so far."""
    sets = jnp.asarray(sets)

    def start(key):
        return jnp.ones((1, sets.shape[0]), bool)

    def admit(carry, allowed, rules):
        return allowed[None] & (carry[:, :, None] & sets[None]).any(axis=1)

    def descend(carry, splits, sums, rules):
        feature = jnp.broadcast_to(splits.feature, carry.shape[:1])
        return jnp.repeat(carry & (sets.T[feature] | (splits.gain == 0)[:, None]), 2, axis=0)

    return Growth(start, admit, descend)


FREE = interactions(np.ones((1, 4), bool))  # forbids nothing


@functools.cache
def fit(growth, policy, engine=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X[:, 0] * X[:, 2] + X[:, 1] + 0.5 * X[:, 3] + (X[:, 0] > 0) * X[:, 1]
    spec = Spec(n_estimators=4, max_depth=DEPTH, grow_policy=policy)
    problem, state = init(losses.squared_error, X, y, spec=spec)
    engine = engine or choose_engine(spec, growth)
    bins = (
        problem.bins
        if problem.bins.ndim == 2
        else jnp.pad(jboost.bin_features(X).bins, ((0, 0), (0, problem.train.weight.size - 300)))
    )
    problem = dataclasses.replace(problem, growth=growth, engine=engine, bins=bins)
    _, rounds = jax.jit(run)(problem, state)
    return finish(problem, rounds)


def paths(model, policy):
    """Return the columns split on along every path of every tree, where something was split."""
    found = []
    for t in range(model.n_trees):
        feature, gain = np.asarray(model.trees.feature[t]), np.asarray(model.trees.gain[t])
        if policy == "symmetric":
            found.append(set(feature[gain > 0].tolist()))
            continue
        for leaf in range(2**DEPTH):
            slots = [2**level - 1 + (leaf >> (DEPTH - level)) for level in range(DEPTH)]
            found.append({int(feature[slot]) for slot in slots if gain[slot] > 0})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_interaction_constraints_hold_on_every_path(policy):
    allowed = [set(np.flatnonzero(one)) for one in SETS]
    found = paths(fit(interactions(SETS), policy), policy)
    assert all(any(path <= one for one in allowed) for path in found)
    assert any(len(path) > 1 for path in found)
    free = paths(fit(FREE, policy), policy)
    assert not all(any(path <= one for one in allowed) for path in free)


@pytest.mark.slow
def test_nothing_forbidden_changes_nothing():
    free, plain = fit(FREE, "depthwise"), fit(None, "depthwise", PLAIN)
    for one, other in zip(jax.tree.leaves(free.trees), jax.tree.leaves(plain.trees), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(free.leaf_value, plain.leaf_value)


def drawn(keys: Any, allowed: Any, share: float, policy: Any = "depthwise") -> np.ndarray:
    rules = Rules(Hyper(colsample_bynode=jnp.float32(share)), jnp.ones(2), Spec(grow_policy=policy))
    return np.asarray(columns_by_node.admit(keys, allowed, rules))


def test_shares_of_columns_are_drawn_for_each_node():
    """Without replacement among those of the level, each as often, and for each node anew."""
    keys, allowed = (
        jax.random.split(jax.random.key(0), 3000),
        jnp.array([True, True, False, True, True, True]),
    )
    found = drawn(keys, allowed, 0.6)
    assert found.shape == (3000, 6)
    assert (found.sum(axis=1) == 3).all()
    assert not found[:, 2].any()
    np.testing.assert_allclose(found[:, allowed].mean(axis=0), 0.6, atol=0.03)
    assert len({tuple(row) for row in found}) == 10  # ways to choose 3 of 5
    assert drawn(keys, allowed, 1e-6).sum(axis=1).tolist() == [1] * 3000
    assert drawn(keys, allowed, 0.6, "symmetric").shape == (1, 6)  # its nodes share a split
    nothing: Any = None
    children = columns_by_node.descend(keys, nothing, nothing, nothing)
    assert len(np.unique(jax.random.key_data(children), axis=0)) == 6000


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_a_fit_draws_columns_for_each_node(policy):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = X @ [1.0, 0.9, 0.8, 0.7]
    spec = Spec(n_estimators=4, max_depth=DEPTH, grow_policy=policy)

    def feature(share):
        model, _ = jboost.fit(losses.squared_error, X, y, spec=spec, hyper=Hyper(colsample_bynode=share))
        return np.asarray(model.trees.feature)

    np.testing.assert_array_equal(feature(1.0), feature(jnp.float32(1.0)))
    few = feature(0.25)  # one column for each node
    assert (few != feature(1.0)).any()
    if policy == "depthwise":
        assert len({tuple(row[3:7]) for row in few}) > 1
        assert any(len(set(row[1:3])) == 2 for row in few)
    data = jboost.bin_features(X)

    @jax.jit
    @jax.vmap
    def swept(share):
        hyper = Hyper(colsample_bynode=share)
        return jboost.fit(losses.squared_error, data, y, spec=spec, hyper=hyper)[0].trees.feature

    np.testing.assert_array_equal(swept(jnp.array([0.25, 1.0])), [few, feature(1.0)])


@pytest.mark.slow
def test_children_are_told_their_sums():
    """Of h, with an h of 1 a row: the children of a level sum to all rows."""
    seen = []

    def start(key):
        return jnp.zeros((1, 0))

    def descend(carry, splits, sums, rules):
        h = sums[1].astype(float) * rules.unit[1]
        return jnp.concatenate([jnp.repeat(carry, 2, axis=0), jnp.full((h.size, 1), h.sum())], axis=1)

    def admit(carry, allowed, rules):
        jax.debug.callback(lambda one: seen.append(np.asarray(one)), carry)
        return jnp.broadcast_to(allowed, (carry.shape[0], allowed.size))

    fit(Growth(start, admit, descend), "depthwise")
    jax.effects_barrier()
    sums = [one for one in seen if one.size]
    assert sums
    for one in sums:
        np.testing.assert_allclose(one, 300, rtol=1e-5)


def test_what_the_library_cannot_do_falls_to_the_next_engine():
    free = interactions(SETS)
    assert choose_engine(Spec(), free) in (BY_LEVEL, PLAIN)
    assert choose_engine(Spec(), divided=True) in (BY_LEVEL, PLAIN)
    with jboost.plain_jax():
        assert choose_engine(Spec()) == PLAIN
        with jboost.plain_jax(False):
            assert choose_engine(Spec()) == choose_engine(Spec())
    assert choose_engine(Spec()) == PLAIN or WHOLE_TREE.grouped


def test_totals_are_those_of_any_column(rng):
    histogram = jnp.asarray(rng.integers(0, 9, (5, 2, 3, 1)))
    np.testing.assert_array_equal(totals(histogram)[..., 0], np.asarray(histogram).sum(axis=0)[..., 0])


def values_of(sums, rules):
    """Return the leaf values of nodes with one output, from their statistics [2 ...] in fixed point."""
    unit = rules.unit.reshape(-1, *[1] * (sums.ndim - 1))
    g, h = sums * unit
    return leaf_value(g, h, rules.hyper)


def increasing_in(column):
    """Refuse splits whose children are in the wrong order in a column, or leave the bounds that their node was given.

    Below a split on the column, the middle of its children's values bounds both sides.
    """

    def start(key):
        return jnp.array([[-jnp.inf, jnp.inf]])

    def admit(carry, allowed, rules):
        return jnp.broadcast_to(allowed[None], (len(carry), allowed.size))

    def weigh(carry, gain, left, right, columns, rules):
        low, high = values_of(left, rules), values_of(right, rules)
        inside = (jnp.minimum(low, high) >= carry[:, :1]) & (jnp.maximum(low, high) <= carry[:, 1:])
        return jnp.where(inside & ((columns != column)[None] | (low <= high)), gain, -jnp.inf)

    def descend(carry, splits, sums, rules):
        value = values_of(sums, rules).reshape(-1, 2)
        middle = value.mean(axis=1)
        is_bound = (splits.feature == column) & (splits.gain > 0)
        low, high = carry.T
        left = jnp.stack([low, jnp.where(is_bound, middle, high)], axis=1)
        right = jnp.stack([jnp.where(is_bound, middle, low), high], axis=1)
        return jnp.stack([left, right], axis=1).reshape(-1, 2)

    return Growth(start, admit, descend, weigh)


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "categorical"), [("symmetric", None), ("depthwise", [2])])
def test_bounds_that_nodes_hand_down_make_a_model_monotone(policy, categorical):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    X[:, 2] = rng.integers(5, size=400)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 0] + X[:, 1] * (X[:, 2] - 2) + 0.3 * rng.normal(size=400)
    spec = Spec(n_estimators=8, max_depth=DEPTH, grow_policy=policy)
    grid = np.linspace(-3, 3, 200)

    data = jboost.bin_features(X, categorical=categorical)

    def steps(model):
        """Return the differences of the predictions along the column, at twenty values of the others."""
        rows = np.repeat(X[:20], grid.size, axis=0)
        rows[:, 0] = np.tile(grid, 20)
        assert (np.asarray(model.trees.feature)[np.asarray(model.trees.gain) > 0] == 0).any()
        return np.diff(np.asarray(jboost.predict(model, rows)).reshape(20, -1), axis=1)

    free, _ = jboost.fit(losses.squared_error, data, y, spec=spec)
    assert steps(free).min() < -0.1
    problem, state = init(losses.squared_error, data, y, spec=spec)
    growth, bins = increasing_in(0), jnp.pad(data.bins, ((0, 0), (0, problem.train.weight.size - 400)))
    problem = dataclasses.replace(problem, growth=growth, engine=choose_engine(spec, growth), bins=bins)
    bounded = finish(problem, jax.jit(run)(problem, state)[1])
    assert steps(bounded).min() >= -1e-6  # trees are summed in floats


@pytest.mark.slow
def test_nodes_of_a_level_may_choose_their_split_in_another_way():
    plain = fit(FREE, "symmetric")
    as_ever = fit(FREE._replace(combine=sum_of_gains), "symmetric")
    np.testing.assert_array_equal(as_ever.leaf_value, plain.leaf_value)
    by_one = fit(FREE._replace(combine=lambda gain: gain.max(axis=0)), "symmetric")
    each = fit(FREE, "depthwise")
    # Both start with the same root; then the node that gains most decides for the level.
    best = np.argmax(each.trees.gain[0, 1:3])
    for name in ("feature", "threshold", "gain"):
        ours, theirs = (np.asarray(getattr(model.trees, name))[0] for model in (by_one, each))
        assert (ours[0], ours[1]) == (theirs[0], theirs[1 + best])
    assert (np.asarray(by_one.trees.feature) != np.asarray(plain.trees.feature)).any()
