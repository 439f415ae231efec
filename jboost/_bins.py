"""Bin features: edges found once in float64 on the host, then a small code per value on the host or the device.

A value v of a numeric feature has the code 1 + (number of edges < v), so a value equal to an edge goes left of it;
code 0 stands for a missing value or a category that was not there when the edges were found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt, UInt32

from jboost._columns import Columns, Factor, read_columns
from jboost import _device_bins as device
from jboost._column_edges import column_edges
from jboost._typing import MISSING_BIN, is_traced, pytree, static_field

MAX_MAX_BINS = 65534  # with the missing code, all codes fit a uint16
Category = str | bool | int | float
_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Categories:
    """The known values of a categorical feature, in order, and the bin code of each.

    Codes follow the order of the values (numbers before strings), so they depend neither on the order of the rows
    nor on pandas' own codes. The hash is kept, because JAX takes it at every call of a compiled function.
    """

    values: tuple[Category, ...]
    codes: tuple[int, ...]

    @cached_property
    def code_of(self) -> dict[Category, int]:
        """Look a value up; 1, 1.0 and True are the same category."""
        return dict(zip(self.values, self.codes, strict=True))

    @cached_property
    def kinds(self) -> frozenset[bool]:
        """The kinds of values known: True for strings, False for numbers."""
        return frozenset(isinstance(value, str) for value in self.values)

    @cached_property
    def _hash(self) -> int:
        return hash((self.values, self.codes))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Categories) or self._hash != other._hash:
            return False
        same_types = list(map(type, self.values)) == list(map(type, other.values))
        return same_types and self.values == other.values and self.codes == other.codes

    def __reduce__(self) -> tuple[Any, ...]:  # leaves the cached hash behind: that of a string changes by process
        return Categories, (self.values, self.codes)


@dataclass(frozen=True)
class Features:
    """What is known of the columns besides their edges: their names, and the categories of the categorical ones."""

    names: tuple[str, ...] | None
    categories: tuple[Categories | None, ...]

    @property
    def categorical(self) -> tuple[int, ...]:
        """The indices of the categorical features."""
        return tuple(j for j, known in enumerate(self.categories) if known is not None)


@pytree
class BinEdges:
    """The bin edges of f features, e to each at most.

    Attributes
    ----------
    upper : float32 [f, e]
        The edges, increasing along a row, each rounded down to a float32 and padded with +inf. For a float32 value v,
        `v <= upper` and `v <= exact` are the same.
    upper_bits : uint32 [f, e, 2]
        The exact float64 edges as pairs of words, low word first (JAX has no float64 unless it is switched on).
    n_codes : int
        The width of a histogram that holds every code: a multiple of 32, or 16.
    max_bins : int
        The limit that was asked for.
    features : Features
        Names and categories.
    """

    upper: Float32[Array, "f e"]
    upper_bits: UInt32[Array, "f e 2"]
    n_codes: int = static_field()
    max_bins: int = static_field()
    features: Features = static_field()

    @property
    def exact(self) -> Float[np.ndarray, "f e"]:
        """The edges in float64, on the host, padded with +inf."""
        bits = np.ascontiguousarray(np.asarray(self.upper_bits), dtype="<u4")
        return bits.view("<f8")[..., 0].astype(np.float64, copy=False)

    @property
    def n_features(self) -> int:
        """The number of features f."""
        return len(self.features.categories)

    @property
    def code_dtype(self) -> np.dtype:
        """The dtype of a bin code: uint8 up to 255 value bins, uint16 beyond."""
        return np.dtype(np.uint8 if self.n_codes <= 256 else np.uint16)


@pytree
class Binned:
    """Binned rows: what `fit` trains on.

    Attributes
    ----------
    bins : uint8 or uint16 [f, n]
        The bin codes, feature by feature; 0 is missing or unseen.
    edges : BinEdges
        The edges that the codes refer to.
    has_missing : bool
        Whether code 0 occurs (True where that is not known because the rows were traced).
    """

    bins: UInt[Array, "f n"]
    edges: BinEdges
    has_missing: bool = static_field()


def edges_from_exact(exact: Float[np.ndarray, "f e"], n_codes: int, max_bins: int, features: Features) -> BinEdges:
    """Make `BinEdges` from float64 edges padded with +inf (what `BinEdges.exact` returns)."""
    exact = np.ascontiguousarray(exact, dtype="<f8")
    with np.errstate(over="ignore"):
        upper = exact.astype(np.float32)
    upper = np.where(upper > exact, np.nextafter(upper, np.float32(-np.inf)), upper)  # rounded down
    bits = exact.view("<u4").reshape(*exact.shape, 2)
    with jax.ensure_compile_time_eval():  # concrete also when a caller's jit is being traced
        return BinEdges(jnp.asarray(upper), jnp.asarray(bits), n_codes, max_bins, features)


def bin_features(
    X: Any,
    max_bins: int = 255,
    sample_weight: Any = None,
    categorical: Sequence[str] | Sequence[int] | Sequence[bool] | None = None,
    edges: BinEdges | None = None,
) -> Binned:
    """Find the bin edges of X, or take given ones, and return the bin code of every value."""
    if edges is not None:
        if sample_weight is not None or categorical is not None or max_bins not in (255, edges.max_bins):
            raise ValueError("edges: given edges already fix max_bins, sample_weight and categorical; leave those out")
        return apply_edges(edges, X)
    if is_traced(X):
        raise TypeError("X: expected concrete values to find bin edges from, got a traced array; bin before jit")
    _check_max_bins(max_bins)
    columns = read_columns(X)
    if 0 in columns.shape:
        what = "sample" if columns.shape[0] == 0 else "feature"
        raise ValueError(f"X: Found array with 0 {what}(s) (shape={columns.shape}) while a minimum of 1 is required.")
    weight = _check_weight(sample_weight, columns.shape[0])
    is_categorical = _categorical_mask(categorical, columns)
    found = _find_edges(columns, weight, max_bins, is_categorical)
    return _bin_columns(found, columns)


def apply_edges(edges: BinEdges, X: Any) -> Binned:
    """Bin X by given edges: exactly on the host if X is concrete, on the device if X is traced."""
    if is_traced(X, edges):
        return Binned(_device_codes(edges, X), edges, True)
    return _bin_columns(edges, read_columns(X))


def read_bins(edges: BinEdges, X: Any) -> UInt[np.ndarray | Array, "f n"]:
    """Return the bin codes of X, which may be binned already, by the same edges."""
    if isinstance(X, Binned):
        _check_same_edges(edges, X.edges)
        return X.bins
    if is_traced(X, edges):
        return _device_codes(edges, X)
    return _host_codes(edges, read_columns(X))


# ---------------------------------------------------------------- finding edges


def _find_edges(columns: Columns, weight: np.ndarray | None, max_bins: int, categorical: np.ndarray) -> BinEdges:
    def find(j: int) -> tuple[np.ndarray, Categories | None]:
        if categorical[j]:
            return np.zeros(0), _find_categories(columns.factor(j), weight, max_bins)
        return column_edges(columns.numbers(j), weight, max_bins), None

    rows, known = zip(*_map_columns(find, columns.shape[1]), strict=True)
    most_bins = max(max(c.codes, default=0) if c else row.size + 1 for row, c in zip(rows, known, strict=True))
    n_codes = 16 if most_bins < 16 else -(-(most_bins + 1) // 32) * 32
    exact = np.full((len(rows), n_codes - 2), np.inf)  # the shape follows from n_codes alone: few compilations
    for j, row in enumerate(rows):
        exact[j, : row.size] = row
    return edges_from_exact(exact, n_codes, max_bins, Features(columns.names, known))


def _find_categories(factor: Factor, weight: np.ndarray | None, max_bins: int) -> Categories:
    seen = factor.index >= 0
    mass = np.bincount(factor.index[seen], None if weight is None else weight[seen], len(factor.values))
    present = [(value, m) for value, m in zip(factor.values, mass.tolist(), strict=True) if m > 0]
    present.sort(key=lambda pair: (isinstance(pair[0], str), pair[0]))
    codes = np.arange(1, len(present) + 1)
    if len(present) > max_bins:
        rarest = np.argsort([-m for _, m in present], kind="stable")[max_bins - 1 :]
        alone = np.ones(len(present), dtype=bool)
        alone[rarest] = False
        codes = np.where(alone, np.cumsum(alone), max_bins)
    return Categories(tuple(value for value, _ in present), tuple(codes.tolist()))


def _map_columns(function: Callable[[int], _T], n: int) -> list[_T]:
    """Call function(0), ..., function(n - 1) on all cores; NumPy sorts and searches without the interpreter lock."""
    with ThreadPoolExecutor(max(1, min(n, len(os.sched_getaffinity(0))))) as pool:
        return list(pool.map(function, range(n)))


# ---------------------------------------------------------------- applying edges on the host


def _bin_columns(edges: BinEdges, columns: Columns) -> Binned:
    bins = _host_codes(edges, columns)
    return Binned(jnp.asarray(bins), edges, bool((bins == MISSING_BIN).any()))


def _host_codes(edges: BinEdges, columns: Columns) -> UInt[np.ndarray, "f n"]:
    order = _match_columns(edges.features, columns)
    exact, upper = edges.exact, np.asarray(edges.upper)
    bins = np.empty((edges.n_features, columns.shape[0]), edges.code_dtype)

    def fill(j: int) -> None:
        known = edges.features.categories[j]
        if known is not None:
            bins[j] = _category_codes(known, columns.factor(order[j]), columns.label(order[j]))
            return
        values = columns.numbers(order[j])
        codes = np.searchsorted(upper[j] if values.dtype == np.float32 else exact[j], values) + 1
        codes[np.isnan(values)] = MISSING_BIN
        bins[j] = codes

    _map_columns(fill, edges.n_features)
    return bins


def _category_codes(known: Categories, factor: Factor, label: str) -> Int[np.ndarray, " n"]:
    if known.kinds:
        for value in factor.values:
            if isinstance(value, str) not in known.kinds:
                wanted = "strings" if True in known.kinds else "numbers"
                raise TypeError(f"X: expected {wanted} as categories in {label}, as when binned first, got {value!r}")
    codes = [known.code_of.get(value, MISSING_BIN) for value in factor.values]
    return np.array([*codes, MISSING_BIN])[factor.index]


def _match_columns(features: Features, columns: Columns) -> Sequence[int]:
    """Return for each feature the column of X that holds it: by name if both have names, by position otherwise."""
    _check_width(len(features.categories), columns.shape[1])
    if features.names is None or columns.names is None:
        return range(columns.shape[1])
    place = {name: j for j, name in enumerate(columns.names)}
    missing = [name for name in features.names if name not in place]
    if missing:
        raise ValueError(f"X: expected the column names {features.names}, got {columns.names}; missing {missing}")
    return [place[name] for name in features.names]


# ---------------------------------------------------------------- applying edges on the device


def _device_codes(edges: BinEdges, X: Any) -> UInt[Array, "f n"]:
    """Bin X when it or the edges are traced."""
    categorical = edges.features.categorical
    host_rows: dict[int, np.ndarray] = {}
    if is_traced(X):
        words = device.traced_words(X)
        _check_width(edges.n_features, words.shape[0])
    else:
        words, host_rows = _concrete_words(edges, read_columns(X))
    table = device.float_words(edges.upper) if words.shape[-1] == 1 else edges.upper_bits
    codes = jnp.where(device.is_nan(words), MISSING_BIN, device.count_below(table, words) + 1)
    for j, row in host_rows.items():
        codes = codes.at[j].set(row)
    if categorical and not host_rows:
        entries, entry_codes = _category_tables(edges.features, words.shape[-1])
        rows = jnp.asarray(categorical)
        codes = codes.at[rows].set(device.look_up(entries, entry_codes, words[rows]))
    return codes.astype(edges.code_dtype)


def _concrete_words(edges: BinEdges, columns: Columns) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    order = _match_columns(edges.features, columns)
    values = np.full((edges.n_features, columns.shape[0]), np.nan)
    rows: dict[int, np.ndarray] = {}
    for j, known in enumerate(edges.features.categories):
        if known is None:
            values[j] = columns.numbers(order[j])
        else:
            rows[j] = _category_codes(known, columns.factor(order[j]), columns.label(order[j]))
    return device.host_words(values), rows


def _category_tables(features: Features, n_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the words [fc, m, w] of the numeric categories that a float of n_words holds exactly, and their codes."""
    dtype = np.float32 if n_words == 1 else np.float64
    tables: list[dict[float, int]] = []
    for j in features.categorical:
        known = features.categories[j]
        assert known is not None
        if True in known.kinds:
            raise TypeError(f"X: feature {j} has strings as categories, which a traced array cannot hold")
        with np.errstate(over="ignore"):
            tables.append({dtype(v): c for v, c in known.code_of.items() if dtype(v) == v})
    longest = max(1, *map(len, tables))
    values = np.full((len(tables), longest), np.inf, dtype)
    codes = np.zeros((len(tables), longest), np.int32)
    for row, table in enumerate(tables):
        values[row, : len(table)] = list(table)
        codes[row, : len(table)] = list(table.values())
    return device.host_words(values), codes


