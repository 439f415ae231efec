"""Distributions of real and of positive targets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, gammainc, gammaincc, gammaln, log_ndtr, ndtr
from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._fixed_point.quantile import weighted_quantile
from jboost._objective.domains import check_positive
from jboost._objective.rows import Rows
from jboost.distributions.distribution import Distribution
from jboost.distributions.inverting import inverse, search_positive, search_unit
from jboost.distributions.location_scale import exponential_of, location_scale
from jboost.distributions.special import curvature_of_gamma, stirling_gap
from jboost.distributions.standard import GUMBEL, LAPLACE, LOG_ROOT_2PI, LOGISTIC, NORMAL


def check_open_unit(y: Any) -> None:
    """Raise unless y lies strictly between 0 and 1."""
    check_positive(y)
    try:
        check_positive(1 - np.asarray(y, float))
    except ValueError as error:
        largest = np.max(np.asarray(y))
        raise ValueError(f"y must lie strictly between 0 and 1; got {largest}") from error


# --- Scores [location, log scale] ------------------------------------------------------------------------------


def mean_and_log_deviation(y: Any, mean: Any) -> Any:
    """Return the mean and the logarithm of the standard deviation, also where squares leave the range of floats."""
    y = jnp.asarray(y, float)
    centre = mean(y)
    residual = y - centre
    size = _or_least(mean(jnp.abs(residual)), centre)
    square = mean(jnp.square(residual / size))
    return jnp.stack([centre, jnp.log(size) + 0.5 * jnp.log(jnp.where(square > 0, square, 1))])


def _or_least(size: Any, centre: Any) -> Any:
    """Return a deviation, and what rounding alone makes of one where a target is constant."""
    least = jnp.maximum(jnp.finfo(size.dtype).eps * jnp.abs(centre), jnp.finfo(size.dtype).tiny ** 0.25)
    return jnp.where(size > 0, size, least)


def _median_and_log_deviation(rows: Rows, reduce: Any) -> Any:
    """Return the median and the logarithm of the mean distance from it, by which the likelihood is the largest."""
    y = jnp.asarray(rows.y, float)
    weight = jnp.asarray(rows.weight, y.dtype)
    rate = jnp.ones_like(y) if rows.offset is None else jnp.exp(-rows.offset[:, 1])
    shifted = y if rows.offset is None else y - rows.offset[:, 0]
    centre = weighted_quantile(shifted, weight * rate, 0.5, reduce)
    largest = jnp.max(
        jnp.where(weight > 0, jnp.abs(shifted - centre), 0)
    )  # sums of it stay within the range of floats
    distance = jnp.abs(shifted - centre) / jnp.where(largest > 0, largest, 1)
    size = largest * mean(distance * rate, weight)
    return jnp.stack([centre, jnp.log(_or_least(size, centre))])


normal = location_scale("normal", NORMAL, constant=mean_and_log_deviation)
laplace = location_scale("laplace", LAPLACE, start=_median_and_log_deviation)
logistic = location_scale("logistic", LOGISTIC)


def _of_log(y: Any, mean: Any) -> Any:
    return mean_and_log_deviation(jnp.log(y), mean)


def _lognormal_mean(score: Any) -> Any:
    return jnp.exp(score[0] + 0.5 * jnp.exp(2 * score[1]))


def _lognormal_variance(score: Any) -> Any:
    square = jnp.exp(2 * score[1])
    return jnp.expm1(square) * jnp.exp(2 * score[0] + square)


# Baran and Lerch (2015), "Log-normal distribution based Ensemble Model Output Statistics models", eq. 4
def _lognormal_crps(score: Any, y: Any) -> Any:
    scale = jnp.exp(score[1])
    z = (jnp.log(y) - score[0]) / scale
    inner = ndtr(z - scale) + ndtr(scale / np.sqrt(2)) - 1
    return y * (2 * ndtr(z) - 1) - 2 * _lognormal_mean(score) * inner


def _of_logs(score: Any) -> Any:
    return {"loc": score[0], "scale": jnp.exp(score[1])}


lognormal = exponential_of(
    "lognormal",
    NORMAL,
    mean=_lognormal_mean,
    variance=_lognormal_variance,
    crps=_lognormal_crps,
    constant=_of_log,
    parameters=_of_logs,
)


def _scale_and_concentration(score: Any) -> Any:
    return {"scale": jnp.exp(score[0]), "concentration": jnp.exp(-score[1])}


# Moments of order m: scale^m Gamma(1 + m sigma)
def _weibull_mean(score: Any) -> Any:
    return jnp.exp(score[0] + gammaln(1 + jnp.exp(score[1])))


def _weibull_variance(score: Any) -> Any:
    sigma = jnp.exp(score[1])
    gap = gammaln(1 + 2 * sigma) - 2 * gammaln(1 + sigma)
    return jnp.expm1(gap) * jnp.exp(2 * score[0] + 2 * gammaln(1 + sigma))


weibull = exponential_of(
    "weibull",
    GUMBEL,
    mean=_weibull_mean,
    variance=_weibull_variance,
    parameters=_scale_and_concentration,
    hessian="full",
)


# Moments of order m: scale^m pi m sigma / sin(pi m sigma) where m sigma < 1, infinite beyond
def _loglogistic_moment(score: Any, order: int) -> Any:
    angle = order * jnp.exp(score[1])
    safe = jnp.where(angle < 1, angle, 0.5)
    return jnp.where(angle < 1, jnp.exp(order * score[0]) / jnp.sinc(safe), jnp.inf)


def _loglogistic_variance(score: Any) -> Any:
    second = _loglogistic_moment(score, 2)
    return jnp.where(jnp.isinf(second), jnp.inf, second - jnp.square(_loglogistic_moment(score, 1)))


loglogistic = exponential_of(
    "loglogistic",
    LOGISTIC,
    mean=Partial(_loglogistic_moment, order=1),
    variance=_loglogistic_variance,
    parameters=_scale_and_concentration,
)


# --- Scores [log mean, log shape], whose estimates do not depend on each other ---------------------------------


# L = -log p, p = (a / m)^a y^(a - 1) exp(-a y / m) / Gamma(a), with mean m and shape a
def _gamma_log_prob(score: Any, y: Any) -> Any:
    log_ratio, shape = jnp.log(y) - score[0], jnp.exp(score[1])
    return shape * (log_ratio - jnp.expm1(log_ratio)) + stirling_gap(shape) - jnp.log(y)


def _gamma_parameters(score: Any) -> Any:
    return {"concentration": jnp.exp(score[1]), "rate": jnp.exp(score[1] - score[0])}


def _exp_of_first(score: Any) -> Any:
    return jnp.exp(score[0])


def _gamma_variance(score: Any) -> Any:
    return jnp.exp(2 * score[0] - score[1])


def _gamma_cdf(score: Any, y: Any) -> Any:
    return gammainc(jnp.exp(score[1]), jnp.maximum(y, 0) * jnp.exp(score[1] - score[0]))


def _gamma_log_sf(score: Any, y: Any) -> Any:
    return jnp.log(gammaincc(jnp.exp(score[1]), jnp.maximum(y, 0) * jnp.exp(score[1] - score[0])))


def _gamma_sample(score: Any, key: Any) -> Any:
    return jax.random.gamma(key, jnp.exp(score[1])) * jnp.exp(score[0] - score[1])


def _gamma_fisher(score: Any) -> Any:
    shape = jnp.exp(score[1])
    return jnp.diag(jnp.stack([shape, curvature_of_gamma(shape)]))


# Scheuerer and Moeller (2015), "Probabilistic wind speed forecasting on a grid based on ensemble model output
# statistics", eq. 3
def _gamma_crps(score: Any, y: Any) -> Any:
    mean, shape = jnp.exp(score[0]), jnp.exp(score[1])
    x = y * shape / mean
    spread = mean / (shape * jnp.exp(betaln(jnp.full_like(shape, 0.5), shape)))
    return y * (2 * gammainc(shape, x) - 1) - mean * (2 * gammainc(shape + 1, x) - 1) - spread


gamma = Distribution(
    "gamma",
    2,
    log_prob=_gamma_log_prob,
    parameters=_gamma_parameters,
    mean=_exp_of_first,
    variance=_gamma_variance,
    cdf=_gamma_cdf,
    log_sf=_gamma_log_sf,
    quantile=Partial(inverse, cdf=_gamma_cdf, search=search_positive),
    sample=_gamma_sample,
    crps=_gamma_crps,
    fisher=_gamma_fisher,
    check_target=check_positive,
)


# p = sqrt(l / (2 pi y^3)) exp(-l (y - m)^2 / (2 m^2 y)), with mean m and shape l
def _inverse_gaussian_log_prob(score: Any, y: Any) -> Any:
    log_y = jnp.log(y)
    half = 0.5 * (log_y - score[0])
    # (y - m)^2 / (m^2 y) = (2 sinh(log(y / m) / 2))^2 / m
    square = jnp.square(2 * jnp.sinh(half)) * jnp.exp(score[1] - score[0])
    return 0.5 * (score[1] - 3 * log_y - square) - LOG_ROOT_2PI


def _inverse_gaussian_parameters(score: Any) -> Any:
    return {"loc": jnp.exp(score[0]), "concentration": jnp.exp(score[1])}


def _inverse_gaussian_variance(score: Any) -> Any:
    return jnp.exp(3 * score[0] - score[1])


def _inverse_gaussian_cdf(score: Any, y: Any) -> Any:
    above, below = _ends(score, y)
    return jnp.where(y > 0, ndtr(above) + below, 0)


def _inverse_gaussian_log_sf(score: Any, y: Any) -> Any:
    above, below = _ends(score, y)
    rest = ndtr(-above) - below
    return jnp.where(y > 0, jnp.log(jnp.maximum(rest, jnp.finfo(rest.dtype).tiny)), 0)


# Shuster (1968), "On the inverse Gaussian distribution function"
def _ends(score: Any, y: Any) -> Any:
    y = jnp.where(y > 0, y, 1)
    half, root = 0.5 * (jnp.log(y) - score[0]), jnp.exp(0.5 * (score[1] - score[0]))
    above, below = 2 * jnp.sinh(half) * root, -2 * jnp.cosh(half) * root
    return above, jnp.exp(2 * jnp.square(root) + log_ndtr(below))


def _inverse_gaussian_fisher(score: Any) -> Any:
    ratio = jnp.exp(score[1] - score[0])
    return jnp.diag(jnp.stack([ratio, jnp.full_like(ratio, 0.5)]))


def _inverse_gaussian_constant(y: Any, mean: Any) -> Any:
    centre = mean(y)
    half = 0.5 * (jnp.log(y) - jnp.log(centre))
    spread = mean(jnp.square(2 * jnp.sinh(half)))
    spread = jnp.where(spread > 0, spread, jnp.finfo(spread.dtype).eps ** 2)
    return jnp.log(centre) - jnp.stack([jnp.zeros_like(spread), jnp.log(spread)])


inverse_gaussian = Distribution(
    "inverse_gaussian",
    2,
    log_prob=_inverse_gaussian_log_prob,
    parameters=_inverse_gaussian_parameters,
    mean=_exp_of_first,
    variance=_inverse_gaussian_variance,
    cdf=_inverse_gaussian_cdf,
    log_sf=_inverse_gaussian_log_sf,
    quantile=Partial(inverse, cdf=_inverse_gaussian_cdf, search=search_positive),
    fisher=_inverse_gaussian_fisher,
    constant=_inverse_gaussian_constant,
    check_target=check_positive,
)


# --- Beta: scores [log odds of the mean, log precision] --------------------------------------------------------


# Ferrari and Cribari-Neto (2004), "Beta Regression for Modelling Rates and Proportions", eq. 4
def _shapes(score: Any) -> Any:
    precision = jnp.exp(score[1])
    return precision * jax.nn.sigmoid(score[0]), precision * jax.nn.sigmoid(-score[0])


def _beta_log_prob(score: Any, y: Any) -> Any:
    a, b = _shapes(score)
    log_y, log_rest = jnp.log(y), jnp.log1p(-y)
    of_mean = a * (log_y + jax.nn.softplus(-score[0])) + b * (log_rest + jax.nn.softplus(score[0]))
    return of_mean + stirling_gap(a) + stirling_gap(b) - stirling_gap(jnp.exp(score[1])) - log_y - log_rest


def _beta_parameters(score: Any) -> Any:
    a, b = _shapes(score)
    return {"concentration1": a, "concentration0": b}


def _beta_mean(score: Any) -> Any:
    return jax.nn.sigmoid(score[0])


def _beta_variance(score: Any) -> Any:
    return jax.nn.sigmoid(score[0]) * jax.nn.sigmoid(-score[0]) * jax.nn.sigmoid(-score[1])


def _beta_cdf(score: Any, y: Any) -> Any:
    a, b = _shapes(score)
    return betainc(a, b, jnp.clip(y, 0, 1))


def _beta_sample(score: Any, key: Any) -> Any:
    a, b = _shapes(score)
    return jax.random.beta(key, a, b)


def _beta_fisher(score: Any) -> Any:
    a, b = _shapes(score)
    of_a, of_b, of_both = curvature_of_gamma(a), curvature_of_gamma(b), curvature_of_gamma(a + b)
    slope = (a + b) * jax.nn.sigmoid(score[0]) * jax.nn.sigmoid(-score[0])
    # With h(x) = x^2 psi'(x) - x: psi'(x) = (h(x) + x) / x^2
    mean = jnp.square(slope) * ((of_a + a) / jnp.square(a) + (of_b + b) / jnp.square(b))
    both = slope * (of_a / a - of_b / b)
    return jnp.stack([jnp.stack([mean, both]), jnp.stack([both, of_a + of_b - of_both])])


beta = Distribution(
    "beta",
    2,
    log_prob=_beta_log_prob,
    parameters=_beta_parameters,
    mean=_beta_mean,
    variance=_beta_variance,
    cdf=_beta_cdf,
    quantile=Partial(inverse, cdf=_beta_cdf, search=search_unit),
    sample=_beta_sample,
    fisher=_beta_fisher,
    check_target=check_open_unit,
)
