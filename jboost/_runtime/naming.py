"""Names for programs that are made of the library's own code alone: they are known before anything is traced.

A function of the library is named by its place, and the content of the library's files goes into the name of what is
stored. A user's function may be anything: what holds one has no name here, and its program is known by its text.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax

OWN = "jboost"
TRUSTED = (OWN, "jax")  # whose code is told apart by files or by version
_PLAIN = (type(None), bool, int, float, str, bytes)


class _NamelessError(Exception):
    """It holds something that is not the library's own."""


def name_of(function: Callable[..., Any], fixed: Sequence[tuple[int, Any]], structure: Any) -> str | None:
    """Return what tells a program from all others with arguments of the same types; None if that takes its text.

    Parameters
    ----------
    function : callable
        What is compiled.
    fixed : sequence of (int, object)
        Its static arguments, by place.
    structure : PyTreeDef
        That of the others.
    """
    place = f"{function.__module__}.{function.__qualname__}"
    if _root(function.__module__) != OWN or "<" in place:
        return None
    try:
        return repr((place, _described(tuple(fixed)), _described(structure)))
    except _NamelessError:
        return None


def _described(part: Any) -> Any:
    """Return nested tuples of words that say the same of equal objects, in every process."""
    if type(part) in _PLAIN:
        return type(part).__name__, repr(part)
    if isinstance(part, jax.tree_util.PyTreeDef):
        return "structure", _described(part.node_data()), tuple(map(_described, part.children()))
    if isinstance(part, functools.partial):
        return "partial", *map(_described, (part.func, part.args, sorted(part.keywords.items())))
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        held = [getattr(part, one.name) for one in dataclasses.fields(part) if one.compare]
        return "object", _place(type(part)), tuple(map(_described, held))
    if isinstance(part, tuple | list):
        of = type(part).__name__ if type(part) in (tuple, list) else _place(type(part))
        return of, tuple(map(_described, part))
    return "place", _place(part)


def _place(part: Any) -> str:
    """Return where a function or class of the library or of JAX is found; raise unless it is found there."""
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if isinstance(part, type) and module == "builtins":
        return part.__name__
    if not isinstance(module, str) or not isinstance(name, str) or _root(module) not in TRUSTED:
        raise _NamelessError
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        raise _NamelessError from None
    if found is not part:
        raise _NamelessError
    return f"{module}.{name}"


def _root(module: str) -> str:
    return module.partition(".")[0]
