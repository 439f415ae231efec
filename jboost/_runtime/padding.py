"""Row counts in few sizes, so that a slightly different number of rows reuses a compiled program."""

from __future__ import annotations

import numpy as np

from jboost._runtime.typing import empty_for_device

SMALLEST = 64  # fewer rows are padded to this many
HEADROOM = (
    1.1  # what a first fit is padded to, times its rows, so that a somewhat larger one reuses its program
)
ROOMY_ROWS = 2**18  # from here on rounds take longer than compilation, and memory counts
ROOMY_NUMBERS = 2**20  # codes and scores from which on memory counts, however few the rows
MOST_PADDING = 1.35  # a program for more rows than this, times those at hand, is not reused
SMALL_ARRAY = 2**14  # numbers; XLA's order of summation was seen to change at about 2**12
FREE_ROWS = 3 * SMALLEST  # unless these are all there are more: they cost nothing

_sizes: set[int] = set()  # that programs of this process have


def bucket(n: int) -> int:
    """Round a count up to one of 16 sizes per doubling: at most 1/16 more."""
    step = max(SMALLEST, 1 << max(max(n - 1, 1).bit_length() - 5, 0))
    return max(-(-n // step) * step, SMALLEST)


def reusable_size(n: int, numbers_per_row: int = 1) -> int:
    """Return a size for the n rows of a fit: one that was used before, if it is not much larger, or a new one.

    Nothing but compilation depends on it: rows beyond n weigh nothing, and sums over rows are exact. But where the loss
    of a row holds arrays, of up to `numbers_per_row`, XLA sums over them in another order if those of all rows are few:
    there the size must not depend on other fits.
    """
    if numbers_per_row > 1 and n * numbers_per_row < SMALL_ARRAY:
        return bucket(int(n * HEADROOM))
    known = [size for size in tuple(_sizes) if n <= size <= max(MOST_PADDING * n, n + FREE_ROWS)]
    if known:
        return min(known)
    size = bucket(int(n * HEADROOM) if n < ROOMY_ROWS else n)
    _sizes.add(size)
    return size


def pad_axis(array: np.ndarray, size: int, axis: int = 0) -> np.ndarray:
    """Lengthen an axis with zeros: missing codes, zero weights, targets that nobody reads."""
    n = array.shape[axis]
    if n == size:
        return array
    padded = empty_for_device((*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)
    before = (slice(None),) * axis
    padded[(*before, slice(n))] = array
    padded[(*before, slice(n, None))] = 0
    return padded
