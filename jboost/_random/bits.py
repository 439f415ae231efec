"""Random bits of rows, and numbers in [0, 1) made of them."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from jboost._random import native
from jboost._runtime.library import by_platform

MANTISSA = 23  # bits of a float32


def random_bits(key: Array, n: int) -> UInt32[Array, " n"]:
    """Draw 32 bits for each row; row i's depend on the key and on i alone.

    Of JAX's two ways to draw by threefry only one is so, whichever is the default.

    Examples
    --------
    >>> import jax
    >>> from jboost._random import random_bits
    >>> key = jax.random.key(0)
    >>> bool((random_bits(key, 9)[:5] == random_bits(key, 5)).all())
    True
    """
    draws_alike = str(jax.random.key_impl(key)) == native.IMPLEMENTATION and native.is_available()
    plain = partial(bits_in_jax, n=n)
    return by_platform(key, cpu=partial(native.random_bits, n=n) if draws_alike else plain, default=plain)


def bits_in_jax(key: Array, n: int) -> UInt32[Array, " n"]:
    """Do so in plain JAX."""
    with jax.threefry_partitionable(True):
        return jax.random.bits(key, (n,), jnp.uint32)


def uniform(key: Array, n: int) -> Float[Array, " n"]:
    """Draw a number in [0, 1) for each row, as `jax.random.uniform` does."""
    if jnp.result_type(float) != jnp.float32:
        with jax.threefry_partitionable(True):
            return jax.random.uniform(key, (n,))
    between_1_and_2 = random_bits(key, n) >> (32 - MANTISSA) | jnp.float32(1).view(jnp.uint32)
    return jax.lax.bitcast_convert_type(between_1_and_2, jnp.float32) - 1
