"""The public functions of binning, and how the columns of X meet their edges."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt, UInt32

from jboost._bins import native
from jboost._bins.arguments import categorical_mask, check_max_bins, check_missing, rows_for_edges
from jboost._bins.bundling import Bundles, find_bundles
from jboost._bins.categories import category_codes, category_tables
from jboost._bins.columns import HOW_TO_HAVE_CATEGORIES, Factor, Table
from jboost._bins.device import are_equal, count_below, host_words, is_nan, look_up, traced_words
from jboost._bins.edges import BinEdges, Features
from jboost._bins.finding import find_edges, map_columns
from jboost._bins.order import match_names
from jboost._bins.table import check_not_empty, in_precision, read_table
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import MISSING_BIN, as_array, empty_for_device, is_traced, pytree, static_field


@pytree
class Binned:
    """Binned rows: what `fit` trains on.

    Attributes
    ----------
    bins : uint8, uint16 or uint32 [f, n]
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

    def __repr__(self) -> str:
        """Say of what shape the codes are, not which."""
        shape, dtype = (getattr(self.bins, name, None) for name in ("shape", "dtype"))  # JAX puts in anything
        return f"Binned(shape={shape}, dtype={dtype}, edges={self.edges!r})"

    @functools.cached_property
    def bundles(self) -> Bundles | None:
        """The features in fewer columns, of which a fit of many rows makes its histograms, or None if there are not.

        Found when they are first asked for, which is by the first fit, and kept. There are none where they would save
        less than a third of the columns, where codes take more than a byte, and of traced rows.
        """
        if is_traced(self.bins) or self.bins.dtype != np.uint8 or not self.bins.size:
            return None
        return find_bundles(np.asarray(self.bins), self.edges.n_codes)


