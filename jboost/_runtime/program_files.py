"""The folder of stored programs: one that belongs to the user alone, of files that are whole, and not too many.

Loading a program runs what is in its file. Therefore files are read only from a folder that belongs to the user and
that nobody else can write to or replace.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
import tempfile
import time
from pathlib import Path

MAX_BYTES = 64 << 20  # of all files; a fit of another shape or loss takes about 0.7 MB
STALE_SECONDS = 3600.0  # after which an unfinished file was left by a process that died
SUFFIX = ".program"
DIGEST = hashlib.sha256().digest_size


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


def read(path: Path) -> bytes | None:
    """Return what was written; None if there is nothing, or something else."""
    try:
        held = path.read_bytes()
    except FileNotFoundError:
        return None
    if hashlib.sha256(held[DIGEST:]).digest() != held[:DIGEST]:
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # the least recently used go first
    return held[DIGEST:]


def write(path: Path, content: bytes) -> None:
    """Write a file in one step, so that other processes see all of it or nothing, and make room for it before."""
    if len(content) > MAX_BYTES // 4:
        return
    _make_room(path.parent, MAX_BYTES - len(content))
    number, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
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
