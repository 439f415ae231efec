"""Functions with removable singularities, such as (exp(t) - 1) / t at 0, and derivatives that keep their digits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

TERMS = {"float64": 19, "float32": 11}  # of the series, until at |t| = 1 they are lost in rounding
FEWEST = 8


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def moment(k: int, t: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return the integral of s^k exp(t s) over s from 0 to 1: of k = 0 (exp(t) - 1) / t, and 1 at 0."""
    if k == 0:  # which loses no digit anywhere
        nonzero = jnp.where(t == 0, 1, t)
        return jnp.where(t == 0, 1, jnp.expm1(nonzero) / nonzero)
    is_small = jnp.abs(t) < 1
    large = jnp.where(is_small, 1, t)
    value = jnp.expm1(large) / large
    for i in range(1, k + 1):  # by parts
        value = (jnp.exp(large) - i * value) / large
    return jnp.where(is_small, _series(k, jnp.where(is_small, t, 0)), value)


@moment.defjvp
def _moment_jvp(k: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    return moment(k, *primals), moment(k + 1, *primals) * tangents[0]


def _series(k: int, t: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return the sum over j of t^j / (j! (j + k + 1)), by Horner's rule."""
    n_terms = TERMS.get(str(t.dtype), FEWEST)
    value = jnp.full_like(t, 1 / (n_terms + k + 1))
    for j in range(n_terms, 0, -1):
        value = 1 / (j + k) + value * t / j
    return value


def with_slopes(*slopes: Callable[..., Array]) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Give an elementwise function the derivatives by its arguments, where the chain rule would lose digits.

    The arguments may be of different shapes. A derivative that is not asked for is not computed, and may be NaN.
    """

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        smooth = jax.custom_jvp(function)

        def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
            parts = [
                slope(*primals) * tangent
                for slope, tangent in zip(slopes, tangents, strict=True)
                if not isinstance(tangent, SymbolicZero)
            ]
            value = smooth(*primals)
            return value, sum(parts, jnp.zeros_like(value))

        smooth.defjvp(rule, symbolic_zeros=True)
        return functools.wraps(function)(smooth)

    return decorate


@with_slopes(jax.nn.sigmoid)
def softplus(t: Float[Array, "*k"]) -> Float[Array, "*k"]:
    """Return log(1 + exp(t)); JAX's own takes an exponential more for each derivative."""
    return jax.nn.softplus(t)
