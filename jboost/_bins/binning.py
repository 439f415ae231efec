"""The public functions of binning, and how the columns of X meet their edges."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt, UInt32

from jboost._bins import native
from jboost._bins.arguments import categorical_mask, check_max_bins, check_weight
from jboost._bins.categories import Categories, category_codes, category_tables, find_categories
from jboost._bins.columns import HOW_TO_HAVE_CATEGORIES, Columns, read_columns
from jboost._bins.device import count_below, float_words, host_words, is_nan, look_up, traced_words
from jboost._bins.edges import BinEdges, Features, edges_from_exact
from jboost._bins.quantiles import column_edges
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import MISSING_BIN, as_array, empty_for_device, is_traced, pytree, static_field

_T = TypeVar("_T")
_CELLS_WORTH_THREADS = 1 << 17  # fewer are done before a pool of threads has started


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

    Examples
    --------
    >>> import jboost
    >>> data = jboost.bin_features([[1.0], [float("nan")], [4.0]])
    >>> data.bins.tolist(), data.has_missing
    ([[1, 0, 2]], True)
    """

    bins: UInt[Array, "f n"]
    edges: BinEdges
    has_missing: bool = static_field()


@moves_arrays
def bin_features(
    X: Any,
    max_bins: int = 255,
    sample_weight: Any = None,
    categorical: Sequence[str] | Sequence[int] | Sequence[bool] | np.ndarray | None = None,
    edges: BinEdges | None = None,
) -> Binned:
    """Find the bin edges of X, or take given ones, and return the bin code of every value.

    A feature with at most `max_bins` distinct values gets a bin for each. Otherwise its edges are weighted
    quantiles: a value heavier than the mean bin gets a bin of its own, and the others share the rest. Every
    edge t between neighbouring values a < b satisfies a <= t < b in float64, so nearby values and large
    integers stay apart. The edges depend on the values and their weights, not on the order of the rows.

    Parameters
    ----------
    X : array_like [n, f]
        NumPy or JAX array of any real dtype and layout, nested list, scipy sparse matrix (read as the dense
        one), or pandas, polars or pyarrow data frame. NaN, None and pandas.NA are missing; infinities are the
        extreme values. Integers beyond 2^53 are compared as float64. With `edges`, float arrays may be
        traced.
    max_bins : int
        The most bins of values of one feature, 2 to 65534; the code of missing values comes on top. Codes
        take one byte each up to 255, two beyond.
    sample_weight : array_like [n], optional
        Weights for the quantiles. Rows of weight zero do not count at all.
    categorical : list of str, list of int or mask [f], optional
        Columns to treat as categories, by name, index or mask, beside the data frame columns whose dtype is a
        category, enum or string. Each category has a bin; above `max_bins` categories, the rarest share the
        last. Categories are str, int, float or bool; others (dates, bytes, tuples) are refused.
    edges : BinEdges, optional
        Take these edges, and leave the three arguments above out. Columns are matched by name if both sides
        have names, by position otherwise. A category that the edges do not know counts as missing.

    Returns
    -------
    Binned
        The codes, uint8 or uint16 [f, n], with their edges.

    Raises
    ------
    ValueError
        If X is not two-dimensional, is empty, is complex, or does not fit `edges`; if weights are negative,
        not finite, all zero or not one for each row; if `max_bins` is out of range or `categorical` names no
        column.
    TypeError
        If a numeric column holds anything but numbers, or a categorical one anything but categories; if
        values to find edges from are traced; if a traced X has integers wider than 16 bits (cast them to
        float) or meets categories that are strings.

    References
    ----------
    Ke et al. (2017), LightGBM: A Highly Efficient Gradient Boosting Decision Tree, section 2.1 (histograms).

    Examples
    --------
    >>> from jboost import bin_features
    >>> data = bin_features([[1.0], [2.0], [float("nan")], [2.0]])
    >>> data.bins.tolist()
    [[1, 2, 0, 2]]
    >>> bin_features([[1.5], [9.0]], edges=data.edges).bins.tolist()
    [[1, 2]]
    """
    if isinstance(X, Binned):
        raise TypeError("X: expected unbinned features, got a Binned")
    if edges is not None:
        if not isinstance(edges, BinEdges):
            raise TypeError(f"edges: expected BinEdges, got {type(edges).__name__}")
        if sample_weight is not None or categorical is not None or max_bins not in (255, edges.max_bins):
            raise ValueError(
                "edges: expected no max_bins, sample_weight or categorical beside them; edges fix these"
            )
        return apply_edges(edges, X)
    if is_traced(X):
        raise TypeError(
            "X: expected concrete values to find bin edges from, got a traced array; bin before jit"
        )
    check_max_bins(max_bins)
    columns = read_columns(X)
    if 0 in columns.shape:
        what = "sample" if columns.shape[0] == 0 else "feature"
        raise ValueError(
            f"X: Found array with 0 {what}(s) (shape={columns.shape}) while a minimum of 1 is required."
        )
    weight = check_weight(sample_weight, columns.shape[0])
    found = _find_edges(columns, weight, int(max_bins), categorical_mask(categorical, columns))
    return apply_edges(found, columns)


