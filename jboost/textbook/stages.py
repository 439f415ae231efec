"""The rounds of `boost`: one of them, all in one scan, or some at a time in compiled calls."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._objective.derivatives import Expansion, derivatives_by_row
from jboost._objective.leaves import Derivatives, Leaves
from jboost._objective.line_search import best_length
from jboost._objective.rows import Rows
from jboost._runtime.parametrised import Parametrised
from jboost._runtime.programs import program
from jboost._runtime.typing import pytree, static_field
from jboost._spec import Hyper, Spec
from jboost.boosting.callbacks import Callback, Progress, call_all
from jboost.boosting.chunks import CAPACITY, ROOM
from jboost.boosting.pacing import in_chunks, progress_bar
from jboost.boosting.rounds import State, plain_mean, start, train_loss
from jboost.boosting.stopping import history_of, losses_after
from jboost.boosting.watching import is_finished, metric_of, remembered
from jboost.metrics import Metric

Step = Literal["newton", "gradient"]
FREE = Hyper(reg_lambda=0.0, reg_alpha=0.0)  # of penalties: a learner has its own


@pytree
class Task:
    """All that a round needs and no round changes."""

    learner: Parametrised
    known: Any
    prepared: Any  # the rows as the learner reads them
    train: Rows
    valid_prepared: Any
    valid: Rows | None
    loss: Any
    metric: Metric | None  # None: the mean loss
    hyper: Hyper
    base: Float[Array, " k"] | None  # None: the best constant
    key: Array
    spec: Spec = static_field()
    step: Step = static_field()
    line_search: bool = static_field()


@pytree
class Stage:
    """What a round leaves behind."""

    params: Any
    length: Float[Array, ""]
    train_loss: Float[Array, ""]  # before it
    valid_metric: Float[Array, ""]  # after it; 0 without validation rows


def begin(task: Task) -> tuple[Float[Array, " k"], State]:
    """Find the score before the first round."""
    best = task.loss.leaf.base_score(task.loss, task.train, None) if task.base is None else task.base
    base = jnp.asarray(best)
    score, valid_score = (_start_of(rows, base) for rows in (task.train, task.valid))
    return base, start(task, task.key, score, valid_score)


def _start_of(rows: Rows | None, base: Float[Array, " k"]) -> Float[Array, "n k"]:
    if rows is None:
        return jnp.zeros((0, base.size), base.dtype)
    score = jnp.broadcast_to(base[None], (rows.weight.size, base.size))
    return score if rows.offset is None else score + rows.offset


def add_stage(task: Task, state: State) -> tuple[State, Stage]:
    """Fit a learner to where the loss wants the scores to go, and move them."""
    rows, learner = task.train, task.learner.whole
    loss = task.loss.adapted(state.score, rows)
    found = derivatives_by_row(loss, state.score, rows)
    target, weight = _wanted(found, rows, task.step)
    key = jax.random.fold_in(state.key, state.round + 1)
    params = learner.fit(key, task.known, task.prepared, target, weight)
    direction = learner.predict(task.known, params, task.prepared)
    length = task.hyper.learning_rate
    if task.line_search:
        length = length * _length(loss, state.score, rows, found, direction)
    valid_score, metric = _validate(task, state, params, length)
    since_best, best = remembered(task, metric, state.since_best, state.best_metric)
    score = state.score + length * direction
    new = State(score, valid_score, state.key, state.round + 1, since_best, best)
    return new, Stage(params, length, plain_mean(found.value, rows), metric)


def _validate(task: Task, state: State, params: Any, length: Array) -> tuple[Array, Array]:
    if task.valid is None:
        return state.valid_score, jnp.zeros((), state.score.dtype)
    score = state.valid_score + length * task.learner.whole.predict(task.known, params, task.valid_prepared)
    return score, metric_of(task, score)


def _wanted(found: Expansion, rows: Rows, step: Step) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Return what the learner is to fit, and by which weights; 0 for rows that are not there."""
    weight, there = rows.weight[:, None], (rows.weight > 0)[:, None]
    g, h = jnp.where(there, found.g, 0), jnp.where(there, found.h, 1)
    if step == "gradient":
        return -g, jnp.broadcast_to(weight, g.shape)
    return -g / h, weight * h


