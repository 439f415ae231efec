"""Gradient steps on the numbers of a model, in compiled chunks: the loop of `finetune`.

A step takes the gradient of the mean loss of some rows, asks the optimizer for an update, and keeps the best numbers
so far. It knows of a model only that a function makes scores of it and of what lies ready for each row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jboost._objective.derivatives import value_by_row
from jboost._objective.rows import Rows
from jboost._objective.units import nearest_power_of_two
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, pytree, static_field
from jboost.boosting.best_round import signed
from jboost.boosting.pacing import in_chunks, progress_bar
from jboost.differentiable.batches import GroupBatches, RowBatches
from jboost.differentiable.optimizers import import_optax
from jboost.metrics import Metric

CAPACITY = 256  # steps that one call can make
BY_OUTPUT = ("base", "leaf_value")  # parameters whose last axis is that of the outputs

Parameters = dict[str, Array]


@pytree
class Watched:
    """Rows to judge by."""

    rows: Rows
    inputs: Any  # what `score` is given of them
    score: Callable[[Any, Any], Array] = static_field()  # as in `Task`: of few rows the leaves may be known


@pytree
class Task:
    """All that a step needs and no step changes."""

    model: Any  # where the descent starts
    rows: Rows
    inputs: Any  # what `score` is given of the rows: arrays whose last axis is that of the rows
    valid: Watched | None
    loss: Any
    metric: Metric | None  # None: the mean loss
    stiffness: Float[Array, " k"] | None  # times the squared distance from the start; None: no decay
    rates: Parameters | None  # of the default optimizer's steps; None with one of the user's
    n_steps: Int[Array, ""]
    patience: Int[Array, ""]  # judgements without a better one after which to stop
    batches: RowBatches | GroupBatches | None  # None: all rows in every step
    score: Callable[[Any, Any], Array] = static_field()  # (model, inputs) -> float [n k], without offsets
    distance: Callable[[Any, Any], Array] = static_field()  # (model, start) -> float [k]
    optimizer: Any = static_field()


@pytree
class DescentState:
    """What a step changes."""

    step: Int[Array, ""]
    parameters: Parameters
    memory: Any  # of the optimizer
    unit: Parameters  # that gradients are measured in by the default optimizer
    order: Any  # of the rows or groups in this pass; None: no mini-batches
    key: Key[Array, ""]
    kept: Parameters  # the best so far
    best: Float[Array, ""]
    best_step: Int[Array, ""]
    since_best: Int[Array, ""]
    sound: Bool[Array, " 2"]  # whether the loss and its gradient were finite


@pytree
class Trace:
    """What happened in the steps of a call, in the first places."""

    loss: Float[Array, " s"]
    metric: Float[Array, " s"]  # 0 where the validation rows were not judged
    judged: Bool[Array, " s"]


def first_state(task: Task, parameters: Parameters, key: Any) -> DescentState:
    """Return the state before the first step."""
    dtype = task.rows.weight.dtype
    zero = as_array(np.zeros((), np.int32))
    return DescentState(
        step=zero,
        parameters=parameters,
        memory=jax.jit(task.optimizer.init)(parameters),
        unit={name: as_array(np.ones(_unit_shape(name, one), dtype)) for name, one in parameters.items()},
        order=None if task.batches is None else task.batches.blank(task.rows),
        key=key,
        kept=parameters,
        best=as_array(np.asarray(np.inf, dtype)),
        best_step=zero,
        since_best=zero,
        sound=as_array(np.ones(2, bool)),
    )


def step(task: Task, state: DescentState) -> tuple[DescentState, tuple[Array, Array, Array]]:
    """Judge the numbers as they are, then move them; return what `Trace` holds of a step, before it."""
    n_batches = jnp.ones((), jnp.int32) if task.batches is None else task.batches.n
    order, rows, inputs = _batch(task, state, n_batches)

    def objective(parameters: Parameters) -> tuple[Array, Array]:
        model = dataclasses.replace(task.model, **parameters)
        loss = _mean_loss(task.loss, scores(task.score, model, rows, inputs), rows)
        return loss + _penalty(task, model), loss

    (value, loss), gradient = jax.value_and_grad(objective, has_aux=True)(state.parameters)
    sound = jnp.stack([jnp.isfinite(value), _all_finite(gradient)])
    # Validation rows are judged once in each pass and at the end.
    is_due = (task.valid is not None) & ((state.step % n_batches == 0) | (state.step == task.n_steps))
    metric = _metric(task, state, is_due)
    state = _judged(task, dataclasses.replace(state, order=order, sound=sound), value, metric, is_due)
    unit = {
        name: jnp.where(state.step == 0, _unit(name, gradient[name]), one) for name, one in state.unit.items()
    }
    updates, memory = _updates(task, state, unit, lambda one: objective(one)[0], value, gradient)
    moved = jax.tree.map(lambda one, update: one + update.astype(one.dtype), state.parameters, updates)
    goes_on = sound.all()
    parameters, memory = jax.tree.map(
        lambda new, old: jnp.where(goes_on, new, old), (moved, memory), (state.parameters, state.memory)
    )
    state = dataclasses.replace(state, step=state.step + 1, parameters=parameters, memory=memory, unit=unit)
    return state, (loss, metric, is_due)


def scores(score_of: Any, model: Any, rows: Rows, inputs: Any) -> Float[Array, "n k"]:
    """Return the scores of rows."""
    score = score_of(model, inputs)
    return score if rows.offset is None else score + rows.offset


def _batch(task: Task, state: DescentState, n_batches: Array) -> tuple[Any, Rows, Any]:
    """Take the rows of the step: all, or the next in an order that is drawn anew for each pass."""
    batches = task.batches
    if batches is None:
        return None, task.rows, task.inputs
    place = state.step % n_batches

    def drawn() -> Any:
        return batches.draw(jax.random.fold_in(state.key, state.step), task.rows)

    order = jax.lax.cond(place == 0, drawn, lambda: state.order)
    return order, *batches.take(order, place, task.rows, task.inputs)


def _mean_loss(loss: Any, score: Float[Array, "n k"], rows: Rows) -> Float[Array, ""]:
    values, weight = value_by_row(loss, score, rows), rows.weight
    return (jnp.where(weight > 0, values, 0) * weight).sum() / weight.sum()


def _penalty(task: Task, model: Any) -> Any:
    if task.stiffness is None:
        return 0.0
    return (task.stiffness * task.distance(model, task.model)).sum() / (2 * task.rows.weight.sum())


def _metric(task: Task, state: DescentState, is_due: Array) -> Float[Array, ""]:
    """Judge by the validation rows, if it is time to; 0 otherwise, as NaN would alarm `jax_debug_nans`."""
    nothing = jnp.zeros((), task.rows.weight.dtype)
    if task.valid is None:
        return nothing
    rows, inputs, score_of = task.valid.rows, task.valid.inputs, task.valid.score

    def measured() -> Array:
        score = scores(score_of, dataclasses.replace(task.model, **state.parameters), rows, inputs)
        if task.metric is None:
            return _mean_loss(task.loss, score, rows)
        shaped = score[:, 0] if task.loss.n_outputs is None else score
        return jnp.asarray(task.metric(shaped, rows.y, rows.weight), score.dtype)

    return jax.lax.cond(is_due, measured, lambda: nothing)


def _judged(task: Task, state: DescentState, value: Array, metric: Array, is_due: Array) -> DescentState:
    """Keep the numbers if they are the best so far; of mini-batches nobody judges, the last are."""
    sound = state.sound.all()
    if task.valid is not None:
        judged, is_judged = signed(metric, task.metric), is_due
    else:
        judged, is_judged = value, jnp.ones((), bool)
    better = sound & is_judged & (judged < state.best)  # false for NaN
    if task.valid is None and task.batches is not None:
        better = sound
    kept = jax.tree.map(lambda new, old: jnp.where(better, new, old), state.parameters, state.kept)
    return dataclasses.replace(
        state,
        kept=kept,
        best=jnp.where(better, judged, state.best),
        best_step=jnp.where(better, state.step, state.best_step),
        since_best=jnp.where(better, 0, state.since_best + is_judged.astype(jnp.int32)),
    )


def _updates(
    task: Task, state: DescentState, unit: Parameters, objective: Any, value: Array, gradient: Parameters
) -> tuple[Any, Any]:
    """Ask the optimizer. The default one sees gradients of about 1, and its steps are measured by the model."""
    optax = import_optax()
    if task.rates is None:
        optimizer = optax.with_extra_args_support(task.optimizer)  # such as a line search needs
        extra = {"value": value, "grad": gradient, "value_fn": objective}
        with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes, whatever the caller's own setting
            return optimizer.update(gradient, state.memory, state.parameters, **extra)
    known = jax.tree.map(lambda g, u: g * u, gradient, unit)
    with jax.numpy_dtype_promotion("standard"):
        updates, memory = task.optimizer.update(known, state.memory, state.parameters)
    share = state.step.astype(value.dtype) / jnp.maximum(task.n_steps, 1).astype(value.dtype)
    falling = (1 + jnp.cos(math.pi * share)) / 2
    return jax.tree.map(lambda update, rate: -falling * rate * update, updates, task.rates), memory


def _unit_shape(name: str, parameter: Any) -> tuple[int, ...]:
    """Outputs may have units of their own, such as a mean and the logarithm of a deviation."""
    return (1,) * (parameter.ndim - 1) + ((parameter.shape[-1] if name in BY_OUTPUT else 1),)


def _unit(name: str, gradient: Array) -> Array:
    """Return what makes gradients like these about 1."""
    axes = tuple(range(gradient.ndim - (name in BY_OUTPUT)))
    largest = jnp.max(jnp.abs(gradient), axis=axes, keepdims=True, initial=0)
    size = jnp.where(largest > 0, largest, 1)
    mean = jnp.sqrt(jnp.mean(jnp.square(gradient / size), axis=axes, keepdims=True))
    return 1 / nearest_power_of_two(size * jnp.where(mean > 0, mean, 1))


def _all_finite(gradient: Parameters) -> Array:
    return jnp.stack([jnp.isfinite(one).all() for one in jax.tree.leaves(gradient)]).all()


@program
def run_chunk(task: Task, state: DescentState, most: Any) -> tuple[DescentState, Trace, Bool[Array, ""]]:
    """Make up to `most` steps; say whether the descent has ended."""
    dtype, first = task.rows.weight.dtype, state.step

    def has_ended(state: DescentState) -> Array:
        # One judgement more than steps: that of the numbers after the last one.
        return (state.step > task.n_steps) | (state.since_best >= task.patience) | ~state.sound.all()

    def goes_on(carry: tuple[DescentState, Trace]) -> Array:
        return (carry[0].step - first < most) & ~has_ended(carry[0])

    def one_more(carry: tuple[DescentState, Trace]) -> tuple[DescentState, Trace]:
        state, trace = carry
        new, found = step(task, state)
        place = state.step - first
        return new, Trace(*(all_.at[place].set(one) for all_, one in zip(_parts(trace), found, strict=True)))

    blank = jnp.zeros(CAPACITY, dtype)
    trace = Trace(blank, blank, blank.astype(bool))
    state, trace = jax.lax.while_loop(goes_on, one_more, (state, trace))
    return state, trace, has_ended(state)


def _parts(trace: Trace) -> tuple[Array, Array, Array]:
    return trace.loss, trace.metric, trace.judged


def descend(
    task: Task, state: DescentState, verbose: bool | None
) -> tuple[DescentState, np.ndarray, np.ndarray]:
    """Make the steps; return the last state, and the loss and the metric before each step and after the last."""
    total = int(task.n_steps) + 1
    losses, metrics = [], []

    def advance(n_steps: int) -> tuple[int, dict[str, str], bool]:
        nonlocal state
        new, trace, ended = run_chunk(task, state, np.int32(n_steps))
        count = int(new.step) - int(state.step)
        losses.append(np.asarray(trace.loss)[:count])
        metrics.append(np.where(trace.judged, trace.metric, np.nan)[:count].astype(losses[-1].dtype))
        state = new
        return count, {"loss": f"{losses[-1][-1]:.5g}"}, bool(ended)

    bar = progress_bar(total, "fine-tuning", verbose, "step")
    said = "interrupted: the model is the best of the first {} steps"
    in_chunks(advance, total, CAPACITY, bar, interrupted=said)
    nothing = np.zeros(0, task.rows.weight.dtype)
    return state, np.concatenate([nothing, *losses]), np.concatenate([nothing, *metrics])
