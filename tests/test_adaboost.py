"""AdaBoost against scikit-learn's, and against forward stagewise fitting of the exponential loss."""

from __future__ import annotations

import dataclasses
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from sklearn import ensemble
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import jboost
from jboost import AdaBoostClassifier, Hyper, Spec
from jboost.textbook import adaboost
from tests.test_fit_rounds import compilations

N, ROUNDS = 300, 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
X_TEST = RNG.normal(size=(N, 3))
SIGNAL = X[:, 0] + X[:, 1] ** 2 + 0.5 * RNG.normal(size=N)
CLASS = {k: np.digitize(SIGNAL, np.quantile(SIGNAL, np.arange(1, k) / k)) for k in (2, 3)}
WEIGHT = RNG.exponential(size=N)  # so that no two splits are equally good
STUMPS = Spec(n_estimators=ROUNDS, max_depth=1, grow_policy="depthwise")
DEEPER = dataclasses.replace(STUMPS, max_depth=2)
GINI = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)


def binned():
    """A bin for each value: the splits are those of exact search."""
    return jboost.bin_features(X, max_bins=N)


def estimator(spec=STUMPS, **options):
    return AdaBoostClassifier(spec.n_estimators, max_depth=spec.max_depth, max_bins=N, **options)


def peer(max_depth, n_estimators=ROUNDS, **options):
    tree = DecisionTreeClassifier(max_depth=max_depth)
    return ensemble.AdaBoostClassifier(tree, n_estimators=n_estimators, **options)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("k", "spec", "rate"),
    [(2, STUMPS, 1.0), pytest.param(3, STUMPS, 0.5, marks=pytest.mark.slow), (3, DEEPER, 1.0)],
    ids=["2", "3", "deeper"],
)
def test_it_is_that_of_scikit_learn_round_by_round(k, spec, rate):
    y = np.array(["a", "b", "c"])[CLASS[k]]
    ours = estimator(spec, learning_rate=rate).fit(X, y, WEIGHT)
    theirs = peer(spec.max_depth, learning_rate=rate).fit(X, y, WEIGHT / WEIGHT.sum())
    np.testing.assert_allclose(ours.estimator_errors_, theirs.estimator_errors_, rtol=1e-9)
    np.testing.assert_allclose(ours.estimator_weights_, theirs.estimator_weights_, rtol=1e-9)
    # Below the root scikit-learn's thresholds lie between values of the node, ours between those of all rows.
    for rows in (X, X_TEST) if spec.max_depth == 1 else (X,):
        for one, other in zip(ours.staged_predict(rows), theirs.staged_predict(rows), strict=True):
            np.testing.assert_array_equal(one, other)
    votes, say = ours.decision_function(X), ours.estimator_weights_.sum()
    expected = 2 * votes / say if k == 2 else (k * votes / say - 1) / (k - 1)
    np.testing.assert_allclose(theirs.decision_function(X), expected, rtol=1e-9, atol=1e-12)
    if spec.max_depth == 1:
        np.testing.assert_allclose(ours.feature_importances_, theirs.feature_importances_, rtol=1e-9)
    *_, last = ours.staged_score(X, y, WEIGHT)
    assert last == ours.score(X, y, WEIGHT)


def risk_along(step, weight, margin):
    return np.sum(weight * np.exp(-step * margin))


@pytest.mark.usefixtures("x64")
def test_it_is_forward_stagewise_fitting_of_the_exponential_loss():
    """Weights are exp(-y f) of half the votes, and alpha / 2 the best step along each tree."""
    sign = 2.0 * CLASS[2] - 1
    model, record = adaboost(binned(), CLASS[2], n_classes=2, spec=STUMPS, sample_weight=WEIGHT)
    score, weight = np.zeros(N), WEIGHT
    for alpha, error, votes in zip(
        np.asarray(model.tree_weight), record.error, jboost.staged_predict(model, X), strict=True
    ):
        after = 0.5 * np.asarray(votes)
        tree = (after - score) / (0.5 * alpha)
        np.testing.assert_allclose(np.abs(tree), 1, rtol=1e-9)
        np.testing.assert_allclose(error, np.average(tree * sign < 0, weights=weight), rtol=1e-9)
        step = minimize_scalar(risk_along, args=(weight, sign * tree), tol=1e-12).x
        np.testing.assert_allclose(step, alpha / 2, rtol=1e-6)
        score, weight = after, WEIGHT * np.exp(-sign * after)
        np.testing.assert_allclose(np.average(tree * sign < 0, weights=weight), 0.5, rtol=1e-9)
    np.testing.assert_allclose(np.asarray(record.weight) / weight, np.mean(record.weight / weight), rtol=1e-9)


