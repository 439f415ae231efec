"""The estimators: labels, targets, losses by name, predictions, parameters, pickling."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from joblib import wrap_non_picklable_objects
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import jboost
from jboost import Hyper, JBoostClassifier, JBoostRegressor, Loss, Spec, losses
from jboost.losses.special import softplus
from jboost.sklearn.names import classification_loss, regression_loss
from tests.sklearn_data import (
    POSITIVE,
    SMALL,
    THREE,
    WEIGHT,
    X,
    Y,
    assert_same_model,
    classifier,
    regressor,
)


def own_squared_error(score, y):
    return 0.5 * (score - y) ** 2


def copied_logistic(score, y):
    return softplus(score) - y * score  # with the derivatives of jboost's own


def own_logistic(score, y):
    return jax.nn.softplus(score) - y * score


def own_softmax(score, y):
    a, b, c = score
    top = jax.lax.stop_gradient(jnp.maximum(jnp.maximum(a, b), c))
    of_y = jnp.where(y == 0, a, 0.0) + jnp.where(y == 1, b, 0.0) + jnp.where(y == 2, c, 0.0)
    return jnp.log(jnp.exp(a - top) + jnp.exp(b - top) + jnp.exp(c - top)) + top - of_y


# ---------------------------------------------------------------- the functional core behind the estimators


def test_a_regressor_is_the_functional_fit():
    spec = Spec(n_estimators=6, max_depth=2)
    hyper = Hyper(learning_rate=0.5, subsample=0.7)
    data = jboost.bin_features(X, max_bins=15, sample_weight=WEIGHT)
    model, history = jboost.fit(
        losses.squared_error,
        data,
        Y,
        spec=spec,
        hyper=hyper,
        sample_weight=WEIGHT,
        key=jax.random.key(3),
    )
    estimator = regressor(subsample=0.7, random_state=3).fit(X, Y, WEIGHT)
    np.testing.assert_array_equal(estimator.predict(X), np.float64(jboost.predict(model, X)))
    np.testing.assert_array_equal(estimator.history_.train_loss, history.train_loss)


@pytest.mark.parametrize("kind", [JBoostRegressor, JBoostClassifier])
def test_parameters_are_those_of_spec_and_hyper_with_their_defaults(kind):
    parameters = kind().get_params()
    for record in (Spec, Hyper):
        for one in dataclasses.fields(record):
            if one.name != "n_iter_no_change":  # None there: Spec has no early_stopping beside it
                assert parameters[one.name] == one.default, one.name


def test_parameters_reach_the_fit():
    changed = {
        "max_depth": 1,
        "grow_policy": "depthwise",
        "min_child_samples": 20,
        "reg_lambda": 30.0,
        "reg_alpha": 3.0,
        "gamma": 2.0,
        "min_child_weight": 20.0,
        "max_delta_step": 0.05,
        "subsample": 0.5,
        "colsample_bytree": 0.3,
        "colsample_bylevel": 0.3,
        "learning_rate": 0.1,
        "max_bins": 3,
    }
    plain = regressor(random_state=0).fit(X, Y).predict(X)
    for name, value in changed.items():
        other = regressor(random_state=0, **{name: value}).fit(X, Y).predict(X)
        assert np.abs(other - plain).max() > 1e-3, name


@pytest.mark.parametrize(
    ("parameters", "argument"),
    [
        ({"n_estimators": -1}, "n_estimators"),
        ({"max_depth": 0}, "max_depth"),
        ({"grow_policy": "lossguide"}, "grow_policy"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"subsample": 1.5}, "subsample"),
        ({"max_bins": 1}, "max_bins"),
        ({"early_stopping": "yes"}, "early_stopping"),
        ({"early_stopping": True, "validation_fraction": 1.0}, "validation_fraction"),
        ({"early_stopping": True, "validation_fraction": 10**6}, "validation_fraction"),
        ({"validation_fraction": 2.0}, "validation_fraction"),  # though nothing stops early
        ({"n_iter_no_change": 0}, "n_iter_no_change"),
        ({"early_stopping": True, "n_iter_no_change": 0}, "n_iter_no_change"),
        ({"eval_metric": "rsme"}, "eval_metric"),
        ({"loss": "squared"}, "loss"),
        ({"loss": "quantile"}, "quantile"),
        ({"loss": "quantile", "quantile": 1.0}, "^quantile must be strictly between 0 and 1"),
        ({"categorical_features": [7]}, "categorical"),
        ({"random_state": -1}, "random_state"),
    ],
)
def test_a_parameter_out_of_range_is_named(parameters, argument):
    with pytest.raises(ValueError, match=argument):
        regressor(**parameters).fit(X, Y)


def test_a_loss_that_is_none_is_refused():
    with pytest.raises(TypeError, match="loss"):
        regressor(loss=3).fit(X, Y)
    with pytest.raises(ValueError, match="loss must be one for classes"):
        classifier(loss=losses.huber(1.0)).fit(X, POSITIVE)


def test_an_estimator_without_a_model_says_so():
    for attribute in ("feature_importances_", "split_counts_"):
        assert not hasattr(regressor(), attribute)
    with pytest.raises(NotFittedError):
        classifier().predict_proba(X)
    with pytest.raises(NotFittedError):
        next(regressor().staged_predict(X))


def test_a_fit_that_fails_leaves_no_model_of_other_labels():
    estimator = classifier().fit(X, np.where(POSITIVE, "a", "b"))
    with pytest.raises(ValueError, match="eval_set"):
        estimator.fit(X, np.where(POSITIVE, "c", "d"), eval_set=[(X, np.where(POSITIVE, "c", "e"))])
    with pytest.raises(NotFittedError):
        estimator.predict(X)


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "labels",
    [
        np.array([1, 2]),
        np.array([-1, 1]),
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        np.array([False, True]),
        np.array([0.0, 2.0]),
        np.array([2**40, 2**40 + 1]),
    ],
    ids=str,
)
def test_two_labels_of_any_kind(labels):
    plain = classifier().fit(X, POSITIVE)
    estimator = classifier().fit(X, labels[POSITIVE])
    assert estimator.classes_.dtype == labels.dtype
    np.testing.assert_array_equal(estimator.classes_, labels)
    np.testing.assert_array_equal(estimator.predict_proba(X), plain.predict_proba(X))
    predicted = estimator.predict(X)
    assert predicted.dtype == labels.dtype
    np.testing.assert_array_equal(predicted, labels[(plain.decision_function(X) > 0).astype(int)])
    assert estimator.score(X, labels[POSITIVE]) > 0.85


@pytest.mark.parametrize(
    "make",
    [pd.Series, lambda y: pd.Series(y, dtype="category"), list, np.array, lambda y: np.array(y)[:, None]],
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_three_labels_in_any_container(make):
    labels = np.array(["low", "mid", "top"])[THREE]
    estimator = classifier().fit(X, make(labels.tolist()))
    np.testing.assert_array_equal(estimator.classes_, ["low", "mid", "top"])
    probability = estimator.predict_proba(X)
    assert probability.shape == estimator.decision_function(X).shape == (60, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-14)
    score = estimator.decision_function(X)
    expected = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probability, expected, rtol=1e-12)
    np.testing.assert_array_equal(estimator.predict(X), estimator.classes_[score.argmax(axis=1)])


def test_probabilities_of_two_classes_are_those_of_the_log_odds():
    estimator = classifier(n_estimators=60).fit(X, POSITIVE)
    score, probability = estimator.decision_function(X), estimator.predict_proba(X)
    np.testing.assert_allclose(probability[:, 1], 1 / (1 + np.exp(-score)), rtol=1e-13)
    np.testing.assert_allclose(probability[:, 0], 1 / (1 + np.exp(score)), rtol=1e-9)
    np.testing.assert_array_equal(probability.sum(axis=1), 1)


def test_a_single_class_is_predicted():
    estimator = classifier().fit(X, np.full(60, "only"))
    assert (estimator.predict(X) == "only").all()
    np.testing.assert_array_equal(estimator.predict_proba(X), np.ones((60, 1)))
    score = estimator.decision_function(X)
    assert np.isfinite(score).all()
    assert (score > 3).all()


@pytest.mark.parametrize("y", [[0, 1, np.nan], [0, np.inf, 1]])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_a_target_that_is_not_finite_is_refused(make, y):
    with pytest.raises(ValueError, match="y contains"):
        make().fit([[1], [2], [3]], y)


@pytest.mark.parametrize("dtype", ["Int64", "UInt8", "boolean", "int64[pyarrow]", "bool[pyarrow]"])
def test_labels_that_could_be_missing_but_are_not_keep_their_kind(dtype):
    estimator = classifier().fit(X, pd.Series(POSITIVE).astype(bool).astype(dtype))
    assert estimator.classes_.dtype.kind == ("b" if "bool" in dtype else "u" if "UInt" in dtype else "i")
    assert_same_model(estimator, classifier().fit(X, POSITIVE))


def test_missing_labels_are_refused():
    with pytest.raises(ValueError, match="y contains NaN"):
        classifier().fit(X[:3], pd.Series([0, 1, pd.NA], dtype="Int64"))
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X[:3], pd.Series([0, 1, pd.NA], dtype="Float64"))
    with pytest.raises((TypeError, ValueError)):
        classifier().fit(X[:3], ["a", None, "b"])
    with pytest.raises(ValueError, match="requires y"):
        regressor().fit(X, None)


def test_targets_that_are_no_labels_are_refused():
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, Y)
    with pytest.raises(ValueError, match="1d"):
        classifier().fit(X, np.stack([THREE, THREE], axis=1))
    with pytest.raises(TypeError, match="y must hold real numbers"):
        regressor().fit(X, np.where(POSITIVE, "a", "b"))
    with pytest.raises(TypeError, match="y must hold real numbers"):
        regressor().fit(X, np.where(POSITIVE, "a", "b").astype(object))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        regressor().fit(X, Y[:-1])


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize(
    "name", ["poisson", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gamma", "tweedie"))]
)
def test_a_log_link_is_inverted(name):
    y = np.abs(Y) + 0.1
    estimator = regressor(loss=name).fit(X, y)
    np.testing.assert_allclose(estimator.predict(X), np.exp(np.float64(jboost.predict(estimator.model_, X))))
    assert estimator.score(X, y) > 0.3


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("squared_error", losses.squared_error),
        ("absolute_error", losses.absolute_error),
        ("huber", losses.huber()),
        ("pseudo_huber", losses.pseudo_huber()),
        ("poisson", losses.poisson),
        ("gamma", losses.gamma),
        ("tweedie", losses.tweedie(1.5)),
        ("quantile", losses.quantile(0.2)),
    ],
)
def test_a_name_stands_for_a_loss_of_a_regressor(name, loss):
    assert regression_loss(name, 0.2) == regression_loss(loss, None) == loss


@pytest.mark.parametrize(
    ("name", "n_classes", "loss"),
    [
        ("log_loss", 1, losses.logistic),
        ("log_loss", 2, losses.logistic),
        ("log_loss", 3, losses.softmax(3)),
        ("exponential", 2, losses.exponential),
    ],
)
def test_a_name_stands_for_a_loss_of_a_classifier(name, n_classes, loss):
    assert classification_loss(name, n_classes) == classification_loss(loss, n_classes) == loss


def test_a_copy_of_a_built_in_loss_gives_the_same_regressor():
    assert_same_model(regressor(loss=own_squared_error).fit(X, Y), regressor().fit(X, Y))


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (Loss(copied_logistic, constant=losses.logistic.constant), POSITIVE),
        pytest.param(
            Loss(own_softmax, constant=losses.softmax(3).constant, hessian_floor=1e-6),
            THREE,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["logistic", "softmax"],
)
def test_a_copy_of_a_built_in_loss_gives_the_same_classifier(loss, y):
    one, other = classifier(loss=loss).fit(X, y), classifier().fit(X, y)
    assert_same_model(one, other)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.slow  # which test_fit_losses.py shows of the functional core
@pytest.mark.parametrize(("loss", "y"), [(own_logistic, POSITIVE), (own_softmax, THREE)])
def test_a_function_alone_differs_by_where_its_best_constant_is_found(loss, y):
    one, other = classifier(loss=loss).fit(X, y), classifier().fit(X, y)
    np.testing.assert_array_equal(one.model_.trees.feature, other.model_.trees.feature)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-4)


@pytest.mark.slow
def test_a_loss_with_an_output_for_each_of_two_classes():
    estimator = classifier(loss=losses.softmax(2)).fit(X, POSITIVE)
    score = np.asarray(jboost.predict(estimator.model_, X), dtype=np.float64)
    assert score.shape == (60, 2)
    np.testing.assert_array_equal(estimator.decision_function(X), score[:, 1] - score[:, 0])
    np.testing.assert_array_equal(estimator.predict(X), (estimator.decision_function(X) > 0).astype(int))


def test_a_loss_for_other_classes_is_refused():
    with pytest.raises(ValueError, match="n_outputs=3, but y has 2 classes"):
        classifier(loss=losses.softmax(3)).fit(X, POSITIVE)
    with pytest.raises(ValueError, match="two classes"):
        classifier(loss="exponential").fit(X, THREE)


@pytest.mark.parametrize(("loss", "bad"), [("poisson", -1.0), ("gamma", 0.0), ("tweedie", -0.5)])
def test_a_target_outside_the_domain_of_the_loss_is_refused(loss, bad):
    with pytest.raises(ValueError, match=f"y must be .*{bad}"):
        regressor(loss=loss).fit([[1], [2], [3]], [1.0, 2.0, bad])


def test_poisson_of_zeros_predicts_about_zero():
    estimator = regressor(loss="poisson").fit(X, np.zeros(60))
    predicted = estimator.predict(X)
    assert ((predicted >= 0) & (predicted < 0.05)).all()
    assert np.isfinite(np.asarray(jboost.predict(estimator.model_, X))).all()


def test_the_quantile_of_a_constant_feature():
    y = np.arange(10.0)
    predicted = regressor(loss="quantile", quantile=0.9).fit(np.ones((10, 1)), y).predict(np.ones((1, 1)))
    np.testing.assert_allclose(predicted, np.quantile(y, 0.9, method="averaged_inverted_cdf"))


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
def test_a_quantile_covers_its_share(quantile):
    estimator = regressor(loss="quantile", quantile=quantile, n_estimators=30).fit(X, Y)
    assert abs(np.mean(estimator.predict(X) >= Y) - quantile) < 0.08
    assert np.ptp(estimator.predict(X)) > 1


def test_several_outputs():
    both = np.stack([Y, -2 * Y], axis=1)
    estimator = regressor().fit(X, both)
    predicted = estimator.predict(X)
    assert predicted.shape == (60, 2)
    np.testing.assert_allclose(predicted[:, 1], -2 * predicted[:, 0], rtol=1e-4, atol=1e-5)
    assert estimator.score(X, both) > 0.8
    separate = regressor(multi_output="separate").fit(X, both).predict(X)
    for column in range(2):
        alone = regressor().fit(X, both[:, column]).predict(X)
        np.testing.assert_allclose(separate[:, column], alone, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------- predictions


def test_stages_end_in_the_prediction():
    for estimator in (regressor().fit(X, Y), classifier().fit(X, THREE)):
        stages = list(estimator.staged_predict(X))
        assert len(stages) == estimator.n_trees_ == 6
        np.testing.assert_array_equal(stages[-1], estimator.predict(X))
    np.testing.assert_array_equal(list(estimator.staged_predict_proba(X))[-1], estimator.predict_proba(X))
    decisions = list(estimator.staged_decision_function(X))
    np.testing.assert_array_equal(decisions[-1], estimator.decision_function(X))
    shorter = classifier(n_estimators=3).fit(X, THREE)
    np.testing.assert_allclose(decisions[2], shorter.decision_function(X), rtol=1e-6)


def test_no_rounds_give_the_base_score():
    estimator = regressor(n_estimators=0).fit(X, Y, WEIGHT)
    np.testing.assert_allclose(estimator.predict(X), np.average(Y, weights=WEIGHT), rtol=1e-6)
    assert (estimator.n_trees_, estimator.best_iteration_, estimator.best_score_) == (0, -1, None)
    assert list(estimator.staged_predict(X)) == []
    np.testing.assert_array_equal(estimator.feature_importances_, np.zeros(3))
    share = classifier(n_estimators=0).fit(X, POSITIVE).predict_proba(X)[:, 1]
    np.testing.assert_allclose(share, POSITIVE.mean(), rtol=1e-5)


def test_nothing_to_predict():
    empty = np.empty((0, 3))
    assert regressor().fit(X, Y).predict(empty).shape == (0,)
    assert regressor().fit(X, np.stack([Y, Y], axis=1)).predict(empty).shape == (0, 2)
    estimator = classifier().fit(X, THREE)
    assert estimator.predict(empty).shape == (0,)
    assert estimator.predict_proba(empty).shape == estimator.decision_function(empty).shape == (0, 3)


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_importances_are_shares_of_the_gain(policy):
    estimator = regressor(grow_policy=policy).fit(X, Y)
    gain, count = np.zeros(3), np.zeros(3, int)
    trees = estimator.model_.trees
    for feature, one in zip(np.ravel(trees.feature), np.ravel(trees.gain), strict=True):
        if one > 0:
            gain[feature] += one
            count[feature] += 1
    np.testing.assert_allclose(estimator.feature_importances_, gain / gain.sum())
    np.testing.assert_array_equal(estimator.split_counts_, count)
    assert estimator.feature_importances_.argmax() == 0
    assert estimator.split_counts_.dtype.kind == "i"


def test_float64_comes_back():
    assert regressor().fit(X.astype(np.float32), Y.astype(np.float32)).predict(X).dtype == np.float64
    assert classifier().fit(X, POSITIVE).predict_proba(X).dtype == np.float64


# ---------------------------------------------------------------- copies


def test_a_loss_of_a_module_is_pickled_by_name():
    loss = Loss(own_squared_error)  # whose program is that of the function alone
    estimator = regressor(loss=loss).fit(X, Y)
    copy = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_array_equal(copy.predict(X), estimator.predict(X))
    assert_same_model(copy.fit(X, Y), estimator)


def test_a_lambda_is_refused_by_pickle_alone(tmp_path):
    estimator = regressor(loss=lambda score, y: 0.5 * (score - y) ** 2).fit(X, Y)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(estimator)
    copy = pickle.loads(pickle.dumps(wrap_non_picklable_objects(estimator)))  # by cloudpickle
    assert_same_model(copy.fit(X, Y), estimator)
    jboost.save(estimator.model_, tmp_path / "model")
    loaded = jboost.load(tmp_path / "model")
    np.testing.assert_array_equal(np.float64(jboost.predict(loaded, X)), estimator.predict(X))


def test_a_clone_has_the_parameters_and_no_model():
    estimator = regressor(loss=losses.poisson, random_state=1).fit(X, np.abs(Y) + 0.1)
    copy: Any = clone(estimator)
    assert not hasattr(copy, "model_")
    assert copy.get_params() == estimator.get_params()
    assert_same_model(copy.fit(X, np.abs(Y) + 0.1), estimator)


def test_random_state():
    sampled = {"subsample": 0.5, "colsample_bytree": 0.5}
    first = regressor(random_state=4, **sampled).fit(X, Y)
    assert_same_model(first, regressor(random_state=4, **sampled).fit(X, Y))
    one, other = (regressor(random_state=np.random.RandomState(4), **sampled).fit(X, Y) for _ in range(2))
    assert_same_model(one, other)
    assert np.abs(regressor(random_state=5, **sampled).fit(X, Y).predict(X) - first.predict(X)).max() > 1e-3


def test_searches_and_pipelines():
    search = GridSearchCV(regressor(), {"learning_rate": [0.001, 0.5]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"learning_rate": 0.5}
    accuracy = cross_val_score(make_pipeline(StandardScaler(), classifier()), X, THREE, cv=3)
    assert accuracy.min() > 0.5


def test_the_printed_form_shows_what_is_not_default():
    assert str(JBoostRegressor(learning_rate=0.5)) == "JBoostRegressor(learning_rate=0.5)"
    assert set(SMALL) < set(JBoostClassifier().get_params())
