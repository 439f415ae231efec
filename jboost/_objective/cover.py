"""The cover of a tree's leaves: what the rows in them weigh, and their sums of h."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jboost._fixed_point import find_scale, sum_by_group
from jboost._objective.leaves import Leaves
from jboost._runtime.typing import over_devices


def leaf_cover(
    leaves: Leaves, drawn_by_hyper: bool
) -> tuple[Float[Array, "leaves k"], Float[Array, "leaves #k"]]:
    """Sum h and the weights of the rows that took part, leaf by leaf. Carries no derivative.

    The sum of h is the one that a Newton step takes: the compiler makes it once.

    Parameters
    ----------
    leaves : Leaves
        The rows of a round in their leaves.
    drawn_by_hyper : bool
        Whether rows take part with their own weight or with none: what is asked of the weights is then found out once,
        for no round changes them.

    Returns
    -------
    float [leaves, k], float [leaves, k] or [leaves, 1]
        The sums of h, and of the weights: for each output if leaves are, else one for all.
    """
    n_leaves, reduce = leaves.n_leaves, leaves.reduce
    found = leaves.sum_of_h(), leaves.count(), leaves.weight, leaves.rows.weight
    of_h, count, drawn, own = jax.lax.stop_gradient(found)
    weight = own if drawn_by_hyper else drawn
    scale = find_scale(weight[:, None], reduce)
    is_other = ((weight != 0) & (weight != 1)).astype(weight.dtype)  # sums of floats are sooner compiled
    is_plain = over_devices(reduce, jnp.sum(is_other)) == 0

    def sums(drawn: Array, leaf: Int[Array, " n"]) -> Float[Array, " leaves"]:
        return sum_by_group(drawn[:, None], leaf, n_leaves, reduce, scale)[:, 0]

    def of_weight(leaf: Int[Array, " n"], count: Float[Array, " leaves"]) -> Float[Array, " leaves"]:
        return jax.lax.cond(is_plain, lambda *_: count, sums, drawn, leaf)  # the same numbers, sooner

    by_output = leaves.leaf if leaves.leaf.ndim == 2 else leaves.leaf[:, None]
    return of_h, jax.vmap(of_weight, 1, 1)(by_output, count)
