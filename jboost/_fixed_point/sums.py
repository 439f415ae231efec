"""Sums of floats by group that do not depend on the order of the rows, nor on how they are shared out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32

from jboost._fixed_point import native
from jboost._fixed_point.quantise import Scale, ceil_log2, find_scale, power_of_two
from jboost._runtime.library import by_platform
from jboost._runtime.rules import within_its_rule
from jboost._runtime.typing import Reduce, over_devices

COPIES = 64  # partial sums of each group: they spread a GPU's atomics
ROWS_PER_CELL = 32  # below this many rows for each partial sum there is nothing to spread
MAX_LIMB_BITS = 30


@partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def sum_by_group(
    values: Float[Array, "n c"],
    group: Int[Array | np.ndarray, " n"] | None,
    n_groups: int,
    reduce: Reduce | None = None,
    scale: Scale | None = None,
) -> Float[Array, "groups c"]:
    r"""Sum rows by group, the same bits in any order and on any number of devices.

    Each value is split into integers: the nearest to value * scale, as in `quantise`, then the nearest to what is
    left times :math:`2^b`, and so on, two for float32 and three for float64. With
    :math:`b = 31 - \lceil \log_2 m \rceil` for m values that are not 0, none of their sums overflows. The error of
    a sum is about :math:`2^{-30-b}` of the sum of all magnitudes a row.

    Parameters
    ----------
    values
        Floats, shape [n, c].
    group
        int32 [n], the group of each row, in [0, n_groups); None if there is one group of all.
    n_groups
        Number of groups.
    reduce
        Sums an integer array over the devices that hold the other rows.
    scale
        What `find_scale` gives for these values, if it is known.

    Returns
    -------
    float [groups, c]: the sums, rounded once or twice; NaN in a column that is not finite. Derivatives are those of a
    sum.

    References
    ----------
    .. [1] Demmel and Nguyen, Fast Reproducible Floating-Point Summation, ARITH 2013.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost._fixed_point import sum_by_group
    >>> sum_by_group(jnp.array([[1.0], [2.0], [0.5]]), jnp.array([1, 0, 1]), 2).tolist()
    [[2.0], [1.5]]
    """
    factor, count = find_scale(values, reduce) if scale is None else scale
    if reduce is not None:
        return sums_in_jax(values, group, factor, count, n_groups, reduce)
    on_cpu = native.sum_by_group if native.sums_available() else sums_in_jax
    twins = {"cpu": on_cpu, "default": sums_in_jax}
    twins = {platform: partial(twin, n_groups=n_groups) for platform, twin in twins.items()}
    return by_platform(values, group, factor, count, **twins)


def sums_in_jax(
    values: Float[Array, "n c"],
    group: Int[Array | np.ndarray, " n"] | None,
    factor: Float[Array, " c"],
    count: Int32[Array, " c"],
    n_groups: int,
    reduce: Reduce | None = None,
) -> Float[Array, "groups c"]:
    """Do so in plain JAX, given the scale."""
    n_limbs = 2 if values.dtype == jnp.float32 else 3
    bits = jnp.clip(31 - ceil_log2(count), 1, MAX_LIMB_BITS)
    sums = over_devices(reduce, _limb_sums(values, group, factor, bits, n_groups, n_limbs))
    total = sums[..., n_limbs - 1].astype(values.dtype)
    for limb in reversed(range(n_limbs - 1)):
        total = sums[..., limb].astype(values.dtype) + total * power_of_two(-bits, values.dtype)[None]
    return total / factor[None]


@partial(jax.custom_jvp, nondiff_argnums=(4, 5))
def moments_by_group(
    g: Float[Array, "n 1"],
    h: Float[Array, "n 1"],
    counted: Bool[Array, " n"],
    group: Int[Array, " n"],
    n_groups: int,
    reduce: Reduce | None = None,
    scale_of_g: Scale | None = None,
    scale_of_h: Scale | None = None,
) -> tuple[Float[Array, "groups 1"], Float[Array, "groups 1"], Float[Array, "groups 1"]]:
    """Sum two columns by group as `sum_by_group` does, and count the rows that are `counted`, in one pass over them.

    Derivatives are those of the sums.
    """
    scale_of_g, scale_of_h = (
        find_scale(column, reduce) if scale is None else scale
        for column, scale in ((g, scale_of_g), (h, scale_of_h))
    )
    if reduce is not None:
        of_g, of_h = (
            sums_in_jax(column, group, *scale, n_groups, reduce)
            for column, scale in ((g, scale_of_g), (h, scale_of_h))
        )
        return of_g, of_h, count_by_group(counted, group, n_groups, reduce).astype(g.dtype)[:, None]
    factor, count = (jnp.concatenate(pair) for pair in zip(scale_of_g, scale_of_h, strict=True))
    on_cpu = native.moments_by_group if native.moments_available() else moments_in_jax
    twins = {"cpu": partial(on_cpu, n_groups=n_groups), "default": partial(moments_in_jax, n_groups=n_groups)}
    of_g, of_h, n_counted = by_platform(g, h, counted, group, factor, count, **twins)
    return of_g, of_h, n_counted.astype(g.dtype)[:, None]


def moments_in_jax(
    g: Float[Array, "n 1"],
    h: Float[Array, "n 1"],
    counted: Bool[Array, " n"],
    group: Int[Array, " n"],
    factor: Float[Array, " 2"],
    count: Int32[Array, " 2"],
    n_groups: int,
) -> tuple[Float[Array, "groups 1"], Float[Array, "groups 1"], Int32[Array, " groups"]]:
    """Do so in plain JAX, given the scales."""
    of_g, of_h = (
        sums_in_jax(column, group, factor[i : i + 1], count[i : i + 1], n_groups)
        for i, column in enumerate((g, h))
    )
    return of_g, of_h, counts_in_jax(counted, group, n_groups)


def count_by_group(
    counted: Bool[Array, " n"], group: Int[Array, " n"], n_groups: int, reduce: Reduce | None = None
) -> Int32[Array, " groups"]:
    """Count the rows of each group that are counted; `reduce` sums over the devices that hold the other rows."""
    on_cpu = native.count_by_group if reduce is None and native.counts_available() else counts_in_jax
    twins = {"cpu": partial(on_cpu, n_groups=n_groups), "default": partial(counts_in_jax, n_groups=n_groups)}
    return over_devices(reduce, by_platform(counted, group, **twins))


def counts_in_jax(
    counted: Bool[Array, " n"], group: Int[Array, " n"], n_groups: int
) -> Int32[Array, " groups"]:
    """Do so on one device in plain JAX."""
    return _scatter_add(counted.astype(jnp.int32)[:, None], group, n_groups)[:, 0]


def total(values: Float[Array, "n ..."], reduce: Reduce | None = None) -> Float[Array, "..."]:
    """Sum over the first axis, the same bits in any order and on any number of devices."""
    if values.ndim == 1:
        return sum_by_group(values[:, None], None, 1, reduce)[0, 0]
    return sum_by_group(values.reshape(values.shape[0], -1), None, 1, reduce)[0].reshape(values.shape[1:])


def totals(columns: Sequence[Float[Array, "n _"]], reduce: Reduce | None = None) -> Float[Array, " c"]:
    """Sum several arrays [n k], or [n 1], over the first axis; return the sums side by side.

    One after the other: as one array they would take more memory, and a compiler would choose among them number by
    number.
    """
    return jnp.concatenate([total(column, reduce) for column in columns])


def mean(rows: Float[Array, "n ..."], weight: Array) -> Float[Array, ""]:
    """Return the weighted mean over the rows, then the plain mean over the outputs."""
    weight = jnp.asarray(weight)
    wider = jnp.issubdtype(weight.dtype, jnp.floating) and weight.dtype.itemsize > rows.dtype.itemsize
    dtype = weight.dtype if wider else rows.dtype
    weight, rows = weight.astype(dtype), rows.astype(dtype)
    column = weight.reshape(-1, *[1] * (rows.ndim - 1))
    return jnp.mean(total(jnp.where(column > 0, column * rows, 0)) / total(weight))


@sum_by_group.defjvp
def _sum_tangents(n_groups, reduce, primals, tangents):
    def again(values: Array, group: Array | None, scale: Scale | None) -> Array:
        return sum_by_group(values, group, n_groups, reduce, scale)

    sums = over_devices(reduce, _scatter_add(tangents[0], primals[1], n_groups))
    return within_its_rule(again, *primals), sums


@moments_by_group.defjvp
def _moment_tangents(n_groups, reduce, primals, tangents):
    def again(
        g: Array, h: Array, counted: Array, group: Array, *scales: Scale | None
    ) -> tuple[Array, Array, Array]:
        return moments_by_group(g, h, counted, group, n_groups, reduce, *scales)

    found = within_its_rule(again, *primals)
    sums = (over_devices(reduce, _scatter_add(tangent, primals[3], n_groups)) for tangent in tangents[:2])
    return found, (*sums, jnp.zeros_like(found[2]))


def _limb_sums(
    values: Float[Array, "n c"],
    group: Int[Array | np.ndarray, " n"] | None,
    factor: Float[Array, " c"],
    bits: Int32[Array, " c"],
    n_groups: int,
    n_limbs: int,
) -> Int32[Array, "groups c limbs"]:
    """Return the sums of the limbs by group; each limb after the first has so many bits."""
    known = ~jnp.isnan(factor)[None]
    rest, limbs = jnp.where(known, values * factor[None], 0), []
    for _ in range(n_limbs):
        nearest = jnp.round(rest)
        limbs.append(nearest.astype(jnp.int32))
        rest = (rest - nearest) * power_of_two(bits, values.dtype)[None]
    flat = jnp.stack(limbs, axis=-1).reshape(values.shape[0], values.shape[1] * n_limbs)
    return _scatter_add(flat, group, n_groups).reshape(n_groups, values.shape[1], n_limbs)


def _scatter_add(values: Array, group: Int[Array | np.ndarray, " n"] | None, n_groups: int) -> Array:
    """Sum rows by group; row i adds to partial sum i mod copies."""
    if group is None:
        return values.sum(axis=0, keepdims=True, dtype=values.dtype)
    n, c = values.shape
    copies = max(1, min(COPIES, n // (ROWS_PER_CELL * n_groups)))
    cell = group * copies + jnp.arange(n, dtype=group.dtype) % copies
    sums = jnp.zeros((n_groups * copies, c), values.dtype).at[cell].add(values)
    return sums.reshape(n_groups, copies, c).sum(axis=1, dtype=values.dtype)
