"""Weighted quantiles as JAX code: of a whole sample and of each group of rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Int


def weighted_quantile(
    values: Float[Array, " n"], weight: Float[Array, " n"], level: ArrayLike
) -> Float[Array, ""]:
    """Return the weighted quantile of a sample.

    It is the smallest v whose cumulative weight reaches level * total, or the midpoint of v and the next value
    when it is hit exactly (definition 2 of the reference: `numpy.quantile(..., method="averaged_inverted_cdf")`). Rows
    of weight 0 do not count, whatever their value. Differentiable by `values`; 0 when no row has weight.

    References
    ----------
    Hyndman and Fan (1996), "Sample Quantiles in Statistical Packages", The American Statistician 50(4).
    """
    return grouped_quantile(values, weight, jnp.zeros(jnp.shape(values), jnp.int32), 1, level)[0]


def grouped_quantile(
    values: Float[Array, " n"],
    weight: Float[Array, " n"],
    group: Int[Array, " n"],
    n_groups: int,
    level: ArrayLike,
) -> Float[Array, " n_groups"]:
    """Return the weighted quantile of the rows of each group, as `weighted_quantile` defines it; 0 for an empty one.

    Rows with a group outside 0 .. n_groups - 1 are ignored.
    """
    outside = (weight == 0) | (group < 0) | (group >= n_groups)
    group = jnp.where(outside, n_groups, group)
    keys = (group, jax.lax.stop_gradient(jnp.where(outside, 0.0, values)))
    group, _, order = jax.lax.sort((*keys, jnp.arange(values.size)), num_keys=2)
    cumulative = jnp.cumsum(_fixed_point(weight)[order])

    # Rows before each group's end, then the group's first row and the weight that lies before it.
    ends = jnp.searchsorted(group, jnp.arange(n_groups), side="right")
    starts = jnp.concatenate([jnp.zeros(1, ends.dtype), ends[:-1]])
    before = jnp.where(starts > 0, cumulative[starts - 1], 0)
    total = jnp.where(ends > 0, cumulative[ends - 1], 0) - before

    real_total = total.astype(values.dtype)
    slack = (4 * jnp.finfo(values.dtype).eps * real_total).astype(total.dtype)  # rounding of level * total
    target = before + (level * real_total).astype(total.dtype)
    at = jnp.searchsorted(cumulative, target - slack, side="left")
    at = jnp.clip(at, starts, jnp.maximum(ends - 1, starts))
    hit = jnp.abs(cumulative[at] - target) <= slack
    after = jnp.where(hit, jnp.minimum(at + 1, jnp.maximum(ends - 1, starts)), at)
    quantile = values[order[at]] / 2 + values[order[after]] / 2
    return jnp.where(total > 0, quantile, 0.0)


def _fixed_point(weight: Float[Array, " n"]) -> Int[Array, " n"]:
    """Scale weights to integers with a sum below 2^30 (2^62 with x64): differences of their running sum are exact."""
    bits, dtype = (62, jnp.int64) if weight.dtype == jnp.float64 else (30, jnp.int32)
    _, exponent = jnp.frexp(jnp.sum(weight))
    return jnp.round(jnp.ldexp(weight, bits - exponent)).astype(dtype)
