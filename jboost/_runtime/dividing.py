"""Rows that are divided among devices along an axis of a mesh: brought together, and taken apart again."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
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


def check_not_explicit(**arguments: Any) -> None:
    """Raise if a traced argument is divided over an axis of a mesh whose shardings are part of JAX's types.

    How the results of a round are divided only the partitioner works out, which it does along axes of type Auto.
    """
    for name, value in arguments.items():
        for leaf in jax.tree.leaves(value):
            if not isinstance(leaf, jax.core.Tracer):
                continue
            spec = jax.typeof(leaf).sharding.spec  # of axes of type Auto it says nothing
            if any(axis is not None for axis in spec):
                raise ValueError(
                    f"{name} must not be divided over an explicit axis of a mesh under jit, got {spec}: make the mesh "
                    "with axis_types=(jax.sharding.AxisType.Auto,), or jit "
                    "jax.sharding.auto_axes(function, out_sharding=...) of your function"
                )
