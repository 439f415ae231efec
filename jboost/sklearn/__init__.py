"""Estimators with scikit-learn's interface: they check and encode the data, bin it and call `jboost.fit`."""

from jboost._runtime.garbage import uncollected as _uncollected

with _uncollected(lasting=True):
    from jboost.sklearn.adaboost import AdaBoostClassifier
    from jboost.sklearn.classifier import JBoostClassifier
    from jboost.sklearn.distribution import JBoostDistribution
    from jboost.sklearn.encoder import OrderedTargetEncoder
    from jboost.sklearn.regressor import JBoostRegressor
    from jboost.sklearn.search import JBoostSearchCV

__all__ = [
    "AdaBoostClassifier",
    "JBoostClassifier",
    "JBoostDistribution",
    "JBoostRegressor",
    "JBoostSearchCV",
    "OrderedTargetEncoder",
]
