"""Distributions of counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, gammaincc, gammaln, i0e, i1e
from jax.tree_util import Partial

from jboost._objective.domains import check_non_negative
from jboost.distributions.distribution import Distribution
from jboost.distributions.inverting import smallest_count
from jboost.distributions.special import (
    LARGEST_LOG,
    curvature_of_gamma,
    stirling_gap,
    stirling_step,
    times_log1p,
)
from jboost.losses import poisson as poisson_loss


def check_count(y: Any) -> None:
    """Raise unless y holds whole numbers of at least 0."""
    check_non_negative(y)
    y = np.asarray(y)
    broken = y != np.round(y)
    if broken.any():
        raise ValueError(f"y must hold whole numbers; got {y[broken][0]} at row {np.argwhere(broken)[0, 0]}")


def _mean(score: Any) -> Any:
    return jnp.exp(score[0])


# p = m^y exp(-m) / y!, score log m
def _poisson_log_prob(score: Any, y: Any) -> Any:
    return y * score[0] - jnp.exp(score[0]) - gammaln(y + 1)


def _poisson_parameters(score: Any) -> Any:
    return {"rate": jnp.exp(score[0])}


def _poisson_cdf(score: Any, y: Any) -> Any:
    count = jnp.floor(y)
    return jnp.where(count >= 0, gammaincc(jnp.maximum(count, 0) + 1, jnp.exp(score[0])), 0)


def _poisson_sample(score: Any, key: Any) -> Any:
    return jnp.asarray(jax.random.poisson(key, jnp.exp(score[0])), score.dtype)


def _poisson_fisher(score: Any) -> Any:
    return jnp.exp(score)[None]


# Wei and Held (2014), "Calibration tests for count data", section 2.2: F and p at y, Bessel functions scaled by e^-2m
def _poisson_crps(score: Any, y: Any) -> Any:
    rate, is_zero = jnp.exp(score[0]), y == 0
    count = jnp.where(is_zero, 1, y)
    log_ratio = score[0] - jnp.log(count)
    log_p = count * (log_ratio - jnp.expm1(log_ratio)) + stirling_gap(count) - jnp.log(count)
    p = jnp.exp(jnp.where(is_zero, -rate, log_p))
    return (y - rate) * (2 * _poisson_cdf(score, y) - 1) + rate * (2 * p - i0e(2 * rate) - i1e(2 * rate))


poisson = Distribution(
    "poisson",
    1,
    log_prob=_poisson_log_prob,
    parameters=_poisson_parameters,
    mean=_mean,
    variance=_mean,
    cdf=_poisson_cdf,
    quantile=Partial(smallest_count, cdf=_poisson_cdf),
    sample=_poisson_sample,
    crps=_poisson_crps,
    fisher=_poisson_fisher,
    constant=poisson_loss.constant,
    check_target=check_count,
    is_discrete=True,
)


def _concentration(score: Any) -> Any:
    # It may run off, and from there on it is a Poisson distribution to the last digit.
    return jnp.exp(jnp.minimum(score[1], LARGEST_LOG))


# p = Gamma(y + r) / (Gamma(r) y!) (r / (r + m))^r (m / (r + m))^y, scores log m and log r; variance m + m^2 / r.
# Written so that r may be large: there it is the Poisson distribution.
def _negative_binomial_log_prob(score: Any, y: Any) -> Any:
    mean, r = jnp.exp(score[0]), _concentration(score)
    x = (y - mean) / (r + mean)
    ratio = times_log1p(y + r, x, (y - mean) * (1 + x), jnp.log(y + r) - jnp.log(r + mean)) - y
    return y * score[0] + ratio + stirling_step(r, y) - gammaln(y + 1)


def _negative_binomial_parameters(score: Any) -> Any:
    return {"mean": jnp.exp(score[0]), "concentration": _concentration(score)}


def _negative_binomial_variance(score: Any) -> Any:
    return jnp.exp(score[0]) + jnp.exp(2 * score[0] - score[1])


def _negative_binomial_cdf(score: Any, y: Any) -> Any:
    count, mean = jnp.floor(y), jnp.exp(score[0])
    # Of a large r, where the incomplete beta function loses its digits, it is Poisson's, up to (1 + mean) / r.
    is_large = score[1] > jnp.log1p(mean) - 0.5 * np.log(jnp.finfo(mean.dtype).eps)
    share = jax.nn.sigmoid(jnp.where(is_large, 0, score[1] - score[0]))
    of_beta = betainc(jnp.exp(jnp.where(is_large, 0, score[1])), jnp.maximum(count, 0) + 1, share)
    return jnp.where(is_large, _poisson_cdf(score, y), jnp.where(count >= 0, of_beta, 0))


def _negative_binomial_sample(score: Any, key: Any) -> Any:
    of_rate, of_count = jax.random.split(key)
    r = _concentration(score)
    rate = jax.random.gamma(of_rate, r) / r * jnp.exp(score[0])
    return jnp.asarray(jax.random.poisson(of_count, rate), score.dtype)


# Of r it is that of the gamma variable in it, times the square of the share of its variance: no less than the true one,
# for which there is no formula, and the same for a large r or a large mean
def _negative_binomial_fisher(score: Any) -> Any:
    share = jax.nn.sigmoid(score[0] - score[1])
    of_mean = jnp.exp(score[0]) * jax.nn.sigmoid(score[1] - score[0])
    return jnp.diag(jnp.stack([of_mean, curvature_of_gamma(_concentration(score)) * jnp.square(share)]))


negative_binomial = Distribution(
    "negative_binomial",
    2,
    log_prob=_negative_binomial_log_prob,
    parameters=_negative_binomial_parameters,
    mean=_mean,
    variance=_negative_binomial_variance,
    cdf=_negative_binomial_cdf,
    quantile=Partial(smallest_count, cdf=_negative_binomial_cdf),
    sample=_negative_binomial_sample,
    fisher=_negative_binomial_fisher,
    check_target=check_count,
    is_discrete=True,
)
