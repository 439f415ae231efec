"""Weighted quantiles as JAX code, of a whole sample and of each group of rows.

They are selected digit by digit from histograms of the order-preserving bits of the values (a radix
selection): a few passes over the rows instead of a sort. The histograms are integers, so the result depends
neither on the order of the rows nor on how they are spread over devices.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Int32, UInt

from jboost._fixed_point import native
from jboost._runtime.library import by_platform
from jboost._runtime.rules import within_its_rule
from jboost._runtime.typing import Reduce, over_devices

DIGIT_BITS = 8
N_DIGITS = 1 << DIGIT_BITS


def weighted_quantile(
    values: Float[Array, " n"], weight: Float[Array, " n"], level: ArrayLike, reduce: Reduce | None = None
) -> Float[Array, ""]:
    """Return the weighted quantile of a sample.

    It is the smallest v whose cumulative weight reaches level * total, or the midpoint of v and the next
    value when it is hit exactly: definition 2 of the reference, in NumPy
    ``quantile(..., method="averaged_inverted_cdf")``.

    Parameters
    ----------
    values : [n], float32 or float64
    weight : [n]
        Non-negative. Rows of weight 0, or below 2^-31 of the total (2^-63 in float64), do not count, whatever
        their value.
    level : float
        Between 0 and 1.
    reduce : callable, optional
        Sums a partial result over devices; None where one has all rows.

    Returns
    -------
    [], 0 when no row has weight. Its derivative by `values` is that of the selected ones, by `weight` zero.

    References
    ----------
    Hyndman and Fan (1996), "Sample Quantiles in Statistical Packages", The American Statistician 50(4).
    """
    return grouped_quantile(values, weight, jnp.zeros(jnp.shape(values), jnp.int32), 1, level, reduce)[0]


@partial(jax.custom_jvp, nondiff_argnums=(3, 5))
def grouped_quantile(
    values: Float[Array, " n"],
    weight: Float[Array, " n"],
    group: Int[Array, " n"],
    n_groups: int,
    level: ArrayLike,
    reduce: Reduce | None = None,
) -> Float[Array, " n_groups"]:
    """Return the weighted quantile of the rows of each group; 0 for an empty one.

    `weighted_quantile` defines it. Rows with a group outside 0 .. n_groups - 1 are ignored.
    """
    lower, upper, _ = _bounds(values, weight, group, n_groups, level, reduce)
    return lower / 2 + upper / 2


@grouped_quantile.defjvp
def _grouped_quantile_jvp(n_groups, reduce, primals, tangents):
    values, weight, group, level = primals
    lower, upper, mass = _bounds(values, weight, group, n_groups, level, reduce)
    inside = jnp.clip(group, 0, n_groups - 1)

    def tangent_of(selected: Array) -> Array:
        share = jnp.where((mass > 0) & (values == selected[inside]), mass.astype(values.dtype), 0)
        total = over_devices(reduce, jax.ops.segment_sum(share, inside, n_groups))
        share = share / jnp.maximum(total, 1)[inside]
        return over_devices(
            reduce, jax.ops.segment_sum(jnp.where(share > 0, share * tangents[0], 0), inside, n_groups)
        )

    def again(values: Array, weight: Array, group: Array, level: ArrayLike) -> Array:
        return grouped_quantile(values, weight, group, n_groups, level, reduce)

    return within_its_rule(again, *primals), tangent_of(lower) / 2 + tangent_of(upper) / 2


def _bounds(
    values: Array, weight: Array, group: Array, n_groups: int, level: ArrayLike, reduce: Reduce | None
) -> tuple[Array, Array, Array]:
    """Return the first value of each group that reaches the level, the first beyond, and the rows' mass."""
    mass = jnp.where((group >= 0) & (group < n_groups), fixed_point(weight, reduce), 0)
    group = jnp.clip(group, 0, n_groups - 1)
    total = over_devices(reduce, jnp.zeros(n_groups, mass.dtype).at[group].add(mass))

    target = level * total.astype(values.dtype)
    slack = jnp.ceil(4 * jnp.finfo(values.dtype).eps * total.astype(values.dtype)).astype(
        mass.dtype
    )  # its rounding
    first = jnp.clip(jnp.ceil(target).astype(mass.dtype) - slack, 1, total)
    beyond = jnp.clip(jnp.floor(target).astype(mass.dtype) + slack + 1, 1, total)

    key = ordered_bits(values)
    lower, upper = (select(key, mass, group, rank, reduce) for rank in (first, beyond))
    lower, upper = (
        jnp.where(total > 0, _from_ordered_bits(found, values.dtype), 0) for found in (lower, upper)
    )
    return lower, upper, mass