# ---------------------------------------------------------------- checks


def _check_max_bins(max_bins: Any) -> None:
    if isinstance(max_bins, bool) or not isinstance(max_bins, int | np.integer):
        raise TypeError(f"max_bins: expected an int, got {max_bins!r}")
    if not 2 <= max_bins <= MAX_MAX_BINS:
        raise ValueError(f"max_bins: expected 2 to {MAX_MAX_BINS}, got {max_bins}")


def _check_weight(sample_weight: Any, n: int) -> Float[np.ndarray, " n"] | None:
    """Return the weights in float64, or None if they are all the same, which changes no edge."""
    if sample_weight is None:
        return None
    if is_traced(sample_weight):
        raise TypeError("sample_weight: expected concrete weights to find bin edges with, got a traced array")
    weight = np.asarray(sample_weight)
    if weight.shape != (n,):
        raise ValueError(f"sample_weight: expected shape ({n},), one weight for each row, got {weight.shape}")
    if weight.dtype.kind not in "biuf":
        raise TypeError(f"sample_weight: expected real numbers, got dtype {weight.dtype}")
    weight = weight.astype(np.float64)
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError("sample_weight: expected finite weights of at least 0, got a negative, infinite or NaN one")
    if not weight.any():
        raise ValueError("sample_weight: expected a positive weight, got only zeros")
    return None if (weight == weight[0]).all() else weight


