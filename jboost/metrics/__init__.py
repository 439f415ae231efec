"""Metrics: weighted, compiled with the fit, and of predictions, whatever the link of the loss.

A metric is a `Metric`, or any function ``metric(score, y, weight) -> scalar`` of raw scores [n] or [n k], y with n rows
and weight [n], of which less is better. Those below take predictions instead, the scores through the inverse link of
the loss: a mean, a probability. Where the link is one of a built-in loss, they are computed from the score as far as
that is more precise. Rows of weight 0 do not count in them, whatever their y.

=======================================================  ==========================================================
``mae``, ``mse``, ``rmse``, ``mape``, ``r2``,            predicted numbers
``pinball_loss(level)``
``poisson_deviance``, ``gamma_deviance``,                predicted means above 0
``tweedie_deviance(power)``
``logloss``, ``brier``, ``accuracy``, ``error``          probability of y = 1; all but the first: or of each class
``multi_logloss``                                        probability of each class
``roc_auc``, ``average_precision``                       anything that should be larger where y is 1, or of each class
``mean_loss(loss)``                                      raw scores, of that loss
=======================================================  ==========================================================

Examples
--------
The mean absolute error of three predicted counts, the last of which counts twice:

>>> import jax.numpy as jnp
>>> from jboost import losses, metrics
>>> count, weight = jnp.array([0.0, 2.0, 5.0]), jnp.array([1.0, 1.0, 2.0])
>>> float(metrics.mae(jnp.array([1.0, 2.0, 4.0]), count, weight))
0.75

From the raw scores of a Poisson loss:

>>> score = jnp.log(jnp.array([1.0, 2.0, 4.0]))
>>> round(float(metrics.mae.of_scores(losses.poisson.inverse_link)(score, count, weight)), 6)
0.75
"""

from jboost.metrics.amounts import gamma_deviance, poisson_deviance, tweedie_deviance
from jboost.metrics.classes import accuracy, brier, error, logloss, multi_logloss
from jboost.metrics.metric import Metric
from jboost.metrics.of_loss import mean_loss
from jboost.metrics.ranks import average_precision, roc_auc
from jboost.metrics.regression import mae, mape, mse, pinball_loss, r2, rmse

__all__ = [
    "Metric", "accuracy", "average_precision", "brier", "error", "gamma_deviance", "logloss", "mae", "mape",
    "mean_loss", "mse", "multi_logloss", "pinball_loss", "poisson_deviance", "r2", "rmse", "roc_auc",
    "tweedie_deviance",
]  # fmt: skip