@pytest.mark.slow
def test_fits_side_by_side_are_those_of_each():
    """Of data sets, classes, weights and rates of their own, in one program; and nothing depends on a unit."""
    sets = [(X, CLASS[2]), (X[::-1], CLASS[2]), (X_TEST, (X_TEST[:, 0] * X_TEST[:, 1] > 0.3).astype(int))]
    data = [jboost.bin_features(rows, max_bins=N) for rows, _ in sets]
    rates, weights = np.array([1.0, 0.5, 1.0]), np.stack([WEIGHT, WEIGHT[::-1], 1e-6 * WEIGHT])

    def fitted(data, y, weight, rate):
        hyper = dataclasses.replace(GINI, learning_rate=rate)
        return adaboost(data, y, n_classes=2, spec=DEEPER, hyper=hyper, sample_weight=weight)

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    labels = jnp.asarray(np.stack([y for _, y in sets]), jnp.int32)
    models, records = jax.jit(jax.vmap(fitted))(stacked, labels, weights, rates)
    for i, (_, y) in enumerate(sets):
        model, record = fitted(data[i], y, 8 * weights[i], rates[i])
        one, alpha = jax.tree.map(lambda leaf: leaf[i], (models.trees, models.tree_weight))  # noqa: B023
        assert int(records.n_rounds[i]) == record.n_rounds == model.n_trees == ROUNDS
        np.testing.assert_array_equal(one.feature, model.trees.feature)
        np.testing.assert_array_equal(one.threshold, model.trees.threshold)
        np.testing.assert_allclose(alpha, model.tree_weight, rtol=1e-5)
        np.testing.assert_array_equal(models.leaf_value[i], model.leaf_value)
        np.testing.assert_allclose(records.weight[i], record.weight, rtol=1e-4)


def test_a_second_fit_of_the_same_shape_compiles_nothing(caplog):
    def fit(rows, y, rate):
        adaboost(rows, y, n_classes=2, spec=STUMPS, hyper=dataclasses.replace(GINI, learning_rate=rate))

    fit(X, CLASS[2], 1.0)
    with compilations(caplog) as second:
        fit(X_TEST, 1 - CLASS[2], 0.3)
    assert second == []


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives_by_weights_and_rate():
    """The say of each tree is a smooth function of them while the trees stay."""
    data = binned()

    @jax.jit
    def last_alpha(weight, rate):
        hyper = dataclasses.replace(GINI, learning_rate=rate)
        return adaboost(data, CLASS[2], n_classes=2, spec=STUMPS, hyper=hyper, sample_weight=weight)[
            0
        ].tree_weight[-1]

    by_weight, by_rate = jax.jit(jax.grad(last_alpha, argnums=(0, 1)))(WEIGHT, 1.0)
    eps = 1e-6
    for direction in (RNG.normal(size=N), np.eye(N)[0]):
        ends = [last_alpha(WEIGHT + sign * eps * direction, 1.0) for sign in (1, -1)]
        np.testing.assert_allclose(
            by_weight @ direction, (ends[0] - ends[1]) / (2 * eps), rtol=1e-4, atol=1e-8
        )
    ends = [last_alpha(WEIGHT, 1.0 + sign * eps) for sign in (1, -1)]
    np.testing.assert_allclose(by_rate, (ends[0] - ends[1]) / (2 * eps), rtol=1e-4)


# ---------------------------------------------------------------- early ends


@jax.jit
def fit_inside(data, y):
    return adaboost(data, y, n_classes=2, spec=STUMPS)


