"""Histograms of integer statistics: the innermost loop of boosting, behind one small interface.

`build_histogram` is defined in `xla.py`; `native.cpp` is the same function for a CPU. Sums are exact integers, so every
twin gives the same bits in any order of rows, threads and devices.
"""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array, Int32, Integer, UInt

from jboost._histogram import xla
from jboost._histogram.fixed_point import quantise

__all__ = ["build_histogram", "native_available", "quantise"]


def native_available() -> bool:
    return False


@partial(jax.jit, static_argnames=("n_slots", "n_codes"))
def build_histogram(
    bins: UInt[Array, "f n"],
    slot: Integer[Array, " n"],
    values: Int32[Array, "n c"],
    n_slots: int,
    n_codes: int,
) -> Int32[Array, "b c l f"]:
    n_cells = n_codes * values.shape[1] * n_slots * bins.shape[0]
    if n_cells >= 2**31:
        raise ValueError(
            f"a histogram of {n_codes} codes x {values.shape[1]} statistics x {n_slots} slots x {bins.shape[0]} "
            f"features has {n_cells} cells, more than an int32 can count; use fewer bins, less depth or fewer features"
        )
    return xla.build_histogram(bins, slot, values, n_slots, n_codes)
