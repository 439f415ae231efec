"""Freed memory goes back to the system, a large fit asks for that, and no round copies what it need not."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import sys
import weakref
from pathlib import Path

import jax
import numpy as np
import pytest

import jboost
from jboost._runtime import memory, programs
from jboost.boosting import chunks, fitting

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
def test_large_fits_ask_for_it_before_and_after_they_compile(own_programs, most_rows, monkeypatch, rng):
    calls = []
    monkeypatch.setattr(chunks, "ROOMY_ROWS", most_rows)
    monkeypatch.setattr(chunks, "release_freed", lambda: calls.append(1))
    X = rng.normal(size=(100, 2)).astype(np.float32)
    jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=7, max_depth=2))
    assert len(calls) == (2 if most_rows == 10 else 0)


def test_so_do_wide_ones(own_programs, monkeypatch, rng):
    calls = []
    monkeypatch.setattr(chunks, "ROOMY_NUMBERS", 300)
    monkeypatch.setattr(chunks, "release_freed", lambda: calls.append(1))
    X = rng.normal(size=(100, 2)).astype(np.float32)
    jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=7, max_depth=2))
    assert len(calls) == 2


def test_the_rounds_are_compiled_before_they_run(own_programs, monkeypatch, rng):
    events = []
    monkeypatch.setattr(chunks, "ROOMY_NUMBERS", 300)
    monkeypatch.setattr(chunks, "release_freed", lambda: events.append(programs.n_programs()))
    X = rng.normal(size=(100, 2)).astype(np.float32)
    jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3, max_depth=2))
    assert events[1] == events[0] + 1


def test_an_estimator_lets_go_of_the_bins_that_were_laid_out_anew(monkeypatch, rng):
    """The bins [f n] are in the way of the rounds, which read others."""
    made, alive = [], []
    bin_features, drive = jboost.bin_features, chunks.drive

    def watched(*given, **options):
        made.append(weakref.ref((binned := bin_features(*given, **options)).bins))
        return binned

    def driven(problem, *others):
        alive.append(made[0]() is not None and made[0]() is not problem.bins)
        return drive(problem, *others)

    monkeypatch.setattr("jboost.sklearn.reading.bin_features", watched)
    monkeypatch.setattr("jboost.boosting.fitting.drive", driven)
    X = rng.normal(size=(100, 3)).astype(np.float32)
    jboost.JBoostRegressor(n_estimators=2).fit(X, X[:, 0])
    assert alive == [False]


def test_a_fit_lets_go_of_the_scores_it_began_with(monkeypatch, rng):
    """Of many outputs they take as much as those of the round."""
    made, alive, prepare = [], [], fitting.prepare

    def prepared(*given, **options):
        found = prepare(*given, **options)
        made.append(weakref.ref(found[1].score))
        return found

    monkeypatch.setattr(fitting, "prepare", prepared)
    X = rng.normal(size=(100, 2)).astype(np.float32)
    spec = jboost.Spec(n_estimators=2, max_depth=2)

    def look(progress):
        alive.append(made[0]() is not None)

    jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=spec, callbacks=[look])
    assert alive == [False, False]


@pytest.mark.parametrize(("k", "most"), [(1, 64), (1000, 8), (1_000_000, 1)])
def test_what_a_call_returns_is_bounded_and_not_kept_whole(k, most):
    """64 leaves of 1000 outputs, values and Hessians, are half a megabyte a round."""
    X = np.zeros((64, 2))
    X[::2] = 1
    problem, state = jboost.boosting.init(
        jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(max_depth=6)
    )
    score = np.broadcast_to(np.zeros((), np.float32), (64, k))  # takes no memory
    assert chunks._capacity(problem, dataclasses.replace(state, score=score)) == most
    one = chunks._blank(problem, state, 1)
    form = jax.eval_shape(chunks._packed, one)
    room = jax.tree.map(lambda array: np.zeros((chunks.CAPACITY, array.size), array.dtype), form)
    made = chunks._unpacked(room, 1, one)
    assert all(array.base is None and len(array) == 1 for array in jax.tree.leaves(made))


@pytest.mark.parametrize("multi_output", ["vector", "separate"])
def test_rounds_that_are_stored_side_by_side_come_back_as_they_were(multi_output, rng):
    """Of every dtype, words of category sets with their highest bit among them."""
    X = np.stack([rng.integers(0, 40, 300), rng.normal(size=300)], axis=1)
    data = jboost.bin_features(X, categorical=[0])
    spec = jboost.Spec(max_depth=3, multi_output=multi_output)
    problem, state = jboost.boosting.init(jboost.losses.softmax(3), data, rng.integers(0, 3, 300), spec=spec)
    rounds = jax.tree.map(
        lambda one: _any_bits(rng, (4, *one.shape[1:]), one.dtype), chunks._blank(problem, state, 1)
    )
    packed = jax.vmap(chunks._packed)(rounds)
    found = chunks._unpacked(packed, 3, chunks._blank(problem, state, 1))
    for one, expected in zip(jax.tree.leaves(found), jax.tree.leaves(rounds), strict=True):
        assert one.dtype == expected.dtype
        np.testing.assert_array_equal(one, expected[:3])


def _any_bits(rng, shape, dtype):
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def test_no_round_copies_the_scores(rng):
    """XLA would, if something that a round reports read the old scores without the new ones waiting for it."""
    X = rng.normal(size=(3000, 4)).astype(np.float32)
    problem, state = jboost.boosting.init(jboost.losses.logistic, X, X[:, 0] > 0)
    problem = chunks._for_the_program(problem)
    text = jax.jit(chunks._rounds).lower(problem, state, 1).compile().as_text() or ""
    assert "while(" in text
    copies = re.findall(rf"= f32\[{state.score.shape[0]},1\]\S* copy\(", text)
    assert len(copies) <= 1  # before the first round
