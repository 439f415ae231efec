"""Traced values get on the device the codes that concrete ones get on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jboost._bins import BinEdges, apply_edges, bin_features, edges_from_exact, read_bins

MAX = np.finfo(np.float64).max
TINY = 5e-324
SPECIAL = [0.0, -0.0, TINY, -TINY, 1e-40, -1e-40, MAX, -MAX, np.inf, -np.inf, 3.5e38, np.nan]


device_bins = jax.jit(read_bins)


def naive_codes(edges: BinEdges, X: np.ndarray) -> np.ndarray:
    """Count the edges below each value, one value at a time, in Python's floats."""
    return np.array(
        [
            [0 if v != v else 1 + sum(edge < v for edge in row) for v in X[:, j].tolist()]
            for j, row in enumerate(edges.exact.tolist())
        ]
    )


def edges_of(values: list[float]) -> BinEdges:
    """Make edges that are exactly the given values."""
    row = np.unique(np.array([v for v in values if v < np.inf]) + 0.0)
    exact = np.pad(row, (0, 14 - row.size), constant_values=np.inf)
    return edges_from_exact(exact[None], 16, 15, bin_features([[0.0]]).edges.features)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats() | st.sampled_from(SPECIAL), min_size=14, max_size=14),
    st.lists(
        st.floats(width=32) | st.sampled_from([0.0, -0.0, 1e-40, np.inf, -np.inf, np.nan]),
        min_size=9,
        max_size=9,
    ),
)
@example(
    [*SPECIAL, 1e-45, -1e-45], [0.0, -0.0, 2.0**-149, -(2.0**-149), np.inf, -np.inf, np.nan, 2.0**-126, 3e38]
)
def test_device_path_equals_host_path_in_float32(edge_values: list[float], values: list[float]) -> None:
    edges, X = edges_of(edge_values), np.array(values, dtype=np.float32)[:, None]
    expected = naive_codes(edges, X)
    assert np.array_equal(read_bins(edges, X), expected)
    assert np.array_equal(device_bins(edges, X), expected)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats() | st.sampled_from(SPECIAL), min_size=14, max_size=14),
    st.lists(st.floats() | st.sampled_from(SPECIAL), min_size=9, max_size=9),
)
def test_device_path_equals_host_path_in_float64(edge_values: list[float], values: list[float]) -> None:
    edges, X = edges_of(edge_values), np.array(values + edge_values[:3])[:, None]
    expected = naive_codes(edges, X)
    assert np.array_equal(read_bins(edges, X), expected)
    with jax.enable_x64(True):
        assert np.array_equal(device_bins(edges, X), expected)


def test_traced_edges_bin_concrete_float64_rows_exactly_without_x64() -> None:
    data = bin_features([[20180130.0], [20180131.0], [np.nan]])
    X = np.array([[20180131.0], [20180130.0], [np.nan], [-np.inf]])
    codes_of = jax.jit(lambda edges: read_bins(edges, X))
    assert np.asarray(codes_of(data.edges)).tolist() == [[2, 1, 0, 1]]


@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.int8, jnp.uint16, jnp.int16, jnp.float16, jnp.bfloat16])
def test_narrow_dtypes_are_binned_exactly_on_the_device(dtype: Any) -> None:
    smallest = jnp.finfo(dtype).smallest_subnormal if jnp.issubdtype(dtype, jnp.floating) else 1
    X = jnp.array([[0], [smallest], [1], [0]], dtype)
    data = bin_features(X)
    assert np.array_equal(device_bins(data.edges, X), data.bins)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_wide_integers_cannot_be_traced(dtype: Any) -> None:
    data = bin_features(np.eye(2))
    with pytest.raises(TypeError, match=r"X must hold floats where it is traced, got u?int32"):
        device_bins(data.edges, np.eye(2, dtype=dtype))


def test_traced_rows_of_another_shape_are_refused() -> None:
    data = bin_features(np.eye(2))
    with pytest.raises(ValueError, match="X has 3 features, but BinEdges is expecting 2"):
        device_bins(data.edges, np.eye(3, dtype=np.float32))
    with pytest.raises(ValueError, match="2-D"):
        device_bins(data.edges, np.zeros(3, dtype=np.float32))


def test_edges_and_rows_can_be_mapped() -> None:
    X = np.array([[0.0, 1.0], [2.0, 3.0], [5.0, np.nan]], dtype=np.float32)
    edges = bin_features(X).edges
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]), edges)
    expected = np.asarray(read_bins(edges, X))
    for bins in jax.vmap(lambda e: read_bins(e, X))(stacked):
        assert np.array_equal(bins, expected)
    for bins in jax.vmap(lambda x: read_bins(edges, x))(jnp.stack([X, X])):
        assert np.array_equal(bins, expected)


def test_numeric_categories_are_looked_up_on_the_device(precision: Any) -> None:
    X = np.array([[0.1, 5, 1.0], [np.inf, -3, 2.0], [-0.0, 7, 3.0], [np.nan, 5, np.nan]])
    data = bin_features(X, categorical=[0, 1], max_bins=2)
    probes = np.array([[0.1, 7, 2.5], [np.inf, 5, 1.0], [0.0, 6, np.nan], [-np.inf, np.nan, 2.0]], precision)
    expected = np.asarray(apply_edges(data.edges, probes).bins)
    assert np.array_equal(device_bins(data.edges, probes), expected)
    assert (expected[0, 0] == 0) == (precision == np.float32)  # float32(0.1) is not 0.1


@pytest.mark.usefixtures("precision")
def test_traced_edges_bin_concrete_strings() -> None:
    X = np.array([["b", 1.0], ["a", 2.0], [None, np.nan]], dtype=object)
    data = bin_features(X, categorical=[0])
    assert np.array_equal(jax.jit(lambda edges: read_bins(edges, X))(data.edges), data.bins)
    with pytest.raises(TypeError, match=r"X must be concrete, as 'b' is a category"):
        device_bins(data.edges, np.zeros((3, 2), np.float32))
