"""The rounds of a linear fit: differentiate, make a pass, shorten it where the objective would rise."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from jboost._fixed_point import mean
from jboost._model.linear import dot
from jboost._objective.derivatives import ROUNDING, derivatives_by_row, value_by_row
from jboost._objective.rows import Rows
from jboost._objective.units import Units
from jboost._runtime.checkpointing import computed_again
from jboost._runtime.typing import pytree, static_field
from jboost._spec import Hyper
from jboost.boosting.watching import is_finished, metric_of, remembered
from jboost.linear.passes import FeatureSelector, Move, move
from jboost.linear.quadratic import Quadratic, penalty
from jboost.metrics import Metric

HALVINGS = 20  # after which a round changes nothing
LONGEST = 2.0**20  # times a step whose length nothing tells


class Choices(NamedTuple):
    """What a compiled fit knows: hashable."""

    n_estimators: int
    feature_selector: FeatureSelector
    n_steps: int  # coefficients that a pass changes
    n_iter_no_change: int | None
    penalties: Literal["relative", "absolute"]
    separate = False  # units are those of all outputs together


@pytree
class LinearProblem:
    """What no round changes. Columns have a mean of 0 and a deviation of 1, and so have coefficients their own unit."""

    columns: Float[Array, "f n"]
    train: Rows
    valid_columns: Float[Array, "f m"] | None
    valid: Rows | None
    loss: Any
    metric: Metric | None
    hyper: Hyper
    deviation: Float[Array, " f"]
    spec: Choices = static_field()
    base: Float[Array, " k"] | None = None
    units: Units | None = None


@pytree
class LinearState:
    """What a round changes."""

    score: Float[Array, "n k"]
    valid_score: Float[Array, "m k"]
    coef: Float[Array, "k f"]
    constant: Float[Array, " k"]
    key: Key[Array, ""]
    since_best: Int[Array, ""]
    best_metric: Float[Array, ""]  # less is better here
    train_loss: Float[Array, ""]
    valid_metric: Float[Array, ""]


class LinearRound(NamedTuple):
    """What a round leaves behind."""

    coef: Float[Array, "k f"]
    constant: Float[Array, " k"]
    train_loss: Float[Array, ""]
    valid_metric: Float[Array, ""]
    since_best: Int[Array, ""]


def start(problem: LinearProblem, key: Array) -> LinearState:
    """Start from the base score."""
    base = problem.base
    assert base is not None  # it is found before the rounds
    dtype = problem.columns.dtype

    def scores(rows: Rows) -> Array:
        score = jnp.broadcast_to(base[None], (rows.weight.size, base.size))
        return score if rows.offset is None else score + rows.offset

    none = jnp.zeros((0, base.size), dtype)
    valid_score = none if problem.valid is None else scores(problem.valid)
    zero, never = jnp.zeros((), dtype), jnp.asarray(jnp.inf, dtype)
    coef = jnp.zeros((base.size, problem.columns.shape[0]), dtype)
    since_best = jnp.zeros((), jnp.int32)
    return LinearState(scores(problem.train), valid_score, coef, base, key, since_best, never, zero, zero)


def run(problem: LinearProblem, key: Array) -> LinearRound:
    """Run all rounds in one scan; they come back stacked. After early stopping nothing changes any more."""

    @computed_again
    def one(state: LinearState, number: Array) -> tuple[LinearState, LinearRound]:
        if problem.spec.n_iter_no_change is None or problem.valid is None:
            state = step(problem, state, number)
        else:
            has_ended = is_finished(problem, state.since_best)
            state = jax.lax.cond(
                has_ended, lambda state: state, lambda state: step(problem, state, number), state
            )
        return state, LinearRound(
            state.coef, state.constant, state.train_loss, state.valid_metric, state.since_best
        )

    return jax.lax.scan(one, start(problem, key), jnp.arange(problem.spec.n_estimators, dtype=jnp.int32))[1]


def step(problem: LinearProblem, state: LinearState, number: Array) -> LinearState:
    """Add one round."""
    spec, rows, units = problem.spec, problem.train, problem.units
    assert units is not None  # they are found with the base score
    loss = problem.loss.adapted(state.score, rows)
    found = derivatives_by_row(loss, state.score, rows, units.h)
    there = (rows.weight > 0)[:, None]
    g, h = (jnp.where(there, one * rows.weight[:, None], 0).T for one in (found.g, found.h))
    quadratic = Quadratic(problem.columns, g, h, state.coef, *_penalties(problem, state))
    key = jax.random.fold_in(state.key, number)
    moved = move(quadratic, spec.feature_selector, spec.n_steps, problem.hyper.learning_rate, key)
    moved = _as_it_bends(loss, state, rows, quadratic, moved)
    length = jax.lax.stop_gradient(_length(problem, loss, state, quadratic, moved, found.value))
    score = state.score + length * moved.score.T
    coef, constant = state.coef + length * moved.coef, state.constant + length * moved.constant
    train_loss = mean(value_by_row(loss, score, rows), rows.weight)
    changed = dataclasses.replace(state, score=score, coef=coef, constant=constant, train_loss=train_loss)
    return changed if problem.valid is None else _validated(problem, changed, length, moved)


def _penalties(problem: LinearProblem, state: LinearState) -> tuple[Float[Array, "k f"], Float[Array, "k f"]]:
    """Return the penalties of coefficients of columns of deviation 1."""
    assert problem.units is not None
    hyper, unit = problem.units.for_leaves(problem.hyper), 1 / problem.deviation[None]

    def by_column(number: Array) -> Float[Array, "k f"]:
        return jnp.broadcast_to(number.reshape(-1, 1) * unit, state.coef.shape)

    l2 = by_column(hyper.reg_lambda) * unit  # the square of a deviation might vanish
    return l2, by_column(hyper.reg_alpha)


def _as_it_bends(loss: Any, state: LinearState, rows: Rows, quadratic: Quadratic, moved: Move) -> Move:
    """Shorten a move along which the loss bends more than the diagonal of its Hessian says.

    That is so where outputs, or rows, depend on each other: all classes that move at once bend a softmax up to twice
    as much.
    """
    depends = loss.needs_all_rows or state.score.shape[1] > 1
    if not depends or loss.hessian == "first_order" or loss.curvature is not None:
        return moved

    def along(length: Array) -> Array:
        values = value_by_row(loss, state.score + length * moved.score.T, rows)
        return jnp.sum(jnp.where(rows.weight > 0, rows.weight * values, 0))

    zero, one = jnp.zeros((), state.score.dtype), jnp.ones((), state.score.dtype)
    bends = jax.jvp(lambda length: jax.jvp(along, (length,), (one,))[1], (zero,), (one,))[1]
    said = jnp.sum(quadratic.h * jnp.square(moved.score))
    more = bends > said
    length = jnp.where(more, said / jnp.where(more, bends, 1), 1)
    return Move(*(length * part for part in moved))


def _length(
    problem: LinearProblem,
    loss: Any,
    state: LinearState,
    quadratic: Quadratic,
    moved: Move,
    value: Float[Array, " n"],
) -> Float[Array, ""]:
    """Return how much of the move to take: all of it, unless the objective would not fall enough.

    A quadratic loss never asks for less: a pass of exact steps over f columns and a constant takes it down by at least
    1 / (f + 2) of the slope.
    """
    rows, total = problem.train, problem.train.weight.sum()
    l2, l1 = quadratic.l2, quadratic.l1

    def penalties(length: Any) -> Float[Array, ""]:
        return jnp.sum(
            penalty(quadratic.coef + length * moved.coef, l2, l1) - penalty(quadratic.coef, l2, l1)
        )

    before = mean(value, rows.weight) * total
    rounding = ROUNDING * jnp.finfo(value.dtype).eps * mean(jnp.abs(value), rows.weight) * total
    slope = jnp.sum(quadratic.g * moved.score)
    share = 0.5 / (quadratic.columns.shape[0] + 2)

    def rise(length: Any) -> Float[Array, ""]:
        values = value_by_row(loss, state.score + length * moved.score.T, rows)
        return mean(values, rows.weight) * total - before + penalties(length)

    def falls(length: Any) -> Bool[Array, ""]:
        return rise(length) <= share * jnp.minimum(length * slope + penalties(length), 0) + rounding

    one = jnp.ones((), value.dtype)
    if loss.hessian == "first_order":
        lengths = LONGEST * 2.0 ** -jnp.arange(2 * HALVINGS + 1, dtype=value.dtype)
        rises = jax.lax.map(rise, lengths)
        best = jnp.argmin(jnp.where(jnp.isnan(rises), jnp.inf, rises))
        return jnp.where(rises[best] < 0, lengths[best], 0)

    def shorter(_: Any) -> Float[Array, ""]:
        lengths = 0.5 ** jnp.arange(1, HALVINGS + 1, dtype=value.dtype)
        good = jax.lax.map(falls, lengths)
        return jnp.where(jnp.any(good), lengths[jnp.argmax(good)], 0)

    return jax.lax.cond(falls(one), lambda _: one, shorter, None)


def _validated(
    problem: LinearProblem, state: LinearState, length: Float[Array, ""], moved: Move
) -> LinearState:
    """Score the validation rows, take the metric and keep count of the rounds since the best."""
    assert problem.valid_columns is not None
    change = dot(moved.coef, problem.valid_columns) + moved.constant[:, None]
    score = state.valid_score + length * change.T
    metric = metric_of(problem, score)
    since_best, best = remembered(problem, metric, state.since_best, state.best_metric)
    return dataclasses.replace(
        state, valid_score=score, valid_metric=metric, since_best=since_best, best_metric=best
    )
