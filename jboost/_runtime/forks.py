"""Children of a fork: JAX's threads do not live on in them, so that whatever they compute would never end."""

from __future__ import annotations

import os
import sys

_FORKED = (
    "jboost cannot compute in a process that was forked after JAX was used: JAX's threads are missing here, and it "
    "would hang. Start processes anew, by multiprocessing.get_context('spawn') or joblib's loky, or fork before "
    "JAX is used"
)

_used = False  # by us, in this process or one that it was forked from
_stranded = False


def use_jax() -> None:
    """Take note that JAX is about to be used; raise where it would hang.

    Raises
    ------
    RuntimeError
        In a process that was forked after JAX was used.
    """
    global _used
    if _stranded:
        raise RuntimeError(_FORKED)
    _used = True


def _was_used() -> bool:
    """Say whether JAX has started, which it tells no one officially: by us, or, where it can be seen, by others."""
    started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    return _used or (callable(started) and bool(started()))


def _before_fork() -> None:
    """Look in the parent: in the child a lock could be held by a thread that is no more."""
    global _used
    _used = _was_used()


def _in_child() -> None:
    global _stranded
    _stranded = _used


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)
