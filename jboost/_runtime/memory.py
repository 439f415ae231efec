"""Freed memory given back to the system, where the allocator keeps it."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable


def release_freed() -> None:
    """Let the allocator return what it keeps of freed memory; it does nothing where that cannot be asked for.

    A compilation frees more than a hundred megabytes in small pieces, which glibc keeps for pieces as small: it would
    lie idle beside the arrays of the rounds. Takes a few milliseconds.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # not in musl
    if trim is not None:
        trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int
    return trim
