"""Targets, weights and keys as users give them: what is converted to what, and what is refused with which words."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from jboost._runtime.arguments import as_key, as_target, as_weight
from jboost._runtime.typing import is_traced


@pytest.mark.parametrize(
    ("y", "dtype"),
    [
        (np.array([True, False]), np.int32),
        (np.array([1, 255], np.uint8), np.int32),
        (np.array([-(2**31), 2**31 - 1], np.int64), np.int32),
        (np.array([3, 4], np.uint64), np.int32),
        ([1, 2], np.int32),
        (range(3), np.int32),
        ([True, False], np.int32),
        ([1.5, 2], None),
        (np.array([1, 2], np.float16), None),
        (np.array([1.5, -2], np.float32), None),
        (np.array([1.5, 2.0]), None),
        ([[1.0, 2.0], [3.0, 4.0]], None),
        (np.array([1, 2.5], object), None),
        (np.array([0, 2**31], np.int64), None),
        (np.array([0, 2**63], np.uint64), None),
        (pd.Series([1, 2], index=[7, 9]), np.int32),
        (pd.Series([1.5, 2.0]), None),
        (pd.DataFrame({"a": [1.5, 2.0], "b": [0.0, 1.0]}), None),
        (pl.Series([1.5, 2.0]), None),
        (jnp.array([1, 2], jnp.uint8), np.int32),
    ],
)
def test_targets_become_arrays_of_two_dtypes(precision, y, dtype):
    target = as_target(y, "y")
    assert isinstance(target, jax.Array)
    assert target.dtype == (dtype or precision)
    np.testing.assert_array_equal(target, np.asarray(y).astype(np.float64))


@pytest.mark.usefixtures("x64")
def test_wide_jax_integers_stay_what_they_are():
    assert as_target(jnp.array([1, 2], jnp.int64), "y").dtype == jnp.int32
    beyond = as_target(jnp.array([1, 2**40], jnp.int64), "y")
    assert beyond.dtype == jnp.float64
    assert beyond[1] == 2.0**40


def test_a_pytree_keeps_its_structure(precision):
    y = {"time": np.array([1.5, 2.0]), "event": np.array([True, False]), "more": (np.ones((2, 3)),)}
    target = as_target(y, "y")
    assert jax.tree.structure(target) == jax.tree.structure(y)
    assert [leaf.dtype for leaf in jax.tree.leaves(target)] == [np.int32, precision, precision]
    np.testing.assert_array_equal(target["event"], [1, 0])


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        ([], ValueError, r"y must have at least one row, got shape \(0,\)"),
        (np.zeros((0, 3)), ValueError, r"y must have at least one row, got shape \(0, 3\)"),
        (3.0, ValueError, "y must have one value for each row, got a scalar"),
        ({"a": np.ones(2), "b": 1.0}, ValueError, r"y\['b'\] must have one value for each row, got a scalar"),
        ({"a": np.ones(2), "b": np.ones(3)}, ValueError, r"y must have the same number of rows .*\[2, 3\]"),
        ({}, TypeError, "y must be an array or a pytree of arrays, got dict"),
        (None, TypeError, "y must be an array or a pytree of arrays, got NoneType"),
        (
            [1.0, np.nan, 2.0],
            ValueError,
            r"y must be finite, got nan in row 1; leave out .*allow_nan=True\) whose",
        ),
        (
            np.array([[1.0, 2.0], [3.0, -np.inf]], np.float32),
            ValueError,
            "y must be finite, got -inf in row 1",
        ),
        (jnp.array([jnp.inf]), ValueError, "y must be finite, got inf in row 0$"),
        (np.array([1.0, None], object), ValueError, "y must be finite, got nan in row 1"),
        ([1.0, None], ValueError, "y must be finite, got nan in row 1"),
        (np.array([1j, 2]), TypeError, "y must hold real numbers, got dtype complex128"),
        (["a", "b"], TypeError, "y must hold real numbers, got dtype <U1"),
        (
            np.array(["2020-01-01"], "datetime64[D]"),
            TypeError,
            "y must hold real numbers, got dtype datetime64",
        ),
        (np.array([1.0, "b"], object), TypeError, "y must hold real numbers, got an array of objects"),
        (np.array([1.0, {}], object), TypeError, "y must hold real numbers, got an array of objects"),
        (pd.Series([1, None], dtype="Int64"), (TypeError, ValueError), "y must "),
        (pd.Series(["a", "b"], dtype="category"), TypeError, "y must hold real numbers"),
        (pd.DataFrame({"a": ["u", "v"]}), TypeError, "y must hold real numbers"),
        ({"a": ["u"]}, TypeError, r"y\['a'\] must hold real numbers, got dtype <U1"),
        ([1.0, pd.NA], ValueError, "y must be finite, got nan in row 1"),
        ("target", TypeError, "y must be an array .*, got str 'target'; read the data first"),
        (
            pl.LazyFrame({"a": [1.0]}),
            TypeError,
            r"y must be an array .*, got LazyFrame.*; give y.collect\(\)",
        ),
        (iter([1.0]), TypeError, r"y must be an array .*, got list_iterator; give list\(y\)"),
        (
            np.ma.masked_equal([1.0, 5.0, 5.0], 5),
            ValueError,
            "y must not be masked, got 2 masked of 3 values; drop",
        ),
        ({"a": np.ma.masked_equal([1, 5], 5)}, ValueError, r"y\['a'\] must not be masked, got 1 masked of 2"),
    ],
)
def test_what_is_no_target_is_refused_with_its_name(y, error, message):
    with pytest.raises(error, match=f"^{message}"):
        as_target(y, "y")


@pytest.mark.parametrize(
    ("frame", "values"),
    [
        (pd.DataFrame({"b": [1.5, 2.0], "a": [0, 1]}), [[1.5, 0.0], [2.0, 1.0]]),
        (pl.DataFrame({"b": [1.5, 2.0], "a": [0, 1]}), [[1.5, 0.0], [2.0, 1.0]]),
        (pa.table({"b": [1.5, 2.0], "a": [0, 1]}), [[1.5, 0.0], [2.0, 1.0]]),
        (pd.DataFrame({"only": [1.5, 2.0]}), [1.5, 2.0]),
        (pl.DataFrame({"only": [1, 2]}), [1, 2]),
        (pa.table({"only": [1.5, 2.0]}), [1.5, 2.0]),
        (np.array([[1.5], [2.0]]), [[1.5], [2.0]]),  # an array stays as it is
    ],
)
def test_a_frame_is_its_columns_in_order(frame, values):
    target = as_target(frame, "y")
    assert target.shape == np.shape(values)
    np.testing.assert_array_equal(target, values)


def test_a_mask_that_hides_nothing_is_no_mask():
    np.testing.assert_array_equal(as_target(np.ma.masked_array([1.0, 5.0]), "y"), [1.0, 5.0])
    np.testing.assert_array_equal(
        as_weight(np.ma.masked_array([1.0, 5.0], [False, False]), 2, "w"), [1.0, 5.0]
    )


@pytest.mark.parametrize("gap", [np.nan, None, pd.NA])
def test_gaps_pass_where_the_loss_takes_them(gap):
    y = np.array([[1.0, gap], [gap, 2.0], [3.0, gap]], object if gap is not np.nan else float)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        target = as_target(y, "y", allow_nan=True)
    np.testing.assert_array_equal(target, [[1.0, np.nan], [np.nan, 2.0], [3.0, np.nan]])
    with pytest.raises(ValueError, match=r"^y must be finite, got -inf in row 1"):
        as_target([[1.0, np.nan], [-np.inf, 2.0]], "y", allow_nan=True)


def test_digits_are_warned_of_beside_gaps():
    y = np.array([[0.1, 1e9, np.nan], [np.nan, 1e9 + 1, np.nan], [0.3, np.nan, np.nan]])
    with pytest.warns(
        UserWarning, match="^y varies so little around a large value that float32 loses up to 1 of"
    ):
        as_target(y, "y", allow_nan=True)
    y[0, 1] = 2e9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        as_target(y, "y", allow_nan=True)


@pytest.mark.parametrize(
    "dtype", [bool, jnp.uint8, jnp.int16, jnp.int32, jnp.uint32, jnp.float16, jnp.float32]
)
def test_arrays_of_jax_stay_concrete_inside_a_trace(dtype):
    values = jnp.array([1, 0, 1], dtype)

    @jax.jit
    def inside(x):
        target, weight = as_target({"a": values}, "y")["a"], as_weight(values, 3, "w")
        assert not is_traced(target, weight)
        return x + target + weight

    np.testing.assert_array_equal(inside(jnp.float32(1)), [3, 1, 3])


def test_a_list_of_traced_numbers_is_one_array():
    compiled = jax.jit(lambda a, b: (as_target([a, b], "y"), as_weight([a, b], 2, "w")))
    np.testing.assert_array_equal(compiled(1.0, 2.0), [[1.0, 2.0], [1.0, 2.0]])


def test_large_doubles_are_refused_where_there_is_no_float64(precision):
    y = np.array([1.0, 1e39])
    if precision == np.float64:
        np.testing.assert_array_equal(as_target(y, "y"), y)
        return
    with pytest.raises(ValueError, match=r"^y has values beyond the range of float32; scale it"):
        as_target(y, "y")


def test_digits_that_float32_loses_are_warned_of(precision):
    y = 1e9 + np.arange(4.0)
    if precision == np.float64:
        np.testing.assert_array_equal(as_target(y, "y"), y)
        return
    with pytest.warns(UserWarning, match="^y varies so little around a large value that float32 loses up to"):
        as_target(y, "y")


def test_digits_of_large_integers_that_float32_loses_are_warned_of():
    with pytest.warns(UserWarning, match="^y varies so little around a large value that float32 loses up to"):
        as_target(2**40 + np.arange(4), "y")


@pytest.mark.parametrize(
    "y",
    [
        [0.1, 0.2],
        [0.1, 0.1],
        [1e9, 2e9],
        [1e30, -1e30],
        [0.1],
        [[0.1, 1.3], [0.1, 2.7]],  # a column is constant
        [[1234567.3, 0.1], [7654321.7, 0.2]],  # columns of other magnitudes
    ],
)
def test_ordinary_rounding_is_no_reason_to_warn(y):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(as_target(np.array(y), "y"), np.array(y, np.float32))


def test_traced_targets_pass():
    @jax.jit
    def double(y):
        target = as_target(y, "y")
        assert target["b"].dtype == jnp.int32
        return 2 * target["a"]

    np.testing.assert_array_equal(double({"a": jnp.array([1.5]), "b": jnp.array([True])}), [3.0])


@pytest.mark.usefixtures("x64")
def test_traced_wide_integers_never_wrap_around():
    compiled = jax.jit(lambda y: as_target(y, "y"))
    y = jnp.array([1, 2**40])
    try:
        target = compiled(y)
    except TypeError:
        return  # refusing them is right as well
    np.testing.assert_array_equal(target, y)


@pytest.mark.parametrize(
    "weight",
    [
        [1, 2, 0],
        [0.5, 0.0, 2.0],
        np.array([True, False, True]),
        np.array([1, 2, 3], np.uint8),
        np.array([1.0, 2.0, 3.0]),
        pd.Series([1.0, 2.0, 3.0]),
        jnp.array([1, 2, 3]),
    ],
)
def test_weights_become_floats(precision, weight):
    found = as_weight(weight, 3, "sample_weight")
    assert found.dtype == precision
    np.testing.assert_array_equal(found, np.asarray(weight).astype(float))


def test_the_weight_of_every_row_is_one_by_default(precision):
    weight = as_weight(None, 3, "sample_weight")
    assert weight.dtype == precision
    np.testing.assert_array_equal(weight, np.ones(3))


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (["a", "b"], TypeError, "w must hold real numbers, got dtype <U1"),
        (np.array([1j, 1]), TypeError, "w must hold real numbers, got dtype complex128"),
        (np.array([1, None], object), ValueError, "w must be finite and non-negative, got nan in row 1"),
        (1.0, ValueError, r"w must have shape \(2,\), one weight for each row, got \(\)"),
        ([1.0], ValueError, r"w must have shape \(2,\), one weight for each row, got \(1,\)"),
        (np.ones((2, 1)), ValueError, r"w must have shape \(2,\), one weight for each row, got \(2, 1\)"),
        ([1.0, -1.0], ValueError, "w must be finite and non-negative, got -1.0 in row 1"),
        ([np.nan, 1.0], ValueError, "w must be finite and non-negative, got nan in row 0"),
        ([1.0, np.inf], ValueError, "w must be finite and non-negative, got inf in row 1"),
        (
            np.ma.masked_array([1.0, 1.0], [True, False]),
            ValueError,
            "w must not be masked, got 1 masked of 2 values; fill it with 0 where a row is to be left out",
        ),
        (pl.LazyFrame({"w": [1.0, 2.0]}), TypeError, r"w must be an array .* give w.collect\(\)"),
        ([0.0, 0.0], ValueError, "w must hold a weight above zero, got zero for every row"),
    ],
)
def test_what_is_no_weight_is_refused_with_its_name(weight, error, message):
    with pytest.raises(error, match=f"^{message}"):
        as_weight(weight, 2, "w")


@pytest.mark.parametrize("weight", [[1e300, 1.0], [1e-60, 1e-60]])
def test_weights_are_refused_where_float32_makes_them_infinite_or_all_zero(weight):
    with pytest.raises(ValueError, match=r"^w\b"):
        as_weight(np.array(weight), 2, "w")


@pytest.mark.parametrize("weight", [pd.Series([1, 2], dtype="Float64"), pl.Series([1.0, 2.0])])
def test_weights_come_from_any_series(weight):
    np.testing.assert_array_equal(as_weight(weight, 2, "w"), [1.0, 2.0])


def test_traced_weights_pass_and_keep_their_derivative():
    derivative = jax.grad(lambda weight: (as_weight(weight, 2, "w") ** 2).sum())(jnp.array([3.0, -1.0]))
    np.testing.assert_array_equal(derivative, [6.0, -2.0])


def test_keys_of_both_kinds_pass_and_the_first_is_the_default():
    key, raw = jax.random.key(3), jax.random.PRNGKey(3)
    assert as_key(key) is key
    assert as_key(raw) is raw
    assert as_key(None) == jax.random.key(0)
    assert as_key(np.uint32(3)) == key
    assert jax.jit(lambda k: jax.random.bits(as_key(k)))(key) == jax.random.bits(key)


@pytest.mark.parametrize(
    "bad", [3.0, True, "key", jnp.array([1.0, 2.0]), jnp.uint32(3), [0, 1], jnp.zeros(5, jnp.uint32)]
)
def test_what_is_no_key_is_refused(bad):
    with pytest.raises(
        TypeError, match=r"^key must be a JAX key, such as jax.random.key\(0\), or an integer, got "
    ):
        as_key(bad)


def test_integers_that_float32_cannot_tell_apart_are_reported():
    with pytest.warns(UserWarning, match="float32 loses"):
        as_target(np.array([2**30, 2**30 + 8]), "y")
