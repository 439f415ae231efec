"""Quantiles of a stream: the rank error is what was asked for, whatever the stream and however sketches are merged."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

import jboost
from jboost import QuantileSketch
from jboost._bins.sketch import Summary, merge, prune, summary_of

N = 20_000


def streams() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Make values and weights that are hard on a sketch."""
    rng = np.random.default_rng(0)
    even, values = np.ones(N), rng.normal(size=N)
    spikes = np.where(rng.random(N) < 0.6, np.round(values), values)
    heavy = np.where(np.arange(N) % 997 == 0, 400.0, 1.0)
    return {
        "sorted": (np.sort(values), even),
        "reversed": (np.sort(values)[::-1], even),
        "from both ends": (np.sort(values)[np.argsort(np.abs(np.arange(N) - N / 2))[::-1]], even),
        "spikes": (spikes, even),
        "a few heavy weights": (values, heavy),
        "weights over ten orders": (values, 10.0 ** rng.uniform(-5, 5, N)),
        "weights that grow": (np.sort(values), np.arange(1.0, N + 1)),
        "heavy tails": (rng.standard_cauchy(N) * 1e6, even),
        "one value": (np.zeros(N), even),
        "infinities and tiny numbers": (np.where(values > 1, np.inf, values * 1e-310), even),
    }


STREAMS = streams()


def sketch_of(values: np.ndarray, weight: np.ndarray, eps: float, n_chunks: int) -> QuantileSketch:
    sketch = QuantileSketch(eps)
    for part in np.array_split(np.arange(len(values)), n_chunks):
        sketch.update(values[part], weight[part])
    return sketch


def error_of(summary: Summary) -> float:
    """Say how much weight is not known to lie on one side, at the values of a summary and between them."""
    at, between = (
        summary.up_to - summary.below - summary.weight,
        (summary.up_to - summary.weight)[1:] - (summary.below + summary.weight)[:-1],
    )
    return max(at.max(), between.max(initial=0.0))


def assert_within(sketch: QuantileSketch, values: np.ndarray, weight: np.ndarray) -> None:
    """Ranks of all quantiles, by a sum over everything; and what the summary says of the weight around each value."""
    order = np.argsort(values, kind="stable")
    ordered, up_to = values[order], np.cumsum(weight[order])
    total, allowed = up_to[-1], sketch.eps * up_to[-1]
    shares = np.linspace(0, 1, 201)
    found = sketch.quantile(shares)
    assert np.isin(found, values).all()
    sums = np.append(0.0, up_to)
    below, at_most = (sums[np.searchsorted(ordered, found, side)] for side in ("left", "right"))
    assert (below - allowed <= shares * total).all()
    assert (shares * total <= at_most + allowed).all()
    summary, rounding = sketch.summary(), 1e-9 * total
    below, at_most = (sums[np.searchsorted(ordered, summary.value, side)] for side in ("left", "right"))
    assert (summary.below <= below + rounding).all()
    assert (at_most <= summary.up_to + rounding).all()
    assert (summary.weight <= at_most - below + rounding).all()
    assert error_of(summary) <= allowed + rounding
    np.testing.assert_allclose(sketch.weight, total, rtol=1e-9)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("eps", "n_chunks"), [(0.1, 300), (0.01, 40)])
def test_ranks_are_within_eps(name, eps, n_chunks):
    values, weight = STREAMS[name]
    sketch = sketch_of(values, weight, eps, n_chunks)
    assert_within(sketch, values, weight)
    assert eps == 0.01 or sketch.size < N / 8


@pytest.mark.parametrize("name", STREAMS)
def test_merges_of_merges_are_within_eps(name, rng):
    values, weight = STREAMS[name]
    cuts = np.sort(rng.choice(N, 24, replace=False))
    parts = [
        sketch_of(values[a:b], weight[a:b], 0.05, 1 + i % 9)
        for i, (a, b) in enumerate(itertools.pairwise([0, *cuts.tolist(), N]))
    ]
    while len(parts) > 1:  # any two, in any order
        i, j = rng.choice(len(parts), 2, replace=False)
        kept = parts[j].size
        parts[i].merge(parts[j])
        assert parts[j].size == kept
        del parts[j]
    assert_within(parts[0], values, weight)


def test_numbers_one_by_one_and_a_sketch_merged_with_itself():
    values = np.random.default_rng(1).permutation(400).astype(float)
    sketch = QuantileSketch(0.1)
    for value in values:
        sketch.update([value])
    assert_within(sketch, values, np.ones(400))
    assert_within(sketch.merge(sketch), values, np.full(400, 2.0))
    assert sketch.quantile(0.0) == 0
    assert sketch.quantile(1.0) == 399


