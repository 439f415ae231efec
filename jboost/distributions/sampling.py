"""Drawing a target of a row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def can_sample(distribution: Any) -> bool:
    """Say whether there is a way to draw."""
    return distribution.sample is not None or distribution.quantile is not None


def sample_of_row(distribution: Any, score: Float[Array, " k"], key: Array) -> Any:
    """Draw a target: by its own function, or as the quantile of a uniform number."""
    if distribution.sample is not None:
        return distribution.sample(score, key)
    tiny = jnp.finfo(score.dtype).tiny
    return distribution.quantile(score, jax.random.uniform(key, dtype=score.dtype, minval=tiny))
