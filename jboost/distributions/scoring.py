"""The continuous ranked probability score of a row, without a formula of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost.distributions.fisher import unit_nodes

N_NODES = 32
N_COUNTS = 96  # on either side of the target
TAIL = 1e-6  # probability left out on either side


def crps_of_row(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    r"""Return :math:`\int (F(x) - [x \ge y])^2 dx`: by its formula, over x, or over quantiles.

    References
    ----------
    Gneiting and Raftery (2007), "Strictly Proper Scoring Rules, Prediction, and Estimation", eq. 20. Laio and Tamea
    (2007), "Verification tools for probabilistic forecasts of continuous hydrological variables", for quantiles.
    """
    if distribution.crps is not None:
        return distribution.crps(score, y)
    if distribution.is_discrete:
        return _over_counts(distribution, score, y)
    return _over_quantiles(distribution, score, y)


def _over_quantiles(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    """Integrate 2 q (y - Q(q)) up to F(y), and 2 (1 - q) (Q(q) - y) from there."""
    eps = jnp.finfo(score.dtype).eps
    node, weight = (jnp.asarray(part, score.dtype) for part in unit_nodes(N_NODES))
    u = jnp.clip(distribution.cdf(score, y), TAIL, 1 - TAIL)
    below, above = u * node, (1 - u) * node
    quantile = jax.vmap(distribution.quantile, (None, 0))
    left = u * weight * below * (y - quantile(score, below))
    right = (1 - u) * weight * above * (quantile(score, jnp.minimum(1 - above, 1 - eps)) - y)
    return 2 * jnp.sum(left + right)


def _over_counts(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    """Sum F^2 over the counts below y, and (1 - F)^2 over those from y on."""
    low = jnp.minimum(distribution.quantile(score, TAIL), y)
    high = jnp.maximum(distribution.quantile(score, 1 - TAIL), y)

    def below(count: Array) -> Array:
        return jnp.square(distribution.cdf(score, count))

    def above(count: Array) -> Array:
        return jnp.square(1 - distribution.cdf(score, count))

    return _sum_over(below, low, y) + _sum_over(above, y, high + 1)


def _sum_over(function: Any, start: Array, end: Array) -> Array:
    """Sum a function of whole numbers from start to end - 1: each up to N_COUNTS, some of those beyond."""
    number, length = jnp.arange(N_COUNTS + 1, dtype=start.dtype), end - start
    step = jnp.maximum(number, jnp.floor(length * (number / N_COUNTS) ** 3))
    first = start + jnp.minimum(step, length)
    width = jnp.diff(first)
    ends = jax.vmap(function)(jnp.concatenate([first[:-1], jnp.maximum(first[1:] - 1, first[:-1])]))
    return jnp.sum(width * ends.reshape(2, N_COUNTS).mean(axis=0))
