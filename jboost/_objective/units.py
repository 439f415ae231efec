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

from jboost._fixed_point import total
from jboost._fixed_point.quantise import power_of_two
from jboost._objective.rows import Rows
from jboost._runtime.typing import as_array, pytree
from jboost._spec import Hyper

LARGEST_EXPONENT = 100  # of a scale, so that it and its inverse are normal numbers of float32


@pytree
class Units:
    """What derivatives and penalties are measured in; `scale` and `weight` are powers of two and round nothing.

    In these units an average row has a weight, a second derivative by each output and a squared step of about 1.
    """

    h: Float[Array, " k"]  # mean positive second derivative by each output; 1 where penalties are absolute
    size: Float[Array, ""]  # root of the mean of g^2 / h, or 1 where penalties are absolute, over `scale`
    loss: Float[Array, ""]  # mean of g^2 over mean of h: what an average row's step changes its loss by
    scale: Float[Array, ""]
    weight: Float[Array, ""]  # of an average row, at most 1; 1 where penalties are absolute

    @property
    def of_g(self) -> Float[Array, " k"]:
        """Unit of the sums of g."""
        return self.scale * jnp.sqrt(self.h) * self.weight

    @property
    def of_h(self) -> Float[Array, " k"]:
        """Unit of the sums of h."""
        return self.h * self.weight

    @property
    def of_gain(self) -> Float[Array, ""]:
        """Unit of the gains, as far as it is a normal number."""
        largest = 2.0 ** (LARGEST_EXPONENT // 2)
        return jnp.square(jnp.clip(self.scale, 1 / largest, largest)) * self.weight

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
    return Units(ones, one, one, one, one)


def find_units(g: Float[Array, "n *k"], h: Float[Array, "n *k"], rows: Rows, relative: bool) -> Units:
    """Find the units from the derivatives of the rows, of a unit of weight, at the base score.

    Parameters
    ----------
    g, h : [n] or [n k]
        First and second derivatives.
    rows : Rows
        Their weights.
    relative : bool
        Whether penalties are read in these units, or as they are; the scale keeps the squares of gradients within the
        range of the floats in either case.
    """
    n = rows.weight.size
    g, h, weight = jnp.reshape(g, (n, -1)), jnp.reshape(h, (n, -1)), jnp.asarray(rows.weight, g.dtype)
    k, there, one = h.shape[1], weight[:, None] > 0, jnp.ones((), g.dtype)
    # Or squares would overflow.
    largest = nearest_power_of_two(jnp.max(jnp.where(there, jnp.abs(g), 0), axis=0))
    parts = (
        jnp.maximum(h, 0),
        (h > 0).astype(h.dtype),
        jnp.square(g / largest[None]),
        jnp.ones_like(h[:, :1]),
    )
    columns = jnp.where(there, weight[:, None] * jnp.concatenate(parts, axis=1), 0)
    sums = total(jnp.concatenate([columns, there.astype(h.dtype)], axis=1))
    of_weight, n_rows = sums[-2], sums[-1]
    positive, share, squares = jnp.split(sums[: 3 * k] / of_weight, 3)
    root_of_square = largest * jnp.where(squares > 0, jnp.sqrt(_or_one(squares)), 0)
    of_loss = _root_of_mean_square(root_of_square / jnp.sqrt(_or_one(positive)))
    if not relative:
        scale = nearest_power_of_two(_root_of_mean_square(root_of_square))
        return Units(jnp.ones_like(positive), 1 / scale, jnp.square(of_loss), scale, one)
    # A row without curvature, such as one whose target is masked, has nothing to say of the unit.
    curvature = _or_one(_or_one(positive) / _or_one(share))
    size = _root_of_mean_square(root_of_square / jnp.sqrt(curvature))
    scale = nearest_power_of_two(size)
    average = nearest_power_of_two(jnp.minimum(of_weight / n_rows, 1))
    return Units(curvature, size / scale, jnp.square(of_loss), scale, average)


def _root_of_mean_square(values: Float[Array, " k"]) -> Float[Array, ""]:
    """Return the root of the mean of the squares of positive numbers, which may overflow in themselves; of 0s 1."""
    largest = _or_one(jax.lax.stop_gradient(jnp.max(values)))
    return largest * jnp.sqrt(_or_one(jnp.mean(jnp.square(values / largest))))


def _or_one(value: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return 1 instead of what is no positive finite number."""
    return jnp.where((value > 0) & jnp.isfinite(value), value, 1)


def nearest_power_of_two(value: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return the power of two nearest to a positive number, on a logarithmic scale; 1 for 0. Carries no derivative."""
    mantissa, exponent = jnp.frexp(_or_one(jax.lax.stop_gradient(value)))
    exponent = jnp.where(mantissa < 0.5**0.5, exponent - 1, exponent)
    return power_of_two(jnp.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT), mantissa.dtype)
