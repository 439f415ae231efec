"""What users of other libraries' estimators expect: leaves, fewer rounds, models to go on from, labels at once."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

import jboost
from jboost import Ensemble, losses
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, assert_same_model, classifier, regressor

SEVERAL = np.stack([POSITIVE, X[:, 1] > 0, (X[:, 2] > 0) & (POSITIVE == 1)], axis=1).astype(int)
TRAIN, VALID = np.arange(0, 60, 2), np.arange(1, 60, 2)


# ---------------------------------------------------------------- leaves, fewer rounds


def leaves_by_hand(model: Ensemble, row):
    """Lead one row down every tree of one output, as the documentation of `Tree` says."""
    codes = [1 + int((row[f] > edges[np.isfinite(edges)]).sum()) for f, edges in enumerate(model.edges.exact)]
    for feature, threshold in zip(
        np.asarray(model.trees.feature), np.asarray(model.trees.threshold), strict=True
    ):
        node = 0
        for level in range(2):
            slot = level if model.symmetric else 2**level - 1 + node
            node = 2 * node + (codes[feature[slot]] > threshold[slot])
        yield node


@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_leaves_are_those_that_the_splits_lead_to(policy):
    estimator = regressor(grow_policy=policy).fit(X, Y)
    leaves = estimator.apply(X)
    assert leaves.shape == (60, 6)
    np.testing.assert_array_equal(leaves, [list(leaves_by_hand(estimator.model_, row)) for row in X])
    values = np.asarray(estimator.model_.leaf_value, np.float64)[np.arange(6)[None], leaves, 0]
    np.testing.assert_allclose(estimator.model_.base[0] + values.sum(axis=1), estimator.predict(X), rtol=1e-6)


@pytest.mark.slow
def test_leaves_of_a_tree_for_each_output():
    estimator = classifier(multi_output="separate").fit(X, THREE)
    leaves = estimator.apply(X[:7])
    assert leaves.shape == (7, 6, 3)
    value = np.asarray(estimator.model_.leaf_value, np.float64)  # [t leaves k]
    score = sum(value[t, leaves[:, t], np.arange(3)[None]] for t in range(6)) + np.asarray(
        estimator.model_.base
    )
    np.testing.assert_allclose(score, estimator.decision_function(X[:7]), rtol=1e-5, atol=1e-6)
    assert classifier().fit(X, THREE).apply(X[:7]).shape == (7, 6)
    assert classifier(n_estimators=0).fit(X, THREE).apply(X[:7]).shape == (7, 0)
    with pytest.raises(ValueError, match="X has 2 features"):
        estimator.apply(X[:, :2])


def test_the_first_rounds_predict_what_a_shorter_fit_does():
    for make, y, methods in (
        (regressor, Y, ["predict"]),
        (classifier, POSITIVE, ["predict", "predict_proba", "decision_function"]),
    ):
        estimator, shorter = make().fit(X, y), make(n_estimators=2).fit(X, y)
        for method in methods:
            np.testing.assert_array_equal(
                getattr(estimator, method)(X, n_trees=2), getattr(shorter, method)(X)
            )
            np.testing.assert_array_equal(
                getattr(estimator, method)(X, n_trees=6), getattr(estimator, method)(X)
            )
    with pytest.raises(ValueError, match="n_trees must be at most 6, got 7"):
        estimator.predict(X, n_trees=7)
    with pytest.raises(TypeError, match="n_trees must be an integer"):
        estimator.predict(X, n_trees=0.5)


# ---------------------------------------------------------------- a model to go on from


def test_a_model_is_continued_in_any_form(tmp_path):
    sampled = {"subsample": 0.7, "random_state": 3}
    whole = regressor(n_estimators=6, **sampled).fit(X, Y)
    first = regressor(n_estimators=2, **sampled).fit(X, Y)
    jboost.save(first.model_, tmp_path / "model.jboost")
    for init_model in (first, first.model_, tmp_path / "model.jboost", str(tmp_path / "model.jboost")):
        estimator = regressor(n_estimators=4, **sampled).fit(X, Y, init_model=init_model)
        assert_same_model(estimator, whole)
        assert (estimator.n_trees_, estimator.n_iter_, estimator.n_features_in_) == (6, 6, 3)
        assert np.isnan(estimator.history_.train_loss[:2]).all()
        np.testing.assert_array_equal(estimator.history_.train_loss[2:], whole.history_.train_loss[2:])
    estimator.set_params(warm_start=True, n_estimators=9).fit(X, Y)
    assert_same_model(estimator, regressor(n_estimators=9, **sampled).fit(X, Y))


@pytest.mark.slow
def test_curves_cover_the_rounds_of_the_model_that_is_continued():
    pairs = [(X[TRAIN], Y[TRAIN]), (X[VALID], Y[VALID])]
    whole = regressor(early_stopping=False).fit(X, Y, eval_set=pairs)
    first = regressor(n_estimators=2).fit(X, Y)
    for stops in (False, True):
        estimator = regressor(n_estimators=4, early_stopping=stops).fit(
            X, Y, eval_set=pairs, init_model=first
        )
        for name, curve in whole.evals_result_.items():
            np.testing.assert_allclose(
                estimator.evals_result_[name]["squared_error"], curve["squared_error"], rtol=1e-5
            )
        np.testing.assert_allclose(estimator.best_score_, whole.best_score_, rtol=1e-5)


def test_no_round_of_the_model_that_is_continued_is_lost():
    noise = np.random.default_rng(5).normal(size=60)
    first = regressor(n_estimators=5).fit(X, Y)
    estimator = regressor(n_estimators=9).fit(X, Y, eval_set=[(X, noise)], init_model=first)
    assert estimator.n_iter_ < 14
    assert estimator.n_trees_ >= 5
    head = jboost.truncate(estimator.model_, 5)
    np.testing.assert_array_equal(head.leaf_value, first.model_.leaf_value)


def test_labels_are_those_of_the_classifier_that_is_continued():
    names = np.array(["a", "b", "c"])
    first = classifier(n_estimators=2).fit(X, names[THREE])
    some = THREE != 1
    estimator = classifier(n_estimators=3).fit(X[some], names[THREE[some]], init_model=first)
    np.testing.assert_array_equal(estimator.classes_, names)
    assert estimator.predict_proba(X).shape == (60, 3)
    with pytest.raises(ValueError, match=r"labels that fit has not seen: \['d'\]"):
        classifier().fit(X, np.where(THREE == 1, "d", "a"), init_model=first)
    with pytest.raises(ValueError, match=r"init_model has 3 output\(s\), but the loss and y ask for 1"):
        classifier().fit(X[some], names[THREE[some]], init_model=first.model_)


@pytest.mark.parametrize(
    ("init_model", "error", "message"),
    [
        (3, TypeError, "init_model must be a jboost.Ensemble, a fitted estimator"),
        (regressor(), TypeError, "init_model must be .*, got JBoostRegressor that was not fitted"),
        ("no such file", FileNotFoundError, "no such file"),
    ],
)
def test_an_init_model_that_is_none_is_refused(init_model, error, message):
    with pytest.raises(error, match=message):
        regressor().fit(X, Y, init_model=init_model)


def test_an_init_model_must_fit():
    first = regressor().fit(X, Y)
    with pytest.raises(ValueError, match="max_depth"):
        regressor(max_depth=3).fit(X, Y, init_model=first)
    with pytest.raises(ValueError, match="base_score must be None with init_model"):
        regressor(base_score=1.0).fit(X, Y, init_model=first)
    with pytest.raises(ValueError, match="X must have the columns of the model that is continued: X has 2"):
        regressor().fit(X[:, :2], Y, init_model=first)
    with pytest.raises(ValueError, match="init_model must be None where warm_start"):
        regressor(warm_start=True).fit(X, Y).fit(X, Y, init_model=first)


# ---------------------------------------------------------------- base score, tolerance, weights, callbacks


@pytest.mark.slow
def test_a_base_score_is_a_raw_score():
    constant = {"n_estimators": 0}
    np.testing.assert_array_equal(regressor(base_score=2.5, **constant).fit(X, Y).predict(X), 2.5)
    probability = classifier(base_score=1.0, **constant).fit(X, POSITIVE).predict_proba(X)[:, 1]
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-1.0)), rtol=1e-12)
    mean = regressor(loss="poisson", base_score=np.log(3.0), **constant).fit(X, np.abs(Y)).predict(X)
    np.testing.assert_allclose(mean, 3.0, rtol=1e-6)
    score = classifier(base_score=[0.0, 1.0, 2.0], **constant).fit(X, THREE).decision_function(X[:2])
    np.testing.assert_array_equal(score, [[0.0, 1.0, 2.0]] * 2)
    warm = regressor(base_score=2.5, warm_start=True, n_estimators=2).fit(X, Y)
    assert_same_model(warm.set_params(n_estimators=6).fit(X, Y), regressor(base_score=2.5).fit(X, Y))
    with pytest.raises(ValueError, match=r"base_score must be a number or have shape \(3,\)"):
        classifier(base_score=[0.0, 1.0]).fit(X, THREE)


def test_the_tolerance_reaches_the_fit():
    y = Y + np.random.default_rng(5).normal(size=60)
    watched = {"eval_set": [(X[VALID], y[VALID])]}
    curve = regressor(n_estimators=30, early_stopping=False).fit(X[TRAIN], y[TRAIN], **watched)
    curve = curve.evals_result_["validation_0"]["squared_error"]
    best, expected = np.inf, -1
    for t, value in enumerate(curve):
        if value < best - 0.1:
            best, expected = value, t
        elif t - expected >= 3:
            break
    estimator = regressor(n_estimators=30, tol=0.1).fit(X[TRAIN], y[TRAIN], **watched)
    assert (estimator.best_iteration_, estimator.n_iter_) == (expected, t + 1)
    assert estimator.best_score_ == pytest.approx(curve[expected])
    with pytest.raises(ValueError, match="tol must be non-negative"):
        regressor(tol=-1.0).fit(X, Y)


@pytest.mark.parametrize("steps", [(3, 20), (2, 4, 7, 20)])
def test_warm_start_with_a_tolerance_is_one_longer_fit(steps):
    y = Y + np.random.default_rng(5).normal(size=60)
    watched = {"eval_set": [(X[VALID], y[VALID])]}
    estimator = regressor(warm_start=True, tol=0.03)
    for n_estimators in steps:
        estimator.set_params(n_estimators=n_estimators).fit(X[TRAIN], y[TRAIN], **watched)
    whole = regressor(n_estimators=20, tol=0.03).fit(X[TRAIN], y[TRAIN], **watched)
    assert whole.n_iter_ < 20
    assert_same_model(estimator, whole)
    for attribute in ("n_iter_", "best_iteration_", "best_score_", "evals_result_"):
        assert getattr(estimator, attribute) == getattr(whole, attribute), attribute


def test_weights_of_features_reach_the_fit():
    estimator = regressor().fit(X, Y, feature_weights=[0, 1, 1])
    assert estimator.split_counts_[0] == 0 < regressor().fit(X, Y).split_counts_[0]
    with pytest.raises(ValueError, match=r"feature_weights must have shape \(3,\)"):
        regressor().fit(X, Y, feature_weights=[1, 1])


def test_callbacks_reach_the_fit():
    seen = []
    regressor().fit(X, Y, callbacks=[lambda progress: seen.append(progress.n_rounds)])
    assert seen[0] == 1
    assert seen[-1] == 6
    estimator = regressor(warm_start=True).fit(X, Y, callbacks=[lambda progress: True])
    assert estimator.n_trees_ == estimator.n_iter_ == 1
    assert_same_model(estimator.fit(X, Y), regressor().fit(X, Y))


# ---------------------------------------------------------------- rows to watch that a pipeline can transform


def test_x_val_is_an_eval_set():
    weight = WEIGHT[VALID]
    one = classifier().fit(
        X[TRAIN], THREE[TRAIN], X_val=X[VALID], y_val=THREE[VALID], sample_weight_val=weight
    )
    pairs = {"eval_set": [(X[VALID], THREE[VALID])], "eval_sample_weight": [weight]}
    other = classifier().fit(X[TRAIN], THREE[TRAIN], **pairs)
    assert_same_model(one, other)
    assert one.evals_result_ == other.evals_result_


def test_a_pipeline_transforms_x_val():
    with sklearn.config_context(enable_metadata_routing=True):
        final: Any = regressor(n_estimators=12).set_fit_request(X_val=True, y_val=True)
        pipeline = make_pipeline(StandardScaler(), final, transform_input=["X_val"])
        pipeline.fit(X[TRAIN], Y[TRAIN], X_val=X[VALID], y_val=Y[VALID])
    scaler = StandardScaler().fit(X[TRAIN])
    scaled = [(scaler.transform(X[VALID]), Y[VALID])]
    by_hand = regressor(n_estimators=12).fit(scaler.transform(X[TRAIN]), Y[TRAIN], eval_set=scaled)
    assert_same_model(final, by_hand)
    assert final.evals_result_ == by_hand.evals_result_


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X_val": X}, "X_val and y_val must be given together"),
        ({"y_val": Y}, "X_val and y_val must be given together"),
        ({"sample_weight_val": WEIGHT}, "X_val and y_val must be given together"),
        ({"X_val": X, "y_val": Y, "eval_set": [(X, Y)]}, "eval_set must be None where X_val"),
        ({"X_val": X[:, :2], "y_val": Y}, "X_val, y_val: X has 2 features"),
        (
            {"X_val": X, "y_val": Y, "sample_weight_val": -WEIGHT},
            "X_val, y_val: sample_weight must be finite and non-negative",
        ),
    ],
)
def test_x_val_that_does_not_fit_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        regressor().fit(X, Y, **arguments)


# ---------------------------------------------------------------- targets in other forms


def censored(score, y):
    """Squared error of an observed time; of a censored one only if the score is below it."""
    short = jnp.maximum(y["time"] - score, 0)
    return 0.5 * jnp.where(y["seen"] > 0, (score - y["time"]) ** 2, short**2)


@pytest.mark.slow
def test_a_dict_of_targets():
    y = {"time": Y, "seen": POSITIVE}
    estimator = regressor(loss=censored).fit(
        X, y, WEIGHT, X_val=X[:20], y_val={k: v[:20] for k, v in y.items()}
    )
    model, history = jboost.fit(
        censored,
        jboost.bin_features(X, max_bins=15, sample_weight=WEIGHT),
        y,
        spec=jboost.Spec(n_estimators=6, max_depth=2),
        hyper=jboost.Hyper(learning_rate=0.5),
        sample_weight=WEIGHT,
    )
    np.testing.assert_array_equal(estimator.predict(X), np.float64(jboost.predict(model, X)))
    np.testing.assert_array_equal(estimator.history_.train_loss, history.train_loss)
    frame = regressor(loss=censored).fit(X, {"time": pd.Series(Y), "seen": POSITIVE.tolist()}, WEIGHT)
    assert_same_model(frame, estimator)
    held_out = regressor(loss=censored, early_stopping=True, random_state=0).fit(X, y)
    assert np.isfinite(held_out.best_score_)


def test_a_dict_of_targets_must_fit():
    y = {"time": Y, "seen": POSITIVE}
    with pytest.raises(TypeError, match="y must be an array of labels, got a dict"):
        classifier().fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor(loss=censored).fit(X, y | {"seen": POSITIVE[:-1]})
    with pytest.raises(ValueError, match=r"y\['time'\] contains NaN"):
        regressor(loss=censored).fit(X, y | {"time": np.where(Y > 0, np.nan, Y)})
    with pytest.raises(ValueError, match="y must hold an array, got an empty dict"):
        regressor(loss=censored).fit(X, {})
    with pytest.raises(ValueError, match="X_val, y_val: y must have rows of shape"):
        regressor(loss=censored).fit(X, y, X_val=X, y_val=Y)


@pytest.mark.slow
def test_a_frame_of_targets():
    both = np.stack([Y, -2 * Y], axis=1)
    assert_same_model(regressor().fit(X, pd.DataFrame(both, columns=["a", "b"])), regressor().fit(X, both))
    several = classifier().fit(X, pd.DataFrame(SEVERAL, columns=["a", "b", "c"]))
    assert_same_model(several, classifier().fit(X, SEVERAL))
    mixed = pd.DataFrame({"a": SEVERAL[:, 0], "b": SEVERAL[:, 1] > 0, "c": SEVERAL[:, 2] * 1.0})
    assert_same_model(classifier().fit(X, mixed), several)


# ---------------------------------------------------------------- several labels at once


@pytest.mark.parametrize(
    "make", [np.array, lambda y: y.tolist(), lambda y: y.astype(bool), lambda y: y.astype(float)]
)
def test_several_labels_are_as_many_classifiers(make):
    estimator = classifier(multi_output="separate").fit(X, make(SEVERAL), WEIGHT)
    assert estimator.multilabel_
    np.testing.assert_array_equal(estimator.classes_, [0, 1, 2])
    probability, score = estimator.predict_proba(X), estimator.decision_function(X)
    assert probability.shape == score.shape == (60, 3)
    for column in range(3):
        alone = classifier().fit(X, SEVERAL[:, column], WEIGHT)
        np.testing.assert_allclose(probability[:, column], alone.predict_proba(X)[:, 1], rtol=1e-4)
        np.testing.assert_allclose(score[:, column], alone.decision_function(X), rtol=1e-3, atol=1e-5)
    predicted = estimator.predict(X)
    assert predicted.dtype.kind == "i"
    np.testing.assert_array_equal(predicted, score > 0)
    np.testing.assert_array_equal(list(estimator.staged_predict(X))[-1], predicted)
    assert estimator.score(X, SEVERAL) == np.all(predicted == SEVERAL, axis=1).mean()


@pytest.mark.slow
def test_several_labels_in_one_tree_are_watched():
    watched = {"X_val": X[VALID], "y_val": SEVERAL[VALID]}
    estimator = classifier(eval_metric="logloss").fit(X[TRAIN], SEVERAL[TRAIN], **watched)
    probability = estimator.predict_proba(X[VALID])
    expected = np.mean([log_loss(SEVERAL[VALID, j], probability[:, j]) for j in range(3)])
    np.testing.assert_allclose(estimator.best_score_, expected, rtol=1e-5)
    held_out = classifier(early_stopping=True, random_state=0).fit(X, SEVERAL)
    assert len(held_out.history_.valid_metric) == held_out.n_iter_
    copy = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(copy.predict(X), estimator.predict(X))


def own_sum_of_logistics(score, y):
    return (jax.nn.softplus(score) - y * score).sum()


@pytest.mark.slow
def test_several_labels_with_a_loss_of_ones_own():
    one, other = classifier(loss=own_sum_of_logistics).fit(X, SEVERAL), classifier().fit(X, SEVERAL)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-6)
    with pytest.raises(ValueError, match="loss has n_outputs=2, but y has 3 labels"):
        classifier(loss=losses.softmax(2)).fit(X, SEVERAL)
    with pytest.raises(ValueError, match=r"loss must be .* 'log_loss', 'exponential', got 'hinge'"):
        classifier(loss="hinge").fit(X, SEVERAL)


def test_several_labels_that_are_none_are_refused():
    for y in (SEVERAL + 1, 2 * SEVERAL, np.stack([THREE, THREE], axis=1), np.where(SEVERAL > 0, "a", "b")):
        with pytest.raises(
            ValueError, match="y must be a 1d array of labels, or hold only 0 and 1 in a column"
        ):
            classifier().fit(X, y)
    with pytest.raises(ValueError, match="class_weight must be None where several labels"):
        classifier(class_weight="balanced").fit(X, SEVERAL)
    with pytest.raises(ValueError, match="eval_metric='accuracy' is for one label a row"):
        classifier(eval_metric="accuracy").fit(X, SEVERAL, eval_set=[(X, SEVERAL)])
    with pytest.raises(ValueError, match=r"X_val, y_val: y must have shape \[n 3\]"):
        classifier().fit(X, SEVERAL, X_val=X, y_val=POSITIVE)
    with pytest.raises(ValueError, match=r"X_val, y_val: y must have rows of shape \(3,\)"):
        classifier().fit(X, SEVERAL, X_val=X, y_val=SEVERAL[:, :2])
    with pytest.raises(ValueError, match=r"X_val, y_val: y must have shape \[n\]"):
        classifier().fit(X, POSITIVE, X_val=X, y_val=SEVERAL)


def test_scikit_learn_checks_several_labels():
    """It runs this one only for classifiers of several classes in several columns, which needs no less."""
    estimator: Any = classifier()
    check: Any = estimator_checks.check_classifier_multioutput
    check("JBoostClassifier", estimator)


# ---------------------------------------------------------------- what is stored


def test_the_state_beside_the_model_holds_no_device_arrays():
    """So that any way of storing objects can store it."""
    first = classifier(n_estimators=2).fit(X, THREE)
    for options in ({}, {"init_model": first}, {"X_val": X, "y_val": THREE}):
        state = vars(classifier().fit(X, THREE, **options)).items()
        leaves = jax.tree.leaves({name: value for name, value in state if name != "model_"})
        assert not [leaf for leaf in leaves if isinstance(leaf, jax.Array)]


# ---------------------------------------------------------------- weights of classes


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["0", "1"]),
        np.array(["0", "1"], object),
        np.array([0, 1]),
        np.array([False, True]),
        np.array([0.0, 2.0]),
    ],
    ids=str,
)
def test_a_dict_weighs_labels_of_any_kind(labels):
    by_hand = classifier().fit(X, POSITIVE, np.array([1.0, 3.0])[POSITIVE])
    weighted = classifier(class_weight=dict(zip(labels.tolist(), [1.0, 3.0], strict=True)))
    assert_same_model(weighted.fit(X, labels[POSITIVE]), by_hand)
    one = classifier(class_weight={labels.tolist()[1]: 3.0})  # the other weighs 1
    assert_same_model(one.fit(X, labels[POSITIVE]), by_hand)


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ({0: 1.0, 1: 3.0}, r"class_weight must name labels of y, \['0', '1'\], got \[0, 1\]"),
        ("heavy", "class_weight must be a dict, 'balanced' or None, got 'heavy'"),
        ({"0": -1.0}, "class_weight must hold finite numbers of at least 0"),
        ({"0": None}, "class_weight must hold finite numbers of at least 0"),
    ],
)
def test_weights_of_classes_that_are_none_are_refused(class_weight, message):
    with pytest.raises(ValueError, match=message):
        classifier(class_weight=class_weight).fit(X, POSITIVE.astype(str))
