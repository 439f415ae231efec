"""`JBoostSearchCV` against scikit-learn's search, and what it adds."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from jboost import JBoostClassifier, JBoostRegressor, JBoostSearchCV, Loss

GRID = {"learning_rate": [0.1, 0.5], "max_depth": [2, 3], "colsample_bytree": [1.0, 0.6]}


def copy(estimator: Any, **parameters: Any) -> Any:
    made: Any = clone(estimator)
    return made.set_params(**parameters)


def rows(n: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Few values a column, all of them in every fold: the edges of the bins are the same in each."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (n, 5)).astype(np.float32)
    return X, X[:, 0] + X[:, 1] * (X[:, 2] > 2) + rng.normal(size=n)


def labels(y: np.ndarray) -> np.ndarray:
    return np.array(["low", "high", "top"])[np.digitize(y, [2.0, 5.0])]


@pytest.mark.slow
@pytest.mark.parametrize("scoring", ["neg_log_loss", None, "roc_auc_ovr"])
def test_a_classifier_scores_as_in_the_search_of_scikit_learn(scoring):
    X, y = rows()
    estimator = JBoostClassifier(n_estimators=8, random_state=3)
    found, expected = (
        kind(estimator, param_grid=GRID, cv=3, scoring=scoring).fit(X, labels(y))
        for kind in (JBoostSearchCV, GridSearchCV)
    )
    for name in ("mean_test_score", "std_test_score", "split2_test_score", "rank_test_score"):
        np.testing.assert_allclose(found.cv_results_[name], expected.cv_results_[name], rtol=1e-6)
    assert found.best_params_ == expected.best_params_
    assert found.cv_results_["params"] == expected.cv_results_["params"]
    np.testing.assert_array_equal(
        found.cv_results_["param_max_depth"], expected.cv_results_["param_max_depth"]
    )
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    np.testing.assert_array_equal(found.predict_proba(X), expected.predict_proba(X))
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    assert found.score(X, labels(y)) == expected.score(X, labels(y))


SHUFFLED = pytest.param(KFold(4, shuffle=True, random_state=1), marks=pytest.mark.slow)


@pytest.mark.parametrize("cv", [SHUFFLED, TimeSeriesSplit(3), "groups"])
def test_a_regressor_with_weights_under_any_splitter(cv):
    """Rows of a time series are trained on before they are held out, and some never."""
    X, y = rows()
    weight = 1.0 + np.arange(len(y)) % 2
    groups = None
    fit_more: dict[str, Any] = {"sample_weight": weight}
    if cv == "groups":
        cv, groups = GroupKFold(3), np.arange(len(y)) // 20
        fit_more["groups"] = groups
    estimator = JBoostRegressor(n_estimators=8)
    grid = {"reg_lambda": [0.1, 10.0], "learning_rate": [0.3]}
    found = JBoostSearchCV(estimator, param_grid=grid, cv=cv, refit=False).fit(X, y, **fit_more)
    for c, (train, test) in enumerate(cv.split(X, y, groups)):
        for s, penalty in enumerate((0.1, 10.0)):
            one = copy(estimator, reg_lambda=penalty, learning_rate=0.3)
            one.fit(X[train], y[train], weight[train])
            score = one.score(X[test], y[test])
            np.testing.assert_allclose(found.cv_results_[f"split{c}_test_score"][s], score, rtol=1e-6)
    assert not hasattr(found, "predict")
    far = JBoostSearchCV(estimator, param_grid=grid, cv=cv, refit=False).fit(X, np.ldexp(y, 85), **fit_more)
    np.testing.assert_array_equal(far.cv_results_["mean_test_score"], found.cv_results_["mean_test_score"])


def test_settings_are_drawn_as_scikit_learn_draws_them():
    X, y = rows()
    space = {"learning_rate": loguniform(0.01, 1.0), "grow_policy": ["symmetric", "depthwise"]}
    options: dict[str, Any] = {"n_iter": 5, "random_state": 7, "cv": 2}
    one, other = (
        JBoostSearchCV(JBoostRegressor(n_estimators=3), space, **options).fit(X, y) for _ in range(2)
    )
    assert one.cv_results_["params"] == other.cv_results_["params"]
    assert len({setting["learning_rate"] for setting in one.cv_results_["params"]}) == 5
    few = JBoostSearchCV(
        JBoostRegressor(), {"learning_rate": [0.1, 0.2]}, n_iter=9
    )._settings()  # nobody warns
    assert sorted(setting["learning_rate"] for setting in few) == [0.1, 0.2]
    assert one.best_estimator_.get_params()["learning_rate"] == one.best_params_["learning_rate"]


def test_an_ensemble_is_one_model_of_the_settings_that_score_best_together():
    X, y = load_iris(return_X_y=True)
    estimator = JBoostClassifier(n_estimators=10, max_depth=2, random_state=0)
    grid = {"learning_rate": [0.05, 0.3, 0.8], "colsample_bytree": [0.5, 1.0]}
    options: dict[str, Any] = {
        "param_grid": grid,
        "cv": KFold(3, shuffle=True, random_state=0),
        "scoring": "neg_log_loss",
    }
    single = JBoostSearchCV(estimator, **options).fit(X, y)
    found = JBoostSearchCV(estimator, ensemble=6, **options).fit(X, y)
    weights = found.ensemble_weights_
    assert (weights > 0).sum() > 1
    np.testing.assert_allclose(weights.sum(), 1)
    parts = [copy(estimator, **found.cv_results_["params"][i]).fit(X, y) for i in np.flatnonzero(weights)]
    score = np.sum(
        [part * one.decision_function(X) for part, one in zip(weights[weights > 0], parts, strict=True)],
        axis=0,
    )
    np.testing.assert_allclose(found.decision_function(X), score, rtol=1e-5, atol=1e-5)
    assert found.best_estimator_.n_trees_ == 10 * len(parts)
    # Of the rows held out it is the better one, which is what it was chosen by.
    mixed, alone = [], []
    for train, test in options["cv"].split(X):
        fold = [copy(one).fit(X[train], y[train]) for one in parts]
        scores = [one.decision_function(X[test]) for one in fold]
        score = np.tensordot(weights[weights > 0], scores, axes=1)
        p = np.exp(score - score.max(axis=1, keepdims=True))
        mixed.append(log_loss(y[test], p / p.sum(axis=1, keepdims=True)))
        best = copy(single.best_estimator_).fit(X[train], y[train])
        alone.append(log_loss(y[test], best.predict_proba(X[test])))
    assert np.mean(mixed) < np.mean(alone)


def test_a_loss_of_ones_own_with_other_outputs_is_scored_by_its_mean():
    X, y = load_diabetes(return_X_y=True)

    def normal(score, y):
        return 0.5 * jnp.square((y - score[0]) * jnp.exp(-score[1])) + score[1]

    estimator = JBoostRegressor(Loss(normal, n_outputs=2), n_estimators=10, max_depth=2)
    found = JBoostSearchCV(estimator, param_grid={"learning_rate": [0.01, 0.2]}, cv=3).fit(X, y)
    assert found.best_params_ == {"learning_rate": 0.2}
    assert found.best_score_ < 0


def test_it_stands_in_a_pipeline_and_can_be_cloned():
    X, y = rows()
    search = JBoostSearchCV(JBoostRegressor(n_estimators=3), param_grid={"learning_rate": [0.1, 0.5]}, cv=2)
    pipeline = make_pipeline(StandardScaler(), search).fit(X, y)
    assert pipeline.predict(X).shape == y.shape
    assert copy(search).get_params()["estimator__n_estimators"] == 3


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"param_grid": {"max_bins": [10, 20]}}, ValueError, "must name numbers .* got 'max_bins'"),
        ({"param_grid": None}, ValueError, "param_distributions or param_grid must be given"),
        ({"param_grid": {"reg_lambda": [1.0, -1.0]}}, ValueError, "reg_lambda must be non-negative"),
        ({"param_grid": {"max_depth": [0]}}, ValueError, "max_depth must be"),
        ({"estimator": StandardScaler()}, TypeError, "estimator must be a JBoostClassifier"),
        ({"estimator": JBoostRegressor(early_stopping=True)}, ValueError, "early_stopping=True"),
        ({"ensemble": 0}, ValueError, "ensemble must be at least 1"),
        ({"scoring": ["r2", "r2"]}, ValueError, "scoring must be names of scorers that differ"),
        ({"scoring": [print]}, ValueError, "scoring must be names of scorers"),
        ({"scoring": {}}, ValueError, "scoring must have a scorer for each of its names"),
        ({"scoring": ["r2"]}, ValueError, "refit must be one of 'r2', a function of cv_results_ or False"),
        ({"scoring": ["r2"], "refit": "mae"}, ValueError, "refit must be one of 'r2'.* got 'mae'"),
        (
            {"scoring": ["r2"], "refit": False, "ensemble": 2},
            ValueError,
            "ensemble must be 1 where no scorer",
        ),
        ({"refit": lambda table: 7}, ValueError, "must be below 1, the number of settings, got 7"),
        ({"error_score": "nan"}, ValueError, "error_score must be 'raise' or a number"),
        ({"scoring": "roc_auc"}, ValueError, "scoring='roc_auc' fails"),
        ({"scoring": lambda estimator, X, y: np.nan}, ValueError, "got NaN for every setting"),
        ({"cv": []}, ValueError, "cv must give a split"),
        (
            {"cv": [(np.arange(100), np.arange(50, 150))]},
            ValueError,
            "must not train on rows that it holds out, row 50",
        ),
        ({"cv": [(np.arange(100), np.arange(200, 300))]}, ValueError, "cv must give places of the 240 rows"),
        ({"n_iter": 0}, ValueError, "n_iter must be at least 1"),
        ({"refit": "r2"}, ValueError, "refit must be True, False or a function"),
    ],
)
def test_what_does_not_fit_is_named(changes, error, message):
    X, y = rows()
    given = {"estimator": JBoostRegressor(n_estimators=2), "param_grid": {"learning_rate": [0.1]}, **changes}
    with pytest.raises(error, match=message):
        JBoostSearchCV(**given).fit(X, y)


def both(scored, X, y):
    return {"high": scored.predict(X).max(), "low": scored.predict(X).min()}


def test_several_scorers_are_those_of_scikit_learn():
    """And the scores of the rows trained on, the choice by one of them or by a function, and the times."""
    X, y = rows()
    names = ["neg_mean_absolute_error", "r2"]
    estimator, grid = JBoostRegressor(n_estimators=2), {"learning_rate": [0.1, 0.5]}
    asked = {"param_grid": grid, "cv": KFold(2), "return_train_score": True}

    def found(kind: Any = JBoostSearchCV, **more):
        return kind(estimator, **asked, **more).fit(X, y)

    ours, theirs = (found(kind, scoring=names, refit="r2") for kind in (JBoostSearchCV, GridSearchCV))
    assert set(ours.cv_results_) == set(theirs.cv_results_)
    for name, column in theirs.cv_results_.items():
        if "score" in name and "time" not in name:
            np.testing.assert_allclose(ours.cv_results_[name], column, rtol=1e-5, err_msg=name)
    assert (ours.best_index_, ours.best_params_) == (theirs.best_index_, theirs.best_params_)
    assert (ours.best_score_, ours.score(X, y)) == pytest.approx(
        (theirs.best_score_, theirs.score(X, y)), rel=1e-5
    )
    assert (ours.cv_results_["mean_fit_time"] > 0).all()
    first = found(
        scoring=dict(zip("ab", names, strict=True)), refit=lambda table: int(np.argmin(table["mean_test_b"]))
    )
    assert first.best_index_ == 1 - ours.best_index_
    assert not hasattr(first, "best_score_")
    np.testing.assert_allclose(first.cv_results_["mean_train_a"], ours.cv_results_[f"mean_train_{names[0]}"])
    of_function = found(scoring=both, refit="high")
    assert of_function.score(X, y) == of_function.predict(X).max()
    assert of_function.best_score_ == of_function.cv_results_["mean_test_high"].max()


def test_a_scorer_that_fails_counts_as_asked():
    X, y = rows()

    def fails_high(scored, X, y):
        if scored.predict(X).max() > 5:
            raise ValueError("too high")
        return 1.0

    grid = {"learning_rate": [0.01, 0.9]}
    search = JBoostSearchCV(JBoostRegressor(n_estimators=2), param_grid=grid, cv=KFold(2), scoring=fails_high)
    with pytest.raises(ValueError, match=r"fails for the rows of a split.*too high"):
        search.fit(X, y)
    with pytest.warns(UserWarning, match=r"too high; it counts as error_score=-1"):
        search.set_params(error_score=-1.0).fit(X, y)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], [1, -1])


@pytest.mark.slow
def test_targets_of_several_columns():
    X, y = rows()
    several = np.stack([y, X[:, 3] - y], axis=1)
    labels_at_once = (several > 1).astype(int)
    for estimator, target in (
        (JBoostRegressor(n_estimators=4, max_depth=2), several),
        (JBoostClassifier(n_estimators=4, max_depth=2), labels_at_once),
    ):
        grid, cv = {"learning_rate": [0.1, 0.5]}, KFold(3)
        found, expected = (
            kind(estimator, param_grid=grid, cv=cv).fit(X, target) for kind in (JBoostSearchCV, GridSearchCV)
        )
        np.testing.assert_allclose(
            found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], rtol=1e-6
        )
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))


def test_splits_name_the_rows_that_were_given():
    """Those without weight are left out of a fold and shift no others; a row that is drawn twice counts twice."""
    X, y = rows()
    weight = np.ones(len(y))
    weight[:30] = 0
    drawn = np.random.default_rng(0).integers(100, 240, 150)
    cv = [(drawn, np.arange(10, 90))]
    estimator = JBoostRegressor(n_estimators=6, max_depth=3)
    found = JBoostSearchCV(estimator, param_grid={"learning_rate": [0.3]}, cv=cv, refit=False)
    found.fit(X, y, sample_weight=weight)
    one = copy(estimator, learning_rate=0.3).fit(X[drawn], y[drawn])
    np.testing.assert_allclose(found.best_score_, one.score(X[30:90], y[30:90]), rtol=1e-6)


@pytest.mark.slow
def test_balanced_weights_are_those_of_the_rows_of_a_fold():
    X, y = rows()
    names, grid = labels(y), {"learning_rate": [0.1, 0.5]}
    cv = TimeSeriesSplit(3)
    estimator = JBoostClassifier(n_estimators=5, max_depth=2, class_weight="balanced")
    found, expected = (
        kind(estimator, param_grid=grid, cv=cv, scoring="neg_log_loss").fit(X, names)
        for kind in (JBoostSearchCV, GridSearchCV)
    )
    np.testing.assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"], rtol=1e-5
    )
