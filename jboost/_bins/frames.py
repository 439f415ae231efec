"""Read data frames (pandas, polars, pyarrow and their like) column by column."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from jboost._bins.columns import (
    Factor,
    Table,
    as_factor,
    as_numbers,
    factor_of_objects,
    not_a_number,
    plain_category,
    present_factor,
)
from jboost._runtime.containers import no_array

_CATEGORY_DTYPES = (nw.Categorical, nw.Enum, nw.String)


def table_of_frame(X: Any, wanted: str) -> Table | None:
    """Return the columns of a data frame, None where X is something else."""
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"X must have column names that differ: {error}") from error
    if isinstance(frame, nw.LazyFrame):
        raise no_array(X, "X", wanted)
    return _frame_table(frame) if isinstance(frame, nw.DataFrame) else None


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
        raise not_a_number(label, f"dtype {dtype}")
    if (dtype.is_numeric() or dtype == nw.Boolean) and series.null_count():
        series = series.cast(nw.Float64)  # nulls become NaN
    elif dtype.is_temporal() or dtype.is_nested():
        raise not_a_number(label, f"dtype {dtype}")
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
    return factor_of_objects(series.to_list(), label)  # keeps 64-bit integers beside nulls exact
