"""The curvature of a loss ahead of where boosting starts: how a row bends as far as it would go."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._objective.derivatives import Expansion, any_of, value_by_row
from jboost._objective.rows import Rows

SUFFICIENT = 0.45  # of what the slope promises, half of which is kept on a parabola
SHORTEST = 2.0**-24  # share of a step that is tried
CLOSE = 2.0**-8  # relative: so near the largest share is found
ROUNDING = 16  # units of rounding of a loss that are no rise
NUDGE = 8  # units of rounding of a score: so small a move shows how a loss is rounded
NOISE = 4  # times what rounding was seen to do to a loss, which is no rise either


def curvature_ahead(
    loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows
) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Return the curvature of each row by each output, and how much the row has to say of it, 0 to 1.

    It is the second derivative over the share of its own Newton step that the row accepts. Where a class or an event is
    rare the second derivative alone is next to 0 in all rows, and a penalty in units of it would be none. A row says
    as much of an output as this has a part in the slope of its step, and nothing at a kink or where nothing bends.
    """
    share = _accepted_share(loss, score, at, rows)[:, None]
    parts = jnp.where(share > 0, _parts_of_slope(at.g, at.h), 0)
    return at.h / jnp.where(share > 0, share, 1), parts


class _Bisection(NamedTuple):
    """Between which shares of a step the loss of each row stops to fall enough, and how its value is rounded."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]
    noise: Float[Array, " n"]
    n_passes: Array


def _accepted_share(loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows) -> Float[Array, " n"]:
    """Return the largest share of its own Newton step that each row accepts: 1 where its loss is like a parabola.

    A share is accepted that lowers the loss by nearly half of what the slope promises, as the whole step would on a
    parabola (Armijo 1966). 0 where none is, at a kink. Carries no derivative.

    The first two passes move the scores by next to nothing and see how far the loss is from its expansion there.
    """
    if loss.needs_all_rows or loss.hessian == "first_order":
        return jnp.ones_like(at.value)
    loss, score, at, rows = jax.lax.stop_gradient((loss, score, at, rows))
    eps = jnp.finfo(score.dtype).eps
    step = -_newton_step(at.g, at.h)
    slope = (at.g * step).sum(axis=1)

    def try_share(state: _Bisection) -> _Bisection:
        low, high, noise, n_passes = state
        share = jnp.where(low > 0, (low + high) / 2, jnp.where(high > 1, 1, high / 2))
        nudge = jnp.where(n_passes == 0, NUDGE * eps, -NUDGE * eps).astype(score.dtype) * score
        measures = n_passes < 2
        moved = jnp.where(measures, nudge, share[:, None] * step)
        change = value_by_row(loss, score + moved, rows) - at.value
        off = jnp.abs(change - (at.g * moved + at.h * jnp.square(moved) / 2).sum(axis=1))
        noise = jnp.where(measures & jnp.isfinite(off), jnp.maximum(noise, off), noise)
        rounding = ROUNDING * eps * jnp.abs(at.value) + NOISE * noise
        accepted = (change <= SUFFICIENT * share * slope + rounding) | ~(slope < 0)
        low = jnp.where(measures | ~accepted, low, share)
        high = jnp.where(measures | accepted, high, share)
        return _Bisection(low, jnp.where(low == 1, 1, high), noise, n_passes + 1)

    def goes_on(state: _Bisection) -> Array:
        open_ = (state.high - state.low > CLOSE * state.high) & (state.high > SHORTEST)
        return (state.n_passes < 2) | any_of(open_)

    zeros = jnp.zeros_like(slope)
    start = _Bisection(zeros, zeros + 2, zeros, jnp.asarray(0, jnp.int32))  # 2: nothing has been tried
    return jax.lax.while_loop(goes_on, try_share, start).low


def _newton_step(g: Float[Array, "n k"], h: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return g / h, and 0 where there is no curvature."""
    return jnp.where(h > 0, g / jnp.where(h > 0, h, 1), 0)


def _parts_of_slope(g: Float[Array, "n k"], h: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return which part each output has in the slope of a row's step."""
    slopes = jax.lax.stop_gradient(g * _newton_step(g, h))
    slope = slopes.sum(axis=1, keepdims=True)
    return jnp.where(slope > 0, slopes / jnp.where(slope > 0, slope, 1), 0)
