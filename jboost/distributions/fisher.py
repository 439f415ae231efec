"""The Fisher matrix of a row by its score: a formula, or the mean square of the derivative over fixed nodes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

N_NODES = 32
N_SAMPLES = 128
SEED = 0


def unit_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights for integrals over (0, 1): dense at the ends, where a quantile may run off.

    They are those of Gauss and Legendre for t, with q = t^3 (10 - 15 t + 6 t^2).
    """
    node, weight = np.polynomial.legendre.leggauss(n)
    t = (node + 1) / 2
    return t**3 * (10 - 15 * t + 6 * t**2), 15 * np.square(t * (1 - t)) * weight


def check_has_fisher(distribution: Any) -> None:
    """Raise unless there is a Fisher matrix or a way to it."""
    if distribution.fisher is distribution.quantile is distribution.sample is None:
        raise ValueError(
            f'curvature must be "observed" for {distribution.name}: the Fisher matrix needs a formula, a quantile or a '
            "sample function, as in Distribution(..., fisher=...)"
        )


def fisher_matrix(distribution: Any, score: Float[Array, " k"]) -> Float[Array, "k k"]:
    r"""Return :math:`E[\nabla \log p \, \nabla \log p^T]` by the score.

    Without a formula, over quantiles at the nodes of `unit_nodes`, or at the middles of equal parts for whole
    numbers; or over samples with the same key everywhere. The nodes are held fixed in derivatives.
    """
    if distribution.fisher is not None:
        return distribution.fisher(score)
    frozen = jax.lax.stop_gradient(score)
    if distribution.quantile is not None and not distribution.is_discrete:
        node, weight = unit_nodes(N_NODES)
        node = np.minimum(node, 1 - jnp.finfo(score.dtype).eps)
        y = jax.vmap(distribution.quantile, (None, 0))(frozen, jnp.asarray(node, score.dtype))
    elif distribution.quantile is not None:
        weight = np.full(4 * N_NODES, 0.25 / N_NODES)
        node = jnp.asarray((np.arange(4 * N_NODES) + 0.5) / (4 * N_NODES), score.dtype)
        y = jax.vmap(distribution.quantile, (None, 0))(frozen, node)
    else:
        weight = np.full(N_SAMPLES, 1 / N_SAMPLES)
        keys = jax.random.split(jax.random.key(SEED), N_SAMPLES)
        y = jax.vmap(distribution.sample, (None, 0))(frozen, keys)
    slope = jax.vmap(jax.grad(distribution.log_prob), (None, 0))(score, y)
    return jnp.einsum("m,mj,ml->jl", jnp.asarray(weight, score.dtype), slope, slope)
