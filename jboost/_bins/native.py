"""The codes of `host.py` in C++, for float arrays; absent where the library was not built."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float, UInt

from jboost._bins.host import numeric_codes
from jboost._runtime import library

WIDEST = 2  # bytes of a code that the C++ version writes
ALL_THREADS = 1 << 30  # as many as the library may use
_NAMES = {np.dtype(np.float32): "jboost_bin_float32", np.dtype(np.float64): "jboost_bin_float64"}


def can_bin(values: Any) -> bool:
    """Say whether the C++ version is there and made for this array."""
    aligned = values.dtype.isnative and all(step % values.itemsize == 0 for step in values.strides)
    return values.dtype in _NAMES and aligned and values.flags.aligned and is_available()


@functools.cache
def is_available() -> bool:
    """Say whether the C++ version can be used in this process: it gives the codes of the NumPy version."""
    if isinstance(library.load(), str):
        return False
    values = np.array([[-1.0], [0.5], [np.nan], [np.inf]], np.float32)
    edges = np.array([[-1.0, 0.25, np.inf]], np.float32)
    found = np.zeros((1, 4), np.uint8)
    fill_codes(values, edges, found, 1)
    return np.array_equal(found[0], numeric_codes(values[:, 0], edges[0].astype(np.float64), edges[0]))


def fill_codes(
    values: Float[np.ndarray, "n f"],
    edges: Float[np.ndarray, "f e"],
    codes: UInt[np.ndarray, "f n"],
    n_threads: int,
) -> None:
    """Write the code of every value: 1 + (number of edges < value), and 0 for NaN.

    Parameters
    ----------
    values : float32 or float64 [n, f]
        Any strides that `can_bin` accepts.
    edges : float [f, e], dtype of the values
        Increasing, padded with +inf.
    codes : uint8 or uint16 [f, n]
        Where to; contiguous.
    n_threads : int
        The most threads to use.
    """
    edges = np.ascontiguousarray(edges, values.dtype)
    if edges.shape[0] != values.shape[1] or codes.shape != values.shape[::-1] or not codes.flags.c_contiguous:
        raise ValueError(
            f"codes must be contiguous [f, n] for edges [f, e] and values [n, f], got shapes {codes.shape}, "
            f"{edges.shape} and {values.shape}"
        )
    steps = [step // values.itemsize for step in values.strides]
    failed = _function(_NAMES[values.dtype])(
        values.ctypes.data,
        *steps,
        *values.shape,
        edges.ctypes.data,
        edges.shape[1],
        codes.ctypes.data,
        codes.itemsize == 2,
        n_threads,
    )
    if failed:
        raise MemoryError("not enough memory to bin X")


def fill_column(
    values: Float[np.ndarray, " n"],
    exact: Float[np.ndarray, " e"],
    upper: Float[np.ndarray, " e"],
    codes: UInt[np.ndarray, " n"],
) -> None:
    """Write the codes of one column as `numeric_codes` returns them, on the calling thread."""
    if codes.itemsize <= WIDEST and can_bin(values):
        edges = upper if values.dtype == np.float32 else exact
        fill_codes(values[:, None], edges[None], codes[None], 1)
    else:
        codes[:] = numeric_codes(values, exact, upper)


@functools.cache
def _function(name: str) -> Callable[..., int]:
    found = library.load()
    assert not isinstance(found, str)  # is_available was asked before
    function = getattr(found, name)
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, size, size, size, size, pointer, size, pointer, ctypes.c_int, size]
    function.restype = ctypes.c_int
    return function
