"""Drawing rows and columns for a round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def sample_rows(key: Array, n_rows: int, fraction: Float[Array, ""]) -> Bool[Array, " n"]:
    """Keep each row with probability `fraction`, at most once.

    Row i's draw depends on the key and on i alone, so padding a data set does not change it. Of JAX's two ways to draw
    by threefry only one is so, whichever is the default.
    """
    with jax.threefry_partitionable(True):
        return jax.random.uniform(key, (n_rows,)) < fraction


def sample_columns(
    key: Array,
    usable: Bool[Array, " f"],
    by_tree: Float[Array, ""],
    by_level: Float[Array, ""],
    n_levels: int,
) -> Bool[Array, "d f"]:
    """Draw a share of the usable columns for a tree and, of those, a share for each level.

    A share of m columns is max(1, round(share * m)) of them, without replacement.
    """

    def draw() -> Bool[Array, "d f"]:
        draws = jax.random.uniform(key, (n_levels + 1, usable.size))
        of_tree = _smallest(draws[:1], usable[None], by_tree)
        return _smallest(draws[1:], of_tree, by_level)

    every = jnp.broadcast_to(usable, (n_levels, usable.size))
    return jax.lax.cond((by_tree < 1) | (by_level < 1), draw, lambda: every)


def _smallest(
    draws: Float[Array, "d f"], among: Bool[Array, "#d f"], share: Float[Array, ""]
) -> Bool[Array, "d f"]:
    draws = jnp.where(among, draws, jnp.inf)
    wanted = jnp.maximum(1, jnp.round(share * among.sum().astype(share.dtype)).astype(jnp.int32))
    largest = jnp.sort(draws, axis=1)[:, wanted - 1]
    return among & (draws <= largest[:, None])
