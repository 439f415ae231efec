"""Rounds of an estimator: eval sets, early stopping, the best round, warm start."""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, mean_absolute_error, roc_auc_score
from sklearn.model_selection import train_test_split

from jboost import losses, metrics
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, assert_same_model, classifier, regressor

NOISE = np.random.default_rng(5).normal(size=60)  # nothing to learn: every fit stops early
TRAIN, VALID = np.arange(0, 60, 2), np.arange(1, 60, 2)


def half_mean_square(predicted, y, weight=None):
    return np.average(0.5 * (predicted - y) ** 2, weights=weight)


# ---------------------------------------------------------------- eval sets


@pytest.mark.slow
def test_every_eval_set_is_scored_after_every_round():
    pairs = [(X[:20], Y[:20]), (X[20:], Y[20:])]
    weights = [None, WEIGHT[20:]]
    estimator = regressor().fit(X, Y, eval_set=pairs, eval_sample_weight=weights)
    assert list(estimator.evals_result_) == ["validation_0", "validation_1"]
    for name, (data, y), weight in zip(estimator.evals_result_, pairs, weights, strict=True):
        expected = [half_mean_square(stage, y, weight) for stage in estimator.staged_predict(data)]
        np.testing.assert_allclose(estimator.evals_result_[name]["squared_error"], expected, rtol=1e-5)
    assert estimator.best_score_ == estimator.evals_result_["validation_1"]["squared_error"][-1]
    np.testing.assert_allclose(
        estimator.history_.train_loss,
        [half_mean_square(stage, Y) for stage in estimator.staged_predict(X)],
        rtol=1e-5,
    )


def test_a_pair_that_is_no_list_is_one_eval_set():
    one = regressor().fit(X, Y, eval_set=(X, Y))
    assert one.evals_result_ == regressor().fit(X, Y, eval_set=[(X, Y)]).evals_result_


def test_the_last_eval_set_is_watched():
    learnable, noise = (X, Y), (X, NOISE)
    estimator = regressor(n_estimators=15)
    last_learns = estimator.fit(X, Y, eval_set=[noise, learnable]).n_iter_
    assert last_learns == 15
    assert estimator.fit(X, Y, eval_set=[learnable, noise]).n_iter_ < 15


def test_rows_of_an_eval_set_without_weight_are_not_there():
    weight = (np.arange(60) < 40).astype(float)
    y = np.where(weight > 0, THREE, 99)
    estimator = classifier().fit(X, THREE, eval_set=[(X, y)], eval_sample_weight=[weight])
    fewer = classifier().fit(X, THREE, eval_set=[(X[:40], THREE[:40])])
    curve, expected = (one.evals_result_["validation_0"]["softmax(3)"] for one in (estimator, fewer))
    np.testing.assert_allclose(curve, expected)


slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "estimator", "y", "expected"),
    [
        ("mae", regressor, Y, lambda e, y: mean_absolute_error(y, e.predict(X))),
        slow("r2", regressor, Y, lambda e, y: e.score(X, y)),
        slow("logloss", classifier, POSITIVE, lambda e, y: log_loss(y, e.predict_proba(X))),
        ("logloss", classifier, THREE, lambda e, y: log_loss(y, e.predict_proba(X))),
        slow("accuracy", classifier, THREE, lambda e, y: accuracy_score(y, e.predict(X))),
        slow("roc_auc", classifier, POSITIVE, lambda e, y: roc_auc_score(y, e.decision_function(X))),
    ],
)
def test_metrics_by_name(name, estimator, y, expected):
    fitted = estimator(eval_metric=name).fit(X, y, eval_set=[(X, y), (X, y)])
    first, second = fitted.evals_result_.values()
    (curve,) = first.values()
    np.testing.assert_allclose(curve, next(iter(second.values())), rtol=1e-5)
    np.testing.assert_allclose(fitted.best_score_, expected(fitted, y), rtol=1e-5)
    best = max if name in ("r2", "accuracy", "roc_auc") else min
    np.testing.assert_allclose(fitted.best_score_, best(curve), rtol=1e-5)


