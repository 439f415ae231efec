"""A tree of fixed depth as arrays: how it grows from gradients, and how rows find their leaf.

Level by level: histograms of the lighter children only (the others are their parent less their sibling), the
best split of each node, and the rows moved to node 2 * node + goes_right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from jboost._histogram import with_siblings
from jboost._native import by_platform
from jboost._split import Rules, Split, best_split, routing_table
from jboost._typing import MISSING_BIN, Layout, Reduce, pytree

Bins = Int[Array, "f n"]
BuildHistogram = Callable[[Bins, Int[Array, " n"], Int[Array, "n c"], int, int], Int[Array, "b c l f"]]


@pytree
class Tree:
    """Splits of one tree; stacked over rounds (and over outputs, where each has its own tree).

    Slots run level by level: a symmetric tree has one a level, a depthwise tree has slot 2**level - 1 + node.

    Attributes
    ----------
    feature : int32 [s]
        Column that is looked at.
    threshold : int32 [s]
        Bin codes above it go right; the number of codes where nothing is split.
    missing_right : bool [s]
        Whether missing and unseen values go right.
    categories_right : uint32 [s, words]
        For a categorical feature, the set of codes that go right, 32 to a word.
    gain : float [s]
        What the split gained; 0 where nothing is split.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> spec = jboost.Spec(n_estimators=1, max_depth=1)
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0] > 2.5, spec=spec)
    >>> model.trees.threshold.tolist()  # values up to that of code 3, which is 2.0, go left
    [[3]]
    """

    feature: Int[Array, " s"]
    threshold: Int[Array, " s"]  # codes above it go right; n_codes where nothing is split
    missing_right: Bool[Array, " s"]
    categories_right: UInt32[Array, "s words"]  # set of codes, for a categorical feature
    gain: Float[Array, " s"]


class Columns(NamedTuple):
    """What a tree may use of the columns."""

    bins: Bins
    allowed: Bool[Array, "d f"]  # drawn for each level
    layout: Layout


def grow_tree(
    columns: Columns,
    statistics: Int[Array, "n c"],
    active: Bool[Array, " n"],
    rules: Rules,
    build_histogram: BuildHistogram,
    reduce: Reduce,
) -> tuple[Tree, Int[Array, " n"]]:
    """Grow a tree on the rows that are active.

    Parameters
    ----------
    columns : Columns
        Bin codes [f n] and the columns drawn for each level.
    statistics : int32 [n c]
        Gradients and Hessians in fixed point.
    active : bool [n]
        Rows whose statistics count; the others are only routed.
    rules : Rules
        Regularisation and the scale of the statistics.
    build_histogram, reduce : functions
        How histograms are made, and how they are summed over devices.

    Returns
    -------
    Tree
        The splits, in level order.
    int32 [n]
        Leaf of every row.
    """
    spec, layout = rules.spec, columns.layout
    node = jnp.zeros(columns.bins.shape[1], dtype=jnp.int32)
    slot = jnp.where(active, 0, jnp.ones_like(node))
    built_right = jnp.zeros(1, dtype=bool)
    histogram = None
    splits: list[Split] = []
    for level in range(spec.max_depth):
        built = reduce(build_histogram(columns.bins, slot, statistics, max(2**level // 2, 1), layout.n_codes))
        histogram = built if histogram is None else with_siblings(histogram, built, built_right)
        split, right_is_lighter = best_split(histogram, rules, layout, columns.allowed[level])
        splits.append(split)
        table = routing_table(split, layout)
        goes_right = _route(columns.bins, node, split, table, layout)
        if level + 1 < spec.max_depth:
            built_right = right_is_lighter
            build = active & (goes_right == built_right[node])
            slot = jnp.where(build, node, 2**level)
        node = 2 * node + goes_right
    return Tree(*jax.tree.map(lambda *levels: jnp.concatenate(levels), *splits)), node


def tree_depth(tree: Tree, symmetric: bool) -> int:
    """Levels of a tree (or of stacked trees)."""
    n_slots = tree.feature.shape[-1]
    return n_slots if symmetric else n_slots.bit_length()


def leaf_index(tree: Tree, bins: Bins, layout: Layout, symmetric: bool) -> Int[Array, " n"]:
    """Find the leaf of every row, given the bin codes [f n]."""
    splits = Split(tree.feature, tree.threshold, tree.missing_right, tree.categories_right, tree.gain)

    def descend(level: Int[Array, ""], node: Int[Array, " n"]) -> Int[Array, " n"]:
        if symmetric:
            split = jax.tree.map(lambda field: jax.lax.dynamic_slice_in_dim(field, level, 1), splits)
            return 2 * node + _route(bins, node, split, routing_table(split, layout), layout)
        slot = 2**level - 1 + node
        return 2 * node + _route(bins, slot, splits, routing_table(splits, layout), layout)

    start = jnp.zeros(bins.shape[1], dtype=jnp.int32)
    return jax.lax.fori_loop(0, tree_depth(tree, symmetric), descend, start)


def _route(
    bins: Bins, node: Int[Array, " n"], split: Split, table: Bool[Array, "l b"], layout: Layout
) -> Bool[Array, " n"]:
    """Say which rows go right, by the split of their node."""
    shared = split.feature.size == 1
    if shared:
        codes = jax.lax.dynamic_index_in_dim(bins, split.feature[0], axis=0, keepdims=False)
    else:
        arrays = bins, split.feature, node
        codes = by_platform(*arrays, cpu=gather_codes, tpu=select_codes, default=gather_codes)
    if layout.categorical:
        return table[0 if shared else node, codes]
    threshold, missing_right = (
        field[0] if shared else field[node] for field in (split.threshold, split.missing_right)
    )
    above = codes > threshold.astype(jnp.int32)
    return jnp.where(codes == MISSING_BIN, missing_right, above) if layout.has_missing else above


def gather_codes(bins: Bins, feature: Int[Array, " s"], node: Int[Array, " n"]) -> Int[Array, " n"]:
    """Look up each row's code of the feature of its node."""
    return bins[feature[node], jnp.arange(bins.shape[1])]


def select_codes(bins: Bins, feature: Int[Array, " s"], node: Int[Array, " n"]) -> Int[Array, " n"]:
    """Do the same without a gather, which a TPU does row by row: read every node's feature in full."""

    def add_node(j: Int[Array, ""], codes: Int[Array, " n"]) -> Int[Array, " n"]:
        own = jax.lax.dynamic_index_in_dim(bins, feature[j], axis=0, keepdims=False)
        return jnp.where(node == j, own, codes)

    first = jnp.where(node == 0, bins[feature[0]], 0)  # of the type, and on the devices, of the result
    return jax.lax.fori_loop(1, feature.size, add_node, first)