def apply_edges(edges: BinEdges, X: Any) -> Binned:
    """Bin X by given edges: on the host if both are concrete, on the device if either is traced."""
    bins = read_bins(edges, X)
    if isinstance(bins, np.ndarray):
        return Binned(as_array(bins), edges, bool(bins.size > 0 and bins.min() == MISSING_BIN))
    return Binned(bins, edges, True)


def read_bins(edges: BinEdges, X: Any) -> UInt[np.ndarray | Array, "f n"]:
    """Return the bin codes of X, which may be binned already, by the same edges.

    They come as a NumPy array when they were made on the host, as a JAX array otherwise.
    """
    if isinstance(X, Binned):
        check_same_edges(edges, X.edges)
        return X.bins
    if is_traced(X):
        return _device_codes(edges, traced_words(X), {})
    columns = X if isinstance(X, Columns) else read_columns(X)
    order = _match_columns(edges.features, columns)
    try:
        if is_traced(edges):
            return _device_codes(edges, *_concrete_words(edges.features, columns, order))
        return _host_codes(edges, columns, order)
    except TypeError as error:  # a choice between numbers and categories was made with the edges
        raise TypeError(
            str(error).replace(HOW_TO_HAVE_CATEGORIES, ", as it had when the edges were found")
        ) from error


# ---------------------------------------------------------------- finding edges


