"""A depthwise tree from sorted columns, in C++ on a CPU: what `levels.py` grows, without a cell for each code.

Each column is kept as its rows in the order of their codes. A level takes one pass over them, however many codes there
are: the way to try every distinct value of many (Chen and Guestrin 2016, algorithm 1).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt, UInt32

from jboost._runtime import library
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import Layout, empty_for_device, type_varying_like
from jboost._spec import Hyper, Spec
from jboost._split import Rules, Tree
from jboost._tree.columns import Columns, GradientPairs

TARGET = "jboost_grow_sorted"
MAX_DEPTH = 24  # of the kernel
NUMBERS = ("reg_lambda", "reg_alpha", "gamma", "min_child_weight")  # in the order of the kernel


def is_available() -> bool:
    """Say whether growth from sorted columns can be used in this process."""
    return library.is_available(TARGET, _is_right)


def _is_right() -> bool:
    """Split four rows with gradients -1, 1, -1, 1 and Hessians 1: the gain is 2."""
    hyper = jax.tree.map(jnp.float32, Hyper(reg_lambda=0.0))
    rules = Rules(hyper, jnp.ones(2, jnp.float32), Spec(max_depth=1, grow_policy="depthwise"))
    derivatives = GradientPairs(jnp.array([[-1], [1], [-1], [1]], jnp.float32), jnp.ones((4, 1), jnp.float32))
    rows = sort_columns(jnp.array([[1, 7, 1, 7]], jnp.uint8))
    columns = Columns(rows, jnp.ones((1, 1), bool), Layout(9, False))
    split, leaf = jax.jit(lambda: grow_sorted(columns, derivatives, jnp.ones(4, bool), rules))()
    return [*map(float, (split.gain[0], split.threshold[0], *leaf))] == [2, 1, 0, 1, 0, 1]


def sort_columns(bins: UInt[Array, "f n"]) -> UInt32[Array, "f n 2"]:
    """Return the rows of each column by rising code, and their codes."""
    order = jnp.argsort(bins, axis=1, stable=True)
    codes = jnp.take_along_axis(bins, order, axis=1)
    return jnp.stack([order.astype(jnp.uint32), codes.astype(jnp.uint32)], axis=-1)


def sort_on_host(bins: np.ndarray, n_rows: int) -> UInt32[np.ndarray, "f n 2"]:
    """Do so on the host, without a compilation for each new shape, and add rows of code 0 up to `n_rows`."""
    padded = pad_axis(np.asarray(bins), n_rows, axis=1)
    columns = empty_for_device((*padded.shape, 2), np.uint32)
    for codes, column in zip(padded, columns, strict=True):
        order = np.argsort(codes, kind="stable")
        column[:, 0], column[:, 1] = order, codes[order]
    return columns


def grow_sorted(
    columns: Columns, derivatives: GradientPairs, active: Bool[Array, " n"], rules: Rules
) -> tuple[Tree, Int[Array, " n"]]:
    """Do what `grow_by_level` does for a depthwise tree without categories; under vmap a call takes the batch."""
    spec, layout, dtype = rules.spec, columns.layout, rules.factor.dtype
    slots = (spec.n_splits,)
    shapes = [
        (slots, jnp.int32),
        (slots, jnp.int32),
        (slots, jnp.bool_),
        (slots, dtype),
        (active.shape, jnp.int32),
    ]
    # The zeros themselves are never made.
    results = [type_varying_like(active, shape, dtype) for shape, dtype in shapes]
    feature, threshold, missing_right, gain, leaf = jax.ffi.ffi_call(
        TARGET, results, vmap_method="expand_dims"
    )(
        columns.bins,
        derivatives.g,
        derivatives.h,
        active,
        columns.allowed,
        rules.unit,
        jnp.stack([jnp.asarray(getattr(rules.hyper, name), dtype) for name in NUMBERS]),
        n_codes=np.int32(layout.n_codes),
        min_child_samples=np.int32(spec.min_child_samples if spec.counts_rows else 0),
        has_missing=np.bool_(layout.has_missing),
    )
    words = jnp.zeros((spec.n_splits, 0), jnp.uint32)
    return Tree(feature, threshold, missing_right, words, gain), leaf
