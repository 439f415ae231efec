"""The units of a fit: how large the loss, its curvature and the weights are where boosting starts.

Penalties are read in them, so that a fit is the same whatever the units of the target, the scores or the loss.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._objective.derivatives import Expansion, any_of, value_by_row
from jboost._objective.rows import Rows
from jboost._runtime.typing import as_array, pytree
from jboost._spec import Hyper

LARGEST_EXPONENT = 100  # of a scale, so that it and its inverse are normal numbers of float32
SUFFICIENT = (
    0.45  # of what its slope promises: so much a share of a step lowers the loss of a row, half on a parabola
)
SHORTEST = 2.0**-24  # share of a step that is tried
CLOSE = 2.0**-8  # relative: so near the largest share is found
ROUNDING = 16  # units of rounding of a loss that are no rise
NUDGE = 8  # units of rounding of a score: so small a move shows how a loss is rounded
NOISE = 4  # times what rounding was seen to do to a loss, which is no rise either


@pytree
class Units:
    """What derivatives and penalties are measured in: those of an average row are about 1."""

    h: Float[Array, " k"]  # curvature of an average row by each output; 1 where penalties are absolute
    of_g: Float[Array, " k"]  # of the sums of g
    of_h: Float[Array, " k"]  # of the sums of h
    of_gain: Float[Array, ""]
    size: Float[Array, ""]  # of an average gradient, in units of g; one of 1 where penalties are absolute
    loss: Float[Array, ""]  # mean of g^2 over mean of h: what an average row's step changes its loss by

    def for_tree(self, hyper: Hyper) -> Hyper:
        """Return the penalties of sums that are measured in these units."""
        gamma = hyper.gamma * self.size * self.size  # in this order 0 stays 0
        return dataclasses.replace(hyper, reg_alpha=hyper.reg_alpha * self.size, gamma=gamma)

    def for_leaves(self, hyper: Hyper) -> Hyper:
        """Return the penalties of sums as they are: scalars for one output, else for sums [leaves k] of shape [1 k]."""
        reg_lambda, alpha = hyper.reg_lambda * self.of_h, hyper.reg_alpha * self.size * self.of_g
        if self.h.size == 1:
            reg_lambda, alpha = reg_lambda[0], alpha[0]
        else:
            reg_lambda, alpha = reg_lambda[None], alpha[None]
        return dataclasses.replace(hyper, reg_lambda=reg_lambda, reg_alpha=alpha)


def units_of_one(n_outputs: int, dtype: Any) -> Units:
    """Return units that change nothing."""
    one, ones = (as_array(np.ones(shape, dtype)) for shape in ((), (n_outputs,)))
    return Units(ones, ones, ones, one, one, one)


def find_units(
    loss: Any, score: Float[Array, "n k"], found: tuple[Array, Array, Array], rows: Rows, relative: bool
) -> Units:
    """Find the units from the derivatives of the rows at the base score.

    Parameters
    ----------
    loss : Loss, GroupLoss or BatchLoss
        With its outputs resolved.
    score : [n k]
        The base score, and the offsets of the rows.
    found : arrays [n], [n] or [n k], like the second
        What `raw_derivatives` returns there.
    rows : Rows
        Their targets and weights.
    relative : bool
        Whether penalties are read in these units, or as they are; the scale keeps the squares of gradients within the
        range of the floats in either case.
    """
    value, g, h = found
    n, k = score.shape
    g, h, weight = jnp.reshape(g, (n, k)), jnp.reshape(h, (n, k)), jnp.asarray(rows.weight, g.dtype)
    there, one = weight[:, None] > 0, jnp.ones((), g.dtype)
    # Or squares would overflow.
    largest = nearest_power_of_two(jnp.max(jnp.where(there, jnp.abs(g), 0), axis=0))
    positive, of_largest = jnp.maximum(h, 0), jnp.abs(g) / largest[None]
    parts = [jnp.ones_like(positive[:, :1]), positive, jnp.square(of_largest)]
    if relative:
        share = accepted_share(loss, score, Expansion(value, g, positive), rows)[:, None]
        steep = jnp.where(share > 0, of_largest * _parts_of_slope(g, positive), 0)
        parts += [steep, steep * positive / jnp.where(share > 0, share, 1)]
    columns = jnp.where(there, weight[:, None] * jnp.concatenate(parts, axis=1), 0)
    sums = total(jnp.concatenate([columns, there.astype(g.dtype)], axis=1))
    of_weight, n_rows, sums = sums[0], sums[-1], sums[1:-1].reshape(-1, k)
    mean_of_h, mean_square = sums[0] / of_weight, sums[1] / of_weight
    root_of_square = largest * jnp.where(mean_square > 0, jnp.sqrt(_or_one(mean_square)), 0)
    of_loss = jnp.square(_root_of_mean_square(root_of_square / jnp.sqrt(_or_one(mean_of_h))))
    if not relative:
        scale = nearest_power_of_two(_root_of_mean_square(root_of_square))
        return _units(jnp.ones_like(largest), 1 / scale, of_loss, scale, one)
    curvature = _or_one(jnp.where(sums[2] > 0, sums[3] / _or_one(sums[2]), mean_of_h))
    size = _root_of_mean_square(root_of_square / jnp.sqrt(curvature))
    scale = nearest_power_of_two(size)
    average = nearest_power_of_two(jnp.minimum(of_weight / n_rows, 1))
    return _units(curvature, size / scale, of_loss, scale, average)


def _units(curvature: Array, size: Array, loss: Array, scale: Array, weight: Array) -> Units:
    """Put units together; `scale` and `weight`, of an average row, are powers of two and round nothing."""
    largest = 2.0 ** (LARGEST_EXPONENT // 2)
    of_gain = jnp.square(jnp.clip(scale, 1 / largest, largest)) * weight  # as far as it is a normal number
    return Units(curvature, scale * jnp.sqrt(curvature) * weight, curvature * weight, of_gain, size, loss)


class _Bisection(NamedTuple):
    """Between which shares of a step the loss of each row stops to fall enough, and how its value is rounded."""

    low: Float[Array, " n"]
    high: Float[Array, " n"]
    noise: Float[Array, " n"]
    n_passes: Array


def accepted_share(loss: Any, score: Float[Array, "n k"], at: Expansion, rows: Rows) -> Float[Array, " n"]:
    """Return the largest share of its own Newton step that each row accepts: 1 where its loss is like a parabola.

    The second derivative over this share is a curvature that holds as far as the row would go. Where a class or an
    event is rare the second derivative alone is next to 0 in all rows, and a penalty in units of it would be none. A
    share is accepted that lowers the loss by nearly half of what the slope promises, as all of it would on a parabola
    (Armijo 1966). 0 where none is, at a kink. Carries no derivative.

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
    """Return which part each output has in the slope of a row's step: so much its share has to say of the output."""
    slopes = jax.lax.stop_gradient(g * _newton_step(g, h))
    slope = slopes.sum(axis=1, keepdims=True)
    return jnp.where(slope > 0, slopes / jnp.where(slope > 0, slope, 1), 0)


def _root_of_mean_square(values: Float[Array, " k"]) -> Float[Array, ""]:
    """Return the root of the mean of the squares of positive numbers, which may overflow in themselves; of 0s 1."""
    largest = _or_one(jax.lax.stop_gradient(jnp.max(values)))
    return largest * jnp.sqrt(_or_one(jnp.mean(jnp.square(values / largest))))


def _or_one(value: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return 1 instead of what is no positive finite number."""
    return jnp.where((value > 0) & jnp.isfinite(value), value, 1)


def nearest_power_of_two(value: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return the power of two nearest to a positive number, on a logarithmic scale; 1 for 0. Carries no derivative."""
    value = jnp.clip(_or_one(jax.lax.stop_gradient(value)), 2.0**-LARGEST_EXPONENT, 2.0**LARGEST_EXPONENT)
    info = jnp.finfo(value.dtype)
    exponent = jax.lax.bitcast_convert_type(value * 2**0.5, f"int{info.bits}") >> info.nmant
    return jax.lax.bitcast_convert_type(exponent << info.nmant, value.dtype)
