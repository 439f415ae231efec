"""The curvature of a loss ahead of where boosting starts: how a row bends as far as it would go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._fixed_point.quantise import power_of_two
from jboost._objective.derivatives import NOISE, NUDGE, ROUNDING, Expansion, any_of, value_by_row
from jboost._objective.rows import Rows

SUFFICIENT = 0.45  # of what the slope promises, half of which is kept on a parabola
NEARLY = 63 / 64  # of a step is looked at: all of it may by luck leave a residual of exactly 0
MOST = 24  # times that a step is halved


def bends_ahead(
    loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows, alone: bool
) -> tuple[Float[Array, "n #k"], Float[Array, "n k"]]:
    """Return the binary logarithm of how much more than h each row bends, and how much it has to say of it.

    It bends as h over the share of its own Newton step that the row accepts, of all outputs together or of each alone.
    Where a class or an event is rare h alone is next to 0 in all rows, and a penalty in units of it would be none. A
    row says as much of an output, 0 to 1, as this has a part in the slope of its step, and nothing at a kink.
    """
    parts = _parts_of_slope(at.g, at.h, alone)
    if loss.hessian == "first_order":
        return jnp.zeros_like(score[:, :1]), parts
    halvings, accepted = (_of_each_output if alone else _of_all)(
        *jax.lax.stop_gradient((loss, score, at, rows))
    )
    return halvings, jnp.where(accepted, parts, 0)


def _of_all(
    loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows
) -> tuple[Float[Array, "n 1"], Bool[Array, "n 1"]]:
    halvings, accepted = _halvings(loss, lambda score: value_by_row(loss, score, rows), score, at, rows)
    return halvings[:, None], accepted[:, None]


def _of_each_output(
    loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows
) -> tuple[Float[Array, "n k"], Bool[Array, "n k"]]:
    """Do so with the scores of the other outputs as they are, an output at a time, so that memory stays at n k."""

    def of_output(j: Array) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
        is_own = (jnp.arange(score.shape[1], dtype=j.dtype) == j)[None]

        def value(column: Float[Array, "n 1"]) -> Float[Array, " n"]:
            return value_by_row(loss, jnp.where(is_own, column, score), rows)

        own, g, h = (jax.lax.dynamic_slice_in_dim(each, j, 1, axis=1) for each in (score, at.g, at.h))
        return _halvings(loss, value, own, Expansion(at.value, g, h), rows)

    halvings, accepted = jax.lax.map(of_output, jnp.arange(score.shape[1], dtype=jnp.int32))
    return halvings.T, accepted.T


class _Halving(NamedTuple):
    """How often the step of each row was halved, which are left to try, and how the loss of each row is rounded."""

    halvings: Float[Array, " n"]
    rejected: Bool[Array, " n"]
    noise: Float[Array, " n"]
    n_passes: Array


def _halvings(
    loss: Any,
    value: Callable[[Float[Array, "n k"]], Float[Array, " n"]],
    score: Float[Array, "n k"],
    at: Expansion,
    rows: Rows,
) -> tuple[Float[Array, " n"], Bool[Array, " n"]]:
    """Return how often each row halves its own Newton step, and whether it then accepts it.

    A row accepts what lowers its loss by nearly half of what the slope promises, as the whole step would on a parabola
    (Armijo 1966); at a kink it never does. The rows of a group, or of a batch, take their steps together. A power of
    two carries no derivative.

    The first two passes move the scores by next to nothing and see how far the loss is from its expansion there.
    """
    eps = jnp.finfo(score.dtype).eps
    step = -NEARLY * _newton_step(at.g, at.h)
    slope, size = (loss.joined(one, rows) for one in ((at.g * step).sum(axis=1), jnp.abs(at.value)))

    def halve(state: _Halving) -> _Halving:
        halvings, rejected, noise, n_passes = state
        measures, share = n_passes < 2, power_of_two(-halvings, score.dtype)
        nudge = jnp.where(n_passes == 0, NUDGE * eps, -NUDGE * eps).astype(score.dtype) * score
        moved = jnp.where(measures, nudge, share[:, None] * step)
        change = loss.joined(value(score + moved) - at.value, rows)
        expected = (at.g * moved + at.h * jnp.square(moved) / 2).sum(axis=1)
        off = jnp.abs(change - loss.joined(expected, rows))
        noise = jnp.where(measures & jnp.isfinite(off), jnp.maximum(noise, off), noise)
        rounding = ROUNDING * eps * size + NOISE * noise
        rejected = rejected & (measures | ~(change <= SUFFICIENT * share * slope + rounding))
        more = (rejected & ~measures).astype(halvings.dtype)
        return _Halving(halvings + more, rejected, noise, n_passes + 1)

    def goes_on(state: _Halving) -> Array:
        return any_of(state.rejected & (state.halvings < MOST))

    none = jnp.zeros_like(slope)
    start = _Halving(none, slope < 0, none, jnp.asarray(0, jnp.int32))
    halvings, rejected, _, _ = jax.lax.while_loop(goes_on, halve, start)
    return halvings, ~rejected


def _newton_step(g: Float[Array, "n k"], h: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return g / h, and 0 where there is no curvature."""
    return jnp.where(h > 0, g / jnp.where(h > 0, h, 1), 0)


def _parts_of_slope(g: Float[Array, "n k"], h: Float[Array, "n k"], alone: bool) -> Float[Array, "n k"]:
    """Return which part each output has in the slope of a row's step."""
    if alone or g.shape[1] == 1:
        return ((g != 0) & (h > 0)).astype(g.dtype)
    slopes = g * _newton_step(g, h)
    slope = slopes.sum(axis=1, keepdims=True)
    return jnp.where(slope > 0, slopes / jnp.where(slope > 0, slope, 1), 0)
