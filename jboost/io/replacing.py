"""Replace a file as a whole: written beside it, then moved over it. What killed processes left is cleared away."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nothing is cleared there
    fcntl = None

_PREFIX, _SUFFIX = ".jboost-", ".tmp"


@contextlib.contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Open a new file beside the one at `path`, which it replaces once it is complete and on the disk.

    A symbolic link stays one: the file that it leads to is replaced.
    """
    target, temporary = os.path.realpath(path), None
    try:
        _check_replaceable(target)
        clear_abandoned(os.path.dirname(target))
        temporary, file = _new_file(os.path.dirname(target))
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.path.exists(target):
                shutil.copymode(target, temporary)
            if fcntl is not None:  # it is moved under its lock, so that nobody takes it for an abandoned one
                os.replace(temporary, target)
        if fcntl is None:
            os.replace(temporary, target)
    except BaseException as error:  # an interrupt too leaves nothing behind
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):  # the temporary file would mean nothing to the reader of the message
            raise OSError(error.errno, f"cannot save here: {error.strerror}", path) from error
        raise


def clear_abandoned(folder: str) -> None:
    """Delete the temporary files in a folder that no process is writing, as far as that is allowed.

    Whoever writes one holds its lock, which the system takes back when the process ends, however it ends.
    """
    if fcntl is None:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_PREFIX) and entry.name.endswith(_SUFFIX):
                with contextlib.suppress(OSError), open(entry.path, "r+b") as file:
                    _lock(file)
                    os.unlink(entry.path)


def _new_file(folder: str) -> tuple[str, BinaryIO]:
    """Make a temporary file and lock it, before another process can take it for an abandoned one."""
    while True:
        path = os.path.join(folder, f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
        file = open(path, "xb")  # noqa: SIM115
        try:
            _lock(file)
            if os.path.exists(path):
                return path, file
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks, where nothing is cleared either
            return path, file
        file.close()  # another process was faster: it deletes the file


def _lock(file: BinaryIO) -> None:
    """Lock a file until it is closed; BlockingIOError if another process has the lock."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _check_replaceable(target: str) -> None:
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, "expected the name of a file, got a folder")
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(errno.EINVAL, "expected the name of a file, got a device or a pipe")
    if os.path.exists(target) and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is write-protected")
