"""Compiled programs: as many as are wanted, each for what it is, and nothing left of those that are dropped."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import jax
import jax.core
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost._runtime import library, programs
from jboost._runtime.programs import program
from jboost.boosting import chunks

ONE_ROUND = jboost.Spec(n_estimators=1, max_depth=1)


def counted():
    """Make a program of two arguments, the second static, and a list that grows whenever it is traced."""
    traces = []

    @program(static_argnums=1)
    def scaled(x, factor):
        traces.append(None)
        return jax.tree.map(lambda leaf: factor * leaf, x)

    return scaled, traces


def n_maps():
    maps = Path("/proc/self/maps")
    return len(maps.read_bytes().splitlines()) if maps.exists() else 0


def test_one_program_for_each_type_of_arguments(own_programs):
    scaled, traces = counted()
    for values in (
        np.arange(3.0),
        jnp.arange(3.0),
        4.0,
        4,
        np.float32(4),
        np.arange(4.0),
        {"a": np.arange(3)},
    ):
        before = len(traces)
        for _ in range(2):
            found = scaled(values, 2)
            jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, 2 * b), found, values)
        assert len(traces) == before + 1
        assert jax.tree.map(jnp.result_type, found) == jax.tree.map(jnp.result_type, values)
    assert float(scaled(4.0, 3)) == 12.0
    assert len(traces) == programs.n_programs() == 8


def test_one_program_for_each_setting_and_with_or_without_the_library(own_programs):
    scaled, traces = counted()
    assert scaled(np.arange(3.0), 2).dtype == jnp.float32
    with jax.enable_x64(True):
        assert scaled(np.arange(3.0), 2).dtype == jnp.float64
    scaled(np.arange(3.0), 2)
    assert len(traces) == 2
    native_library.require(lambda: not isinstance(library.load(), str))
    with library.plain_jax():
        scaled(np.arange(3.0), 2)
    assert len(traces) == 3


def test_it_can_be_transformed(own_programs):
    scaled, traces = counted()
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(jax.jit(lambda x: scaled(x, 2))(x), 2 * x)
    np.testing.assert_array_equal(jax.vmap(lambda x: scaled(x, 2))(x), 2 * x)
    np.testing.assert_array_equal(jax.grad(lambda x: scaled(x, 2).sum())(x), [2, 2, 2])
    before = len(traces)
    np.testing.assert_array_equal(jax.vmap(lambda x: scaled(x, 2))(x), 2 * x)
    assert len(traces) == before


def test_settings_that_watch_what_is_computed_do(own_programs):
    scaled, _ = counted()
    nan = np.array([1.0, np.nan])
    scaled(nan, 2)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        scaled(nan, 2)
    seen = []
    with jax.disable_jit():
        program(lambda x: seen.append(isinstance(x, jax.core.Tracer)))(nan)
    assert seen == [False]


def test_the_least_recently_used_goes_first(own_programs, monkeypatch):
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 3)
    scaled, traces = counted()
    for factor in (1, 2, 3, 1, 4):  # the last drops that of 2
        scaled(1.0, factor)
    assert (len(traces), programs.n_programs()) == (4, 3)
    for factor in (1, 3, 4):
        scaled(1.0, factor)
    assert len(traces) == 4
    scaled(1.0, 2)
    assert len(traces) == 5


def test_an_eighth_goes_at_once(own_programs, monkeypatch):
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 16)
    collected = []
    monkeypatch.setattr(gc, "collect", lambda: collected.append(programs.n_programs()))
    scaled, _ = counted()
    for factor in range(24):
        scaled(1.0, factor)
    assert collected == [15] * 4  # with the 17th, the 19th, ...


@pytest.mark.skipif(sys.platform != "linux", reason="memory maps are listed by Linux")
def test_half_of_them_go_when_maps_run_short(own_programs, monkeypatch):
    scaled, _ = counted()
    for factor in range(6):
        scaled(1.0, factor)
    monkeypatch.setattr(programs, "MAX_MAPS", n_maps() - 1)
    scaled(1.0, 6)
    assert programs.n_programs() == 4


def fits_of_fresh_losses(X, maps):
    """Fit with losses and metrics of their own, and arrays in them; yield weak references to these, and count maps."""
    for i in range(5):
        captured = jnp.asarray(np.full(4096, 1.0 + i, np.float32))
        array = weakref.ref(captured)

        def loss(score, y, captured=captured):
            return 0.5 * captured[1] * (score - y) ** 2

        def metric(score, y, weight, captured=captured):
            return captured[0] * jnp.abs(score - y).mean()

        model, _ = jboost.fit(loss, X, X[:, 0], spec=ONE_ROUND, valid=(X, X[:, 0]), metric=metric)
        jboost.predict(model, X)
        del captured, loss, metric, model
        gc.collect()
        maps.append(n_maps())
        yield array


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory maps are listed by Linux")
def test_maps_stay_below_a_limit(own_programs, monkeypatch, rng):
    """Whatever JAX keeps: beyond the limit all that it can forget is forgotten, captured arrays too."""
    limit = n_maps() + 200
    monkeypatch.setattr(programs, "MAX_MAPS", limit)
    arrays = list(fits_of_fresh_losses(rng.normal(size=(40, 2)), maps := []))
    assert max(maps) < limit + 600  # two programs more
    assert sum(one() is not None for one in arrays) < 5


@pytest.mark.slow
def test_fits_of_fresh_losses_leave_nothing_behind(own_programs, monkeypatch, rng):
    """Neither programs, of which Linux tells by memory maps, nor the arrays in them."""
    monkeypatch.setattr(programs, "MAX_PROGRAMS", 4)  # those of two fits
    arrays = list(fits_of_fresh_losses(rng.normal(size=(40, 2)), maps := []))
    assert programs.n_programs() == 4
    assert sum(one() is not None for one in arrays) <= 2
    programs.forget_all()
    assert sum(one() is not None for one in arrays) == 0
    if sys.platform == "linux":
        assert max(maps[3:]) - min(maps[3:]) < 40  # one more fit would bring a hundred or more
        assert maps[-1] - n_maps() > 100


MANY_FITS = """
from pathlib import Path

