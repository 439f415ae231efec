"""Metrics against scikit-learn's: of predictions and scores, with weights, under jit; weightless rows do not count."""

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
from jboost._runtime.typing import identity
from jboost.metrics.metric import Metric, as_metric

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

SEVERAL = (RNG.uniform(size=(N, 3)) < expit(SCORES)).astype(float)


def softmax(score: np.ndarray) -> np.ndarray:
    return scipy_softmax(score, axis=1)


def by_column(theirs):
    """Turn a metric of scikit-learn's of one column into the mean over several."""
    return lambda y, p, **w: np.mean([theirs(y[:, j], p[:, j], **w) for j in range(p.shape[1])])


def most_probable(y, p, **w):
    return peer.accuracy_score(y, p > 0.5 if p.ndim == 1 else p.argmax(axis=1), **w)


def each_against_the_rest(theirs):
    return lambda y, p, **w: by_column(theirs)((y[:, None] == np.arange(p.shape[1])).astype(float), p, **w)


def brier_of_classes(y, p, **w):
    return np.average(np.square(p - (y[:, None] == np.arange(3))).sum(axis=1), weights=w["sample_weight"])


def pinball(y, p, **w):
    return peer.mean_pinball_loss(y, p, alpha=0.8, **w)


def tweedie(y, p, **w):
    return peer.mean_tweedie_deviance(y, p, power=1.4, **w)  # pyright: ignore[reportArgumentType]


SIGMOID, DOUBLE, EXP = (one.inverse_link for one in (losses.logistic, losses.exponential, losses.poisson))
SOFTMAX = losses.softmax(3).inverse_link
PROBABILITY = np.clip(expit(SCORE), 0.01, 0.99)

# metric, inverse link and the same in NumPy, score, y, scikit-learn's value by (y, prediction, sample_weight=)
CASES: dict[str, tuple[Metric, Any, Any, np.ndarray, np.ndarray, Any]] = {
    "rmse": (metrics.rmse, identity, np.array, SCORE, REAL, peer.root_mean_squared_error),
    "rmse_of_three": (metrics.rmse, identity, np.array, SCORES, THREE, peer.root_mean_squared_error),
    "rmse_of_log_odds": (metrics.rmse, SIGMOID, expit, SCORE, BINARY, peer.root_mean_squared_error),
    "mse": (metrics.mse, identity, np.array, SCORES, THREE, peer.mean_squared_error),
    "mae": (metrics.mae, identity, np.array, SCORE, REAL, peer.mean_absolute_error),
    "mae_of_log_means": (metrics.mae, EXP, np.exp, SCORE, COUNT, peer.mean_absolute_error),
    "mae_of_a_link_of_ones_own": (metrics.mae, jnp.square, np.square, SCORE, REAL, peer.mean_absolute_error),
    "mape": (metrics.mape, EXP, np.exp, SCORE, AMOUNT, peer.mean_absolute_percentage_error),
    "mape_of_zeros": (metrics.mape, EXP, np.exp, SCORE, COUNT, peer.mean_absolute_percentage_error),
    "r2": (metrics.r2, identity, np.array, SCORE, REAL, peer.r2_score),
    "r2_of_three": (metrics.r2, identity, np.array, SCORES, THREE, peer.r2_score),
    "pinball_loss": (metrics.pinball_loss(0.8), identity, np.array, SCORE, REAL, pinball),
    "logloss": (metrics.logloss, SIGMOID, expit, SCORE, BINARY, peer.log_loss),
    "logloss_of_half_log_odds": (metrics.logloss, DOUBLE, lambda s: expit(2 * s), SCORE, BINARY, peer.log_loss),
    "logloss_of_probabilities": (metrics.logloss, identity, np.array, PROBABILITY, BINARY, peer.log_loss),
    "logloss_of_labels": (metrics.logloss, jax.nn.sigmoid, expit, SCORES, SEVERAL, by_column(peer.log_loss)),
    "multi_logloss": (metrics.multi_logloss, SOFTMAX, softmax, SCORES, LABEL, peer.log_loss),
    "accuracy": (metrics.accuracy, SIGMOID, expit, SCORE, BINARY, most_probable),
    "accuracy_of_probabilities": (metrics.accuracy, identity, np.array, PROBABILITY, BINARY, most_probable),
    "accuracy_of_three": (metrics.accuracy, SOFTMAX, softmax, SCORES, LABEL, most_probable),
    "error": (metrics.error, DOUBLE, lambda s: expit(2 * s), SCORE, BINARY, lambda *a, **w: 1 - most_probable(*a, **w)),
    "brier": (metrics.brier, SIGMOID, expit, SCORE, BINARY, peer.brier_score_loss),
    "brier_of_three": (metrics.brier, SOFTMAX, softmax, SCORES, LABEL, brier_of_classes),
    "roc_auc": (metrics.roc_auc, SIGMOID, expit, SCORE, BINARY, peer.roc_auc_score),
    "roc_auc_with_ties": (metrics.roc_auc, identity, np.array, TIED, BINARY, peer.roc_auc_score),
    "roc_auc_of_a_constant": (metrics.roc_auc, identity, np.array, np.zeros(N), BINARY, peer.roc_auc_score),
    "roc_auc_of_three": (
        metrics.roc_auc, SOFTMAX, softmax, SCORES, LABEL,
        lambda y, p, **w: each_against_the_rest(peer.roc_auc_score)(y, p, **w),
    ),
    "roc_auc_of_labels": (metrics.roc_auc, SIGMOID, expit, SCORES, SEVERAL, peer.roc_auc_score),
    "average_precision": (
        metrics.average_precision, SIGMOID, expit, SCORE, BINARY, peer.average_precision_score,
    ),
    "average_precision_with_ties": (
        metrics.average_precision, identity, np.array, TIED, BINARY, peer.average_precision_score,
    ),
    "average_precision_of_three": (
        metrics.average_precision, SOFTMAX, softmax, SCORES, LABEL, peer.average_precision_score,
    ),
    "poisson_deviance": (metrics.poisson_deviance, EXP, np.exp, SCORE, COUNT, peer.mean_poisson_deviance),
    "poisson_deviance_of_means": (
        metrics.poisson_deviance, identity, np.array, np.exp(SCORE), COUNT, peer.mean_poisson_deviance,
    ),
    "gamma_deviance": (metrics.gamma_deviance, EXP, np.exp, SCORE, AMOUNT, peer.mean_gamma_deviance),
    "tweedie_deviance": (metrics.tweedie_deviance(1.4), jnp.exp, np.exp, SCORE, COUNT, tweedie),
    "mean_loss": (
        metrics.mean_loss(losses.squared_error), identity, np.array, SCORE, REAL,
        lambda y, p, **w: peer.mean_squared_error(y, p, **w) / 2,
    ),
}  # fmt: skip
each_case = pytest.mark.parametrize(
    ("metric", "link", "in_numpy", "score", "y", "theirs"), CASES.values(), ids=CASES
)


