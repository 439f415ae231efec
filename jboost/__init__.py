"""Gradient-boosted trees as one compiled JAX program: any loss, on CPU, GPU or TPU."""

import importlib
import typing

from jboost._runtime.garbage import uncollected as _uncollected

with _uncollected(lasting=True):
    from jboost import boosting, losses, metrics, samplers
    from jboost._bins import (
        BinEdges,
        Binned,
        QuantileSketch,
        bin_by_target,
        bin_features,
        ordered_statistics,
        sketch_edges,
    )
    from jboost._model.ensemble import Ensemble, concatenate, predict, staged_predict, truncate
    from jboost._model.linear import LinearModel
    from jboost._objective.base_score import best_constant
    from jboost._objective.batch import BatchLoss
    from jboost._objective.exact import Exact
    from jboost._objective.group import GroupLoss
    from jboost._objective.leaf_rules import LeafRule, Newton, Quantile
    from jboost._objective.leaves import Leaves
    from jboost._objective.line_search import LineSearch
    from jboost._objective.loss import Loss
    from jboost._objective.one_step import OneStep
    from jboost._objective.path_smoothing import PathSmoothing
    from jboost._runtime.library import plain_jax
    from jboost._spec import Hyper, Spec
    from jboost._tree import Tree
    from jboost.boosting import History, Progress, fit
    from jboost.io import load, save
    from jboost.metrics import Metric
    from jboost.tuning import Sweep, sweep

if typing.TYPE_CHECKING:
    from jboost import differentiable, distributions, explain, learners, plotting, textbook
    from jboost.linear import fit_linear
    from jboost.sklearn import (
        AdaBoostClassifier,
        JBoostClassifier,
        JBoostDistribution,
        JBoostRegressor,
        JBoostSearchCV,
        OrderedTargetEncoder,
    )
    from jboost.textbook import boost

__all__ = [
    "AdaBoostClassifier",
    "BatchLoss",
    "BinEdges",
    "Binned",
    "Ensemble",
    "Exact",
    "GroupLoss",
    "History",
    "Hyper",
    "JBoostClassifier",
    "JBoostDistribution",
    "JBoostRegressor",
    "JBoostSearchCV",
    "LeafRule",
    "Leaves",
    "LineSearch",
    "LinearModel",
    "Loss",
    "Metric",
    "Newton",
    "OneStep",
    "OrderedTargetEncoder",
    "PathSmoothing",
    "Progress",
    "Quantile",
    "QuantileSketch",
    "Spec",
    "Sweep",
    "Tree",
    "best_constant",
    "bin_by_target",
    "bin_features",
    "boost",
    "boosting",
    "concatenate",
    "differentiable",
    "distributions",
    "explain",
    "fit",
    "fit_linear",
    "learners",
    "load",
    "losses",
    "metrics",
    "ordered_statistics",
    "plain_jax",
    "plotting",
    "predict",
    "samplers",
    "save",
    "sketch_edges",
    "staged_predict",
    "sweep",
    "textbook",
    "truncate",
]


_ESTIMATORS = (
    "AdaBoostClassifier",
    "JBoostClassifier",
    "JBoostDistribution",
    "JBoostRegressor",
    "JBoostSearchCV",
    "OrderedTargetEncoder",
)


def __getattr__(name: str) -> typing.Any:
    """Import what takes long when it is asked for: the estimators, since scikit-learn takes as long as JAX."""
    if name in _ESTIMATORS:
        from jboost import sklearn

        return getattr(sklearn, name)
    if name in ("differentiable", "distributions", "explain", "learners", "plotting", "textbook"):
        return importlib.import_module(f"jboost.{name}")
    if name == "boost":
        return importlib.import_module("jboost.textbook").boost
    if name == "fit_linear":
        return importlib.import_module("jboost.linear").fit_linear
    if name == "__version__":
        from jboost.io.archive import library_version

        return library_version()
    raise AttributeError(f"module 'jboost' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