import numpy as np
import jboost

X = np.random.default_rng(0).normal(size=(40, 2))
spec = jboost.Spec(n_estimators=1, max_depth=1)
for i in range(2000):
    captured = np.full(100_000, 1.0 + i, np.float32)
    jboost.fit(lambda score, y, captured=captured: 0.5 * captured[0] * (score - y) ** 2, X, X[:, 0], spec=spec)
    if i % 500 == 499:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        print(len(Path("/proc/self/maps").read_text().splitlines()), pages, flush=True)
"""


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.skipif(sys.platform != "linux", reason="memory and its maps are listed by Linux")
def test_two_thousand_fits_of_fresh_losses_in_one_process():
    """It ended in a segmentation fault after 580: neither maps nor memory may grow once the limits are reached."""
    done = subprocess.run([sys.executable, "-c", MANY_FITS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    maps, pages = np.array([line.split() for line in done.stdout.splitlines()], float).T
    assert maps.max() < programs.MAX_MAPS + 2000
    assert pages[-1] < 1.15 * pages[0]


def test_programs_of_several_threads():
    scaled, _ = counted()
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: float(scaled(float(i), i % 3)), range(24)))
    assert found == [i * (i % 3) for i in range(24)]


# ------------------------------------------------------------------------------------------ compiled ahead


def threads_that_compile(monkeypatch):
    """Return a list that gets the thread in which each program is compiled."""
    threads, compiles = [], jax.stages.Lowered.compile

    def compile_(lowered, *arguments, **options):
        threads.append(threading.current_thread())
        return compiles(lowered, *arguments, **options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_)
    return threads


@pytest.mark.parametrize("precision", [False, True], ids=["x32", "x64"])
def test_a_program_is_compiled_ahead_once_in_another_thread(own_programs, monkeypatch, precision):
    scaled, traces = counted()
    threads = threads_that_compile(monkeypatch)
    with jax.enable_x64(precision):  # known to this thread alone
        x = jnp.arange(3.0)
        for _ in range(2):
            scaled.begin(x, 2)
        found = scaled(x, 2)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, 2 * x)
        scaled.begin(x, 2)
    assert len(traces) == len(threads) == programs.n_programs() == 1
    assert threads[0] is not threading.current_thread()


def test_what_cannot_be_compiled_ahead_is_said_where_it_is_called(own_programs, monkeypatch):
    scaled, _ = counted()

    def fail(lowered):
        raise RuntimeError(f"no room in {threading.current_thread().name}")

    monkeypatch.setattr(jax.stages.Lowered, "compile", fail)
    scaled.begin(1.0, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=threading.current_thread().name):
            scaled(1.0, 2)
    assert programs.n_programs() == 0


def test_a_fit_compiles_its_rounds_while_it_finds_its_start(own_programs, monkeypatch, rng):
    def loss(score, y):
        return (score - y) ** 2

    threads = threads_that_compile(monkeypatch)
    X = rng.normal(size=(40, 2))
    model, _ = jboost.fit(loss, X, X[:, 0], spec=ONE_ROUND)
    assert len(threads) == 2
    assert [one is threading.current_thread() for one in threads] in ([True, False], [False, True])
    again, _ = jboost.fit(loss, X, X[:, 0], spec=ONE_ROUND, hyper=jboost.Hyper(reg_lambda=2.0))
    assert len(threads) == 2
    assert not np.array_equal(model.leaf_value, again.leaf_value)


def test_a_large_fit_compiles_one_program_after_the_other(own_programs, monkeypatch, rng):
    monkeypatch.setattr(chunks, "ROOMY_ROWS", 40)
    threads = threads_that_compile(monkeypatch)
    X = rng.normal(size=(40, 2))
    jboost.fit(lambda score, y: (score - y) ** 2, X, X[:, 0], spec=ONE_ROUND)
    assert len(threads) == 2
    assert all(one is threading.current_thread() for one in threads)
