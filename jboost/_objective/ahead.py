"""The curvature of a loss ahead of where boosting starts: how a row bends as far as it would go."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._objective.derivatives import NOISE, NUDGE, ROUNDING, Expansion, any_of, value_by_row
from jboost._objective.rows import Rows

SUFFICIENT = 0.45  # of what the slope promises, half of which is kept on a parabola
NEARLY = 63 / 64  # of a step is looked at: all of it may by luck leave a residual of exactly 0
SHORTEST = 2.0**-24  # share of a step that is tried


def bends_ahead(
    loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows
) -> tuple[Float[Array, "n 1"], Float[Array, "n k"]]:
    """Return the logarithm of how much more than h each row bends, and how much it has to say of it.

    It bends as h over the share of its own Newton step that the row accepts. Where a class or an event is rare h alone
    is next to 0 in all rows, and a penalty in units of it would be none. A row says as much of an output, 0 to 1, as
    this has a part in the slope of its step, and nothing at a kink.
    """
    share = _accepted_share(loss, score, at, rows)[:, None]
    parts = jnp.where(share > 0, _parts_of_slope(at.g, at.h), 0)
    return -jnp.log(jnp.where(share > 0, share, 1)), parts


class _Halving(NamedTuple):
    """The shares that are tried next, which of them are left to try, and how the loss of each row is rounded."""

    share: Float[Array, " n"]
    rejected: Bool[Array, " n"]
    noise: Float[Array, " n"]
    n_passes: Array


def _accepted_share(loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows) -> Float[Array, " n"]:
    """Return how much of its own Newton step each row accepts, a power of two: 1 where its loss is like a parabola.

    The rows of a group, or of a batch, take their steps together and accept as much.

    A share is accepted that lowers the loss by nearly half of what the slope promises, as the whole step would on a
    parabola (Armijo 1966). 0 where none is, at a kink. Carries no derivative, as powers of two have none.

    The first two passes move the scores by next to nothing and see how far the loss is from its expansion there.
    """
    if loss.hessian == "first_order":
        return jnp.ones_like(at.value)
    loss, score, at, rows = jax.lax.stop_gradient((loss, score, at, rows))
    eps = jnp.finfo(score.dtype).eps
    step = -NEARLY * _newton_step(at.g, at.h)
    slope, size = (loss.joined(one, rows) for one in ((at.g * step).sum(axis=1), jnp.abs(at.value)))

    def try_share(state: _Halving) -> _Halving:
        share, rejected, noise, n_passes = state
        measures = n_passes < 2
        nudge = jnp.where(n_passes == 0, NUDGE * eps, -NUDGE * eps).astype(score.dtype) * score
        moved = jnp.where(measures, nudge, share[:, None] * step)
        change = loss.joined(value_by_row(loss, score + moved, rows) - at.value, rows)
        expected = (at.g * moved + at.h * jnp.square(moved) / 2).sum(axis=1)
        off = jnp.abs(change - loss.joined(expected, rows))
        noise = jnp.where(measures & jnp.isfinite(off), jnp.maximum(noise, off), noise)
        rounding = ROUNDING * eps * size + NOISE * noise
        rejected = rejected & (measures | ~(change <= SUFFICIENT * share * slope + rounding))
        return _Halving(jnp.where(rejected & ~measures, share / 2, share), rejected, noise, n_passes + 1)

    def goes_on(state: _Halving) -> Array:
        return any_of(state.rejected & (state.share > SHORTEST))

    start = _Halving(jnp.ones_like(slope), slope < 0, jnp.zeros_like(slope), jnp.asarray(0, jnp.int32))
    share, rejected, _, _ = jax.lax.while_loop(goes_on, try_share, start)
    return jnp.where(rejected, 0, share)


def _newton_step(g: Float[Array, "n k"], h: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return g / h, and 0 where there is no curvature."""
    return jnp.where(h > 0, g / jnp.where(h > 0, h, 1), 0)


def _parts_of_slope(g: Float[Array, "n k"], h: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Return which part each output has in the slope of a row's step."""
    slopes = g * _newton_step(g, h)
    slope = slopes.sum(axis=1, keepdims=True)
    return jnp.where(slope > 0, slopes / jnp.where(slope > 0, slope, 1), 0)
