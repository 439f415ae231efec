"""Losses and metrics by name, and what a loss of the user's own means to a regressor or a classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jboost import losses, metrics
from jboost._objective.domains import real_argument
from jboost._objective.loss import Loss, as_loss
from jboost._objective.objective import Objective
from jboost._runtime.typing import identity
from jboost.metrics import Metric, mean_loss
from jboost.metrics.metric import ALIASES, as_metric
from jboost.sklearn.scorers import Scored, scored

REGRESSION_LOSSES: dict[str, Callable[[], Loss]] = {
    "squared_error": lambda: losses.squared_error,
    "absolute_error": lambda: losses.absolute_error,
    "huber": losses.huber,
    "pseudo_huber": losses.pseudo_huber,
    "poisson": lambda: losses.poisson,
    "gamma": lambda: losses.gamma,
    "tweedie": lambda: losses.tweedie(1.5),
}
_METRICS = {name: metric for name, metric in vars(metrics).items() if isinstance(metric, Metric)}
_OF_ONE_LABEL = ("accuracy", "error", "multi_logloss")


def regression_loss(loss: Any, quantile: float | None) -> Objective:
    """Return the loss of that name, or the user's own."""
    if not isinstance(loss, str):
        return as_loss(loss)
    if loss == "quantile":
        if quantile is None:
            raise ValueError("quantile must be a number between 0 and 1 for loss='quantile', got None")
        return losses.quantile(real_argument(quantile, "quantile", 0, 1))
    if loss not in REGRESSION_LOSSES:
        raise _unknown("loss", loss, [*REGRESSION_LOSSES, "quantile"])
    return REGRESSION_LOSSES[loss]()


def classification_loss(loss: Any, n_classes: int) -> Objective:
    """Return the loss of that name for this many classes, or the user's own with what it leaves open.

    For one or two classes the score is a scalar, for more it has an entry for each; unless a `Loss` says
    otherwise, scores are log odds, turned into probabilities by the sigmoid or the softmax.
    """
    n_outputs = n_classes if n_classes > 2 else None
    if isinstance(loss, str):
        if loss == "log_loss":
            return losses.logistic if n_outputs is None else losses.softmax(n_outputs)
        if loss == "exponential":
            if n_outputs is not None:
                raise ValueError(f"loss='exponential' needs two classes, but y has {n_classes}")
            return losses.exponential
        raise _unknown("loss", loss, ["log_loss", "exponential"])
    given = as_loss(loss)
    if (given.name or "").partition("(")[0] in [*REGRESSION_LOSSES, "quantile"]:
        raise ValueError(f"loss must be one for classes, got {given.name}")
    if given.n_outputs is None:
        given = dataclasses.replace(given, n_outputs=n_outputs)
    elif given.n_outputs != (n_outputs or given.n_outputs) or given.n_outputs > max(n_classes, 2):
        raise ValueError(f"loss has n_outputs={given.n_outputs}, but y has {n_classes} classes")
    if given.inverse_link is identity:
        scalar = given.n_outputs in (None, 1)
        link = losses.sigmoid if scalar else losses.softmax_of_scores
        given = dataclasses.replace(given, inverse_link=link)
    return given


def multilabel_loss(loss: Any, n_labels: int) -> Objective:
    """Return the loss of that name for labels of which several may hold at once, or the user's own.

    It takes a vector of scores and one of 0 and 1; unless a `Loss` says otherwise, scores are log odds.
    """
    if isinstance(loss, str):
        named = {"log_loss": losses.logistic, "exponential": losses.exponential}
        if loss not in named:
            raise _unknown("loss", loss, [*named])
        return named[loss]
    given = as_loss(loss)
    if given.n_outputs not in (None, n_labels):
        raise ValueError(f"loss has n_outputs={given.n_outputs}, but y has {n_labels} labels")
    return (
        dataclasses.replace(given, inverse_link=losses.sigmoid) if given.inverse_link is identity else given
    )


def metrics_of(eval_metric: Any, loss: Objective, several_labels: bool = False) -> list[Metric | Scored]:
    """Return the metrics of these names, functions or scorers, the last of which is watched; or the mean loss.

    Parameters
    ----------
    eval_metric : str, callable, Metric, list of these or None
        That of an estimator.
    loss : Objective
        Its loss.
    several_labels : bool
        Whether several labels may hold at once.

    Returns
    -------
    list
        Of different names, by which the metrics are found in `evals_result_`.
    """
    if eval_metric is None:
        return [mean_loss(loss)]
    given = list(eval_metric) if isinstance(eval_metric, list | tuple) else [eval_metric]
    if not given:
        raise ValueError("eval_metric must name at least one metric, got an empty list")
    found = [_metric_of(one, loss, several_labels) for one in given]
    names = [one.name or "metric" for one in found]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ValueError(
                f"eval_metric must hold metrics of different names, got {name!r} twice: jboost.Metric(..., name=) "
                "gives a function another one"
            )
    return found


def _metric_of(metric: Any, loss: Objective, several_labels: bool) -> Metric | Scored:
    if not isinstance(metric, str):
        known = None if isinstance(metric, Metric) else scored(metric)
        try:
            return known or as_metric(metric)
        except TypeError as error:
            raise TypeError(
                f"eval_{error}, nor a scorer, a name or a function metric(y_true, y_pred)"
            ) from error
    name = ALIASES.get(metric, metric)
    if name not in _METRICS:
        known = scored(metric)
        if known is None:
            raise _unknown("eval_metric", metric, sorted([*_METRICS, *ALIASES]))
        return known
    if several_labels and name in _OF_ONE_LABEL:
        raise ValueError(
            f"eval_metric={metric!r} is for one label a row, but several may hold at once: give 'logloss', or a "
            "function metric(score, y, weight) of arrays [n k]"
        )
    if name == "logloss" and loss.n_outputs not in (None, 1) and not several_labels:
        name = "multi_logloss"
    return dataclasses.replace(_METRICS[name], name=metric)


def _unknown(argument: str, name: str, names: list[str]) -> ValueError:
    others = {"eval_metric": "a function, a Metric, a scorer of scikit-learn or its name"}
    return ValueError(
        f"{argument} must be {others.get(argument, 'a function, a Loss')}, or one of "
        f"{', '.join(map(repr, names))}, got {name!r}"
    )