def _find_edges(
    columns: Columns,
    weight: Float[np.ndarray, " n"] | None,
    max_bins: int,
    categorical: Bool[np.ndarray, " f"],
) -> BinEdges:
    def find(j: int) -> tuple[np.ndarray, Categories | None]:
        if categorical[j]:
            return np.zeros(0), find_categories(columns.factor(j), weight, max_bins)
        return column_edges(columns.numbers(j), weight, max_bins), None

    rows, known = zip(*_map_columns(find, range(columns.shape[1]), columns.shape[0]), strict=True)
    most_bins = max(
        max(c.codes, default=0) if c else row.size + 1 for row, c in zip(rows, known, strict=True)
    )
    n_codes = 16 if most_bins < 16 else -(-(most_bins + 1) // 32) * 32
    exact = np.full(
        (len(rows), n_codes - 2), np.inf
    )  # the shape follows from n_codes alone: few compilations
    for j, row in enumerate(rows):
        exact[j, : row.size] = row
    return edges_from_exact(exact, n_codes, max_bins, Features(columns.names, known))


def _map_columns(function: Callable[[int], _T], columns: Sequence[int], n_rows: int) -> list[_T]:
    """Call the function for each column, on all cores: NumPy sorts and searches without holding the GIL."""
    if n_rows * len(columns) < _CELLS_WORTH_THREADS:
        return [function(j) for j in columns]
    with ThreadPoolExecutor(min(len(columns), _n_cores())) as pool:
        return list(pool.map(function, columns))


def _n_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ---------------------------------------------------------------- applying edges


def _host_codes(edges: BinEdges, columns: Columns, order: Sequence[int]) -> UInt[np.ndarray, "f n"]:
    exact, upper = edges.exact, np.asarray(edges.upper)
    bins = empty_for_device((edges.n_features, columns.shape[0]), edges.code_dtype)
    remaining: Sequence[int] = range(edges.n_features)
    if columns.matrix is not None and native.can_bin(columns.matrix):
        # An array has no names, so its columns are in order. Those with categories are written over below.
        table = upper if columns.matrix.dtype == np.float32 else exact
        native.fill_codes(columns.matrix, table, bins, native.ALL_THREADS)
        remaining = edges.features.categorical

    def fill(j: int) -> None:
        known = edges.features.categories[j]
        if known is None:
            native.fill_column(columns.numbers(order[j]), exact[j], upper[j], bins[j])
        else:
            bins[j] = category_codes(known, columns.factor(order[j]), columns.label(order[j]))

    _map_columns(fill, remaining, columns.shape[0])
    return bins


def _device_codes(
    edges: BinEdges, words: UInt32[Array | np.ndarray, "f n w"], rows: dict[int, np.ndarray]
) -> UInt[Array, "f n"]:
    """Bin values given as words, on the device; `rows` has the features that were binned on the host."""
    _check_width(edges.n_features, words.shape[0])
    table = float_words(edges.upper) if words.shape[-1] == 1 else edges.upper_bits
    codes = jnp.where(is_nan(words), MISSING_BIN, count_below(table, words) + 1)
    for j, row in rows.items():
        codes = codes.at[j].set(row)
    categorical = {j: known for j, known in enumerate(edges.features.categories) if known and j not in rows}
    if categorical:
        entries, entry_codes = category_tables(list(categorical.values()), words.shape[-1])
        chosen = np.array(list(categorical))
        codes = codes.at[chosen].set(look_up(entries, entry_codes, words[chosen]))
    return codes.astype(edges.code_dtype)


def _concrete_words(
    features: Features, columns: Columns, order: Sequence[int]
) -> tuple[UInt32[np.ndarray, "f n 2"], dict[int, np.ndarray]]:
    """Return numeric columns as float64 words, for traced edges, and the codes of categorical columns."""
    values = np.full((len(order), columns.shape[0]), np.nan)
    rows: dict[int, np.ndarray] = {}
    for j, known in enumerate(features.categories):
        if known is None:
            values[j] = columns.numbers(order[j])
        else:
            rows[j] = category_codes(known, columns.factor(order[j]), columns.label(order[j]))
    return host_words(values), rows


# ---------------------------------------------------------------- fitting X to edges


def _match_columns(features: Features, columns: Columns) -> Sequence[int]:
    """Find the column of X for each feature: by name if both sides have names, by position otherwise."""
    width, names = columns.shape[1], columns.names
    if features.names is not None and names is not None:
        missing = [name for name in features.names if name not in set(names)]
        extra = [name for name in names if name not in set(features.names)]
        if missing or extra:
            raise ValueError(
                "X: expected the column names that the edges were found with; "
                f"missing {missing[:5]} ({len(missing)}), unexpected {extra[:5]} ({len(extra)})"
            )
        place = {name: j for j, name in enumerate(names)}
        return [place[name] for name in features.names]
    _check_width(len(features.categories), width)
    return range(width)


def _check_width(n_features: int, width: int) -> None:
    if width != n_features:  # in the words that scikit-learn's estimator checks look for
        raise ValueError(f"X has {width} features, but BinEdges is expecting {n_features} features as input.")


def check_same_edges(edges: BinEdges, other: BinEdges) -> None:
    if edges is other:
        return
    same = (edges.features, edges.n_codes, edges.upper.shape) == (
        other.features,
        other.n_codes,
        other.upper.shape,
    )
    if same and not is_traced(edges, other):
        same = np.array_equal(np.asarray(edges.upper_bits), np.asarray(other.upper_bits))
    if not same:
        raise ValueError("X: expected rows binned by the edges of the model, got a Binned with other edges")
