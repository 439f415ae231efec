"""The rows of a fit spread over several CPU devices: how plain JAX, whose scatters run on one core, uses them all.

Histograms, leaf sums and means are summed over the devices, in integers wherever the model depends on it, so the
model is the same, bit for bit, on any number of them. What needs all rows at once, such as the derivatives of a loss of
groups, each device computes for all, as one would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jboost._objective.rows import map_rows
from jboost._runtime import library
from jboost._runtime.typing import Reduce

AXIS = "rows"
ROWS_PER_DEVICE = 2**12  # fewer are not worth the sums over devices


def reduce_over(axis: str | None) -> Reduce | None:
    """Return what sums an array over the devices along an axis; None where one device has all rows."""
    return None if axis is None else partial(jax.lax.psum, axis_name=axis)


def n_devices(axis: str | None) -> int:
    """Return how many devices hold rows along an axis."""
    return 1 if axis is None else jax.lax.axis_size(axis)


def mesh_for(n_rows: int) -> Mesh | None:
    """Return the devices among which rows are worth dividing, or None if one is to have them all."""
    if jax.default_backend() != "cpu" or library.in_use():
        return None
    devices = jax.local_devices(backend="cpu")
    most = min(len(devices), n_rows // ROWS_PER_DEVICE)
    count = next((count for count in range(most, 1, -1) if n_rows % count == 0), 1)
    return Mesh(np.array(devices[:count]), (AXIS,)) if count > 1 else None


def placed(mesh: Mesh | None, state: Any) -> Any:
    """Lay the state of a fit out as a chunk returns it, or the second would be another program."""
    if mesh is None:
        return state
    places = jax.tree.map(lambda spec: NamedSharding(mesh, spec), _of_state(state))
    return jax.device_put(state, places)


def divided(mesh: Mesh, chunk: Callable[..., Any], problem: Any, state: Any) -> Callable[..., Any]:
    """Run a chunk of rounds, (problem, state, n_rounds) -> (state, ...), with the training rows divided."""
    of_problem = dataclasses.replace(
        jax.tree.map(lambda _: P(), problem),
        bins=P(None, AXIS),
        train=map_rows(lambda _: P(AXIS), lambda _: P(), problem.train),
    )
    of_state = _of_state(state)

    def on_a_device(problem: Any, state: Any, n_rounds: Any) -> Any:
        train = dataclasses.replace(problem.train, axis=AXIS)
        return chunk(dataclasses.replace(problem, train=train), state, n_rounds)

    return jax.shard_map(
        on_a_device,
        mesh=mesh,
        in_specs=(of_problem, of_state, P()),
        out_specs=(of_state, P(), P(), P(), P(), P()),
        check_vma=False,  # JAX would have the loops in a user's function start from arrays that vary over devices
    )


def _of_state(state: Any) -> Any:
    return dataclasses.replace(jax.tree.map(lambda _: P(), state), score=P(AXIS))
