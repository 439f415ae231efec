"""Read any two-dimensional input column by column: NumPy, JAX, scipy sparse, pandas, polars, pyarrow, lists."""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Float

from jboost._bins.columns import Factor, Table, as_factor, as_numbers, check_dtype, present_factor
from jboost._runtime.containers import no_array

_WANTED = "an array or an eager data frame [n_rows, n_features]"


def read_table(X: Any, missing: float | None = None) -> Table:
    """Open X, checking that it is two-dimensional; its cells are checked when a column is read.

    A number may stand for missing values, beside NaN.
    """
    table = _open(X)
    return table if missing is None else _without(table, missing)


def check_not_empty(shape: tuple[int, ...]) -> None:
    """Raise unless there are rows and columns to learn from."""
    if 0 in shape:
        what = "sample" if shape[0] == 0 else "feature"
        raise ValueError(
            f"X must not be empty: Found array with 0 {what}(s) (shape={shape}) while a minimum of 1 is required."
        )


def in_precision(missing: float | None, dtype: np.dtype) -> Float[np.ndarray, ""]:
    """Return the number that stands for a missing value as a column has it, NaN if it cannot or there is none."""
    with np.errstate(over="ignore"):
        value = np.asarray(np.nan if missing is None else missing).astype(dtype)
    return value if np.isfinite(value) else np.full((), np.nan, dtype)


def _without(table: Table, missing: float) -> Table:
    def read_numbers(j: int) -> np.ndarray:
        column = table.numbers(j)
        return np.where(column == in_precision(missing, column.dtype), column.dtype.type(np.nan), column)

    def read_factor(j: int) -> Factor:
        factor = table.factor(j)
        return present_factor([None if value == missing else value for value in factor.values], factor.index)

    return replace(table, numbers=read_numbers, factor=read_factor, matrix=None)


def _open(X: Any) -> Table:
    if scipy.sparse.issparse(X):
        return _sparse_table(X)
    if not isinstance(X, np.ndarray | jax.Array):
        from jboost._bins.frames import table_of_frame  # narwhals is imported where a frame may come

        table = table_of_frame(X, _WANTED)
        if table is not None:
            return table
    return _array_table(_as_array(X))


def _as_array(X: Any) -> np.ndarray:
    if isinstance(X, np.ma.MaskedArray):
        return _with_missing_for_masked(X)
    try:
        array = np.asarray(X)
        if isinstance(X, list | tuple) and array.dtype.kind in "US":
            array = np.asarray(X, dtype=object)  # numbers beside strings stay numbers
    except ValueError as error:  # nested lists of unequal lengths
        raise ValueError(f"X must have rows of equal length, got a {type(X).__name__}: {error}") from error
    if array.ndim == 0 and not isinstance(X, numbers.Number):
        raise no_array(X, "X", _WANTED)
    return array


def _with_missing_for_masked(X: np.ma.MaskedArray) -> np.ndarray:
    if X.dtype.kind == "f":
        return X.filled(np.nan)
    if X.dtype.kind in "biu":
        return np.ma.filled(X.astype(np.float64), np.nan)
    objects = X.data.astype(object)
    objects[np.ma.getmaskarray(X)] = None
    return objects


def _array_table(array: np.ndarray) -> Table:
    _check_dimensions(array.shape, "array")
    check_dtype(array.dtype)
    n, f = array.shape

    def read_numbers(j: int) -> np.ndarray:
        return as_numbers(array[:, j], f"column {j}")

    def read_factor(j: int) -> Factor:
        return as_factor(array[:, j], f"column {j}")

    matrix = array if array.dtype in (np.float32, np.float64) else None
    return Table((n, f), None, (False,) * f, read_numbers, read_factor, matrix)


def _check_dimensions(shape: tuple[int, ...], what: str) -> None:
    if len(shape) != 2:
        raise ValueError(
            f"X must be a 2-D {what} [n_rows, n_features], got {len(shape)}-D with shape {shape}. "
            "Reshape your data: X.reshape(-1, 1) for one feature, X.reshape(1, -1) for one row."
        )


def _sparse_table(X: Any) -> Table:
    _check_dimensions(X.shape, "sparse matrix")
    check_dtype(X.dtype)
    csc = X.tocsc()
    if not csc.has_canonical_format:  # entries given twice are added, as in X.toarray()
        csc = csc.copy()
        csc.sum_duplicates()
    n, f = csc.shape

    def dense(j: int) -> np.ndarray:
        column = np.zeros(n, dtype=csc.dtype)
        entries = slice(csc.indptr[j], csc.indptr[j + 1])
        column[csc.indices[entries]] = csc.data[entries]
        return column

    def read_numbers(j: int) -> np.ndarray:
        return as_numbers(dense(j), f"column {j}")

    def read_factor(j: int) -> Factor:
        return as_factor(dense(j), f"column {j}")

    return Table((n, f), None, (False,) * f, read_numbers, read_factor)
