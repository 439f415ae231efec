"""Scores of binned rows: the leaf values of all rounds, summed.

`xla.py` is the definition; `native.cpp` is the same function for the cores of a CPU, used there if it was built. Both
add the rounds to a row's score one after the other, so they give the same bits. The environment variable
JBOOST_NATIVE=0, read when the first score is traced, keeps to the definition.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._model.scoring import native, xla
from jboost._model.scoring.xla import leaf_of
from jboost._runtime.library import by_platform
from jboost._runtime.rules import within_its_rule
from jboost._runtime.typing import Layout, varying_alike
from jboost._tree import Tree

__all__ = ["leaf_of", "sum_rounds"]


def sum_rounds(
    layout: Layout,
    symmetric: bool,
    trees: Tree,
    leaf_value: Float[Array, "t leaves k"],
    bins: Any,
    score: Float[Array, "n k"],
    n_rounds: Any = None,
) -> Float[Array, "n k"]:
    """Add the rounds' leaf values to a score, in their order.

    Differentiable, forward and in reverse, by the leaf values and by the score.

    Parameters
    ----------
    layout : Layout
        What is known of the columns.
    symmetric : bool
        Whether the nodes of a level share one split.
    trees : Tree
        Splits [t s], or [t k s] with one tree for each output.
    leaf_value : float [t, leaves, k]
        What each leaf adds.
    bins : uint8 or uint16 [f, n]
        Bin codes.
    score : float [n, k]
        The score before the first of the rounds.
    n_rounds : int32, optional
        How many of the rounds to add, all unless given; then there is no derivative in reverse in plain JAX.

    Returns
    -------
    float [n, k]
        The score after them.
    """
    leaves, structure = jax.tree.flatten((trees, leaf_value, bins, score))
    trees, leaf_value, bins, score = jax.tree.unflatten(structure, varying_alike(*leaves))
    if native.fits(trees, leaf_value, bins, score) and native.is_available():
        n_rounds = leaf_value.shape[0] if n_rounds is None else n_rounds
        return _sum_rounds(
            layout, symmetric, trees, leaf_value, bins, score, jnp.asarray(n_rounds, jnp.int32)
        )
    if n_rounds is None:
        return xla.sum_all_rounds(layout, symmetric, trees, leaf_value, bins, score)
    return xla.sum_first_rounds(layout, symmetric, trees, leaf_value, bins, score, n_rounds)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _sum_rounds(
    layout: Layout,
    symmetric: bool,
    trees: Tree,
    leaf_value: Array,
    bins: Array,
    score: Array,
    n_rounds: Array,
) -> Float[Array, "n k"]:
    return by_platform(
        trees,
        leaf_value,
        bins,
        score,
        n_rounds,
        cpu=partial(native.sum_rounds, layout, symmetric),
        default=partial(xla.sum_first_rounds, layout, symmetric),
    )


@_sum_rounds.defjvp
def _sum_rounds_jvp(
    layout: Layout, symmetric: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    trees, leaf_value, bins, _, n_rounds = primals
    used = jnp.arange(leaf_value.shape[0], dtype=jnp.result_type(n_rounds))[:, None, None] < n_rounds
    slope = xla.sum_all_rounds(  # the sum is linear in leaf values and score: its derivative is itself
        layout, symmetric, trees, jnp.where(used, tangents[1], 0), bins, tangents[3]
    )
    return within_its_rule(partial(_sum_rounds, layout, symmetric), *primals), slope
