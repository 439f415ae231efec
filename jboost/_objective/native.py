"""Steps of the scores in C++, on a CPU; absent where the library was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._runtime import library
from jboost._runtime.typing import type_varying_like

MOVE = "jboost_move_scores"


def moves_available() -> bool:
    """Say whether scores can be moved in C++ in this process."""
    return library.is_available(MOVE, _move_is_right)


def _move_is_right() -> bool:
    """Move two rows of weight 2 and 0 by 1/2: at most 1 - 1/2 + 1/4 + (1 + 2) / 8 is left of a loss of 1."""
    one, two = jnp.ones((2, 1), jnp.float32), jnp.array([2.0, 0.0], jnp.float32)
    given = one, jnp.zeros((2, 1), jnp.int32), one / 2, -two[:, None], two[:, None], one[:, 0], two, one
    found = jax.jit(move_scores)(*given, jnp.array([1.0, 2.0, 0.125], jnp.float32))
    return [np.ravel(part).tolist() for part in found] == [[1.5, 1.5], [1.125, np.inf]]


def move_scores(
    score: Float[Array, "n k"],
    leaf: Int[Array, "n _"],
    leaf_value: Float[Array, "leaves k"],
    g: Float[Array, "n k"],
    h: Float[Array, "n k"],
    value: Float[Array, " n"],
    weight: Float[Array, " n"],
    units: Float[Array, "2 k"],
    numbers: Float[Array, " 3"],
) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
    """Do what `jboost._objective.damping._moved_in_jax` does, of g and h times weights and divided by their units.

    The numbers are the bound, the typical loss beside which that of a row is rounded, and how much of both rounding is.
    """
    results = [
        type_varying_like(score, score.shape, score.dtype),
        type_varying_like(score, score.shape[:1], score.dtype),
    ]
    call = jax.ffi.ffi_call(MOVE, results, vmap_method="expand_dims")
    moved, most = call(score, leaf, leaf_value, g, h, value, weight, units, numbers)
    return moved, most
