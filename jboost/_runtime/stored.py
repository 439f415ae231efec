"""Compiled programs kept on disk for the next process of the same user, on a CPU.

A file holds what XLA made of one program. Its name is a hash of the program's text and of all that the machine code
depends on: versions, the C++ library, processor, flags and settings. So another machine or version finds nothing.

Loading a file runs what is in it. Therefore files are read only from a folder that belongs to the user and that nobody
else can write to or replace. Whatever goes wrong, the program is compiled as if there were no folder.

The environment variable JBOOST_CACHE=0 turns the cache off; a path there is used instead of the default folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import platform
import re
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jaxlib.version

from jboost._runtime import library

MAX_BYTES = 64 << 20  # of all files; a fit of another shape or loss takes about 0.7 MB
STALE_SECONDS = 3600.0  # after which an unfinished file was left by a process that died
SUFFIX = ".program"
DIGEST = hashlib.sha256().digest_size
# Functions outside of the program that it may call, found by name; others may be addresses in this process.
CALLED = re.compile(r"custom_call\s*@(?:jboost_|lapack_)\w+\b")
NOT_FOR_STORING = re.compile(r"custom_call|stablehlo\.(?:infeed|outfeed|send|recv)\b")

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


def compiled(lowered: Any, about: Any) -> Callable[..., Any]:
    """Return the program, from disk if it is there; otherwise compile it and put it there.

    Parameters
    ----------
    lowered : jax.stages.Lowered
        The program, with no argument left out.
    about : object
        What else it depends on: types and places of the arguments, settings; by its `repr`.
    """
    path = _or_none(lambda: _path_for(lowered, about))
    found = path and _or_none(lambda: _load(path, lowered))
    if found is not None:
        return found
    made = lowered.compile()
    # What JAX has read from a file cannot be written to another.
    if path is not None and not _jax_stores_itself():
        _or_none(lambda: _write(path, _serialize(made)))
    return made


def _or_none(function: Callable[[], _T]) -> _T | None:
    """Call it; whatever goes wrong, the program can be compiled."""
    try:
        return function()
    except Exception as error:
        _log.info("stored programs: %s: %s", type(error).__name__, error)
        return None


# ------------------------------------------------------------ which program


def _path_for(lowered: Any, about: Any) -> Path | None:
    """Return the file of a program, or None if it should not be stored."""
    folder = find_folder()
    if folder is None or jax.default_backend() != "cpu" or len(jax.devices()) > 1:
        return None
    text = lowered.as_text()
    if len(CALLED.findall(text)) != len(NOT_FOR_STORING.findall(text)):
        return None
    results = [(one.shape, one.dtype, one.weak_type) for one in jax.tree.leaves(lowered.out_info)]
    # Types of arguments and results beside the text: it does not say which numbers are weakly typed or keys.
    parts = (text, about, results, *_surroundings())
    return folder / (hashlib.sha256("\0".join(map(repr, parts)).encode()).hexdigest() + SUFFIX)


def _surroundings() -> tuple[Any, ...]:
    """Return what machine code depends on beside the program."""
    device = jax.devices()[0]
    return (
        *_versions(),
        device.client.platform_version,
        device.device_kind,
        os.environ.get("XLA_FLAGS", ""),
        os.cpu_count(),
        library.n_threads(None),
    )


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Return what stays the same in a process: versions, the C++ library, the processor."""
    path = library.path()
    native = "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    return (
        sys.version,
        jax.__version__,
        jaxlib.version.__version__,
        native,
        platform.machine(),
        _processor(),
    )


def _processor() -> str:
    """Name the processor and what it can do."""
    try:
        with open("/proc/cpuinfo") as lines:
            about = [line for line in iter(lines.readline, "\n") if line.strip()]
    except OSError:
        return f"{platform.processor()} {platform.version()}"
    named = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "".join(line for line in about if line.startswith(named) and "MHz" not in line)


def _jax_stores_itself() -> bool:
    values = jax.config.values
    return bool(values["jax_enable_compilation_cache"] and values["jax_compilation_cache_dir"])


# ------------------------------------------------------------ which folder


def find_folder() -> Path | None:
    """Return the folder of stored programs, made if need be; None if it is turned off or not safe."""
    chosen = os.environ.get("JBOOST_CACHE", "")
    if chosen == "0" or not hasattr(os, "getuid"):
        return None
    try:
        folder = Path(chosen) if chosen else _default_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = folder.resolve()
    except (OSError, RuntimeError):  # read-only, or no home
        return None
    return folder if _is_mine_alone(folder) else None


def _default_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "jboost"
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "jboost"


def _is_mine_alone(folder: Path) -> bool:
    """Say whether nobody else (but the system's administrator) can write to the folder, or put another in its place."""
    own = folder.stat()
    if own.st_uid != os.getuid() or own.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    for parent in folder.parents:
        about = parent.stat()
        shared = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX
        if shared or about.st_uid not in (0, os.getuid()):
            return False
    return True


# ------------------------------------------------------------ files


def _load(path: Path, lowered: Any) -> Callable[..., Any] | None:
    """Read a program; None if there is none, or it is not what was written."""
    from jax.experimental import serialize_executable

    try:
        held = path.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(held[DIGEST:]).digest() != held[:DIGEST]:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return serialize_executable.deserialize_and_load(held[DIGEST:], lowered.in_tree, lowered.out_tree)


def _serialize(made: Any) -> bytes:
    from jax.experimental import serialize_executable

    payload = serialize_executable.serialize(made)[0]
    return hashlib.sha256(payload).digest() + payload


def _write(path: Path, content: bytes) -> None:
    """Write a file in one step, so that other processes see all of it or nothing, and make room for it before."""
    if len(content) > MAX_BYTES // 4:
        return
    _make_room(path.parent, MAX_BYTES - len(content))
    number, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _make_room(folder: Path, allowed: int) -> None:
    """Remove the least recently used files until the others take no more than is allowed."""
    found = []
    for entry in os.scandir(folder):
        with contextlib.suppress(OSError):  # another process may have removed it
            about = entry.stat()
            if entry.name.endswith(SUFFIX):
                found.append((about.st_mtime, about.st_size, entry.path))
            elif entry.name.endswith(".part") and about.st_mtime < time.time() - STALE_SECONDS:
                os.unlink(entry.path)
    for _, size, path in sorted(found, reverse=True):
        allowed -= size
        if allowed < 0:
            with contextlib.suppress(OSError):
                os.unlink(path)
