"""The optional C++ library: found, loaded and checked once; whatever fails, there is a version in plain JAX.

`setup.py` builds it where a compiler is present. The environment variable JBOOST_NATIVE=0, read before the first
use, turns it off.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.extend.backend
import jaxlib.version
import joblib

from jboost._runtime.arguments import is_whole
from jboost._runtime.caller import warn

SUFFIXES = (".so", ".dylib", ".pyd")

_lock = threading.RLock()


def by_platform(
    *arrays: Any, cpu: Callable[..., Any], default: Callable[..., Any], tpu: Callable[..., Any] | None = None
) -> Any:
    """Call the function made for the platform on which the program will run: `default` on a GPU.

    What no platform of this process runs is not even traced, which takes a good part of compilation's time.
    """
    platforms = set(jax.extend.backend.backends())
    if platforms == {"cpu"}:
        return cpu(*arrays)
    if "tpu" in platforms:
        return jax.lax.platform_dependent(*arrays, cpu=cpu, tpu=tpu or default, default=default)
    return jax.lax.platform_dependent(*arrays, cpu=cpu, default=default)


def is_available(target: str, is_right: Callable[[], bool]) -> bool:
    """Register a function of the library with XLA at the first call; say whether it can be used.

    Parameters
    ----------
    target : str
        Name of the function, in the library and for `jax.ffi.ffi_call`.
    is_right : function
        Calls the target on a tiny problem with a known answer, where jaxlib differs from that of the build.
    """
    if _here.plain:
        return False
    with _lock:
        return why_unavailable(target, is_right) is None


class _Here(threading.local):
    """What holds in this thread."""

    plain = False  # whether the library is left alone


_here = _Here()


@contextlib.contextmanager
def plain_jax(on: bool = True) -> Iterator[None]:
    """Keep to plain JAX, as if the C++ library had not been built: to read, to test, or to export a program.

    It holds for this thread, for what is traced inside of the context, and for the compiled programs of jboost's
    public functions, which are kept apart. A function that you have compiled yourself stays as it was traced. The
    environment variable JBOOST_NATIVE=0, read when the library is first needed, does the same for a process.

    Parameters
    ----------
    on : bool
        Whether to; False allows the library again inside of another such context.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> with jboost.plain_jax():
    ...     model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> model.n_trees
    3
    """
    before, _here.plain = _here.plain, on
    try:
        yield
    finally:
        _here.plain = before


def in_use() -> bool:
    """Say whether the library is there and wanted: what a compiled program must be kept by."""
    return not _here.plain and not isinstance(load(), str)


@functools.cache
def why_unavailable(target: str, is_right: Callable[[], bool]) -> str | None:
    """Return the reason why the plain JAX version is used, or None."""
    try:
        failure = _register(target, is_right)
    except Exception as error:  # whatever it is, there is a version that works
        failure = f"{type(error).__name__}: {error}"
    if failure is not None:
        logging.getLogger(__name__).info("no native %s: %s", target, failure)
    return failure


def _register(target: str, is_right: Callable[[], bool]) -> str | None:
    found = load()
    if isinstance(found, str):
        return found
    device = _make_known(found, target)
    if _fits_jaxlib(found):
        return None
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(device),
    ):  # the caller may be in a trace or on a GPU
        return None if is_right() else "its self-check gave a wrong answer"


def provides(targets: tuple[str, ...]) -> bool:
    """Register functions that a finished program calls; say whether that is possible without trying each."""
    found = load()
    if not targets:
        return True
    if isinstance(found, str) or not _fits_jaxlib(found):
        return False
    with _lock:
        for target in targets:
            _make_known(found, target)
    return True


def _fits_jaxlib(found: ctypes.CDLL) -> bool:
    return found.jboost_built_for() == jaxlib.version.__version__.encode()


@functools.cache
def _make_known(found: ctypes.CDLL, target: str) -> Any:
    """Register a function with XLA; return a device that runs it."""
    # Initialise the CPU first: jaxlib refuses a library made for a newer one here, and not later, elsewhere.
    device = jax.local_devices(backend="cpu")[0]
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(getattr(found, target)), platform="cpu")
    return device


def path() -> Path | None:
    """Return the file of the library, if it was built."""
    files = Path(__file__).parent.glob("_library.*")
    return next((file for file in files if file.suffix in SUFFIXES), None)


@functools.cache
def load() -> ctypes.CDLL | str:
    """Load the library, or say why there is none."""
    if os.environ.get("JBOOST_NATIVE", "1") == "0":
        return "turned off by JBOOST_NATIVE=0"
    file = path()
    if file is None:
        return "not built: there was no C++ compiler, or no JAX, when jboost was installed"
    found = ctypes.CDLL(str(file))
    found.jboost_built_for.restype = ctypes.c_char_p
    found.jboost_limit_threads.argtypes = [ctypes.c_int64]
    found.jboost_limit_threads.restype = None
    found.jboost_limit_threads(joblib.cpu_count())
    return found


def n_threads(n_jobs: int | None) -> int:
    """Return how many threads scikit-learn's `n_jobs` asks for: all for None, all but one for -2, and so on."""
    if n_jobs is None:
        return joblib.cpu_count()
    if not is_whole(n_jobs):
        raise TypeError(f"n_jobs must be an integer or None, got {n_jobs!r}")
    if n_jobs == 0:
        raise ValueError("n_jobs must not be 0: give a number of threads, or -1 for all")
    return int(n_jobs) if n_jobs > 0 else max(joblib.cpu_count() + 1 + int(n_jobs), 1)


def ask_for_devices(n_jobs: int | None) -> None:
    """Without the C++ library, let JAX make the CPU devices that `n_jobs` asks for, or say once how to get them."""
    wanted, found = n_threads(n_jobs), load()
    if n_jobs is None or wanted == 1 or not isinstance(found, str):
        return
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:  # JAX has made its devices already
        if len(jax.local_devices(backend="cpu")) < wanted:
            _say_how_to_use_more_cores(found)


@functools.cache
def _say_how_to_use_more_cores(reason: str) -> None:
    warn(
        f"n_jobs: fits may run on fewer cores than asked for, as the C++ library is missing ({reason}). Install jboost "
        "where there is a C++ compiler, or call jax.config.update('jax_num_cpu_devices', n) before anything else "
        "uses JAX"
    )


def release_scratch() -> None:
    """Free the memory that the library keeps from one tree for the next."""
    found = load()
    if not isinstance(found, str):
        found.jboost_release_scratch()


_limits: list[int] = []  # of the calls that are running


@contextlib.contextmanager
def at_most(limit: int) -> Iterator[None]:
    """Let the C++ library use no more threads for a while; calls that run side by side share the lowest limit.

    Outside, the limit is what the processor, its affinity and the container's quota allow.
    """
    with _lock:
        _limits.append(limit)
        _apply_limit()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(limit)
            _apply_limit()


def _apply_limit() -> None:
    found = load()
    if not isinstance(found, str):
        found.jboost_limit_threads(min([joblib.cpu_count(), *_limits]))
