"""What a Newton step on several outputs at once gains: g' H^-1 g of whole matrices H."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

LEAST_PIVOT = (
    1 / 64
)  # of an entry of the diagonal, of which elimination leaves so much: below it H is nearly singular


def quadratic_form(
    g: Float[Array, "k l f"], diagonal: Float[Array, "k l f"], cross: Float[Array, "c l f"]
) -> Float[Array, "l f"]:
    """Return g' H^-1 g, for symmetric k x k matrices H given by their diagonal and by what stands right of it.

    Outputs are eliminated in turn (Cholesky). Where little is left of an entry of the diagonal, or less than nothing, H
    is nearly singular or indefinite: a part of the entry is taken instead, as Gill and Murray (1974) do, so that no
    split gains from a step that no leaf would take.
    """
    k = g.shape[0]
    entries = jnp.concatenate([diagonal, cross])
    matrix = entries[_places(k)]

    def eliminate(j: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, rest, form = state
        column, slope = matrix[:, j], rest[j]
        pivot = jnp.maximum(column[j], LEAST_PIVOT * diagonal[j])
        share = jnp.where(pivot > 0, column / jnp.where(pivot > 0, pivot, 1)[None], 0)
        form = form + jnp.where(pivot > 0, jnp.square(slope) / jnp.where(pivot > 0, pivot, 1), 0)
        return matrix - share[:, None] * column[None], rest - share * slope[None], form

    return jax.lax.fori_loop(0, k, eliminate, (matrix, g, jnp.zeros_like(g[0])))[2]


def _places(k: int) -> np.ndarray:
    """Return where each entry of a symmetric matrix stands in its diagonal, followed by what is right of it."""
    places = np.diag(np.arange(k))
    above = np.triu_indices(k, 1)
    places[above] = k + np.arange(len(above[0]))
    places.T[above] = places[above]
    return places
