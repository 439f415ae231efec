"""Families of a location and a scale, and what their exponentials are: scores [location, log scale]."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._objective.domains import check_positive, check_real
from jboost.distributions.distribution import Distribution
from jboost.distributions.standard import Standard


def check_spread(y: Any) -> None:
    """Raise unless y holds real numbers, whose deviation has a square within the range of JAX's floats.

    The second derivatives by a location are of the size of its inverse, and would be 0.
    """
    check_real(y)
    limits = jnp.finfo(jnp.result_type(float))
    deviation, largest = np.std(np.asarray(y, np.float64)), 0.5 / np.sqrt(float(limits.tiny))
    if deviation > largest:
        raise ValueError(
            f"y must have a standard deviation of at most {largest:.2g} in {limits.dtype}, got {deviation:.3g}; scale y"
        )


def _residual(score: Any, y: Any) -> Any:
    return (y - score[0]) * jnp.exp(-score[1])


def _log_prob(score: Any, y: Any, of: Standard) -> Any:
    return of.log_density(_residual(score, y)) - score[1]


def _at_residual(score: Any, y: Any, function: Any) -> Any:
    return function(_residual(score, y))


def _quantile(score: Any, q: Any, of: Standard) -> Any:
    return score[0] + jnp.exp(score[1]) * of.quantile(q)


def _mean(score: Any, of: Standard) -> Any:
    return score[0] + of.mean * jnp.exp(score[1])


def _variance(score: Any, of: Standard) -> Any:
    return of.variance * jnp.exp(2 * score[1])


def _crps(score: Any, y: Any, of: Standard) -> Any:
    return jnp.exp(score[1]) * of.crps(_residual(score, y))  # pyright: ignore[reportOptionalCall]


def _fisher(score: Any, of: Standard) -> Any:
    location, both, scale = of.information
    rate = jnp.exp(-score[1])
    cross = both * rate
    row = jnp.stack([location * jnp.square(rate), cross]), jnp.stack([cross, jnp.full_like(rate, scale)])
    return jnp.stack(row)


def _parameters(score: Any) -> Any:
    return {"loc": score[0], "scale": jnp.exp(score[1])}


def location_scale(name: str, of: Standard, **more: Any) -> Distribution:
    """Return the family of location + scale * z for z of a standard form."""
    known = {
        "crps": None if of.crps is None else Partial(_crps, of=of),
        "check_target": check_spread,
        "parameters": _parameters,
    }
    return Distribution(
        name,
        2,
        log_prob=Partial(_log_prob, of=of),
        mean=Partial(_mean, of=of),
        variance=Partial(_variance, of=of),
        cdf=Partial(_at_residual, function=of.cdf),
        log_sf=Partial(_at_residual, function=of.log_sf),
        quantile=Partial(_quantile, of=of),
        fisher=Partial(_fisher, of=of),
        **(known | more),
    )


# --- Exponentials: y > 0, whose logarithm has a location and a scale -------------------------------------------


def _log_prob_of_exp(score: Any, y: Any, of: Standard) -> Any:
    log_y = jnp.log(y)
    return _log_prob(score, log_y, of) - log_y


def _at_log(score: Any, y: Any, function: Any) -> Any:
    is_positive = y > 0  # a distribution function may be asked at 0
    log_y = jnp.log(jnp.where(is_positive, y, 1))
    return jnp.where(is_positive, function(_residual(score, log_y)), function(jnp.full_like(log_y, -jnp.inf)))


def _quantile_of_exp(score: Any, q: Any, of: Standard) -> Any:
    return jnp.exp(_quantile(score, q, of))


def exponential_of(name: str, of: Standard, **more: Any) -> Distribution:
    """Return the family of exp(location + scale * z) for z of a standard form."""
    return Distribution(
        name,
        2,
        log_prob=Partial(_log_prob_of_exp, of=of),
        cdf=Partial(_at_log, function=of.cdf),
        log_sf=Partial(_at_log, function=of.log_sf),
        quantile=Partial(_quantile_of_exp, of=of),
        fisher=Partial(_fisher, of=of),
        check_target=check_positive,
        **more,
    )
