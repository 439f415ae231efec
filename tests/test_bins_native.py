"""The C++ version of binning gives the codes of the NumPy version, whatever the values, edges and layout."""

from __future__ import annotations

from typing import Any

import native_library
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jboost._bins import bin_features, native, read_bins
from jboost._bins.host import numeric_codes

SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-41, -1e-41, 5e-324, 1.0, -1.0]
LAYOUTS = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "every other row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "backwards": lambda X: np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "same values in each row": lambda X: np.broadcast_to(X[:1], X.shape),
}


@pytest.fixture(autouse=True)
def _needs_native() -> None:
    native_library.require(native.is_available)


def in_cpp(values: np.ndarray, edges: np.ndarray, dtype: Any = np.uint8, n_threads: int = 1) -> np.ndarray:
    codes = np.full(values.shape[::-1], 77, dtype)
    native.fill_codes(values, edges, codes, n_threads)
    return codes


def in_numpy(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    columns = (np.ascontiguousarray(column) for column in values.T)
    return np.stack([numeric_codes(column, row, row) for column, row in zip(columns, edges, strict=True)])


def counted(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Count the edges below each value one by one."""
    below = (edges.T[:, :, None] < values.T[None]).sum(axis=0)
    return np.where(np.isnan(values.T), 0, 1 + below)


def draw_edges(rng: np.random.Generator, n_features: int, n_edges: int, dtype: Any) -> np.ndarray:
    """Increase along a row over many magnitudes; rows are of different lengths, one is empty."""
    scale = 10.0 ** rng.integers(-6, 6, (n_features, n_edges))
    edges = np.sort(rng.normal(size=(n_features, n_edges)) * scale, axis=1).astype(dtype)
    length = rng.integers(0, n_edges + 1, (n_features, 1))
    length[0] = 0
    return np.where(np.arange(n_edges)[None] < length, edges, dtype(np.inf))


def draw_values(rng: np.random.Generator, n: int, edges: np.ndarray) -> np.ndarray:
    """Draw values anywhere, some of them edges and their neighbours, some special."""
    shape = (n, edges.shape[0])
    values = (rng.normal(size=shape) * 10.0 ** rng.integers(-7, 7, shape)).astype(edges.dtype)
    if edges.shape[1]:
        near = edges[np.arange(shape[1])[None], rng.integers(0, edges.shape[1], shape)]
        toward = rng.choice([-np.inf, np.inf], shape).astype(edges.dtype)
        near = np.where(rng.random(shape) < 0.5, near, np.nextafter(near, toward))
        values = np.where(rng.random(shape) < 0.3, near, values)
    special = rng.choice(np.array(SPECIAL), shape).astype(edges.dtype)
    return np.where(rng.random(shape) < 0.1, special, values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 63, 1023, 1024, 1025, 9001])  # from 8192 on by leading bits
@pytest.mark.parametrize("n_edges", [0, 1, 2, 3, 14, 254, 1000])
def test_counts_the_edges_below(n, n_edges, dtype, rng):
    edges = draw_edges(rng, 3, n_edges, dtype)
    values = draw_values(rng, n, edges)
    expected = counted(values, edges)
    found = in_cpp(values, edges, np.uint8 if n_edges < 255 else np.uint16)
    np.testing.assert_array_equal(found, expected)
    if n:
        np.testing.assert_array_equal(found, in_numpy(values, edges))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_layout(layout, dtype, rng):
    edges = draw_edges(rng, 4, 60, dtype)
    values = LAYOUTS[layout](draw_values(rng, 3000, edges))
    assert native.can_bin(values)
    np.testing.assert_array_equal(in_cpp(values, edges), counted(values, edges))


def test_several_threads_give_the_same(rng):
    edges = draw_edges(rng, 5, 100, np.float32)
    values = draw_values(rng, 60_001, edges)
    np.testing.assert_array_equal(in_cpp(values, edges, n_threads=4), in_numpy(values, edges))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("repeat", [1, 9000], ids=["searched", "by leading bits"])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_any_values_and_edges(repeat: int, dtype: Any, data: st.DataObject) -> None:
    width: Any = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width) | st.sampled_from(SPECIAL).map(lambda v: float(dtype(v)))
    finite = st.floats(width=width, allow_nan=False).filter(lambda v: v < np.inf)
    row = np.sort(data.draw(hnp.arrays(dtype, st.integers(0, 12), elements=finite)))
    drawn = data.draw(hnp.arrays(dtype, st.integers(1, 12), elements=numbers))
    values = np.resize(np.concatenate([drawn, row]), (max(repeat, drawn.size + row.size), 1))
    edges = np.append(row, dtype(np.inf))[None]  # may hold -inf, equal edges, and both zeros
    np.testing.assert_array_equal(in_cpp(values, edges), counted(values, edges))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.int8, bool, ">f4"])
def test_matrices_of_any_type(dtype, rng, monkeypatch):
    X = np.trunc(rng.normal(size=(200, 4)) * 3).astype(dtype)
    data = bin_features(X, max_bins=20)
    found = read_bins(data.edges, X)
    monkeypatch.setattr(native, "can_bin", lambda values: False)
    np.testing.assert_array_equal(read_bins(data.edges, X), found)
    assert len(np.unique(found)) > 1


def test_categories_beside_numbers(rng, monkeypatch):
    X = rng.integers(0, 9, (300, 3)).astype(np.float32)
    X[::7, 1] = np.nan
    data = bin_features(X, categorical=[1])
    other = rng.integers(-2, 12, (100, 3)).astype(np.float32)
    found = read_bins(data.edges, other)
    assert set(found[1][(other[:, 1] < 0) | (other[:, 1] > 8)].tolist()) == {0}  # not seen
    monkeypatch.setattr(native, "can_bin", lambda values: False)
    np.testing.assert_array_equal(read_bins(data.edges, other), found)


def test_says_whether_values_are_missing():
    X = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    edges = bin_features(X).edges
    assert bin_features(X, edges=edges).has_missing is False
    X[1, 1] = np.nan
    assert bin_features(X, edges=edges).has_missing is True


def test_refuses_shapes_that_disagree():
    values, edges = np.zeros((5, 2), np.float32), np.zeros((2, 3), np.float32)
    for wrong in (
        np.zeros((5, 2), np.uint8),
        np.zeros((2, 10), np.uint8)[:, ::2],
        np.zeros((3, 5), np.uint8),
    ):
        with pytest.raises(ValueError, match="codes must be contiguous"):
            native.fill_codes(values, edges, wrong, 1)
    with pytest.raises(ValueError, match="codes must be contiguous"):
        native.fill_codes(values, edges[:1], np.zeros((2, 5), np.uint8), 1)
