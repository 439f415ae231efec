"""What the steps of `finetune` need of a model and of rows, laid out for them."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._objective.derivatives import raw_derivatives
from jboost._objective.rows import Rows
from jboost._objective.units import find_units
from jboost._runtime.padding import pad_axis, reusable_size
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array
from jboost.boosting.preparing import pad_rows
from jboost.boosting.rounds import Problem
from jboost.differentiable import hard
from jboost.differentiable.descent import Task, Watched, scores
from jboost.differentiable.parameters import distance
from jboost.differentiable.routing import read_rows, score_of_rows
from jboost.differentiable.soft import SoftEnsemble, padded_rows


def make_task(model: Any, problem: Problem, X: Any, of_valid: Any, numbers_per_row: int) -> Task:
    """Lay the rows out, padded so that somewhat other numbers of rows reuse the programs."""
    loss, metric, train = problem.loss, problem.metric, problem.train
    size = reusable_size(train.weight.size, numbers_per_row) if loss.pads else train.weight.size
    score, inputs = _inputs(model, X, problem.bins, size)
    watched = None
    if problem.valid is not None:
        n_valid, pads = problem.valid.weight.size, loss.pads if metric is None else metric.pads
        n_valid = reusable_size(n_valid, numbers_per_row) if pads else n_valid
        score_valid, valid_inputs = _inputs(model, of_valid, problem.valid_bins, n_valid)
        watched = Watched(pad_rows(problem.valid, n_valid), valid_inputs, score_valid)
    none = as_array(np.int32(0))
    return Task(
        model=model, rows=pad_rows(train, size), inputs=inputs, valid=watched, loss=loss, metric=metric,
        stiffness=None, rates=None, n_steps=none, patience=none, batches=None, score=score, distance=distance,
        optimizer=None,
    )  # fmt: skip


def _inputs(model: Any, X: Any, bins: Any, size: int) -> tuple[Any, Any]:
    """Return a function of (model, inputs) that scores rows, and what it reads of so many of them."""
    if isinstance(model, SoftEnsemble):
        return score_of_rows, padded_rows(read_rows(model.edges, model.unit_bits, X, model.base.dtype), size)
    return hard.inputs_of(model, as_array(pad_axis(np.asarray(bins), size, axis=1)))


def adapted_loss(task: Task) -> Any:
    """Return the loss with the numbers that it has at the scores of the model, if it adapts to them."""
    if task.loss.adapt is None:
        return task.loss
    loss = jax.tree.map(lambda leaf: as_array(leaf, float) if isinstance(leaf, float) else leaf, task.loss)
    return jax.tree.unflatten(
        jax.tree.structure(loss), _adapted_numbers(dataclasses.replace(task, loss=loss))
    )


@program
def _adapted_numbers(task: Task) -> list[Any]:
    score = scores(task.score, task.model, task.rows, task.inputs)
    return jax.tree.leaves(task.loss.adapted(score, task.rows))


def stiffness_of(task: Task, decay: np.ndarray) -> Float[Array, " k"]:
    """Return what the squared distance from the start is multiplied by."""
    separate = task.model.trees.feature.ndim == 3
    return _unit_of_decay(task.loss, task.rows, task.model.base, separate) * decay


@partial(program, static_argnums=3)
def _unit_of_decay(loss: Any, rows: Rows, base: Float[Array, " k"], separate: bool) -> Float[Array, " k"]:
    """Return what `reg_lambda` of 1 is for a fit of these rows that starts from this base score."""
    score = jnp.broadcast_to(base[None], (rows.weight.size, base.size))
    score = score if rows.offset is None else score + rows.offset
    found = raw_derivatives(loss, score[:, 0] if loss.n_outputs is None else score, rows)
    return find_units(loss, score, found, rows, True, separate).of_h
