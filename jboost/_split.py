"""The mathematics of a split: gains and leaf values from histograms, never from rows.

A histogram is int32 [b, c, l, f]: c statistics (g_1, h_1, g_2, h_2, ... and perhaps a row count) of l nodes in
fixed point, summed by bin code. Codes up to a threshold go left; code 0 holds missing values and has a side of
its own. Equations (6) and (7) are those of Chen and Guestrin, "XGBoost" (KDD 2016).
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from jboost._spec import Hyper, Spec
from jboost._typing import WORD, Layout, pytree, static_field

Histogram = Int[Array, "b c l f"]


@pytree
class Rules:
    """What makes a split good: the regularisation, and the scale that turns fixed point into numbers."""

    hyper: Hyper
    scale: Float[Array, " c"]
    spec: Spec = static_field()


class Split(NamedTuple):
    """The chosen splits of a level: one for each node, or one for all (then l = 1)."""

    feature: Int[Array, " l"]
    threshold: Int[Array, " l"]  # n_codes where nothing is split
    missing_right: Bool[Array, " l"]
    categories_right: UInt32[Array, "l words"]
    gain: Float[Array, " l"]


class _Best(NamedTuple):
    """The best candidate so far of each node (or of all nodes together) and feature."""

    gain: Float[Array, "l f"]
    position: Int[Array, "l f"]
    missing_right: Bool[Array, "l f"]


def soft_threshold(g: Float[Array, "..."], reg_alpha: Float[Array, ""]) -> Float[Array, "..."]:
    """T(g) = sign(g) max(|g| - alpha, 0): what the L1 penalty leaves of a gradient sum."""
    return g - jnp.clip(g, -reg_alpha, reg_alpha)


def leaf_value(g: Float[Array, "..."], h: Float[Array, "..."], hyper: Hyper) -> Float[Array, "..."]:
    """w* = -T(G) / (H + lambda), equation (5) with L1, before shrinkage; 0 where H + lambda is 0."""
    denominator = h + hyper.reg_lambda
    usable = denominator > 0
    value = jnp.where(usable, -soft_threshold(g, hyper.reg_alpha) / jnp.where(usable, denominator, 1.0), 0.0)
    return limit_step(value, hyper)


def limit_step(value: Float[Array, "..."], hyper: Hyper) -> Float[Array, "..."]:
    """Bound a leaf value by max_delta_step, unless that is 0."""
    bound = jnp.where(hyper.max_delta_step > 0, hyper.max_delta_step, jnp.inf)
    return jnp.clip(value, -bound, bound)


def best_split(histogram: Histogram, rules: Rules, layout: Layout, allowed: Bool[Array, " f"]) -> Split:
    """Choose the best admissible split of each node, or the best shared one under symmetric growth.

    Ties go to the lowest feature, then to the lowest threshold, then to missing values on the left. Where no
    candidate gains anything the threshold is n_codes, so that every row goes left. Missing values that were not
    there to choose a side, and categories that were not there, go with the heavier child.
    """
    best = _best_thresholds(histogram, rules, layout.has_missing)
    columns = jnp.asarray(layout.categorical, dtype=jnp.int32)
    order = None
    if layout.categorical:
        categories = histogram[: layout.n_category_codes, :, :, columns]
        order = _order_categories(categories, rules)
        found = _best_categories(categories, order, rules, layout.has_missing)
        best = jax.tree.map(lambda every, some: every.at[:, columns].set(some), best, found)
    gain = jnp.where(allowed, best.gain, -jnp.inf)
    feature = jnp.argmax(gain, axis=1).astype(jnp.int32)
    gain, position, missing_right = (
        jnp.take_along_axis(values, feature[:, None], axis=1)[:, 0]
        for values in (gain, best.position, best.missing_right)
    )
    found_any = gain > 0
    threshold = jnp.where(found_any, position, layout.n_codes)
    right = jnp.arange(layout.n_codes) > threshold[:, None]
    absent = jnp.zeros_like(right).at[:, 0].set(True)
    if order is not None:
        is_category = (feature[:, None] == columns).any(axis=1, keepdims=True) & found_any[:, None]
        chosen = jnp.argmax(feature[:, None] == columns, axis=1)
        in_set, is_absent = _category_set(order, chosen, position, layout.n_codes)
        right = jnp.where(is_category, in_set, right)
        absent = absent | (is_category & is_absent)
    missing_right = found_any & _side_of_missing(histogram, feature, right, missing_right, rules)
    right = jnp.where(absent, missing_right[:, None], right)
    words = _pack(right) if layout.categorical else jnp.zeros((feature.size, 0), dtype=jnp.uint32)
    return Split(feature, threshold, missing_right, words, jnp.where(found_any, gain, 0.0))


def routing_table(split: Split, layout: Layout) -> Bool[Array, "l b"]:
    """Which bin codes go right, for each split."""
    codes = jnp.arange(layout.n_codes, dtype=jnp.int32)
    right = codes > split.threshold[:, None]
    if layout.categorical:
        is_category = (split.feature[:, None] == jnp.asarray(layout.categorical)).any(axis=1)
        in_set = split.categories_right[:, codes // WORD] >> (codes % WORD).astype(jnp.uint32) & 1
        right = jnp.where(is_category[:, None], in_set.astype(bool), right)
    return right.at[:, 0].set(split.missing_right)


def right_sums(
    histogram: Histogram, feature: Int[Array, " l"], right: Bool[Array, "l b"]
) -> tuple[Int[Array, "c l"], Int[Array, "c l"]]:
    """The statistics of each node's right child, and of the node."""
    nodes = histogram.shape[2]
    feature = jnp.broadcast_to(feature, (nodes,))
    column = jnp.take_along_axis(histogram, feature[None, None, :, None], axis=3)[..., 0]
    goes = jnp.broadcast_to(right, (nodes, right.shape[1])).T[:, None]
    return (column * goes).sum(axis=0, dtype=column.dtype), column.sum(axis=0, dtype=column.dtype)


