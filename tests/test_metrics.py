"""Metrics against scikit-learn's: on raw scores, with weights, under jit; weightless rows do not count."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as peer
from scipy.special import expit
from scipy.special import softmax as scipy_softmax

from jboost import losses, metrics
from jboost.metrics import Metric, as_metric

N = 300
RNG = np.random.default_rng(0)
WEIGHT = RNG.exponential(size=N) * (RNG.uniform(size=N) < 0.8)
SCORE = RNG.normal(size=N)
SCORES = RNG.normal(size=(N, 3))
REAL = SCORE + RNG.normal(size=N)
THREE = SCORES + RNG.normal(size=(N, 3))
BINARY = (RNG.uniform(size=N) < expit(SCORE)).astype(float)
LABEL = RNG.integers(0, 3, N)
COUNT = RNG.poisson(np.exp(SCORE)).astype(float)
AMOUNT = RNG.gamma(2.0, np.exp(SCORE))
TIED = np.round(SCORE * 2) / 2

# metric, score, y, scikit-learn's value by (y, score, sample_weight=)
CASES: dict[str, tuple[Metric, np.ndarray, np.ndarray, Any]] = {
    "rmse": (metrics.rmse, SCORE, REAL, peer.root_mean_squared_error),
    "rmse_of_three": (metrics.rmse, SCORES, THREE, peer.root_mean_squared_error),
    "mae": (metrics.mae, SCORE, REAL, peer.mean_absolute_error),
    "mae_of_three": (metrics.mae, SCORES, THREE, peer.mean_absolute_error),
    "r2": (metrics.r2, SCORE, REAL, peer.r2_score),
    "r2_of_three": (metrics.r2, SCORES, THREE, peer.r2_score),
    "pinball_loss": (
        metrics.pinball_loss(0.8),
        SCORE,
        REAL,
        lambda y, s, **w: peer.mean_pinball_loss(y, s, alpha=0.8, **w),
    ),
    "logloss": (metrics.logloss, SCORE, BINARY, lambda y, s, **w: peer.log_loss(y, expit(s), **w)),
    "multi_logloss": (
        metrics.multi_logloss,
        SCORES,
        LABEL,
        lambda y, s, **w: peer.log_loss(y, scipy_softmax(s, axis=1), **w),
    ),
    "accuracy": (metrics.accuracy, SCORE, BINARY, lambda y, s, **w: peer.accuracy_score(y, s > 0, **w)),
    "accuracy_of_three": (
        metrics.accuracy,
        SCORES,
        LABEL,
        lambda y, s, **w: peer.accuracy_score(y, s.argmax(1), **w),
    ),
    "roc_auc": (metrics.roc_auc, SCORE, BINARY, peer.roc_auc_score),
    "roc_auc_with_ties": (metrics.roc_auc, TIED, BINARY, peer.roc_auc_score),
    "roc_auc_of_a_constant": (metrics.roc_auc, np.zeros(N), BINARY, peer.roc_auc_score),
    "poisson_deviance": (
        metrics.poisson_deviance,
        SCORE,
        COUNT,
        lambda y, s, **w: peer.mean_poisson_deviance(y, np.exp(s), **w),
    ),
    "gamma_deviance": (
        metrics.gamma_deviance,
        SCORE,
        AMOUNT,
        lambda y, s, **w: peer.mean_gamma_deviance(y, np.exp(s), **w),
    ),
    "tweedie_deviance": (
        metrics.tweedie_deviance(1.4),
        SCORE,
        COUNT,
        lambda y, s, **w: peer.mean_tweedie_deviance(y, np.exp(s), power=1.4, **w),  # pyright: ignore[reportArgumentType]
    ),
    "mean_loss": (
        metrics.mean_loss(losses.squared_error),
        SCORE,
        REAL,
        lambda y, s, **w: peer.mean_squared_error(y, s, **w) / 2,
    ),
}
each_case = pytest.mark.parametrize(("metric", "score", "y", "theirs"), CASES.values(), ids=CASES)


@each_case
def test_value_matches_scikit_learn(metric, score, y, theirs, precision):
    run = jax.jit(metric.function)
    for weight in (np.ones(N), WEIGHT):
        value = run(jnp.asarray(score), jnp.asarray(y), jnp.asarray(weight))
        expected = theirs(y, score, sample_weight=weight)
        assert value.shape == ()
        assert value.dtype == precision
        np.testing.assert_allclose(value, expected, rtol=1e-10 if precision is np.float64 else 2e-5)


@each_case
def test_rows_without_weight_do_not_count(metric, score, y, theirs):
    run = jax.jit(metric.function)
    value = run(jnp.asarray(score), jnp.asarray(y), jnp.asarray(WEIGHT))
    used = WEIGHT > 0
    for filler in (0, 1e4):
        padded_score, padded_y = score.copy(), y.copy()
        padded_score[~used], padded_y[~used] = filler, 0
        padded = run(jnp.asarray(padded_score), jnp.asarray(padded_y), jnp.asarray(WEIGHT))
        np.testing.assert_allclose(padded, value, rtol=3e-7)  # sorted otherwise, sums round otherwise
    dropped = run(jnp.asarray(score[used]), jnp.asarray(y[used]), jnp.asarray(WEIGHT[used]))
    np.testing.assert_allclose(value, dropped, rtol=1e-5)


@each_case
def test_metrics_pickle_to_equal_ones(metric, score, y, theirs):
    restored = pickle.loads(pickle.dumps(metric))
    assert restored == metric
    assert hash(restored) == hash(metric)


def test_more_is_better_where_it_says_so():
    said = {name for name, case in CASES.items() if case[0].maximize}
    assert {name.split("_of_")[0].split("_with_")[0] for name in said} == {"r2", "accuracy", "roc_auc"}


@pytest.mark.parametrize("name", ["logloss", "multi_logloss", "poisson_deviance", "tweedie_deviance"])
def test_large_scores_stay_finite(name):
    metric, score, y, _ = CASES[name]
    size = 1e4 if "logloss" in name else 40.0
    for sign in (-1, 1):
        scores = jnp.full(score.shape, sign * size).at[:1].multiply(-1)
        assert np.isfinite(metric(scores, jnp.asarray(y), jnp.asarray(WEIGHT)))


def test_targets_of_zero_and_perfect_scores():
    zeros, ones = jnp.zeros(4), jnp.ones(4)
    np.testing.assert_allclose(metrics.poisson_deviance(jnp.full(4, -30.0), zeros, ones), 0, atol=1e-9)
    np.testing.assert_allclose(metrics.tweedie_deviance(1.5)(jnp.full(4, -60.0), zeros, ones), 0, atol=1e-9)
    y = jnp.array([0.5, 1.0, 2.0, 3.0])
    for metric in (metrics.poisson_deviance, metrics.gamma_deviance, metrics.tweedie_deviance(1.5)):
        np.testing.assert_allclose(metric(jnp.log(y), y, ones), 0, atol=1e-6)


@pytest.mark.parametrize("y", [0.1, 1e6 + 0.1, 0.0])
def test_r2_of_a_constant_target(y):
    y, weight = jnp.full(1000, y), jnp.asarray(RNG.uniform(size=1000))
    assert metrics.r2(y, y, weight) == 1
    assert metrics.r2(y + 1, y, weight) == 0


def test_roc_auc_of_many_rows_is_exact_in_float32():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 1000, 200_000).astype(np.float32)
    y = (rng.uniform(size=score.size) < 0.01).astype(np.float32)
    value = jax.jit(metrics.roc_auc.function)(score, y, np.ones_like(score))
    np.testing.assert_allclose(value, peer.roc_auc_score(y, score), rtol=3e-7)


@pytest.mark.slow
def test_metrics_under_vmap_and_grad(x64):
    score, y, weight = jnp.asarray(SCORE), jnp.asarray(BINARY), jnp.asarray(WEIGHT)
    both = jax.vmap(metrics.roc_auc.function, in_axes=(0, None, None))(jnp.stack([score, -score]), y, weight)
    np.testing.assert_allclose(both[0] + both[1], 1, rtol=1e-12)
    grad = jax.grad(metrics.logloss.function)(score, y, weight)
    np.testing.assert_allclose(grad, WEIGHT * (expit(SCORE) - BINARY) / WEIGHT.sum(), rtol=1e-9, atol=1e-12)


def test_mean_loss_takes_functions_and_pytrees():
    metric = metrics.mean_loss(lambda s, y: y["exposure"] * jnp.exp(s) - y["count"] * s)
    value = metric(
        jnp.zeros(2), {"exposure": jnp.array([1.0, 3.0]), "count": jnp.ones(2)}, jnp.array([1.0, 3.0])
    )
    assert value == 2.5
    one, other = metrics.mean_loss(losses.huber(1)), metrics.mean_loss(losses.huber(2.0))
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert (jax.tree.leaves(one), jax.tree.leaves(other)) == ([1.0], [2.0])
    with pytest.raises(TypeError, match="loss must be"):
        metrics.mean_loss("huber")


def test_as_metric():
    def mine(score, y, weight):
        return jnp.sum(weight * score * y)

    assert as_metric(metrics.rmse) is metrics.rmse
    assert as_metric(mine) == Metric(mine, name="mine")
    for other in ("rmse", None, Metric):
        with pytest.raises(TypeError, match="metric must be"):
            as_metric(other)


@pytest.mark.parametrize(
    ("metric", "y"),
    [
        (metrics.rmse, [0.0, np.nan]),
        (metrics.logloss, [0.0, 2.0]),
        (metrics.roc_auc, [1.0, 1.0]),
        (metrics.roc_auc, [0.0, 2.0]),
        (metrics.poisson_deviance, [0.0, -1.0]),
        (metrics.gamma_deviance, [0.0, 1.0]),
        (metrics.tweedie_deviance(1.5), [0.0, -1.0]),
        (metrics.mean_loss(losses.gamma), [0.0, 1.0]),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_targets_outside_the_domain_are_refused(metric, y):
    with pytest.raises(ValueError, match=r"^y must"):
        metric.check_target(np.array(y))


def test_factories_refuse_bad_arguments():
    for factory, argument in (
        (metrics.pinball_loss, 1.0),
        (metrics.tweedie_deviance, 1.0),
        (metrics.tweedie_deviance, 2),
    ):
        with pytest.raises(ValueError, match="must be strictly between"):
            factory(argument)
