"""The rows of a fit spread over several CPU devices: how plain JAX, whose scatters run on one core, uses them all.

Histograms, leaf sums and means are summed over the devices, in integers wherever the model depends on it, so the
model is the same, bit for bit, on any number of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Bool, Float

from jboost._objective.loss import Quantile
from jboost._runtime import library
from jboost._sampling import sample_rows

AXIS = "rows"
ROWS_PER_DEVICE = 2**12  # fewer are not worth the sums over devices


def reduce(partial_sum: Array) -> Array:
    """Sum over the devices."""
    return jax.lax.psum(partial_sum, AXIS)


def sample(key: Array, n_rows: int, fraction: Float[Array, ""]) -> Bool[Array, " n"]:
    """Draw for all rows, as one device would, and take those that are here."""
    every = sample_rows(key, n_rows * jax.lax.axis_size(AXIS), fraction)
    return jax.lax.dynamic_slice_in_dim(every, jax.lax.axis_index(AXIS) * n_rows, n_rows)


def mesh_for(problem: Any) -> Mesh | None:
    """Return the devices among which the rows are worth dividing, or None if one is to have them all."""
    if jax.default_backend() != "cpu" or not isinstance(library.load(), str):
        return None
    if isinstance(problem.loss.leaf, Quantile):
        return None  # a quantile needs all rows in one place
    n_rows, devices = problem.train.weight.size, jax.local_devices(backend="cpu")
    most = min(len(devices), n_rows // ROWS_PER_DEVICE)
    count = next((count for count in range(most, 1, -1) if n_rows % count == 0), 1)
    return Mesh(np.array(devices[:count]), (AXIS,)) if count > 1 else None


def over(mesh: Mesh, chunk: Callable[..., Any], problem: Any, state: Any) -> Callable[..., Any]:
    """Run a chunk of rounds, (problem, state, n_rounds) -> (state, ...), with the training rows divided."""
    of_rows = jax.tree.map(lambda _: P(AXIS), problem.train)
    rows = dataclasses.replace(of_rows, bins=P(None, AXIS))
    of_problem = dataclasses.replace(jax.tree.map(lambda _: P(), problem), train=rows)
    of_state = dataclasses.replace(jax.tree.map(lambda _: P(), state), score=P(AXIS))
    return jax.shard_map(
        chunk, mesh=mesh, in_specs=(of_problem, of_state, P()), out_specs=(of_state, P(), P(), P())
    )
