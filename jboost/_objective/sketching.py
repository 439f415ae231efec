"""Fewer columns of derivatives, by which the splits of many outputs are chosen; leaves use all of them.

Iosipoi and Vakhrushev (2022), "SketchBoost: fast gradient boosted decision tree for multioutput problems", NeurIPS.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point import find_scale, total
from jboost._objective.leaves import Derivatives
from jboost._runtime.typing import Reduce


def sketched(
    derivatives: Derivatives, key: Array, size: int, kind: str, reduce: Reduce | None = None
) -> Derivatives:
    """Return so many columns in place of those of k outputs."""
    by = _top if kind == "top" else _projected
    g, h = by(derivatives.g, derivatives.h, key, size, reduce)
    return Derivatives(g, h, find_scale(g, reduce), find_scale(h, reduce))


def _projected(
    g: Float[Array, "n k"], h: Float[Array, "n k"], key: Array, size: int, reduce: Reduce | None
) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
    """Project g at random, which keeps squares of sums on average (Johnson and Lindenstrauss 1984); h is its mean."""
    with jax.threefry_partitionable(True):  # the same draw, whichever is JAX's default
        direction = jax.random.normal(key, (size, g.shape[1]), g.dtype) / size**0.5
    # A sum in the order of the outputs: that of a product of matrices may depend on the number of threads.
    columns = [jnp.sum(g * direction[j][None], axis=1) for j in range(size)]
    return jnp.stack(columns, axis=1), jnp.broadcast_to(jnp.mean(h, axis=1)[:, None], (g.shape[0], size))


def _top(
    g: Float[Array, "n k"], h: Float[Array, "n k"], key: Array, size: int, reduce: Reduce | None
) -> tuple[Float[Array, "n m"], Float[Array, "n m"]]:
    """Take the outputs with the largest sums of g^2."""
    _, chosen = jax.lax.top_k(total(jnp.square(g), reduce), size)
    return g[:, chosen], h[:, chosen]
