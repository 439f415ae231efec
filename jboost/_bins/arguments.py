"""Check the arguments of binning other than X."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from jboost._bins.columns import Columns
from jboost._runtime.typing import is_traced

MAX_MAX_BINS = 65534  # with the missing code, all codes fit a uint16


def check_max_bins(max_bins: Any) -> None:
    """Refuse a max_bins that is no int in range."""
    if isinstance(max_bins, bool) or not isinstance(max_bins, int | np.integer):
        raise TypeError(f"max_bins: expected an int, got {max_bins!r}")
    if not 2 <= max_bins <= MAX_MAX_BINS:
        raise ValueError(f"max_bins: expected 2 to {MAX_MAX_BINS}, got {max_bins}")


def check_weight(sample_weight: Any, n: int) -> Float[np.ndarray, " n"] | None:
    """Return the weights in float64, or None if they are all the same, which moves no edge."""
    if sample_weight is None:
        return None
    if is_traced(sample_weight):
        raise TypeError("sample_weight: expected concrete weights to find bin edges with, got a traced array")
    given = np.asarray(sample_weight)
    if given.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), one weight for each row, got {given.shape}")
    if given.dtype.kind in "cUS" or (given.dtype.kind == "O" and any(isinstance(w, str) for w in given)):
        raise TypeError(f"sample_weight: expected real numbers, got dtype {given.dtype}")
    try:
        weight = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"sample_weight: expected real numbers, got dtype {given.dtype}: {error}") from error
    if not np.isfinite(weight).all() or (weight < 0).any():
        wrong = weight[~(np.isfinite(weight) & (weight >= 0))][0]
        raise ValueError(f"sample_weight: expected finite weights of at least 0, got {wrong}")
    if not weight.any():
        raise ValueError("sample_weight: expected a positive weight in some row, got only zeros")
    return None if (weight == weight[0]).all() else weight


def categorical_mask(categorical: Any, columns: Columns) -> Bool[np.ndarray, " f"]:
    """Say for each column whether it is categorical: by its container, or by name, index or mask."""
    mask = np.array(columns.categorical, dtype=bool)
    if categorical is None:
        return mask
    if isinstance(categorical, str) or np.ndim(categorical) != 1:
        raise TypeError(f"categorical: expected a list of names or indices, or a mask, got {categorical!r}")
    chosen = np.asarray(categorical).tolist() if isinstance(categorical, np.ndarray) else list(categorical)
    kinds = {_kind_of_choice(item) for item in chosen}
    if len(kinds) > 1 or None in kinds:
        raise TypeError(
            f"categorical: expected only names, only indices or only booleans, got {categorical!r}"
        )
    if kinds == {"mask"}:
        return mask | _checked_mask(chosen, mask.size)
    mask[
        _indices_of_names(chosen, columns.names) if kinds == {"name"} else _checked_indices(chosen, mask.size)
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
            f"categorical: expected a mask of {n_features} booleans, one a feature, got {len(chosen)}"
        )
    return np.array(chosen, dtype=bool)


def _checked_indices(chosen: list[int], n_features: int) -> list[int]:
    wrong = [j for j in chosen if not 0 <= j < n_features]
    if wrong:
        raise ValueError(f"categorical: expected indices from 0 to {n_features - 1}, got {wrong[0]}")
    return chosen


def _indices_of_names(chosen: list[str], names: tuple[str, ...] | None) -> list[int]:
    if names is None:
        raise ValueError(f"categorical: expected indices, as X has no column names, got {chosen}")
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ValueError(
            f"categorical: expected names of columns of X, got {unknown[0]!r}, which is not among them"
        )
    return [names.index(name) for name in chosen]
