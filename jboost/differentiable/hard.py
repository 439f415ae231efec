"""Scores of a fitted model as a function of its numbers, where each row's leaves are known or found anew."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt

from jboost._model.ensemble import Ensemble, edges_layout
from jboost._model.scoring import leaf_of
from jboost._runtime.programs import program
from jboost._runtime.typing import Layout, as_array
from jboost._tree import Tree, take_leaves

# Bytes that the leaves of all rows in all trees may take; beyond, each step finds them again.
MOST_KNOWN = 2**30


def inputs_of(model: Ensemble, bins: Any) -> tuple[Any, Any]:
    """Return a function of (model, inputs) that scores rows, and what it reads of these: the leaves, or the bins."""
    dtype = np.uint8 if model.leaf_value.shape[1] <= 256 else np.uint16
    of_row = model.trees.feature[..., 0].size * np.dtype(dtype).itemsize
    if of_row * bins.shape[1] > MOST_KNOWN:
        return score_of_bins, as_array(bins)
    layout = edges_layout(model.edges)
    return score_of_leaves, _leaves(layout, model.symmetric, np.dtype(dtype), model.trees, as_array(bins))


@program(static_argnums=(0, 1, 2))
def _leaves(
    layout: Layout, symmetric: bool, dtype: np.dtype, trees: Tree, bins: Array
) -> UInt[Array, "t *k n"]:
    return jax.lax.map(lambda tree: leaf_of(layout, symmetric, tree, bins).T.astype(dtype), trees)


def score_of_leaves(model: Ensemble, leaf: UInt[Array, "t *k n"]) -> Float[Array, "n k"]:
    """Sum what the leaves of each row add."""

    @jax.checkpoint  # or the numbers of the leaves would be kept in four bytes each
    def add(score: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
        value, weight, leaf = one
        return score + take_leaves(value * weight, leaf.T.astype(jnp.int32)), None

    return _summed(model, add, leaf)


def score_of_bins(model: Ensemble, bins: UInt[Array, "f n"]) -> Float[Array, "n k"]:
    """Find the leaves of each row, and sum what they add."""
    layout = edges_layout(model.edges)

    @jax.checkpoint
    def add(score: Array, one: tuple[Array, Array, Tree]) -> tuple[Array, None]:
        value, weight, tree = one
        return score + take_leaves(value * weight, leaf_of(layout, model.symmetric, tree, bins)), None

    return _summed(model, add, model.trees, bins.shape[1])


def _summed(model: Ensemble, add: Any, of_trees: Any, n_rows: int | None = None) -> Float[Array, "n k"]:
    n_rows = of_trees.shape[-1] if n_rows is None else n_rows
    start = jnp.broadcast_to(model.base[None], (n_rows, model.n_outputs))
    weight = model.tree_weight.astype(model.leaf_value.dtype)
    return jax.lax.scan(add, start, (model.leaf_value, weight, of_trees))[0]
