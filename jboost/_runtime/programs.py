"""Compiled functions of the library, of which a process keeps a bounded number, least recently used first to go.

A compiled program takes about a hundred memory maps, of which Linux gives a process 65,530; without any left JAX ends
by a segmentation fault. `jax.jit` keeps programs as long as the function lives, with all that a loss has captured. So
the functions that are compiled with a user's functions in them are made here: each program has a function object of its
own, to which JAX ties what it keeps, and when that is dropped, so are the program, its traces and its constants.
"""

from __future__ import annotations

import functools
import gc
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jboost._runtime import library, stored
from jboost._runtime.garbage import uncollected
from jboost._runtime.naming import name_of
from jboost._runtime.typing import is_traced

MAX_PROGRAMS = 128  # of all functions together; one takes 1 to 8 MB
MAX_MAPS = 30_000  # memory maps of the process, beyond which half of the programs go; one takes up to 900
# With one of these settings JAX must run the function itself: a finished program knows nothing of them.
WATCHED = (
    "jax_disable_jit",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_check_tracer_leaks",
    "jax_debug_key_reuse",
    "jax_no_execution",
    "jax_enable_pgle",
)

# Of JAX's settings any may change what a function is traced to, but for these.
_UNRELATED = re.compile("cache|log|traceback|transfer_guard")
_SETTINGS = tuple(name for name in sorted(jax.config.values) if not _UNRELATED.search(name))

_lock = threading.RLock()
_kept: OrderedDict[tuple[Any, ...], Callable[..., Any] | Future[Callable[..., Any]]] = OrderedDict()


def program(function: Callable[..., Any] | None = None, *, static_argnums: int | Sequence[int] = ()) -> Any:
    """Compile a function for the types of its arguments, as `jax.jit` does, with a bounded number of programs kept.

    Parameters
    ----------
    function : callable
        Of positional arguments; pytrees may hold functions as static fields.
    static_argnums : int or sequence of int
        Arguments that are hashable and part of the program.

    Returns
    -------
    callable
        Of positional arguments; its `__wrapped__` is the function itself, its `prepare` compiles ahead, and its `begin`
        starts to.

    Examples
    --------
    >>> @program
    ... def twice(x):
    ...     return 2 * x
    >>> float(twice(4.0))
    8.0
    """
    if function is None:
        return functools.partial(program, static_argnums=static_argnums)
    return _Program(function, {static_argnums} if isinstance(static_argnums, int) else set(static_argnums))


class _Program:
    """A function that is compiled when it is called."""

    def __init__(self, function: Callable[..., Any], static: set[int]) -> None:
        self._function, self._static = function, static
        functools.update_wrapper(self, function)

    def __call__(self, *arguments: Any) -> Any:
        wanted = self._wanted(arguments)
        found = _find(wanted.key)
        if found is None:
            found = wanted.made() if wanted.is_plain else wanted.begun()()
            _keep(wanted.key, found)
        return found(*wanted.leaves)

    def begin(self, *arguments: Any) -> None:
        """Trace it for such arguments, and compile it in another thread, for a call soon after."""
        wanted = self._wanted(arguments)
        if not wanted.is_plain and wanted.key not in _kept:
            _keep(wanted.key, _in_a_thread(wanted.begun()))

    def prepare(self, *arguments: Any) -> None:
        """Compile it for such arguments, so that a call soon after need not."""
        wanted = self._wanted(arguments)
        if not wanted.is_plain and _find(wanted.key) is None:
            _keep(wanted.key, wanted.begun()())

    def is_kept(self, *arguments: Any) -> bool:
        """Say whether a call with such arguments compiles nothing."""
        return self._wanted(arguments).key in _kept

    def _wanted(self, arguments: tuple[Any, ...]) -> _Wanted:
        fixed = tuple((i, one) for i, one in enumerate(arguments) if i in self._static)
        given = tuple(one for i, one in enumerate(arguments) if i not in self._static)
        return _Wanted(self._function, fixed, *jax.tree.flatten(given))


