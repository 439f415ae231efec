"""A table as columns, and how the cells of one column become numbers or categories.

A numeric column becomes a float32 or float64 vector with NaN for what is missing. A categorical column
becomes a `Factor`: its distinct values, and for each row the index of its value.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jboost._runtime.containers import is_missing_type

HOW_TO_HAVE_CATEGORIES = "; name it in `categorical` or give it a category dtype"
_REAL = (numbers.Real, np.bool_, Decimal)


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


def check_dtype(dtype: np.dtype) -> None:
    """Raise unless an array of that dtype can hold real numbers or categories."""
    if np.issubdtype(dtype, np.complexfloating):
        raise ValueError(f"X must hold real numbers, got dtype {dtype}: Complex data not supported")
    narrow = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)  # also bfloat16, int4
    if dtype.kind not in "biufOUS" and not narrow:
        raise TypeError(
            f"X must hold numbers, got dtype {dtype}; convert dates and records to numbers or categories"
        )


def as_numbers(column: np.ndarray, label: str) -> Float[np.ndarray, " n"]:
    """Return the numbers of a column: float32 if that holds all values of its dtype, float64 otherwise."""
    check_dtype(column.dtype)
    if column.dtype.kind in "US":
        raise not_a_number(label, "strings")
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
            raise not_a_number(label, t.__name__)
    try:
        return np.array([np.nan if type(v) in missing else v for v in column], dtype=np.float64)
    except OverflowError as error:
        raise ValueError(f"X must hold numbers that fit a float64 in {label}: {error}") from error


def not_a_number(label: str, got: str) -> TypeError:
    """Return the error for a numeric column that holds something else."""
    is_time = any(word in got for word in ("Date", "Duration", "Time"))
    advice = "; convert it to numbers, such as days since a date" if is_time else HOW_TO_HAVE_CATEGORIES
    return TypeError(f"X must hold numbers in {label}, got {got}{advice}")


def as_factor(column: np.ndarray, label: str) -> Factor:
    """Return the categories of a column of numbers, strings or a mixture; NaN and None are missing."""
    check_dtype(column.dtype)
    if column.dtype.kind in "biuf" and column.dtype.itemsize <= 8:
        values, index = np.unique(column, return_inverse=True)
        if values.size and values[-1] != values[-1]:  # NaN sorts last
            index = np.where(index == values.size - 1, -1, index)
            values = values[:-1]
        values = values + 0 if values.dtype.kind == "f" else values  # -0.0 becomes 0.0
        return Factor(values.tolist(), index.astype(np.int32))
    if column.dtype.kind not in "OUS":  # long double, bfloat16 and its kin
        return as_factor(as_numbers(column, label), label)
    return factor_of_objects(column.tolist(), label)


def factor_of_objects(cells: list[Any], label: str) -> Factor:
    """Return the categories of a column of Python values."""
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
