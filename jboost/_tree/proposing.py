"""Approximate split finding with a local proposal: new candidates for each tree, by the second derivatives of its rows.

The codes of a fit are fine. Before a tree grows, those of each feature are joined to a few of about the same sum of h
(the weighted quantiles of Chen and Guestrin 2016, section 3.2, here of codes), so that any engine grows it on the few;
its thresholds are then said in fine codes again.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._histogram import build_histogram
from jboost._runtime.typing import WORD, Layout, Reduce, over_devices
from jboost._spec import Spec
from jboost._split import Rules, Tree
from jboost._split.formulas import real, sum_in_pairs
from jboost._tree.columns import Columns, GradientPairs
from jboost._tree.growth import Growth
from jboost._tree.levels import in_fixed_point


def proposed_layout(spec: Spec, layout: Layout) -> Layout:
    """Return that of the codes a tree grows on: as many as it may propose, beside code 0; categories stay apart."""
    assert spec.n_candidates is not None  # there are proposals
    wanted = max(spec.n_candidates + 1, layout.n_category_codes)
    return layout._replace(n_codes=min(-(-wanted // WORD) * WORD, layout.n_codes))


def propose(
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    reduce: Reduce | None = None,
) -> Int[Array, "f b"]:
    """Give each fine code of each feature the coarse one that it is part of; both in the same order, 0 stays 0.

    A code with more than 2/m of all h stays alone. The others share the bins that are left: those join whose share of
    the light h below them, and half of their own, is the same when it is rounded down to a bin. So what is joined lies
    within 1/m of all h. Up to m codes with any h stay apart.
    """
    spec, layout = rules.spec, columns.layout
    assert spec.n_candidates is not None
    size = min(spec.n_candidates, layout.n_codes - 1)
    h_columns = slice(1, rules.n_pairs, 2)
    statistics = in_fixed_point(derivatives, active, rules)[:, h_columns]
    slot = jnp.where(active, 0, jnp.ones(active.shape, jnp.int32))
    sums = over_devices(reduce, build_histogram(columns.bins, slot, statistics, 1, layout.n_codes))
    h = sums[1:, :, 0].transpose(1, 2, 0)  # [k f b]; missing values propose nothing
    unit = rules.unit[h_columns, None, None]
    is_heavy = _real(h, unit) * size > 2 * _real(h.sum(axis=2, keepdims=True, dtype=h.dtype), unit)
    light = jnp.where(is_heavy[None], 0, h)
    up_to = jnp.cumsum(light, axis=2, dtype=h.dtype)  # exact in integers
    share = (_real(up_to, unit) + _real(up_to - light, unit)) / _or_one(2 * _real(up_to[..., -1:], unit))
    n_heavy = jnp.cumsum(is_heavy, axis=1, dtype=jnp.int32)
    n_light = (
        size - 2 * n_heavy[:, -1:]
    )  # bins of the light codes, of which each heavy one may cut one in two
    number = jnp.clip(jnp.floor(n_light.astype(share.dtype) * share).astype(jnp.int32), 0, n_light - 1)
    number = number + 2 * n_heavy - is_heavy.astype(jnp.int32)
    counted = jnp.cumsum((h > 0).any(axis=0), axis=1, dtype=jnp.int32)
    number = jnp.where(counted[:, -1:] <= size, jnp.maximum(counted - 1, 0), number)
    codes = jnp.pad(number + 1, ((0, 0), (1, 0)))
    if layout.categorical:
        own = jnp.asarray(layout.categorical, jnp.int32)
        codes = codes.at[own].set(jnp.arange(layout.n_codes, dtype=jnp.int32)[None])
    return codes


def _real(sums: Int[Array, "k f b"], unit: Float[Array, "k 1 1"]) -> Float[Array, "f b"]:
    return sum_in_pairs(real(sums, unit))


def _or_one(value: Float[Array, "f 1"]) -> Float[Array, "f 1"]:
    return jnp.where(value > 0, value, 1)


def in_fine_codes(tree: Tree, coarse_of: Int[Array, "f b"], coarse: Layout, layout: Layout) -> Tree:
    """Return a tree that splits fine codes: those of the coarse codes up to a threshold go left."""
    is_split = tree.threshold < coarse.n_codes
    numbers = jnp.arange(coarse.n_codes, dtype=jnp.int32)
    last_of = jax.vmap(lambda codes: jnp.searchsorted(codes, numbers, side="right"))(coarse_of) - 1
    last = last_of[tree.feature, jnp.minimum(tree.threshold, coarse.n_codes - 1)].astype(jnp.int32)
    words = tree.categories_right
    assert words is not None  # of a tree as it was grown
    if layout.categorical:  # codes of categories are their own, and there are none beyond
        words = jnp.pad(words, ((0, 0), (0, layout.n_words - coarse.n_words)))
    return dataclasses.replace(
        tree, threshold=jnp.where(is_split, last, layout.n_codes), categories_right=words
    )


@functools.cache
def grow_on_proposals(engine: Any, arrange: Any) -> Any:
    """Return a function that grows trees by an engine on codes proposed anew for each; `arrange` is that of engines."""

    def grow(
        columns: Columns,
        derivatives: GradientPairs,
        active: Bool[Array, " n"],
        rules: Rules,
        growth: Growth | None = None,
        key: Array | None = None,
        reduce: Reduce | None = None,
    ) -> tuple[Tree, Int[Array, " n"]]:
        layout, few = columns.layout, proposed_layout(rules.spec, columns.layout)
        coarse_of = propose(columns, derivatives, active, rules, reduce)
        dtype = jnp.uint8 if few.n_codes <= 256 else jnp.uint16 if few.n_codes <= 2**16 else jnp.uint32
        table = coarse_of.astype(dtype)
        bins = jax.vmap(lambda row, codes: row[codes])(table, columns.bins)
        given = Columns(arrange(engine, bins), columns.allowed, few)
        tree, leaf = engine.grow(given, derivatives, active, rules, growth, key, reduce)
        return in_fine_codes(tree, coarse_of, few, layout), leaf

    return grow
