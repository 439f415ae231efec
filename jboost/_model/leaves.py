"""In which leaf of every tree a row ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Int

from jboost._bins import read_bins
from jboost._model.ensemble import Ensemble, edges_layout
from jboost._model.scoring import leaf_of
from jboost._runtime.caller import moves_arrays
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.typing import Layout
from jboost._tree import Tree


@moves_arrays
def leaf_numbers(model: Ensemble, X: Any) -> Int[np.ndarray, "n t *k"]:
    """Number the leaf of each row in each round, and of each output where every output has its own tree.

    Rows and rounds are padded, so that other numbers of them reuse the compiled program.
    """
    bins, n_trees = np.asarray(read_bins(model.edges, X)), model.n_trees
    padded = pad_axis(bins, bucket(bins.shape[1]), axis=1)
    trees = jax.tree.map(lambda array: pad_axis(np.asarray(array), bucket(n_trees)), model.trees)
    leaves = np.asarray(_leaves_of_rounds(edges_layout(model.edges), model.symmetric, trees, padded))
    return np.ascontiguousarray(np.moveaxis(leaves[:n_trees, : bins.shape[1]], 0, 1))


@partial(jax.jit, static_argnums=(0, 1))
def _leaves_of_rounds(layout: Layout, symmetric: bool, trees: Tree, bins: Array) -> Int[Array, "t n *k"]:
    return jax.lax.map(lambda tree: leaf_of(layout, symmetric, tree, bins), trees)
