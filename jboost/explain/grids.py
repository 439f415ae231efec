"""The values at which dependence is computed: of numbers, of categories, of bins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from jboost._bins import BinEdges, Binned, Factor, read_column
from jboost._model.ensemble import Ensemble
from jboost._runtime.arguments import is_whole
from jboost._runtime.typing import is_traced
from jboost.explain.subject import Subject, is_split


class Axis(NamedTuple):
    """The grid of one feature."""

    values: np.ndarray  # [g], as they are shown
    codes: Integer[np.ndarray, " g"]  # their bin codes
    is_category: bool
    deciles: np.ndarray | None  # of the rows, for a picture


def make_axis(
    subject: Subject, X: Any, bins: Any, counted: Any, feature: int, wanted: Any, percentiles: Any
) -> Axis:
    """Find the grid of a feature, or take the given values."""
    edges = subject.model.edges
    known = edges.features.categories[feature]
    # Rows that are binned already may have any value of a statistic, which is a number.
    is_category = known is not None and not (isinstance(X, Binned) and known.is_statistic)
    label = subject.names()[feature]
    if not is_whole(wanted):
        values = _given_values(wanted, label)
        deciles = None
        if not is_category and X is not None and not is_traced(X, bins, edges):
            deciles = _deciles(edges, X, bins, counted, feature)
        return Axis(values, _codes_of(edges, feature, values, label), is_category, deciles)
    if is_traced(X, bins, edges):
        raise TypeError("grid must hold values where X or the model is traced, got the number of them")
    if isinstance(X, Binned):
        codes = np.asarray(bins)[feature][counted]
        deciles = None if is_category else _deciles(edges, X, bins, counted, feature)
        return _axis_of_bins(edges, feature, codes, int(wanted), is_category)._replace(deciles=deciles)
    column = read_column(edges, X, feature)
    if isinstance(column, Factor):
        return _axis_of_categories(edges, feature, column, counted, label)
    numbers = column[counted].astype(np.float64)
    numbers = numbers[~np.isnan(numbers)]
    values = _spaced(numbers, int(wanted), percentiles, label)
    return Axis(values, _codes_of(edges, feature, values, label), False, _deciles_of(numbers))


def _deciles(edges: BinEdges, X: Any, bins: Any, counted: Any, feature: int) -> np.ndarray | None:
    """Say where the rows lie; None if the feature is missing in all."""
    if isinstance(X, Binned):
        codes = np.asarray(bins)[feature][counted]
        known = inside_bins(edges, feature)[codes[codes > 0].astype(int) - 1]
    else:
        column = read_column(edges, X, feature)
        known = np.asarray(column, np.float64)[counted]
        known = known[~np.isnan(known)]
    return _deciles_of(known)


def _deciles_of(known: Float[np.ndarray, " n"]) -> np.ndarray | None:
    return np.quantile(known, np.arange(1, 10) / 10, method="nearest") if known.size else None


def told_apart_by(
    model: Ensemble, feature: int, codes: Integer[np.ndarray, " g"]
) -> Integer[np.ndarray, " g"]:
    """Give all codes of numbers between the same two splits of the model the first of these codes."""
    if is_traced(model.trees) or model.edges.features.categories[feature] is not None:
        return codes
    threshold, splits = np.asarray(model.trees.threshold), np.asarray(is_split(model))
    ends = np.unique(threshold[splits & (np.asarray(model.trees.feature) == feature)])
    _, first, place = np.unique(np.searchsorted(ends, codes, "left"), return_index=True, return_inverse=True)
    return codes[first][place]


def check_grid(grid: Any, n_features: int) -> list[Any]:
    """Return what is wanted of each feature: a number of points, or values."""
    if not is_whole(grid) and not isinstance(grid, list | tuple | np.ndarray):
        raise TypeError(f"grid must be a number of points or hold values, got {grid!r}")
    if isinstance(grid, int | np.integer):
        if grid < 2:
            raise ValueError(f"grid must be at least 2 points, got {grid}")
        return [grid] * n_features
    if n_features == 1 and (isinstance(grid, np.ndarray) or not any(map(_is_series, grid))):
        return [grid]
    if len(grid) != n_features:
        raise ValueError(f"grid must have an entry for each of {n_features} features, got {len(grid)}")
    return [one for grid_of in grid for one in check_grid(grid_of, 1)]


def check_percentiles(percentiles: Any) -> tuple[float, float]:
    """Return the shares of the rows between which points lie."""
    try:
        low, high = map(float, percentiles)
    except (TypeError, ValueError):
        raise ValueError(
            f"percentiles must be two numbers such as (0.05, 0.95), got {percentiles!r}"
        ) from None
    if not 0 <= low < high <= 1:
        raise ValueError(f"percentiles must be increasing and between 0 and 1, got {percentiles!r}")
    return low, high


def _is_series(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _given_values(wanted: Any, label: Any) -> np.ndarray:
    values = np.asarray(wanted)
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.ndim != 1 or not values.size:
        raise ValueError(f"grid must hold a vector of values for feature {label!r}, got shape {values.shape}")
    return values


def _codes_of(edges: BinEdges, feature: int, values: np.ndarray, label: Any) -> Integer[np.ndarray, " g"]:
    """Return the bin codes of grid values, as rows with these values would have them."""
    known = edges.features.categories[feature]
    if known is not None:
        unknown = [value for value in values.tolist() if value not in known.code_of]
        if unknown:
            raise ValueError(
                f"grid must hold categories of feature {label!r}, got {unknown[0]!r}, which is none"
            )
        return np.array([known.code_of[value] for value in values.tolist()], edges.code_dtype)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"grid must hold numbers for feature {label!r}, got dtype {values.dtype}")
    if np.isnan(values).any():
        raise ValueError(f"grid must hold no missing value, got NaN for feature {label!r}")
    if edges.features.missing is not None and (values == edges.features.missing).any():
        raise ValueError(
            f"grid must hold no missing value, got {edges.features.missing} for feature {label!r}, which stands for one"
        )
    exact = edges.exact[feature]
    return (np.searchsorted(exact[np.isfinite(exact)], values.astype(np.float64), "left") + 1).astype(
        edges.code_dtype
    )


def _spaced(column: np.ndarray, n_points: int, percentiles: tuple[float, float], label: Any) -> np.ndarray:
    """Return the distinct values if they are few, else points at equal distances between two quantiles."""
    if not column.size:
        raise ValueError(f"X must hold a value of feature {label!r}, got missing values alone")
    distinct = np.unique(column)
    if distinct.size < n_points:
        return distinct
    from scipy.stats.mstats import mquantiles

    with np.errstate(invalid="ignore"):  # of infinities
        low, high = np.asarray(mquantiles(column, prob=percentiles))  # as scikit-learn takes them
    if not np.isfinite([low, high]).all() or low == high:
        inside = distinct[np.isfinite(distinct)]
        return inside[np.unique(np.linspace(0, inside.size - 1, n_points).astype(int))]
    return np.linspace(low, high, n_points)


def _axis_of_categories(edges: BinEdges, feature: int, column: Factor, counted: Any, label: Any) -> Axis:
    known = edges.features.categories[feature]
    assert known is not None
    index = column.index[counted]
    occurring = {column.values[i] for i in np.unique(index[index >= 0])}
    values = [value for value in known.values if value in occurring]
    if not values:
        raise ValueError(f"X must hold a known category of feature {label!r}, got none")
    shown = np.array(values, object if any(isinstance(value, str) for value in values) else None)
    return Axis(shown, _codes_of(edges, feature, shown, label), True, None)


def _axis_of_bins(edges: BinEdges, feature: int, codes: np.ndarray, n_points: int, is_category: bool) -> Axis:
    """Return the bins that occur: of numbers, a value in the middle of each; of categories, the first of each."""
    occurring = np.unique(codes[codes > 0])
    if not occurring.size:
        raise ValueError("X must hold a value of the feature, got missing values alone")
    known = edges.features.categories[feature]
    if is_category and known is not None:
        first = {code: value for value, code in reversed(list(zip(known.values, known.codes, strict=True)))}
        values = [first[code] for code in occurring.tolist()]
        return Axis(np.array(values, object if isinstance(values[-1], str) else None), occurring, True, None)
    if occurring.size > n_points:
        occurring = occurring[np.linspace(0, occurring.size - 1, n_points).round().astype(int)]
    return Axis(inside_bins(edges, feature)[occurring - 1], occurring, False, None)


def inside_bins(edges: BinEdges, feature: int) -> np.ndarray:
    """Return a value in each bin; an edge belongs to the bin that it ends."""
    exact = edges.exact[feature]
    ends = exact[np.isfinite(exact)]
    if not ends.size:
        return np.zeros(1)
    return np.concatenate([ends[:1], (ends[:-1] + ends[1:]) / 2, [np.nextafter(ends[-1], np.inf)]])
