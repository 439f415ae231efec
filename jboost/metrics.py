"""Metrics of raw scores: weighted, compiled with the fit, and read from the score before the inverse link.

A metric is any function ``metric(score, y, weight) -> scalar`` with score [n] or [n k], y with n rows and
weight [n]; less is better unless a `Metric` record says otherwise. Rows of weight 0 do not count in those
below, whatever their y.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._fixed_point.quantile import fixed_point
from jboost._objective.domains import (
    check_both_classes,
    check_non_negative,
    check_positive,
    check_probability,
    check_real,
    real_argument,
    with_number,
)
from jboost._objective.loss import as_loss
from jboost._objective.rows import Rows
from jboost._runtime.parametrised import ByValue, parametrised
from jboost._runtime.typing import of_floats

__all__ = [
    "Metric", "accuracy", "gamma_deviance", "logloss", "mae", "mean_loss", "multi_logloss", "pinball_loss",
    "poisson_deviance", "r2", "rmse", "roc_auc", "tweedie_deviance",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Metric(ByValue):
    """A function of scores, target and weights, and which way is better.

    A pytree, as a `Loss` is: the arrays and floats in its function are operands of a compiled fit.

    Parameters
    ----------
    function : callable
        ``function(score, y, weight) -> scalar`` in JAX operations.
    maximize : bool, default False
        Whether more is better.
    check_target : callable or None, default None
        ``check_target(y)`` with the concrete target of the rows with weight; raises ValueError naming y when
        the metric is undefined there.
    name : str or None, default None
        Shown in messages and histories.
    pads : bool, default False
        Whether rows of weight 0 may be added, so that other numbers of rows compile nothing: they must not count then,
        whatever their y.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost.metrics import Metric
    >>> bias = Metric(lambda score, y, weight: jnp.abs(jnp.average(score - y, weights=weight)), name="bias", pads=True)
    >>> float(bias(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.ones(2)))
    1.0
    """

    function: Callable[[Any, Any, Any], Any]
    maximize: bool = False
    check_target: Callable[[Any], None] | None = None
    name: str | None = None
    pads: bool = False

    def __call__(self, score: Any, y: Any, weight: Any) -> jax.Array:
        """Return the metric."""
        return self.function(score, y, weight)


@dataclass(frozen=True)
class _Static:
    """What a compiled program knows of a metric."""

    maximize: bool
    pads: bool
    others: tuple[Any, ...] = field(compare=False)  # check_target and name


def _flatten(metric: Metric) -> tuple[tuple[Any], _Static]:
    static = _Static(metric.maximize, metric.pads, (metric.check_target, metric.name))
    return (parametrised(metric.function),), static


def _unflatten(static: _Static, parts: tuple[Any]) -> Metric:
    check_target, name = static.others
    return Metric(parts[0], static.maximize, check_target, name, static.pads)


jax.tree_util.register_pytree_node(Metric, _flatten, _unflatten)


def as_metric(metric: Any) -> Metric:
    """Return `metric` as a `Metric`; a plain function is taken to be better when less."""
    if isinstance(metric, Metric):
        return metric
    if not callable(metric) or isinstance(metric, type):
        raise TypeError(f"metric must be a Metric or a function metric(score, y, weight); got {metric!r}")
    return Metric(metric, name=getattr(metric, "__name__", None))


# --- Regression: score = prediction; with k outputs the mean over them --------------------------------------


@of_floats
def _rmse(score, y, weight):
    squares = jnp.square(score - y)
    columns = squares.reshape(squares.shape[0], -1).T
    return jnp.mean(jnp.sqrt(jnp.stack([mean(column, weight) for column in columns])))


rmse = Metric(_rmse, check_target=check_real, name="rmse", pads=True)


@of_floats
def _mae(score, y, weight):
    return mean(jnp.abs(score - y), weight)


mae = Metric(_mae, check_target=check_real, name="mae", pads=True)


# R^2 = 1 - sum w (y - score)^2 / sum w (y - mean y)^2; for a constant y 1 where all is exact, else 0
@of_floats
def _r2(score, y, weight):
    def one(score, y):
        center = mean(y, weight)
        center = center + mean(y - center, weight)  # again, for the rounding of the first mean
        unexplained, spread = mean(jnp.square(score - y), weight), mean(jnp.square(y - center), weight)
        constant = spread <= jnp.square(4 * jnp.finfo(score.dtype).eps * center)
        return jnp.where(
            constant, (unexplained == 0).astype(score.dtype), 1 - unexplained / jnp.where(constant, 1, spread)
        )

    columns = zip(score.reshape(score.shape[0], -1).T, jnp.reshape(y, (score.shape[0], -1)).T, strict=True)
    return jnp.mean(jnp.stack([one(*column) for column in columns]))


r2 = Metric(_r2, maximize=True, check_target=check_real, name="r2", pads=True)


@of_floats
def _pinball_loss(score, y, weight, level):
    residual = y - score
    return mean(jnp.maximum(level * residual, (level - 1) * residual), weight)


def pinball_loss(level: float) -> Metric:
    """Return the mean pinball loss of scores that predict the `level` quantile, strictly between 0 and 1.

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
    )


