"""Draws of exactly so many rows, which depend on a row's place and on nothing that padding adds."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from jboost._fixed_point import count_by_group
from jboost._fixed_point.quantile import ordered_bits, select
from jboost._objective.domains import real_argument
from jboost._random import random_bits
from jboost._runtime.arguments import first_bad
from jboost._runtime.typing import is_traced


def share_argument(value: Any, name: str) -> Any:
    """Return a share in (0, 1] as a float, a traced one as it is."""
    return real_argument(value, name, 0, 1, ends=(1,))


def share_of(share: Float[Array, ""] | float, counted: Int[Array, "..."]) -> Int[Array, "..."]:
    """Return how many rows a share is: the nearest whole number, but one where there is any."""
    wanted = jnp.round(jnp.asarray(share) * counted.astype(jnp.result_type(share)))
    return jnp.clip(wanted.astype(counted.dtype), jnp.minimum(counted, 1), counted)


def draw(
    key: Array,
    among: Bool[Array, " n"],
    count: Int[Array, " g"],
    group: Int[Array, " n"] | None = None,
    size: Float[Array, " n"] | None = None,
) -> Bool[Array, " n"]:
    """Choose exactly `count` rows of each group, no row twice.

    Parameters
    ----------
    key : key
        Decides which rows, or which of those of one size.
    among : bool [n]
        Rows that may be chosen.
    count : int32 [g]
        At most as many as there are in the group.
    group : int32 [n], optional
        The group of each row; one of all by default.
    size : float [n], optional
        Non-negative: the largest are chosen. Without it all are equally likely.
    """
    first, second = jax.random.split(key)
    order = random_bits(first, among.size) if size is None else ~ordered_bits(size)
    chosen, tied, open_places = _below_the_last(order, among, count, group)

    def by_lot() -> Bool[Array, " n"]:  # two rows drew the same bits, or have one size
        lots = random_bits(second, among.size)
        fewer, last, _ = _below_the_last(lots, tied, open_places, group)
        return fewer | last

    n_tied = _count(tied, group, count.size)
    return chosen | jax.lax.cond(jnp.any(n_tied > open_places), by_lot, lambda: tied)


def _below_the_last(
    order: UInt[Array, " n"],
    among: Bool[Array, " n"],
    count: Int[Array, " g"],
    group: Int[Array, " n"] | None,
) -> tuple[Bool[Array, " n"], Bool[Array, " n"], Int[Array, " g"]]:
    """Return the rows that come before the last one chosen, those in its place, and how many of these are chosen."""
    last = select(order, among, group, jnp.maximum(count, 1))
    of_row = jnp.zeros(1, jnp.int32) if group is None else group
    last, among = last[of_row], among & (count > 0)[of_row]
    before, tied = among & (order < last), among & (order == last)
    return before, tied, count - _count(before, group, count.size)


def _count(counted: Bool[Array, " n"], group: Int[Array, " n"] | None, n_groups: int) -> Int[Array, " g"]:
    return count_all(counted) if group is None else count_by_group(counted, group, n_groups)


def count_all(among: Bool[Array, " n"]) -> Int[Array, " 1"]:
    """Count rows, as the one group of all."""
    return among.sum(dtype=jnp.int32)[None]


def whole_numbers(values: Any, name: str) -> np.ndarray:
    """Number the different values of a concrete array from 0, in their order."""
    if is_traced(values):
        raise TypeError(f"{name} must be concrete, got a traced array")
    given = np.asarray(values)
    if given.ndim != 1 or not given.size:
        raise ValueError(f"{name} must have shape [n], a value for each row, got {given.shape}")
    if given.dtype.kind == "f" and not (good := np.isfinite(given)).all():
        raise ValueError(f"{name} must hold finite numbers or strings, got {first_bad(given, good)}")
    if given.dtype == object:
        given = np.array([str(one) for one in given])
    return np.unique(given, return_inverse=True)[1].astype(np.int32)
