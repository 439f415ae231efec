"""Second derivatives of a mean loss by differences of its slope, where JAX cannot differentiate twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

LONGER = 16.0  # times the step before
HALVINGS = 3  # at most: the step before the last was too short
A_LOT = 1 / 8  # of the size of a slope: a change of so much is that of another place


class _Difference(NamedTuple):
    step: Float[Array, ""]
    count: Int[Array, ""]
    change: Float[Array, " k"]
    width: Float[Array, ""]  # of what lies between both places, rounded


def hessian_by_differences(
    slope_at: Callable[[Float[Array, " k"]], Float[Array, " k"]],
    place: Float[Array, " k"],
    size: Float[Array, " k"],
) -> Float[Array, "k k"]:
    """Return the symmetric matrix of central differences of a slope around a place.

    Nothing is known of the units of the scores. So steps grow, output by output, from the rounding of a score until the
    slope by it changes by the root of the rounding of its `size`, that of the terms it is a mean of: half of the digits
    of a difference are then right. Where the last of them goes far beyond, as on an exponential, it is halved. Where no
    step changes the slope, 0 is returned.
    """
    rounding = float(jnp.finfo(place.dtype).eps)
    longest = float(jnp.finfo(place.dtype).max) ** 0.5

    def column(unit: Float[Array, " k"]) -> Float[Array, " k"]:
        own_size = jnp.sum(unit * size)

        def of_step(step: Array, count: Array) -> _Difference:
            low, high = place - step * unit, place + step * unit
            return _Difference(step, count, slope_at(high) - slope_at(low), jnp.sum(high - low))

        def changes_by(share: float, found: _Difference) -> Array:
            return ~(jnp.abs(jnp.sum(unit * found.change)) < share * own_size)  # also where it overflows

        def is_short(found: _Difference) -> Array:
            return ~changes_by(rounding**0.5, found) & (found.step < longest)

        def is_long(found: _Difference) -> Array:
            return changes_by(A_LOT, found) & (found.count < HALVINGS)

        none = jnp.asarray(0)
        shortest = rounding * jnp.sum(unit * jnp.abs(place)) + rounding**2
        found = _Difference(shortest, none, jnp.zeros_like(place), jnp.ones_like(shortest))
        found = jax.lax.while_loop(is_short, lambda one: of_step(LONGER * one.step, one.count + 1), found)
        found = found._replace(count=none)
        found = jax.lax.while_loop(is_long, lambda one: of_step(one.step / 2, one.count + 1), found)
        return found.change / found.width

    columns = jax.lax.map(column, jnp.eye(place.size, dtype=place.dtype))
    return (columns + columns.T) / 2
