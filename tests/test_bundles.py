"""Features in bundles: joint codes that say what the codes said, and trees that are the same, bit for bit."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost._bins import Bundles, joining
from jboost._bins.bundling import find_bundles
from jboost._fixed_point import find_scale
from jboost._histogram import build_histogram
from jboost._model.ensemble import edges_layout
from jboost._spec import Hyper, Spec
from jboost._split import Rules
from jboost._tree import Columns, GradientPairs, arrange_on_host, bundled_on_host, bundles, native
from jboost._tree.bundles import own_histograms
from jboost._tree.engines import PLAIN, WHOLE_TREE

N, DEPTH = 5000, 2
CATEGORICAL = (23, 24)


def one_hot(rng: Any, n: int, k: int) -> np.ndarray:
    return np.eye(k)[rng.integers(k, size=n)]


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """Make one-hot columns, columns of zeros and ones, numbers, numbers with gaps, a constant and categories."""
    rng = np.random.default_rng(1)
    hot, two = one_hot(rng, N, 10), (rng.random((N, 8)) < 0.1).astype(float)
    few = rng.integers(3, size=(N, 2)).astype(float)
    few[rng.random(few.shape) < 0.1] = np.nan
    parts = hot, two, rng.normal(size=(N, 2)), few, np.ones((N, 1)), rng.integers(5, size=(N, 2))
    X = np.hstack(parts)
    signal = 3 * hot[:, 0] + 4 * two[:, 0] + 4 * two[:, 1] + np.isnan(few[:, 0]) + (X[:, 23] == 3)
    y = signal + 0.3 * X[:, 18] > 1.5
    return X, y.astype(float)


@pytest.fixture(scope="module")
def data(rows) -> jboost.Binned:
    return jboost.bin_features(rows[0], max_bins=100, categorical=list(CATEGORICAL))


def found_in(data: jboost.Binned) -> Bundles:
    assert data.bundles is not None
    return data.bundles


def check(found: Bundles, bins: np.ndarray) -> None:
    """Compare with the codes, row by row, and with the combinations that there are."""
    assert sorted(sum(found.features, ())) == list(range(len(bins)))
    for column, members in enumerate(found.features):
        for j in members:
            assert np.array_equal(found.code[j][found.joint[column]], bins[j])
        if len(members) > 1:
            assert found.n_joint[column] == len({*map(tuple, bins[list(members)].T.tolist())}) <= 256


# ------------------------------------------------------------------------------------------ joint codes


@pytest.mark.parametrize("join", [joining.joined, joining.joined_in_cpp])
def test_joint_codes_number_the_pairs_that_occur(join, rng):
    if join is joining.joined_in_cpp:
        native_library.require(joining.is_available)
    for n, sizes in ((1, (1, 1)), (50, (3, 7)), (300_000, (256, 1)), (300_000, (16, 16)), (9000, (200, 30))):
        first, second = (rng.integers(size, size=n).astype(np.uint8) for size in sizes)
        pairs = sorted({*zip(first.tolist(), second.tolist(), strict=True)})
        found = join(first, second, *sizes)
        if len(pairs) > 256:
            assert found is None
            continue
        assert [divmod(pair, sizes[1]) for pair in found.pairs.tolist()] == pairs
        assert np.array_equal(found.pairs[found.codes], first.astype(int) * sizes[1] + second)


def test_a_pair_that_comes_late_is_one_too_many():
    first, second = (codes.astype(np.uint8) for codes in np.divmod(np.arange(300_000) % 256, 16))
    second[-1] = 16
    join = joining.joined_in_cpp if joining.is_available() else joining.joined
    assert join(first, second, 16, 17) is None is joining.joined(first, second, 16, 17)
    fewer = join(first[:-1], second[:-1], 16, 17)
    assert fewer is not None
    assert fewer.pairs.size == 256


# ------------------------------------------------------------------------------------------ what is found


def test_one_hot_columns_are_bundled_as_one(rng):
    hot = np.hstack([one_hot(rng, 4000, 100), one_hot(rng, 4000, 300)])
    data = jboost.bin_features(hot)
    check(found_in(data), np.asarray(data.bins))
    assert len(found_in(data).n_joint) == 3  # 100 and 300 codes, at most 256 a column
    exclusive = np.where(rng.random((4000, 1)) < 0.5, hot[:, :100], 0) * rng.integers(1, 3, (4000, 1))
    alone = found_in(jboost.bin_features(exclusive))
    assert alone.features == (tuple(range(100)),)
    assert alone.n_joint.tolist() == [201]  # two codes for each column, and one for rows of zeros


def test_columns_of_two_values_fit_together(rng):
    bins = np.asarray(jboost.bin_features((rng.random((20_000, 16)) < 0.5).astype(float)).bins)
    found = find_bundles(bins, 16)
    assert found is not None
    check(found, bins)
    assert found.n_joint.tolist() == [256, 256]


def test_mixed_columns_keep_their_codes(data):
    check(found_in(data), np.asarray(data.bins))
    assert len(found_in(data).n_joint) <= 6


@pytest.mark.parametrize(
    "shape", ["one column", "all distinct", "constant", "one row", "two bytes", "few saved"]
)
def test_odd_columns(shape, rng):
    normal = rng.normal(size=(2000, 12))
    X = {
        "one column": normal[:, :1],
        "all distinct": normal,
        "constant": np.ones((2000, 5)),
        "one row": normal[:1],
        "two bytes": np.hstack([normal[:, :1], one_hot(rng, 2000, 9)]),
        "few saved": np.hstack([normal, one_hot(rng, 2000, 6)]),
    }[shape]
    data = jboost.bin_features(X, max_bins=1000 if shape == "two bytes" else 255)
    if shape in ("constant", "one row"):
        assert found_in(data).features == (tuple(range(X.shape[1])),)
        assert found_in(data).n_joint.tolist() == [1]
    else:
        assert data.bundles is None


def test_codes_that_the_edges_do_not_know_are_not_bundled():
    data = jboost.bin_features(np.eye(4)[np.arange(100) % 4])
    assert jboost.Binned(data.bins * 9, data.edges, False).bundles is None
    assert jboost.Binned(data.bins, data.edges, False).bundles is not None


def test_traced_rows_have_none_and_copies_find_their_own(data):
    assert jax.eval_shape(lambda one: jnp.full((), one.bundles is None), data).dtype == bool
    assert jax.jit(lambda one: jnp.asarray(one.bundles is None))(data)
    for other in (copy.copy(data), pickle.loads(pickle.dumps(data))):
        check(found_in(other), np.asarray(data.bins))


def test_they_are_used_where_they_pay(data):
    assert bundles.bundles_that_pay(data, DEPTH) is data.bundles
    assert bundles.bundles_that_pay(data, 12) is None  # more cells than rows
    few = jboost.bin_features(np.eye(5)[np.arange(100) % 5])
    assert bundles.bundles_that_pay(few, 1) is None
    assert "bundles" not in vars(few)  # nobody looked for them
    problem, _ = jboost.boosting.init(
        jboost.losses.squared_error, data, np.arange(N) % 7.0, spec=Spec(max_depth=DEPTH)
    )
    assert problem.bundling is not None
    assert problem.bins.size <= 8 * 1.25 * N


# ------------------------------------------------------------------------------------------ histograms and trees


def test_histograms_are_those_of_the_codes(data, rng):
    values = jnp.asarray(rng.integers(-9, 9, (N, 3)), jnp.int32)
    slot = jnp.asarray(rng.integers(0, 3, N), jnp.int32)
    bundled = bundled_on_host(found_in(data), N, grouped=False)

    @jax.jit
    def both(values, slot, bins, bundled):
        joint, n_codes = build_histogram(bundled[0], slot, values, 2, 256), data.edges.n_codes
        return own_histograms(bundled[1], joint, n_codes), build_histogram(bins, slot, values, 2, n_codes)

    found, wanted = both(values, slot, data.bins, bundled)
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize(
    ("engine", "policy"),
    [
        (WHOLE_TREE, "symmetric"),
        (WHOLE_TREE, "depthwise"),
        pytest.param(PLAIN, "symmetric", marks=pytest.mark.slow),
        (PLAIN, "depthwise"),
    ],
    ids=["C++-symmetric", "C++-depthwise", "plain-symmetric", "plain-depthwise"],
)
def test_trees_are_the_same(engine, policy, data, rows, rng):
    """With rows that are left out, rows counted, columns not allowed; for two outputs, and in C++ for one by vmap."""
    reference = WHOLE_TREE if native.is_available() else PLAIN
    if engine is WHOLE_TREE:
        native_library.require(native.is_available)
    y, active = rows[1], jnp.asarray(rng.random(N) < 0.7)
    g = jnp.asarray(np.stack([0.4 - y, y * rows[0][:, 18]], axis=1), jnp.float32) * active[:, None]
    h = jnp.asarray(rng.uniform(1, 2, (N, 2)), jnp.float32) * active[:, None]
    allowed = jnp.asarray(rng.random((DEPTH, data.bins.shape[0])) < 0.8)
    spec = Spec(max_depth=DEPTH, grow_policy=policy, min_child_samples=5)
    hyper = jax.tree.map(jnp.float32, Hyper())
    factors = jnp.append(jnp.stack([find_scale(one).factor for one in (g, h)], axis=1).reshape(-1), 1.0)
    layout = edges_layout(data.edges, data.has_missing)

    def grow(engine, found):
        @jax.jit
        def together(bins, bundling, g, h):
            columns = Columns(bins, allowed, layout, bundling)
            both = engine.grow(columns, GradientPairs(g, h), active, Rules(hyper, factors, spec))
            rules = Rules(hyper, factors[jnp.array([0, 1, 4])], spec)

            def one(g, h):
                return engine.grow(columns, GradientPairs(g[:, None], h[:, None]), active, rules)

            return both, jax.vmap(one, in_axes=1)(g[:, :1], h[:, :1]) if engine is WHOLE_TREE else None

        if found is None:
            return together(arrange_on_host(engine, data.bins, N), None, g, h)
        return together(*bundled_on_host(found, N, engine.grouped), g, h)

    wanted, found = grow(reference, None), grow(engine, data.bundles)
    for one, other in zip(
        *(jax.tree.leaves(tree if engine is WHOLE_TREE else tree[0]) for tree in (wanted, found)), strict=True
    ):
        assert np.array_equal(one, other)
    feature = np.asarray(found[0][0].feature)
    assert (feature < 18).any()  # in a bundle


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_models_and_importances_are_the_same(policy, data, rows, monkeypatch):
    native_library.require(native.is_available)
    X, y = rows
    weight = np.where(np.arange(N) % 10, 1.5, 0.0)
    spec = Spec(n_estimators=5, max_depth=DEPTH, grow_policy=policy)

    def fit() -> Any:
        return jboost.fit(
            jboost.losses.logistic, data, y, spec=spec, sample_weight=weight, valid=(X[:500], y[:500]),
            hyper=Hyper(subsample=0.8, colsample_bytree=0.7),
        )  # fmt: skip

    found = fit()
    monkeypatch.setattr(bundles, "FEWEST_ROWS", N + 1)
    wanted = fit()
    for one, other in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        assert np.array_equal(one, other)
    importances = [jboost.explain.importance(model).value for model, _ in (found, wanted)]
    assert np.array_equal(importances[0], importances[1])
    assert np.count_nonzero(importances[0][:18]) > 2
