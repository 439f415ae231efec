"""Estimators with scikit-learn's interface: they check and encode the data, bin it and call `jboost.fit`."""

from jboost.sklearn.estimators import JBoostClassifier, JBoostRegressor

__all__ = ["JBoostClassifier", "JBoostRegressor"]