def test_a_metric_of_the_user():
    def error_rate(score, y, weight):
        return jnp.average((score > 0) != (y > 0), weights=weight)

    for metric in (error_rate, metrics.Metric(error_rate, name="error_rate")):
        estimator = classifier(eval_metric=metric).fit(X, POSITIVE, eval_set=[(X, POSITIVE)])
        stages = [np.mean(stage != POSITIVE) for stage in estimator.staged_predict(X)]
        np.testing.assert_allclose(estimator.evals_result_["validation_0"]["error_rate"], stages, atol=1e-7)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"eval_set": [(X, np.where(THREE == 1, 7, 0))]},
            r"eval_set\[0\]: y has labels that fit has not seen: \[7\]",
        ),
        ({"eval_set": [(X, THREE), (X, THREE.astype(str))]}, r"eval_set\[1\].*'0'"),
        ({"eval_set": [(X, THREE)], "eval_sample_weight": [None, None]}, "eval_sample_weight"),
        ({"eval_set": [X]}, "pairs"),
        ({"eval_set": [(X, THREE[:-1])]}, r"eval_set\[0\].*inconsistent"),
    ],
)
def test_eval_sets_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises((TypeError, ValueError), match=message):
        classifier().fit(X, THREE, **arguments)


def test_targets_of_an_eval_set_must_fit():
    with pytest.raises(ValueError, match=r"eval_set\[0\].*shape"):
        regressor().fit(X, Y, eval_set=[(X, np.stack([Y, Y], axis=1)), (X, Y)])
    with pytest.raises(ValueError, match=r"eval_set\[0\].*non-negative"):
        regressor(loss="poisson").fit(X, np.abs(Y), eval_set=[(X, Y)])
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X, Y, eval_set=[(X, np.where(Y > 0, np.nan, Y))])


# ---------------------------------------------------------------- early stopping


@pytest.mark.parametrize("early_stopping", ["auto", True])
def test_the_best_round_is_kept(early_stopping):
    estimator = regressor(n_estimators=40, early_stopping=early_stopping)
    estimator.fit(X[TRAIN], NOISE[TRAIN], eval_set=[(X[VALID], NOISE[VALID])])
    every = regressor(n_estimators=40, early_stopping=False)
    every.fit(X[TRAIN], NOISE[TRAIN], eval_set=[(X[VALID], NOISE[VALID])])
    curve = np.array(every.evals_result_["validation_0"]["squared_error"])
    stop = next(t for t in range(40) if t - curve[: t + 1].argmin() >= 3)
    best = int(curve[: stop + 1].argmin())
    assert best < stop < 39
    assert (estimator.best_iteration_, estimator.n_trees_) == (best, best + 1)
    assert (estimator.n_iter_, estimator.history_.best_round) == (stop + 1, best)
    np.testing.assert_allclose(estimator.history_.valid_metric, curve[: stop + 1], rtol=1e-6)
    assert estimator.best_score_ == curve[best]
    stages = list(every.staged_predict(X))
    np.testing.assert_allclose(estimator.predict(X), stages[best], rtol=1e-6)


def test_attributes_when_nothing_stopped():
    for estimator in (
        regressor().fit(X, Y),
        regressor(early_stopping=False).fit(X, Y, eval_set=[(X, NOISE)]),
        regressor(early_stopping=True).fit(X, Y, eval_set=[(X, Y)]),
    ):
        assert (estimator.best_iteration_, estimator.n_trees_, estimator.n_iter_) == (5, 6, 6)
    assert regressor().fit(X, Y).best_score_ is None
    assert regressor().fit(X, Y).evals_result_ == {}


@pytest.mark.slow
def test_rows_are_held_out():
    estimator = classifier(early_stopping=True, validation_fraction=0.25, random_state=7).fit(
        X, THREE, WEIGHT
    )
    train, held = train_test_split(np.arange(60), test_size=0.25, stratify=THREE, random_state=7)
    train = np.sort(train)
    by_hand = classifier(random_state=7)
    by_hand.fit(
        X[train],
        THREE[train],
        WEIGHT[train],
        eval_set=[(X[held], THREE[held])],
        eval_sample_weight=[WEIGHT[held]],
    )
    assert_same_model(estimator, by_hand)
    np.testing.assert_allclose(estimator.history_.valid_metric, by_hand.history_.valid_metric, rtol=1e-6)
    assert list(estimator.evals_result_) == ["validation_0"]
    whole = classifier(early_stopping=True, validation_fraction=15, random_state=7).fit(X, THREE, WEIGHT)
    assert_same_model(whole, estimator)


def test_nothing_is_held_out_unless_asked_for():
    assert_same_model(regressor(early_stopping="auto").fit(X, Y), regressor(early_stopping=False).fit(X, Y))


# ---------------------------------------------------------------- warm start


