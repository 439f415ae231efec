"""Which leaves a row can reach when some features are left open, and with what weight.

The score of a tree at given values of some features, averaged over the others, is a sum over its leaves: the value of
a leaf, times the weight of the rows that its splits on the *other* features let through, if its splits on the *given*
features let the grid point through. So rows and grid points pass each tree once, whatever the number of pairs.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

from jboost._model.cover import node_cover
from jboost._model.ensemble import Ensemble, edges_layout
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.programs import program
from jboost._runtime.typing import MISSING_BIN, Layout, is_traced
from jboost._split import routing_table
from jboost._tree import Tree, category_words, tree_depth
from jboost.explain.subject import is_split

FEW_TREES = 8
CELLS = 2**18  # numbers of all rows that are held at once: what stays in a processor's cache


@dataclasses.dataclass(frozen=True, eq=False)
class Forest:
    """Trees of one output or several, one after the other.

    Attributes
    ----------
    trees : Tree
        Splits [t s]; a round with a tree for each of k outputs is k trees.
    value : float [t leaves k]
        What each leaf adds to the scores.
    count : float [t leaves]
        Weight of the training rows in each leaf.
    is_split : bool [t s]
        Which slots hold a split.
    layout : Layout
        What is known of the columns.
    symmetric : bool
        Whether the nodes of a level share one split.
    """

    trees: Tree
    value: Any
    count: Any
    is_split: Any
    layout: Layout
    symmetric: bool

    @classmethod
    def of(cls, model: Ensemble) -> Forest:
        """Line the trees of a model up; those of a traced one as they are, others padded to few sizes."""
        xp: Any = jnp if is_traced(model) else np
        weight = xp.asarray(model.tree_weight, model.leaf_value.dtype)[:, None, None]
        value, count = xp.asarray(model.leaf_value) * weight, xp.asarray(model.leaf_count)
        trees, splits = jax.tree.map(xp.asarray, model.trees), xp.asarray(is_split(model))
        if model.trees.feature.ndim == 3:
            k = model.n_outputs
            count = xp.broadcast_to(count, value.shape)
            value = xp.moveaxis(value, 2, 1)[..., None] * xp.eye(k, dtype=value.dtype)[None, :, None]
            parts = trees, splits, value, xp.moveaxis(count, 2, 1)
            trees, splits, value, count = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), parts)
        else:
            count = count[..., 0]
        if not is_traced(model):
            pad = partial(pad_axis, size=_few_sizes(len(value)))
            trees, splits, value, count = jax.tree.map(pad, (trees, splits, value, count))
        return cls(trees, value, count, splits, edges_layout(model.edges), model.symmetric)

    def splits_on(self, features: Any) -> Any:
        """Say which slots split on one of the features: bool [t s]."""
        chosen = self.trees.feature[..., None] == np.asarray(features, np.int32)[None, None]
        return chosen.any(axis=-1) & self.is_split

    def weigh_rows(self, is_open: Any, bins: Any, weight: Float[np.ndarray, " n"]) -> Float[Any, "t leaves"]:
        """Sum the weights of the rows that could reach each leaf, were the open splits open both ways."""
        chunks, largest = self._chunks(bins), weight.max()
        unit = pad_axis(weight / largest, chunks.shape[0] * chunks.shape[2]).astype(self.value.dtype)
        arrays = self.trees, is_open, chunks, unit.reshape(chunks.shape[0], -1), largest.astype(unit.dtype)
        return _weigh_rows(self.layout, self.symmetric, *arrays)

    def weigh_by_cover(self, is_open: Any) -> Float[Any, "t leaves"]:
        """Return the share of the training rows that each split sends each way, multiplied along the paths."""
        return _weigh_by_cover(self.symmetric, is_open, self.is_split, self.count)

    def sum_at(self, is_open: Any, bins: Any, weight: Any) -> Float[Any, "m k"]:
        """Sum what the leaves hold, times their weights, over those that each of m rows could reach."""
        n_rows, chunks = bins.shape[1], self._chunks(bins)
        held = self.value * weight[..., None]
        found = _sum_at(self.layout, self.symmetric, self.trees, is_open, chunks, held)
        found = found if is_traced(found) else np.asarray(found)  # where a slice is no program
        return found.reshape(-1, found.shape[-1])[:n_rows]

    def _chunks(self, bins: Any) -> Integer[Any, "m f r"]:
        """Cut rows into pieces small enough, padded to few sizes."""
        xp: Any = jnp if is_traced(bins) else np
        n_rows, n_features = bins.shape[1], bins.shape[0]
        held = n_features if self.symmetric else self.value.shape[1]  # numbers for each row
        size = min(bucket(n_rows), max(CELLS // held, 64))
        length = -(-bucket(n_rows) // size) * size
        padded = xp.pad(xp.asarray(bins), ((0, 0), (0, length - n_rows)))
        return xp.moveaxis(padded.reshape(n_features, -1, size), 1, 0)


def _few_sizes(n: int) -> int:
    return (
        bucket(n) if n > FEW_TREES else FEW_TREES
    )  # as a program costs more to compile than some trees to pass


# ---------------------------------------------------------------- programs


def _weights_of(
    layout: Layout,
    symmetric: bool,
    tree: Tree,
    is_open: Bool[Array, " s"],
    bins: Integer[Array, "f r"],
    weight: Float[Array, " r"],
) -> Float[Array, " leaves"]:
    """Sum the weights of the rows that could reach each leaf."""
    if not symmetric:
        return _follow(layout, tree, is_open, bins, weight).sum(axis=1)
    leaf, mask = _leaves_and_mask(is_open)
    by_key = jnp.zeros(leaf.size, weight.dtype).at[_key(layout, tree, is_open, bins)].add(weight)
    return by_key[leaf & mask]


def _values_of(
    layout: Layout,
    symmetric: bool,
    tree: Tree,
    is_open: Bool[Array, " s"],
    bins: Integer[Array, "f r"],
    held: Float[Array, "leaves k"],
) -> Float[Array, "r k"]:
    """Sum what is held by the leaves that each row could reach."""
    if not symmetric:
        reached = _follow(layout, tree, is_open, bins, jnp.ones(bins.shape[1], held.dtype))
        return jnp.einsum("lr,lk->rk", reached, held, precision="highest")
    leaf, mask = _leaves_and_mask(is_open)
    by_key = jnp.zeros_like(held).at[leaf & mask].add(held)
    return by_key[_key(layout, tree, is_open, bins)]


def _leaves_and_mask(is_open: Bool[Array, " d"]) -> tuple[Int[Array, " leaves"], Int[Array, ""]]:
    """Number the leaves of a symmetric tree, and give the bits of the levels that are not open."""
    bits = jnp.asarray([1 << level for level in reversed(range(is_open.size))], jnp.int32)
    return jnp.arange(2**is_open.size, dtype=jnp.int32), jnp.where(is_open, 0, bits).sum(dtype=jnp.int32)


def _key(
    layout: Layout, tree: Tree, is_open: Bool[Array, " d"], bins: Integer[Array, "f r"]
) -> Int[Array, " r"]:
    """Return the least leaf of a symmetric tree that each row could reach."""
    bits = jnp.asarray([1 << level for level in reversed(range(is_open.size))], jnp.int32)
    right = _goes_right(layout, tree, bins) & ~is_open[:, None]
    return jnp.where(right, bits[:, None], 0).sum(axis=0, dtype=jnp.int32)


def _follow(
    layout: Layout,
    tree: Tree,
    is_open: Bool[Array, " s"],
    bins: Integer[Array, "f r"],
    start: Float[Array, " r"],
) -> Float[Array, "leaves r"]:
    """Send what each row starts with to every leaf of a depthwise tree that it could reach."""
    right = _goes_right(layout, tree, bins)
    to_right, to_left = right | is_open[:, None], ~right | is_open[:, None]
    found = start[None]
    for level in range(tree_depth(tree, symmetric=False)):
        slots = slice(2**level - 1, 2 ** (level + 1) - 1)
        sides = [jnp.where(way[slots], found, 0) for way in (to_left, to_right)]
        found = jnp.stack(sides, axis=1).reshape(-1, bins.shape[1])  # node l has the children 2 l and 2 l + 1
    return found


def _goes_right(layout: Layout, tree: Tree, bins: Integer[Array, "f r"]) -> Bool[Array, "s r"]:
    codes = bins[tree.feature]
    if layout.categorical:
        table = routing_table(dataclasses.replace(tree, categories_right=category_words(tree)), layout)
        return jnp.take_along_axis(table, codes.astype(jnp.int32), axis=1, mode="promise_in_bounds")
    above = codes.astype(jnp.int32) > tree.threshold[:, None]
    return jnp.where(codes == MISSING_BIN, tree.missing_right[:, None], above)


@program(static_argnums=(0, 1))
def _weigh_rows(
    layout: Layout, symmetric: bool, trees: Tree, is_open: Array, chunks: Array, weight: Array, unit: Array
) -> Float[Array, "t leaves"]:
    """Sum weights in units of the largest: those of equal rows are counts, which floats hold exactly."""

    def add(total: Array, chunk: tuple[Array, Array]) -> tuple[Array, None]:
        bins, start = chunk

        def of_tree(one: tuple[Tree, Array]) -> Float[Array, " leaves"]:
            return _weights_of(layout, symmetric, *one, bins, start)

        return total + jax.lax.map(of_tree, (trees, is_open)), None

    n_leaves = 2 ** tree_depth(trees, symmetric)
    start = jnp.zeros((is_open.shape[0], n_leaves), weight.dtype)
    return jax.lax.scan(add, start, (chunks, weight))[0] * unit


@program(static_argnums=(0, 1))
def _sum_at(
    layout: Layout, symmetric: bool, trees: Tree, is_open: Array, chunks: Array, held: Array
) -> Float[Array, "m r k"]:
    def at(bins: Array) -> Float[Array, "r k"]:
        def add(total: Array, one: tuple[Tree, Array, Array]) -> tuple[Array, None]:
            return total + _values_of(layout, symmetric, *one[:2], bins, one[2]), None

        total = jnp.zeros((bins.shape[1], held.shape[-1]), held.dtype)
        return jax.lax.scan(add, total, (trees, is_open, held))[0]

    return jax.lax.map(at, chunks)


@program(static_argnums=(0,))
def _weigh_by_cover(symmetric: bool, is_open: Array, splits: Array, count: Array) -> Float[Array, "t leaves"]:
    cover = node_cover(count[..., None])[..., 0]
    n_trees, n_leaves = count.shape
    weight = jnp.ones((n_trees, 1), count.dtype)
    for level in range(n_leaves.bit_length() - 1):
        first, n_nodes = 2**level - 1, 2**level
        slots = slice(level, level + 1) if symmetric else slice(first, first + n_nodes)
        own = cover[:, first : first + n_nodes, None]
        below = cover[:, 2 * first + 1 : 2 * first + 1 + 2 * n_nodes].reshape(n_trees, n_nodes, 2)
        share = jnp.where(own > 0, below / jnp.where(own > 0, own, 1), 0.5)  # no row came: no side is known
        share = jnp.where(splits[:, slots, None], share, jnp.array([1, 0], share.dtype)[None, None])
        share = jnp.where(is_open[:, slots, None], 1, share)
        weight = (weight[..., None] * share).reshape(n_trees, 2 * n_nodes)
    return weight
