"""Row counts in few sizes, so that a slightly different number of rows reuses a compiled program."""

from __future__ import annotations

import numpy as np

SMALLEST = 64  # fewer rows are padded to this many


def bucket(n: int) -> int:
    """Round a count up to one of 16 sizes per doubling: at most 1/16 more."""
    step = max(SMALLEST, 1 << max(max(n - 1, 1).bit_length() - 5, 0))
    return max(-(-n // step) * step, SMALLEST)


def pad_axis(array: np.ndarray, size: int, axis: int = 0) -> np.ndarray:
    """Lengthen an axis with zeros: missing codes, zero weights, targets that nobody reads."""
    missing = size - array.shape[axis]
    return np.pad(array, [(0, missing if i == axis else 0) for i in range(array.ndim)]) if missing else array
