"""Scorers and metric functions of scikit-learn, which run on the host, as metrics of an estimator's rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._runtime.arguments import restated
from jboost.metrics import Metric

# What scikit-learn's functions call their second parameter where it is no prediction, and what they take it from.
_RESPONSES: dict[str, Any] = {
    "y_proba": "predict_proba",
    "y_prob": "predict_proba",
    "y_score": ("decision_function", "predict_proba"),
    "pred_decision": "decision_function",
}


@dataclass(frozen=True)
class Scored:
    """A scorer, `scorer(estimator, X, y, sample_weight=)`, which is asked about predictions."""

    scorer: Callable[..., Any]
    maximize: bool
    name: str

    def of_rows(self, stage: Callable[[Any], Any], y: Any, weight: np.ndarray) -> Metric:
        """Return the metric of certain rows, where `stage(score)` stands for the estimator after some rounds."""
        weighs = {} if (weight == 1).all() else {"sample_weight": weight}

        def value(score: Any, _: Any, __: Any) -> Any:
            try:
                return self.scorer(stage(np.asarray(score, np.float64)), None, y, **weighs)
            except AttributeError as error:
                message = f"asks for what the estimator does not have: {error}"
                raise ValueError(f"eval_metric {self.name} {message}") from error
            except (TypeError, ValueError) as error:
                if weighs and isinstance(error, TypeError) and "sample_weight" in str(error):
                    message = "takes no sample_weight, but the rows to watch have weights"
                    raise TypeError(f"eval_metric {self.name} {message}") from error
                raise restated(error, f"eval_metric {self.name}: {error}") from error

        return Metric(value, maximize=self.maximize, name=self.name, on_host=True)


def scored(metric: Any) -> Scored | None:
    """Return what a scorer, its name or a function metric(y_true, y_pred) computes; None for anything else."""
    if isinstance(metric, str):
        return _named(metric)
    first = _first_parameters(metric)
    if first[:1] == ["estimator"]:
        function = getattr(metric, "_score_func", None)
        sign = "neg_" if function is not None and getattr(metric, "_sign", 1) < 0 else ""
        return Scored(metric, True, sign + _name_of(metric if function is None else function))
    return _of_function(metric, first[1:2]) if first[:1] == ["y_true"] else None


def _named(name: str) -> Scored | None:
    from sklearn.metrics import get_scorer, get_scorer_names  # a tenth of the time to import scikit-learn

    return Scored(get_scorer(name), True, name) if name in get_scorer_names() else None


def _of_function(function: Any, second: list[str]) -> Scored:
    """Ask scikit-learn what its function takes and which way is better; of another, names tell."""
    from sklearn.metrics import make_scorer  # a tenth of the time to import scikit-learn

    name, known = _name_of(function), _known_scorer(getattr(function, "func", function))
    if known is not None:
        response, maximize = known._response_method, known._sign > 0
    else:
        response = _RESPONSES.get("".join(second), "predict")
        maximize = name.endswith(
            "_score"
        )  # in scikit-learn's words; those of a _loss or an _error are the others
    return Scored(make_scorer(function, response_method=response), maximize, name)


def _known_scorer(function: Any) -> Any:
    """Return the scorer that scikit-learn makes of its function as it stands, if it has one."""
    from sklearn.metrics import get_scorer, get_scorer_names  # a tenth of the time to import scikit-learn

    for scorer in map(get_scorer, get_scorer_names()):
        if getattr(scorer, "_score_func", None) is function and not getattr(scorer, "_kwargs", None):
            return scorer
    return None


def _first_parameters(metric: Any) -> list[str]:
    try:
        return list(inspect.signature(metric).parameters)[:2]
    except (TypeError, ValueError):  # nothing to call, or written in C
        return []


def _name_of(function: Any) -> str:
    return getattr(getattr(function, "func", function), "__name__", type(function).__name__)


@dataclass(frozen=True)
class RegressorStage:
    """A regressor after some rounds, as far as a scorer asks: its prediction for the rows, whatever X."""

    tags: Any
    prediction: np.ndarray

    def predict(self, X: Any = None) -> np.ndarray:
        """Return the prediction."""
        return self.prediction

    def __sklearn_tags__(self) -> Any:
        """Say that it is a regressor."""
        return self.tags


@dataclass(frozen=True)
class ClassifierStage(RegressorStage):
    """A classifier after some rounds."""

    classes_: np.ndarray
    probability: Float[np.ndarray, "n classes"]
    decision: Float[np.ndarray, "n ..."]

    def predict_proba(self, X: Any = None) -> np.ndarray:
        """Return the probability of each label."""
        return self.probability

    def decision_function(self, X: Any = None) -> np.ndarray:
        """Return the raw scores."""
        return self.decision
