"""The histogram of `xla.py` in C++, called by XLA on a CPU; absent where it was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, UInt, UInt32

from jboost._runtime import library
from jboost._runtime.typing import type_varying_like

TARGET = "jboost_histogram"


def is_available() -> bool:
    """Say whether the C++ histogram can be used in this process."""
    return library.is_available(TARGET, is_right)


def is_right() -> bool:
    """Build a histogram of four rows."""
    bins = np.array([[0, 1, 1, 1]], np.uint8)
    slot = np.array([0, 1, 1, 2], np.uint32)
    values = np.array([[1, 2], [-3, 4], [5, -6], [7, 8]], np.int32)
    expected = np.array([[[1, 0], [2, 0]], [[0, 2], [0, -2]]], np.int32)[..., None]
    found = jax.jit(build_histogram, static_argnums=(3, 4))(bins, slot, values, 2, 2)
    return np.array_equal(found, expected)


def build_histogram(
    bins: UInt[Array, "f n"],
    slot: UInt32[Array, " n"],
    values: Int32[Array, "n c"],
    n_slots: int,
    n_codes: int,
) -> Int32[Array, "b c l f"]:
    """Call the C++ kernel. Under vmap it takes the whole batch, unbatched arguments once."""
    shape = (n_codes, values.shape[1], n_slots, bins.shape[0])
    result = type_varying_like(slot, shape, jnp.int32)
    return jax.ffi.ffi_call(TARGET, result, vmap_method="expand_dims")(bins, slot, values)
