"""Drawing rows and columns for a round."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def sample_rows(key: Array, n_rows: int, fraction: Float[Array, ""]) -> Bool[Array, " n"]:
    """Keep each row with probability `fraction`, at most once.

    Row i's draw depends on the key and on i alone, so padding a data set does not change it.
    """
    return jax.random.uniform(key, (n_rows,)) < fraction


def sample_columns(
    key: Array, among: Bool[Array, " f"], fraction: Float[Array, ""]
) -> Bool[Array, " f"]:
    """Draw max(1, round(fraction * count)) of the columns in `among`, without replacement."""
    draws = jnp.where(among, jax.random.uniform(key, among.shape), jnp.inf)
    rank = jnp.argsort(jnp.argsort(draws))
    wanted = jnp.maximum(1, jnp.round(fraction * among.sum()).astype(rank.dtype))
    return among & (rank < wanted)