# --- Classes: score = log odds [n], or [n k] with the softmax as link ---------------------------------------


# - y log p - (1 - y) log(1 - p)
@of_floats
def _logloss(score, y, weight):
    return mean(jax.nn.softplus(score) - y * score, weight)


logloss = Metric(_logloss, check_target=check_probability, name="logloss", pads=True)


# - log p_y
def _multi_logloss(score, y, weight):
    is_y = jnp.arange(score.shape[1], dtype=float)[None, :] == jnp.asarray(y, float)[:, None]
    of_y = jnp.where(is_y, score, 0)
    return mean(jax.nn.logsumexp(score, axis=1) - jnp.sum(of_y, axis=1), weight)


multi_logloss = Metric(_multi_logloss, check_target=check_real, name="multi_logloss", pads=True)


# Share of rows whose most probable class is y: score > 0 for two classes, the first of the greatest for more
def _accuracy(score, y, weight):
    predicted = score > 0 if score.ndim == 1 else jnp.argmax(score, axis=1)
    return mean((predicted.astype(float) == jnp.asarray(y, float)).astype(score.dtype), weight)


accuracy = Metric(_accuracy, maximize=True, check_target=check_real, name="accuracy", pads=True)


# P(score of a positive row > score of a negative row), a tie counting one half
def _roc_auc(score, y, weight):
    """Sum each positive's share of the negatives below it and half of those beside it; the sums are exact."""
    order = jnp.argsort(score)
    score, positive = score[order], (y == 1)[order]
    weight = jnp.asarray(weight, score.dtype)[order]
    weight_positive, weight_negative = jnp.where(positive, weight, 0), jnp.where(positive, 0, weight)
    mass = fixed_point(weight_negative)
    upto = jnp.cumsum(mass)
    first = jnp.concatenate([jnp.ones(1, bool), score[1:] != score[:-1]])  # of rows with the same score
    last = jnp.concatenate([first[1:], jnp.ones(1, bool)])
    below = jax.lax.cummax(jnp.where(first, upto - mass, 0))
    through = jax.lax.cummin(jnp.where(last, upto, upto[-1]), reverse=True)
    share = (below.astype(score.dtype) + through.astype(score.dtype)) / (2 * upto[-1].astype(score.dtype))
    return jnp.sum(weight_positive * share) / jnp.sum(weight_positive)


roc_auc = Metric(_roc_auc, maximize=True, check_target=check_both_classes, name="roc_auc", pads=True)


# --- Counts and amounts: score = log mean; twice the log-likelihood lost against a mean equal to y ----------


# 2 (y log(y / mean) - y + mean)
@of_floats
def _poisson_deviance(score, y, weight):
    return 2 * mean(jax.scipy.special.xlogy(y, y) - y * score - y + jnp.exp(score), weight)


poisson_deviance = Metric(
    _poisson_deviance, check_target=check_non_negative, name="poisson_deviance", pads=True
)


# 2 (log(mean / y) + y / mean - 1) = 2 (exp(u) - u - 1) with u = log y - score
@of_floats
def _gamma_deviance(score, y, weight):
    u = jnp.log(jnp.where(y > 0, y, 1)) - score
    return 2 * mean(jnp.expm1(u) - u, weight)


gamma_deviance = Metric(_gamma_deviance, check_target=check_positive, name="gamma_deviance", pads=True)


# 2 (y^(2 - p) / ((1 - p) (2 - p)) - y mean^(1 - p) / (1 - p) + mean^(2 - p) / (2 - p))
@of_floats
def _tweedie_deviance(score, y, weight, power):
    zero = y == 0  # as 0 * inf the term could be NaN
    of_both = jnp.where(zero, 0, y * jnp.exp((1 - power) * jnp.where(zero, 0, score)) / (1 - power))
    of_y = y ** (2 - power) / ((1 - power) * (2 - power))
    return 2 * mean(of_y - of_both + jnp.exp((2 - power) * score) / (2 - power), weight)


def tweedie_deviance(power: float) -> Metric:
    """Return the mean Tweedie deviance for scores that are log means; `power` between 1 and 2 exclusive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import metrics
    >>> float(metrics.tweedie_deviance(1.5)(jnp.zeros(1), jnp.ones(1), jnp.ones(1)))
    0.0
    """
    power = real_argument(power, "power", 1, 2, " (use poisson_deviance for 1, gamma_deviance for 2)")
    name = with_number("tweedie_deviance", power)
    return Metric(
        Partial(_tweedie_deviance, power=power), check_target=check_non_negative, name=name, pads=True
    )


# --- Any loss -----------------------------------------------------------------------------------------------


def _mean_loss(score, y, weight, loss):
    return mean(loss.value(score, Rows(y, weight)), weight)


def mean_loss(loss: Any) -> Metric:
    """Return the weighted mean of a loss, a `Loss` or a function of one row, as a metric.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import losses, metrics
    >>> float(metrics.mean_loss(losses.squared_error)(jnp.zeros(2), jnp.array([1.0, 3.0]), jnp.ones(2)))
    2.5
    """
    loss = as_loss(loss)
    return Metric(Partial(_mean_loss, loss=loss), check_target=loss.check_target, name=loss.name, pads=True)
