"""The definition of a score in plain JAX: the oracle of the C++ twin, and what runs without it."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array, Float, Int, Integer

from jboost._runtime.typing import Layout
from jboost._tree import Tree, leaf_index, take_leaves


def leaf_of(layout: Layout, symmetric: bool, tree: Tree, bins: Integer[Array, "f n"]) -> Int[Array, "n *k"]:
    """Find each row's leaf in a round: [n], or [n k] where each output has its own tree."""
    if tree.feature.ndim == 1:
        return leaf_index(tree, bins, layout, symmetric)
    return jax.vmap(lambda one: leaf_index(one, bins, layout, symmetric), out_axes=1)(tree)


def sum_all_rounds(
    layout: Layout, symmetric: bool, trees: Tree, leaf_value: Any, bins: Any, score: Any
) -> Float[Array, "n k"]:
    """Add every round's leaf values to a score: a scan, and so differentiable both ways."""

    def add(score: Array, one: tuple[Tree, Array]) -> tuple[Array, None]:
        return score + take_leaves(one[1], leaf_of(layout, symmetric, one[0], bins)), None

    return jax.lax.scan(add, score, (trees, leaf_value))[0]


def sum_first_rounds(
    layout: Layout, symmetric: bool, trees: Tree, leaf_value: Any, bins: Any, score: Any, n_rounds: Any
) -> Float[Array, "n k"]:
    """Add the first rounds' leaf values; how many may be known only when the program runs."""

    def add(i: Any, score: Array) -> Array:
        tree = jax.tree.map(lambda array: array[i], trees)
        return score + take_leaves(leaf_value[i], leaf_of(layout, symmetric, tree, bins))

    return jax.lax.fori_loop(0, n_rounds, add, score)
