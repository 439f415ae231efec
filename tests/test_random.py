"""Random bits in C++ are those of JAX, whatever the key and whatever JAX's settings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost._random import native, random_bits, uniform
from jboost._random.bits import bits_in_jax


def test_bits_are_those_of_the_definition():
    native_library.require(native.is_available)
    keys = jax.random.split(jax.random.key(5), 6).reshape(2, 3)
    found = jax.jit(jax.vmap(jax.vmap(lambda key: native.random_bits(key, 40_000))))(keys)
    np.testing.assert_array_equal(found[1, 2], bits_in_jax(keys[1, 2], 40_000))
    np.testing.assert_array_equal(found[0, 1, :7], jax.jit(random_bits, static_argnums=1)(keys[0, 1], 7))


@pytest.mark.parametrize("kind", ["threefry2x32", "rbg"])
def test_every_kind_of_key_draws_as_jax_does(kind):
    key = jax.random.key(3, impl=kind)
    with jax.threefry_partitionable(True):
        expected = jax.random.bits(key, (5,), jnp.uint32), jax.random.uniform(key, (5,))
    np.testing.assert_array_equal(random_bits(key, 5), expected[0])
    np.testing.assert_array_equal(uniform(key, 5), expected[1])


def test_numbers_of_float64_have_all_their_bits(x64):
    found = uniform(jax.random.PRNGKey(0), 5)
    assert found.dtype == jnp.float64
    assert (found.astype(jnp.float32) != found).any()
