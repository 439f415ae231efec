"""Bin one column on the host, exactly as the device does."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int, Shaped

from jboost._runtime.typing import MISSING_BIN

_TABLE_ROWS = 100_000  # from here on, making a table costs less than it saves
_TABLE_BITS = {
    4: 20,
    8: 22,
}  # leading bits of a float that index the table: sign, exponent, 11 or 10 of the fraction
_ASK_EDGES = -1  # an edge lies among the values with these leading bits


def numeric_codes(
    values: Float[np.ndarray, " n"], exact: Float[np.ndarray, " e"], upper: Float[np.ndarray, " e"]
) -> Int[np.ndarray, " n"]:
    """Return 1 + (number of edges < value), and 0 for NaN.

    Float32 values are compared with the edges rounded down to float32, which decides alike; float64 values
    with the exact edges.
    """
    edges = upper if values.dtype == np.float32 else exact
    edges = edges[edges < np.inf]
    codes = _count_below(edges, values) + np.int32(1)
    missing = np.isnan(values)
    if missing.any():
        codes[missing] = MISSING_BIN
    return codes


def _count_below(edges: Float[np.ndarray, " e"], values: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Count the edges below each value: a search in general, a table look-up for most of many values.

    Floats with the same leading bits are neighbours, so unless an edge lies among them they have the same
    count.
    """
    if values.size < _TABLE_ROWS:
        return np.searchsorted(edges, values).astype(np.int32)
    counts = _leading_bits_table(edges)[_leading_bits(values)]
    ask = np.flatnonzero(counts == _ASK_EDGES)
    counts[ask] = np.searchsorted(edges, values[ask])
    return counts


def _leading_bits(values: Float[np.ndarray, " n"]) -> Shaped[np.ndarray, " n"]:
    size = values.dtype.itemsize
    return values.view(f"u{size}") >> np.array(8 * size - _TABLE_BITS[size], f"u{size}")


def _leading_bits_table(edges: Float[np.ndarray, " e"]) -> Int[np.ndarray, " t"]:
    half = 1 << (_TABLE_BITS[edges.dtype.itemsize] - 1)
    leading = _leading_bits(edges + edges.dtype.type(0)).astype(np.int64)  # turns an edge of -0.0 into 0.0
    place = np.where(leading < half, half + leading, 2 * half - 1 - leading)  # ordered as the floats are
    ordered = np.repeat(np.arange(edges.size + 1, dtype=np.int32), np.diff(place, prepend=0, append=2 * half))
    ordered[place] = _ASK_EDGES
    return np.concatenate([ordered[half:], ordered[half - 1 :: -1]])
