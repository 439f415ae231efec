"""The histogram of `xla.py` in C++, called by XLA on a CPU; absent where it was not built."""

from __future__ import annotations

import jax
import numpy as np
from jaxtyping import Array, Bool, Int32, UInt, UInt32

from jboost import _native
from jboost._histogram.xla import zeros_varying_like

TARGET = "jboost_histogram"
SIBLINGS = "jboost_siblings"


def is_available() -> bool:
    """Say whether the C++ histogram can be used in this process."""
    return _native.is_available(TARGET, is_right) and _native.is_available(SIBLINGS, siblings_are_right)


def is_right() -> bool:
    """Build a histogram of four rows."""
    bins = np.array([[0, 1, 1, 1]], np.uint8)
    slot = np.array([0, 1, 1, 2], np.uint32)
    values = np.array([[1, 2], [-3, 4], [5, -6], [7, 8]], np.int32)
    expected = np.array([[[1, 0], [2, 0]], [[0, 2], [0, -2]]], np.int32)[..., None]
    found = jax.jit(build_histogram, static_argnums=(3, 4))(bins, slot, values, 2, 2)
    return np.array_equal(found, expected)


def siblings_are_right() -> bool:
    """Subtract one child of each of two nodes, the first on the left."""
    parent = np.array([5, 7], np.int32).reshape(1, 1, 2, 1)
    built = np.array([2, -1], np.int32).reshape(1, 1, 2, 1)
    found = jax.jit(with_siblings)(parent, built, np.array([False, True]))
    return np.array_equal(np.ravel(found), [2, 3, 8, -1])


def with_siblings(
    parent: Int32[Array, "b c l f"], built: Int32[Array, "b c l f"], built_right: Bool[Array, " l"]
) -> Int32[Array, "b c 2*l f"]:
    """Call the C++ version, which also keeps XLA from computing the children anew for each of their readers."""
    b, c, n_nodes, f = built.shape
    result = jax.typeof(zeros_varying_like(built, (b, c, 2 * n_nodes, f)))
    return jax.ffi.ffi_call(SIBLINGS, result, vmap_method="broadcast_all")(parent, built, built_right)


def build_histogram(
    bins: UInt[Array, "f n"],
    slot: UInt32[Array, " n"],
    values: Int32[Array, "n c"],
    n_slots: int,
    n_codes: int,
) -> Int32[Array, "b c l f"]:
    """Call the C++ kernel. Under vmap it takes the whole batch, unbatched arguments once."""
    shape = (n_codes, values.shape[1], n_slots, bins.shape[0])
    result = jax.typeof(zeros_varying_like(slot, shape))  # the zeros themselves are never made
    return jax.ffi.ffi_call(TARGET, result, vmap_method="expand_dims")(bins, slot, values)
