"""What public functions share: how they treat their caller's guard against transfers, and how they warn."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from jboost._runtime.forks import use_jax

_T = TypeVar("_T")
_P = ParamSpec("_P")

_OWN_PACKAGES = ("jboost", "jax")


def moves_arrays(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a function move arrays between host and device: `jax.transfer_guard` is not meant for what was asked for.

    Where JAX would hang, in a child that was forked after it was used, the function raises at once.
    """

    @functools.wraps(function)
    def unguarded(*args: _P.args, **options: _P.kwargs) -> _T:
        use_jax()
        with jax.transfer_guard("allow"):
            return function(*args, **options)

    return unguarded


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller's that called into the library, however deep in it we are."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_PACKAGES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
