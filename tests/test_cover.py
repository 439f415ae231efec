"""Covers and tree weights: sums over the rows of a leaf by NumPy, weights by hand, and trees as deep as they may be."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from jboost._bins import read_bins
from jboost._model.cover import node_cover
from jboost._model.ensemble import edges_layout
from jboost._model.scoring import leaf_of, native, sum_rounds, xla
from jboost._runtime.typing import is_traced
from jboost._sampling import sample_rows
from tests.model_file import same_bits
from tests.twin import problem

SMALL = Spec(n_estimators=4, max_depth=2)
HALF = Hyper(subsample=0.5, min_child_weight=0.0)


def fit(policy="symmetric", separate=False, hyper=Hyper(), **options: Any):
    """A target with two columns, or one of two classes."""
    rows = problem("mixed")
    spec = dataclasses.replace(
        SMALL, grow_policy=policy, multi_output="separate" if separate else "vector", n_iter_no_change=None
    )
    y = np.column_stack([rows.targets["real"], rows.targets["binary"]])
    options.setdefault("sample_weight", rows.weight)
    model, _ = jboost.fit(losses.squared_error, rows.data, y, spec=spec, hyper=hyper, **options)
    return model, rows


compiled_leaf_of = jax.jit(leaf_of, static_argnums=(0, 1))


def leaves_of(model, rows):
    """Leaf of each row, round and output: int [t, n, k]."""
    layout, bins = edges_layout(model.edges), rows.data.bins
    trees = jax.tree.map(np.asarray, model.trees)  # of which NumPy takes one without a program
    found = [
        np.asarray(compiled_leaf_of(layout, model.symmetric, jax.tree.map(lambda a, t=t: a[t], trees), bins))
        for t in range(model.n_trees)
    ]
    return np.stack([np.broadcast_to(np.reshape(leaf, (len(leaf), -1)), (len(leaf), 2)) for leaf in found])


def drawn(rows, t, fraction):
    key = jax.random.fold_in(jax.random.key(0), 2 * t)
    return np.asarray(sample_rows(key, len(rows.weight), jnp.asarray(fraction, float)))


# ---------------------------------------------------------------- covers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "separate", "hyper"),
    [(policy, separate, Hyper()) for policy in ("symmetric", "depthwise") for separate in (False, True)]
    + [("symmetric", False, HALF), ("depthwise", True, HALF)],
)
def test_covers_are_sums_over_the_rows_of_a_leaf(policy, separate, hyper, x64):
    model, rows = fit(policy, separate, hyper)
    assert model.leaf_hessian.shape == (4, 4, 2)
    assert model.leaf_count.shape == (4, 4, 2 if separate else 1)
    leaf = leaves_of(model, rows)
    for t in range(model.n_trees):
        took_part = (
            drawn(rows, t, hyper.subsample) if hyper.subsample < 1 else np.ones(len(rows.weight), bool)
        )
        weight = rows.weight * took_part
        for j in range(2):  # h is 1 for this loss
            expected = np.bincount(leaf[t, :, j], weight, minlength=4)
            np.testing.assert_allclose(model.leaf_hessian[t, :, j], expected, rtol=1e-12)
            np.testing.assert_allclose(model.leaf_count[t, :, j if separate else 0], expected, rtol=1e-12)
        if hyper.subsample == 1:
            np.testing.assert_allclose(model.leaf_count[t].sum(axis=0), rows.weight.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(losses.logistic, marks=pytest.mark.slow),
        dataclasses.replace(losses.logistic, leaf=jboost.Newton(3)),
        pytest.param(losses.absolute_error, marks=pytest.mark.slow),
    ],
)
def test_the_sum_of_h_is_that_before_the_round_whatever_the_leaf_rule(loss, x64):
    rows, spec = problem("mixed"), dataclasses.replace(SMALL, n_estimators=1)
    model, _ = jboost.fit(loss, rows.data, rows.targets["binary"], spec=spec, sample_weight=rows.weight)
    leaf = leaves_of(model, rows)[0, :, 0]
    p = 1 / (1 + np.exp(-float(model.base[0])))
    h = p * (1 - p) if loss is not losses.absolute_error else 1.0
    weight = np.bincount(leaf, rows.weight, minlength=4)
    np.testing.assert_allclose(model.leaf_hessian[0, :, 0], h * weight, rtol=1e-9)
    np.testing.assert_allclose(model.leaf_count[0, :, 0], weight, rtol=1e-12)


def test_whole_counts_are_exact_in_float32():
    model, rows = fit("depthwise", sample_weight=None)
    counts = np.stack([np.bincount(leaf, minlength=4) for leaf in leaves_of(model, rows)[..., 0]])
    np.testing.assert_array_equal(model.leaf_count[..., 0], counts)


def test_rows_are_counted_as_their_weights_are_summed():
    """Weights of 1 and 0 are counted, others are summed: twice the weights, twice the counts."""
    weight = np.ones(len(problem("mixed").weight))
    weight[::3] = 0
    counted, _ = fit(sample_weight=weight, hyper=HALF)
    summed, _ = fit(sample_weight=2 * weight, hyper=HALF)
    np.testing.assert_array_equal(2 * counted.leaf_count[0], summed.leaf_count[0])
    assert 0 < counted.leaf_count[0].sum() < 0.6 * weight.sum()


def test_rounds_silenced_under_jit_keep_their_covers(x64):
    rows = problem("mixed")
    spec = dataclasses.replace(SMALL, n_estimators=12, n_iter_no_change=1)
    y, hyper = rows.targets["real"], Hyper(learning_rate=0.9, reg_lambda=0.0)
    held = jboost.bin_features(rows.X[:40], edges=rows.data.edges)

    def fitted(weight):
        valid = held, -y[:40]
        return jboost.fit(
            losses.squared_error, rows.data, y, spec=spec, hyper=hyper, sample_weight=weight, valid=valid
        )

    def hessian_of(weight):
        model, history = fitted(weight)
        return model.leaf_hessian.sum(), (model, history)

    (_, (model, history)), slope = jax.jit(jax.value_and_grad(hessian_of, has_aux=True))(rows.weight)
    silent = np.arange(12) > int(history.best_round)
    assert silent.any()
    assert not model.leaf_value[silent].any()
    np.testing.assert_allclose(model.leaf_count.sum(axis=1)[:, 0], rows.weight.sum(), rtol=1e-12)
    np.testing.assert_array_equal(slope, 0)  # statistics, not parameters


def test_every_node_has_the_cover_of_the_leaves_below():
    rng = np.random.default_rng(0)
    of_leaves = jnp.asarray(rng.integers(0, 100, (3, 8, 2)), jnp.float32)
    found = np.asarray(node_cover(of_leaves))
    assert found.shape == (3, 15, 2)
    for node in range(15):
        level = (node + 1).bit_length() - 1
        width, first = 8 >> level, (node + 1 - (1 << level)) * (8 >> level)
        np.testing.assert_array_equal(found[:, node], of_leaves[:, first : first + width].sum(axis=1))
    np.testing.assert_array_equal(node_cover(of_leaves[0, :1]), of_leaves[0, :1])  # no split at all


def test_a_node_of_a_tree_has_the_cover_of_the_rows_that_reach_it():
    model, rows = fit("depthwise", sample_weight=None)
    codes, tree = np.asarray(rows.data.bins), jax.tree.map(lambda a: np.asarray(a[0]), model.trees)
    count = np.asarray(node_cover(model.leaf_count))[0, :, 0]
    leaf = leaves_of(model, rows)[0, :, 0]
    assert count[0] == codes.shape[1]
    for slot in range(3):  # the root and its children, by the splits that the tree holds
        reach = [leaf >= 0, leaf < 2, leaf >= 2][slot]
        assert count[slot] == reach.sum()
        left = reach & (leaf % 2 == 0 if slot else leaf < 2)
        assert count[2 * slot + 1] == left.sum()
        assert tree.gain[slot] > 0


# ---------------------------------------------------------------- tree weights


def with_weight(model, weight):
    return dataclasses.replace(model, tree_weight=jnp.asarray(weight, model.leaf_value.dtype))


@pytest.mark.parametrize(
    ("precision", "separate"),
    [
        (False, False),
        (False, True),
        *(pytest.param(True, separate, marks=pytest.mark.slow) for separate in (False, True)),
    ],
    ids=["x32-vector", "x32-separate", "x64-vector", "x64-separate"],
    indirect=["precision"],
)
def test_a_weight_multiplies_what_its_tree_adds(separate, precision):
    model, rows = fit(separate=separate)
    np.testing.assert_array_equal(model.tree_weight, np.ones(4, precision))
    stages = [np.asarray(score) for score in jboost.staged_predict(model, rows.data)]
    added = np.diff(np.stack([np.broadcast_to(model.base, stages[0].shape), *stages]), axis=0)
    weight = [0.5, 0.0, -2.0, 1.0]
    weighted = with_weight(model, weight)
    expected = np.asarray(model.base)[None, None] + np.cumsum(np.array(weight)[:, None, None] * added, axis=0)
    found = list(jboost.staged_predict(weighted, rows.data))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    for X in (rows.data, rows.X):
        assert same_bits(jboost.predict(weighted, X), found[-1])
        np.testing.assert_allclose(jax.jit(jboost.predict)(weighted, rows.data), found[-1], rtol=1e-6)


def test_weights_of_1_change_no_bit():
    model, rows = fit()
    folded = dataclasses.replace(model, leaf_value=model.leaf_value * jnp.float32(0.3))
    weighted = with_weight(model, [0.3] * 4)
    assert same_bits(jboost.predict(weighted, rows.data), jboost.predict(folded, rows.data))
    assert same_bits(jax.jit(jboost.predict)(model, rows.data), jboost.predict(model, rows.data))


def test_weights_stay_with_their_trees(x64):
    model, rows = fit()
    weighted = with_weight(model, [0.5, 2.0, 3.0, 0.25])
    short = jboost.truncate(weighted, 2)
    assert short.tree_weight.tolist() == [0.5, 2.0]
    stages = list(jboost.staged_predict(weighted, rows.data))
    np.testing.assert_array_equal(jboost.predict(short, rows.data), stages[1])
    both = jboost.concatenate(short, weighted)
    assert both.tree_weight.tolist() == [0.5, 2.0, 0.5, 2.0, 3.0, 0.25]
    assert same_bits(both.leaf_count[2:], model.leaf_count)
    expected = np.asarray(stages[1]) + np.asarray(stages[-1]) - np.asarray(model.base)[None]
    np.testing.assert_allclose(jboost.predict(both, rows.data), expected, rtol=1e-12)
    longer, _ = fit(init_model=weighted)
    assert longer.tree_weight.tolist() == [0.5, 2.0, 3.0, 0.25, 1, 1, 1, 1]
    np.testing.assert_array_equal(
        list(jboost.staged_predict(longer, rows.data))[3], jboost.predict(weighted, rows.data)
    )


def test_scores_are_linear_in_the_weights(x64):
    model, rows = fit()

    @jax.jit
    @jax.value_and_grad
    def total(weight):
        return jnp.sum(jnp.sin(jboost.predict(dataclasses.replace(model, tree_weight=weight), rows.data)))

    weight, step = jnp.array([0.5, 1.0, 2.0, 1.0]), 1e-6
    slope = total(weight)[1]
    differences = [
        (total(weight + step * e)[0] - total(weight - step * e)[0]) / (2 * step) for e in np.eye(4)
    ]
    np.testing.assert_allclose(slope, differences, rtol=1e-6)
    assert not is_traced(slope)


# ---------------------------------------------------------------- trees of peers


def test_a_peers_tree_of_depth_16(tmp_path):
    """One chain of splits, value by value, down to the last level; no split anywhere else."""
    depth, rng = 16, np.random.default_rng(0)
    edges = jboost.bin_features(np.arange(20.0)[:, None]).edges
    slots = 2**depth - 1
    threshold, leaf_value = (
        np.full((2, slots), edges.n_codes, np.int32),
        np.zeros((2, 2**depth, 1), np.float32),
    )
    chain = 2 ** np.arange(depth) - 1 + 2 ** np.arange(depth) - 1  # always to the right
    threshold[0, chain] = np.arange(1, depth + 1)
    threshold[1, 0] = 7
    nodes = [(2 ** (level + 1) - 2) << (depth - 1 - level) for level in range(depth)] + [2**depth - 1]
    leaf_value[0, nodes, 0] = values = rng.normal(size=depth + 1).astype(np.float32)
    leaf_value[1, 0], leaf_value[1, 2 ** (depth - 1)] = -1, 1
    nothing, leaves = jnp.zeros((2, slots), jnp.int32), jnp.asarray(leaf_value)
    trees = jboost.Tree(nothing, jnp.asarray(threshold), nothing > 0, None, nothing.astype(jnp.float32))
    cover, weight = jnp.full_like(leaves, jnp.nan), jnp.ones(2, jnp.float32)
    start = jnp.zeros(1, jnp.float32)
    model = jboost.Ensemble(start, trees, leaves, cover, cover, weight, edges, symmetric=False)
    X = np.arange(20.0)[:, None]
    expected = values[np.minimum(np.arange(20), depth)] + np.where(np.arange(20) < 7, -1, 1).astype(
        np.float32
    )
    jboost.save(model, tmp_path / "deep")
    again = jboost.load(tmp_path / "deep")
    assert same_bits(again, model)
    bins = read_bins(edges, X)
    arrays = edges_layout(edges), False, model.trees, model.leaf_value, bins, jnp.zeros((20, 1))
    for one in (model, again):
        np.testing.assert_array_equal(jboost.predict(one, X), expected)
    ways = [sum_rounds, xla.sum_all_rounds]
    if native.is_available():
        ways.append(partial(native.sum_rounds, n_rounds=2))
    for score in ways:
        np.testing.assert_array_equal(jax.jit(score, static_argnums=(0, 1))(*arrays)[:, 0], expected)
