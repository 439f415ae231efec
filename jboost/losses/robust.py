"""The general robust loss, whose shape goes from squares over absolute values to losses that forget outliers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jboost._objective.domains import check_real, real_argument, with_number
from jboost._objective.loss import Loss
from jboost._runtime.typing import of_floats
from jboost.losses.special import moment, with_slopes
from jboost.losses.standard import spread

NORMAL = 1.482602218505602  # a standard deviation of normal residuals over the median of their sizes
MOST_NEGATIVE = -(2.0**40)  # as a shape: the loss is that of minus infinity there, to rounding
STEP = 0.125  # of the sum for the normaliser


def general_robust(shape: float | Array = 1.0, scale: float | Array | None = None) -> Loss:
    r"""Return Barron's general robust loss, times the square of its scale.

    .. math:: c^2 \frac{2 - \alpha}{\alpha} \left(\left(\frac{(r / c)^2}{2 - \alpha} + 1\right)^{\alpha / 2} - 1\right)

    of a residual r, with shape :math:`\alpha` and scale c: half the square of a residual that is small beside the
    scale, whatever the shape. 2 is the squared error, 1 the pseudo-Huber loss, 0 Cauchy's and -2 that of Geman and
    McClure; minus infinity is Welsch's. The lower the shape, the less do residuals beyond the scale say; below 1 the
    loss is not convex. h = 1, which no second derivative exceeds: no step raises it.

    Parameters
    ----------
    shape : float, default 1.0
        At most 2; may be minus infinity. A traced one above 2 makes the loss NaN.
    scale : float, optional
        Positive, in units of y. Without it, each round takes 1.48 times the median distance of the residuals before it
        from their median, output by output: the standard deviation, were they normal.

    Notes
    -----
    To learn the shape, judge it by `general_robust_nll`: as a criterion, this loss is least for the scale and the shape
    that make every residual cheap. The derivative by the shape at 2 itself, where it is infinite, is the finite one of
    a shape that differs by rounding.

    References
    ----------
    Barron (2019), "A General and Adaptive Robust Loss Function", eq. 1, 8 and 13.

    Examples
    --------
    >>> from jboost import losses
    >>> [round(float(losses.general_robust(shape, 1.0)(0.0, 3.0)), 3) for shape in (2.0, 1.0, 0.0, -2.0)]
    [4.5, 2.162, 1.705, 1.385]
    """
    shape, follows = real_argument(shape, "shape", -np.inf, 2, ends=(-np.inf, 2)), scale is None
    scale = 1.0 if scale is None else real_argument(scale, "scale", 0, np.inf)
    return Loss(
        Partial(_robust, shape=shape, scale=scale),
        hessian="first_order",
        check_target=check_real,
        name=with_number("general_robust", shape),
        adapt=_with_scale_of_residuals if follows else None,
        homogeneous=follows,
    )


def general_robust_nll(shape: float | Array = 1.0, scale: float | Array = 1.0) -> Loss:
    r"""Return the negative log density of which the general robust loss is a part: by it shape and scale are learned.

    .. math:: \rho(r / c, \alpha) + \log c + \log Z(\alpha), \qquad Z(\alpha) = \int \exp(-\rho(x, \alpha)) dx

    where :math:`\rho` is `general_robust` of scale 1: a normal density for a shape of 2, Cauchy's (of scale
    :math:`\sqrt 2 c`) for 0. What a lower shape or a larger scale gains on outliers, it loses by the normaliser on all
    rows. The integral is a sum that is exact to rounding, and differentiable.

    As curvature it takes :math:`\rho'(r / c) / (r c)`, the weight of a row in iteratively reweighted least squares,
    which is positive, and by which no step raises the loss.

    Parameters
    ----------
    shape : float, default 1.0
        0 to 2: below 0 there is no density. A traced one beyond makes the loss NaN.
    scale : float, default 1.0
        Positive, in units of y.

    References
    ----------
    Barron (2019), "A General and Adaptive Robust Loss Function", eq. 16 and 17. Holland and Welsch (1977), "Robust
    regression using iteratively reweighted least-squares", for the curvature.

    Examples
    --------
    Half the square, and the logarithm of the root of two pi:

    >>> from jboost import losses
    >>> round(float(losses.general_robust_nll(2.0, 1.0)(0.0, 1.0)), 4)
    1.4189
    """
    shape = real_argument(shape, "shape", 0, 2, ends=(0, 2))
    scale = real_argument(scale, "scale", 0, np.inf)
    return Loss(
        Partial(_robust_nll, shape=shape, scale=scale),
        curvature=Partial(_reweighted, shape=shape, scale=scale),
        check_target=check_real,
        name=with_number("general_robust_nll", shape),
    )


# L = c^2 rho(r / c), r = score - y;  g = r w,  w = (1 + (r / c)^2 / b)^(shape / 2 - 1),  b = 2 - shape
@of_floats
def _robust(score, y, shape, scale):
    return jnp.sum(jnp.square(scale) * _rho(jnp.square((score - y) / scale), _within(shape, -np.inf)))


# L = rho(r / c) + log(c Z);  g = r w / c^2
@of_floats
def _robust_nll(score, y, shape, scale):
    shape = _within(shape, 0)
    rho = _rho(jnp.square((score - y) / scale), shape)
    return jnp.sum(rho + jnp.log(scale) + jnp.log(partition(shape)))


@of_floats
def _reweighted(score, y, shape, scale):
    return _weight(jnp.square((score - y) / scale), _within(shape, 0)) / jnp.square(scale)


def _within(shape, least):
    """Return a shape, or NaN for one of which there is no loss: what is traced cannot be refused."""
    return jnp.where((shape >= least) & (shape <= 2), shape, jnp.nan)


def _with_scale_of_residuals(function, score, y, weight):
    residual = (y - score).reshape(weight.size, -1)
    scale = NORMAL * jnp.stack([spread(column, weight, 0.5) for column in residual.T])
    return Partial(function.func, shape=function.keywords["shape"], scale=scale.reshape(score.shape[1:]))


def _slope_by_shape(square: Float[Array, "*k"], shape: Array) -> Float[Array, "*k"]:
    shape = jnp.broadcast_to(shape, square.shape)
    return jax.jvp(
        lambda shape: _rho_of_log(*_log_and_shape(square, shape)), (shape,), (jnp.ones_like(shape),)
    )[1]


@with_slopes(lambda square, shape: _weight(square, shape) / 2, _slope_by_shape)
def _rho(square: Float[Array, "*k"], shape: Array) -> Float[Array, "*k"]:
    """Return the loss of a residual of this square, in units of the scale."""
    return _rho_of_log(*_log_and_shape(square, shape))


def _weight(square: Float[Array, "*k"], shape: Array) -> Float[Array, "*k"]:
    """Return twice the derivative of rho by the square: what is left of the weight of a row, 1 at a residual of 0."""
    log, shape = _log_and_shape(square, shape)
    return jnp.exp((shape / 2 - 1) * log)


def _log_and_shape(square: Array, shape: Array) -> tuple[Array, Array]:
    """Return log(1 + square / b) and the shape, which ends where its limit is reached."""
    shape = jnp.maximum(jnp.asarray(shape, square.dtype), MOST_NEGATIVE)
    return jnp.log1p(square / _b(shape)), shape


def _rho_of_log(log: Float[Array, "*k"], shape: Array) -> Float[Array, "*k"]:
    """Return b (exp(shape log / 2) - 1) / shape, which has a limit where the shape is 0."""
    return _b(shape) * log / 2 * moment(0, shape / 2 * log)


def _b(shape: Array) -> Array:
    """Return 2 - shape; at 2, where rho has the limit square / 2, next to 0."""
    return jnp.maximum(2 - shape, jnp.finfo(shape.dtype).eps)


def partition(shape: Any) -> Array:
    """Return Z, the integral of exp(-rho) over all residuals, for shapes of 0 to 2 in an array of any shape.

    With x = sqrt(b) sinh(v) it is an integral over all v of a smooth function, of which the trapezoid rule errs by
    about exp(-pi^2 / step); v goes as far as where the heaviest tail, 1 / x^2, is lost in rounding.
    """
    shape = jnp.asarray(shape, jnp.result_type(float, shape))[..., None]
    v = np.arange(0, 4 - np.log(np.finfo(shape.dtype).eps), STEP)
    halves = np.where(v == 0, 0.5, 1)  # the function is even
    log, weight = (
        jnp.asarray(one, shape.dtype).reshape((1,) * (shape.ndim - 1) + (-1,))
        for one in (2 * np.log(np.cosh(v)), 2 * STEP * halves * np.cosh(v))
    )
    return jnp.sum(jnp.sqrt(_b(shape)) * weight * jnp.exp(-_rho_of_log(log, shape)), axis=-1)
