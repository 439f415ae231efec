"""The continuous ranked probability score of a row, without a formula of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost.distributions.fisher import unit_nodes

N_NODES = 48
N_COUNTS = 256
TAIL = 1e-6  # probability left out on either side


def crps_of_row(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    r"""Return :math:`\int (F(x) - [x \ge y])^2 dx`: by its formula, over x, or over quantiles.

    References
    ----------
    Gneiting and Raftery (2007), "Strictly Proper Scoring Rules, Prediction, and Estimation", eq. 20. Laio and Tamea
    (2007), "Verification tools for probabilistic forecasts of continuous hydrological variables", eq. 11, for quantiles.
    """
    if distribution.crps is not None:
        return distribution.crps(score, y)
    if distribution.is_discrete:
        return _over_counts(distribution, score, y)
    return _over_quantiles(distribution, score, y)


def _over_quantiles(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    """Integrate 2 q (y - Q(q)) up to F(y), and 2 (1 - q) (Q(q) - y) from there, each with nodes dense at its end."""
    node, weight = (jnp.asarray(part, score.dtype) for part in unit_nodes(N_NODES))
    # q = F(y) t^3: where Q may run off, the nodes lie close, and their weights fall.
    dense, scale = node**3, 3 * node**2 * weight
    u = jnp.clip(distribution.cdf(score, y), TAIL, 1 - TAIL)
    below, above = u * dense, (1 - u) * dense
    quantile = jax.vmap(distribution.quantile, (None, 0))
    left = u * scale * 2 * below * (y - quantile(score, below))
    right = (1 - u) * scale * 2 * above * (quantile(score, 1 - above) - y)
    return jnp.sum(left + right)


def _over_counts(distribution: Any, score: Float[Array, " k"], y: Any) -> Array:
    """Sum over the counts that matter, or over as many of them at equal distances where they are more."""
    low = jnp.minimum(distribution.quantile(score, TAIL), y)
    high = jnp.maximum(distribution.quantile(score, 1 - TAIL), y)
    stride = jnp.maximum(jnp.ceil((high - low + 1) / N_COUNTS), 1)
    count = low + stride * jnp.arange(N_COUNTS, dtype=score.dtype)
    cdf = jax.vmap(distribution.cdf, (None, 0))(score, count)
    return jnp.sum(stride * jnp.square(cdf - (count >= y)))
