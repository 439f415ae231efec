"""Freed memory goes back to the system, and a large fit asks for that."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

import jboost
from jboost._runtime import memory
from jboost.boosting import chunks

PIECES, SIZE = 100_000, 1024


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can be asked")
def test_small_pieces_go_back():
    if memory._malloc_trim() is None:
        pytest.skip("only glibc can be asked")
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    pieces = [libc.malloc(SIZE) for _ in range(PIECES)]
    for piece in pieces:
        ctypes.memset(piece, 1, SIZE)
    last = libc.malloc(SIZE)  # above them all, so that the top of the heap cannot simply sink
    for piece in pieces:
        libc.free(piece)
    before = resident_mib()
    memory.release_freed()
    assert before - resident_mib() > PIECES * SIZE / 2**20 / 2
    libc.free(last)


@pytest.mark.parametrize("most_rows", [10, 1000])
def test_large_fits_ask_for_it_before_and_after_they_compile(most_rows, monkeypatch, rng):
    calls = []
    monkeypatch.setattr(chunks, "ROOMY_ROWS", most_rows)
    monkeypatch.setattr(chunks, "release_freed", lambda: calls.append(1))
    X = rng.normal(size=(100, 2)).astype(np.float32)
    jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=7, max_depth=2))
    assert len(calls) == (2 if most_rows == 10 else 0)
