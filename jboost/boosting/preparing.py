"""What a fit is given, checked and made into a `Problem`: bins, targets, weights, validation rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins import BinEdges, Binned, bin_features, read_bins
from jboost._model.ensemble import Ensemble, check_model, edges_layout, score_bins
from jboost._objective.loss import (
    NOT_JAX,
    Loss,
    Quantile,
    widest_array,
)
from jboost._runtime.arguments import as_target, as_weight
from jboost._runtime.padding import pad_axis, reusable_size
from jboost._runtime.typing import as_array, is_traced
from jboost._spec import Hyper, Spec
from jboost._tree import arrange_bins
from jboost.boosting.rounds import Problem, Rows, usable_columns
from jboost.metrics import Metric, as_metric, minds_weight
from jboost.metrics import mean_loss as mean_loss_metric


def bin_for(data: Any, sample_weight: Any, init_model: Ensemble | None, traced: bool) -> Binned:
    """Bin the features, unless they are, by the edges of the model that is continued if there is one."""
    if init_model is not None:
        if not isinstance(init_model, Ensemble):
            raise TypeError(f"init_model must be a jboost.Ensemble, got {type(init_model).__name__}")
        check_model(init_model)
        try:
            read_bins(init_model.edges, data) if isinstance(data, Binned) else None
            return data if isinstance(data, Binned) else bin_features(data, edges=init_model.edges)
        except (TypeError, ValueError) as error:
            raise type(error)(f"data does not fit init_model: {error}") from None
    if isinstance(data, Binned):
        return data
    if traced:
        raise TypeError("data must be a Binned inside jit, vmap or grad; call jboost.bin_features before")
    return bin_features(data, sample_weight=sample_weight)


def make_problem(
    loss: Loss,
    binned: Binned,
    y: Any,
    spec: Spec,
    hyper: Hyper,
    sample_weight: Any,
    valid: tuple[Any, ...] | None,
    metric: Any,
) -> Problem:
    """Check the arguments of a fit against each other, and put them together."""
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    train = _rows(binned, y, sample_weight, ("data", "y", "sample_weight"))
    _check_domain(loss.check_target, train)
    _check_combination(loss, y, spec)
    watched = None if valid is None else _valid_rows(valid, binned.edges, y)
    if spec.n_iter_no_change is not None and watched is None:
        raise ValueError("valid must be given when spec.n_iter_no_change asks for early stopping")
    chosen = mean_loss_metric(loss) if metric is None else as_metric(metric)
    if watched is not None:
        _check_domain(loss.check_target, watched, "valid[1]")
        _check_domain(chosen.check_target, watched, "valid[1]")
        _check_metric(chosen, watched, loss)
    layout = edges_layout(binned.edges, binned.has_missing)
    usable = usable_columns(train.bins, train.weight)
    return Problem(train, watched, usable, hyper, loss, spec, layout, chosen.function, chosen.maximize)


def _rows(binned: Binned, y: Any, weight: Any, names: tuple[str, str, str]) -> Rows:
    n_rows = binned.bins.shape[1]
    n_targets = jax.tree.leaves(y)[0].shape[0]
    if n_targets != n_rows:
        raise ValueError(
            f"{names[1]} must have one entry for each of the {n_rows} rows of {names[0]}, got {n_targets}"
        )
    y, weight = _without_absent(y, as_weight(weight, n_rows, names[2]))
    return Rows(as_array(binned.bins), y, weight)


def _without_absent(y: Any, weight: Float[Array, " n"]) -> tuple[Any, Float[Array, " n"]]:
    """Give rows of weight 0 the target of a row that counts, in case the loss is not finite at theirs.

    Such a row is absent: nothing depends on it, and the derivative by its weight is 0.
    """
    if not is_traced(weight) and np.asarray(weight).all():
        return y, weight
    numpy = jnp if is_traced(y, weight) else np  # on the host, a new shape costs no compilation
    present = numpy.asarray(weight) > 0
    source = numpy.argmax(present)

    def fill(array: Array) -> Array:
        shaped = present.reshape(-1, *[1] * (array.ndim - 1))
        return as_array(numpy.where(shaped, array, numpy.asarray(array)[source][None]))

    return jax.tree.map(fill, y), as_array(numpy.where(present, weight, numpy.zeros_like(weight)))


def _check_domain(check: Callable[[Any], None] | None, rows: Rows, name: str = "y") -> None:
    """Let a loss or a metric refuse the targets of the rows that count."""
    if check is None or is_traced(rows):
        return
    present = np.asarray(rows.weight) > 0
    try:
        check(jax.tree.map(lambda array: np.asarray(array)[present], rows.y))
    except ValueError as error:
        raise ValueError(str(error) if name == "y" else f"{name}: {error}") from None


def _check_metric(metric: Metric, rows: Rows, loss: Loss) -> None:
    """Try the metric on abstract values, so that one of another form fails before anything is compiled."""
    shape = (rows.weight.size,) if loss.n_outputs is None else (rows.weight.size, loss.n_outputs)
    score = jax.ShapeDtypeStruct(shape, rows.weight.dtype)
    try:
        value = jax.eval_shape(metric.function, score, rows.y, rows.weight)
    except jax.errors.JAXTypeError as error:
        raise TypeError(NOT_JAX.format("metric", error)) from error
    except TypeError as error:
        raise TypeError(f"metric must be a function metric(score, y, weight) -> scalar: {error}") from error
    if getattr(value, "shape", None) != ():
        raise ValueError(f"metric must return a scalar, got {value}")


def _valid_rows(valid: Any, edges: BinEdges, y: Any) -> Rows:
    if not isinstance(valid, tuple) or len(valid) not in (2, 3):
        raise TypeError(f"valid must be a tuple (X, y) or (X, y, weight), got {type(valid).__name__}")
    X, y_valid, weight = (*valid, None)[:3]
    y_valid = as_target(y_valid, "valid[1]")
    if jax.tree.structure(y_valid) != jax.tree.structure(y):
        raise ValueError("valid[1] must have the structure of y")
    for one, other in zip(jax.tree.leaves(y_valid), jax.tree.leaves(y), strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise ValueError(
                f"valid[1] must have rows of shape {other.shape[1:]} as y has, got {one.shape[1:]}"
            )
    y_valid = jax.tree.map(lambda one, other: one.astype(other.dtype), y_valid, y)
    try:
        bins = read_bins(edges, X)
    except (TypeError, ValueError) as error:
        raise type(error)(f"valid[0]: {error}") from None
    return _rows(Binned(as_array(bins), edges, True), y_valid, weight, ("valid[0]", "valid[1]", "valid[2]"))


def _check_combination(loss: Loss, y: Any, spec: Spec) -> None:
    if loss.hessian == "full" and (loss.n_outputs is None or spec.multi_output == "separate"):
        raise ValueError('hessian="full" needs several outputs that share a tree (multi_output="vector")')
    if isinstance(loss.leaf, Quantile) and not hasattr(y, "shape"):
        raise ValueError("a Quantile leaf rule needs y to be one array, got a pytree of several")


def pad(problem: Problem) -> Problem:
    """Pad the rows by weightless copies of the first row that counts, so that other numbers reuse the program.

    A user's metric may not look at weights: it gets the validation rows as they are.
    """
    train, valid = problem.train, problem.valid
    width = widest_array(problem.loss, train.y)
    n_rows = reusable_size(train.weight.size, width)
    train = _pad_rows(train, n_rows, arrange_bins(train.bins, n_rows))
    if valid is not None and minds_weight(problem.metric):
        n_rows = reusable_size(valid.weight.size, width)
        valid = _pad_rows(valid, n_rows, as_array(pad_axis(np.asarray(valid.bins), n_rows, axis=1)))
    return dataclasses.replace(problem, train=train, valid=valid)


def _pad_rows(rows: Rows, n_rows: int, bins: Array) -> Rows:
    """Pad y and weight as the bins were, on the host, where a new shape costs no compilation."""
    weight = np.asarray(rows.weight)
    filler = np.full(n_rows - weight.size, np.argmax(weight > 0))

    def extend(array: Array) -> Array:
        host = np.asarray(array)
        return as_array(np.concatenate([host, host[filler]])) if filler.size else array

    return Rows(bins, jax.tree.map(extend, rows.y), as_array(pad_axis(weight, n_rows)))


def check_continues(model: Ensemble, problem: Problem) -> None:
    """Refuse to continue a model with a fit of another kind."""
    k = problem.loss.n_outputs
    if model.base.dtype != problem.train.weight.dtype:
        raise ValueError(
            f"init_model holds {model.base.dtype}, but JAX computes in {problem.train.weight.dtype} now"
        )
    if model.inverse_link != problem.loss.inverse_link:
        raise ValueError("init_model must come from a loss with the same inverse link")
    if (model.n_outputs, model.scalar_output) != (k or 1, k is None):
        raise ValueError(f"init_model has {model.n_outputs} output(s), but the loss and y ask for {k or 1}")
    spec = problem.spec
    depth_and_kind = (model.trees.feature.shape[-1], model.symmetric, model.trees.feature.ndim == 3)
    if depth_and_kind != (spec.n_splits, spec.symmetric, spec.multi_output == "separate"):
        raise ValueError("init_model must have the max_depth, grow_policy and multi_output of spec")


def start_scores(
    problem: Problem, base: Float[Array, " k"], init_model: Ensemble | None, binned: Binned
) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
    """Score the training and the validation rows before the first round."""
    traced = is_traced(problem, base, init_model)
    numpy = jnp if traced else np  # on the host, a new shape costs no compilation

    def start(rows: Rows, bins: Array) -> Array:
        if init_model is None:
            return as_array(numpy.broadcast_to(base, (rows.weight.size, base.size)))
        score = score_bins(init_model, bins)
        return score if traced else as_array(pad_axis(np.asarray(score), rows.weight.size))

    nothing = as_array(numpy.zeros((0, base.size), base.dtype))
    train, valid = problem.train, problem.valid
    return start(train, binned.bins), nothing if valid is None else start(valid, valid.bins)
