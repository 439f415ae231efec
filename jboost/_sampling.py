"""Drawing rows and columns for a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._random import uniform
from jboost._runtime.typing import is_traced
from jboost._spec import Hyper
from jboost._split import Rules
from jboost._tree import Growth

Sampler = Callable[[Array, Array, Array, Array], Array]
"""A row sampler: ``(key, g [n k], h [n k], weight [n]) -> weight [n]``.

It is called in each round with the derivatives of a unit of weight, and says with which weight each row takes part: 0
leaves it out, more than before makes up for others. A callable pytree is fine: its arrays are operands. One
with an entry for each row says for how many in an attribute `n_rows`, and bears with weightless rows after them, which
a fit may add.
"""


def draws_any(hyper: Hyper) -> bool:
    """Say whether a fit with these numbers may leave out rows or columns: what it never draws costs no compilation."""
    shares = hyper.subsample, hyper.colsample_bytree, hyper.colsample_bylevel
    return is_traced(shares) or any(float(share) < 1 for share in shares)


def sample_rows(key: Array, n_rows: int, fraction: Float[Array, ""]) -> Bool[Array, " n"]:
    """Keep each row, or group of rows, with probability `fraction`, at most once.

    Row i's draw depends on the key and on i alone, so padding a data set does not change it.
    """
    return uniform(key, n_rows) < fraction


def sample_columns(
    key: Array,
    usable: Bool[Array, " f"],
    by_tree: Float[Array, ""],
    by_level: Float[Array, ""],
    n_levels: int,
    weight: Float[Array, " f"] | None = None,
    draws: bool = True,
) -> Bool[Array, "d f"]:
    """Draw a share of the usable columns for a tree and, of those, a share for each level.

    A share of m columns is max(1, round(share * m)) of them, without replacement. With weights, the next column drawn
    is any of those left in proportion to its weight; one of weight 0 is not usable. Without `draws`, both shares
    are known to be 1.

    References
    ----------
    Efraimidis and Spirakis (2006), "Weighted random sampling with a reservoir": the smallest of exponential draws.
    """
    if weight is not None:
        usable &= weight > 0

    def draw() -> Bool[Array, "d f"]:
        draws = jax.random.uniform(key, (n_levels + 1, usable.size))
        if weight is not None:
            draws = -jnp.log1p(-draws) / jnp.where(usable, weight, 1).astype(draws.dtype)[None]
        of_tree = _smallest(draws[:1], usable[None], by_tree)
        return _smallest(draws[1:], of_tree, by_level)

    every = jnp.broadcast_to(usable, (n_levels, usable.size))
    if not draws:
        return every
    return jax.lax.cond((by_tree < 1) | (by_level < 1), draw, lambda: every)


def _start(key: Array) -> Array:
    return key[None]


def _draw_for_nodes(keys: Array, allowed: Bool[Array, " f"], rules: Rules) -> Bool[Array, "l f"]:
    if rules.spec.symmetric:  # the nodes share a split
        keys = keys[:1]
    draws = jax.vmap(lambda key: jax.random.uniform(key, allowed.shape))(keys)
    return _smallest(draws.astype(rules.factor.dtype), allowed[None], rules.hyper.colsample_bynode)


def _keys_of_children(keys: Array, splits: Any, sums: Any, rules: Any) -> Array:
    return jax.vmap(lambda key: jax.random.split(key))(keys).reshape(-1)


columns_by_node = Growth(_start, _draw_for_nodes, _keys_of_children)
"""Draw a share, `Hyper.colsample_bynode`, of the columns of a level for each node anew, without replacement."""


def _smallest(
    draws: Float[Array, "d f"], among: Bool[Array, "#d f"], share: Float[Array, ""]
) -> Bool[Array, "d f"]:
    draws = jnp.where(among, draws, jnp.inf)
    wanted = jnp.maximum(1, jnp.round(share * among.sum().astype(share.dtype)).astype(jnp.int32))
    largest = jnp.sort(draws, axis=1)[:, wanted - 1]
    return among & (draws <= largest[:, None])
