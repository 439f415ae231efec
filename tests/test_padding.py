"""Row counts come in few sizes, and padding adds zeros only."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from jboost._padding import bucket, pad_axis


def test_row_counts_are_rounded_up_to_few_sizes():
    counts = np.arange(1, 20_000)
    sizes = np.array([bucket(int(n)) for n in counts])
    assert np.all(sizes >= counts)
    assert np.all(np.diff(sizes) >= 0)
    assert np.all(sizes <= np.maximum(counts + 64, counts * (1 + 1 / 16) + 1))
    assert all(bucket(int(size)) == size for size in np.unique(sizes))
    assert np.unique(sizes[counts > 4096]).size <= 16 * 3
    assert bucket(2**30 + 1) < 1.07 * 2**30


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_padding_appends_zeros_along_its_axis(make):
    array = make([[1, 2], [3, 4]])
    np.testing.assert_array_equal(pad_axis(array, 3), [[1, 2], [3, 4], [0, 0]])
    np.testing.assert_array_equal(pad_axis(array, 3, axis=1), [[1, 2, 0], [3, 4, 0]])
    assert pad_axis(array, 2) is array
    assert pad_axis(array, 3).dtype == array.dtype