def _length(
    loss: Any, score: Float[Array, "n k"], rows: Rows, found: Expansion, direction: Float[Array, "n k"]
) -> Float[Array, ""]:
    """Search for the length of a round, with a leaf for each row."""
    n = rows.weight.size
    g = found.g * rows.weight[:, None]
    hyper = jax.tree.map(lambda number: jnp.asarray(number, score.dtype), FREE)
    leaf = jnp.arange(n, dtype=jnp.int32)
    leaves = Leaves(loss, score, rows, rows.weight, leaf, n, hyper, Derivatives(g, jnp.ones_like(g)))
    size = jnp.max(jnp.abs(direction))
    unit = jnp.where(size > 0, size, 1)
    return best_length(leaves, direction / unit)[0, 0] / unit


def run_traced(task: Task) -> tuple[Float[Array, " k"], State, Stage, Float[Array, ""]]:
    """Run all rounds in one scan: the base score, the last state, the rounds stacked, and the loss after them."""
    base, state = begin(task)
    final, stages = jax.lax.scan(
        lambda state, _: add_stage(task, state), state, length=task.spec.n_estimators
    )
    return base, final, stages, train_loss(task, final)


def run_concrete(
    task: Task, verbose: bool | None, callbacks: tuple[Callback, ...]
) -> tuple[Float[Array, " k"], Stage, Any]:
    """Run the rounds in compiled calls: the base score, the rounds stacked on the host, and the loss after them."""
    wanted = task.spec.n_estimators
    task = dataclasses.replace(
        task, spec=dataclasses.replace(task.spec, n_estimators=0)
    )  # no part of a program
    base, state = _begin(task)
    one = jax.eval_shape(add_stage, task, state)[1]
    room = int(
        np.clip(ROOM // sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one)), 1, CAPACITY)
    )
    stages, loss = [jax.tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), one)], jnp.nan
    began = time.perf_counter()

    def advance(n_rounds: int) -> tuple[int, dict[str, str], bool]:
        nonlocal state, loss
        new, made, after, finished = _run_some(task, state, n_rounds, room)
        count = int(new.round) - int(state.round)
        stages.append(jax.tree.map(lambda leaf: np.asarray(leaf)[:count], made))
        state, loss = new, after
        figures = {"loss": f"{float(loss):.5g}"}
        if task.valid is not None:
            figures["valid"] = f"{stages[-1].valid_metric[-1]:.5g}"
        return count, figures, bool(finished) or not np.isfinite(loss)

    def stops() -> bool:
        return bool(callbacks) and call_all(callbacks, _progress(task, _joined(stages), loss, began))

    in_chunks(advance, wanted, room, progress_bar(wanted, "boosting", verbose), stops)
    return base, _joined(stages), loss


_begin: Callable[[Task], tuple[Float[Array, " k"], State]] = program(begin)


@program(static_argnums=3)
def _run_some(
    task: Task, state: State, n_rounds: int | Int[Array, ""], room: int
) -> tuple[State, Stage, Array, Array]:
    """Run up to `n_rounds` rounds; return them in the first of so many places, and the loss after them."""
    first = state.round

    def goes_on(carry: tuple[State, Stage]) -> Array:
        state = carry[0]
        return (state.round - first < n_rounds) & ~is_finished(task, state.since_best)

    def one_more(carry: tuple[State, Stage]) -> tuple[State, Stage]:
        state, made = carry
        new, stage = add_stage(task, state)
        place = state.round - first
        return new, jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, place, 0), made, stage
        )

    form = jax.eval_shape(add_stage, task, state)[1]
    blank = jax.tree.map(lambda leaf: jnp.zeros((room, *leaf.shape), leaf.dtype), form)
    state, made = jax.lax.while_loop(goes_on, one_more, (state, blank))
    return state, made, train_loss(task, state), is_finished(task, state.since_best)


def _joined(stages: list[Stage]) -> Stage:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *stages)


def _progress(task: Task, stages: Stage, loss: Any, began: float) -> Progress:
    history = history_of(task, stages, losses_after(stages, loss), np.inf)
    return Progress(len(history.train_loss), history, time.perf_counter() - began)
