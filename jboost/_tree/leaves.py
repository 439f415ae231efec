"""How rows find their leaf in a tree, and what they are given there."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt32

from jboost._runtime.typing import Layout, zeros_varying_like
from jboost._split import Tree, routing_table
from jboost._tree.columns import Codes
from jboost._tree.levels import child_of, route


def tree_depth(tree: Tree, symmetric: bool) -> int:
    """Levels of a tree (or of stacked trees)."""
    n_slots = tree.feature.shape[-1]
    return n_slots if symmetric else n_slots.bit_length()


def leaf_index(tree: Tree, bins: Codes, layout: Layout, symmetric: bool) -> Int[Array, " n"]:
    """Find the leaf of every row, given the bin codes [f n]."""
    tree = dataclasses.replace(tree, categories_right=category_words(tree))

    def descend(level: Int[Array, ""], node: Int[Array, " n"]) -> Int[Array, " n"]:
        if symmetric:
            split = jax.tree.map(lambda field: jax.lax.dynamic_slice_in_dim(field, level, 1), tree)
            return child_of(node, route(bins, node, split, routing_table(split, layout), layout))
        slot = (2**level - 1).astype(node.dtype) + node
        return child_of(node, route(bins, slot, tree, routing_table(tree, layout), layout))

    start = zeros_varying_like(bins, (bins.shape[1],), jnp.int32)
    return jax.lax.fori_loop(0, tree_depth(tree, symmetric), descend, start)


def category_words(tree: Tree) -> UInt32[Array, "*trees s words"]:
    """Return the sets of categories, without words where there are none: a model holds no array without numbers."""
    none = jnp.zeros((*tree.feature.shape, 0), jnp.uint32)
    return none if tree.categories_right is None else tree.categories_right


def take_leaves(leaf_value: Float[Array, "leaves k"], leaf: Int[Array, "n *k"]) -> Float[Array, "n k"]:
    """Look up what a round adds to each row."""
    return leaf_value[leaf] if leaf.ndim == 1 else leaf_value[leaf, jnp.arange(leaf.shape[1])[None]]
