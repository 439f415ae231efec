"""The units of a fit: how large the loss, its curvature and the weights are where boosting starts.

Penalties are read in them, so that a fit is the same whatever the units of the target, the scores or the loss.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._fixed_point import totals
from jboost._objective.ahead import bends_ahead
from jboost._objective.derivatives import Expansion
from jboost._objective.rows import Rows
from jboost._runtime.typing import as_array, pytree
from jboost._spec import Hyper

LOG_2 = float(np.log(2))
ENOUGH = 20  # rows that have a say of how a loss bends ahead
LARGEST_EXPONENT = 100  # of a scale, so that it and its inverse are normal numbers of float32


@pytree
class Units:
    """What derivatives and penalties are measured in: those of an average row are about 1."""

    h: Float[Array, " k"]  # curvature of an average row by each output; 1 where penalties are absolute
    of_g: Float[Array, " k"]  # of the sums of g
    of_h: Float[Array, " k"]  # of the sums of h
    of_gain: Float[Array, "*k"]  # of each output where they are alone, as `size`
    size: Float[Array, "*k"]  # of an average gradient, in units of g; one of 1 where penalties are absolute
    loss: Float[Array, ""]  # mean of g^2 over mean of h: what an average row's step changes its loss by

    def for_tree(self, hyper: Hyper) -> Hyper:
        """Return the penalties of sums that are measured in these units: alpha and gamma like `size`."""
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


def units_of_one(n_outputs: int, rows: Rows, separate: bool) -> Units:
    """Return units that change nothing."""
    one, ones = (as_array(np.ones(shape, rows.weight.dtype)) for shape in ((), (n_outputs,)))
    joint = ones if are_alone(n_outputs, rows, separate) else one
    return Units(ones, ones, ones, joint, joint, one)


def are_alone(n_outputs: int, rows: Rows, separate: bool = True) -> bool:
    """Say whether outputs have trees and targets of their own: each then has the units of a fit of it alone.

    Those that share a target, such as classes, take their steps together, which joint units allow for.
    """
    return separate and hasattr(rows.y, "shape") and rows.y.shape == (rows.weight.size, n_outputs)


def find_units(
    loss: Any,
    score: Float[Array, "n k"],
    found: tuple[Array, Array, Array],
    rows: Rows,
    relative: bool,
    separate: bool,
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
    separate : bool
        Whether outputs have trees of their own.
    """
    value, g, h = found
    n, k = score.shape
    alone = are_alone(k, rows, separate)
    g, h, weight = jnp.reshape(g, (n, k)), jnp.reshape(h, (n, k)), jnp.asarray(rows.weight, g.dtype)[:, None]
    there, one = weight > 0, jnp.ones((), g.dtype)
    # Or squares would overflow.
    largest = nearest_power_of_two(jnp.max(jnp.where(there, jnp.abs(g), 0), axis=0))
    positive, of_largest = jnp.maximum(h, 0), jnp.abs(g) / largest[None]
    parts = [jnp.ones_like(weight), weight, weight * positive, weight * jnp.square(of_largest)]
    sums = totals([jnp.where(there, part, 0) for part in parts])
    n_rows, of_weight, mean_of_h, mean_square = (
        sums[0],
        sums[1],
        sums[2 : 2 + k] / sums[1],
        sums[2 + k :] / sums[1],
    )
    root_of_square = largest * jnp.where(mean_square > 0, jnp.sqrt(_or_one(mean_square)), 0)
    of_loss = jnp.square(_root_of_mean_square(root_of_square / jnp.sqrt(_or_one(mean_of_h))))
    joint = _or_one if alone else _root_of_mean_square
    if not relative:
        scale = nearest_power_of_two(joint(root_of_square))
        return _units(jnp.ones_like(largest), 1 / scale, of_loss, scale, one)
    average = nearest_power_of_two(jnp.minimum(of_weight / n_rows, 1))
    more, says = bends_ahead(loss, score, Expansion(value, g, positive), rows, alone)
    unit = nearest_power_of_two(mean_of_h)  # or logarithms would be rounded as the unit of the loss has it
    curvature = unit * _curvature(positive / unit[None], more, of_largest * says, weight, average)
    size = joint(root_of_square / jnp.sqrt(curvature))
    scale = nearest_power_of_two(size)
    return _units(curvature, size / scale, of_loss, scale, average)


def _curvature(
    h: Float[Array, "n k"],
    more: Float[Array, "n #k"],
    steep: Float[Array, "n k"],
    weight: Float[Array, "n 1"],
    average: Float[Array, ""],
) -> Float[Array, " k"]:
    """Return a typical curvature of a row by each output: the geometric mean of h, and what rows bend more ahead.

    That is the mean of its logarithm, weighted by |g|. It counts as far as `ENOUGH` rows have a say of it, by their
    weights or by their number, so that one row, or a few, do not decide it.
    """
    square = jnp.square(steep)
    parts = [
        (h > 0).astype(h.dtype),
        jnp.log(jnp.where(h > 0, h, 1)),
        steep,
        steep * more,
        square,
        weight * square,
    ]
    sums = totals([jnp.where(weight > 0, weight * part, 0) for part in parts])
    bends, log_h, steep, more, square, weighted = sums.reshape(len(parts), -1)
    by_weight = jnp.square(steep) / (_or_one(square) * average)
    by_number = jnp.square(steep) / _or_one(weighted)
    rows = jnp.where(square > 0, jnp.maximum(by_weight, by_number), 0)
    return jnp.exp(log_h / _or_one(bends) + LOG_2 * rows / (rows + ENOUGH) * more / _or_one(steep))


def _units(curvature: Array, size: Array, loss: Array, scale: Array, weight: Array) -> Units:
    """Put units together; `scale` and `weight`, of an average row, are powers of two and round nothing."""
    largest = 2.0 ** (LARGEST_EXPONENT // 2)
    of_gain = jnp.square(jnp.clip(scale, 1 / largest, largest)) * weight  # as far as it is a normal number
    return Units(curvature, scale * jnp.sqrt(curvature) * weight, curvature * weight, of_gain, size, loss)


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
