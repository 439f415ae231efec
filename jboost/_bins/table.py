"""Read any two-dimensional input column by column: NumPy, JAX, scipy sparse, pandas, polars, pyarrow, lists.

A numeric column becomes a float32 or float64 vector with NaN for what is missing. A categorical column
becomes a `Factor`: its distinct values, and for each row the index of its value.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, NamedTuple

import jax.numpy as jnp
import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int

from jboost._runtime.containers import is_missing_type, no_array

HOW_TO_HAVE_CATEGORIES = "; name it in `categorical` or give it a category dtype"
_REAL = (numbers.Real, np.bool_, Decimal)
_WANTED = "an array or an eager data frame [n_rows, n_features]"
_CATEGORY_DTYPES = (nw.Categorical, nw.Enum, nw.String)


class Factor(NamedTuple):
    """A categorical column: the values that occur, and the index of each row's value (-1: missing)."""

    values: list[Any]
    index: Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Table:
    """An input as columns; `numbers(j)` and `factor(j)` read column j when they are called."""

    shape: tuple[int, int]
    names: tuple[str, ...] | None
    categorical: tuple[bool, ...]  # the container itself says that the column holds categories
    numbers: Callable[[int], Float[np.ndarray, " n"]]
    factor: Callable[[int], Factor]
    matrix: Float[np.ndarray, "n f"] | None = None  # all columns at once, where they are numbers already

    def label(self, j: int) -> str:
        """Name column j in an error message."""
        return f"column {j}" if self.names is None else f"column {self.names[j]!r}"


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
    try:
        frame = nw.from_native(X, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            raise no_array(X, "X", _WANTED)
        if isinstance(frame, nw.DataFrame):
            return _frame_table(frame)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"X must have column names that differ: {error}") from error
    return _array_table(_as_array(X))


# ---------------------------------------------------------------- arrays


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
    _check_dtype(array.dtype)
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


def _check_dtype(dtype: np.dtype) -> None:
    if np.issubdtype(dtype, np.complexfloating):
        raise ValueError(f"X must hold real numbers, got dtype {dtype}: Complex data not supported")
    narrow = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)  # also bfloat16, int4
    if dtype.kind not in "biufOUS" and not narrow:
        raise TypeError(
            f"X must hold numbers, got dtype {dtype}; convert dates and records to numbers or categories"
        )


def as_numbers(column: np.ndarray, label: str) -> Float[np.ndarray, " n"]:
    """Return the numbers of a column: float32 if that holds all values of its dtype, float64 otherwise."""
    _check_dtype(column.dtype)
    if column.dtype.kind in "US":
        raise _not_a_number(label, "strings")
    if column.dtype.kind == "O":
        return _numbers_of_objects(column, label)
    size, is_float = column.dtype.itemsize, jnp.issubdtype(column.dtype, jnp.floating)
    exact_in_float32 = size <= 4 if is_float else size <= 2
    return np.ascontiguousarray(column, dtype=np.float32 if exact_in_float32 else np.float64)


def _numbers_of_objects(column: np.ndarray, label: str) -> Float[np.ndarray, " n"]:
    types = set(map(type, column))
    missing = set(filter(is_missing_type, types))
    for t in types - missing:
        if issubclass(t, complex | np.complexfloating):
            raise ValueError(
                f"X must hold real numbers in {label}, got {t.__name__}: Complex data not supported"
            )
        if not issubclass(t, _REAL):
            raise _not_a_number(label, t.__name__)
    try:
        return np.array([np.nan if type(v) in missing else v for v in column], dtype=np.float64)
    except OverflowError as error:
        raise ValueError(f"X must hold numbers that fit a float64 in {label}: {error}") from error


def _not_a_number(label: str, got: str) -> TypeError:
    is_time = any(word in got for word in ("Date", "Duration", "Time"))
    advice = "; convert it to numbers, such as days since a date" if is_time else HOW_TO_HAVE_CATEGORIES
    return TypeError(f"X must hold numbers in {label}, got {got}{advice}")


def as_factor(column: np.ndarray, label: str) -> Factor:
    """Return the categories of a column of numbers, strings or a mixture; NaN and None are missing."""
    _check_dtype(column.dtype)
    if column.dtype.kind in "biuf" and column.dtype.itemsize <= 8:
        values, index = np.unique(column, return_inverse=True)
        if values.size and values[-1] != values[-1]:  # NaN sorts last
            index = np.where(index == values.size - 1, -1, index)
            values = values[:-1]
        values = values + 0 if values.dtype.kind == "f" else values  # -0.0 becomes 0.0
        return Factor(values.tolist(), index.astype(np.int32))
    if column.dtype.kind not in "OUS":  # long double, bfloat16 and its kin
        return as_factor(as_numbers(column, label), label)
    return _factor_of_objects(column.tolist(), label)