def outputs_of(score):
    return None if score.ndim == 1 else score.shape[1]


# In float32 the test below this one compares with scikit-learn too.
@pytest.mark.parametrize(
    "precision", [pytest.param(False, marks=pytest.mark.slow), True], ids=["x32", "x64"], indirect=True
)
@each_case
def test_value_matches_scikit_learn(metric, link, in_numpy, score, y, theirs, precision):
    of_scores = metric.of_scores(link, outputs_of(score))
    of_scores.check_target(y)
    assert (of_scores.of, of_scores.from_score) == ("score", None)
    forms = [of_scores.function]
    if metric.from_score and precision is np.float64:  # the same from predictions, but for rounding
        forms.append(lambda score, y, weight: metric.function(link(score), y, weight))
    run = jax.jit(lambda *rows: [form(*rows) for form in forms])
    for weight in (np.ones(N), WEIGHT):
        expected = theirs(y, in_numpy(score), sample_weight=weight)
        for value in run(jnp.asarray(score), jnp.asarray(y), jnp.asarray(weight)):
            assert value.shape == ()
            assert value.dtype == precision
            np.testing.assert_allclose(value, expected, rtol=1e-10 if precision is np.float64 else 2e-5)


@each_case
def test_rows_without_weight_do_not_count(metric, link, in_numpy, score, y, theirs):
    run = jax.jit(metric.of_scores(link).function)
    value = run(jnp.asarray(score), jnp.asarray(y), jnp.asarray(WEIGHT))
    used = WEIGHT > 0
    for filler in (0, 1e4):
        padded_score, padded_y = score.copy(), y.copy()
        padded_score[~used], padded_y[~used] = filler, 0
        padded = run(jnp.asarray(padded_score), jnp.asarray(padded_y), jnp.asarray(WEIGHT))
        np.testing.assert_allclose(padded, value, rtol=3e-7)  # sorted otherwise, sums round otherwise
    dropped = theirs(y[used], in_numpy(score[used]), sample_weight=WEIGHT[used])
    np.testing.assert_allclose(value, dropped, rtol=2e-5)


