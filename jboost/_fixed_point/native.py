"""Fixed-point numbers, their sums and selection in C++, on a CPU; absent where the library was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, UInt

from jboost._runtime import library
from jboost._runtime.typing import type_varying_like, zeros_varying_like

SCALE = "jboost_find_scale"
SUM = "jboost_sum_by_group"
MOMENTS = "jboost_sum_moments"
COUNT = "jboost_count_by_group"
SELECT = "jboost_select"


def scale_available() -> bool:
    """Say whether scales can be found in C++ in this process."""
    return library.is_available(SCALE, _scale_is_right)


def sums_available() -> bool:
    """Say whether sums can be made in C++ in this process."""
    return library.is_available(SUM, _sum_is_right)


def moments_available() -> bool:
    """Say whether moments can be summed in C++ in this process."""
    return library.is_available(MOMENTS, _moments_are_right)


def counts_available() -> bool:
    """Say whether rows can be counted in C++ in this process."""
    return library.is_available(COUNT, _count_is_right)


def select_available() -> bool:
    """Say whether keys can be selected in C++ in this process."""
    return library.is_available(SELECT, _select_is_right)


def _scale_is_right() -> bool:
    """Take 1/4 and -1/2: their magnitudes sum to 3/4, so the factor is 2**30."""
    factor, count = jax.jit(find_scale)(jnp.array([[0.25], [-0.5]], jnp.float32))
    return [float(factor[0]), int(count[0])] == [2.0**30, 2]


def _sum_is_right() -> bool:
    """Sum 1/4 and -1/2 in one group of two."""
    values, group = jnp.array([[0.25], [-0.5]], jnp.float32), jnp.ones(2, jnp.int32)
    factor, count = jnp.full(1, 2.0**30, jnp.float32), jnp.full(1, 2, jnp.int32)
    sums = jax.jit(sum_by_group, static_argnums=4)(values, group, factor, count, 2)
    return np.ravel(sums).tolist() == [0.0, -0.25]


def _moments_are_right() -> bool:
    """Sum 1/4 and -1/2, and 1 and 1, of which one is counted, in one group of two."""
    g, h, group = (
        jnp.array([[0.25], [-0.5]], jnp.float32),
        jnp.ones((2, 1), jnp.float32),
        jnp.ones(2, jnp.int32),
    )
    factor, count = jnp.array([2.0**30, 2.0**29], jnp.float32), jnp.full(2, 2, jnp.int32)
    counted = jnp.array([True, False])
    found = jax.jit(moments_by_group, static_argnums=6)(g, h, counted, group, factor, count, 2)
    return [np.ravel(one).tolist() for one in found] == [[0.0, -0.25], [0.0, 2.0], [0, 1]]


def _count_is_right() -> bool:
    """Count two of three rows in the second group of two."""
    counted, group = jnp.array([True, False, True]), jnp.ones(3, jnp.int32)
    return jax.jit(count_by_group, static_argnums=2)(counted, group, 2).tolist() == [0, 2]


def _select_is_right() -> bool:
    """Take the second key of three, beside a group of one."""
    key, group = jnp.array([7, 9, 5, 6], jnp.uint32), jnp.array([0, 1, 0, 0], jnp.int32)
    rank = jnp.array([2, 1], jnp.int32)
    return jax.jit(select)(key, jnp.ones(4, bool), group, rank).tolist() == [6, 9]


def find_scale(values: Float[Array, "n c"]) -> tuple[Float[Array, " c"], Int32[Array, " c"]]:
    """Do what `jboost._fixed_point.find_scale` does on one device."""
    results = [
        type_varying_like(values, values.shape[1:], values.dtype),
        type_varying_like(values, values.shape[1:], jnp.int32),
    ]
    factor, count = jax.ffi.ffi_call(SCALE, results, vmap_method="expand_dims")(values)
    return factor, count


def sum_by_group(
    values: Float[Array, "n c"],
    group: Int[Array | np.ndarray, " n"] | None,
    factor: Float[Array, " c"],
    count: Int32[Array, " c"],
    n_groups: int,
) -> Float[Array, "groups c"]:
    """Do what `jboost._fixed_point.sums.sums_in_jax` does on one device."""
    group = zeros_varying_like(values, (0,), jnp.int32) if group is None else group
    result = type_varying_like(values, (n_groups, values.shape[1]), values.dtype)
    return jax.ffi.ffi_call(SUM, result, vmap_method="expand_dims")(values, group, factor, count)


def moments_by_group(
    g: Float[Array, "n 1"],
    h: Float[Array, "n 1"],
    counted: Bool[Array, " n"],
    group: Int[Array, " n"],
    factor: Float[Array, " 2"],
    count: Int32[Array, " 2"],
    n_groups: int,
) -> tuple[Float[Array, "groups 1"], Float[Array, "groups 1"], Int32[Array, " groups"]]:
    """Do what `jboost._fixed_point.sums.moments_in_jax` does on one device."""
    sums = type_varying_like(g, (n_groups, 1), g.dtype)
    results = [sums, sums, type_varying_like(g, (n_groups,), jnp.int32)]
    call = jax.ffi.ffi_call(MOMENTS, results, vmap_method="expand_dims")
    of_g, of_h, n_counted = call(g, h, counted, group, factor, count)
    return of_g, of_h, n_counted


def count_by_group(
    counted: Bool[Array, " n"], group: Int[Array, " n"], n_groups: int
) -> Int32[Array, " groups"]:
    """Do what `jboost._fixed_point.sums.counts_in_jax` does."""
    result = type_varying_like(counted, (n_groups,), jnp.int32)
    return jax.ffi.ffi_call(COUNT, result, vmap_method="expand_dims")(counted, group)


def select(
    key: UInt[Array, " n"],
    mass: Bool[Array, " n"] | Int[Array, " n"],
    group: Int32[Array, " n"] | None,
    rank: Int[Array, " g"],
) -> UInt[Array, " g"]:
    """Do what `jboost._fixed_point.quantile.select` does on one device."""
    group = zeros_varying_like(key, (0,), jnp.int32) if group is None else group
    result = type_varying_like(key, rank.shape, key.dtype)
    return jax.ffi.ffi_call(SELECT, result, vmap_method="expand_dims")(key, mass, group, rank)
