"""Student's t distribution, with degrees of freedom that are given or learned."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betainc, betaln, polygamma
from jax.tree_util import Partial

from jboost._objective.base_score import best_constant
from jboost._objective.domains import check_real, real_argument, with_number
from jboost._objective.rows import Rows
from jboost.distributions.distribution import Distribution
from jboost.distributions.inverting import inverse, search_standard
from jboost.distributions.special import LARGEST_LOG, stirling_step, times_log1p
from jboost.distributions.standard import LOG_ROOT_2PI

LARGE = 40.0  # degrees of freedom from which on a series has more digits
DF_AT_START = 5.0
LEAST_INFORMATION = (
    0.02  # on log(df): of many degrees of freedom targets tell so little that steps would run off
)


def student_t(df: float | None = None) -> Distribution:
    """Return Student's t distribution: scores [location, log scale], and log(df - 1) unless `df` is given.

    Learned degrees of freedom stay above 1, where there is a mean. The information on them in the Fisher matrix is
    more than the true one, which would let them run off.

    Parameters
    ----------
    df : float, optional
        Degrees of freedom, positive; a number in the distribution that a program takes as an operand. Learned if None.

    Returns
    -------
    Distribution

    References
    ----------
    Lange, Little and Taylor (1989), "Robust Statistical Modeling Using the t Distribution", for the Fisher matrix.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import distributions
    >>> tail = 1 - distributions.student_t(3.0)(jnp.zeros((1, 2))).cdf(jnp.array([4.0]))
    >>> round(float(tail[0]), 4)
    0.014
    """
    given = {} if df is None else {"df": real_argument(df, "df", 0, np.inf)}
    made: dict[str, Any] = {name: Partial(function, **given) for name, function in _FUNCTIONS.items()}
    name, k = ("student_t", 3) if df is None else (with_number("student_t", df), 2)
    if df is None:
        made |= {"start": _at_start, "hessian": "full"}
    return Distribution(name, k, check_target=check_real, **made)


def _at_start(rows: Rows, reduce: Any) -> Any:
    """Return the best location and scale for some degrees of freedom.

    All targets together may have lighter tails than those of like features, and degrees of freedom without end, from
    which no slope leads back.
    """
    offset = None if rows.offset is None else rows.offset[:, :2]
    known = best_constant(student_t(DF_AT_START).loss(), dataclasses.replace(rows, offset=offset), reduce)
    return jnp.append(known, jnp.log(jnp.asarray(DF_AT_START - 1, known.dtype)))


def _df(score: Any, df: Any) -> Any:
    return 1 + jnp.exp(jnp.minimum(score[2], LARGEST_LOG)) if df is None else jnp.asarray(df, score.dtype)


def _residual(score: Any, y: Any) -> Any:
    return (y - score[0]) * jnp.exp(-score[1])


def _log_prob(score: Any, y: Any, df: Any = None) -> Any:
    half, square = _df(score, df) / 2, jnp.square(_residual(score, y))
    # Gamma(half + 1/2) / Gamma(half) sqrt(half), whose logarithms are large
    ratio = _power(half, 0.5) - 0.5 + stirling_step(half, 0.5)
    return ratio - LOG_ROOT_2PI - _power(half, square / 2) - score[1]


def _power(half: Any, a: Any) -> Any:
    """Return (half + 1/2) log(1 + a / half), which is a for a large half."""
    x = a / half
    logarithm = jnp.log1p(x)
    return times_log1p(half, x, a, logarithm) + 0.5 * logarithm


def _parameters(score: Any, df: Any = None) -> Any:
    return {"df": _df(score, df), "loc": score[0], "scale": jnp.exp(score[1])}


def _mean(score: Any, df: Any = None) -> Any:
    return jnp.where(_df(score, df) > 1, score[0], jnp.nan)


def _variance(score: Any, df: Any = None) -> Any:
    nu = _df(score, df)
    finite = jnp.where(nu > 2, nu, 3)
    return jnp.where(nu > 2, jnp.exp(2 * score[1]) * finite / (finite - 2), jnp.inf)


def _tail(z: Any, nu: Any) -> Any:
    """Return the probability of what is beyond |z| on one side."""
    square, half = jnp.square(z), jnp.full_like(nu, 0.5)
    near = square < nu  # there the probability of what is within has more digits
    a, b = jnp.where(near, half, nu / 2), jnp.where(near, nu / 2, half)
    share = betainc(a, b, jnp.where(near, square, nu) / (nu + square))
    return 0.5 * jnp.where(near, 1 - share, share)


def _standard_cdf(z: Any, nu: Any) -> Any:
    tail = _tail(z, nu)
    return jnp.where(z < 0, tail, 1 - tail)


def _cdf(score: Any, y: Any, df: Any = None) -> Any:
    return _standard_cdf(_residual(score, y), _df(score, df))


def _log_sf(score: Any, y: Any, df: Any = None) -> Any:
    z, nu = _residual(score, y), _df(score, df)
    tail = _tail(z, nu)
    return jnp.where(z < 0, jnp.log1p(-tail), jnp.log(jnp.maximum(tail, jnp.finfo(tail.dtype).tiny)))


def _quantile(score: Any, q: Any, df: Any = None) -> Any:
    return inverse(score, q, Partial(_cdf, df=df), Partial(_search, df=df))


def _search(cdf: Any, score: Any, q: Any, df: Any = None) -> Any:
    nu = _df(score, df)
    # Of the smaller tail: near 1 a probability has fewer digits.
    size = -search_standard(lambda z: _standard_cdf(z, nu), jnp.minimum(q, 1 - q))
    return score[0] + jnp.exp(score[1]) * jnp.where(q < 0.5, -size, size)


# Jordan, Krueger and Lerch (2019), "Evaluating Probabilistic Forecasts with scoringRules", appendix A.1
def _crps(score: Any, y: Any, df: Any = None) -> Any:
    z, nu = _residual(score, y), _df(score, df)
    density = jnp.exp(_log_prob(score, y, df) + score[1])
    half = jnp.full_like(nu, 0.5)
    spread = jnp.exp(betaln(half, nu - 0.5) - 2 * betaln(half, nu / 2))
    of_scale = z * (2 * _standard_cdf(z, nu) - 1)
    has_mean = nu > 1
    rest = 2 * (density * (nu + jnp.square(z)) - jnp.sqrt(nu) * spread) / jnp.where(has_mean, nu - 1, 1)
    return jnp.where(has_mean, jnp.exp(score[1]) * (of_scale + rest), jnp.inf)


def _fisher(score: Any, df: Any = None) -> Any:
    nu, rate = _df(score, df), jnp.exp(-score[1])
    location, scale = jnp.square(rate) * (nu + 1) / (nu + 3), 2 * nu / (nu + 3)
    if df is not None:
        return jnp.diag(jnp.stack([location, scale]))
    both = -2 * (nu - 1) / ((nu + 1) * (nu + 3))
    of_df = _information_on_log_df(nu) + LEAST_INFORMATION
    none = jnp.zeros_like(nu)
    return jnp.stack(
        [
            jnp.stack([location, none, none]),
            jnp.stack([none, scale, both]),
            jnp.stack([none, both, of_df]),
        ]
    )


def _information_on_log_df(nu: Any) -> Any:
    """Return that on log(df): no less than that on log(df - 1), which is 0 where df is 1."""
    near, far = jnp.minimum(nu, LARGE), jnp.maximum(nu, LARGE)
    difference = polygamma(1, near / 2) - polygamma(1, (near + 1) / 2)
    exact = difference / 4 - (near + 5) / (2 * near * (near + 1) * (near + 3))
    series = 3.5 / jnp.square(far) / (1 + (26 / 7 + 2.6 / far) / far)
    return jnp.where(nu < LARGE, jnp.square(near) * exact, series)


_FUNCTIONS = {
    "log_prob": _log_prob,
    "parameters": _parameters,
    "mean": _mean,
    "variance": _variance,
    "cdf": _cdf,
    "quantile": _quantile,
    "log_sf": _log_sf,
    "crps": _crps,
    "fisher": _fisher,
}
