"""Engines: the ways to grow a tree, and the one place where a fit chooses among them.

What an engine cannot do falls to the next one, down to plain JAX, which is the definition and does everything. All
give the same tree, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.extend.backend
import numpy as np
from jaxtyping import Array, Bool, Int

from jboost._histogram import check_size
from jboost._runtime import library
from jboost._runtime.library import by_platform
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import Layout, Reduce, as_array
from jboost._spec import Spec
from jboost._split import Rules, Tree
from jboost._tree import native, sorted_columns
from jboost._tree.columns import Bins, Columns, GradientPairs, Grouped
from jboost._tree.growth import Growth
from jboost._tree.levels import grow_by_level
from jboost._tree.proposing import grow_on_proposals, proposed_layout

Grown = tuple[Tree, Int[Array, " n"]]
FEW_CODES = 256  # of one byte: tables of them stay in the cache
CODES_PER_ROW = 2.5  # of all nodes, for each row of all levels, from which on sorted columns are faster


class Engine(NamedTuple):
    """One way to grow a tree; hashable, so that it is part of the compiled program.

    Attributes
    ----------
    name : str
        What it is, for people and for the caches of compiled programs.
    grow : function
        ``(columns, derivatives, active, rules, growth, key, reduce) -> (tree, leaf)``: a tree on the rows that are
        active (the others are only routed), and the leaf of every row, int32 [n]. `growth` (or None) constrains it,
        with a key for what it draws; `reduce` sums an array over the devices that hold the other rows, None if this
        one has all.
    grouped : bool
        Whether it wants the codes of up to eight columns side by side for each row, rather than [f n].
    sorted : bool
        Whether it wants the rows of each column by rising code, beside their codes: [f n 2].
    bundled : bool
        Whether it can read features in bundles.
    by_level : bool
        Whether JAX holds the histograms of a level, so that fits under `vmap` have theirs at the same time.
    """

    name: str
    grow: Callable[..., Grown]
    grouped: bool
    sorted: bool = False
    bundled: bool = False
    by_level: bool = False


def choose_engine(
    spec: Spec,
    growth: Growth | None = None,
    divided: bool = False,
    layout: Layout | None = None,
    n_rows: int = 0,
) -> Engine:
    """Return the fastest engine that can grow such trees here.

    Parameters
    ----------
    spec : Spec
        Shapes and choices of the fit.
    growth : Growth, optional
        Constraints, which the C++ library does not know; nor does it splits by the whole matrix of a full Hessian.
    divided : bool
        Whether the rows are divided among several devices.
    layout, n_rows : Layout and int, optional
        Of the columns, where codes may be many.
    """
    if layout is not None and spec.n_candidates is not None and spec.n_candidates < layout.n_codes - 1:
        engine = _engine_for(spec, growth, divided, proposed_layout(spec, layout), n_rows)
        name = f"{engine.name}, on candidates proposed for each tree"
        return Engine(name, grow_on_proposals(engine, arrange), grouped=False, by_level=engine.by_level)
    return _engine_for(spec, growth, divided, layout, n_rows)


def _engine_for(
    spec: Spec, growth: Growth | None, divided: bool, layout: Layout | None, n_rows: int
) -> Engine:
    if not library.in_use():
        return PLAIN
    on_cpu_alone = set(jax.extend.backend.backends()) == {"cpu"}
    if layout is not None and on_cpu_alone and _sorted_is_best(spec, growth, divided, layout, n_rows):
        return SORTED
    fits = layout is None or layout.n_codes <= native.MAX_CODES
    if not fits or not _whole_tree_supports(spec, growth, divided):
        return BY_LEVEL
    return WHOLE_TREE if on_cpu_alone else BY_PLATFORM


def arrange_on_host(engine: Engine, bins: Any, n_rows: int) -> Bins | Grouped:
    """Add rows up to `n_rows` to concrete bins [f n], and lay them out as the engine reads them."""
    host = np.asarray(bins)
    if engine.sorted:
        return as_array(sorted_columns.sort_on_host(host, n_rows))
    return as_array(native.group_on_host(host, n_rows) if engine.grouped else pad_axis(host, n_rows, axis=1))


def arrange(engine: Engine, bins: Bins) -> Bins | Grouped:
    """Lay traced bins [f n] out as the engine reads them."""
    if engine.sorted:
        return sorted_columns.sort_columns(bins)
    return native.group_columns(bins) if engine.grouped else bins


def _sorted_is_best(spec: Spec, growth: Growth | None, divided: bool, layout: Layout, n_rows: int) -> bool:
    """Say whether to look at each row on each level is possible, and takes less time than at each code of each node."""
    is_known = growth is None and not divided and not spec.crosses_outputs and not layout.categorical
    if spec.symmetric or not is_known or spec.max_depth > sorted_columns.MAX_DEPTH:
        return False
    codes, rows = layout.n_codes * 2**spec.max_depth, n_rows * spec.max_depth
    many = layout.n_codes > FEW_CODES and codes > CODES_PER_ROW * rows
    return (many or layout.n_codes > native.MAX_CODES) and sorted_columns.is_available()


def _whole_tree_supports(spec: Spec, growth: Growth | None, divided: bool) -> bool:
    is_known = growth is None and not divided and not spec.crosses_outputs
    return is_known and spec.max_depth <= native.MAX_DEPTH and native.is_available()


def _grow_whole(
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    growth: Growth | None = None,
    key: Array | None = None,
    reduce: Reduce | None = None,
) -> Grown:
    n_nodes = max(2**rules.spec.max_depth // 4, 1)
    check_size(columns.layout.n_codes, rules.factor.size, n_nodes, columns.allowed.shape[1])
    return native.grow_tree(columns, derivatives, active, rules)


def _grow_sorted(
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    growth: Growth | None = None,
    key: Array | None = None,
    reduce: Reduce | None = None,
) -> Grown:
    return sorted_columns.grow_sorted(columns, derivatives, active, rules)


def _grow_by_platform(
    columns: Columns,
    derivatives: GradientPairs,
    active: Bool[Array, " n"],
    rules: Rules,
    growth: Growth | None = None,
    key: Array | None = None,
    reduce: Reduce | None = None,
) -> Grown:
    """Grow the tree in C++ where the program runs on a CPU, in a process that has other devices too."""

    def on_cpu(columns: Columns, derivatives: GradientPairs, active: Any, rules: Rules) -> Grown:
        grouped = columns._replace(bins=native.group_columns(columns.bins))
        return _grow_whole(grouped, derivatives, active, rules)

    def by(grow: Callable[..., Grown]) -> Callable[..., Grown]:
        def call(bins: Any, allowed: Any, derivatives: GradientPairs, active: Any, rules: Rules) -> Grown:
            return grow(Columns(bins, allowed, columns.layout), derivatives, active, rules)

        return call

    arrays = columns.bins, columns.allowed, derivatives, active, rules
    return by_platform(*arrays, cpu=by(on_cpu), default=by(grow_by_level))


WHOLE_TREE = Engine("a whole tree in C++", _grow_whole, grouped=True, bundled=True)
SORTED = Engine("a whole tree in C++ from sorted columns", _grow_sorted, grouped=False, sorted=True)
BY_PLATFORM = Engine(
    "a whole tree in C++ on a CPU, by level elsewhere", _grow_by_platform, grouped=False, by_level=True
)
BY_LEVEL = Engine(
    "by level in JAX, with histograms and sums in C++",
    grow_by_level,
    grouped=False,
    bundled=True,
    by_level=True,
)
PLAIN = Engine("by level in plain JAX", grow_by_level, grouped=False, bundled=True, by_level=True)
