"""A tree of fixed depth as arrays: how it grows from gradients, and how rows find their leaf."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from jboost._histogram import build_histogram as default_histogram
from jboost._histogram import check_size
from jboost._runtime.library import by_platform
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import Layout, Reduce, as_array, identity, pytree, zeros_varying_like
from jboost._split import Rules, Split, routing_table
from jboost._tree import native
from jboost._tree.columns import Bins, Columns, Derivatives
from jboost._tree.levels import BuildHistogram, child_of, grow_by_level, route
from jboost._tree.native import group_columns, is_preferred
from jboost._tree.native import is_available as native_available

__all__ = [
    "BuildHistogram",
    "Columns",
    "Derivatives",
    "Tree",
    "arrange_bins",
    "group_columns",
    "grow_by_level",
    "grow_tree",
    "is_preferred",
    "leaf_index",
    "native_available",
    "take_leaves",
    "tree_depth",
]


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


def grow_tree(
    columns: Columns,
    derivatives: Derivatives,
    active: Bool[Array, " n"],
    rules: Rules,
    build_histogram: BuildHistogram | None = None,
    reduce: Reduce = identity,
) -> tuple[Tree, Int[Array, " n"]]:
    """Grow a tree on the rows that are active.

    Parameters
    ----------
    columns : Columns
        Bin codes [f n], or grouped as `arrange_bins` does, and the columns drawn for each level.
    derivatives : Derivatives
        Gradients and Hessians [n k] of the k outputs that share the tree.
    active : bool [n]
        Rows whose derivatives count; the others are only routed.
    rules : Rules
        Regularisation, and the steps to which derivatives are rounded.
    build_histogram, reduce : functions
        How histograms are made, and how they are summed over devices. With neither, a CPU grows the whole tree in
        one call of the C++ library, if there is one: the result is the same.

    Returns
    -------
    Tree
        The splits, in level order.
    int32 [n]
        Leaf of every row.
    """
    if build_histogram is not None or reduce is not identity:
        build = default_histogram if build_histogram is None else build_histogram
        split, leaf = grow_by_level(columns, derivatives, active, rules, build, reduce)
        return Tree(*split), leaf
    n_nodes = max(2**rules.spec.max_depth // 4, 1)
    check_size(columns.layout.n_codes, rules.scale.size, n_nodes, columns.allowed.shape[1])
    if columns.bins.ndim == 3:
        split, leaf = native.grow_tree(columns, derivatives, active, rules)
        return Tree(*split), leaf

    def by(grow: Any) -> Any:
        def call(bins: Any, allowed: Any, derivatives: Derivatives, active: Any, rules: Rules) -> Any:
            return grow(Columns(bins, allowed, columns.layout), derivatives, active, rules)

        return call

    on_cpu = native.grow_tree if native.is_available() else grow_by_level
    arrays = columns.bins, columns.allowed, derivatives, active, rules
    split, leaf = by_platform(*arrays, cpu=by(on_cpu), default=by(grow_by_level))
    return Tree(*split), leaf


def arrange_bins(bins: Bins, n_rows: int) -> Array:
    """Add rows up to `n_rows` to concrete bins, and lay them out as they are read fastest: [f n] or groups."""
    host = np.asarray(bins)
    if native.is_preferred():
        return as_array(native.group_on_host(host, n_rows))
    return as_array(pad_axis(host, n_rows, axis=1))


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
            return child_of(node, route(bins, node, split, routing_table(split, layout), layout))
        slot = (2**level - 1).astype(node.dtype) + node
        return child_of(node, route(bins, slot, splits, routing_table(splits, layout), layout))

    start = zeros_varying_like(bins, (bins.shape[1],), jnp.int32)
    return jax.lax.fori_loop(0, tree_depth(tree, symmetric), descend, start)


def take_leaves(leaf_value: Float[Array, "leaves k"], leaf: Int[Array, "n *k"]) -> Float[Array, "n k"]:
    """Look up what a round adds to each row."""
    return leaf_value[leaf] if leaf.ndim == 1 else leaf_value[leaf, jnp.arange(leaf.shape[1])[None]]
