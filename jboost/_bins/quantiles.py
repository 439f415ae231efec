"""Edges of one numeric column: between all neighbouring values, or weighted quantiles if those are many."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int


def column_edges(
    column: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"] | None, max_bins: int
) -> Float[np.ndarray, " e"]:
    """Return the increasing float64 edges that cut a column into at most max_bins non-empty bins.

    Up to max_bins distinct values get a bin each. NaN is left out; weights are positive.
    """
    values, mass = distinct_values(column, weight)
    cuts = np.arange(1, values.size) if values.size <= max_bins else quantile_cuts(mass, max_bins)
    return separators(values[cuts - 1].astype(np.float64), values[cuts].astype(np.float64))


def distinct_values(
    column: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"] | None
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Return the distinct values in order, and the weight of each (its count without weights)."""
    kept = ~np.isnan(column)
    if not kept.all():
        column, weight = column[kept], None if weight is None else weight[kept]
    order = None if weight is None else np.argsort(column)
    ordered = np.sort(column) if order is None else column[order]
    is_new = np.append(True, ordered[1:] != ordered[:-1])[: ordered.size]
    starts = np.flatnonzero(is_new)
    if weight is None or order is None:
        count = np.full(starts.size, float(ordered.size))  # in place: these are arrays of millions
        count[:-1] = starts[1:]
        count -= starts
        return ordered[starts], count
    if starts.size == ordered.size:
        return ordered, weight[order]
    place = np.empty(order.size, np.int64)
    place[order] = np.cumsum(is_new) - 1
    return ordered[starts], np.bincount(
        place, weight
    )  # which adds row by row, in the order that they came in


def quantile_cuts(mass: Float[np.ndarray, " m"], max_bins: int) -> Int[np.ndarray, " c"]:
    """Choose where to cut m > max_bins ordered values: a cut at i separates value i-1 from value i.

    A value heavier than a bin should be fills a bin of its own. The runs of light values between the heavy
    ones share the other bins in proportion to their weight, and each run is cut at its own weighted
    quantiles.
    """
    heavy = _heavy_values(mass, max_bins)
    bounds = np.unique(np.concatenate([[0], heavy, heavy + 1, [mass.size]]))
    starts, stops = bounds[:-1], bounds[1:]
    is_run = ~np.isin(starts, heavy)
    starts, stops = starts[is_run], stops[is_run]
    bins = np.zeros(0, dtype=np.int64)
    if starts.size:
        # Not as differences of a running sum over all, in which light runs beside heavy values would vanish.
        run_mass = np.array([mass[start:stop].sum() for start, stop in zip(starts, stops, strict=True)])
        bins = _share_bins(run_mass, stops - starts, max_bins - heavy.size)
    runs = zip(starts, stops, bins.tolist(), strict=True)
    inner = [start + _even_cuts(mass[start:stop], n_bins) for start, stop, n_bins in runs]
    cuts = np.unique(np.concatenate([*inner, bounds]))
    return cuts[(cuts > 0) & (cuts < mass.size)]


def _even_cuts(mass: Float[np.ndarray, " r"], n_bins: int) -> Int[np.ndarray, " c"]:
    """Cut a run where the middle of a value's weight passes j / n_bins of the whole, j = 1 .. n_bins - 1."""
    total = np.cumsum(mass)
    targets = total[-1] * (np.arange(1, n_bins) / n_bins)
    middle = mass / -2
    middle += total
    return np.searchsorted(middle, targets)


def _heavy_values(mass: Float[np.ndarray, " m"], max_bins: int) -> Int[np.ndarray, " h"]:
    """Find the values heavier than the mean bin that the lighter values leave, heaviest first if too many."""
    heavy = np.zeros(mass.size, dtype=bool)
    while True:
        mean = mass[~heavy].sum() / (max_bins - heavy.sum())
        more = (mass > mean) & ~heavy
        if not more.any():
            break
        heavy |= more
    found = np.flatnonzero(heavy)
    if found.size + _n_runs(found, mass.size) > max_bins:  # no room for a bin in each run between them
        heaviest = np.argsort(-mass[found], kind="stable")[: (max_bins - 1) // 2]
        found = np.sort(found[heaviest])
    return found


def _n_runs(heavy: Int[np.ndarray, " h"], m: int) -> int:
    return int(np.sum(np.diff(np.concatenate([[-1], heavy, [m]])) > 1))


def _share_bins(
    run_mass: Float[np.ndarray, " r"], run_size: Int[np.ndarray, " r"], n_bins: int
) -> Int[np.ndarray, " r"]:
    """Give each run one bin to one per value, by the lightest bin mass that n_bins can afford."""

    def bins(mass: float) -> Int[np.ndarray, " r"]:
        return np.clip(np.ceil(run_mass / mass), 1, run_size).astype(np.int64)

    if run_mass.size == 1:  # most columns: no value is heavy
        return np.minimum(run_size, n_bins)
    too_light, affordable = 0.0, float(run_mass.max())
    for _ in range(60):
        middle = (too_light + affordable) / 2
        counts = bins(middle) if middle > 0 else run_size
        if counts.sum() == n_bins:
            return counts  # a lighter mass could only ask for more
        if middle > 0 and counts.sum() < n_bins:
            affordable = middle
        else:
            too_light = middle
    return bins(affordable)


def separators(below: Float[np.ndarray, " c"], above: Float[np.ndarray, " c"]) -> Float[np.ndarray, " c"]:
    """Return t with below <= t < above: the midpoint, without overflow, or below where rounding misses it."""
    with np.errstate(invalid="ignore"):  # -inf/2 + inf/2
        middle = below / 2 + above / 2
    return np.where((below <= middle) & (middle < above), middle, below)
