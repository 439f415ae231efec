"""Bin categories by target statistics: of earlier rows or other folds for rows trained on, of all for others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int, UInt

from jboost._bins.arguments import categorical_mask, check_max_bins, check_missing
from jboost._bins.binning import Binned, read_bins
from jboost._bins.categories import Categories, category_numbers, find_categories
from jboost._bins.columns import Factor, Table
from jboost._bins.edges import Features
from jboost._bins.finding import as_edges, find_column, map_columns
from jboost._bins.ordered import (
    category_statistics,
    check_finite,
    check_prior_weight,
    crossed_statistics,
    in_average_rows,
    ordered_statistics,
)
from jboost._bins.quantiles import column_edges
from jboost._bins.table import check_not_empty, read_table
from jboost._runtime.arguments import check_choice, check_weight, on_host, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import MISSING_BIN, as_array, is_traced

Encoding = Literal["ordered", "crossed"]


@moves_arrays
def bin_by_target(
    X: Any,
    y: Any,
    max_bins: int | Literal["exact"] = 255,
    sample_weight: Any = None,
    categorical: Sequence[str] | Sequence[int] | Sequence[bool] | np.ndarray | None = None,
    missing: float | None = None,
    *,
    encoding: Encoding = "ordered",
    max_cat_to_onehot: int = 4,
    prior_weight: float = 1.0,
    seed: Any = 0,
) -> Binned:
    """Bin the rows to be trained on, with target statistics in the place of categories.

    A category becomes the mean target of its rows: for a row of X that of some other rows, so that none sees its own
    target; for rows that are binned by these edges later, that of all rows. The rest is as in `bin_features`.

    Parameters
    ----------
    X : array_like [n, f]
        As in `bin_features`.
    y : float [n] or [n k]
        What is averaged: an amount, 0 and 1 for two classes, k columns of 0 and 1 for k classes. With k columns a
        category becomes k features.
    max_bins, sample_weight, categorical, missing
        As in `bin_features`. Rows of weight 0 are not trained on: they count for nothing, and are binned as later rows.
        All categories of a column are told apart, however many.
    encoding : {"ordered", "crossed"}, default "ordered"
        Which rows tell a row of X: those before it in a random permutation, or those outside of its fold, of five.
    max_cat_to_onehot : int, default 4
        Columns of so few categories are left as they are.
    prior_weight : float, default 1
        For how many rows the prior counts, which is the mean of y: against rare categories. Where weights are below 1
        on average, a row of average weight is taken for one, to the nearest power of two.
    seed : int or NumPy seed, default 0
        Of the permutation, in which rows are dealt to the folds too. Rows of weight 0 have no place in it.

    Returns
    -------
    Binned
        For `fit`; the model reads the categories themselves. To see what it predicts for the rows of X as for any
        others, predict from X: from what is returned here it predicts as it was trained.

    Raises
    ------
    ValueError, TypeError
        As `bin_features`, for another encoding, and for a y that is not finite, not of n rows, or traced.

    Notes
    -----
    A missing value stays missing, and goes to the side that a split learned; a category that comes later for the first
    time has the statistic of no rows, which is the prior. The prior is one number for all rows, so that it tells none
    from another.

    References
    ----------
    Prokhorenkova et al. (2018), "CatBoost: unbiased boosting with categorical features", section 3.2. The statistics of
    other folds are the "leave-one-out" of that section for a fifth of the rows at a time.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> rng = np.random.default_rng(0)
    >>> city = rng.integers(0, 50, (400, 1))
    >>> y = np.sin(city[:, 0]) + rng.normal(size=400)
    >>> data = jboost.bin_by_target(city, y, categorical=[0])
    >>> model, _ = jboost.fit(jboost.losses.squared_error, data, y, spec=jboost.Spec(n_estimators=20))
    >>> jboost.predict(model, city).shape
    (400,)
    """
    check_choice("encoding", encoding, get_args(Encoding))
    if is_traced(X, y, sample_weight):
        raise TypeError("X, y and sample_weight must be concrete to find statistics, got traced ones")
    limit, missing = check_max_bins(max_bins), check_missing(missing)
    max_cat_to_onehot = whole_number(max_cat_to_onehot, "max_cat_to_onehot")
    table = read_table(X, missing)
    check_not_empty(table.shape)
    rows = _rows(y, sample_weight, table.shape[0], prior_weight, seed)
    chosen = categorical_mask(categorical, table)

    def find(j: int) -> list[_Column]:
        if chosen[j]:
            factor = table.factor(j)
            if _n_categories(factor, rows) > max_cat_to_onehot:
                return _statistics(factor, rows, limit, encoding)
        edges, known = find_column(table, j, rows.counted, rows.weight_of_counted, limit, chosen[j])
        return [_Column(edges, known, None)]

    columns = map_columns(find, range(table.shape[1]), table.shape[0])
    return _binned(table, columns, limit, missing, rows.counted)


class _Rows(NamedTuple):
    """The rows that are trained on, and what is said of all."""

    target: Float[np.ndarray, "m k"]
    counted: Int[np.ndarray, " m"]  # which of the rows have a weight
    weight: Float[np.ndarray, " m"]
    weight_of_counted: Float[np.ndarray, " m"] | None  # None where they are all the same
    order: Int[np.ndarray, " m"]
    prior: Float[np.ndarray, " k"]
    prior_weight: float


class _Column(NamedTuple):
    """A feature: its edges or categories, and the values of the rows that are trained on if it is a statistic."""

    edges: Float[np.ndarray, " e"]
    categories: Categories | None
    values: Float[np.ndarray, " m"] | None


def _rows(y: Any, sample_weight: Any, n: int, prior_weight: Any, seed: Any) -> _Rows:
    given = on_host(y, "y")
    if given.dtype.kind not in "biuf":
        raise TypeError(f"y must hold real numbers, such as 0 and 1 for labels, got dtype {given.dtype}")
    target = given.astype(np.float64)
    if target.ndim not in (1, 2) or len(target) != n or not target.size:
        raise ValueError(f"y must have shape [{n}] or [{n} k], as X has {n} rows, got {target.shape}")
    weight = check_weight(sample_weight, n, "sample_weight")
    counted, target = np.flatnonzero(weight), target.reshape(n, -1)
    check_finite(np.where(weight[:, None] > 0, target, 0), "y", "finite numbers for statistics")
    target, weight = target[counted], weight[counted]
    check_prior_weight(prior_weight)
    try:
        order = np.random.default_rng(seed).permutation(counted.size)
    except (TypeError, ValueError) as error:
        raise ValueError(f"seed must be a whole number or another seed of NumPy's, got {seed!r}") from error
    same = (weight == weight[0]).all()
    prior = np.average(target, axis=0, weights=weight)
    return _Rows(
        target, counted, in_average_rows(weight), None if same else weight, order, prior, float(prior_weight)
    )


def _n_categories(factor: Factor, rows: _Rows) -> int:
    present = np.unique(factor.index[rows.counted])
    return int((present >= 0).sum())


def _statistics(factor: Factor, rows: _Rows, max_bins: int, encoding: Encoding) -> list[_Column]:
    """Return a feature for each column of the target."""
    known = find_categories(factor.values, factor.index[rows.counted], None, len(factor.values))
    category = category_numbers(known, factor)[rows.counted]
    beside = {"prior": rows.prior, "prior_weight": rows.prior_weight}
    by_category = category, len(known.values), rows.target, rows.weight
    if encoding == "ordered":
        weight = rows.weight
        own = np.asarray(
            ordered_statistics(category, rows.target, rows.order, sample_weight=weight, **beside)
        )
    else:
        own = crossed_statistics(*by_category, rows.order, **beside)
    of_all = category_statistics(*by_category, **beside)
    own[category < 0] = np.nan  # missing stays missing
    found = []
    for values, later, prior in zip(own.T, of_all.T, rows.prior, strict=True):
        edges = column_edges(values, rows.weight_of_counted, max_bins)
        codes = np.searchsorted(edges, later, "left") + 1
        unknown = int(np.searchsorted(edges, prior, "left")) + 1
        found.append(_Column(edges, Categories(known.values, tuple(codes.tolist()), unknown), values))
    return found


def _binned(
    table: Table, columns: list[list[_Column]], max_bins: int, missing: float | None, counted: np.ndarray
) -> Binned:
    """Bin all rows as later ones, and those that are trained on by what others say of them."""
    source = tuple(j for j, of_column in enumerate(columns) for _ in of_column)
    every = [one for of_column in columns for one in of_column]
    names = None if table.names is None else tuple(table.names[j] for j in source)
    known = tuple(one.categories for one in every)
    is_plain = source == tuple(range(len(columns)))
    features = Features(names, known, missing, None if is_plain else source)
    edges = as_edges([one.edges for one in every], features, max_bins)
    bins: UInt[np.ndarray, "f n"] = np.array(read_bins(edges, table))
    for j, one in enumerate(every):
        if one.values is not None:
            codes = np.searchsorted(one.edges, one.values, "left") + 1  # NaN comes last
            bins[j, counted] = np.where(np.isnan(one.values), MISSING_BIN, codes)
    return Binned(as_array(bins), edges, bool(bins.min() == MISSING_BIN))
