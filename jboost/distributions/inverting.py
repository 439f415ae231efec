"""Quantiles of distributions whose distribution function alone has a formula: bisection, with exact derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._runtime.parametrised import parametrised

STEPS = 60  # halvings: as many as a float64 has bits, and some for where a bracket is wide
LARGEST_COUNT = 2.0**30


def inverse(score: Float[Array, " k"], q: Any, cdf: Any, search: Any) -> Float[Array, "..."]:
    """Return y with cdf(score, y) = q.

    Its derivatives are those of the implicit function; of distribution functions of which JAX knows no derivative by a
    parameter, such as that of the beta distribution, it raises what JAX raises.
    """
    q, known = jnp.asarray(q, score.dtype), parametrised(cdf)
    return _inverse(known, score, q, search(*jax.lax.stop_gradient((known, score, q))))


@jax.custom_jvp
def _inverse(cdf: Any, score: Any, q: Any, found: Any) -> Any:
    return found


@_inverse.defjvp
def _jvp(primals: Any, tangents: Any) -> Any:
    cdf, score, q, found = primals
    dcdf, dscore, dq, _ = tangents
    y = _inverse(cdf, score, q, found)
    _, moved = jax.jvp(lambda cdf, score: cdf(score, y), (cdf, score), (dcdf, dscore))
    _, density = jax.jvp(lambda y: cdf(score, y), (y,), (jnp.ones_like(y),))
    return y, (dq - moved) / density


def search_positive(cdf: Any, score: Float[Array, " k"], q: Array) -> Array:
    """Find y > 0 by halving its logarithm around the first score."""
    width = 80.0 if q.dtype == jnp.float32 else 600.0
    return jnp.exp(bisect(lambda t: cdf(score, jnp.exp(t)) < q, score[0] - width, score[0] + width))


def search_standard(cdf: Any, q: Array) -> Array:
    """Find any real z by halving asinh(z)."""
    width = jnp.full_like(q, 60.0)
    return jnp.sinh(bisect(lambda t: cdf(jnp.sinh(t)) < q, -width, width))


def search_unit(cdf: Any, score: Float[Array, " k"], q: Array) -> Array:
    """Find y in (0, 1) by halving its log odds."""
    width = jnp.full_like(q, 80.0)
    return jax.nn.sigmoid(bisect(lambda t: cdf(score, jax.nn.sigmoid(t)) < q, -width, width))


def smallest_count(score: Float[Array, " k"], q: Any, cdf: Any) -> Array:
    """Return the smallest whole number y >= 0 with cdf(score, y) >= q; its derivative is 0."""
    score, q = jax.lax.stop_gradient((score, jnp.asarray(q, score.dtype)))
    low, high = jnp.full_like(q, -1.0), jnp.full_like(q, LARGEST_COUNT)

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        # Of the logarithms, while they are far apart: counts are seldom as large as they may be.
        far = high > 4 * (low + 2)
        middle = jnp.floor(jnp.where(far, jnp.sqrt((low + 2) * (high + 2)) - 2, (low + high) / 2))
        below = cdf(score, middle) < q
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    return jax.lax.fori_loop(0, STEPS, halve, (low, high))[1]


def bisect(is_below: Callable[[Array], Array], low: Array, high: Array) -> Array:
    """Return the place between two numbers from which on `is_below` is false."""

    def halve(_: Any, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        below = is_below(middle)
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, STEPS, halve, (low, high))
    return (low + high) / 2
