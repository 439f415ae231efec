"""Find the edges or the categories of every column, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from jboost._bins.arguments import MAX_MAX_BINS
from jboost._bins.categories import Categories, find_categories
from jboost._bins.columns import Table
from jboost._bins.edges import BinEdges, Features, edges_from_exact
from jboost._bins.quantiles import column_edges

_T = TypeVar("_T")
_TASKS_PER_CORE = 16
_CELLS_WORTH_THREADS = 1 << 17  # fewer are done before a pool of threads has started


def find_edges(
    table: Table,
    rows: Int[np.ndarray, " m"] | slice,
    weight: Float[np.ndarray, " m"] | None,
    max_bins: int,
    categorical: Bool[np.ndarray, " f"],
    missing: float | None,
) -> BinEdges:
    """Find the edges of the rows that count; `missing` is remembered, and was left out by the table."""

    def find(j: int) -> tuple[np.ndarray, Categories | None]:
        return find_column(table, j, rows, weight, max_bins, categorical[j])

    found, known = zip(*map_columns(find, range(table.shape[1]), table.shape[0]), strict=True)
    return as_edges(found, Features(table.names, known, missing), max_bins)


def find_column(
    table: Table,
    j: int,
    rows: Int[np.ndarray, " m"] | slice,
    weight: Float[np.ndarray, " m"] | None,
    max_bins: int,
    is_categorical: bool | np.bool_,
) -> tuple[Float[np.ndarray, " e"], Categories | None]:
    """Find the edges of a column, or its categories."""
    if is_categorical:
        factor, most = table.factor(j), min(max_bins, MAX_MAX_BINS)
        return np.zeros(0), find_categories(factor.values, factor.index[rows], weight, most)
    return column_edges(table.numbers(j)[rows], weight, max_bins), None


def as_edges(found: Sequence[Float[np.ndarray, " e"]], features: Features, max_bins: int) -> BinEdges:
    """Put the edges of all columns, or the categories of some, together."""
    most_bins = max(
        max(c.codes, default=0) if c and not c.is_statistic else row.size + 1
        for row, c in zip(found, features.categories, strict=True)
    )
    n_codes = 16 if most_bins < 16 else -(-(most_bins + 1) // 32) * 32
    # The shape follows from n_codes alone: few compilations.
    exact = np.full((len(found), n_codes - 2), np.inf)
    for j, row in enumerate(found):
        exact[j, : row.size] = row
    return edges_from_exact(exact, n_codes, max_bins, features)


def map_columns(function: Callable[[int], _T], columns: Sequence[int], n_rows: int) -> list[_T]:
    """Call the function for each column, on all cores: NumPy sorts and searches without holding the GIL."""
    if n_rows * len(columns) < _CELLS_WORTH_THREADS:
        return [function(j) for j in columns]
    n_tasks = min(len(columns), _TASKS_PER_CORE * _n_cores())  # not one a column: a task takes a kilobyte
    bounds = np.linspace(0, len(columns), n_tasks + 1).astype(int).tolist()
    with ThreadPoolExecutor(min(len(columns), _n_cores())) as pool:
        tasks = pool.map(lambda a, b: [function(j) for j in columns[a:b]], bounds[:-1], bounds[1:])
        return [result for results in tasks for result in results]


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
