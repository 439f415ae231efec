"""Columns around their means, in units of their deviations: what a fit works on."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._model.linear import around, as_floats
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import as_array, is_traced

ROOM = 28  # powers of two that coefficients and scores have beside those of a column
FLAT = 10  # units of rounding of a column's mean: a deviation of no more is none


class Scale(NamedTuple):
    """Mean and deviation of each column, over the rows that count and have a value."""

    center: Float[Array, " f"]
    deviation: Float[Array, " f"]  # 0 of a column that is constant


def find_scale(matrix: Any, weight: Any) -> Scale:
    """Find the weighted means and deviations: in float64 on the host, unless something is traced."""
    numpy = jnp if is_traced(matrix, weight) else np
    matrix = as_floats(matrix, numpy)
    given = numpy.asarray(weight, matrix.dtype)[:, None]
    there = ~numpy.isnan(matrix) & (given > 0)
    share = numpy.where(there, given, 0)
    total = share.sum(axis=0)
    share = share / numpy.where(total > 0, total, 1)[None]
    center = numpy.sum(share * numpy.where(there, matrix, 0), axis=0)
    difference = numpy.where(there, matrix - center[None], 0)
    size = numpy.abs(difference).max(axis=0)  # or squares would overflow, or vanish
    varies = size > FLAT * numpy.finfo(matrix.dtype).eps * numpy.abs(center)
    unit = numpy.where(varies, size, 1)
    square = numpy.sum(share * numpy.square(difference / unit[None]), axis=0)
    deviation = numpy.where(varies, unit * numpy.sqrt(numpy.where(varies, square, 1)), 0)
    if numpy is np:
        _check_range(center, deviation)
    return Scale(as_array(center, float), as_array(deviation, float))


def _check_range(center: Any, deviation: Any) -> None:
    """Refuse columns whose means, deviations or coefficients would not be normal numbers of JAX's."""
    info = jnp.finfo(jnp.result_type(float))
    largest = 2.0 ** (info.maxexp - ROOM)
    held = (np.abs(center) <= largest) & (
        (deviation == 0) | ((deviation >= 1 / largest) & (deviation <= largest))
    )
    if not held.all():
        j = int(np.argmin(held))
        raise ValueError(
            f"X must have columns with means up to {largest:.1g} and deviations from {1 / largest:.1g} to "
            f"{largest:.1g}, for coefficients in {info.dtype}, got {center[j]:.3g} and {deviation[j]:.3g} in "
            f"column {j}; scale it"
        )


def standardised(matrix: Any, scale: Scale, n_rows: int) -> Float[Array, "f n"]:
    """Return the columns in their units, one after the other; zeros for what is constant or missing, or no row."""
    traced = is_traced(matrix, scale)
    numpy = jnp if traced else np
    matrix = as_floats(matrix, numpy)
    deviation = numpy.asarray(scale.deviation, matrix.dtype)
    inverse = numpy.where(deviation > 0, 1 / numpy.where(deviation > 0, deviation, 1), 0)
    columns = (around(matrix, scale.center) * inverse[None]).T
    return columns if traced else as_array(pad_axis(np.ascontiguousarray(columns), n_rows, axis=1), float)


def unit_of(scale: Scale) -> Float[Array, " f"]:
    """Return what coefficients of such columns are divided by; 1 for a constant column, whose coefficient is 0."""
    return jnp.where(scale.deviation > 0, scale.deviation, 1)
