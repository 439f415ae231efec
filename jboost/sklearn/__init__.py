"""Estimators with scikit-learn's interface: they check and encode the data, bin it and call `jboost.fit`."""

import typing

from jboost._runtime.late import late_names as _late_names

if typing.TYPE_CHECKING:
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

__getattr__ = _late_names(
    __name__,
    {
        "jboost.sklearn.adaboost": ("AdaBoostClassifier",),
        "jboost.sklearn.classifier": ("JBoostClassifier",),
        "jboost.sklearn.distribution": ("JBoostDistribution",),
        "jboost.sklearn.encoder": ("OrderedTargetEncoder",),
        "jboost.sklearn.regressor": ("JBoostRegressor",),
        "jboost.sklearn.search": ("JBoostSearchCV",),
    },
)
