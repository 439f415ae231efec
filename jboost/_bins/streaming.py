"""Bin edges of rows that come in chunks: one sketch for each column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from jboost._bins.arguments import MAX_MAX_BINS, check_max_bins, check_missing
from jboost._bins.columns import Table
from jboost._bins.edges import BinEdges, Features
from jboost._bins.finding import as_edges, map_columns
from jboost._bins.sketch import QuantileSketch, check_eps
from jboost._bins.table import read_table
from jboost._runtime.arguments import check_weight

ERROR_OF_A_BIN = 1 / 8  # of its weight, unless another error is asked for


class _Columns(NamedTuple):
    names: tuple[str, ...] | None
    labels: tuple[str, ...]


def sketch_edges(
    chunks: Iterable[Any], max_bins: int = 255, eps: float | None = None, missing: float | None = None
) -> BinEdges:
    """Find bin edges in one pass over chunks of rows, as weighted quantiles within a rank error.

    What `bin_features` finds in all rows at once, for rows that are never in memory together. Bin the chunks with
    ``bin_features(X, edges=edges)`` in a second pass.

    Parameters
    ----------
    chunks : iterable of X, or of (X, weight)
        Rows, as `bin_features` takes them, and perhaps a weight for each, such as second derivatives. All columns are
        numeric, and the same in each chunk.
    max_bins : int
        The most bins of a feature, 2 to 65534. Up to as many distinct values have a bin each, if there are no more than
        the sketch keeps without an error, 2.6 / eps.
    eps : float, optional
        The most by which the rank of an edge may be wrong, as a share of the weight; by default an eighth of a bin.
    missing : float, optional
        A number that stands for a missing value, beside NaN.

    Returns
    -------
    BinEdges
        For ``bin_features(X, edges=...)`` and so for `fit`.

    Raises
    ------
    ValueError
        If there is no chunk, or one has other columns than the first; for a `max_bins` or an `eps` out of range.
    TypeError
        If a column holds no numbers.

    References
    ----------
    Chen and Guestrin (2016), XGBoost: a scalable tree boosting system, sections 3.2 and 3.3. KDD.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> chunks = (np.arange(start, start + 500.0)[:, None] for start in range(0, 5000, 500))
    >>> edges = jboost.sketch_edges(chunks, max_bins=10)
    >>> bool(abs(edges.exact[0, :9] - np.arange(500, 5000, 500)).max() <= 5000 / 80)
    True
    """
    if len(getattr(chunks, "shape", ())) in (1, 2):  # its rows are no chunks
        raise TypeError(
            f"chunks must be an iterable of arrays [n f], got one {type(chunks).__name__}: give [X]"
        )
    if isinstance(max_bins, str) and max_bins == "exact":
        raise ValueError(f"max_bins must be 2 to {MAX_MAX_BINS} for a sketch, got 'exact'")
    limit, missing = check_max_bins(max_bins), check_missing(missing)
    error = ERROR_OF_A_BIN / limit if eps is None else check_eps(eps)
    first: _Columns | None = None
    n_rows = 0
    sketches: list[QuantileSketch] = []
    for chunk in chunks:
        X, weight = chunk if isinstance(chunk, tuple) and len(chunk) == 2 else (chunk, None)
        table = read_table(X, missing)
        if first is None:
            first = _columns_of(table)
            sketches = [QuantileSketch(error) for _ in range(table.shape[1])]
        _check_columns(first, table)
        n_rows += table.shape[0]
        if table.shape[0]:
            _update(sketches, table, weight)
    if not n_rows or first is None or not sketches:
        raise ValueError("chunks must hold at least one chunk of at least one row and one column, got none")
    found = map_columns(lambda j: sketches[j].edges(limit), range(len(sketches)), 0)
    return as_edges(found, Features(first.names, (None,) * len(sketches), missing), limit)


def _update(sketches: list[QuantileSketch], table: Table, weight: Any) -> None:
    if weight is not None:
        weight = check_weight(weight, table.shape[0], "the weight of a chunk")
    map_columns(lambda j: sketches[j].update(table.numbers(j), weight), range(len(sketches)), table.shape[0])


def _check_columns(first: _Columns, table: Table) -> None:
    found = _columns_of(table)
    for label, is_category in zip(found.labels, table.categorical, strict=True):
        if is_category:
            raise TypeError(f"chunks must hold numbers, got categories in {label}")
    if found != first:
        raise ValueError(
            f"chunks must all have the columns of the first, {len(first.labels)} from {first.labels[:3]} on, "
            f"got {len(found.labels)} from {found.labels[:3]} on"
        )


def _columns_of(table: Table) -> _Columns:
    return _Columns(table.names, tuple(table.label(j) for j in range(table.shape[1])))
