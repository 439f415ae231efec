"""Rows to watch: the arguments they come in, and how a model fares on them round by round."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array
from jax.tree_util import Partial

from jboost._fixed_point import mean
from jboost._objective.objective import Objective
from jboost._objective.resolve import resolve
from jboost._objective.rows import Groups, Rows, make_groups
from jboost._runtime.arguments import as_target, as_weight
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array
from jboost.boosting.on_host import as_number
from jboost.metrics import Metric, mean_loss
from jboost.sklearn.models import Model, staged_scores
from jboost.sklearn.rows import BinnedRows, GivenRows


def check_eval_set(eval_set: Any, eval_beside: dict[str, Any], val: GivenRows) -> list[GivenRows]:
    """Return what to watch: a list of pairs, or one pair, with as many of what lies beside; or `X_val` and its own.

    `eval_beside` holds the arguments eval_sample_weight, eval_offset and eval_groups, by name and in this order.
    """
    if any(part is not None for part in val[1:]):
        if val.X is None or val.y is None:
            raise ValueError("X_val and y_val must be given together, with or without what is beside them")
        for name, value in ({"eval_set": eval_set} | eval_beside).items():
            if value is not None:
                raise ValueError(f"{name} must be None where X_val and y_val are given")
        return [val]
    one_pair = isinstance(eval_set, tuple) and len(eval_set) == 2 and not isinstance(eval_set[0], tuple)
    pairs = [] if eval_set is None else [eval_set] if one_pair else list(eval_set)
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        raise ValueError("eval_set must be a list of pairs (X, y)")
    beside = [_of_each(name, values, len(pairs)) for name, values in eval_beside.items()]
    return [
        GivenRows(f"eval_set[{i}]", *pair, *(values[i] for values in beside)) for i, pair in enumerate(pairs)
    ]


def _of_each(name: str, values: Any, n_pairs: int) -> list[Any]:
    found = [None] * n_pairs if values is None else list(values)
    if len(found) != n_pairs:
        raise ValueError(
            f"{name} must have an array or None for each of the {n_pairs} pairs of eval_set, got {len(found)}"
        )
    return found


def mean_loss_on(loss: Objective, rows: BinnedRows) -> Metric:
    """Return the mean of a loss as a metric of these rows, of which it may ask the groups."""
    groups = None if rows.groups is None else make_groups(rows.groups)
    return Metric(Partial(_mean_loss_with_groups, loss=loss, groups=groups), name=loss.name)


def _mean_loss_with_groups(score: Array, y: Any, weight: Array, loss: Any, groups: Groups | None) -> Array:
    return mean(loss.value(score, Rows(y, weight, groups=groups)), weight)


@program
def _measure(metrics: tuple[Metric, ...], score: Array, y: Any, weight: Array) -> tuple[Array, ...]:
    return tuple(metric(score, y, weight) for metric in metrics)


def metric_curves(model: Model, metrics: list[Metric], rows: BinnedRows) -> list[list[float]]:
    """Take metrics of raw scores of the rows after each round: a list for each metric."""
    in_jax = tuple(metric for metric in metrics if not metric.on_host)
    y = as_target(rows.y, "y", allow_nan=True)  # the fit has checked it
    weight = as_weight(rows.weight, len(rows.weight), "weight")
    curves: list[list[float]] = [[] for _ in metrics]
    for score in staged_scores(model, rows.data, rows.offset) if metrics else ():
        found = iter(_measure(in_jax, score, y, weight) if in_jax else ())
        for metric, curve in zip(metrics, curves, strict=True):
            curve.append(_on_host(metric, score, y, weight) if metric.on_host else float(next(found)))
    return curves


def _on_host(metric: Metric, score: Array, y: Any, weight: Array) -> float:
    return as_number(metric(*jax.tree.map(np.asarray, (score, y, weight))))


def mean_loss_of(loss: Objective, score: Any, y: Any, weight: Any) -> float:
    """Return the mean loss of rows by their raw scores."""
    y, weight = as_target(y, "y", loss.allow_nan), as_weight(weight, len(weight), "sample_weight")
    resolve(loss, y)  # raises where it is no loss of such targets
    return float(_measure((mean_loss(loss),), as_array(score, weight.dtype), y, weight)[0])
