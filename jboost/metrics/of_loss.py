"""Any loss as a metric of the raw scores that it takes."""

from __future__ import annotations

from typing import Any

from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._objective.loss import as_loss
from jboost._objective.rows import Rows
from jboost.metrics.metric import Metric


def _mean_loss(score, y, weight, loss):
    return mean(loss.value(score, Rows(y, weight)), weight)


def mean_loss(loss: Any) -> Metric:
    """Return the weighted mean of a loss, a `Loss` or a function of one row, as a metric of raw scores.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import losses, metrics
    >>> float(metrics.mean_loss(losses.squared_error)(jnp.zeros(2), jnp.array([1.0, 3.0]), jnp.ones(2)))
    2.5
    """
    loss = as_loss(loss)
    return Metric(Partial(_mean_loss, loss=loss), check_target=loss.check_target, name=loss.name, pads=True)


def is_of_homogeneous(metric: Metric) -> bool:
    """Say whether a metric is the mean of a loss that grows as the square of score and target."""
    function = metric.function
    if not (isinstance(function, Partial) and function.func is _mean_loss):
        return False
    loss = function.keywords["loss"]
    return loss.homogeneous and loss.adapt is None