def _check_width(n_features: int, width: int) -> None:
    if width != n_features:
        raise ValueError(f"X has {width} features, but BinEdges is expecting {n_features} features as input.")


def _check_same_edges(edges: BinEdges, other: BinEdges) -> None:
    if edges is other:
        return
    same = (edges.features, edges.n_codes, edges.upper.shape) == (other.features, other.n_codes, other.upper.shape)
    if same and not is_traced(edges, other):
        same = np.array_equal(np.asarray(edges.upper_bits), np.asarray(other.upper_bits))
    if not same:
        raise ValueError("X: expected rows binned by the edges of the model, got a Binned with other edges")


def _categorical_mask(categorical: Any, columns: Columns) -> np.ndarray:
    """Say for each column whether it is categorical: by its container, or by name, index or mask."""
    mask = np.array(columns.categorical, dtype=bool)
    if categorical is None:
        return mask
    if isinstance(categorical, str) or np.ndim(categorical) != 1:
        raise TypeError(f"categorical: expected a list of names or indices, or a mask, got {categorical!r}")
    chosen = list(categorical)
    kinds = {_kind_of_choice(item) for item in chosen}
    if not chosen:
        return mask
    if len(kinds) > 1 or None in kinds:
        raise TypeError(f"categorical: expected only names, only indices or only booleans, got {categorical!r}")
    f = columns.shape[1]
    if kinds == {"mask"}:
        if len(chosen) != f:
            raise ValueError(f"categorical: expected a mask of {f} booleans, one for each feature, got {len(chosen)}")
        return mask | np.array(chosen, dtype=bool)
    if kinds == {"name"}:
        if columns.names is None:
            raise ValueError(f"categorical: expected indices, as X has no column names, got {categorical!r}")
        unknown = [name for name in chosen if name not in columns.names]
        if unknown:
            raise ValueError(f"categorical: expected names among {columns.names}, got {unknown}")
        chosen = [columns.names.index(name) for name in chosen]
    if min(chosen) < 0 or max(chosen) >= f:
        raise ValueError(f"categorical: expected indices from 0 to {f - 1}, got {categorical!r}")
    mask[chosen] = True
    return mask


def _kind_of_choice(item: Any) -> str | None:
    if isinstance(item, bool | np.bool_):
        return "mask"
    if isinstance(item, int | np.integer):
        return "index"
    return "name" if isinstance(item, str) else None
