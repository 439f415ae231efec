"""Trees that are grown to full depth first, of which some splits are taken back: post-pruning, and growth best first.

Pre-stopping looks one split ahead: where no split gains more than gamma, a node stays a leaf, though those below it may
pay for both (as where a target is the exclusive or of two features). Post-pruning grows first. A split pays if it gains
more than gamma, and stays if it pays or if one below it stays. One that gains nothing at all, beyond what rounding can,
is made in neither way.

Growth best first splits the leaf with the largest gain next, up to a number of leaves. How a node is split does not
depend on when, so within a depth that is the choice of some splits of the full tree.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._histogram import build_histogram
from jboost._runtime.typing import Layout, Reduce, over_devices
from jboost._split import Rules, Tree
from jboost._split.formulas import node_gain
from jboost._tree.columns import Columns, GradientPairs
from jboost._tree.engines import Engine, Grown
from jboost._tree.growth import Growth
from jboost._tree.levels import in_fixed_point


def grow_and_prune(
    engine: Engine,
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    growth: Growth | None,
    key: Array | None,
    reduce: Reduce | None,
) -> Grown:
    """Grow a tree by any engine, and take back splits beyond the most leaves, and those that do not pay.

    Where splits are pruned by gamma, they are grown with one of 0.
    """
    spec, layout = rules.spec, columns.layout
    growing = _without_gamma(rules) if spec.post_prune else rules
    tree, leaf = engine.grow(columns, derivatives, active, growing, growth, key, reduce)
    kept = tree.threshold < layout.n_codes
    if spec.limits_leaves:
        assert spec.max_leaves is not None
        kept = best_first(kept, tree.gain, spec.max_leaves - 1, spec.max_depth)
    if spec.post_prune:
        if spec.symmetric:
            statistics = in_fixed_point(derivatives, active, rules)
            pays = levels_that_pay(sums_of_leaves(statistics, leaf, active, spec.n_leaves, reduce), rules)
        else:
            pays = tree.gain > rules.hyper.gamma
        kept = kept & stays(kept & pays, spec.max_depth, spec.symmetric)
    return keep_splits(tree, kept, layout), leaves_after(kept, spec.max_depth, spec.symmetric)[leaf]


def _without_gamma(rules: Rules) -> Rules:
    return dataclasses.replace(
        rules, hyper=dataclasses.replace(rules.hyper, gamma=jnp.zeros_like(rules.hyper.gamma))
    )


def best_first(
    is_split: Bool[Array, " s"], gain: Float[Array, " s"], n_splits: int, depth: int
) -> Bool[Array, " s"]:
    """Say which splits growth best first makes: always the one of largest gain below those that it has made.

    A node may pass its rows on to a child that is split. Of equal gains the first in the order of levels is made.
    """
    waits_for = _split_above(is_split, depth)
    none = jnp.zeros_like(is_split)

    def make_one(_: Any, made: Bool[Array, " s"]) -> Bool[Array, " s"]:
        is_next = is_split & ~made & ((waits_for < 0) | made[waits_for])
        return made | (is_next & (jnp.arange(gain.size) == jnp.argmax(jnp.where(is_next, gain, -jnp.inf))))

    return jax.lax.fori_loop(0, n_splits, make_one, none)


def _split_above(is_split: Bool[Array, " s"], depth: int) -> Int[Array, " s"]:
    """Return the nearest slot above each that is split, -1 where there is none."""
    above = jnp.full(1, -1, jnp.int32)
    levels = [above]
    for level in range(depth - 1):
        slot = jnp.arange(2**level - 1, 2 ** (level + 1) - 1, dtype=jnp.int32)
        above = jnp.repeat(jnp.where(is_split[slot], slot, above), 2)
        levels.append(above)
    return jnp.concatenate(levels)


def sums_of_leaves(
    statistics: Int[Array, "n c"],
    leaf: Int[Array, " n"],
    active: Bool[Array, " n"],
    n_leaves: int,
    reduce: Reduce | None,
) -> Int[Array, "c leaves"]:
    """Sum the statistics of the active rows by leaf, which is a histogram of one feature."""
    slot = jnp.where(active, 0, jnp.ones_like(leaf))
    codes = leaf.astype(jnp.uint16)[None]  # of at most 2^16 leaves
    return over_devices(reduce, build_histogram(codes, slot, statistics, 1, n_leaves))[:, :, 0, 0].T


def levels_that_pay(sums: Int[Array, "c leaves"], rules: Rules) -> Bool[Array, " d"]:
    """Say of each level of a symmetric tree whether a node of it gains more than gamma.

    It is worth the sum of what its nodes gain beyond gamma, each counted if that is above 0, as when it was chosen.
    """
    pays: list[Any] = []
    while sums.shape[1] > 1:
        left, total = sums[:, 0::2], sums[:, 0::2] + sums[:, 1::2]
        pays.append((node_gain(left[..., None], total[..., None], rules) > 0).any())
        sums = total
    return jnp.stack(pays[::-1])


def stays(pays: Bool[Array, " s"], depth: int, symmetric: bool) -> Bool[Array, " s"]:
    """Say which slots pay, or are above one that does."""
    if symmetric:
        return jax.lax.cummax(pays.astype(jnp.int32), reverse=True) > 0
    below, levels = jnp.zeros(2**depth, bool), []
    for level in reversed(range(depth)):
        below = pays[2**level - 1 : 2 ** (level + 1) - 1] | below[0::2] | below[1::2]
        levels.append(below)
    return jnp.concatenate(levels[::-1])


def keep_splits(tree: Tree, kept: Bool[Array, " s"], layout: Layout) -> Tree:
    """Return the tree with some of its splits; all rows go left by the others."""
    assert tree.categories_right is not None  # of a tree as it was grown
    return Tree(
        tree.feature,
        jnp.where(kept, tree.threshold, layout.n_codes),
        tree.missing_right & kept,
        jnp.where(kept[:, None], tree.categories_right, 0),
        jnp.where(kept, tree.gain, 0),
    )


def leaves_after(kept: Bool[Array, " s"], depth: int, symmetric: bool) -> Int[Array, " leaves"]:
    """Return which leaf the rows of each leaf are in once only these splits are left.

    What is below a split that went is gone too, so a path runs as before down to there, and left from there on.
    """
    old = jnp.arange(2**depth, dtype=jnp.int32)
    new = jnp.zeros_like(old)
    for level in range(depth):
        slot = jnp.full_like(old, level) if symmetric else 2**level - 1 + (old >> (depth - level))
        new = 2 * new + jnp.where(kept[slot], (old >> (depth - 1 - level)) & 1, 0)
    return new
