"""Deviances of predicted means of counts and amounts: twice the log-likelihood lost against a mean equal to y.

They are NaN where a predicted mean is not positive, which a loss with another link than the exponential may give.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._objective.domains import check_non_negative, check_positive, real_argument, with_number
from jboost._objective.links import exp
from jboost.metrics.metric import Metric
from jboost.metrics.targets import elementwise


def _deviance(of_log: Callable[..., jax.Array], check: Callable[[Any], None], name: str) -> Metric:
    """Make a metric of means from a function of their logarithms, which are the scores where the link is exp."""
    return Metric(
        Partial(_of_mean, of_log=of_log),
        check_target=check,
        name=name,
        pads=True,
        of="prediction",
        from_score={exp: of_log},
    )


def _of_mean(predicted, y, weight, of_log):
    positive = predicted > 0
    return of_log(jnp.where(positive, jnp.log(jnp.where(positive, predicted, 1)), jnp.nan), y, weight)


# 2 (y log(y / mean) - y + mean)
@elementwise
def _poisson_deviance(log_mean, y, weight):
    return 2 * mean(jax.scipy.special.xlogy(y, y) - y * log_mean - y + jnp.exp(log_mean), weight)


poisson_deviance = _deviance(_poisson_deviance, check_non_negative, "poisson_deviance")


# 2 (log(mean / y) + y / mean - 1) = 2 (exp(u) - u - 1) with u = log y - log mean
@elementwise
def _gamma_deviance(log_mean, y, weight):
    u = jnp.log(jnp.where(y > 0, y, 1)) - log_mean
    return 2 * mean(jnp.expm1(u) - u, weight)


gamma_deviance = _deviance(_gamma_deviance, check_positive, "gamma_deviance")


# 2 (y^(2 - p) / ((1 - p) (2 - p)) - y mean^(1 - p) / (1 - p) + mean^(2 - p) / (2 - p))
@elementwise
def _tweedie_deviance(log_mean, y, weight, power):
    zero = y == 0  # as 0 * inf the term could be NaN
    of_both = jnp.where(zero, 0, y * jnp.exp((1 - power) * jnp.where(zero, 0, log_mean)) / (1 - power))
    of_y = y ** (2 - power) / ((1 - power) * (2 - power))
    return 2 * mean(of_y - of_both + jnp.exp((2 - power) * log_mean) / (2 - power), weight)


def tweedie_deviance(power: float) -> Metric:
    """Return the mean Tweedie deviance of predicted means; `power` between 1 and 2 exclusive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import metrics
    >>> float(metrics.tweedie_deviance(1.5)(jnp.ones(1), jnp.ones(1), jnp.ones(1)))
    0.0
    """
    power = real_argument(power, "power", 1, 2, " (use poisson_deviance for 1, gamma_deviance for 2)")
    name = with_number("tweedie_deviance", power)
    return _deviance(Partial(_tweedie_deviance, power=power), check_non_negative, name)
