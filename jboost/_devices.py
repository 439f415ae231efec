"""The rows of a fit spread over several CPU devices: how plain JAX, whose scatters run on one core, uses them all.

Histograms, leaf sums and means are summed over the devices, in integers wherever the model depends on it, so the
model is the same, bit for bit, on any number of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from jboost._runtime import library
from jboost._runtime.typing import Reduce
from jboost._sampling import sample_rows

AXIS = "rows"
ROWS_PER_DEVICE = 2**12  # fewer are not worth the sums over devices


def reduce_over(axis: str | None) -> Reduce | None:
    """Return what sums an array over the devices along an axis; None where one device has all rows."""
    return None if axis is None else partial(jax.lax.psum, axis_name=axis)


def sample(key: Array, n_rows: int, fraction: Float[Array, ""], axis: str | None) -> Bool[Array, " n"]:
    """Draw for the rows of all devices, as one would, and take those that are here."""
    if axis is None:
        return sample_rows(key, n_rows, fraction)
    every = sample_rows(key, n_rows * jax.lax.axis_size(axis), fraction)
    return jax.lax.dynamic_slice_in_dim(every, jax.lax.axis_index(axis) * n_rows, n_rows)


def mesh_for(n_rows: int, needs_all_rows: bool) -> Mesh | None:
    """Return the devices among which rows are worth dividing, or None if one is to have them all."""
    if jax.default_backend() != "cpu" or library.in_use() or needs_all_rows:
        return None
    devices = jax.local_devices(backend="cpu")
    most = min(len(devices), n_rows // ROWS_PER_DEVICE)
    count = next((count for count in range(most, 1, -1) if n_rows % count == 0), 1)
    return Mesh(np.array(devices[:count]), (AXIS,)) if count > 1 else None


def divided(mesh: Mesh, chunk: Callable[..., Any], problem: Any, state: Any) -> Callable[..., Any]:
    """Run a chunk of rounds, (problem, state, n_rounds) -> (state, ...), with the training rows divided."""
    of_problem = dataclasses.replace(
        jax.tree.map(lambda _: P(), problem),
        bins=P(None, AXIS),
        train=jax.tree.map(lambda _: P(AXIS), problem.train),
    )
    of_state = dataclasses.replace(jax.tree.map(lambda _: P(), state), score=P(AXIS))
    return jax.shard_map(
        chunk, mesh=mesh, in_specs=(of_problem, of_state, P()), out_specs=(of_state, P(), P(), P())
    )
