"""Exact greedy split finding: every distinct value a candidate, by tables of many codes or from sorted columns."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from test_tree_native import Case, assert_same, draw

import jboost
from jboost import Hyper, Spec, losses
from jboost._runtime.typing import Layout
from jboost._tree import Columns, arrange, choose_engine, sorted_columns
from jboost._tree.engines import BY_LEVEL, PLAIN, SORTED, WHOLE_TREE
from jboost._tree.levels import grow_by_level
from tests.twin import same_structure

SPEC = Spec(n_estimators=3, max_depth=2, grow_policy="depthwise", penalties="absolute")
HYPER = Hyper(learning_rate=0.5, reg_lambda=1.0, min_child_weight=1.0)


def many_values(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make two columns of n different numbers, some missing, and a target that jumps between two of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    X[rng.random((n, 2)) < 0.05] = np.nan
    return X, np.where(X[:, 0] > 1.0, 3.0, 0.0) + np.where(X[:, 1] > -0.5, 1.0, 0.0) + rng.normal(size=n)


# ------------------------------------------------------------------------------------------------- one tree

CASES = {
    "a tree": Case(codes=400),
    "one row": Case(n=1, f=2, codes=3, depth=2),
    "a stump": Case(n=70, codes=90, depth=1),
    "two rows": Case(n=2, f=3, codes=5, missing=False, hyper={"min_child_weight": 0.0}),
    "no row is active": Case(n=3, f=2, codes=4, active=0.0),
    "rows that are only routed": Case(n=900, active=0.6, f=9, codes=300, missing=False, depth=4),
    "two outputs, rows counted": Case(
        k=2, codes=300, spec={"min_child_samples": 9}, hyper={"reg_alpha": 0.3}
    ),
    "equal gains": Case(n=300, f=17, codes=9, ties=True, hyper={"gamma": 0.1}),
    "columns drawn for a level": Case(f=17, depth=4, allowed=0.3, codes=500),
    "many rows": Case(n=20_000, f=9, codes=5_000, depth=5, active=0.9),
}


QUICK = ("a tree", "a stump")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *(pytest.param(name, np.float32, marks=() if name in QUICK else pytest.mark.slow) for name in CASES),
        pytest.param("two outputs, rows counted", np.float64, marks=pytest.mark.slow),
    ],
)
def test_a_tree_from_sorted_columns_is_the_one_grown_by_level(name, dtype):
    native_library.require(sorted_columns.is_available)
    with jax.enable_x64(dtype == np.float64):
        case = dataclasses.replace(CASES[name], policy="depthwise")
        bins, allowed, derivatives, active, rules = draw(case, dtype=dtype)
        rest = derivatives, active, rules

        def grow(engine: Any, bins: Any) -> Any:
            def one(bins: Any, allowed: Any, *rest: Any) -> Any:
                return engine(Columns(bins, allowed, case.layout), *rest)

            return jax.jit(one)(bins, allowed, *rest)

        sorted_rows = jax.jit(sorted_columns.sort_columns)(bins)
        assert_same(grow(SORTED.grow, sorted_rows), grow(grow_by_level, bins))
        np.testing.assert_array_equal(sorted_columns.sort_on_host(bins, case.n), sorted_rows)


def test_the_engine_follows_from_the_codes():
    native_library.require(sorted_columns.is_available)
    deep = dataclasses.replace(SPEC, max_depth=6)
    of_all_values = Layout(10_016, False)
    assert choose_engine(deep, layout=of_all_values, n_rows=10_000) == SORTED
    assert choose_engine(deep, layout=of_all_values, n_rows=10**7) == WHOLE_TREE
    assert choose_engine(deep, layout=Layout(256, True), n_rows=100) == WHOLE_TREE
    wide = Layout(70_016, True)
    assert choose_engine(deep, layout=wide, n_rows=10**9) == SORTED
    assert choose_engine(dataclasses.replace(deep, grow_policy="symmetric"), layout=wide) == BY_LEVEL
    assert choose_engine(deep, layout=wide._replace(categorical=(0,)), n_rows=9) == BY_LEVEL
    with jboost.plain_jax():
        assert choose_engine(deep, layout=wide) == PLAIN
    assert arrange(SORTED, jnp.ones((3, 5), jnp.uint8)).shape == (3, 5, 2)


# ------------------------------------------------------------------------------------------------- whole fits


def brute_force(X: np.ndarray, y: np.ndarray, reg_lambda: float) -> tuple[float, int, float, bool]:
    """Try every value of every column, and both sides for missing values; gain, column, value, side."""
    g, best = y - y.mean(), (0.0, 0, 0.0, False)
    n = len(y)
    for j, column in enumerate(X.T):
        known = np.flatnonzero(~np.isnan(column))
        order = known[np.argsort(column[known])]
        values, missing = column[order], (g[np.isnan(column)].sum(), np.isnan(column).sum())
        for side in (False, True):
            G = np.cumsum(g[order]) + (0 if side else missing[0])
            H = np.arange(1, len(order) + 1) + (0 if side else missing[1])
            with np.errstate(divide="ignore", invalid="ignore"):
                gain = 0.5 * (
                    G**2 / (H + reg_lambda)
                    + (g.sum() - G) ** 2 / (n - H + reg_lambda)
                    - g.sum() ** 2 / (n + reg_lambda)
                )
            gain[np.append(values[1:] == values[:-1], H[-1] == n)] = -np.inf
            i = int(gain.argmax())
            best = max(best, (float(gain[i]), j, float(values[i]), side))
    return best


@pytest.mark.parametrize(
    ("n", "policy"),
    [
        pytest.param(500, "symmetric", marks=pytest.mark.slow),
        (70_000, "depthwise"),
        pytest.param(70_000, "symmetric", marks=pytest.mark.slow),
    ],
)
def test_the_first_split_is_that_of_brute_force(n, policy, x64):
    X, y = many_values(n)
    data = jboost.bin_features(X, max_bins="exact")
    assert data.bins.dtype == (np.uint32 if n == 70_000 else np.uint16)
    assert data.edges.n_codes > 65_536 or n == 500
    spec = dataclasses.replace(SPEC, n_estimators=1, grow_policy=policy)
    model, _ = jboost.fit(losses.squared_error, data, y, spec=spec, hyper=HYPER)
    gain, column, value, side = brute_force(X, y, 1.0)
    first = jax.tree.map(lambda array: np.asarray(array)[0, 0], model.trees)
    assert first.feature == column
    assert bool(first.missing_right) == side
    np.testing.assert_allclose(first.gain, gain, rtol=1e-6)
    above = np.nanmin(X[:, column][X[:, column] > value])
    assert value <= data.edges.exact[column, first.threshold - 1] < above
    np.testing.assert_allclose(jboost.predict(model, X), jboost.predict(model, data), rtol=1e-12)


@pytest.mark.parametrize("n", [600, pytest.param(70_000, marks=pytest.mark.slow)])
def test_depthwise_trees_are_those_of_xgboosts_exact(n, x64):
    xgboost = pytest.importorskip("xgboost", reason="the peer is not installed")
    X, y = many_values(n)
    X = X.astype(np.float32)
    spec = dataclasses.replace(SPEC, max_depth=3, n_estimators=3)
    model, _ = jboost.fit(
        losses.squared_error, jboost.bin_features(X, max_bins="exact"), y, spec=spec, hyper=HYPER
    )
    data = xgboost.DMatrix(X, y, base_margin=np.full(n, float(model.base[0])))
    parameters = {"tree_method": "exact", "max_depth": 3, "eta": 0.5, "nthread": 1}
    peer = xgboost.train(parameters, data, 3).predict(data, output_margin=True)
    np.testing.assert_allclose(jboost.predict(model, X), peer, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_engines_agree_under_jit_and_vmap_and_in_plain_jax():
    X, y = many_values(300)
    data = jboost.bin_features(X, max_bins="exact")
    model, _ = jboost.fit(losses.squared_error, data, y, spec=SPEC, hyper=HYPER)
    with jboost.plain_jax():
        plain, _ = jboost.fit(losses.squared_error, data, y, spec=SPEC, hyper=HYPER)
    assert same_structure(model, plain)

    def fit(reg_lambda):
        hyper = dataclasses.replace(HYPER, reg_lambda=reg_lambda)
        return jboost.fit(losses.squared_error, data, y, spec=SPEC, hyper=hyper)[0]

    batch = jax.jit(jax.vmap(fit))(jnp.array([1.0, 50.0]))
    assert same_structure(jax.tree.map(lambda array: array[0], batch), model)
    np.testing.assert_allclose(batch.leaf_value[0], model.leaf_value, rtol=1e-5, atol=1e-6)


def test_a_bin_for_each_value_and_the_way_to_a_file(tmp_path):
    X, y = many_values(70_000)
    data = jboost.bin_features(X, max_bins="exact")
    codes = np.asarray(data.bins)
    for j in range(2):
        known = ~np.isnan(X[:, j])
        np.testing.assert_array_equal(codes[j, known], np.unique(X[known, j], return_inverse=True)[1] + 1)
        assert not codes[j, ~known].any()
    again = jboost.bin_features(X[:10], max_bins="exact", edges=data.edges)
    np.testing.assert_array_equal(again.bins, codes[:, :10])
    model, _ = jboost.fit(
        losses.squared_error, data, y, spec=dataclasses.replace(SPEC, n_estimators=1, max_depth=1)
    )
    file = tmp_path / "exact.jboost"
    jboost.save(model, file)
    np.testing.assert_array_equal(jboost.predict(jboost.load(file), X[:50]), jboost.predict(model, X[:50]))


def test_an_estimator_takes_it_and_others_are_refused():
    X, y = many_values(300)
    model = jboost.JBoostRegressor(n_estimators=2, max_bins="exact").fit(X, y)
    assert model.model_.edges.n_codes > 256
    assert model.predict(X).shape == (300,)
    for bad, error in (("all", ValueError), (1, ValueError), (65_535, ValueError), (2.0, TypeError)):
        with pytest.raises(error, match=r"max_bins must be .*'exact'"):
            jboost.bin_features(X, max_bins=bad)  # pyright: ignore[reportArgumentType]