def _factor_of_objects(cells: list[Any], label: str) -> Factor:
    order: dict[Any, int] = {}
    types = set(map(type, cells))
    try:
        if len({kind for kind in types if issubclass(kind, numbers.Number | np.generic)}) > 1:
            # 1, 1.0 and True are equal: apart here, so that which one stays does not depend on the order of rows.
            pairs = [order.setdefault((cell, type(cell)), len(order)) for cell in cells]
            index, distinct = np.array(pairs, dtype=np.int32), [cell for cell, _ in order]
        else:
            index = np.array([order.setdefault(cell, len(order)) for cell in cells], dtype=np.int32)
            distinct = list(order)
    except TypeError as error:
        raise TypeError(f"X must hold strings or numbers as categories in {label}: {error}") from error
    return present_factor([plain_category(value, label) for value in distinct], index)


def present_factor(values: list[Any], index: np.ndarray) -> Factor:
    """Drop the values that no row has, and make the rows whose value is None missing."""
    used = np.bincount(index + 1, minlength=len(values) + 1)[1:] > 0
    kept = used & np.array([value is not None for value in values], dtype=bool)
    renumbered = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last entry answers for index -1
    return Factor(
        [v for v, keep in zip(values, kept, strict=True) if keep], renumbered[index].astype(np.int32)
    )


def plain_category(value: Any, label: str) -> str | bool | int | float | None:
    """Return a category as a plain Python value, or None where it is a missing value."""
    if is_missing_type(type(value)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value + 0.0  # -0.0 becomes 0.0
    if isinstance(value, bool | int):
        return value
    raise TypeError(
        f"X must hold str, int, float or bool as categories in {label}, got {type(value).__name__}; "
        "convert the column to strings"
    )


# ---------------------------------------------------------------- sparse matrices


def _sparse_table(X: Any) -> Table:
    _check_dimensions(X.shape, "sparse matrix")
    _check_dtype(X.dtype)
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


# ---------------------------------------------------------------- data frames


def _frame_table(frame: nw.DataFrame[Any]) -> Table:
    columns, types = tuple(frame.columns), tuple(frame.schema.values())
    named = [isinstance(name, str) for name in columns]
    if any(named) and not all(named):
        raise TypeError("X must have column names that are all strings or all not, got a mixture")
    labels = [f"column {name!r}" for name in columns]

    def read_numbers(j: int) -> np.ndarray:
        return _series_numbers(frame[:, j], types[j], labels[j])

    def read_factor(j: int) -> Factor:
        return _series_factor(frame[:, j], types[j], labels[j])

    is_categorical = tuple(dtype in _CATEGORY_DTYPES for dtype in types)
    names = columns if columns and all(named) else None
    return Table((frame.shape[0], len(columns)), names, is_categorical, read_numbers, read_factor)


def _series_numbers(series: nw.Series[Any], dtype: Any, label: str) -> np.ndarray:
    if dtype in _CATEGORY_DTYPES:
        raise _not_a_number(label, f"dtype {dtype}")
    if (dtype.is_numeric() or dtype == nw.Boolean) and series.null_count():
        series = series.cast(nw.Float64)  # nulls become NaN
    elif dtype.is_temporal() or dtype.is_nested():
        raise _not_a_number(label, f"dtype {dtype}")
    return as_numbers(np.asarray(series.to_numpy()), label)


def _series_factor(series: nw.Series[Any], dtype: Any, label: str) -> Factor:
    accessor = getattr(nw.to_native(series), "cat", None) if series.implementation.is_pandas() else None
    if accessor is not None and dtype in (
        nw.Categorical,
        nw.Enum,
    ):  # pandas has none for dictionaries of pyarrow
        values = [plain_category(value, label) for value in accessor.categories.tolist()]
        return present_factor(values, np.asarray(accessor.codes, dtype=np.int32))
    if dtype.is_numeric() and not series.null_count():
        return as_factor(np.asarray(series.to_numpy()), label)
    return _factor_of_objects(series.to_list(), label)  # keeps 64-bit integers beside nulls exact