def test_a_tree_without_an_error_decides_alone():
    y = (X[:, 0] > 0).astype(int)
    ours, theirs = estimator().fit(X, y), peer(1).fit(X, y)
    assert ours.n_trees_ == len(theirs.estimators_) == 1
    np.testing.assert_array_equal(ours.estimator_weights_, theirs.estimator_weights_[:1])
    np.testing.assert_array_equal(ours.estimator_errors_, [0])
    np.testing.assert_array_equal(ours.predict(X_TEST) == 1, theirs.predict(X_TEST) == 1)
    inside, record = fit_inside(binned(), y)
    assert record.n_rounds == 1
    np.testing.assert_array_equal(inside.tree_weight, np.eye(ROUNDS)[0])
    np.testing.assert_array_equal(jboost.predict(inside, X_TEST), ours.decision_function(X_TEST))


def test_a_tree_no_better_than_chance_ends_the_fit():
    """The second here: the first has nothing to split on, and weights are even after it."""
    nothing = np.zeros((N, 3))
    y = np.repeat([0, 1], [N // 3, N - N // 3])
    ours = estimator().fit(nothing, y)
    np.testing.assert_allclose(ours.estimator_errors_, [1 / 3], rtol=1e-6)
    np.testing.assert_allclose(ours.estimator_weights_, [np.log(2)], rtol=1e-6)
    assert (ours.predict(nothing) == 1).all()
    with pytest.raises(
        ValueError, match=r"the first tree gets 0.5 of the rows wrong .* have a chance of 0.5"
    ):
        estimator().fit(nothing, np.arange(N) % 2)
    _, record = fit_inside(jboost.bin_features(nothing, edges=binned().edges), np.arange(N) % 2)
    assert record.n_rounds == 0


# ---------------------------------------------------------------- rows, labels, models


def test_rows_without_weight_are_absent():
    weight = np.where(np.arange(N) % 12 == 0, 0.0, WEIGHT)
    kept = weight > 0
    everywhere, without = (
        estimator().fit(X, CLASS[2], weight),
        estimator().fit(X[kept], CLASS[2][kept], weight[kept]),
    )
    np.testing.assert_array_equal(everywhere.estimator_weights_, without.estimator_weights_)
    np.testing.assert_array_equal(everywhere.predict(X_TEST), without.predict(X_TEST))


def test_columns_of_any_kind_and_models_elsewhere(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = pd.Categorical(np.where(CLASS[3] == 1, "middle", "end"))
    frame.loc[::5, "a"] = np.nan
    y = np.array(["low", "middle", "high"])[CLASS[3]]
    found = AdaBoostClassifier(ROUNDS, max_depth=2, colsample_bytree=0.9, random_state=0).fit(frame, y)
    assert found.score(frame, y) > 0.9
    assert found.feature_importances_[3] > 0.2
    np.testing.assert_allclose(found.feature_importances_.sum(), 1)
    probability = found.predict_proba(frame)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    votes = found.decision_function(frame)
    np.testing.assert_allclose(
        probability, np.exp(votes) / np.exp(votes).sum(axis=1, keepdims=True), rtol=1e-6
    )
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(frame), found.predict(frame))
    jboost.save(found.model_, tmp_path / "votes.jb")
    np.testing.assert_array_equal(jboost.predict(jboost.load(tmp_path / "votes.jb"), frame), votes)
    stages = list(found.staged_decision_function(frame))
    np.testing.assert_array_equal(jboost.predict(jboost.truncate(found.model_, 4), frame), stages[3])
    np.testing.assert_array_equal(found.decision_function(frame, n_trees=4), stages[3])
    *_, last = found.staged_predict_proba(frame)
    np.testing.assert_array_equal(last, probability)


def test_one_class_is_certain():
    found = estimator().fit(X, np.full(N, "only"))
    assert found.predict(X_TEST).tolist() == ["only"] * N
    np.testing.assert_array_equal(found.predict_proba(X_TEST), np.ones((N, 1)))


def test_no_type_is_promoted_silently():
    data = binned()

    def scores(weight, k):
        model, _ = adaboost(data, CLASS[k], n_classes=k, spec=DEEPER, sample_weight=weight)
        return jboost.predict(model, data)

    with jax.numpy_dtype_promotion("strict"):
        for k in (2, 3):
            jax.make_jaxpr(functools.partial(scores, k=k))(jnp.asarray(WEIGHT, float))


def test_leaves_of_the_exponential_loss_tend_to_half_the_log_odds():
    """One column of 0 and 1: each round has the same leaves, and Newton's steps go to the best constants."""
    column, y = (np.arange(N) % 3 > 0).astype(float), (np.arange(N) % 7 > 2).astype(int)
    hyper = dataclasses.replace(GINI, min_child_weight=0.0)
    model, _ = jboost.fit(
        jboost.losses.exponential,
        column[:, None],
        y,
        spec=STUMPS,
        hyper=hyper,
        sample_weight=WEIGHT,
        base_score=0.0,
    )
    for side in (0.0, 1.0):
        share = np.average(y[column == side], weights=WEIGHT[column == side])
        score = jboost.predict(model, [[side]])
        np.testing.assert_allclose(score, [0.5 * np.log(share / (1 - share))], rtol=1e-5)
        np.testing.assert_allclose(model.inverse_link(score), [share], rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"n_classes": 1}, ValueError, "n_classes must be at least 2, got 1"),
        ({"n_classes": 2.0}, TypeError, "n_classes must be an integer, got 2.0"),
        ({"y": [0, 1, 2, 1]}, ValueError, "y must hold classes from 0 to 1, got 2"),
        ({"y": [0, 1, 0.5, 1]}, ValueError, "y must hold classes from 0 to 1, got 0.5"),
        ({"y": [0, 1, np.nan, 1]}, ValueError, "y must be finite"),
        ({"y": [[0, 1], [1, 0]] * 2}, ValueError, r"y must have shape \(n,\), .* got \(4, 2\)"),
        ({"y": [0, 1, 1]}, ValueError, "y must have one entry for each of the 4 rows of data, got 3"),
        ({"y": []}, ValueError, "y must have at least one row"),
        ({"sample_weight": [1, 1, -1, 1]}, ValueError, "sample_weight must be finite and non-negative"),
        ({"sample_weight": np.zeros(4)}, ValueError, "sample_weight must hold a weight above zero"),
        ({"hyper": Hyper()}, ValueError, "hyper.reg_lambda must be 0 in AdaBoost, .* got 1"),
        (
            {"hyper": dataclasses.replace(GINI, subsample=0.5)},
            ValueError,
            "hyper.subsample must be 1 in AdaBoost",
        ),
        ({"hyper": Hyper(learning_rate=0.0)}, ValueError, "learning_rate must be positive"),
        ({"spec": Spec(n_estimators=0)}, ValueError, "spec.n_estimators must be at least 1 in AdaBoost"),
        (
            {"spec": Spec(n_iter_no_change=3)},
            ValueError,
            "spec.n_iter_no_change must be None in AdaBoost, got 3",
        ),
        ({"spec": Spec(multi_output="separate")}, ValueError, "spec.multi_output must be 'vector'"),
        ({"spec": {"max_depth": 1}}, TypeError, "spec must be a jboost.Spec, got dict"),
        ({"key": "3"}, TypeError, "key must be a JAX key"),
    ],
)
def test_bad_input(given, error, message):
    arguments = {"data": [[0.0], [1.0], [2.0], [3.0]], "y": [0, 0, 1, 1], "n_classes": 2, "spec": STUMPS}
    with pytest.raises(error, match=message):
        adaboost(**(arguments | given))


def test_an_estimator_without_rounds_is_told_so():
    with pytest.raises(ValueError, match=r"^n_estimators must be at least 1, got 0"):
        AdaBoostClassifier(0).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.slow
@parametrize_with_checks([AdaBoostClassifier(10, max_depth=2, learning_rate=0.5, max_bins=15)])
def test_scikit_learn_checks(estimator, check):
    # This check compares whole fits to 1e-7, which is more than the rounding of float32 allows.
    with jax.enable_x64("sample_weight_equivalence" in str(check)):
        check(estimator)
