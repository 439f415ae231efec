"""Row counts come in few sizes, and padding adds zeros only."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost._objective.resolve import resolve
from jboost._runtime import padding
from jboost._runtime.padding import ROOMY_ROWS, bucket, pad_axis, reusable_size
from jboost._runtime.typing import as_array, empty_for_device


def test_row_counts_are_rounded_up_to_few_sizes():
    counts = np.arange(1, 20_000)
    sizes = np.array([bucket(int(n)) for n in counts])
    assert np.all(sizes >= counts)
    assert np.all(np.diff(sizes) >= 0)
    assert np.all(sizes <= np.maximum(counts + 64, counts * (1 + 1 / 16) + 1))
    assert all(bucket(int(size)) == size for size in np.unique(sizes))
    assert np.unique(sizes[counts > 4096]).size <= 16 * 3
    assert bucket(2**30 + 1) < 1.07 * 2**30


def first_and_second(monkeypatch, n, other):
    """Give the sizes of a process whose first fit has n rows and whose second has another number."""
    monkeypatch.setattr(padding, "_sizes", set())
    return reusable_size(n), reusable_size(other)


def test_a_size_serves_a_tenth_more_and_a_tenth_fewer_rows(monkeypatch):
    for n in [*range(1, 3000), 10_007, 100_000, ROOMY_ROWS - 1]:
        for other in (int(1.1 * n), -(-9 * n // 10), n):
            first, second = first_and_second(monkeypatch, n, other)
            assert n <= first == second >= other, (n, other)


def test_a_size_is_not_reused_for_far_fewer_rows(monkeypatch):
    for n in (1000, 10_007, 1_000_000):
        first, second = first_and_second(monkeypatch, n, n // 2)
        assert n // 2 <= second < first
        assert second <= 0.6 * n


def test_many_rows_get_no_room_for_more(monkeypatch):
    first, second = first_and_second(monkeypatch, 1_000_000, 1_100_000)
    assert first == bucket(1_000_000) < second


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray])
def test_padding_appends_zeros_along_its_axis(make):
    array = make([[1, 2], [3, 4]])
    np.testing.assert_array_equal(pad_axis(array, 3), [[1, 2], [3, 4], [0, 0]])
    np.testing.assert_array_equal(pad_axis(array, 3, axis=1), [[1, 2, 0], [3, 4, 0]])
    assert pad_axis(array, 2) is array
    assert pad_axis(array, 3).dtype == array.dtype


@pytest.mark.slow
def test_small_models_of_several_outputs_do_not_depend_on_earlier_fits(rng):
    # XLA sums over the classes of small arrays in another order than over those of larger ones.
    X = rng.normal(size=(1500, 3))
    y = np.argmax(X + rng.normal(size=X.shape), axis=1)

    def fit_rows(n: int) -> Any:
        model, _ = jboost.fit(
            jboost.losses.softmax(3), X[:n], y[:n], spec=jboost.Spec(n_estimators=3, max_depth=3)
        )
        return model

    first = fit_rows(1300)
    fit_rows(1400)  # leaves larger programs behind
    fit_rows(1200)
    jax.tree.map(np.testing.assert_array_equal, fit_rows(1300), first)


@pytest.mark.slow
def test_a_model_does_not_depend_on_sizes_in_use_where_a_row_holds_an_array(monkeypatch, rng):
    """XLA sums over it in an order that depends on the number of rows."""
    X, y = rng.normal(size=(60, 5)), {"t": rng.normal(size=(60, 24))}
    basis = jnp.asarray(rng.normal(size=24), jnp.float32)

    def loss(score, y):
        return jnp.mean(jnp.log(jnp.cosh(score * basis - y["t"])))

    def fit(known):
        monkeypatch.setattr(padding, "_sizes", known)
        return jboost.fit(loss, X, y, spec=jboost.Spec(n_estimators=3, max_depth=3))[0]

    expected = fit(set())
    for known in ({128}, {192}):
        jax.tree.map(np.testing.assert_array_equal, fit(known), expected)


@pytest.mark.parametrize(
    ("loss", "n_outputs", "y", "expected"),
    [
        (lambda score, y: (score - y) ** 2, None, np.zeros(3), 1),
        (lambda score, y: jnp.sum((score - y) ** 2), None, np.zeros((3, 7)), 7),
        (lambda score, y: jnp.sum(jnp.outer(score, score)) * y, 3, np.zeros(3), 9),
        (lambda score, y: jax.jit(lambda s: jnp.sum(s * jnp.arange(5.0)))(score) * y, None, np.zeros(3), 5),
        (
            lambda score, y: jax.lax.cond(score[0] > 0, lambda: jnp.sum(y), lambda: y[0]),
            None,
            np.zeros((3, 2)),
            2,
        ),
        (jboost.losses.logistic.function, None, np.zeros(3), 1),
    ],
)
def test_the_largest_array_of_a_row(loss, n_outputs, y, expected):
    assert resolve(jboost.losses.Loss(loss, n_outputs=n_outputs), y).numbers_per_row == expected


def test_small_arrays_of_several_outputs_have_a_size_of_their_own(monkeypatch):
    monkeypatch.setattr(padding, "_sizes", {1536})
    assert (reusable_size(1300), reusable_size(1300, 3)) == (1536, bucket(1430))
    assert reusable_size(1300, 100) == 1536  # large enough for one order of summation


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only a CPU shares the memory of the host")
@pytest.mark.parametrize("shape", [(1,), (7, 1001), (100_000,), (0, 3)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_cpu_takes_an_array_over_without_a_copy(shape, dtype):
    for _ in range(3):
        array = empty_for_device(shape, dtype)
        array[...] = 3
        taken = as_array(array)
        assert (taken.shape, taken.dtype) == (shape, dtype)
        np.testing.assert_array_equal(taken, np.full(shape, 3))
        assert array.size == 0 or taken.unsafe_buffer_pointer() == array.ctypes.data


def test_an_array_of_another_type_is_converted_and_not_shared():
    array = np.array([1.5, -2.0])
    taken = as_array(array, np.float32)
    array[0] = 7
    assert taken.dtype == np.float32
    np.testing.assert_array_equal(taken, [1.5, -2.0])
