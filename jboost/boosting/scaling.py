"""Targets whose squares are hardly floats: a fit in a unit of the target, a power of two, and its model in that of y.

A loss that is homogeneous has the same trees in any unit, and a power of two rounds nothing, so only the range of the
floats tells such a fit from another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._model.ensemble import Ensemble
from jboost._objective.leaf_rules import Newton
from jboost._objective.loss import as_loss
from jboost._objective.units import LARGEST_EXPONENT
from jboost._runtime.arguments import as_target
from jboost._runtime.typing import as_array, identity, is_traced
from jboost._spec import Hyper, Spec, check_hyper
from jboost.boosting.callbacks import Progress, check_callbacks
from jboost.boosting.stopping import History
from jboost.metrics.metric import Metric, as_metric
from jboost.metrics.of_loss import is_of_homogeneous

ORDINARY = 3 / 8  # of the largest exponent of a float: sums of so large squares over any rows are floats

Fit = Callable[..., tuple[Ensemble, History]]


def exponent_of(loss: Any, data: Any, y: Any, options: dict[str, Any]) -> int:
    """Return the exponent of the unit that a fit asks for: 0 where its numbers are ordinary, or have no one unit."""
    loss, spec, hyper = as_loss(loss), options["spec"], options["hyper"]
    homogeneous = loss.homogeneous and type(loss.leaf) is Newton and loss.inverse_link is identity
    checked = isinstance(spec, Spec) and isinstance(hyper, Hyper)
    if not (homogeneous and checked) or is_traced(loss, data, y, list(options.values())):
        return 0
    if spec.penalties == "absolute" and (hyper.reg_alpha or hyper.gamma):
        return 0  # which are in units of the gradient
    model, weight = options["init_model"], options["sample_weight"]
    largest = [_largest(y, weight), _largest(options["offset"], weight), _largest(options["base_score"])]
    largest = np.max([*largest, _largest(model.base) if isinstance(model, Ensemble) else 0])
    exponent = int(np.frexp(largest)[1]) if np.isfinite(largest) else 0
    return exponent if abs(exponent) > ORDINARY * jnp.finfo(jnp.result_type(float)).maxexp else 0


def fit_in_unit(
    fit: Fit, exponent: int, loss: Any, data: Any, y: Any, options: dict[str, Any]
) -> tuple[Ensemble, History]:
    """Fit with everything that has the unit of y divided by the unit, and multiply what comes of it.

    A metric still gets scores and targets as they were given; a sampler gets derivatives in this unit. Losses come back
    in float64, which holds those that float32 does not; the progress bar shows them in this unit.
    """
    own, metric = dict(options), options["metric"]
    is_loss = is_loss_of_unit(metric)
    own["hyper"] = hyper_in_unit(check_hyper(options["hyper"]), exponent, is_loss)
    own["offset"], own["base_score"] = (times(options[name], -exponent) for name in ("offset", "base_score"))
    if isinstance(options["valid"], tuple) and 2 <= len(options["valid"]) <= 5:
        X, y_valid, weight, offset, groups = (*options["valid"], None, None, None)[:5]
        y_valid = target_in_unit(loss, y_valid, weight, exponent, "valid[1]")
        own["valid"] = (X, y_valid, weight, times(offset, -exponent), groups)
    if not is_loss:
        own["metric"] = metric_in_unit(metric, exponent)
    if isinstance(options["init_model"], Ensemble):
        own["init_model"] = _scaled(options["init_model"], -exponent)

    def of_losses(history: History) -> History:
        valid = loss_of_unit(history.valid_metric, exponent) if is_loss else history.valid_metric
        return History(loss_of_unit(history.train_loss, exponent), valid, history.best_round)

    def called(callback: Callable[[Progress], Any]) -> Callable[[Progress], Any]:
        return lambda progress: callback(dataclasses.replace(progress, history=of_losses(progress.history)))

    own["callbacks"] = [called(one) for one in check_callbacks(options["callbacks"])]
    model, history = fit(loss, data, target_in_unit(loss, y, options["sample_weight"], exponent), **own)
    return _scaled(model, exponent), of_losses(history)


def _largest(part: Any, weight: Any = None) -> float:
    """Return the largest size in an array; infinity for what is none, which is refused where it is checked."""
    try:
        array = np.asarray(0.0 if part is None else _of_rows_that_count(part, weight))
        array = array if array.dtype.kind == "f" else array.astype(float)
        return float(np.maximum(array.max(initial=0), -array.min(initial=0)))
    except (TypeError, ValueError):
        return np.inf


def _of_rows_that_count(y: Any, weight: Any) -> Any:
    """Return the targets, 0 where a row has no weight: such a row is absent, whatever its target."""
    if weight is None or np.shape(weight) != np.shape(y)[:1]:
        return y
    return np.where(np.reshape(np.asarray(weight) > 0, (-1,) + (1,) * (np.ndim(y) - 1)), y, 0)


def target_in_unit(loss: Any, y: Any, weight: Any, exponent: int, name: str = "y") -> Any:
    """Return the target divided by the unit."""
    return times(_of_rows_that_count(as_target(y, name, as_loss(loss).allow_nan), weight), -exponent)


def times(part: Any, exponent: int) -> Any:
    """Multiply by a power of two, which need not be a float itself; nothing stays nothing."""
    dtype = jnp.result_type(float)
    return None if part is None else as_array(np.ldexp(np.asarray(part, dtype), exponent), dtype)


def is_loss_of_unit(metric: Any) -> bool:
    """Say whether what is watched is a loss in the squared unit of y; None is that of the fit."""
    return metric is None or is_of_homogeneous(as_metric(metric))


def hyper_in_unit(hyper: Hyper, exponent: int, is_loss: bool) -> Hyper:
    """Return the numbers, those in units of y divided: a bound on steps, and by how much a loss must improve."""
    info = jnp.finfo(jnp.result_type(float))

    def divided(number: Any, power: int) -> Any:
        scaled = np.ldexp(np.asarray(number, np.float64), -power * exponent)
        return np.clip(scaled, float(info.tiny), float(info.max)) if number else number  # 0 is none

    tol = divided(hyper.tol, 2) if is_loss else hyper.tol
    return dataclasses.replace(hyper, max_delta_step=divided(hyper.max_delta_step, 1), tol=tol)


def metric_in_unit(metric: Any, exponent: int) -> Metric:
    """Return the metric of scores and targets that were divided by the unit: what it is of those as they were."""
    whole = as_metric(metric).of_scores()
    factors = np.ldexp(np.ones(2, jnp.result_type(float)), (exponent // 2, exponent - exponent // 2))
    return dataclasses.replace(whole, function=Partial(_at_scale, function=whole.function, factors=factors))


def _at_scale(score: Any, y: Any, weight: Any, function: Any, factors: Any) -> Any:
    one, other = factors[0], factors[1]
    return function(score * one * other, jax.tree.map(lambda array: array * one * other, y), weight)


def loss_of_unit(losses: Any, exponent: int) -> Any:
    """Return losses in the unit of y, as float64."""
    with np.errstate(over="ignore"):  # only float64 holds numbers with such squares
        return np.ldexp(np.asarray(losses, np.float64), 2 * exponent)


def _scaled(model: Ensemble, exponent: int) -> Ensemble:
    """Return the model whose scores are as many times larger; gains as far as they are floats."""
    most = LARGEST_EXPONENT // 2
    gain = times(model.trees.gain, 2 * int(np.clip(exponent, -most, most)))
    return dataclasses.replace(
        model,
        base=times(model.base, exponent),
        leaf_value=times(model.leaf_value, exponent),
        trees=dataclasses.replace(model.trees, gain=gain),
    )
