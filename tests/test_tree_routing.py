"""The codes by which rows are routed, looked up as on a TPU and as elsewhere."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jboost._tree.levels import gather_codes, select_codes


@pytest.fixture(params=[gather_codes, select_codes], ids=["gather", "select"])
def look_up(request):
    return request.param


@pytest.mark.parametrize(("n_nodes", "dtype"), [(2, np.uint8), (31, np.uint8), (8, np.uint16)])
def test_each_row_gets_the_code_of_its_nodes_feature(look_up, n_nodes, dtype, rng):
    bins = rng.integers(0, np.iinfo(dtype).max, (5, 200), endpoint=True).astype(dtype)
    feature, node = rng.integers(0, 5, n_nodes, np.int32), rng.integers(0, n_nodes, 200, np.int32)
    found = jax.jit(look_up)(bins, feature, node)
    assert found.dtype == dtype
    assert found.tolist() == [bins[feature[node[i]], i] for i in range(200)]


def test_each_row_of_a_batch(look_up, rng):
    """Trees of several outputs: each has nodes and features of its own."""
    bins = rng.integers(0, 256, (4, 60)).astype(np.uint8)
    feature, node = rng.integers(0, 4, (3, 7), np.int32), rng.integers(0, 7, (3, 60), np.int32)
    found = jax.jit(jax.vmap(look_up, in_axes=(None, 0, 0)))(bins, feature, node)
    for j in range(3):
        np.testing.assert_array_equal(found[j], [bins[feature[j, node[j, i]], i] for i in range(60)])
