"""Check the arguments of binning other than X."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from jboost._bins.columns import Table
from jboost._runtime.arguments import check_weight, whole_number
from jboost._runtime.typing import is_traced

MAX_MAX_BINS = 65534  # with the missing code, all codes fit a uint16
EXACT = 2**31 - 64  # no limit: more values than rows there can be


def check_max_bins(max_bins: Any) -> int:
    """Return the limit that is asked for; refuse a max_bins that is neither an int in range nor "exact"."""
    if isinstance(max_bins, str):
        if max_bins != "exact":
            raise ValueError(f"max_bins must be 2 to {MAX_MAX_BINS} or 'exact', got {max_bins!r}")
        return EXACT
    return whole_number(max_bins, "max_bins", 2, MAX_MAX_BINS, " or 'exact'")


def check_missing(missing: Any) -> float | None:
    """Return the number that stands for a missing value, or None where only NaN does."""
    if missing is None:
        return None
    if isinstance(missing, bool | np.bool_) or not isinstance(missing, Real):
        raise TypeError(f"missing must be a number, got {missing!r}")
    number = float(missing)
    if math.isinf(number):
        raise ValueError(f"missing must be finite or NaN, got {missing!r}")
    return None if math.isnan(number) else number


def rows_for_edges(
    sample_weight: Any, n: int
) -> tuple[Int[np.ndarray, " m"] | slice, Float[np.ndarray, " m"] | None]:
    """Return which rows count for the edges, and their weights, or None where they are all the same.

    The rows come in the order of their weights, so that sums over the same rows are the same bits in any order.
    """
    if sample_weight is None:
        return slice(None), None
    if is_traced(sample_weight):
        raise TypeError("sample_weight must be concrete to find bin edges with, got a traced array")
    weight = check_weight(sample_weight, n, "sample_weight")
    rows = np.flatnonzero(weight)
    weight = weight[rows]
    if (weight == weight[0]).all():
        return slice(None) if rows.size == n else rows, None
    order = np.argsort(weight, kind="stable")
    return rows[order], weight[order]


def categorical_mask(categorical: Any, table: Table) -> Bool[np.ndarray, " f"]:
    """Say for each column whether it is categorical: by its container, or by name, index or mask."""
    mask = np.array(table.categorical, dtype=bool)
    if categorical is None:
        return mask
    if isinstance(categorical, str) or np.ndim(categorical) != 1:
        raise TypeError(f"categorical must be a list of names or indices, or a mask, got {categorical!r}")
    chosen = np.asarray(categorical).tolist() if isinstance(categorical, np.ndarray) else list(categorical)
    kinds = {_kind_of_choice(item) for item in chosen}
    if len(kinds) > 1 or None in kinds:
        raise TypeError(
            f"categorical must hold only names, only indices or only booleans, got {categorical!r}"
        )
    if kinds == {"mask"}:
        return mask | _checked_mask(chosen, mask.size)
    mask[
        _indices_of_names(chosen, table.names) if kinds == {"name"} else _checked_indices(chosen, mask.size)
    ] = True
    return mask


def _kind_of_choice(item: Any) -> str | None:
    if isinstance(item, bool | np.bool_):
        return "mask"
    if isinstance(item, int | np.integer):
        return "index"
    return "name" if isinstance(item, str) else None


def _checked_mask(chosen: list[bool], n_features: int) -> Bool[np.ndarray, " f"]:
    if len(chosen) != n_features:
        raise ValueError(
            f"categorical must be a mask of {n_features} booleans, one a feature, got {len(chosen)}"
        )
    return np.array(chosen, dtype=bool)


def _checked_indices(chosen: list[int], n_features: int) -> list[int]:
    wrong = [j for j in chosen if not 0 <= j < n_features]
    if wrong:
        raise ValueError(f"categorical must hold indices from 0 to {n_features - 1}, got {wrong[0]}")
    return chosen


def _indices_of_names(chosen: list[str], names: tuple[str, ...] | None) -> list[int]:
    if names is None:
        raise ValueError(f"categorical must hold indices, as X has no column names, got {chosen}")
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ValueError(
            f"categorical must hold names of columns of X, got {unknown[0]!r}, which is not among them"
        )
    return [names.index(name) for name in chosen]
