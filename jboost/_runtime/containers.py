"""What arrays come in: masked arrays, objects with missing cells, and things that are no arrays at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_MISSING_TYPE_NAMES = ("NoneType", "NAType", "NaTType")  # of None, pandas.NA and pandas.NaT
_WAYS_OUT_OF_LAZINESS = ("collect", "compute")  # of polars and dask, and of those who follow them


def is_missing_type(kind: type) -> bool:
    """Say whether objects of a type stand for a missing value."""
    return kind.__name__ in _MISSING_TYPE_NAMES


def refuse_masked(
    value: Any, name: str, way_out: str = "drop these rows, or give them sample_weight 0 and any value"
) -> None:
    """Raise if entries of a masked array are masked, as its mask would be lost."""
    if not isinstance(value, np.ma.MaskedArray) or not np.ma.is_masked(value):
        return
    masked = int(np.ma.getmaskarray(value).sum())
    raise ValueError(f"{name} must not be masked, got {masked} masked of {value.size} values; {way_out}")


def refuse_no_array(value: Any, name: str, wanted: str) -> None:
    """Raise unless it is an array, a frame or a list; what they hold is not looked at."""
    is_array = hasattr(value, "shape") or hasattr(value, "__array__")
    if not is_array and (isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__")):
        raise no_array(value, name, wanted)


def no_array(value: Any, name: str, wanted: str) -> TypeError:
    """Say that a value is no array, and how to make one of it."""
    advice = ""
    if (way := next((way for way in _WAYS_OUT_OF_LAZINESS if hasattr(value, way)), None)) is not None:
        advice = f", which is lazy; give {name}.{way}()"
    elif isinstance(value, Mapping):
        advice = f"; give a data frame, such as pandas.DataFrame({name})"
    elif isinstance(value, str | bytes | os.PathLike):
        advice = f" {value!r}; read the data first, if it names a file"
    elif isinstance(value, Iterable):
        advice = f"; give list({name})"
    return TypeError(f"{name} must be {wanted}, got {type(value).__name__}{advice}")
