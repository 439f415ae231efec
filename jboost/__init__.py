"""Gradient-boosted trees as one compiled JAX program: any loss, on CPU, GPU or TPU."""

import typing

from jboost._runtime.garbage import uncollected as _uncollected
from jboost._runtime.late import late_names as _late_names

with _uncollected(lasting=True):  # what every fit needs
    from jboost import boosting, losses, metrics
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
    from jboost._objective.base_score import best_constant
    from jboost._objective.batch import BatchLoss
    from jboost._objective.group import GroupLoss
    from jboost._objective.leaf_rules import LeafRule, Newton, Quantile
    from jboost._objective.leaves import Leaves
    from jboost._objective.loss import Loss
    from jboost._runtime.library import plain_jax
    from jboost._spec import Hyper, Spec
    from jboost._tree import Tree
    from jboost.boosting import History, Progress, fit
    from jboost.metrics import Metric

# These are imported when they are asked for: scikit-learn alone takes as long as JAX.
if typing.TYPE_CHECKING:
    from jboost import differentiable, distributions, explain, learners, plotting, samplers, textbook
    from jboost._model.linear import LinearModel
    from jboost._objective.exact import Exact
    from jboost._objective.line_search import LineSearch
    from jboost._objective.one_step import OneStep
    from jboost._objective.path_smoothing import PathSmoothing
    from jboost.io import load, save
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
    from jboost.tuning import Sweep, sweep

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

__getattr__ = _late_names(
    __name__,
    {
        "jboost._model.linear": ("LinearModel",),
        "jboost._objective.exact": ("Exact",),
        "jboost._objective.line_search": ("LineSearch",),
        "jboost._objective.one_step": ("OneStep",),
        "jboost._objective.path_smoothing": ("PathSmoothing",),
        "jboost._runtime.version": ("__version__",),
        "jboost.io": ("load", "save"),
        "jboost.linear": ("fit_linear",),
        "jboost.sklearn": (
            "AdaBoostClassifier",
            "JBoostClassifier",
            "JBoostDistribution",
            "JBoostRegressor",
            "JBoostSearchCV",
            "OrderedTargetEncoder",
        ),
        "jboost.textbook": ("boost",),
        "jboost.tuning": ("Sweep", "sweep"),
    },
    rooms=(
        "differentiable",
        "distributions",
        "explain",
        "io",
        "learners",
        "linear",
        "plotting",
        "samplers",
        "sklearn",
        "textbook",
        "tuning",
    ),
)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
