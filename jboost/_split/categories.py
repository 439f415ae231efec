"""The best subset of the categories of every categorical feature."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._split.formulas import Rules, real, sum_in_pairs
from jboost._split.thresholds import Best, Histogram, search, totals

N_ORDERED = 4  # outputs, at most, each with an order of its own


class Order(NamedTuple):
    """The codes of categorical columns in the order, or the orders, in which they are cut, absent ones last."""

    codes: Int[Array, "*o b s f"]
    n_present: Int[Array, "s f"]
    one_hot: Bool[Array, "s f"]  # each present code is tried against the rest instead


def order_categories(histogram: Histogram, rules: Rules) -> Order:
    """Sort the codes of each node by G / (H + cat_smooth): of all outputs together, and of some by themselves.

    Under symmetric growth the order is that of the level as a whole, since its nodes share one subset. For one
    output a cut of this order is the best subset of all (Fisher 1958; Hastie et al., ESL, section 9.2.4). For several
    there is no such order, and the gradients of a softmax even sum to 0. So those outputs whose gradients differ most
    between codes give an order each.
    """
    sums = histogram.sum(axis=2, keepdims=True, dtype=histogram.dtype) if rules.spec.symmetric else histogram
    n_pairs, scale = rules.n_pairs, rules.unit[None, :, None, None]
    by_statistic = jnp.moveaxis(real(sums[:, :n_pairs], scale[:, :n_pairs]), 1, 0)
    g, h = by_statistic[0::2], by_statistic[1::2]
    all_g, all_h = sum_in_pairs(g), sum_in_pairs(h)
    codes = jnp.arange(histogram.shape[0], dtype=jnp.int32)[:, None, None]
    present = (all_h > 0) & (codes > 0)
    n_present = present.sum(axis=0, dtype=jnp.int32)
    one_hot = n_present <= rules.spec.max_cat_to_onehot
    all_g, all_h = all_g[None], all_h[None]
    if rules.n_outputs > 1:
        some_g, some_h = _differing_most(g, h, codes, rules)
        all_g, all_h = jnp.concatenate([all_g, some_g]), jnp.concatenate([all_h, some_h])
    denominator = all_h + rules.hyper.cat_smooth
    usable = present[None] & (denominator > 0)
    smooth = jnp.where(usable, all_g / jnp.where(usable, denominator, 1.0), 0.0)
    by_code = jnp.where(one_hot[None, None], codes[None].astype(g.dtype), smooth)
    key = jnp.where(present[None], by_code, jnp.inf)
    return Order(jnp.argsort(key, axis=1, stable=True).astype(jnp.int32), n_present, one_hot)


def _differing_most(
    g: Float[Array, "k b s f"], h: Float[Array, "k b s f"], codes: Int[Array, "b 1 1"], rules: Rules
) -> tuple[Float[Array, "o b s f"], Float[Array, "o b s f"]]:
    """Return G and H of the outputs whose gradients differ most between the codes of a node."""
    denominator = h + rules.hyper.cat_smooth
    usable = (denominator > 0) & (codes > 0)[None]
    squares = jnp.where(usable, jnp.square(g) / jnp.where(usable, denominator, 1.0), 0.0)
    spread = sum_in_pairs(jnp.moveaxis(squares, 1, 0))
    most = jnp.argsort(-spread, axis=0, stable=True)[:N_ORDERED, None]
    return jnp.take_along_axis(g, most, axis=0), jnp.take_along_axis(h, most, axis=0)


def best_categories(
    histogram: Histogram, orders: Order, columns: Int[Array, " f"], rules: Rules, has_missing: bool
) -> tuple[Best, Order]:
    """Find the best cut of the ordered categories of each node (or of the level) and column, and its order."""

    def best_of(codes: Int[Array, "b s f"]) -> Best:
        return _best_cut(histogram, orders._replace(codes=codes), columns, rules, has_missing)

    found = jax.lax.map(best_of, orders.codes)
    first = jnp.argmax(found.gain, axis=0)[None]
    gain, candidate = (jnp.take_along_axis(values, first, axis=0)[0] for values in found)
    codes = jnp.take_along_axis(orders.codes, first[:, None], axis=0)[0]
    return Best(gain, candidate), orders._replace(codes=codes)


def _best_cut(
    histogram: Histogram, order: Order, columns: Int[Array, " f"], rules: Rules, has_missing: bool
) -> Best:
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
