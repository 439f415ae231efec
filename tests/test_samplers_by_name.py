"""The samplers of `jboost.samplers`, held against their definitions and against probabilities."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import jboost
from jboost import Spec, losses, samplers
from jboost.samplers.by_gradient import threshold
from tests.sklearn_data import POSITIVE, WEIGHT, X, Y, classifier, regressor

N, TIMES = 60, 3000
STRATA = np.repeat(["a", "b", "c"], [40, 16, 4])
EVERY = {
    "bayesian_bootstrap": samplers.bayesian_bootstrap(),
    "bootstrap": samplers.bootstrap(0.5),
    "goss": samplers.goss(0.2, 0.3),
    "mvs": samplers.mvs(0.4),
    "stratified": samplers.stratified(STRATA, 0.25),
    "without_replacement": samplers.without_replacement(0.3),
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    weight = np.where(rng.random(N) < 0.2, 0.0, rng.uniform(0.5, 2, N))
    g, h = rng.standard_t(2, (N, 2)), rng.uniform(0.1, 1, (N, 2))
    return [jnp.asarray(one, jnp.float32) for one in (g, h, weight)]


@partial(jax.jit, static_argnames="times")
def drawn(sampler, g, h, weight, times=TIMES):
    keys = jax.random.split(jax.random.key(7), times)
    return jax.vmap(sampler, (0, None, None, None))(keys, g, h, weight)


def weights_of(name, rows):
    return np.asarray(drawn(EVERY[name], *rows), np.float64)


def assert_mean(values, expected):
    """Say that the mean over the draws is as expected, up to five of its standard errors."""
    error = values.std(axis=0) / np.sqrt(len(values))
    assert (np.abs(values.mean(axis=0) - expected) <= 5 * error + 1e-6).all()


@pytest.mark.parametrize("name", EVERY)
def test_only_rows_with_weight_are_drawn_and_padding_changes_nothing(name, rows):
    found = weights_of(name, rows)
    assert (found[:, np.asarray(rows[2]) == 0] == 0).all()
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    padded = [jnp.concatenate([one, jnp.ones_like(one[:20]) * (one.ndim > 1)]) for one in rows]
    again = np.asarray(drawn(EVERY[name], *padded, 50))
    np.testing.assert_array_equal(again[:, N:], 0)
    np.testing.assert_array_equal(again[:, :N] > 0, found[:50] > 0)
    np.testing.assert_allclose(again[:, :N], found[:50], rtol=1e-6)


@pytest.mark.parametrize("name", ["goss", "stratified"])
def test_the_definition_draws_the_same(name, rows):
    """In plain JAX, bit for bit, also where all rows have one size, so that lots are drawn."""
    given = jax.tree.map(lambda one: jnp.stack([one, jnp.ones_like(one)]), rows)
    found = jax.jit(jax.vmap(EVERY[name], (None, 0, 0, 0)))(jax.random.key(1), *given)
    with jboost.plain_jax():
        expected = jax.jit(jax.vmap(EVERY[name].__call__, (None, 0, 0, 0)))(jax.random.key(1), *given)
    np.testing.assert_array_equal(found, expected)


def test_rows_are_drawn_with_replacement_in_float64(x64):
    ones = jnp.ones(20)
    found = jax.jit(samplers.bootstrap())(jax.random.key(0), ones[:, None], ones[:, None], ones)
    assert (found.dtype, found.sum()) == (jnp.float64, 20)


def test_rows_are_drawn_with_equal_probability_and_exactly_so_many(rows):
    weight = np.asarray(rows[2], np.float64)
    there = weight > 0
    found = weights_of("without_replacement", rows)
    assert set(np.unique(found)) <= set(np.unique(weight))
    assert ((found > 0).sum(axis=1) == round(0.3 * there.sum())).all()
    assert_mean((found > 0)[:, there], round(0.3 * there.sum()) / there.sum())
    found = weights_of("stratified", rows)
    for stratum in "abc":
        member = there & (stratum == STRATA)
        expected = max(1, round(0.25 * member.sum()))
        assert ((found > 0)[:, member].sum(axis=1) == expected).all()
        assert_mean((found > 0)[:, member], expected / member.sum())


def test_with_replacement_counts_are_multinomial(rows):
    weight = np.asarray(rows[2], np.float64)
    there, n = weight > 0, (weight > 0).sum()
    times = weights_of("bootstrap", rows)[:, there] / weight[there]
    np.testing.assert_allclose(times, np.round(times), atol=1e-5)
    size = round(0.5 * n)
    np.testing.assert_allclose(times.sum(axis=1), size, rtol=1e-5)
    assert_mean(times, size / n)
    assert_mean((times - size / n) ** 2, size / n * (1 - 1 / n))


def test_weights_of_the_bayesian_bootstrap_are_exponential(rows):
    weight = np.asarray(rows[2], np.float64)
    there = weight > 0
    factor = (weights_of("bayesian_bootstrap", rows)[:, there] / weight[there]).ravel()
    assert stats.kstest(factor[:5000], "expon").pvalue > 1e-3
    as_they_are = drawn(samplers.bayesian_bootstrap(0.0), *rows, 2)
    np.testing.assert_array_equal(as_they_are, np.stack([rows[2]] * 2))


@pytest.mark.parametrize("name", ["goss", "mvs"])
@pytest.mark.parametrize("unit", [1e-25, 1.0, 1e25])
def test_sums_over_rows_drawn_by_gradient_are_right_on_average(name, unit, rows):
    g, h, weight = (np.asarray(one, np.float64) for one in rows)
    found = np.asarray(drawn(EVERY[name], rows[0] * unit, rows[1] * unit, rows[2]), np.float64)
    for values in (g[:, 0], h[:, 1], np.ones(N)):
        assert_mean(found @ values, weight @ values)
    alike = np.asarray(drawn(samplers.without_replacement(0.5 if name == "goss" else 0.4), *rows), np.float64)
    alike *= weight.sum() / alike.sum(axis=1, keepdims=True)
    assert (found @ g[:, 0]).std() < (alike @ g[:, 0]).std()


def test_goss_keeps_exactly_the_rows_with_the_largest_gradients(rows):
    g, _, weight = (np.asarray(one, np.float64) for one in rows)
    there, found = weight > 0, weights_of("goss", rows)
    n_top, n_other = round(0.2 * there.sum()), round(0.3 * there.sum())
    top = np.argsort(-np.abs(g).sum(axis=1) * weight)[:n_top]
    np.testing.assert_allclose(found[:, top], np.broadcast_to(weight[top], (TIMES, n_top)), rtol=1e-6)
    rest = np.setdiff1d(np.flatnonzero(there), top)
    others = found[:, rest] > 0
    assert (others.sum(axis=1) == n_other).all()
    more = np.broadcast_to(weight[rest] * len(rest) / n_other, others.shape)[others]
    np.testing.assert_allclose(found[:, rest][others], more, rtol=1e-6)


def test_gradients_of_one_size_are_chosen_by_lot():
    ones = jnp.ones((40, 1))
    found = np.asarray(
        drawn(samplers.goss(0.25, 0.25), jnp.where(ones.cumsum() % 2, 1.0, -1.0)[:, None], ones, ones[:, 0])
    )
    is_top = found == 1
    assert (is_top.sum(axis=1) == 10).all()
    assert_mean(is_top, 0.25)


def test_probabilities_of_mvs_are_those_of_the_theorem(rows):
    g, h, weight = (np.asarray(one, np.float64) for one in rows)
    step = (weight @ np.abs(g).sum(axis=1)) / (weight @ h.sum(axis=1))
    size = weight * np.sqrt((g**2 + 0.1 * (step * h) ** 2).sum(axis=1))
    wanted = 0.4 * (weight > 0).sum()
    mu = optimize.brentq(lambda mu: np.minimum(1, size / mu).sum() - wanted, 1e-9, 1e9)
    there = weight > 0
    p = np.minimum(1, size[there] / mu)
    found = weights_of("mvs", rows)[:, there]
    assert_mean(found > 0, p)
    np.testing.assert_allclose(found, np.where(found > 0, weight[there] / p, 0), rtol=1e-4)


def test_the_threshold_is_found_for_any_sizes(rng):
    sizes = rng.pareto(0.3, (50, 200)).astype(np.float32)
    sizes[0] = 1.0
    sizes[1, 1:] = 0.0
    found = np.asarray(jax.jit(jax.vmap(threshold, (0, None)))(sizes, 60.0), np.float64)
    totals = np.minimum(1, sizes / found[:, None]).sum(axis=1)
    np.testing.assert_allclose(np.delete(totals, 1), 60, rtol=1e-4)
    assert totals[1] == 1  # there is but one row to draw


def test_shares_may_be_traced_and_a_fit_uses_the_sampler(rows):
    shares = jnp.array([0.25, 0.5])
    many = jax.jit(jax.vmap(lambda share: samplers.without_replacement(share)(jax.random.key(0), *rows)))(
        shares
    )
    there = int((rows[2] > 0).sum())
    assert (many > 0).sum(axis=1).tolist() == [round(0.25 * there), round(0.5 * there)]
    values, data = rows[0], jboost.bin_features(np.asarray(rows[0]))
    fit = partial(
        jboost.fit, losses.squared_error, data, values[:, 1], spec=Spec(n_estimators=1, max_depth=1)
    )
    model, _ = fit(sampler=samplers.without_replacement(0.5))
    assert float(model.leaf_count.sum()) == N / 2
    with pytest.raises(ValueError, match="sampler must be for the 60 training rows, got one for 61 rows"):
        fit(sampler=samplers.stratified(np.zeros(61)))


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "share", "expected"),
    [
        slow("bayesian_bootstrap", 1.0, samplers.bayesian_bootstrap()),
        slow("bootstrap", 0.5, samplers.bootstrap(0.5)),
        ("goss", 1.0, samplers.goss()),
        slow("mvs", 0.5, samplers.mvs(0.5)),
        ("stratified", 0.5, samplers.stratified(POSITIVE, 0.5)),
        slow("without_replacement", 0.5, samplers.without_replacement(0.5)),
    ],
)
def test_estimators_take_samplers_by_name(name, share, expected):
    named = classifier(sampler=name, subsample=share, random_state=0).fit(X, POSITIVE, WEIGHT + 0.1)
    given = classifier(sampler=expected, random_state=0).fit(X, POSITIVE, WEIGHT + 0.1)
    np.testing.assert_array_equal(named.model_.leaf_value, given.model_.leaf_value)
    assert np.ptp(named.model_.leaf_value) > 0


@pytest.mark.slow
def test_a_search_draws_by_name_too():
    grid = {"learning_rate": [0.1, 0.5]}
    estimator = regressor(sampler="mvs", subsample=0.5, random_state=0)
    search = jboost.JBoostSearchCV(estimator, grid, n_iter=2, cv=2).fit(X, Y)
    again = jboost.JBoostSearchCV(
        regressor(sampler=samplers.mvs(0.5), random_state=0), grid, n_iter=2, cv=2
    ).fit(X, Y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"])
    with pytest.raises(ValueError, match=r"subsample must be 0\.5 in all settings"):
        jboost.JBoostSearchCV(estimator, {"subsample": [0.5, 0.7]}, n_iter=2, cv=2).fit(X, Y)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        samplers.mvs(0.0)
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        samplers.without_replacement(1.5)
    with pytest.raises(TypeError, match="share must be a real number"):
        samplers.bootstrap("half")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"top \+ other must be at most 1, got 0.6 \+ 0.5"):
        samplers.goss(0.6, 0.5)
    with pytest.raises(ValueError, match="temperature must be between 0"):
        samplers.bayesian_bootstrap(-1.0)
    with pytest.raises(ValueError, match=r"strata must have shape \[n\]"):
        samplers.stratified(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="strata must hold finite numbers or strings, got nan in row 1"):
        samplers.stratified([0.0, np.nan])
    with pytest.raises(
        ValueError, match=r"sampler must be a function, or one of 'bayesian_bootstrap', .*got 'gosh'"
    ):
        regressor(sampler="gosh").fit(X, Y)
    with pytest.raises(ValueError, match="sampler='stratified' needs a classifier"):
        regressor(sampler="stratified").fit(X, Y)
    with pytest.raises(ValueError, match=r"subsample must be 1 with sampler='goss', got 0\.5"):
        regressor(sampler="goss", subsample=0.5).fit(X, Y)
