"""Losses of numbers for which predicting too little is not as bad as predicting too much."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jboost._objective.domains import check_real, real_argument, with_number
from jboost._objective.loss import Loss
from jboost._runtime.typing import of_floats
from jboost.losses.special import moment, with_slopes
from jboost.losses.standard import linear_beyond, of_exponential, with_delta_of_residuals


def linex(rate: float | Array) -> Loss:
    """Return the linear-exponential loss: (exp(rate r) - rate r - 1) / rate^2 of r = score - y.

    For a positive rate it rises exponentially where the score is above y and linearly where it is below; for a negative
    one the other way round. At 0 it is the squared error. In float32 it overflows where rate r is above 88.

    Parameters
    ----------
    rate : float
        Finite, in units of one over y.

    References
    ----------
    Varian (1975), "A Bayesian approach to real estate assessment". Zellner (1986), "Bayesian Estimation and Prediction
    Using Asymmetric Loss Functions", eq. 2.1.

    Examples
    --------
    >>> from jboost import losses
    >>> [round(float(losses.linex(1.0)(score, 0.0)), 3) for score in (-3.0, 3.0)]
    [2.05, 16.086]
    """
    rate = real_argument(rate, "rate", -np.inf, np.inf)
    return Loss(
        Partial(_linex, rate=rate),
        check_target=check_real,
        name=with_number("linex", rate),
        diagonal=Partial(_linex_diagonal, rate=rate),
        majorant=Partial(_of_linex, rate=rate),
    )


def expectile(level: float | Array) -> Loss:
    """Return the asymmetric squared error, minimised by the `level` expectile of y; at 0.5 it is the squared error.

    A residual r counts level r^2 where y is above the score and (1 - level) r^2 where it is below.

    Parameters
    ----------
    level : float
        Between 0 and 1 exclusive.

    References
    ----------
    Newey and Powell (1987), "Asymmetric Least Squares Estimation and Testing", eq. 2.1.

    Examples
    --------
    >>> from jboost import losses
    >>> round(float(losses.expectile(0.9)(0.0, 1.0)), 3)
    0.9
    """
    level = real_argument(level, "level", 0, 1)
    return Loss(
        Partial(_expectile, level=level),
        check_target=check_real,
        name=with_number("expectile", level),
        diagonal=Partial(_factor, asymmetry=level),
        majorant=Partial(_of_two_parabolas, level=level),
        homogeneous=True,
    )


def asymmetric_huber(
    asymmetry: float | Array, delta: float | Array | None = None, level: float | Array = 0.9
) -> Loss:
    """Return a Huber loss times 2 asymmetry where y is above the score, and 2 (1 - asymmetry) where it is below.

    Its best constant is an M-quantile, between a quantile (a small delta) and an expectile (a large one). At 0.5 it is
    the Huber loss. As curvature it takes the factor alone, as `huber` takes 1.

    Parameters
    ----------
    asymmetry : float
        Between 0 and 1 exclusive.
    delta : float, optional
        Where squares end, in units of y; without it as for `huber`.
    level : float, default 0.9
        As there.

    References
    ----------
    Breckling and Chambers (1988), "M-quantiles", eq. 2.

    Examples
    --------
    >>> from jboost import losses
    >>> [round(float(losses.asymmetric_huber(0.9, delta=1.0)(0.0, y)), 2) for y in (-3.0, 3.0)]
    [0.5, 4.5]
    """
    asymmetry = real_argument(asymmetry, "asymmetry", 0, 1)
    level, follows = real_argument(level, "level", 0, 1), delta is None
    delta = 1.0 if delta is None else real_argument(delta, "delta", 0, np.inf)
    return Loss(
        Partial(_asymmetric_huber, delta=delta, asymmetry=asymmetry),
        curvature=Partial(_factor, asymmetry=asymmetry),
        check_target=check_real,
        name=with_number("asymmetric_huber", asymmetry),
        adapt=Partial(with_delta_of_residuals, level=level) if follows else None,
        homogeneous=follows,
    )


# L = (exp(rate r) - rate r - 1) / rate^2, r = score - y;  g = (exp(rate r) - 1) / rate,  h = exp(rate r)
@of_floats
def _linex(score, y, rate):
    residual = jnp.asarray(score - y)
    return jnp.sum(_excess(residual, jnp.asarray(rate, residual.dtype)))


@of_floats
def _linex_diagonal(score, y, rate):
    return jnp.exp(rate * (score - y))


@with_slopes(
    lambda r, rate: _slope(r, rate), lambda r, rate: r**3 * (moment(1, rate * r) - moment(2, rate * r))
)
def _excess(r: Float[Array, "*k"], rate: Array) -> Float[Array, "*k"]:
    t = rate * r
    is_small = jnp.abs(t) < 1
    small, large = jnp.where(is_small, t, 0), jnp.where(is_small, 1, t)
    near, far = moment(0, small) - moment(1, small), (jnp.expm1(large) - large) / jnp.square(large)
    return jnp.square(r) * jnp.where(is_small, near, far)


@with_slopes(lambda r, rate: jnp.exp(rate * r), lambda r, rate: jnp.square(r) * moment(1, rate * r))
def _slope(r: Float[Array, "*k"], rate: Array) -> Float[Array, "*k"]:
    return r * moment(0, rate * r)


def _of_linex(a, rate):  # whose third derivative is rate times the second
    return of_exponential(jnp.abs(rate) * a)


# L = level r^2 if r > 0, (1 - level) r^2 if r < 0, r = y - score;  h = 2 level or 2 (1 - level)
@of_floats
def _expectile(score, y, level):
    return jnp.sum(_factor(score, y, level) * jnp.square(y - score) / 2)


def _of_two_parabolas(a, level):  # a step from the flat one may end on the steep one
    return jnp.full_like(a, 0.5) * jnp.maximum(level, 1 - level) / jnp.minimum(level, 1 - level)


@of_floats
def _asymmetric_huber(score, y, delta, asymmetry):
    return jnp.sum(_factor(score, y, asymmetry) * linear_beyond(delta, jnp.abs(score - y)))


@of_floats
def _factor(score, y, asymmetry):
    return 2 * jnp.where(y > score, asymmetry, 1 - asymmetry)