def test_warm_start_is_one_longer_fit():
    parameters = {"subsample": 0.7, "colsample_bytree": 0.7, "random_state": 2}
    estimator = classifier(warm_start=True, n_estimators=4, **parameters).fit(X, THREE, WEIGHT)
    estimator.set_params(n_estimators=9).fit(X, THREE, WEIGHT)
    whole = classifier(n_estimators=9, **parameters).fit(X, THREE, WEIGHT)
    assert_same_model(estimator, whole)
    assert estimator.n_iter_ == estimator.n_trees_ == 9
    np.testing.assert_allclose(estimator.history_.train_loss, whole.history_.train_loss, rtol=1e-6)
    assert_same_model(estimator.fit(X, THREE, WEIGHT), whole)  # no rounds to go


@pytest.mark.parametrize("steps", [(3, 20), (8, 20), (15, 20), (2, 4, 7, 20)])
@pytest.mark.parametrize("held_out", [False, True])
def test_warm_start_with_early_stopping_is_one_longer_fit(steps, held_out):
    data = {} if held_out else {"eval_set": [(X[VALID], Y[VALID] + 2 * NOISE[VALID])]}
    y = Y + 2 * NOISE
    parameters = {"early_stopping": True, "random_state": 1, "validation_fraction": 0.4}
    estimator = regressor(warm_start=True, **parameters)
    for n_estimators in steps:
        estimator.set_params(n_estimators=n_estimators).fit(X[TRAIN], y[TRAIN], **data)
    whole = regressor(n_estimators=20, **parameters).fit(X[TRAIN], y[TRAIN], **data)
    assert whole.n_iter_ < 20
    assert_same_model(estimator, whole)
    for attribute in ("n_iter_", "best_iteration_", "best_score_", "evals_result_"):
        assert getattr(estimator, attribute) == getattr(whole, attribute), attribute
    np.testing.assert_array_equal(estimator.history_.train_loss, whole.history_.train_loss)
    np.testing.assert_array_equal(estimator.history_.valid_metric, whole.history_.valid_metric)


def test_warm_start_with_a_metric_that_grows():
    parameters = {"eval_metric": "accuracy", "n_estimators": 12}
    watched = {"eval_set": [(X[VALID], POSITIVE[VALID])]}
    whole = classifier(**parameters).fit(X[TRAIN], POSITIVE[TRAIN], **watched)
    estimator = classifier(**parameters | {"n_estimators": 3}, warm_start=True)
    estimator.fit(X[TRAIN], POSITIVE[TRAIN], **watched)
    estimator.set_params(n_estimators=12).fit(X[TRAIN], POSITIVE[TRAIN], **watched)
    assert_same_model(estimator, whole)
    assert estimator.n_iter_ == whole.n_iter_


def test_warm_start_may_begin_to_watch():
    estimator = regressor(warm_start=True, n_estimators=3).fit(X, Y)
    estimator.set_params(n_estimators=8).fit(X, Y, eval_set=[(X, Y)])
    assert_same_model(estimator, regressor(n_estimators=8).fit(X, Y))
    assert np.isnan(estimator.history_.valid_metric[:3]).all()
    assert np.isfinite(estimator.history_.valid_metric[3:]).all()


def test_warm_start_needs_data_and_rounds_that_fit():
    estimator = classifier(warm_start=True).fit(X, POSITIVE)
    with pytest.raises(ValueError, match="n_estimators"):
        estimator.set_params(n_estimators=3).fit(X, POSITIVE)
    estimator.set_params(n_estimators=8)
    with pytest.raises(ValueError, match=r"labels that fit has not seen: \[2\]"):
        estimator.fit(X, THREE)
    with pytest.raises(ValueError, match="X has 2 features"):
        estimator.fit(X[:, :2], POSITIVE)
    with pytest.raises(
        ValueError, match=r"max_depth, .* must stay 2, 'symmetric' and 'vector' in a warm start.* got 3"
    ):
        estimator.set_params(max_depth=3).fit(X, POSITIVE)
    assert estimator.predict(X).shape == (60,)  # the model is still there


def test_without_warm_start_a_fit_begins_anew():
    estimator = classifier().fit(X, THREE)
    estimator.fit(X[:, :2], POSITIVE)
    assert_same_model(estimator, classifier().fit(X[:, :2], POSITIVE))
    assert estimator.n_features_in_ == 2
    np.testing.assert_array_equal(estimator.classes_, [0, 1])


def test_a_bar_is_shown_on_request(capsys):
    regressor(verbose=1).fit(X, Y)
    assert "6/6" in capsys.readouterr().err
    regressor().fit(X, Y)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_loss_is_part_of_the_metric_name():
    estimator = regressor(loss=losses.huber(2.0)).fit(X, Y, eval_set=[(X, Y)])
    assert list(estimator.evals_result_["validation_0"]) == ["huber(2)"]
