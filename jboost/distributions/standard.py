"""Standard forms of families of a location and a scale: that of location 0 and scale 1, and its information."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtr, ndtri

EULER = 0.5772156649015329
LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


class Standard(NamedTuple):
    """Functions of z = (y - location) / scale, and what `Distribution` needs beside."""

    log_density: Callable[[Any], Any]
    cdf: Callable[[Any], Any]
    log_sf: Callable[[Any], Any]
    quantile: Callable[[Any], Any]
    mean: float
    variance: float
    information: tuple[
        float, float, float
    ]  # on the location twice, on both, on the log scale twice; of scale 1
    crps: Callable[[Any], Any] | None = None


def absolute(z: Any) -> Any:
    """Return |z|, whose derivative at 0 lies between both sides."""
    return z * jnp.sign(z)


# CRPS: Gneiting and Raftery (2007), "Strictly Proper Scoring Rules, Prediction, and Estimation", section 4.2
def _normal_log_density(z: Any) -> Any:
    return -0.5 * jnp.square(z) - LOG_ROOT_2PI


def _normal_log_sf(z: Any) -> Any:
    return log_ndtr(-z)


def _normal_crps(z: Any) -> Any:
    return z * (2 * ndtr(z) - 1) + 2 * jnp.exp(_normal_log_density(z)) - 1 / np.sqrt(np.pi)


NORMAL = Standard(_normal_log_density, ndtr, _normal_log_sf, ndtri, 0.0, 1.0, (1.0, 0.0, 2.0), _normal_crps)


def _laplace_log_density(z: Any) -> Any:
    return -absolute(z) - np.log(2)


def _laplace_cdf(z: Any) -> Any:
    tail = 0.5 * jnp.exp(-absolute(z))
    return jnp.where(z < 0, tail, 1 - tail)


def _laplace_log_sf(z: Any) -> Any:
    tail = 0.5 * jnp.exp(-absolute(z))
    return jnp.where(z < 0, jnp.log1p(-tail), -absolute(z) - np.log(2))


def _laplace_quantile(q: Any) -> Any:
    return jnp.where(q < 0.5, jnp.log(2 * jnp.minimum(q, 0.5)), -jnp.log(2 * jnp.minimum(1 - q, 0.5)))


def _laplace_crps(z: Any) -> Any:
    return absolute(z) + jnp.exp(-absolute(z)) - 0.75


LAPLACE = Standard(
    _laplace_log_density, _laplace_cdf, _laplace_log_sf, _laplace_quantile, 0.0, 2.0, (1.0, 0.0, 1.0), _laplace_crps
)  # fmt: skip


def _logistic_log_density(z: Any) -> Any:
    return -jax.nn.softplus(z) - jax.nn.softplus(-z)


def _logistic_log_sf(z: Any) -> Any:
    return -jax.nn.softplus(z)


def _logistic_quantile(q: Any) -> Any:
    return jnp.log(q) - jnp.log1p(-q)


def _logistic_crps(z: Any) -> Any:
    return jax.nn.softplus(z) + jax.nn.softplus(-z) - 1


LOGISTIC = Standard(
    _logistic_log_density,
    jax.nn.sigmoid,
    _logistic_log_sf,
    _logistic_quantile,
    0.0,
    np.pi**2 / 3,
    (1 / 3, 0.0, (3 + np.pi**2) / 9),
    _logistic_crps,
)


# The logarithm of a Weibull variable: smallest values
def _gumbel_log_density(z: Any) -> Any:
    return z - jnp.exp(z)


def _gumbel_cdf(z: Any) -> Any:
    return -jnp.expm1(-jnp.exp(z))


def _gumbel_log_sf(z: Any) -> Any:
    return -jnp.exp(z)


def _gumbel_quantile(q: Any) -> Any:
    return jnp.log(-jnp.log1p(-q))


GUMBEL = Standard(
    _gumbel_log_density,
    _gumbel_cdf,
    _gumbel_log_sf,
    _gumbel_quantile,
    -EULER,
    np.pi**2 / 6,
    (1.0, 1 - EULER, np.pi**2 / 6 + (1 - EULER) ** 2),
)
