"""A linear model as plain data, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jboost._model.linear import LinearModel
from jboost._runtime.typing import as_array
from jboost.io.checks import FLOATS, check_link, check_missing, check_names, expect
from jboost.io.record import link_entry, link_of

BOOSTER = "linear"  # what a record says of its kind; that of an ensemble says nothing
_ARRAYS = ("base", "center", "coef_path", "constant_path")
_CHOICES = ("booster", "inverse_link", "scalar_output")


def linear_to_record(model: LinearModel) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the static fields of a model in the types of JSON, and its arrays."""
    record = {
        "booster": BOOSTER,
        **({} if model.missing is None else {"missing": model.missing}),
        **({} if model.names is None else {"names": list(model.names)}),
        "inverse_link": link_entry(model.inverse_link),
        "scalar_output": model.scalar_output,
    }
    return record, {name: np.asarray(getattr(model, name)) for name in _ARRAYS}


def check_linear_record(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise ValueError, saying what is wrong, unless the two fit together and describe a model."""
    check_names("the record", _CHOICES, record.keys() - {"missing", "names"})
    check_names("the arrays", _ARRAYS, arrays)
    expect(type(record["scalar_output"]) is bool, "scalar_output", "true or false", record["scalar_output"])
    check_link(record["inverse_link"])
    check_missing(record)
    base, path = arrays["base"].shape, arrays["coef_path"].shape
    expect(len(base) == 1 and base[0] >= 1, "base", "shape (k,)", base)
    expect(base[0] == 1 or not record["scalar_output"], "base", "shape (1,) for a scalar output", base)
    valid = len(path) == 3 and path[1] == base[0] and path[2] >= 1
    expect(valid, "coef_path", f"shape (t, {base[0]}, f)", path)
    names = record.get("names")
    if names is not None:
        listed = isinstance(names, list) and all(isinstance(one, str) for one in names)
        valid = listed and len(set(names)) == len(names) == path[2]
        expect(valid, "names", f"a list of {path[2]} strings that differ", names)
    for name, shape in {"center": path[2:], "constant_path": path[:2]}.items():
        expect(arrays[name].shape == shape, name, f"shape {shape}", arrays[name].shape)
    for name, array in arrays.items():
        expect(array.dtype in FLOATS, name, "float32 or float64", array.dtype.name)
        expect(
            array.dtype == arrays["base"].dtype, name, f"the {arrays['base'].dtype} of base", array.dtype.name
        )
        expect(np.isfinite(array).all(), name, "finite numbers", array[~np.isfinite(array)][:1].tolist())


def record_to_linear(
    record: dict[str, Any], arrays: dict[str, np.ndarray], inverse_link: Callable[..., Any] | None
) -> LinearModel:
    """Make a model of a checked record and arrays, with the recorded inverse link unless one is given."""
    return LinearModel(
        **{name: as_array(arrays[name]) for name in _ARRAYS},
        inverse_link=link_of(record["inverse_link"]) if inverse_link is None else inverse_link,
        scalar_output=record["scalar_output"],
        missing=record.get("missing"),
        names=tuple(record["names"]) if "names" in record else None,
    )
