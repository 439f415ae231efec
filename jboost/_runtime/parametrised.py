"""Callables with parameters: their numbers, which may change, apart from the code that a program is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np


class Code(NamedTuple):
    """All of a callable but its numbers; hashable."""

    structure: Any
    leaves: tuple[Any, ...]  # those that are no numbers; `_NUMBER` holds the place of one


@dataclass(frozen=True)
class _Number:
    def __repr__(self) -> str:
        return "<number>"


_NUMBER = _Number()


class Parametrised:
    """A callable taken apart and put together again by JAX: its arrays and floats are the leaves, the rest is static.

    The callable may be a function (all code), a `jax.tree_util.Partial`, an Equinox module, a Flax struct: any pytree.
    Whole numbers and booleans that are not in arrays count as code, for they may decide on shapes.
    """

    def __init__(self, numbers: tuple[Any, ...], code: Code):
        self.numbers, self.code = numbers, code

    def __call__(self, *args: Any) -> Any:
        """Call what was taken apart."""
        return self.whole(*args)

    def __repr__(self) -> str:
        """Show what was taken apart."""
        return repr(self.whole)

    @property
    def whole(self) -> Any:
        """The callable, with the numbers in their places."""
        numbers = iter(self.numbers)
        leaves = [next(numbers) if leaf is _NUMBER else leaf for leaf in self.code.leaves]
        return jax.tree.unflatten(self.code.structure, leaves)


jax.tree_util.register_pytree_node(
    Parametrised,
    lambda one: (one.numbers, one.code),
    lambda code, numbers: Parametrised(tuple(numbers), code),
)


def parametrised(function: Any) -> Parametrised:
    """Take a callable apart, unless it is already."""
    if isinstance(function, Parametrised):
        return function
    leaves, structure = jax.tree.flatten(function)
    numbers = tuple(leaf for leaf in leaves if _is_number(leaf))
    return Parametrised(
        numbers, Code(structure, tuple(_NUMBER if _is_number(leaf) else leaf for leaf in leaves))
    )


def equal(one: Any, other: Any) -> bool:
    """Compare two pytrees by value: the same structure, the same numbers."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    pairs = zip(leaves, others, strict=False)
    return structure == other_structure and all(a is b or np.array_equal(a, b) for a, b in pairs)


class ByValue:
    """A pytree that compares by value."""

    def __eq__(self, other: Any) -> bool:
        """Compare by value."""
        return type(other) is type(self) and equal(self, other)

    def __hash__(self) -> int:
        """Hash what a program is made of: the numbers in it may be traced."""
        return hash(jax.tree.structure(self))


def _is_number(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.dtype.kind not in "OSU"
    return isinstance(leaf, (jax.Array, np.inexact, float, complex))