@moves_arrays
def bin_features(
    X: Any,
    max_bins: int | Literal["exact"] = 255,
    sample_weight: Any = None,
    categorical: Sequence[str] | Sequence[int] | Sequence[bool] | np.ndarray | None = None,
    edges: BinEdges | None = None,
    missing: float | None = None,
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
    max_bins : int or "exact"
        The most bins of values of one feature, 2 to 65534; the code of missing values comes on top. Codes
        take one byte each up to 255, two beyond. "exact" gives each distinct value a bin, so that every threshold is a
        candidate (exact greedy split finding); codes then take up to four bytes, and edges twelve for each distinct
        value and feature, of the feature with the most of them.
    sample_weight : array_like [n], optional
        Weights for the quantiles. Rows of weight zero do not count at all.
    categorical : list of str, list of int or mask [f], optional
        Columns to treat as categories, by name, index or mask, beside the data frame columns whose dtype is a
        category, enum or string. Each category has a bin; above `max_bins` categories, the rarest share the
        last. Categories are str, int, float or bool; others (dates, bytes, tuples) are refused.
    edges : BinEdges, optional
        Take these edges, and leave the other arguments out. Columns are matched by name if both sides
        have names, by position otherwise. A category that the edges do not know counts as missing.

    missing : float, optional
        A number that stands for a missing value, such as -999, beside NaN. The edges remember it. It is compared as
        a number of the column's own precision.

    Returns
    -------
    Binned
        The codes, uint8, uint16 or uint32 [f, n], with their edges.

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
    Chen and Guestrin (2016), XGBoost: A Scalable Tree Boosting System, algorithm 1 (every value a candidate).

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
        raise TypeError("X must be features that are not binned yet, got a Binned")
    if edges is not None:
        if not isinstance(edges, BinEdges):
            raise TypeError(f"edges must be BinEdges, got {type(edges).__name__}")
        alone = sample_weight is None and categorical is None and missing is None
        if not alone or not (max_bins == 255 or check_max_bins(max_bins) == edges.max_bins):
            raise ValueError(
                "edges must come without max_bins, sample_weight, categorical and missing, which they fix, got some"
            )
        return apply_edges(edges, X)
    if isinstance(X, jax.core.Tracer):
        raise TypeError("X must be concrete to find bin edges from, got a traced array; bin before jit")
    limit = check_max_bins(max_bins)
    missing = check_missing(missing)
    table = read_table(X, missing)
    check_not_empty(table.shape)
    rows, weight = rows_for_edges(sample_weight, table.shape[0])
    found = find_edges(table, rows, weight, limit, categorical_mask(categorical, table), missing)
    return apply_edges(found, table)


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
    if isinstance(X, jax.core.Tracer):
        return _device_codes(edges, traced_words(X), {})
    table = X if isinstance(X, Table) else read_table(X, edges.features.missing)
    order = _match_columns(edges.features, table)
    try:
        if is_traced(edges):
            return _device_codes(edges, *_concrete_words(edges.features, table, order))
        return _host_codes(edges, table, order)
    except TypeError as error:  # a choice between numbers and categories was made with the edges
        raise TypeError(
            str(error).replace(HOW_TO_HAVE_CATEGORIES, ", as it had when the edges were found")
        ) from error


# ---------------------------------------------------------------- applying edges


def _host_codes(edges: BinEdges, table: Table, order: Sequence[int]) -> UInt[np.ndarray, "f n"]:
    exact, upper = edges.exact, edges.upper
    bins = empty_for_device((edges.n_features, table.shape[0]), edges.code_dtype)
    remaining: Sequence[int] = range(edges.n_features)
    if (
        table.matrix is not None
        and edges.features.source is None
        and bins.itemsize <= native.WIDEST
        and native.can_bin(table.matrix)
    ):
        # An array has no names, so its columns are in order. Those with categories are written over below.
        sorted_edges = upper if table.matrix.dtype == np.float32 else exact
        native.fill_codes(table.matrix, sorted_edges, bins, native.ALL_THREADS)
        remaining = edges.features.coded

    def fill(j: int) -> None:
        known = edges.features.categories[j]
        if known is None:
            native.fill_column(table.numbers(order[j]), exact[j], upper[j], bins[j])
        else:
            bins[j] = category_codes(known, table.factor(order[j]), table.label(order[j]))

    map_columns(fill, remaining, table.shape[0])
    return bins


def _device_codes(
    edges: BinEdges, words: UInt32[Array | np.ndarray, "f n w"], rows: dict[int, np.ndarray]
) -> UInt[Array, "f n"]:
    """Bin values given as words, on the device; `rows` has the features that were binned on the host."""
    if not rows:  # otherwise they come in the order of the features
        _check_width(edges.features.n_columns, words.shape[0])
        words = words if edges.features.source is None else words[np.array(edges.features.source)]
    table = edges.rounded_bits[..., None] if words.shape[-1] == 1 else edges.upper_bits
    is_missing = is_nan(words)
    if edges.features.missing is not None:
        dtype = np.dtype(np.float32 if words.shape[-1] == 1 else np.float64)
        is_missing |= are_equal(words, host_words(in_precision(edges.features.missing, dtype)))
    codes = jnp.where(is_missing, MISSING_BIN, count_below(table, words) + 1)
    for j, row in rows.items():
        codes = codes.at[j].set(row)
    categorical = {j: known for j, known in enumerate(edges.features.categories) if known and j not in rows}
    if categorical:
        entries, entry_codes = category_tables(list(categorical.values()), words.shape[-1])
        chosen = np.array(list(categorical))
        unknown = np.array([known.code_of_unknown for known in categorical.values()], np.int32)
        found = look_up(entries, entry_codes, words[chosen])
        found = jnp.where((found == MISSING_BIN) & ~is_missing[chosen], unknown[:, None], found)
        codes = codes.at[chosen].set(found)
    return codes.astype(edges.code_dtype)


def _concrete_words(
    features: Features, table: Table, order: Sequence[int]
) -> tuple[UInt32[np.ndarray, "f n 2"], dict[int, np.ndarray]]:
    """Return numeric columns as float64 words, for traced edges, and the codes of categorical columns."""
    values, rows = _concrete_values(features, table, order)
    return host_words(values), rows


def _concrete_values(
    features: Features, table: Table, order: Sequence[int]
) -> tuple[Float[np.ndarray, "f n"], dict[int, np.ndarray]]:
    """Return the values of numeric columns, NaN where they are missing, and the codes of categorical columns."""
    values = np.full((len(order), table.shape[0]), np.nan)
    rows: dict[int, np.ndarray] = {}
    for j, known in enumerate(features.categories):
        if known is None:
            values[j] = table.numbers(order[j])
        else:
            rows[j] = category_codes(known, table.factor(order[j]), table.label(order[j]))
    return values, rows


def read_values(edges: BinEdges, X: Any) -> tuple[Float[np.ndarray, "f n"], Int[np.ndarray, "c n"]]:
    """Return the values of concrete X and the codes of its categorical columns, as `read_bins` matches them to edges.

    Values are NaN where they are missing, and in the categorical columns.
    """
    table = read_table(X, edges.features.missing)
    values, rows = _concrete_values(edges.features, table, _match_columns(edges.features, table))
    codes = np.zeros((len(rows), table.shape[0]), np.int32)
    for place, row in enumerate(rows.values()):
        codes[place] = row
    return values, codes


def read_column(edges: BinEdges, X: Any, feature: int) -> Float[np.ndarray, " n"] | Factor:
    """Return the values of one feature of concrete X: numbers, NaN where they are missing, or categories."""
    table = read_table(X, edges.features.missing)
    j = _match_columns(edges.features, table)[feature]
    return table.numbers(j) if edges.features.categories[feature] is None else table.factor(j)


# ---------------------------------------------------------------- fitting X to edges


def _match_columns(features: Features, table: Table) -> Sequence[int]:
    """Find the column of X for each feature: by name if both sides have names, by position otherwise."""
    width, names = table.shape[1], table.names
    if features.names is not None and names is not None:
        return match_names(features.names, names, "the edges were found with")
    _check_width(features.n_columns, width)
    return features.columns


def _check_width(n_features: int, width: int) -> None:
    if width != n_features:  # in the words that scikit-learn's estimator checks look for
        raise ValueError(f"X has {width} features, but BinEdges is expecting {n_features} features as input.")


def check_same_edges(edges: BinEdges, other: BinEdges) -> None:
    if edges is other:
        return
    same = (edges.features, edges.n_codes, edges.rounded_bits.shape) == (
        other.features,
        other.n_codes,
        other.rounded_bits.shape,
    )
    if same and not is_traced(edges, other):
        same = np.array_equal(np.asarray(edges.upper_bits), np.asarray(other.upper_bits))
    if not same:
        raise ValueError("X must be binned by the edges of the model, got a Binned with other edges")
