"""Metrics of the estimators: of predictions, by name, in lists, and scorers of scikit-learn; score by the loss."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics as peer
from sklearn.model_selection import cross_val_score

import jboost
from jboost import losses, metrics
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, assert_same_model, classifier, regressor

NOISE = np.random.default_rng(5).normal(size=60)  # nothing to learn: every fit stops early
TRAIN, VALID = np.arange(0, 60, 2), np.arange(1, 60, 2)
COUNT = np.round(np.exp(Y / 2))
TOWN = np.array(["low", "mid", "high"])[THREE]


def last(estimator, name="validation_0"):
    """Return the metrics after the last round."""
    return {metric: curve[-1] for metric, curve in estimator.evals_result_[name].items()}


def weighted(score, y, *arguments, **named):
    return score(y, *arguments, sample_weight=WEIGHT, **named)


# ---------------------------------------------------------------- of predictions


def test_predicted_numbers_are_judged():
    names = ["l1", "mse", "l2", "rmse", "mape", "r2", "poisson_deviance", "gamma_deviance", "mae"]
    estimator = regressor(loss="poisson", eval_metric=names)
    estimator.fit(X, COUNT, eval_set=[(X, COUNT + 1)], eval_sample_weight=[WEIGHT])
    predicted, found = estimator.predict(X), last(estimator)
    expected = [
        weighted(score, COUNT + 1, predicted)
        for score in (
            peer.mean_absolute_error, *[peer.mean_squared_error] * 2, peer.root_mean_squared_error,
            peer.mean_absolute_percentage_error, peer.r2_score, peer.mean_poisson_deviance,
            peer.mean_gamma_deviance, peer.mean_absolute_error,
        )
    ]  # fmt: skip
    assert list(found) == names
    np.testing.assert_allclose(list(found.values()), expected, rtol=2e-5)


@pytest.mark.parametrize("loss", ["log_loss", pytest.param("exponential", marks=pytest.mark.slow)])
def test_probabilities_are_judged(loss):
    names = ["rmse", "brier", "error", "binary_error", "accuracy", "auc", "average_precision"]
    names += ["binary_logloss", "logloss"]
    estimator = classifier(loss=loss, eval_metric=names)
    estimator.fit(X, POSITIVE, eval_set=[(X, POSITIVE)], eval_sample_weight=[WEIGHT])
    p, label = estimator.predict_proba(X)[:, 1], estimator.predict(X)
    expected = [
        weighted(peer.root_mean_squared_error, POSITIVE, p),
        weighted(peer.brier_score_loss, POSITIVE, p),
        *[weighted(peer.zero_one_loss, POSITIVE, label)] * 2,
        weighted(peer.accuracy_score, POSITIVE, label),
        weighted(peer.roc_auc_score, POSITIVE, p),
        weighted(peer.average_precision_score, POSITIVE, p),
        *[weighted(peer.log_loss, POSITIVE, p)] * 2,
    ]
    np.testing.assert_allclose(list(last(estimator).values()), expected, rtol=2e-5)


def test_probabilities_of_several_classes_are_judged():
    names = ["merror", "multi_error", "brier", "auc", "average_precision", "mlogloss", "logloss"]
    estimator = classifier(eval_metric=names).fit(X, TOWN, eval_set=[(X, TOWN)])
    p, label = estimator.predict_proba(X), estimator.predict(X)
    is_class = TOWN[:, None] == estimator.classes_
    expected = [
        *[peer.zero_one_loss(TOWN, label)] * 2,
        np.square(p - is_class).sum(axis=1).mean(),
        peer.roc_auc_score(TOWN, p, multi_class="ovr"),
        peer.average_precision_score(TOWN, p),
        *[peer.log_loss(TOWN, p)] * 2,
    ]
    np.testing.assert_allclose(list(last(estimator).values()), expected, rtol=2e-5)


def test_means_of_any_link_have_a_deviance():
    y = COUNT + 5  # predictions of a squared error are positive here
    estimator = regressor(eval_metric=["poisson_deviance", "mae"]).fit(X, y, eval_set=[(X, y)])
    expected = peer.mean_poisson_deviance(y, estimator.predict(X))
    np.testing.assert_allclose(last(estimator)["poisson_deviance"], expected, rtol=1e-4)


def test_a_metric_of_ones_own_takes_what_it_says():
    def largest(values, y, weight):
        return jnp.max(values)

    own = [metrics.Metric(largest, name="prediction", of="prediction"), largest, "mae"]
    estimator = regressor(loss="poisson", eval_metric=own)
    found = last(estimator.fit(X, COUNT, eval_set=[(X, COUNT)]))
    score = np.log(estimator.predict(X)).max()
    np.testing.assert_allclose([found["prediction"], found["largest"]], [np.exp(score), score], rtol=1e-5)


# ---------------------------------------------------------------- several, and scorers


def test_the_last_metric_is_watched():
    watched = {"eval_set": [(X[TRAIN], Y[TRAIN]), (X[VALID], NOISE[VALID])]}
    both = regressor(n_estimators=12, eval_metric=["rmse", "mae"]).fit(X[TRAIN], Y[TRAIN], **watched)
    one = regressor(n_estimators=12, eval_metric="mae").fit(X[TRAIN], Y[TRAIN], **watched)
    assert_same_model(both, one)
    for name, of_one in one.evals_result_.items():
        assert list(both.evals_result_[name]) == ["rmse", "mae"]
        assert both.evals_result_[name]["mae"] == of_one["mae"]
    assert both.best_score_ == both.evals_result_["validation_1"]["mae"][-1] == one.best_score_


SCORERS = [
    peer.max_error,
    partial(peer.mean_pinball_loss, alpha=0.2),
    peer.make_scorer(peer.median_absolute_error, greater_is_better=False),
    "neg_mean_absolute_error",
    peer.mean_absolute_error,
]


def test_scorers_of_scikit_learn_are_watched():
    y, options = np.where(np.arange(60) % 2, NOISE, Y), {"n_estimators": 30}
    watched = {"eval_set": [(X[TRAIN], y[TRAIN]), (X[VALID], y[VALID])]}
    in_jax = regressor(eval_metric="mae", **options).fit(X[TRAIN], y[TRAIN], **watched)
    estimator = regressor(eval_metric=SCORERS, **options).fit(X[TRAIN], y[TRAIN], **watched)
    assert 1 < in_jax.n_iter_ < 30
    assert (estimator.n_iter_, estimator.best_iteration_) == (in_jax.n_iter_, in_jax.best_iteration_)
    assert_same_model(estimator, in_jax)
    np.testing.assert_allclose(estimator.history_.train_loss, in_jax.history_.train_loss, rtol=1e-6)
    np.testing.assert_allclose(estimator.history_.valid_metric, in_jax.history_.valid_metric, rtol=1e-5)
    stages = list(estimator.staged_predict(X[VALID]))
    expected = {
        "max_error": [peer.max_error(y[VALID], stage) for stage in stages],
        "mean_pinball_loss": [peer.mean_pinball_loss(y[VALID], stage, alpha=0.2) for stage in stages],
        "neg_median_absolute_error": [-peer.median_absolute_error(y[VALID], stage) for stage in stages],
        "neg_mean_absolute_error": [-peer.mean_absolute_error(y[VALID], stage) for stage in stages],
        "mean_absolute_error": [peer.mean_absolute_error(y[VALID], stage) for stage in stages],
    }
    assert list(estimator.evals_result_["validation_1"]) == list(expected)
    for name, curve in expected.items():
        np.testing.assert_allclose(estimator.evals_result_["validation_1"][name], curve, rtol=1e-5)
    begun = regressor(eval_metric=SCORERS, warm_start=True, n_estimators=3).fit(X[TRAIN], y[TRAIN], **watched)
    begun.set_params(n_estimators=30).fit(X[TRAIN], y[TRAIN], **watched)
    assert_same_model(begun, in_jax)
    assert begun.n_iter_ == in_jax.n_iter_


def test_scorers_see_labels_and_probabilities():
    scorers = [
        peer.log_loss,
        peer.accuracy_score,
        partial(peer.f1_score, average="macro"),
        "roc_auc_ovr",
        lambda estimator, X, y: float(np.mean(estimator.predict(X) == y)),
        "balanced_accuracy",
    ]
    seen: list[float] = []
    estimator = classifier(eval_metric=scorers, n_estimators=5)
    estimator.fit(
        X,
        TOWN,
        eval_set=[(X, TOWN)],
        callbacks=[lambda progress: seen.extend(progress.history.valid_metric[-1:])],
    )
    p, label, found = estimator.predict_proba(X), estimator.predict(X), last(estimator)
    np.testing.assert_allclose(found.pop("log_loss"), peer.log_loss(TOWN, p), rtol=1e-6)
    np.testing.assert_allclose(found.pop("f1_score"), peer.f1_score(TOWN, label, average="macro"))
    np.testing.assert_allclose(
        found.pop("roc_auc_ovr"), peer.roc_auc_score(TOWN, p, multi_class="ovr"), rtol=1e-6
    )
    assert found["<lambda>"] == found["accuracy_score"] == peer.accuracy_score(TOWN, label)
    curve = estimator.evals_result_["validation_0"]["balanced_accuracy"]
    assert estimator.best_score_ == max(curve) == np.float32(peer.balanced_accuracy_score(TOWN, label))
    assert np.isin(
        np.asarray(seen, np.float32), np.asarray(estimator.history_.valid_metric, np.float32)
    ).all()


def test_rows_without_weight_and_offsets_reach_scorers():
    weight = np.where(np.arange(60) < 40, WEIGHT, 0.0)
    offset = 0.1 * X[:, 1]
    estimator = regressor(eval_metric=[peer.mean_absolute_error])
    watched = {"eval_set": [(X, Y)], "eval_sample_weight": [weight], "eval_offset": [offset]}
    estimator.fit(X, Y, offset=offset, **watched)
    predicted = estimator.predict(X, offset=offset)
    expected = peer.mean_absolute_error(Y, predicted, sample_weight=weight)
    np.testing.assert_allclose(estimator.best_score_, expected, rtol=1e-6)
    with pytest.raises(
        TypeError, match="eval_metric max_error takes no sample_weight, but the rows to watch"
    ):
        estimator.set_params(eval_metric=peer.max_error).fit(X, Y, **watched | {"eval_offset": None})


@pytest.mark.parametrize(
    ("eval_metric", "error", "message"),
    [
        ([], ValueError, "eval_metric must name at least one metric"),
        (["mae", "mae"], ValueError, "eval_metric must hold metrics of different names, got 'mae' twice"),
        (
            "roc_auc_ovr",
            ValueError,
            "eval_metric roc_auc_ovr asks for what the estimator does not have: .* predict_proba",
        ),
        (["mae", 3], TypeError, "eval_metric must be a Metric or a function .* got 3, nor a scorer"),
        (
            "map",
            ValueError,
            "eval_metric must be a function, a Metric, a scorer of scikit-learn .* got 'map'",
        ),
        ("auc", ValueError, r"eval_set\[0\], for eval_metric auc: y must be 0 or 1"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(eval_metric, error, message):
    with pytest.raises(error, match=message):
        regressor(eval_metric=eval_metric).fit(X, Y, eval_set=[(X, Y)])


def test_ranks_of_one_class_are_refused():
    few = np.flatnonzero(THREE < 2)
    with pytest.raises(
        ValueError, match=r"eval_set\[1\], for .* auc: y must hold each of the 3 classes, but none is 2"
    ):
        classifier(eval_metric="auc").fit(X, THREE, eval_set=[(X, THREE), (X[few], THREE[few])])
    rare = np.eye(60, dtype=int)[0]
    with pytest.raises(
        ValueError,
        match=r"the rows held out, for .* average_precision: y must hold both classes, 0 and 1; got only",
    ):
        regressor(eval_metric=["average_precision", "mae"], early_stopping=True, random_state=0).fit(X, rare)


# ---------------------------------------------------------------- on the host, without an estimator


def test_a_metric_on_the_host_and_its_twin_in_jax():
    def mean_error(prediction, y, weight):
        assert type(prediction) is type(y) is type(weight) is np.ndarray
        assert len(y) == np.count_nonzero(WEIGHT[VALID] > 1)
        return np.average(np.abs(prediction - y), weights=weight)

    on_host = metrics.Metric(mean_error, of="prediction", on_host=True, name="own")
    options = {
        "spec": jboost.Spec(n_estimators=40, max_depth=2, n_iter_no_change=3),
        "hyper": jboost.Hyper(learning_rate=0.5),
        "valid": (X[VALID], COUNT[VALID], WEIGHT[VALID] - 1),
    }
    (one, first), (other, second) = (
        jboost.fit(losses.poisson, X[TRAIN], COUNT[TRAIN], metric=metric, **options)
        for metric in (metrics.mae, on_host)
    )
    assert one.n_trees == other.n_trees
    assert first.best_round == second.best_round
    np.testing.assert_array_equal(one.leaf_value, other.leaf_value)
    np.testing.assert_allclose(first.valid_metric, second.valid_metric, rtol=1e-5)
    np.testing.assert_allclose(first.train_loss, second.train_loss, rtol=1e-6)
    begun = jboost.truncate(one, 2)
    (_, first), (_, second) = (
        jboost.fit(losses.poisson, X[TRAIN], COUNT[TRAIN], metric=metric, init_model=begun, **options)
        for metric in (metrics.mae, on_host)
    )
    assert first.best_round == second.best_round
    no_number = metrics.Metric(lambda score, y, weight: score, on_host=True)
    with pytest.raises(TypeError, match="metric must return a number, got array"):
        jboost.fit(losses.poisson, X[TRAIN], COUNT[TRAIN], metric=no_number, **options)
    with pytest.raises(ValueError, match="metric must be in JAX operations inside jit"):
        jboost.boosting.init(losses.poisson, X[TRAIN], COUNT[TRAIN], metric=on_host, **options)


# ---------------------------------------------------------------- score by the loss


def normal(score, y):
    return 0.5 * ((y - score[0]) * jnp.exp(-score[1])) ** 2 + score[1]


def test_the_score_of_several_outputs_is_minus_the_mean_loss():
    loss = jboost.Loss(normal, n_outputs=2)
    estimator = regressor(loss=loss).fit(
        X[30:], Y[30:]
    )  # as many rows as in cross-validation: the same programs
    weight = WEIGHT - 1
    mean, log_deviation = estimator.predict(X).T
    each = 0.5 * ((Y - mean) * np.exp(-log_deviation)) ** 2 + log_deviation
    np.testing.assert_allclose(estimator.score(X, Y), -each.mean(), rtol=1e-5)
    np.testing.assert_allclose(estimator.score(X, Y, weight), -np.average(each, weights=weight), rtol=1e-5)
    found = cross_val_score(estimator, X, Y, cv=2)
    np.testing.assert_allclose(found[0], estimator.score(X[:30], Y[:30]), rtol=1e-6)
    with pytest.raises(ValueError, match="loss must return a real scalar for one row"):
        estimator.score(X, np.stack([Y, Y, Y], axis=1))
    with pytest.raises(ValueError, match="NaN"):
        estimator.score(X, np.where(Y > 0, np.nan, Y))


def test_the_score_of_a_dict_of_targets_is_minus_the_mean_loss():
    y = {"count": COUNT, "exposure": WEIGHT}
    estimator = regressor(loss=lambda s, y: y["exposure"] * jnp.exp(s) - y["count"] * s).fit(X, y)
    score = estimator.predict(X)
    np.testing.assert_allclose(
        estimator.score(X, y), -np.mean(WEIGHT * np.exp(score) - COUNT * score), rtol=1e-5
    )
