"""The numbers of a loss by name: what descent moves, in every function of the loss that holds them."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial, keystr

from jboost._runtime.parametrised import Parametrised
from jboost._runtime.typing import as_array

OTHERS = (
    "curvature",
    "constant",
    "diagonal",
    "majorant",
    "adapt",
)  # functions that a loss may bring beside its own


def numbers_of(loss: Any) -> dict[str, Any]:
    """Return the floats, and arrays of floats, that the function of a loss holds, as arrays by their names.

    Raises
    ------
    ValueError
        Where there are none, or the leaf rule has some, which would not follow.
    """
    found = {name: as_array(leaf, float) for name, leaf in _named(loss.function) if _is_float(leaf)}
    if not found:
        raise ValueError(
            "loss must hold floats or arrays to be moved, as jboost.losses.huber(1.0) or a jax.tree_util.Partial does, "
            "got one without"
        )
    if any(map(_is_float, jax.tree.leaves(loss.leaf))):
        raise ValueError(
            f"loss must find its leaves by Newton steps to be moved: its leaf rule {loss.leaf!r} has numbers of its own"
        )
    return found


def with_numbers(loss: Any, numbers: dict[str, Any]) -> Any:
    """Return the loss with other numbers, in its function and in those beside it that hold numbers of these names."""
    parts = {name: getattr(loss, name) for name in ("function", *OTHERS)}
    changed = {name: _replaced(part, numbers) for name, part in parts.items() if part is not None}
    return dataclasses.replace(loss, **changed)


def _taken_apart(part: Any) -> tuple[Any, Any]:
    """Return a callable, and the pytree of what it holds: of a Partial, its arguments."""
    whole = part.whole if isinstance(part, Parametrised) else part
    return whole, (whole.args, whole.keywords) if isinstance(whole, Partial) else whole


def _named(part: Any) -> list[tuple[str, Any]]:
    whole, held = _taken_apart(part)
    found, _ = jax.tree_util.tree_flatten_with_path(held)
    skipped = int(isinstance(whole, Partial))  # whether it is an argument with a name or one without
    return [(keystr(path[skipped:], simple=True, separator="."), leaf) for path, leaf in found]


def _replaced(part: Any, numbers: dict[str, Any]) -> Any:
    names = [name for name, leaf in _named(part) if _is_float(leaf) and name in numbers]
    if not names:
        return part
    whole, held = _taken_apart(part)
    leaves = [numbers[name] if name in names else leaf for name, leaf in _named(part)]
    held = jax.tree.unflatten(jax.tree.structure(held), leaves)
    return Partial(whole.func, *held[0], **held[1]) if isinstance(whole, Partial) else held


def _is_float(leaf: Any) -> bool:
    if isinstance(leaf, float):
        return True
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
