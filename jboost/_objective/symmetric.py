"""Symmetric systems of equations whose unknowns have units of their own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array


def solve(h: Array, b: Array) -> Array:
    """Return H^-1 b, without the directions in which H is flat; the derivatives are those of the solution."""
    scale, values, vectors = scaled_eigen(jax.lax.stop_gradient(h))
    flat = values <= 10 * values.size * jnp.finfo(values.dtype).eps * jnp.max(values, initial=0)
    inverse = jnp.where(flat, 0, 1 / jnp.where(flat, 1, values))

    def apply_inverse(_: Any, b: Array) -> Array:
        return scale * (vectors @ (inverse * (vectors.T @ (scale * b))))

    return jax.lax.custom_linear_solve(lambda x: h @ x, b, apply_inverse, symmetric=True)


def scaled_eigen(h: Array) -> tuple[Array, Array, Array]:
    """Return S and the eigenvalues and vectors of S H S, whose diagonal is one (zero where that of H is)."""
    diagonal = jnp.abs(diagonal_of(h))
    scale = jnp.where(diagonal > 0, jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1)), 1)
    scaled = scale[:, None] * h * scale[None, :]
    if h.shape == (1, 1):
        return scale, scaled[0], jnp.ones_like(h)
    values, vectors = jnp.linalg.eigh(scaled)
    return scale, values, vectors


def along(vectors: Array, column: Array) -> Array:
    """Multiply as a sum, which is sooner compiled than a product of matrices."""
    return jnp.sum(vectors * column[:, None], axis=0)


def diagonal_of(h: Array) -> Array:
    return jnp.sum(jnp.where(jnp.eye(h.shape[0], dtype=bool), h, 0), axis=0)  # sooner compiled than jnp.diag
