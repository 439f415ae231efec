"""Check plain data, trusting nothing, before a model is made of them: what passes makes one that predicts."""

from __future__ import annotations

import itertools
import reprlib
from typing import Any

import numpy as np

from jboost._bins.arguments import EXACT, MAX_MAX_BINS
from jboost._runtime.typing import WORD
from jboost._spec import MAX_DEPTH

_CHOICES = ("inverse_link", "multi_output", "scalar_output", "symmetric")
_FEATURES = ("categories", "max_bins", "n_codes", "names")
FLOATS = (np.float32, np.float64)
_DTYPES = {
    "base": FLOATS,
    "leaf_value": FLOATS,
    "leaf_hessian": FLOATS,
    "leaf_count": FLOATS,
    "tree_weight": FLOATS,
    "edges": (np.float64,),
    "feature": (np.int32,),
    "threshold": (np.int32,),
    "missing_right": (np.bool_,),
    "categories_right": (np.uint32,),
    "gain": FLOATS,
}
_SINCE_2 = ("leaf_hessian", "leaf_count", "tree_weight")  # arrays that files of version 1 do not have


def check_record(version: int, record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Raise ValueError, saying what is wrong, unless the two fit together and describe a model."""
    check_names("the record", _CHOICES + _FEATURES, record.keys() - {"missing", "source"})
    check_names("the arrays", set(_DTYPES) - set(_SINCE_2 if version == 1 else ()), arrays)
    _check_choices(record)
    _check_features(record)
    for name, array in arrays.items():
        allowed = " or ".join(np.dtype(dtype).name for dtype in _DTYPES[name])
        expect(array.dtype in _DTYPES[name], name, allowed, array.dtype.name)
    _check_shapes(record, arrays)
    _check_values(record, arrays)


def expect(holds: bool | np.bool_, name: str, expected: str, got: Any) -> None:
    """Raise ValueError with what was expected and what came, unless it holds."""
    if not holds:
        raise ValueError(f"{name}: expected {expected}, got {reprlib.repr(got)}")


def check_names(what: str, expected: Any, got: Any) -> None:
    """Raise ValueError unless the names are those expected."""
    missing, extra = sorted(set(expected) - set(got)), sorted(set(got) - set(expected))
    if missing or extra:
        raise ValueError(f"{what}: missing {missing}, unexpected {reprlib.repr(extra)}")


def _is_int(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def _check_choices(record: dict[str, Any]) -> None:
    for name in ("scalar_output", "symmetric"):
        expect(type(record[name]) is bool, name, "true or false", record[name])
    kind = record["multi_output"]
    expect(kind in ("vector", "separate"), "multi_output", "vector or separate", kind)
    check_link(record["inverse_link"])


def check_link(link: Any) -> None:
    """Raise ValueError unless this names an inverse link."""
    valid = isinstance(link, dict) and link.keys() == {"name", "built_in"}
    valid = valid and isinstance(link["name"], str) and type(link["built_in"]) is bool
    expect(valid, "inverse_link", "a name and whether it is built in", link)


def _check_features(record: dict[str, Any]) -> None:
    n_codes, max_bins = record["n_codes"], record["max_bins"]
    valid = _is_int(max_bins, 2, MAX_MAX_BINS) or (type(max_bins) is int and max_bins == EXACT)
    expect(valid, "max_bins", f"2 to {MAX_MAX_BINS}, or {EXACT}", max_bins)
    most = EXACT if max_bins == EXACT else 65536
    valid = _is_int(n_codes, 16, most) and (n_codes == 16 or n_codes % 32 == 0)
    expect(valid, "n_codes", f"16 or a multiple of 32 up to {most}", n_codes)
    check_missing(record)
    categories, names = record["categories"], record["names"]
    valid = isinstance(categories, list) and len(categories) > 0
    expect(valid, "categories", "a list with an entry for each feature", categories)
    for j, known in enumerate(categories):
        if known is not None:
            _check_categories(f"categories of feature {j}", known, n_codes)
    source = record.get("source", list(range(len(categories))))
    _check_source(source, len(categories))
    if names is not None:
        valid = isinstance(names, list) and all(isinstance(name, str) for name in names)
        valid = valid and len(names) == len(categories)
        valid = valid and len(set(names)) == len(set(zip(names, source, strict=True))) == len(set(source))
        expect(valid, "names", f"null or {len(categories)} strings, another for each column", names)


def _check_source(source: Any, n_features: int) -> None:
    """Columns are read in order, each by at least one feature."""
    valid = isinstance(source, list) and len(source) == n_features
    valid = valid and all(type(j) is int for j in source) and source[0] == 0
    valid = valid and all(0 <= b - a <= 1 for a, b in itertools.pairwise(source))
    expect(valid, "source", f"a column for each of the {n_features} features, in order", source)


def has_subsets(known: dict[str, Any] | None) -> bool:
    """Say whether a split divides the categories of a feature into subsets."""
    return known is not None and known.get("unknown") is None


def check_missing(record: dict[str, Any]) -> None:
    """Raise ValueError unless what stands for missing values is a finite number, if it is there."""
    missing = record.get("missing", 0.0)
    expect(type(missing) is float and np.isfinite(missing), "missing", "a finite number", missing)


def _check_categories(label: str, known: Any, n_codes: int) -> None:
    valid = isinstance(known, dict) and known.keys() - {"unknown"} == {"values", "codes"}
    valid = valid and isinstance(known["values"], list) and isinstance(known["codes"], list)
    expect(valid, label, "null or values and their codes", known)
    values, codes = known["values"], known["codes"]
    expect(len(values) == len(codes), label, f"a code for each of {len(values)} values", codes)
    valid = all(isinstance(value, str | bool | int | float) and value == value for value in values)
    expect(valid, label, "strings, numbers, true or false", values)
    # Devices find them by binary search: each once, in order, numbers before strings.
    keys = [(isinstance(value, str), value) for value in values]
    expect(all(a < b for a, b in itertools.pairwise(keys)), label, "increasing values", values)
    codes = [*codes, known["unknown"]] if "unknown" in known else codes
    valid = all(_is_int(code, 1, n_codes - 1) for code in codes)
    expect(valid, label, f"codes from 1 to {n_codes - 1}", codes)


def _check_shapes(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    base, leaf_value = arrays["base"].shape, arrays["leaf_value"].shape
    expect(len(base) == 1 and base[0] >= 1, "base", "shape (k,)", base)
    k = base[0]
    expect(k == 1 or not record["scalar_output"], "base", "shape (1,) for a scalar output", base)
    depth = leaf_value[1].bit_length() - 1 if len(leaf_value) == 3 else 0
    valid = 1 <= depth <= MAX_DEPTH and leaf_value[1:] == (2**depth, k)
    expect(valid, "leaf_value", f"shape (t, 2**depth, {k}) with a depth from 1 to {MAX_DEPTH}", leaf_value)
    categories, n_codes = record["categories"], record["n_codes"]
    n_words = -(-n_codes // WORD) if any(map(has_subsets, categories)) else 0
    separate = record["multi_output"] == "separate"
    lead = (leaf_value[0], k) if separate else (leaf_value[0],)
    splits = (*lead, depth if record["symmetric"] else 2**depth - 1)
    shapes = dict.fromkeys(("feature", "threshold", "missing_right", "gain"), splits)
    shapes |= {"categories_right": (*splits, n_words), "edges": (len(categories), n_codes - 2)}
    shapes |= {"leaf_hessian": leaf_value, "leaf_count": (*leaf_value[:2], k if separate else 1)}
    shapes["tree_weight"] = leaf_value[:1]
    for name, shape in shapes.items():
        if name in arrays:  # a file of version 1 has fewer
            expect(arrays[name].shape == shape, name, f"shape {shape}", arrays[name].shape)


def _check_values(record: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    for name in arrays.keys() & {"base", "leaf_value", "tree_weight"}:
        wrong = arrays[name][~np.isfinite(arrays[name])]
        expect(not wrong.size, name, "finite numbers", wrong[:1].tolist())
    for name in arrays.keys() & {"leaf_hessian", "leaf_count"}:
        expect(not np.isinf(arrays[name]).any(), name, "finite numbers, or NaN where unknown", np.inf)
    base, leaf_value = arrays["base"], arrays["leaf_value"]
    valid = np.can_cast(leaf_value.dtype, base.dtype)  # a score starts as the base and keeps its dtype
    expect(valid, "leaf_value", f"no wider numbers than the {base.dtype} of base", leaf_value.dtype.name)
    expect(not np.isnan(arrays["gain"]).any(), "gain", "numbers", np.nan)
    for name, high in (("feature", len(record["categories"]) - 1), ("threshold", record["n_codes"])):
        wrong = arrays[name][(arrays[name] < 0) | (arrays[name] > high)]
        expect(not wrong.size, name, f"numbers from 0 to {high}", wrong[:1].tolist())
    edges = arrays["edges"]
    unordered = edges[~(edges[:, :-1] <= edges[:, 1:]).all(axis=1)]
    expect(not unordered.size, "edges", "increasing rows without NaN", unordered[:1].tolist())