@each_case
def test_metrics_pickle_to_equal_ones(metric, link, in_numpy, score, y, theirs):
    restored = pickle.loads(pickle.dumps(metric))
    assert restored == metric
    assert hash(restored) == hash(metric)


def test_more_is_better_where_it_says_so():
    said = {case[0].name for case in CASES.values() if case[0].maximize}
    assert said == {"r2", "accuracy", "roc_auc", "average_precision"}


@pytest.mark.parametrize("name", ["logloss", "multi_logloss", "poisson_deviance", "tweedie_deviance"])
def test_large_scores_stay_finite(name):
    metric, link, _, score, y, _ = CASES[name]
    size = 1e4 if "logloss" in name else 40.0
    run = jax.jit(metric.of_scores(link).function)
    for sign in (-1, 1):
        scores = jnp.full(score.shape, sign * size).at[:1].multiply(-1)
        assert np.isfinite(run(scores, jnp.asarray(y), jnp.asarray(WEIGHT)))


def test_large_scores_are_told_apart():
    y, weight, score = jnp.array([1.0, 0.0]), jnp.ones(2), jnp.array([30.0, 20.0])

    @jax.jit
    def values(score):
        both = jnp.stack([-score, score - score], axis=1)
        return (
            metrics.roc_auc.of_scores(SIGMOID)(score, y, weight),
            metrics.logloss.of_scores(SIGMOID)(score, y, weight),
            metrics.logloss.of_scores(DOUBLE)(score / 2, y, weight),
            metrics.average_precision.of_scores(SOFTMAX, 2)(both, y, weight),
        )

    auc, logloss, of_half, precision = values(score)
    assert auc == precision == 1  # though both probabilities are rounded to 1
    np.testing.assert_allclose([logloss, of_half], 10, rtol=1e-6)


def test_targets_of_zero_and_perfect_scores():
    zeros, ones = jnp.zeros(4), jnp.ones(4)
    poisson, tweedie = (
        one.of_scores(EXP) for one in (metrics.poisson_deviance, metrics.tweedie_deviance(1.5))
    )
    np.testing.assert_allclose(poisson(jnp.full(4, -30.0), zeros, ones), 0, atol=1e-9)
    np.testing.assert_allclose(tweedie(jnp.full(4, -60.0), zeros, ones), 0, atol=1e-9)
    y = jnp.array([0.5, 1.0, 2.0, 3.0])
    for metric in (metrics.poisson_deviance, metrics.gamma_deviance, metrics.tweedie_deviance(1.5)):
        np.testing.assert_allclose(metric.of_scores(EXP)(jnp.log(y), y, ones), 0, atol=1e-6)
        np.testing.assert_allclose(metric(y, y, ones), 0, atol=1e-6)
        assert np.isnan(metric(y - 1, y, ones))  # a mean that is not positive


