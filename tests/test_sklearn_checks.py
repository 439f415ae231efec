"""scikit-learn's own checks of an estimator."""

from __future__ import annotations

from sklearn.utils.estimator_checks import parametrize_with_checks

from jboost.sklearn import JBoostClassifier, JBoostRegressor

SMALL = {"n_estimators": 10, "max_depth": 2, "learning_rate": 0.5, "max_bins": 15}


@parametrize_with_checks([JBoostRegressor(**SMALL), JBoostClassifier(**SMALL)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)