def hessian_sum(sums: Int[Array, "c l"], scale: Float[Array, " c"]) -> Float[Array, " l"]:
    """The Hessian sum of each node, over all outputs."""
    h = slice(1, scale.size // 2 * 2, 2)
    return (sums[h] * scale[h, None]).sum(axis=0)


def _side_of_missing(
    histogram: Histogram, feature: Array, right: Bool[Array, "l b"], chosen: Bool[Array, " l"], rules: Rules
) -> Bool[Array, " l"]:
    to_right, node = right_sums(histogram, feature, right.at[:, 0].set(False))
    missing_only = jnp.zeros_like(right).at[:, 0].set(True)
    absent, _ = right_sums(histogram, feature, missing_only)
    h_right, h_node, h_missing = (hessian_sum(sums, rules.scale) for sums in (to_right, node, absent))
    if rules.spec.symmetric:
        h_right, h_node, h_missing = (h.sum(keepdims=True) for h in (h_right, h_node, h_missing))
    return jnp.where(h_missing > 0, chosen, 2 * h_right > h_node)


def _pack(right: Bool[Array, "l b"]) -> UInt32[Array, "l words"]:
    padded = jnp.pad(right, ((0, 0), (0, -right.shape[1] % WORD)))
    bits = padded.reshape(right.shape[0], -1, WORD).astype(jnp.uint32)
    return (bits << jnp.arange(WORD, dtype=jnp.uint32)).sum(axis=2, dtype=jnp.uint32)


def _node_gain(left: Int[Array, "c l f"], total: Int[Array, "c l 1"], rules: Rules) -> Float[Array, "l f"]:
    """Equation (7): half the score of both children less the parent's, minus gamma; -inf if inadmissible."""
    hyper, spec = rules.hyper, rules.spec
    n_pairs = rules.scale.size // 2 * 2
    scale = rules.scale[:, None, None]
    sides = (left, total - left)  # exact integers: both children sum to the parent

    def score(sums: Int[Array, "c l f"]) -> Float[Array, "l f"]:
        g, h = sums[0:n_pairs:2] * scale[0:n_pairs:2], sums[1:n_pairs:2] * scale[1:n_pairs:2]
        denominator = h + hyper.reg_lambda
        squared = jnp.square(soft_threshold(g, hyper.reg_alpha))
        return jnp.where(denominator > 0, squared / jnp.where(denominator > 0, denominator, 1.0), 0.0).sum(0)

    def admissible(sums: Int[Array, "c l f"]) -> Bool[Array, "l f"]:
        h = (sums[1:n_pairs:2] * scale[1:n_pairs:2]).max(axis=0)
        enough = (h > 0) & (h >= hyper.min_child_weight)
        return enough & (sums[-1] >= spec.min_child_samples) if spec.counts_rows else enough

    children, parent = score(sides[0]) + score(sides[1]), score(total)
    gain = 0.5 * (children - parent)
    noise = 4 * jnp.finfo(gain.dtype).eps * children  # what rounding alone can gain
    gain = jnp.where(gain > noise, gain - hyper.gamma, -jnp.inf)
    return jnp.where(admissible(sides[0]) & admissible(sides[1]), gain, -jnp.inf)


def _candidate_gain(left: Int[Array, "c l f"], total: Int[Array, "c l 1"], rules: Rules) -> Float[Array, "l f"]:
    """The gain of a candidate: of each node, or summed over the nodes that it helps (symmetric growth)."""
    gain = _node_gain(left, total, rules)
    return jnp.maximum(gain, 0.0).sum(axis=0, keepdims=True) if rules.spec.symmetric else gain


def _better(best: _Best, gain: Float[Array, "l f"], position: Array, missing_right: bool) -> _Best:
    wins = gain > best.gain
    return _Best(
        jnp.where(wins, gain, best.gain),
        jnp.where(wins, position, best.position),
        jnp.where(wins, missing_right, best.missing_right),
    )


def _search(
    lefts: Int[Array, "b c l f"], missing: Int[Array, "c l f"] | None, total: Int[Array, "c l 1"], rules: Rules
) -> _Best:
    """Evaluate every candidate at once. `lefts` holds what goes left, missing values included."""
    gains = jax.vmap(partial(_candidate_gain, total=total, rules=rules))
    gain = gains(lefts)[:, None]
    if missing is not None:
        gain = jnp.concatenate([gain, gains(lefts - missing)[:, None]], axis=1)
    flat = gain.reshape(-1, *gain.shape[2:])
    winner = jnp.argmax(flat, axis=0)
    best = jnp.take_along_axis(flat, winner[None], axis=0)[0]
    sides = gain.shape[1]
    return _Best(best, (winner // sides).astype(jnp.int32), winner % sides == 1)


def _search_by_scan(
    histogram: Histogram, missing: Int[Array, "c l f"] | None, total: Int[Array, "c l 1"], rules: Rules
) -> _Best:
    """The same search with one running sum: on a CPU several times faster than all candidates at once."""

    def visit(carry: tuple[Array, _Best], row: tuple[Array, Array]) -> tuple[tuple[Array, _Best], None]:
        left, best = carry
        position, here = row
        left = left + here
        best = _better(best, _candidate_gain(left, total, rules), position, False)
        if missing is not None:
            best = _better(best, _candidate_gain(left - missing, total, rules), position, True)
        return (left, best), None

    shape = (1 if rules.spec.symmetric else histogram.shape[2], histogram.shape[3])
    nothing = _Best(
        jnp.full(shape, -jnp.inf, rules.scale.dtype), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    )
    positions = jnp.arange(histogram.shape[0] - 1, dtype=jnp.int32)
    start = (jnp.zeros_like(histogram[0]), nothing)
    (_, best), _ = jax.lax.scan(visit, start, (positions, histogram[:-1]))
    return best


def _totals(histogram: Histogram) -> Int[Array, "c l 1"]:
    return histogram[..., :1].sum(axis=0, dtype=histogram.dtype)  # every feature sums to the node


def _best_thresholds(histogram: Histogram, rules: Rules, has_missing: bool) -> _Best:
    total = _totals(histogram)
    missing = histogram[0] if has_missing else None

    def at_once(histogram: Histogram) -> _Best:
        return _search(jnp.cumsum(histogram[:-1], axis=0, dtype=histogram.dtype), missing, total, rules)

    def by_scan(histogram: Histogram) -> _Best:
        return _search_by_scan(histogram, missing, total, rules)

    return jax.lax.platform_dependent(histogram, cpu=by_scan, default=at_once)


class _Order(NamedTuple):
    """The codes of categorical columns in the order in which they are cut, absent ones last."""

    codes: Int[Array, "b l f"]
    n_present: Int[Array, "l f"]
    one_hot: Bool[Array, "l f"]  # each present code is tried against the rest instead


def _order_categories(histogram: Histogram, rules: Rules) -> _Order:
    """Sort the codes of each node by G / (H + cat_smooth).

    Under symmetric growth the order is that of the level as a whole, since its nodes share one subset. For one
    output a cut of this order is the best subset of all (Fisher 1958; Hastie et al., ESL, section 9.2.4).
    """
    sums = histogram.sum(axis=2, keepdims=True, dtype=histogram.dtype) if rules.spec.symmetric else histogram
    n_pairs = rules.scale.size // 2 * 2
    scale = rules.scale[:, None, None]
    g = (sums[:, 0:n_pairs:2] * scale[0:n_pairs:2]).sum(axis=1)
    h = (sums[:, 1:n_pairs:2] * scale[1:n_pairs:2]).sum(axis=1)
    codes = jnp.arange(histogram.shape[0])[:, None, None]
    present = (h > 0) & (codes > 0)
    n_present = present.sum(axis=0)
    one_hot = n_present <= rules.spec.max_cat_to_onehot
    smooth = g / jnp.where(present, h + rules.hyper.cat_smooth, 1.0)
    key = jnp.where(present, jnp.where(one_hot, codes.astype(g.dtype), smooth), jnp.inf)
    return _Order(jnp.argsort(key, axis=0, stable=True).astype(jnp.int32), n_present, one_hot)


def _best_categories(histogram: Histogram, order: _Order, rules: Rules, has_missing: bool) -> _Best:
    total = _totals(histogram)
    missing = histogram[0]
    ranks = jnp.arange(histogram.shape[0])[:, None, None]
    codes = jnp.broadcast_to(order.codes, (histogram.shape[0], *histogram.shape[2:]))
    ordered = jnp.take_along_axis(histogram, codes[:, None], axis=0)
    ordered = jnp.where((ranks < order.n_present)[:, None], ordered, 0)
    prefix = missing + jnp.cumsum(ordered, axis=0, dtype=histogram.dtype)
    lefts = jnp.where(order.one_hot, total - ordered, prefix)  # with missing values on the left
    return _search(lefts, missing if has_missing else None, total, rules)


def _category_set(
    order: _Order, column: Int[Array, " l"], position: Int[Array, " l"], n_codes: int
) -> tuple[Bool[Array, "l b"], Bool[Array, "l b"]]:
    """The codes that go right by the cut at `position`, and those that were not there to be placed."""
    nodes = jnp.arange(column.size)
    codes = order.codes[:, nodes, column].T
    ranks = jnp.arange(codes.shape[1])
    present = ranks < order.n_present[nodes, column][:, None]
    cut = position[:, None]
    in_set = present & jnp.where(order.one_hot[nodes, column][:, None], ranks == cut, ranks > cut)
    nothing = jnp.zeros((column.size, n_codes), dtype=bool)
    by_code = (nodes[:, None], codes)
    return nothing.at[by_code].set(in_set), (~nothing).at[by_code].set(~present)
