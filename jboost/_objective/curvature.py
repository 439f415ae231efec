"""The diagonal of a Hessian whose rows depend on each other: exact, or estimated by products with random signs."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

MAX_EXACT = 32  # scores up to which the diagonal is exact, one product for each
N_PROBES = 16
SEED = 0

ValueAndGrad = Callable[[Array], tuple[Array, Array]]


def exact_diagonal(value_and_grad: ValueAndGrad, score: Array) -> tuple[Array, Array, Array]:
    """Return value, gradient and the diagonal of the Hessian, one entry at a time."""
    (value, g), product = jax.linearize(value_and_grad, score)
    units = jnp.eye(score.size, dtype=score.dtype).reshape(score.size, *score.shape)
    h = jax.lax.map(lambda unit: jnp.sum(unit * product(unit)[1]), units)
    return value, g, h.reshape(score.shape)


def probed_diagonal(value_and_grad: ValueAndGrad, score: Array) -> tuple[Array, Array, Array]:
    """Return value, gradient and an estimate of the diagonal: the mean of v * (H v) over vectors v of signs.

    Its error comes from the other entries of a row alone: it is exact where they are 0. The signs are always the same.
    """
    (value, g), product = jax.linearize(value_and_grad, score)
    signs = jax.random.rademacher(jax.random.key(SEED), (N_PROBES, *score.shape), score.dtype)

    def add(total: Array, sign: Array) -> tuple[Array, None]:
        return total + sign * product(sign)[1], None

    total, _ = jax.lax.scan(add, jnp.zeros_like(score), signs)
    return value, g, total / N_PROBES
