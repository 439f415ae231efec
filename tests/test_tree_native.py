"""A tree in one call of the C++ library is the tree that grows level by level, bit for bit."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost import Hyper, Spec
from jboost._fixed_point import find_scale
from jboost._runtime import library
from jboost._runtime.typing import Layout
from jboost._spec import GrowPolicy
from jboost._split import Rules
from jboost._tree import Columns, GradientPairs, Tree, arrange_on_host, choose_engine, native
from jboost._tree.engines import WHOLE_TREE
from jboost._tree.levels import grow_by_level

CATEGORY_CODES = 16


@pytest.fixture(autouse=True)
def _needs_native() -> None:
    native_library.require(native.is_available)


@dataclass(frozen=True)
class Case:
    """A tree to grow; the rows follow from it."""

    n: int = 500
    f: int = 5
    codes: int = 40
    depth: int = 3
    policy: GrowPolicy = "symmetric"
    missing: bool = True
    categorical: tuple[int, ...] = ()
    k: int = 1
    active: float = 1.0  # share of the rows
    allowed: float = 1.0  # share of the columns at each level
    ties: bool = False  # gradients of which many are equal
    spec: dict[str, Any] = field(default_factory=dict)
    hyper: dict[str, float] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        n_category_codes = min(self.codes, CATEGORY_CODES) if self.categorical else 0
        return Layout(self.codes, self.missing, self.categorical, n_category_codes)


DEEP: dict[str, Any] = {"depth": 6, "n": 20_000, "f": 9, "codes": 256}
DEPTHWISE: dict[str, Any] = {"policy": "depthwise"}
CASES = {
    "one row": Case(n=1, f=1, codes=3, depth=1),
    "one row, three levels": Case(n=1, f=8, codes=3, **DEPTHWISE),
    "two rows": Case(n=2, f=3, codes=5, missing=False, hyper={"min_child_weight": 0.0}, **DEPTHWISE),
    "no row is active": Case(n=2, f=3, codes=3, active=0.0),
    "one column": Case(f=1, **DEPTHWISE),
    "some rows are inactive": Case(active=0.6, f=8, missing=False, **DEPTHWISE),
    "categories, by level": Case(categorical=(1, 3), active=0.8),
    "categories, by node": Case(
        n=2000, categorical=(0, 4), active=0.6, hyper={"cat_smooth": 0.0}, **DEPTHWISE
    ),
    "categories one by one": Case(codes=5, categorical=(0, 1, 2), missing=False, **DEPTHWISE),
    "two outputs": Case(k=2, hyper={"reg_alpha": 0.3, "gamma": 0.1}),
    "five outputs": Case(k=5, f=9, categorical=(8,), **DEPTHWISE),
    "rows of a child are counted": Case(spec={"min_child_samples": 20}, categorical=(2,), active=0.7),
    "and with two outputs": Case(spec={"min_child_samples": 9}, k=2, missing=False, **DEPTHWISE),
    "codes of two bytes": Case(
        n=3000, f=17, codes=700, categorical=(2,), active=0.6, hyper={"reg_lambda": 0.0}
    ),
    "equal gains": Case(n=300, f=17, codes=9, ties=True),
    "equal gains, by node": Case(n=300, f=9, codes=9, ties=True, missing=False, **DEPTHWISE),
    "columns drawn for a level": Case(f=17, depth=4, allowed=0.3, **DEPTHWISE),
    "many rows": Case(**DEEP, active=0.7),
    "many rows, by node": Case(**DEEP, missing=False, **DEPTHWISE),
    "as many rows of a block as 16 bits name": Case(n=9 * 2**16, f=2, codes=20, depth=7),
    "and some are inactive": Case(n=9 * 2**16, f=2, codes=20, depth=7, active=0.9, **DEPTHWISE),
}
DOUBLE = ("categories, by node", "two outputs", "equal gains")
QUICK = ("one row", "two rows", "some rows are inactive", "categories, by node", "two outputs", "equal gains")


def draw(case: Case, seed: int = 0, dtype: Any = np.float32) -> tuple[Any, ...]:
    """Make bins, allowed, statistics, active and rules, as a round of boosting has them."""
    rng = np.random.default_rng(seed)
    least = 0 if case.missing else 1
    bins = rng.integers(least, case.codes, (case.f, case.n))
    for column in case.categorical:
        bins[column] = rng.integers(least, case.layout.n_category_codes, case.n)
    target = (bins[0] > case.codes // 2) + np.isin(bins[-1], [1, 4, 6])
    g = rng.normal(size=(case.n, case.k)) - target[:, None]
    h = rng.uniform(0.1, 1.0, (case.n, case.k))
    if case.ties:
        g, h = np.sign(np.round(g)), np.ones_like(h)
    active = rng.random(case.n) < case.active
    derivatives = GradientPairs(*(jnp.asarray(values * active[:, None], dtype) for values in (g, h)))
    scale = jnp.stack([find_scale(values).factor for values in derivatives[:2]], axis=-1).reshape(-1)
    spec = Spec(max_depth=case.depth, grow_policy=case.policy, **case.spec)
    if spec.counts_rows:
        scale = jnp.append(scale, jnp.ones(1, dtype))
    hyper = jax.tree.map(lambda number: jnp.asarray(number, dtype), Hyper(**case.hyper))
    allowed = rng.random((case.depth, case.f)) < case.allowed
    bins = bins.astype(np.uint8 if case.codes <= 256 else np.uint16)
    return bins, allowed, derivatives, active, Rules(hyper, scale, spec)


@functools.partial(jax.jit, static_argnums=(0, 1))
def grow(twin: Any, layout: Layout, bins: Any, allowed: Any, *rest: Any) -> tuple[Tree, jax.Array]:
    bins = native.group_columns(bins) if twin is native.grow_tree else bins
    return twin(Columns(bins, allowed, layout), *rest)


def assert_same(found: Any, expected: Any) -> None:
    for (path, one), other in zip(
        jax.tree_util.tree_leaves_with_path(found), jax.tree.leaves(expected), strict=True
    ):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=jax.tree_util.keystr(path))


def check(case: Case, dtype: Any) -> None:
    arguments = draw(case, dtype=dtype)
    expected = grow(grow_by_level, case.layout, *arguments)
    assert_same(grow(native.grow_tree, case.layout, *arguments), expected)
    assert expected[0].gain.dtype == dtype
    if case.n * case.active > 2:
        assert np.count_nonzero(expected[0].gain) >= min(case.depth, 2)  # there was something to get wrong


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if name in QUICK else pytest.mark.slow)
        for name, case in CASES.items()
    ],
)
def test_equals_growth_by_level(case):
    check(case, np.float32)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "f"), [("symmetric", f) for f in (1, 4, 5, 8)] + [("depthwise", f) for f in (3, 4, 7, 9)]
)
def test_columns_added_in_pairs_give_the_same_tree(policy, f):
    """Up to 64 codes, many rows of each thread: from four columns on, the histograms are sums of joint ones."""
    with library.at_most(2):
        check(Case(n=60_000, f=f, codes=64, active=0.9, policy=policy), np.float32)


@pytest.mark.slow
def test_columns_added_in_pairs_with_few_codes_and_categories():
    case = Case(n=100_000, f=7, codes=17, depth=4, categorical=(1, 6), missing=False, **DEPTHWISE)
    with library.at_most(2):
        check(case, np.float32)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", DOUBLE)
def test_equals_growth_by_level_in_float64(name):
    check(CASES[name], np.float64)


# ------------------------------------------------------------------------------------------------- vmap


def sweep(case: Case, size: int) -> list[tuple[Any, ...]]:
    """Draw trees on the same bins: other hyperparameters, gradients, rows and columns."""
    trees = []
    for i in range(size):
        number = {
            "reg_lambda": 0.1 + i,
            "gamma": 0.2 * i,
            "min_child_weight": float(i % 3),
            "reg_alpha": 0.1 * i,
        }
        trees.append(draw(dataclasses.replace(case, active=0.9, hyper=number), seed=i))
    return [(trees[0][0], *tree[1:]) for tree in trees]


@pytest.mark.parametrize("size", [1, 3, 9])
def test_vmap_over_hyperparameters_equals_a_loop(size):
    """A few trees share the threads, one after the other; of many, each thread grows its own."""
    case = Case(n=2000, f=9, categorical=(1,))
    first, *_ = trees = sweep(case, size)
    hypers = [tree[-1].hyper for tree in trees]

    def with_hyper(hyper: Hyper) -> Any:
        return grow(native.grow_tree, case.layout, *first[:-1], dataclasses.replace(first[-1], hyper=hyper))

    found = jax.jit(jax.vmap(with_hyper))(jax.tree.map(lambda *numbers: jnp.stack(numbers), *hypers))
    for i, hyper in enumerate(hypers):
        rules = dataclasses.replace(first[-1], hyper=hyper)
        expected = grow(grow_by_level, case.layout, *first[:-1], rules)
        assert_same(jax.tree.map(lambda field, i=i: field[i], found), expected)
    gains = np.unique(np.asarray(found[0].gain), axis=0)
    assert len(gains) == size  # each had hyperparameters of its own


def test_nested_vmap_over_all_but_the_bins(rng):
    case = Case(n=2000, f=9, categorical=(1,))
    trees = sweep(case, 6)
    bins = trees[0][0]
    stacked = jax.tree.map(
        lambda *parts: jnp.stack(parts).reshape(2, 3, *jnp.shape(parts[0])), *(tree[1:] for tree in trees)
    )
    one = functools.partial(grow, native.grow_tree, case.layout, bins)
    found = jax.jit(jax.vmap(jax.vmap(one)))(*stacked)
    for i, tree in enumerate(trees):
        expected = grow(grow_by_level, case.layout, *tree)
        assert_same(jax.tree.map(lambda field, i=i: field[i // 3, i % 3], found), expected)


# ------------------------------------------------------------------------------------------------- threads


@pytest.mark.slow
def test_gives_the_same_to_several_python_threads():
    case = CASES["many rows"]
    arguments = [draw(case, seed) for seed in range(4)]
    expected = [grow(grow_by_level, case.layout, *one) for one in arguments]

    def repeat(i: int) -> list[Any]:
        return [jax.block_until_ready(grow(native.grow_tree, case.layout, *arguments[i])) for _ in range(5)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(repeat, [0, 1, 2, 3] * 2))
    for i, found in enumerate(results):
        for one in found:
            assert_same(one, expected[i % 4])


@pytest.mark.parametrize("name", ["many rows", "many rows, by node", "five outputs"])
def test_one_thread_gives_the_same_as_many(name):
    case = CASES[name]
    arguments = draw(case)
    many = grow(native.grow_tree, case.layout, *arguments)
    with library.at_most(1):
        alone = jax.block_until_ready(grow(native.grow_tree, case.layout, *arguments))
    assert_same(alone, many)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
@pytest.mark.parametrize("max_cat_to_onehot", [2, 3])
def test_missing_values_against_all_categories(policy, max_cat_to_onehot, rng):
    """Tried as a cut of its own, whether categories are sorted or taken one by one."""
    codes = rng.integers(0, 4, (1, 300)).astype(np.uint8)  # three categories
    is_missing = codes[0] == 0
    derivatives = GradientPairs(jnp.where(is_missing, -1.0, 0.5)[:, None], jnp.ones((300, 1)))
    scale = jnp.stack([find_scale(values).factor for values in derivatives[:2]], axis=-1).reshape(-1)
    hyper = jax.tree.map(jnp.float32, Hyper(reg_lambda=0.0))
    spec = Spec(max_depth=1, grow_policy=policy, max_cat_to_onehot=max_cat_to_onehot)
    rest = (codes, np.ones((1, 1), bool), derivatives, np.ones(300, bool), Rules(hyper, scale, spec))
    layout = Layout(4, True, (0,), 4)
    tree, leaf = grow(native.grow_tree, layout, *rest)
    assert_same((tree, leaf), grow(grow_by_level, layout, *rest))
    np.testing.assert_array_equal(leaf, is_missing)
    mean = 0.5 - 1.5 * is_missing.mean()
    gain = (is_missing.sum() * 1.0 + (~is_missing).sum() * 0.25 - 300 * mean**2) / 2
    np.testing.assert_allclose(tree.gain, [gain], rtol=1e-5)


# ------------------------------------------------------------------------------------------------- groups


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("f", [1, 7, 8, 9, 17])
def test_columns_are_grouped(f, dtype, rng):
    """Column c is the one at c mod width of group c // width; what is left over is 0, and so are added rows."""
    bins = rng.integers(1, 200, (f, 20000)).astype(dtype)  # enough of the wider ones for several threads
    n_groups = -(-f // 8)
    width = -(-f // n_groups)
    expected = np.zeros((n_groups, 20003, width), dtype)
    for column in range(f):
        expected[column // width, :20000, column % width] = bins[column]
    np.testing.assert_array_equal(native.group_on_host(bins, 20003), expected)
    np.testing.assert_array_equal(native.group_on_host(np.asfortranarray(bins), 20003), expected)
    np.testing.assert_array_equal(jax.jit(native.group_columns)(bins), expected[:, :20000])
    with library.at_most(1):
        np.testing.assert_array_equal(native.group_on_host(bins, 20000), expected[:, :20000])
    few = native.group_on_host(bins[:, :11], 11)
    np.testing.assert_array_equal(few, expected[:, :11])


@pytest.mark.parametrize("name", ["five outputs", "codes of two bytes", "many rows"])
def test_arranged_bins_give_the_same_tree(name):
    if choose_engine(Spec()) != WHOLE_TREE:
        pytest.skip("bins are arranged in groups only where there is nothing but a CPU")
    case = CASES[name]
    bins, allowed, derivatives, active, rules = draw(case)
    expected = grow(native.grow_tree, case.layout, bins, allowed, derivatives, active, rules)
    arranged = arrange_on_host(WHOLE_TREE, bins, case.n + 40)
    assert arranged.ndim == 3
    longer = [jnp.pad(values, ((0, 40), (0, 0)), constant_values=7) for values in derivatives[:2]]
    more = (GradientPairs(*longer), np.pad(active, (0, 40)))
    tree, leaf = grow(WHOLE_TREE.grow, case.layout, arranged, allowed, *more, rules)
    assert_same((tree, leaf[: case.n]), expected)
