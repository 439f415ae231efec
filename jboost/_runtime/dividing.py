"""Rows that are divided among devices along an axis of a mesh: brought together, and taken apart again."""

from __future__ import annotations

from typing import Any

import jax
from jaxtyping import Array


def all_rows(tree: Any, axis: str | None) -> Any:
    """Bring the rows of all devices together on each of them, in their order; None: one device has them all."""
    return tree if axis is None else jax.lax.all_gather(tree, axis, tiled=True)


def own_rows(tree: Any, axis: str | None) -> Any:
    """Take the rows of this device from arrays of all rows."""

    def own(array: Array) -> Array:
        n_rows = array.shape[0] // jax.lax.axis_size(axis)
        return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(axis) * n_rows, n_rows)

    return tree if axis is None else jax.tree.map(own, tree)
