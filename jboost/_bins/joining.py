"""Two columns of codes as one of joint codes: the innermost step of finding bundles, in NumPy and in C++."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, UInt8

from jboost._runtime import library

MOST_JOINT_CODES = 256  # of one byte

Codes = UInt8[np.ndarray, " n"]


class Joint(NamedTuple):
    """Joint codes, and the pair that each stands for: first * n_second + second, ascending."""

    codes: Codes
    pairs: Int32[np.ndarray, " j"]


def join_codes(first: Codes, second: Codes, n_first: int, n_second: int) -> Joint | None:
    """Number the pairs of codes that occur, or return None if there are more than 256; codes are below their n."""
    join = joined_in_cpp if library.in_use() and is_available() else joined
    return join(first, second, n_first, n_second)


def joined(first: Codes, second: Codes, n_first: int, n_second: int) -> Joint | None:
    """Do so in NumPy: the definition."""
    cell = first.astype(np.int32) * n_second + second
    is_there = np.bincount(cell, minlength=n_first * n_second) > 0
    pairs = np.flatnonzero(is_there).astype(np.int32)
    if pairs.size > MOST_JOINT_CODES:
        return None
    number = np.zeros(is_there.size, np.uint8)
    number[pairs] = np.arange(pairs.size)
    return Joint(number[cell], pairs)


def joined_in_cpp(first: Codes, second: Codes, n_first: int, n_second: int) -> Joint | None:
    """Do so in C++."""
    if not first.flags.c_contiguous or not second.flags.c_contiguous or first.shape != second.shape:
        raise ValueError("columns of codes must be contiguous and equally long")
    codes, pairs = np.empty(first.size, np.uint8), np.empty(MOST_JOINT_CODES, np.int32)
    sizes = first.size, n_first, n_second, MOST_JOINT_CODES
    found = _function()(
        *(array.ctypes.data for array in (first, second)), *sizes, codes.ctypes.data, pairs.ctypes.data
    )
    if found < 0:
        raise MemoryError("not enough memory to join columns of codes")
    return Joint(codes, pairs[:found].copy()) if found else None


@functools.cache
def is_available() -> bool:
    """Say whether the C++ version can be used in this process: it gives the codes of the NumPy version."""
    if isinstance(library.load(), str):
        return False
    first, second = np.array([1, 0, 1, 2], np.uint8), np.array([1, 3, 1, 0], np.uint8)
    found, wanted = (join(first, second, 3, 4) for join in (joined_in_cpp, joined))
    assert found is not None
    assert wanted is not None
    return all(map(np.array_equal, found, wanted))


@functools.cache
def _function() -> Callable[..., int]:
    found = library.load()
    assert not isinstance(found, str)  # is_available was asked before
    function = found.jboost_join_codes
    pointer, size = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, pointer, size, size, size, size, pointer, pointer]
    function.restype = size
    return function
