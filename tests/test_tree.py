"""How trees grow and route rows, level by level and in C++: leaves, siblings, inactive rows, the order of rows."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost import Hyper, Spec
from jboost._fixed_point import find_scale
from jboost._histogram import with_siblings, xla
from jboost._runtime.typing import Layout
from jboost._split import Rules
from jboost._tree import Columns, GradientPairs, Tree, arrange, choose_engine, leaf_index, native, tree_depth
from jboost._tree.levels import grow_by_level

N, DEPTH, N_CODES = 200, 3, 16
LAYOUT = Layout(N_CODES, True, (3,), 10)
POLICIES = ("symmetric", "depthwise")
EVERY_COLUMN = np.ones((DEPTH, 4), bool)
find_leaf = jax.jit(leaf_index, static_argnames=("layout", "symmetric"))


@functools.cache
def rows() -> tuple[Any, ...]:
    """Make codes [f n] (missing values in columns 0 and 3, categories in column 3), g and h [n 2], active [n]."""
    rng = np.random.default_rng(0)
    codes = rng.integers(1, 12, (4, N))
    codes[3] = rng.integers(1, 10, N)
    codes[[0, 3], ::9] = 0
    target = np.sin(codes[0]) + (codes[1] > 6) * np.cos(codes[2]) + np.isin(codes[3], [2, 5, 8])
    pairs = np.column_stack([rng.normal(size=N) * 0.2 - target, rng.uniform(0.5, 2.0, N)])
    return codes.astype(np.uint8), pairs.astype(np.float32), rng.random(N) < 0.8


def grow_chosen(columns: Columns, *rest: Any) -> Any:
    """Grow a tree by the engine that a fit chooses."""
    engine = choose_engine(rest[-1].spec)
    return engine.grow(columns._replace(bins=arrange(engine, columns.bins)), *rest)


@pytest.fixture(params=["by level", "native", pytest.param("chosen", marks=pytest.mark.slow)])
def grow(request):
    """Give each way to grow a tree: (codes, pairs, active, spec, allowed, layout) -> (tree, leaf)."""
    if request.param == "native":
        native_library.require(native.is_available)
    twin = {"by level": grow_by_level, "native": native.grow_tree, "chosen": grow_chosen}[request.param]

    def call(
        codes: Any, pairs: Any, active: Any, spec: Spec, allowed: Any = EVERY_COLUMN, layout: Layout = LAYOUT
    ):
        return compiled_grow(codes, pairs, active, allowed, spec, twin, layout)

    return call


@functools.partial(jax.jit, static_argnums=(4, 5, 6))
def compiled_grow(
    bins: Any, pairs: Any, active: Any, allowed: Any, spec: Spec, twin: Any, layout: Layout
) -> tuple[Tree, jax.Array]:
    """Grow one tree as a round of boosting does."""
    scale = find_scale(jnp.where(active[:, None], pairs, 0.0)).factor
    # Inactive rows keep some derivatives: it is the tree that must not count them.
    pairs = jnp.where(active[:, None], pairs, 3 * pairs)
    hyper = jax.tree.map(jnp.float32, Hyper(min_child_weight=3.0))
    bins = native.group_columns(bins) if twin is native.grow_tree else bins
    return twin(
        Columns(bins, allowed, layout),
        GradientPairs(pairs[:, :1], pairs[:, 1:]),
        active,
        Rules(hyper, scale, spec),
    )


@pytest.fixture(params=POLICIES)
def spec(request):
    return Spec(max_depth=DEPTH, grow_policy=request.param)


def assert_same_tree(first: Tree, second: Tree) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def naive_leaf(tree: Tree, codes: np.ndarray, symmetric: bool) -> np.ndarray:
    """Walk down row by row, reading the arrays as they are documented."""
    leaves = []
    for row in codes.T.astype(int):
        node = 0
        for level in range(DEPTH):
            slot = level if symmetric else 2**level - 1 + node
            code = row[tree.feature[slot]]
            if code == 0:
                right = bool(tree.missing_right[slot])
            elif tree.feature[slot] in LAYOUT.categorical and tree.threshold[slot] < N_CODES:
                assert tree.categories_right is not None
                right = bool(int(tree.categories_right[slot, code // 32]) >> (code % 32) & 1)
            else:
                right = bool(code > tree.threshold[slot])
            node = 2 * node + right
        leaves.append(node)
    return np.array(leaves)


def test_growing_and_finding_give_the_same_leaf(grow, spec):
    codes, pairs, active = rows()
    tree, leaf = grow(codes, pairs, active, spec)
    assert tree.feature.shape == (spec.n_splits,)
    assert tree_depth(tree, spec.symmetric) == DEPTH
    np.testing.assert_array_equal(find_leaf(tree, codes, LAYOUT, spec.symmetric), leaf)
    np.testing.assert_array_equal(naive_leaf(jax.tree.map(np.asarray, tree), codes, spec.symmetric), leaf)
    assert len(np.unique(leaf)) > 4
    assert {3} < set(np.unique(tree.feature).tolist())  # categories and numbers


def test_the_gains_are_those_of_the_leaves(grow, spec):
    # The gains of all splits add up to what the tree gains: half the scores of its leaves less that of the root.
    codes, pairs, active = rows()
    tree, leaf = grow(codes, pairs, active, spec)
    g, h = (
        np.bincount(np.asarray(leaf)[active], values[active], minlength=spec.n_leaves)
        for values in pairs.astype(float).T
    )
    gain = 0.5 * ((g**2 / (h + 1)).sum() - g.sum() ** 2 / (h.sum() + 1))
    if spec.symmetric:  # there a shared split may cost a node something, which its gain leaves out
        assert tree.gain.sum() > gain * (1 - 1e-5)
    else:
        np.testing.assert_allclose(tree.gain.sum(), gain, rtol=1e-5)
        assert np.all((h >= 3) | (h == 0))


def test_the_order_of_rows_does_not_matter(grow, spec, rng):
    codes, pairs, active = rows()
    order = rng.permutation(N)
    tree, leaf = grow(codes, pairs, active, spec)
    shuffled, leaf_of_shuffled = grow(codes[:, order], pairs[order], active[order], spec)
    assert_same_tree(shuffled, tree)
    np.testing.assert_array_equal(leaf_of_shuffled, np.asarray(leaf)[order])


def test_inactive_rows_are_only_routed(grow, spec):
    codes, pairs, active = rows()
    tree, _ = grow(codes, pairs, active, spec)
    other_pairs = np.where(active[:, None], pairs, 7 - 3 * pairs)
    other_codes = np.where(active[None], codes, codes[:, ::-1])
    other, leaf = grow(other_codes, other_pairs, active, spec)
    assert_same_tree(other, tree)
    np.testing.assert_array_equal(find_leaf(tree, other_codes, LAYOUT, spec.symmetric), leaf)
    everyone, _ = grow(codes, pairs, np.ones(N, bool), spec)
    assert not np.array_equal(everyone.gain, tree.gain)  # they would have counted


def test_given_histograms_and_wider_codes_grow_the_same_tree(spec):
    codes, pairs, active = rows()
    tree, leaf = compiled_grow(codes, pairs, active, EVERY_COLUMN, spec, grow_chosen, LAYOUT)
    wider, plain = (
        codes.astype(np.uint16),
        functools.partial(grow_by_level, build=xla.scatter_in_blocks),
    )
    by_level, leaf_by_level = compiled_grow(wider, pairs, active, EVERY_COLUMN, spec, plain, LAYOUT)
    assert_same_tree(by_level, tree)
    np.testing.assert_array_equal(leaf_by_level, leaf)


def test_without_gain_every_row_stays_left(grow, spec):
    codes, pairs, active = rows()
    tree, leaf = grow(codes, np.zeros_like(pairs), active, spec)
    assert np.all(tree.threshold == N_CODES)
    assert not np.any(tree.gain)
    assert not np.any(leaf)


def test_a_known_tree_is_recovered(grow):
    # The right answer depends on column 1 above 5 and, there alone, on column 0 above 8.
    codes = np.array([[i % 11 + 1 for i in range(N)], [i // 11 % 11 + 1 for i in range(N)]], np.uint8)
    target = np.where(codes[1] > 5, np.where(codes[0] > 8, 6.0, 2.0), -5.0)
    pairs = np.column_stack([-target, np.ones(N)]).astype(np.float32)
    layout = Layout(N_CODES, False)
    spec = Spec(max_depth=2, grow_policy="depthwise")
    tree, leaf = grow(codes, pairs, np.ones(N, bool), spec, np.ones((2, 2), bool), layout=layout)
    np.testing.assert_array_equal(tree.feature[jnp.array([0, 2])], [1, 0])
    np.testing.assert_array_equal(tree.threshold, [5, N_CODES, 8])
    np.testing.assert_array_equal(leaf, np.where(codes[1] > 5, np.where(codes[0] > 8, 3, 2), 0))
    assert tree.categories_right.shape == (3, 0)


def test_columns_are_those_allowed_at_their_level(grow, spec):
    codes, pairs, active = rows()
    allowed = np.eye(4, dtype=bool)[[1, 3, 0]]
    tree, _ = grow(codes, pairs, active, spec, allowed)
    assert np.all(tree.threshold != N_CODES)
    sizes = [1, 1, 1] if spec.symmetric else [1, 2, 4]
    np.testing.assert_array_equal(tree.feature, np.repeat([1, 3, 0], sizes))


def test_siblings_are_the_rest_of_their_parent(rng):
    shape = (3, 5, 2, 4, 3)  # the first axis is a batch
    parent, built = rng.integers(-(2**29), 2**29, (2, *shape)).astype(np.int32)
    right = rng.random((3, 4)) < 0.5
    children = np.empty((3, 5, 2, 8, 3), np.int64)
    for batch, node in np.ndindex(3, 4):
        side = int(right[batch, node])
        children[batch, :, :, 2 * node + side] = built[batch, :, :, node]
        other = parent[batch, :, :, node].astype(np.int64) - built[batch, :, :, node]
        children[batch, :, :, 2 * node + 1 - side] = other
    found = jax.jit(jax.vmap(with_siblings))(parent, built, right)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, children)
    np.testing.assert_array_equal(jax.jit(with_siblings)(parent[0], built[0], right[0]), children[0])
    np.testing.assert_array_equal(found.reshape(3, 5, 2, 4, 2, 3).sum(axis=4), parent)
