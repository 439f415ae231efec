"""The mathematics of a split: gains and leaf values from histograms, never from rows.

A histogram is int32 [b, c, l, f]: c statistics (g_1, h_1, g_2, h_2, ... and perhaps a row count) of l nodes in
fixed point, summed by bin code. Codes up to a threshold go left; code 0 holds missing values and has a side of
its own. A level has s splits: one for each of its l nodes or, under symmetric growth, one for all.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from jboost._runtime.typing import WORD, Layout
from jboost._split.categories import best_categories, category_set, order_categories
from jboost._split.formulas import Rules, leaf_value, limit_step, real, soft_threshold, sum_in_pairs
from jboost._split.thresholds import Histogram, best_thresholds, totals
from jboost._split.tree import Tree

__all__ = [
    "Rules",
    "Tree",
    "best_split",
    "leaf_value",
    "limit_step",
    "routing_table",
    "soft_threshold",
    "totals",
]


def best_split(
    histogram: Histogram, rules: Rules, layout: Layout, allowed: Bool[Array, "*l f"]
) -> tuple[Tree, Bool[Array, " l"]]:
    """Choose the best admissible split of each node, or the best shared one under symmetric growth.

    Ties go to the lowest feature, then to the lowest threshold, then to missing values on the left. Where no
    candidate gains anything the threshold is n_codes, so that every row goes left. Missing values that were not
    there to choose a side, and categories that were not there, go with the heavier child.

    Parameters
    ----------
    histogram, rules, layout
        Of the l nodes of a level.
    allowed : bool [f] or [l f]
        Columns that may be split on, in all nodes or in each.

    Returns
    -------
    Tree
        The splits of the level: one for each node, or one for all.
    bool [l]
        Of each node, whether its right child is the lighter one.
    """
    best = best_thresholds(histogram, rules, layout.has_missing)
    columns = jnp.asarray(layout.categorical, dtype=jnp.int32)
    order = None
    if layout.categorical:
        categories = histogram[: layout.n_category_codes, :, :, columns]
        orders = order_categories(categories, rules)
        found, order = best_categories(categories, orders, columns, rules, layout.has_missing)
        best = jax.tree.map(lambda every, some: every.at[:, columns].set(some), best, found)
    allowed = jnp.atleast_2d(allowed)
    if rules.spec.symmetric:  # the nodes share a split, so all must allow it
        allowed = allowed.all(axis=0, keepdims=True)
    gain = jnp.where(allowed, best.gain, -jnp.inf)
    feature = jnp.argmax(gain, axis=1).astype(jnp.int32)
    gain, candidate = (
        jnp.take_along_axis(values, feature[:, None], axis=1)[:, 0] for values in (gain, best.candidate)
    )
    found_any = gain > 0
    threshold = jnp.where(found_any, candidate // 2, layout.n_codes)
    codes = jnp.arange(layout.n_codes, dtype=jnp.int32)
    right, absent = (
        (codes[None] > threshold[:, None]) & (codes > 0)[None],
        jnp.zeros((1, layout.n_codes), bool),
    )
    if order is not None:
        chosen = feature[:, None] == columns[None]
        is_category = chosen.any(axis=1, keepdims=True) & found_any[:, None]
        in_set, is_absent = category_set(order, jnp.argmax(chosen, axis=1), candidate // 2, layout.n_codes)
        right, absent = jnp.where(is_category, in_set, right), is_category & is_absent
    missing_right, right_is_lighter = _heavier_side(
        histogram, feature, right, candidate % 2 == 1, rules, layout
    )
    missing_right &= found_any
    words = jnp.zeros((feature.size, 0), dtype=jnp.uint32)
    if layout.categorical:
        words = _pack(right | (absent & missing_right[:, None]))
    return Tree(feature, threshold, missing_right, words, jnp.where(found_any, gain, 0.0)), right_is_lighter


def routing_table(splits: Tree, layout: Layout) -> Bool[Array, "s b"]:
    """Which bin codes go right, for each split."""
    codes = jnp.arange(layout.n_codes, dtype=jnp.int32)
    right = codes[None] > splits.threshold[:, None]
    if layout.categorical:
        is_category = (splits.feature[:, None] == jnp.asarray(layout.categorical, dtype=jnp.int32)[None]).any(
            axis=1
        )
        assert splits.categories_right is not None  # there are categorical columns
        in_set = splits.categories_right[:, codes // WORD] >> (codes % WORD).astype(jnp.uint32)[None] & 1
        right = jnp.where(is_category[:, None], in_set.astype(bool), right)
    return right.at[:, 0].set(splits.missing_right)


def _heavier_side(
    histogram: Histogram,
    feature: Int[Array, " s"],
    right: Bool[Array, "s b"],
    missing_right: Bool[Array, " s"],
    rules: Rules,
    layout: Layout,
) -> tuple[Bool[Array, " s"], Bool[Array, " l"]]:
    """Send missing values that were not there to the heavier child; say which right children are the lighter."""
    if rules.spec.symmetric:
        column = jax.lax.dynamic_index_in_dim(histogram, feature[0], axis=3, keepdims=False)
    else:
        column = jnp.take_along_axis(histogram, feature[None, None, :, None], axis=3)[..., 0]
    pairs = slice(1, rules.n_pairs, 2)
    hessian = column[:, pairs]
    sign = jnp.where(right, 1, -1).astype(hessian.dtype).T[:, None]
    excess = jnp.where(jnp.arange(layout.n_codes)[:, None, None] > 0, hessian * sign, 0)  # right less left
    excess = excess.sum(axis=0, dtype=hessian.dtype)
    known, missing = (_in_real_units(one, rules) for one in (excess, hessian[0]))
    excess_of_all, all_missing = known, missing
    if rules.spec.symmetric:
        excess_of_all, all_missing = (
            _in_real_units(one.sum(axis=1, keepdims=True, dtype=one.dtype), rules)
            for one in (excess, hessian[0])
        )
    missing_right = jnp.where(all_missing > 0, missing_right, excess_of_all > 0)
    return missing_right, known + jnp.where(missing_right, missing, -missing) < 0


def _in_real_units(hessian: Int[Array, "k l"], rules: Rules) -> Float[Array, " l"]:
    return sum_in_pairs(real(hessian, rules.unit[1 : rules.n_pairs : 2, None]))


def _pack(right: Bool[Array, "s b"]) -> UInt32[Array, "s words"]:
    padded = jnp.pad(right, ((0, 0), (0, -right.shape[1] % WORD)))
    bits = padded.reshape(right.shape[0], -1, WORD).astype(jnp.uint32)
    return (bits << jnp.arange(WORD, dtype=jnp.uint32)[None, None]).sum(axis=2, dtype=jnp.uint32)
