"""Gradient-boosted trees as one compiled JAX program: any loss, on CPU, GPU or TPU."""

import typing

from jboost import losses, metrics
from jboost._bins import BinEdges, Binned, bin_features
from jboost._model.ensemble import Ensemble, concatenate, predict, staged_predict, truncate
from jboost._objective.loss import Loss, Newton, Quantile
from jboost._spec import Hyper, Spec
from jboost._tree import Tree
from jboost.boosting import History, fit
from jboost.io import load, save
from jboost.metrics import Metric

if typing.TYPE_CHECKING:
    from jboost.sklearn import JBoostClassifier, JBoostRegressor

__all__ = [
    "BinEdges",
    "Binned",
    "Ensemble",
    "History",
    "Hyper",
    "JBoostClassifier",
    "JBoostRegressor",
    "Loss",
    "Metric",
    "Newton",
    "Quantile",
    "Spec",
    "Tree",
    "bin_features",
    "concatenate",
    "fit",
    "load",
    "losses",
    "metrics",
    "predict",
    "save",
    "staged_predict",
    "truncate",
]


def __getattr__(name: str) -> typing.Any:
    """Import what takes long when it is asked for: the estimators, since scikit-learn takes as long as JAX."""
    if name in ("JBoostClassifier", "JBoostRegressor"):
        from jboost import sklearn

        return getattr(sklearn, name)
    if name == "__version__":
        from jboost.io.archive import library_version

        return library_version()
    raise AttributeError(f"module 'jboost' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
