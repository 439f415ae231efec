"""The scores of `xla.py` in C++, called by XLA on a CPU; absent where it was not built."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._runtime import library
from jboost._runtime.typing import Layout, varying_alike
from jboost._tree import Tree, category_words

TARGET = "jboost_score"


def is_available() -> bool:
    """Say whether the C++ scores can be used in this process."""
    return library.is_available(TARGET, is_right)


def is_right() -> bool:
    """Score three rows by two symmetric trees of depth one: 1 if missing or above code 2, then 10 if above 1."""
    splits: tuple[Any, ...] = (
        np.array([[0], [1]], np.int32),  # feature
        np.array([[2], [1]], np.int32),  # threshold
        np.array([[True], [False]]),  # missing_right
        np.zeros((2, 1, 0), np.uint32),  # categories_right
        np.zeros((2, 1), np.float32),  # gain
    )
    leaf_value = np.array([[[0], [1]], [[0], [10]]], np.float32)
    bins = np.array([[0, 2, 3], [1, 2, 0]], np.uint8)
    start, layout = np.full((3, 1), 0.5, np.float32), Layout(16, True)
    arrays = (Tree(*splits), leaf_value, bins, start, 2)
    found = jax.jit(sum_rounds, static_argnums=(0, 1))(layout, True, *arrays)
    return np.ravel(found).tolist() == [1.5, 10.5, 1.5]


def fits(trees: Tree, leaf_value: Any, bins: Any, score: Any) -> bool:
    """Say whether the C++ version is made for arrays of these types."""
    known = bins.dtype in (jnp.uint8, jnp.uint16) and score.dtype in (jnp.float32, jnp.float64)
    return known and leaf_value.dtype == score.dtype and trees.feature.size > 0


def sum_rounds(
    layout: Layout, symmetric: bool, trees: Tree, leaf_value: Any, bins: Any, score: Any, n_rounds: Any
) -> Float[Array, "n k"]:
    """Call the C++ version. Under vmap it takes the whole batch, unbatched arguments once."""
    trees = dataclasses.replace(trees, categories_right=category_words(trees))
    if trees.feature.ndim == 2:  # one tree for all outputs
        trees = jax.tree.map(lambda field: field[:, None], trees)
    is_categorical = np.zeros(bins.shape[0], bool)
    is_categorical[list(layout.categorical)] = True
    arrays = varying_alike(
        bins,
        trees.feature.astype(jnp.int32),
        trees.threshold.astype(jnp.int32),
        trees.missing_right,
        trees.categories_right,
        is_categorical,
        leaf_value,
        score,
        jnp.asarray(n_rounds, jnp.int32),
    )
    call = jax.ffi.ffi_call(TARGET, jax.typeof(arrays[-2]), vmap_method="expand_dims")
    # With categories, XLA's version looks every code up in a table in which missing values have their side.
    has_missing = layout.has_missing or bool(layout.categorical)
    return call(*arrays, symmetric=np.bool_(symmetric), has_missing=np.bool_(has_missing))
