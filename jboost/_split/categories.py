"""The best subset of the categories of every categorical feature."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jboost._split.formulas import Rules, real, sum_in_pairs
from jboost._split.thresholds import Best, Histogram, search, totals


class Order(NamedTuple):
    """The codes of categorical columns in the order in which they are cut, absent ones last."""

    codes: Int[Array, "b s f"]
    n_present: Int[Array, "s f"]
    one_hot: Bool[Array, "s f"]  # each present code is tried against the rest instead


def order_categories(histogram: Histogram, rules: Rules) -> Order:
    """Sort the codes of each node by G / (H + cat_smooth).

    Under symmetric growth the order is that of the level as a whole, since its nodes share one subset. For one
    output a cut of this order is the best subset of all (Fisher 1958; Hastie et al., ESL, section 9.2.4).
    """
    sums = histogram.sum(axis=2, keepdims=True, dtype=histogram.dtype) if rules.spec.symmetric else histogram
    n_pairs, scale = rules.n_pairs, rules.unit[None, :, None, None]
    by_statistic = jnp.moveaxis(real(sums[:, :n_pairs], scale[:, :n_pairs]), 1, 0)
    g, h = sum_in_pairs(by_statistic[0::2]), sum_in_pairs(by_statistic[1::2])
    codes = jnp.arange(histogram.shape[0], dtype=jnp.int32)[:, None, None]
    present = (h > 0) & (codes > 0)
    n_present = present.sum(axis=0, dtype=jnp.int32)
    one_hot = n_present <= rules.spec.max_cat_to_onehot
    smooth = g / jnp.where(present, h + rules.hyper.cat_smooth, 1.0)
    key = jnp.where(present, jnp.where(one_hot[None], codes.astype(g.dtype), smooth), jnp.inf)
    return Order(jnp.argsort(key, axis=0, stable=True).astype(jnp.int32), n_present, one_hot)


def best_categories(
    histogram: Histogram, order: Order, columns: Int[Array, " f"], rules: Rules, has_missing: bool
) -> Best:
    """Find the best cut of the ordered categories of each node (or of the level) and of each of these columns."""
    total = totals(histogram)
    missing = histogram[0]
    ranks = jnp.arange(histogram.shape[0], dtype=jnp.int32)[:, None, None]
    codes = jnp.broadcast_to(order.codes, (histogram.shape[0], *histogram.shape[2:]))
    ordered = jnp.take_along_axis(histogram, codes[:, None], axis=0)
    ordered = jnp.where((ranks < order.n_present[None])[:, None], ordered, 0)
    prefix = missing[None] + jnp.cumsum(ordered, axis=0, dtype=histogram.dtype)
    lefts = jnp.where(
        order.one_hot[None, None], total[None] - ordered, prefix
    )  # with missing values on the left
    return search(lefts, missing if has_missing else None, total, columns, rules)


def category_set(
    order: Order, column: Int[Array, " s"], position: Int[Array, " s"], n_codes: int
) -> tuple[Bool[Array, "s b"], Bool[Array, "s b"]]:
    """The codes that go right by the cut at `position`, and those that were not there to be placed."""
    nodes = jnp.arange(column.size, dtype=jnp.int32)
    codes = order.codes[:, nodes, column].T
    ranks = jnp.arange(codes.shape[1], dtype=jnp.int32)
    present = ranks[None] < order.n_present[nodes, column][:, None]
    cut = position[:, None]
    in_set = present & jnp.where(order.one_hot[nodes, column][:, None], ranks[None] == cut, ranks[None] > cut)
    nothing = jnp.zeros((column.size, n_codes), dtype=bool)
    by_code = (nodes[:, None], codes)
    return nothing.at[by_code].set(in_set), (~nothing).at[by_code].set(~present)
