"""Random bits in C++, on a CPU; absent where the library was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, UInt32

from jboost._runtime import library
from jboost._runtime.typing import type_varying_like

TARGET = "jboost_random_bits"
IMPLEMENTATION = "threefry2x32"  # of the keys that the library knows


def is_available() -> bool:
    """Say whether bits can be drawn in C++ in this process."""
    return library.is_available(TARGET, _is_right)


def _is_right() -> bool:
    """Encrypt zeros with a key of zeros, which gives 6b200159 and 99ba4efe (Salmon et al. 2011, known answers)."""
    key = jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32), impl=IMPLEMENTATION)
    return int(jax.jit(random_bits, static_argnums=1)(key, 1)[0]) == 0x6B200159 ^ 0x99BA4EFE


def random_bits(key: Array, n: int) -> UInt32[Array, " n"]:
    """Do what `jboost._random.random_bits` does."""
    words = jax.random.key_data(key)
    result = type_varying_like(words, (n,), jnp.uint32)
    return jax.ffi.ffi_call(TARGET, result, vmap_method="expand_dims")(words)
