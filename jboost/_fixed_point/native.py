"""Fixed-point numbers and their sums in C++, on a CPU; absent where the library was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from jboost import _native
from jboost._typing import zeros_varying_like

QUANTISE = "jboost_quantise"
SUM = "jboost_sum_by_group"


def quantise_available() -> bool:
    """Say whether numbers can be rounded in C++ in this process."""
    return _native.is_available(QUANTISE, _quantise_is_right)


def sums_available() -> bool:
    """Say whether sums can be made in C++ in this process."""
    return _native.is_available(SUM, _sum_is_right)


def _quantise_is_right() -> bool:
    """Round 1/4 and -1/2: their magnitudes sum to 3/4, so the scale is 2**30."""
    integers, scale = jax.jit(quantise)(jnp.array([[0.25], [-0.5]], jnp.float32))
    return [*map(float, (integers[0, 0], integers[1, 0], scale[0]))] == [2.0**28, -(2.0**29), 2.0**30]


def _sum_is_right() -> bool:
    """Sum 1/4 and -1/2 in one group of two; limbs of two rows have 30 bits."""
    values, group = jnp.array([[0.25], [-0.5]], jnp.float32), jnp.ones(2, jnp.int32)
    sums, scale, bits = jax.jit(sum_by_group, static_argnums=(2, 3))(values, group, 2, 2)
    found = [*np.ravel(sums).tolist(), float(scale[0]), int(bits[0])]
    return found == [0, 0, -(2**28), 0, 2.0**30, 30]


def quantise(values: Float[Array, "n c"]) -> tuple[Int32[Array, "n c"], Float[Array, " c"]]:
    """Do what `jboost._fixed_point.quantise` does on one device."""
    results = [_like(values, values.shape, jnp.int32), _like(values, values.shape[1:], values.dtype)]
    integers, scale = jax.ffi.ffi_call(QUANTISE, results, vmap_method="expand_dims")(values)
    return integers, scale


def sum_by_group(
    values: Float[Array, "n c"], group: Int[Array, " n"] | None, n_groups: int, n_limbs: int
) -> tuple[Int32[Array, "groups c limbs"], Float[Array, " c"], Int32[Array, " c"]]:
    """Do what `jboost._fixed_point.sums.limb_sums` does on one device."""
    c = values.shape[1]
    group = zeros_varying_like(values, (0,), jnp.int32) if group is None else group
    results = [
        _like(values, (n_groups, c, n_limbs), jnp.int32),
        _like(values, (c,), values.dtype),
        _like(values, (c,), jnp.int32),
    ]
    sums, scale, bits = jax.ffi.ffi_call(SUM, results, vmap_method="expand_dims")(values, group)
    return sums, scale, bits


def _like(array, shape, dtype):
    return jax.typeof(zeros_varying_like(array, shape, dtype))  # the zeros themselves are never made
