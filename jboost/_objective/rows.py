"""What a loss is told of the rows, beside their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jboost._runtime.dividing import all_rows
from jboost._runtime.padding import bucket
from jboost._runtime.typing import as_array, pytree, static_field


@pytree
class GroupTable:
    """Groups of about the same size: the rows of each, side by side."""

    row: Int[Array, "groups m"]  # where there is none, the group's first row again
    is_row: Bool[Array, "groups m"]


@pytree
class Groups:
    """Rows that belong together, such as the answers to a query."""

    number: Int[Array, " n"]  # of the group of each row
    tables: tuple[GroupTable, ...]  # one for each class of sizes


@pytree
class Rows:
    """Targets and weights of rows; weight 0 means that a row is not there."""

    y: Any
    weight: Float[Array, " n"]
    offset: Float[Array, "n k"] | None = None  # what is added to the score of each row
    groups: Groups | None = None  # with the tables of all groups, also where the rows are those of one device
    axis: str | None = static_field(default=None)  # of the mesh along which rows are divided


def map_rows(by_row: Callable[[Any], Any], of_all: Callable[[Any], Any], rows: Rows) -> Rows:
    """Apply a function to the arrays with an entry for each row, and another to those about all rows."""
    groups = rows.groups
    if groups is not None:
        groups = Groups(by_row(groups.number), jax.tree.map(of_all, groups.tables))
    y, weight, offset = jax.tree.map(by_row, (rows.y, rows.weight, rows.offset))
    return Rows(y, weight, offset, groups, rows.axis)


def gathered(rows: Rows) -> Rows:
    """Return the rows of all devices, as one would have them."""
    every = map_rows(lambda array: all_rows(array, rows.axis), lambda array: array, rows)
    return dataclasses.replace(every, axis=None)


def make_groups(ids: np.ndarray) -> Groups:
    """Number the groups in the order in which they begin, and lay out their rows by classes of sizes.

    A class holds the sizes up to a power of two, and its number of groups is rounded up: few shapes, few programs.
    """
    _, first, number, size = np.unique(ids, return_index=True, return_inverse=True, return_counts=True)
    by_start = np.argsort(first, kind="stable")
    rank = np.empty_like(by_start)
    rank[by_start] = np.arange(by_start.size)
    number, size = rank[number.reshape(-1)], size[by_start]
    order = np.argsort(number, kind="stable")  # rows, group by group
    start = np.concatenate([[0], np.cumsum(size)])[:-1]
    width = 1 << np.maximum(np.ceil(np.log2(size)).astype(int), 0)
    tables = [_table(order, start[width == m], size[width == m], int(m)) for m in np.unique(width)]
    return Groups(as_array(number.astype(np.int32)), tuple(tables))


def _table(order: np.ndarray, start: np.ndarray, size: np.ndarray, width: int) -> GroupTable:
    """Lay out the groups of a class, and empty ones up to a round number."""
    n_more = bucket(start.size) - start.size
    start, size = np.append(start, np.zeros(n_more, int)), np.append(size, np.zeros(n_more, int))
    place = np.arange(width)
    is_row = place < size[:, None]
    row = order[np.where(is_row, start[:, None] + place, start[:, None])]
    return GroupTable(as_array(row.astype(np.int32)), as_array(is_row))


def per_row(rows: Any, like: Any) -> Any:
    """Shape [n] to be combined with an array [n] or [n k]."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def take_rows(tree: Any, rows: Any) -> Any:
    """Take rows of each array of a pytree."""
    return jax.tree.map(lambda array: array[rows], tree)
