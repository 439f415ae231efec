"""The optional C++ library: found, loaded and checked once; whatever fails, there is a version in plain JAX.

`setup.py` builds it where a compiler is present. The environment variable JBOOST_NATIVE=0, read before the first
use, turns it off.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.extend.backend

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
        Calls the target on a tiny problem with a known answer, since jaxlib may differ from that of the build.
    """
    with _lock:
        return why_unavailable(target, is_right) is None


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
    if os.environ.get("JBOOST_NATIVE", "1") == "0":
        return "turned off by JBOOST_NATIVE=0"
    library = next(
        (path for path in Path(__file__).parent.glob("_library.*") if path.suffix in SUFFIXES), None
    )
    if library is None:
        return "not built: there was no C++ compiler, or no JAX, when jboost was installed"
    # Initialise the CPU first: jaxlib refuses a library made for a newer one here, and not later, elsewhere.
    device = jax.local_devices(backend="cpu")[0]
    handler = jax.ffi.pycapsule(getattr(ctypes.CDLL(str(library)), target))
    jax.ffi.register_ffi_target(target, handler, platform="cpu")
    with (
        jax.ensure_compile_time_eval(),
        jax.default_device(device),
    ):  # the caller may be in a trace or on a GPU
        return None if is_right() else "its self-check gave a wrong answer"
