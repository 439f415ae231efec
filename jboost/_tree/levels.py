"""A tree grown level by level in plain JAX: the definition, and what runs where there is no C++ library.

Histograms of the lighter children only (the others are their parent less their sibling), the best split of each
node, and the rows moved to node 2 * node + goes_right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Integer

from jboost._fixed_point import quantise
from jboost._histogram import build_histogram, with_siblings
from jboost._runtime.library import by_platform
from jboost._runtime.typing import MISSING_BIN, Layout, Reduce, over_devices
from jboost._split import Rules, Tree, best_split, routing_table, totals
from jboost._split.thresholds import Histogram
from jboost._tree.bundles import own_histograms
from jboost._tree.columns import Bins, Bundling, Codes, Columns, GradientPairs
from jboost._tree.growth import Carry, Growth

BuildHistogram = Callable[[Bins, Int[Array, " n"], Int[Array, "n c"], int, int], Int[Array, "b c l f"]]


def grow_by_level(
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    growth: Growth | None = None,
    key: Array | None = None,
    reduce: Reduce | None = None,
    build: BuildHistogram = build_histogram,
) -> tuple[Tree, Int[Array, " n"]]:
    """Return the splits in level order and the leaf of every row; see `Engine`."""
    spec, layout = rules.spec, columns.layout
    statistics = in_fixed_point(derivatives, active, rules)
    node = jnp.zeros(active.size, dtype=jnp.int32)
    slot = jnp.where(active, 0, jnp.ones_like(node))
    built_right = jnp.zeros(1, dtype=bool)
    histogram, carry = None, None
    levels: list[Tree] = []
    for level in range(spec.max_depth):
        built = _build(build, columns, slot, statistics, max(2**level // 2, 1), reduce)
        histogram = built if histogram is None else with_siblings(histogram, built, built_right)
        allowed = columns.allowed[level]
        if growth is not None:
            carry = _carried(growth, key, carry, levels, histogram, rules)
            allowed = growth.admit(carry, allowed, rules)
            rules = dataclasses.replace(rules, weigh=growth.weigh, combine=growth.combine, carry=carry)
        split, right_is_lighter = best_split(histogram, rules, layout, allowed)
        levels.append(split)
        goes_right = route(columns.bins, node, split, routing_table(split, layout), layout, columns.bundling)
        if level + 1 < spec.max_depth:
            built_right = right_is_lighter
            is_built = active & (goes_right == built_right[node])
            slot = jnp.where(is_built, node, 2**level)
        node = child_of(node, goes_right)
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *levels), node


def _build(
    build: BuildHistogram,
    columns: Columns,
    slot: Int[Array, " n"],
    statistics: Int[Array, "n c"],
    n_slots: int,
    reduce: Reduce | None,
) -> Int[Array, "b c l f"]:
    """Build the histograms of the features; where they lie in bundles, from those of the joint codes."""
    bundling, n_codes = columns.bundling, columns.layout.n_codes
    n_cells = n_codes if bundling is None else bundling.code.shape[1]
    found = over_devices(reduce, build(columns.bins, slot, statistics, n_slots, n_cells))
    return found if bundling is None else own_histograms(bundling, found, n_codes)


def _carried(
    growth: Growth, key: Array | None, carry: Carry, levels: list[Tree], histogram: Histogram, rules: Rules
) -> Carry:
    """Return what the nodes of the next level are given."""
    if not levels:
        return growth.start(jax.random.key(0) if key is None else key)
    return growth.descend(carry, levels[-1], totals(histogram)[..., 0], rules)


def child_of(node: Int[Array, " n"], goes_right: Bool[Array, " n"]) -> Int[Array, " n"]:
    """Number a node's children within the next level."""
    return 2 * node + goes_right.astype(node.dtype)


def in_fixed_point(derivatives: GradientPairs, active: Bool[Array, " n"], rules: Rules) -> Int[Array, "n c"]:
    """Round g and h of each output, and of each two, and count rows if need be."""
    found = jnp.stack(derivatives[:2], axis=-1).reshape(active.size, rules.n_pairs)
    if derivatives.cross is not None:
        found = jnp.concatenate([found, derivatives.cross], axis=1)
    statistics = quantise(found, rules.factor[: found.shape[1]])
    if rules.spec.counts_rows:
        statistics = jnp.concatenate([statistics, active[:, None].astype(statistics.dtype)], axis=1)
    return statistics


def route(
    bins: Codes,
    node: Int[Array, " n"],
    split: Tree,
    table: Bool[Array, "s b"],
    layout: Layout,
    bundling: Bundling | None = None,
) -> Bool[Array, " n"]:
    """Say which rows go right, by the split of their node."""
    shared = split.feature.size == 1
    codes = codes_of_split(bins, node, split.feature, bundling)
    if layout.categorical:
        return table[0 if shared else node, codes]
    threshold, missing_right = (
        field[0] if shared else field[node] for field in (split.threshold, split.missing_right)
    )
    above = codes.astype(jnp.int32) > threshold
    return jnp.where(codes == MISSING_BIN, missing_right, above) if layout.has_missing else above


def codes_of_split(
    bins: Codes, node: Int[Array, " n"], feature: Int[Array, " s"], bundling: Bundling | None = None
) -> Integer[Array, " n"]:
    """Look up each row's code of the feature of its node, or of the one feature that there is."""
    if bundling is not None:
        joint, own = codes_of_split(bins, node, bundling.column[feature]), bundling.code[feature]
        return own[0 if feature.size == 1 else node, joint]
    if feature.size == 1:
        return jax.lax.dynamic_index_in_dim(bins, feature[0], axis=0, keepdims=False)
    return by_platform(bins, feature, node, cpu=gather_codes, tpu=select_codes, default=gather_codes)


def gather_codes(bins: Codes, feature: Int[Array, " s"], node: Int[Array, " n"]) -> Integer[Array, " n"]:
    """Look up each row's code of the feature of its node: row by row, so that rows divided among devices stay so."""
    return jnp.take_along_axis(bins, feature[node][None], axis=0, mode="promise_in_bounds")[0]


def select_codes(bins: Codes, feature: Int[Array, " s"], node: Int[Array, " n"]) -> Integer[Array, " n"]:
    """Do the same without a gather, which a TPU does row by row: read every node's feature in full."""

    def add_node(j: Int[Array, ""], codes: Integer[Array, " n"]) -> Integer[Array, " n"]:
        own = jax.lax.dynamic_index_in_dim(bins, feature[j], axis=0, keepdims=False)
        return jnp.where(node == j, own, codes)

    first = jnp.where(node == 0, bins[feature[0]], 0)  # of the type, and on the devices, of the result
    return jax.lax.fori_loop(1, feature.size, add_node, first)