def select(
    key: UInt[Array, " n"],
    mass: Bool[Array, " n"] | Int[Array, " n"],
    group: Int32[Array, " n"] | None,
    rank: Int[Array, " g"],
    reduce: Reduce | None = None,
) -> UInt[Array, " g"]:
    """Return for each group the smallest key whose cumulative mass reaches `rank`; one group of all if it is None."""
    if reduce is not None:
        return select_in_jax(key, mass, group, rank, reduce)
    on_cpu = native.select if native.select_available() else select_in_jax
    return by_platform(key, mass, group, rank, cpu=on_cpu, default=select_in_jax)


def select_in_jax(
    key: UInt[Array, " n"],
    mass: Bool[Array, " n"] | Int[Array, " n"],
    group: Int32[Array, " n"] | None,
    rank: Int[Array, " g"],
    reduce: Reduce | None = None,
) -> UInt[Array, " g"]:
    """Do so in plain JAX, highest digits first."""
    n_groups = rank.size
    n_passes = key.dtype.itemsize * 8 // DIGIT_BITS
    every = jnp.arange(n_groups)
    group = jnp.zeros(key.shape, jnp.int32) if group is None else group
    mass = mass.astype(rank.dtype)

    def narrow(i, state):
        prefix, rank = state
        shift = jnp.asarray((n_passes - 1 - i) * DIGIT_BITS, key.dtype)
        seen = key >> shift
        matches = (seen >> DIGIT_BITS) == prefix[group]
        slot = group * N_DIGITS + (seen & (N_DIGITS - 1)).astype(group.dtype)
        histogram = jnp.zeros(n_groups * N_DIGITS, mass.dtype).at[slot].add(jnp.where(matches, mass, 0))
        cumulative = jnp.cumsum(over_devices(reduce, histogram).reshape(n_groups, N_DIGITS), axis=1)
        digit = jnp.argmax(cumulative >= rank[:, None], axis=1)
        below = jnp.where(digit > 0, cumulative[every, digit - 1], 0)
        return (prefix << DIGIT_BITS) | digit.astype(key.dtype), rank - below

    prefix, _ = jax.lax.fori_loop(0, n_passes, narrow, (jnp.zeros(n_groups, key.dtype), rank))
    return prefix


def fixed_point(weight: Float[Array, " n"], reduce: Reduce | None = None) -> Int[Array, " n"]:
    """Scale weights by a power of two to integers whose exact sum is at most 2^30 (2^62 in float64)."""
    bits, dtype = (62, jnp.int64) if weight.dtype == jnp.float64 else (30, jnp.int32)
    _, exponent = jnp.frexp(over_devices(reduce, jnp.sum(weight)))
    return jnp.round(jnp.ldexp(weight, bits - exponent)).astype(dtype)


def ordered_bits(values: Float[Array, " n"]) -> UInt[Array, " n"]:
    """Return integers in the order of the floats: sign bit set if positive, all bits flipped if negative."""
    unsigned = jnp.uint64 if values.dtype == jnp.float64 else jnp.uint32
    bits = jax.lax.bitcast_convert_type(values, unsigned)
    sign = jnp.asarray(1, unsigned) << (bits.dtype.itemsize * 8 - 1)
    return jnp.where(bits & sign, ~bits, bits | sign)


def _from_ordered_bits(key: UInt[Array, " n"], dtype: jnp.dtype) -> Float[Array, " n"]:
    sign = jnp.asarray(1, key.dtype) << (key.dtype.itemsize * 8 - 1)
    return jax.lax.bitcast_convert_type(jnp.where(key & sign, key & ~sign, ~key), dtype)
