"""Metrics of predicted numbers [n], or of k of them [n k], over which they are averaged."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._objective.domains import check_real, real_argument, with_number
from jboost._objective.units import nearest_power_of_two
from jboost.metrics.metric import Metric
from jboost.metrics.targets import elementwise


def _unit(residual, weight):
    """Return a power of two near the largest residual that counts, in units of which squares are floats."""
    present = jnp.reshape(jnp.asarray(weight) > 0, (-1, *[1] * (residual.ndim - 1)))
    return nearest_power_of_two(jnp.max(jnp.where(present, jnp.abs(residual), 0), initial=0))


# sum w (prediction - y)^2 / sum w
@elementwise
def _mse(prediction, y, weight):
    residual = prediction - y
    unit = _unit(residual, weight)
    return unit * (unit * mean(jnp.square(residual / unit), weight))


mse = Metric(_mse, check_target=check_real, name="mse", pads=True, of="prediction")


# Its root, of each output
@elementwise
def _rmse(prediction, y, weight):
    residual = prediction - y
    unit = _unit(residual, weight)
    columns = jnp.square(residual / unit).reshape(residual.shape[0], -1).T
    return unit * jnp.mean(jnp.sqrt(jnp.stack([mean(column, weight) for column in columns])))


rmse = Metric(_rmse, check_target=check_real, name="rmse", pads=True, of="prediction")


@elementwise
def _mae(prediction, y, weight):
    return mean(jnp.abs(prediction - y), weight)


mae = Metric(_mae, check_target=check_real, name="mae", pads=True, of="prediction")

_LEAST = float(np.finfo(np.float64).eps)  # what scikit-learn divides by where y is 0, in float32 too


# |prediction - y| / |y|, a share and no percentage
@elementwise
def _mape(prediction, y, weight):
    return mean(jnp.abs(prediction - y) / jnp.maximum(jnp.abs(y), _LEAST), weight)


mape = Metric(_mape, check_target=check_real, name="mape", pads=True, of="prediction")


# R^2 = 1 - sum w (y - prediction)^2 / sum w (y - mean y)^2; for a constant y 1 where all is exact, else 0
@elementwise
def _r2(prediction, y, weight):
    def one(prediction, y):
        center = mean(y, weight)
        center = center + mean(y - center, weight)  # again, for the rounding of the first mean
        residual, deviation = prediction - y, y - center
        unit = jnp.maximum(_unit(residual, weight), _unit(deviation, weight))
        unexplained = mean(jnp.square(residual / unit), weight)
        spread = mean(jnp.square(deviation / unit), weight)
        constant = spread <= jnp.square(4 * jnp.finfo(prediction.dtype).eps * (center / unit))
        explained = 1 - unexplained / jnp.where(constant, 1, spread)
        return jnp.where(constant, (unexplained == 0).astype(prediction.dtype), explained)

    n_rows = prediction.shape[0]
    columns = zip(prediction.reshape(n_rows, -1).T, jnp.reshape(y, (n_rows, -1)).T, strict=True)
    return jnp.mean(jnp.stack([one(*column) for column in columns]))


r2 = Metric(_r2, maximize=True, check_target=check_real, name="r2", pads=True, of="prediction")


@elementwise
def _pinball_loss(prediction, y, weight, level):
    residual = y - prediction
    return mean(jnp.maximum(level * residual, (level - 1) * residual), weight)


def pinball_loss(level: float) -> Metric:
    """Return the mean pinball loss of predictions of the `level` quantile, strictly between 0 and 1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import metrics
    >>> round(float(metrics.pinball_loss(0.9)(jnp.zeros(2), jnp.array([1.0, -1.0]), jnp.ones(2))), 3)
    0.5
    """
    level = real_argument(level, "level", 0, 1)
    return Metric(
        Partial(_pinball_loss, level=level),
        check_target=check_real,
        name=with_number("pinball_loss", level),
        pads=True,
        of="prediction",
    )
