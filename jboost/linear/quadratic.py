"""What a round makes smaller: the loss around the scores to the second order, and the penalties of the coefficients."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._model.linear import dot


class Best(NamedTuple):
    """The best change of a coefficient, and how much lower it takes the quadratic."""

    change: Array
    fall: Array


class Quadratic(NamedTuple):
    r"""A quadratic for each output, in the changes d of the coefficients b and u of the constant.

    .. math:: \sum_i g_i \delta_i + \frac{h_i}{2} \delta_i^2 + \sum_j \frac{\lambda_j}{2} (b_j + d_j)^2
        + \alpha_j |b_j + d_j|, \qquad \delta = u + Z d
    """

    columns: Float[Array, "f n"]  # Z
    g: Float[Array, "k n"]  # times the weights of the rows
    h: Float[Array, "k n"]
    coef: Float[Array, "k f"]  # where the round begins
    l2: Float[Array, "k f"]
    l1: Float[Array, "k f"]

    def slopes(self, score: Float[Array, "k n"]) -> Float[Array, "k f"]:
        """Differentiate by each coefficient where the scores have changed by so much; without the penalties."""
        return dot(self.g + self.h * score, self.columns.T)

    def curvatures(self) -> Float[Array, "k f"]:
        """Differentiate twice, a column at a time: their squares need not be held."""
        return jax.lax.map(lambda column: dot(self.h, jnp.square(column)), self.columns).T

    def best(
        self, slope: Float[Array, "k f"], curvature: Float[Array, "k f"], coef: Float[Array, "k f"]
    ) -> Best:
        """Return the best change of each coefficient alone, from these on."""
        return best_change(slope, curvature, coef, self.l2, self.l1)


def penalty(coef: Array, l2: Array, l1: Array) -> Array:
    """Return the penalty of each coefficient."""
    return l2 * jnp.square(coef) / 2 + l1 * jnp.abs(coef)


def best_change(slope: Array, curvature: Array, coef: Array, l2: Array, l1: Array) -> Best:
    r"""Minimise :math:`G d + H d^2 / 2 + \lambda (b + d)^2 / 2 + \alpha |b + d|` over d; 0 where nothing bends.

    Friedman, Hastie and Tibshirani (2010), equation (5). The fall is :math:`(H + \lambda) d^2 / 2 + (\alpha - s\,
    \mathrm{sign}(b)) |b|`, in which s, of size at most alpha, is what soft thresholding takes off: a difference of the
    values at b and b + d would be lost in rounding near the minimum.
    """
    bend = curvature + l2
    bends = bend > 0
    target = curvature * coef - slope
    taken = jnp.clip(target, -l1, l1)
    change = jnp.where(bends, (target - taken) / jnp.where(bends, bend, 1) - coef, 0)
    fall = bend * jnp.square(change) / 2 + (l1 - taken * jnp.sign(coef)) * jnp.abs(coef)
    return Best(change, jnp.where(bends, fall, 0))