class _Wanted:
    """A program that is asked for: what it is known by, and how it is made."""

    def __init__(
        self,
        function: Callable[..., Any],
        fixed: Sequence[tuple[int, Any]],
        leaves: list[Any],
        structure: Any,
    ) -> None:
        values = jax.config.values
        self.leaves = leaves
        # By a transformation, which must find a function that JAX compiles.
        self.is_plain = is_traced(leaves) or any(values.get(name) for name in WATCHED)
        kinds = None if self.is_plain else tuple(map(_kind, leaves))
        self._about = kinds, tuple(map(values.get, _SETTINGS)), library.in_use()
        self._parts = function, fixed, structure
        self.key = (*self._parts, *self._about)

    def made(self) -> Callable[..., Any]:
        return _made(*self._parts)

    def begun(self) -> Callable[[], Callable[..., Any]]:
        """Trace it here and now; return what compiles it."""
        lower = functools.partial(self.made().lower, *self.leaves)  # type: ignore[attr-defined]
        with uncollected():
            return stored.begun(lower, tuple(self.leaves), self._about, name_of(*self._parts))


def _in_a_thread(work: Callable[[], Callable[..., Any]]) -> Future[Callable[..., Any]]:
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return future


def forget_all() -> None:
    """Drop every program."""
    with _lock:
        _kept.clear()
    gc.collect()


def n_programs() -> int:
    """Return how many are kept."""
    return len(_kept)


def _made(function: Callable[..., Any], fixed: Sequence[tuple[int, Any]], structure: Any) -> Any:
    """Give JAX a new function of arrays alone: it would hold on to the structure of arguments, and losses in it."""

    def run(*leaves: Any) -> Any:
        arguments = list(jax.tree.unflatten(structure, leaves))
        for place, value in fixed:  # in ascending order
            arguments.insert(place, value)
        return function(*arguments)

    run.__name__ = run.__qualname__ = function.__name__
    # Not with keep_unused=True: since 0.11 JAX has a cache in which such a function, with all that it has captured, is
    # the value for a weak reference to itself, and so is never forgotten.
    return jax.jit(run)


def _find(key: tuple[Any, ...]) -> Callable[..., Any] | None:
    with _lock:
        if key not in _kept:
            return None
        _kept.move_to_end(key)
        found = _kept[key]
    if not isinstance(found, Future):
        return found
    try:
        made = found.result()
    except Exception:  # to be raised by the thread that asks
        made = None
    with _lock:
        if made is None:
            _kept.pop(key, None)
        elif key in _kept:
            _kept[key] = made
    return made


def _keep(key: tuple[Any, ...], made: Callable[..., Any] | Future[Callable[..., Any]]) -> None:
    """Keep a program, and drop those that were not used for longest if there are too many.

    An eighth goes at once: to look for garbage takes as long as to compile a small program.
    """
    with _lock:
        is_short, most = _n_maps() > MAX_MAPS, len(_kept)
        if is_short:
            most = len(_kept) // 2
        elif len(_kept) >= MAX_PROGRAMS:
            most = MAX_PROGRAMS - max(MAX_PROGRAMS // 8, 1)
        dropped = len(_kept) > most
        while len(_kept) > most:
            _kept.popitem(last=False)
        _kept[key] = made
    if dropped:
        gc.collect()  # functions and traces of JAX refer to each other
    if is_short and _n_maps() > MAX_MAPS:  # others, or JAX itself, hold on to programs
        jax.clear_caches()
        gc.collect()


def _n_maps() -> int:
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:  # not Linux, which alone is so strict
        return 0


def _kind(leaf: Any) -> Hashable:
    """Return what a program must know of an array or a number."""
    if isinstance(leaf, jax.Array):
        return leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False), leaf.sharding, leaf.committed
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.shape, leaf.dtype
    return type(leaf)
