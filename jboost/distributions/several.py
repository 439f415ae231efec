"""The normal distribution of several targets that depend on each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._objective.domains import check_real
from jboost.distributions.distribution import Distribution
from jboost.distributions.standard import LOG_ROOT_2PI


def multivariate_normal(n_targets: int) -> Distribution:
    r"""Return the normal distribution of d targets with a mean and a covariance matrix of each row.

    With :math:`r = y - \mu` and a lower triangular matrix T with ones on its diagonal, the entries of :math:`T r` do
    not depend on each other: -T holds the regression of each target on those before it. A score holds the means [d],
    the logarithms [d] of the deviations of :math:`T r`, and the entries of T below its diagonal, row by row.

    Parameters
    ----------
    n_targets : int
        d, at least 2; y is [n d].

    References
    ----------
    Pourahmadi (1999), "Joint mean-covariance models with applications to longitudinal data", for these parameters.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import distributions
    >>> pair = distributions.multivariate_normal(2)(jnp.array([[0.0, 0.0, 0.0, 0.0, -0.5]]))
    >>> pair.parameters()["covariance"].tolist()
    [[[1.0, 0.5], [0.5, 1.25]]]
    """
    if type(n_targets) is not int or n_targets < 2:
        raise ValueError(f"n_targets must be an integer of at least 2, got {n_targets!r}")
    d = {"d": n_targets}
    return Distribution(
        f"multivariate_normal({n_targets})",
        n_targets * (n_targets + 3) // 2,
        log_prob=_log_prob,
        parameters=Partial(_parameters, **d),
        mean=Partial(_mean, **d),
        variance=Partial(_variance, **d),
        sample=Partial(_sample, **d),
        fisher=Partial(_fisher, **d),
        constant=_constant,
        check_target=Partial(_check, **d),
        hessian="full",
    )


def _check(y: Any, d: int) -> None:
    check_real(y)
    if np.ndim(y) != 2 or np.shape(y)[1] != d:
        raise ValueError(f"y must have shape [n {d}], got {np.shape(y)}")


def _parts(score: Any, d: int) -> tuple[Any, Any, Any]:
    """Return means, log deviations and T."""
    lower = jnp.eye(d, dtype=score.dtype).at[np.tril_indices(d, -1)].set(score[2 * d :])
    return score[:d], score[d : 2 * d], lower


def _log_prob(score: Any, y: Any) -> Any:
    mean, log_scale, lower = _parts(score, y.size)
    z = jnp.sum(lower * (y - mean)[None], axis=1) * jnp.exp(-log_scale)
    return -jnp.sum(0.5 * jnp.square(z) + log_scale + LOG_ROOT_2PI)


def _covariance(score: Any, d: int) -> Any:
    _, log_scale, lower = _parts(score, d)
    root = jax.scipy.linalg.solve_triangular(
        lower, jnp.diag(jnp.exp(log_scale)), lower=True, unit_diagonal=True
    )
    return root @ root.T


def _parameters(score: Any, d: int) -> Any:
    return {"loc": score[:d], "covariance": _covariance(score, d)}


def _mean(score: Any, d: int) -> Any:
    return score[:d]


def _variance(score: Any, d: int) -> Any:
    return jnp.diagonal(_covariance(score, d))


def _sample(score: Any, key: Any, d: int) -> Any:
    mean, log_scale, lower = _parts(score, d)
    z = jax.random.normal(key, (d,), score.dtype) * jnp.exp(log_scale)
    return mean + jax.scipy.linalg.solve_triangular(lower, z, lower=True, unit_diagonal=True)


def _fisher(score: Any, d: int) -> Any:
    """Return that of the means, of each log deviation, and of each row of T: none tells of another."""
    _, log_scale, lower = _parts(score, d)
    whitening = lower * jnp.exp(-log_scale)[:, None]
    covariance = _covariance(score, d)
    rows = [covariance[:i, :i] * jnp.exp(-2 * log_scale[i]) for i in range(1, d)]
    twice = 2 * jnp.eye(d, dtype=score.dtype)
    return jax.scipy.linalg.block_diag(whitening.T @ whitening, twice, *rows)


def _constant(y: Any, mean: Any) -> Any:
    """Return the means, and target by target the regression on those before it."""
    y = jnp.asarray(y, float)
    centre = mean(y)
    d = centre.size
    residual = y - centre[None]
    unit = jnp.sqrt(mean(jnp.square(residual)))
    least = jnp.maximum(jnp.finfo(unit.dtype).eps * jnp.abs(centre), jnp.finfo(unit.dtype).tiny ** 0.25)
    unit = jnp.where(unit > 0, unit, least)
    correlation = mean((residual / unit[None])[:, :, None] * (residual / unit[None])[:, None])
    correlation = jnp.where(jnp.eye(d, dtype=bool), 1, correlation)
    root = jnp.linalg.cholesky(correlation + 8 * jnp.finfo(unit.dtype).eps * jnp.eye(d, dtype=unit.dtype))
    scale = jnp.diagonal(root)
    inverse = jax.scipy.linalg.solve_triangular(root, jnp.eye(d, dtype=root.dtype), lower=True)
    lower = inverse * scale[:, None] * unit[:, None] / unit[None]
    return jnp.concatenate([centre, jnp.log(scale * unit), lower[np.tril_indices(d, -1)]])