def test_numbers_whose_squares_are_no_floats():
    prediction, y, weight = np.abs(RNG.normal(size=(3, 50)).astype(np.float32))
    weight[0] = 0

    def of(metric, exponent):
        target = np.ldexp(y, exponent)
        target[0] = 1e-3  # of no weight
        return metric(*map(jnp.asarray, (np.ldexp(prediction, exponent), target, weight)))

    for exponent in (-100, 100):
        assert of(metrics.r2, exponent) == of(metrics.r2, 0)
        assert of(metrics.rmse, exponent) == np.ldexp(of(metrics.rmse, 0), exponent)
        assert of(metrics.mse, exponent // 2) == np.ldexp(of(metrics.mse, 0), exponent)


def test_one_row():
    one = jnp.ones(1)
    assert metrics.rmse(one * 3, one, one) == 2
    assert metrics.r2(one, one, one) == 1
    assert metrics.error(one * 0.4, one, one) == 1
    np.testing.assert_allclose(metrics.logloss(one * 0.5, one, one), np.log(2), rtol=1e-6)


def test_predictions_of_another_shape_are_refused():
    column, row, weight = jnp.ones((4, 1)), jnp.zeros(4), jnp.ones(4)
    for metric in (metrics.mae, metrics.brier, metrics.logloss):
        assert metric(column, row, weight) == metric(column[:, 0], row, weight)
    with pytest.raises(
        ValueError, match=r"mae takes one prediction for each target, got shapes \(4, 3\) and \(4,"
    ):
        metrics.mae(jnp.ones((4, 3)), row, weight)
    with pytest.raises(ValueError, match=r"logloss takes one prediction for each target"):
        metrics.logloss.of_scores(SIGMOID)(jnp.ones((4, 3)), row, weight)
    with pytest.raises(ValueError, match=r"multi_logloss takes predictions \[n k\] of k classes"):
        metrics.multi_logloss(row, row, weight)
    with pytest.raises(ValueError, match=r"accuracy and error take one label for each row"):
        metrics.accuracy(jnp.ones((4, 3)), jnp.ones((4, 3)), weight)
    with pytest.raises(ValueError, match=r"a metric of ranks takes \[n\] predictions"):
        metrics.roc_auc(row, jnp.ones((4, 3)), weight)


@pytest.mark.parametrize("y", [0.1, 1e6 + 0.1, 0.0])
def test_r2_of_a_constant_target(y):
    y, weight = jnp.full(1000, y), jnp.asarray(RNG.uniform(size=1000))
    assert metrics.r2(y, y, weight) == 1
    assert metrics.r2(y + 1, y, weight) == 0


def test_ranks_of_many_rows_are_exact_in_float32():
    rng = np.random.default_rng(0)
    score = rng.integers(0, 1000, 200_000).astype(np.float32)
    y = (rng.uniform(size=score.size) < 0.01).astype(np.float32)
    for metric, theirs, rtol in (
        (metrics.roc_auc, peer.roc_auc_score, 3e-7),
        (metrics.average_precision, peer.average_precision_score, 3e-6),
    ):
        value = jax.jit(metric.function)(score, y, np.ones_like(score))
        np.testing.assert_allclose(value, theirs(y, score), rtol=rtol)


@pytest.mark.slow
def test_metrics_under_vmap_and_grad(x64):
    score, y, weight = jnp.asarray(SCORE), jnp.asarray(BINARY), jnp.asarray(WEIGHT)
    ranks = jax.jit(jax.vmap(metrics.roc_auc.function, in_axes=(0, None, None)))
    both = ranks(jnp.stack([score, -score]), y, weight)
    np.testing.assert_allclose(both[0] + both[1], 1, rtol=1e-12)
    grad = jax.jit(jax.grad(metrics.logloss.of_scores(SIGMOID).function))(score, y, weight)
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


def test_fields_of_a_metric_are_checked():
    def mine(score, y, weight):
        return jnp.sum(weight * score * y)

    with pytest.raises(ValueError, match=r"of must be one of 'score', 'prediction', got 'probability'"):
        Metric(mine, of="probability")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="from_score must be a mapping of inverse links to functions"):
        Metric(mine, of="prediction", from_score={jnp.exp: 3})  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match='from_score must be None with of="score"'):
        Metric(mine, from_score={jnp.exp: mine})


def test_a_form_of_scores_of_ones_own():
    def squared(score):
        return score**2

    metric = Metric(lambda p, y, w: p.sum(), of="prediction", from_score={squared: lambda s, y, w: -s.sum()})
    three = [metric.of_scores(link)(jnp.full(2, 3.0), None, None) for link in (squared, jnp.exp, identity)]
    np.testing.assert_allclose(three, [-6, 2 * np.exp(3), 6], rtol=1e-6)
    leaves, structure = jax.tree.flatten(metric)
    assert jax.tree.unflatten(structure, leaves) == metric


@pytest.mark.parametrize(
    ("metric", "y"),
    [
        (metrics.rmse, [0.0, np.nan]),
        (metrics.logloss, [0.0, 2.0]),
        (metrics.roc_auc, [1.0, 1.0]),
        (metrics.roc_auc, [0.0, 2.0]),
        (metrics.average_precision, [0.0, 0.0]),
        (metrics.roc_auc, [[0.0, 1.0], [1.0, 1.0]]),
        (metrics.roc_auc.of_scores(SOFTMAX, 3), [0.0, 1.0, 1.0]),
        (metrics.average_precision.of_scores(SOFTMAX, 3), [0.0, 1.0, 3.0]),
        (metrics.brier, [0.0, 0.5]),
        (metrics.mape, [0.0, np.inf]),
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