def test_merging_adds_no_error_and_pruning_one_in_its_size(rng):
    """Theorems A.1 and A.2."""

    def error(summary: Summary) -> float:
        return error_of(summary) / summary.total

    one, other = (
        prune(summary_of(rng.normal(size=2000), rng.uniform(0.1, 2, 2000)), size) for size in (50, 20)
    )
    assert 0 < error(one) <= 1 / 50
    both = merge(one, other)
    assert error(both) <= max(error(one), error(other)) + 1e-12
    assert error(prune(both, 30)) <= error(both) + 1 / 30
    whole = summary_of(rng.normal(size=100), None)
    assert error(whole) < 1e-12
    for part, same in zip(prune(whole, 99), whole, strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_are_those_of_all_rows_while_nothing_is_lost(weighted, rng):
    X = np.column_stack([rng.integers(0, 40, 3000), rng.normal(size=3000)])
    X[rng.random(X.shape) < 0.1] = np.nan
    weight = rng.integers(1, 5, 3000).astype(float) if weighted else None
    chunks = [
        (X[rows], None if weight is None else weight[rows]) for rows in np.array_split(np.arange(3000), 7)
    ]
    for max_bins in (16, 64):
        edges = jboost.sketch_edges(chunks, max_bins=max_bins, eps=0.0001)
        expected = jboost.bin_features(X, max_bins=max_bins, sample_weight=weight).edges
        np.testing.assert_array_equal(edges.exact, expected.exact)
    exact = jboost.bin_features(X[:, :1], max_bins="exact").edges  # as many bins as values
    np.testing.assert_array_equal(jboost.sketch_edges([X[:, :1]], max_bins=64).exact, exact.exact)


def test_bins_are_as_heavy_as_they_should_be(rng):
    X = rng.standard_cauchy((20_000, 1))
    weight = rng.uniform(0.0, 1.0, 20_000)
    edges = jboost.sketch_edges(
        ((X[rows], weight[rows]) for rows in np.array_split(np.arange(20_000), 40)), max_bins=20, eps=0.01
    )
    codes = np.asarray(jboost.bin_features(X, edges=edges).bins[0])
    share = np.bincount(codes, weight, 21)[1:] / weight.sum()
    np.testing.assert_allclose(share, 1 / 20, atol=2 * 0.01)


def test_data_frames_and_numbers_for_what_is_missing():
    frame = pd.DataFrame({"a": [1.0, -999.0, 3.0], "b": [1, 2, 3]})
    edges = jboost.sketch_edges([frame, frame.iloc[:0]], missing=-999)
    assert edges.features.names == ("a", "b")
    np.testing.assert_array_equal(jboost.bin_features(frame, edges=edges).bins, [[1, 0, 2], [1, 2, 3]])


def refused() -> list[tuple[type[Exception], str, Any]]:
    sketch, X = QuantileSketch(0.1), np.ones((3, 2))
    frame = pd.DataFrame({"a": ["x", "y"]})
    new: Any = QuantileSketch
    edges_of: Any = jboost.sketch_edges
    merged: Any = sketch.merge
    return [
        (ValueError, r"eps must be in \(0, 1\), got 0", lambda: QuantileSketch(0)),
        (ValueError, r"eps must be in \(0, 1\), got nan", lambda: QuantileSketch(float("nan"))),
        (ValueError, r"eps must be in \(0, 1\), got 1.5", lambda: jboost.sketch_edges([X], eps=1.5)),
        (TypeError, "eps must be a number, got '0.1'", lambda: new("0.1")),
        (TypeError, "eps must be a number, got True", lambda: QuantileSketch(True)),
        (TypeError, "values must be real numbers", lambda: sketch.update(["a"])),
        (ValueError, r"values must be an array \[n\]", lambda: sketch.update(X)),
        (ValueError, "weight must be finite and non-negative", lambda: sketch.update([1.0], [-1.0])),
        (ValueError, "weight must", lambda: sketch.update([1.0], [1.0, 2.0])),
        (ValueError, "must have seen a number", lambda: sketch.quantile(0.5)),
        (ValueError, "q must be from 0 to 1", lambda: sketch.quantile([0.5, 1.1])),
        (TypeError, "other must be a QuantileSketch", lambda: merged(X)),
        (ValueError, "other must have the same eps", lambda: sketch.merge(QuantileSketch(0.2))),
        (ValueError, "chunks must hold at least one chunk", lambda: jboost.sketch_edges([])),
        (ValueError, "at least one row and one column", lambda: jboost.sketch_edges([np.zeros((0, 2))])),
        (ValueError, "columns of the first", lambda: jboost.sketch_edges([X, X[:, :1]])),
        (TypeError, r"chunks must be an iterable of arrays \[n f\], got one ndarray", lambda: edges_of(X)),
        (TypeError, "chunks must be an iterable .* got one DataFrame", lambda: edges_of(frame)),
        (TypeError, "chunks must hold numbers", lambda: jboost.sketch_edges([frame])),
        (ValueError, "max_bins must be 2 to 65534 for", lambda: edges_of([X], max_bins="exact")),
    ]


@pytest.mark.parametrize("case", refused(), ids=lambda case: case[1])
def test_what_is_refused(case):
    error, message, call = case
    with pytest.raises(error, match=message):
        call()


def test_what_does_not_count():
    sketch = QuantileSketch(0.1).update([]).update([], []).update([np.nan, 2.0, 3.0], [1.0, 1.0, 0.0])
    assert sketch.update([7.0], [0.0]).weight == 1.0
    assert sketch.quantile(0.9) == 2.0
    assert repr(sketch) == "QuantileSketch(eps=0.1, weight=1, size=1)"
