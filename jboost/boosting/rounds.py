"""Boosting: `init` makes a state, `step` adds a tree, `run` repeats it in one compiled scan.

Everything here is pure and works under `jit`, `vmap` and `grad`: splits are chosen from integers, through which
no derivative flows, and leaf values are differentiable sums. The plan is Friedman's (2001) with Newton steps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jboost._fixed_point import Scale, find_scale
from jboost._model.scoring import sum_rounds
from jboost._objective.leaves import leaf_values, weighted_derivatives
from jboost._objective.loss import Loss
from jboost._runtime.typing import (
    Layout,
    Reduce,
    as_array,
    identity,
    is_traced,
    pytree,
    static_field,
    zeros_varying_like,
)
from jboost._sampling import sample_columns, sample_rows
from jboost._spec import Hyper, Spec
from jboost._split import Rules
from jboost._tree import (
    BuildHistogram,
    Columns,
    Derivatives,
    Tree,
    group_columns,
    grow_tree,
    is_preferred,
    take_leaves,
)

MetricFunction = Callable[[Array, Any, Array], Array]
SampleRows = Callable[[Array, int, Array], Array]


@pytree
class Rows:
    """Binned rows with their targets and weights; weight 0 means that a row is not there."""

    bins: Int[Array, "f n"]  # or in groups, as `arrange_bins` lays them out
    y: Any
    weight: Float[Array, " n"]


@pytree
class Problem:
    """All that a round needs and no round changes."""

    train: Rows
    valid: Rows | None
    usable: Bool[Array, " f"]  # columns with anything to split
    hyper: Hyper
    loss: Loss = static_field()  # n_outputs resolved: None for a scalar score
    spec: Spec = static_field()
    layout: Layout = static_field()
    metric: MetricFunction = static_field()
    maximize: bool = static_field(default=False)


@pytree
class State:
    """What a round changes."""

    score: Float[Array, "n k"]
    valid_score: Float[Array, "m k"]
    key: Key[Array, ""]
    round: Int[Array, ""]  # rounds so far, those of an initial model included
    since_best: Int[Array, ""]  # rounds since the best one
    best_metric: Float[Array, ""]  # lower is better here


@pytree
class Round:
    """What a round leaves behind."""

    tree: Tree
    leaf_value: Float[Array, "leaves k"]
    train_loss: Float[Array, ""]  # before the round's tree
    valid_metric: Float[Array, ""]  # after it; 0 without validation rows


def init(
    problem: Problem, key: Array, score: Array, valid_score: Array, first_round: int | Array = 0
) -> State:
    """Start from given scores: the base score, or those of an initial model, whose metric is then to be beaten."""
    best = jnp.full((), jnp.inf, score.dtype)
    if problem.valid is not None and not (isinstance(first_round, int) and first_round == 0):
        best = _signed(problem, _metric(problem, problem.valid, valid_score))
    rounds, since_best = jnp.asarray(first_round, jnp.int32), jnp.zeros((), jnp.int32)
    return State(score, valid_score, key, rounds, since_best, best)


def step(
    problem: Problem,
    state: State,
    build_histogram: BuildHistogram | None = None,
    reduce: Reduce = identity,
    sample: SampleRows = sample_rows,
) -> tuple[State, Round]:
    """Add one round: sample, differentiate, grow, fill the leaves, move the scores.

    The rows may be those of one device of several: `reduce` then sums over them, and `sample` draws from all.
    """
    rows, loss, spec, hyper = problem.train, problem.loss, problem.spec, problem.hyper
    row_key, column_key = jax.vmap(jax.random.fold_in, (None, 0))(
        state.key, 2 * state.round + jnp.arange(2, dtype=jnp.int32)
    )
    drawn = _draw_rows(row_key, rows.weight, hyper, sample)
    weight = jnp.where(drawn, rows.weight, 0.0)
    value, *parts = weighted_derivatives(loss, state.score, rows.y, weight)
    derivatives = Derivatives(*parts)
    shares = (hyper.colsample_bytree, hyper.colsample_bylevel)
    allowed = sample_columns(column_key, problem.usable, *shares, spec.max_depth)
    columns = Columns(rows.bins, allowed, problem.layout)
    scales = find_scale(derivatives.g, reduce), find_scale(derivatives.h, reduce)
    tree, leaf = _grow(columns, derivatives, scales, weight > 0, spec, hyper, build_histogram, reduce)
    values = leaf_values(
        loss, state.score, rows.y, weight, leaf, hyper, spec.n_leaves, derivatives, scales, reduce
    )
    leaf_value = _as_stored(hyper.learning_rate * values, state.round)
    score = state.score + take_leaves(leaf_value, leaf)
    valid_score, metric = _validate(problem, state, tree, leaf_value)
    new = _remember(problem, state, score, valid_score, metric)
    return new, Round(tree, leaf_value, weighted_mean(value, rows.weight, reduce), metric)


def run(problem: Problem, state: State) -> tuple[State, Round]:
    """Repeat `step` for all rounds in one scan; rounds come back stacked."""
    problem = arrange(problem)
    return jax.lax.scan(lambda state, _: step(problem, state), state, length=problem.spec.n_estimators)


def arrange(problem: Problem) -> Problem:
    """Lay the training bins out once for all rounds, if that is of use."""
    rows = problem.train
    if rows.bins.ndim == 3 or not is_preferred():
        return problem
    return dataclasses.replace(problem, train=dataclasses.replace(rows, bins=group_columns(rows.bins)))


def is_finished(problem: Problem, state: State) -> Bool[Array, ""]:
    """Say whether early stopping has had enough."""
    patience = problem.spec.n_iter_no_change
    if patience is None or problem.valid is None:
        return jnp.zeros((), bool)
    return state.since_best >= patience


def weighted_mean(
    values: Float[Array, " n"], weight: Float[Array, " n"], reduce: Reduce = identity
) -> Float[Array, ""]:
    """Average the rows whose weight is above 0."""
    return reduce((jnp.where(weight > 0, values, 0.0) * weight).sum()) / reduce(weight.sum())


def mean_loss(problem: Problem, state: State, reduce: Reduce = identity) -> Float[Array, ""]:
    """Average the loss over the training rows as things stand."""
    rows = problem.train
    value = weighted_derivatives(problem.loss, state.score, rows.y, rows.weight)[0]
    return weighted_mean(value, rows.weight, reduce)


def usable_columns(bins: Int[Array, "f n"], weight: Float[Array, " n"]) -> Bool[Array, " f"]:
    """Say which columns hold two different codes in the rows that count."""
    if is_traced(bins, weight):
        counted = weight > 0
        largest = jnp.where(counted, bins, 0).max(axis=1)
        return jnp.where(counted, bins, jnp.iinfo(bins.dtype).max).min(axis=1) < largest
    host, counted = np.asarray(bins), np.asarray(weight) > 0
    if not counted.all():
        host = host[:, counted]
    return as_array(host.min(axis=1) < host.max(axis=1))


def _draw_rows(key: Array, weight: Float[Array, " n"], hyper: Hyper, sample: SampleRows) -> Bool[Array, " n"]:
    everyone = ~zeros_varying_like(weight, weight.shape, bool)
    some = partial(sample, key, weight.size, hyper.subsample)
    return jax.lax.cond(hyper.subsample < 1, some, lambda: everyone)


def _grow(
    columns: Columns,
    derivatives: Derivatives,
    scales: tuple[Scale, Scale],
    active: Bool[Array, " n"],
    spec: Spec,
    hyper: Hyper,
    build_histogram: BuildHistogram | None,
    reduce: Reduce,
) -> tuple[Tree, Int[Array, "n *k"]]:
    """Grow one tree for all outputs, or one for each."""
    derivatives, hyper = jax.lax.stop_gradient((derivatives, hyper))
    steps = 1 / jnp.stack([scale.factor for scale in scales], axis=-1)

    def grow(derivatives: Derivatives, steps: Float[Array, "k 2"]) -> tuple[Tree, Int[Array, " n"]]:
        in_order = steps.reshape(-1)
        if spec.counts_rows:
            in_order = jnp.append(in_order, 1.0)
        rules = Rules(hyper, in_order, spec)
        return grow_tree(columns, derivatives, active, rules, build_histogram, reduce)

    def grow_one(g: Float[Array, " n"], h: Float[Array, " n"], steps: Float[Array, " 2"]) -> Any:
        return grow(Derivatives(g[:, None], h[:, None]), steps[None])

    if spec.multi_output == "separate":
        return jax.vmap(grow_one, in_axes=(1, 1, 0), out_axes=(0, 1))(*derivatives, steps)
    return grow(derivatives, steps)


@jax.custom_jvp
def _as_stored(values: Float[Array, "..."], count: Int[Array, ""]) -> Float[Array, "..."]:
    """Return the values as they are, rounded: XLA would fuse their last product with the sum they go into.

    Scores are then those that the stored values give to others, and a fit goes on as if it had not been interrupted.
    The compiler cannot know that the integer that is added, for a count, is 0.
    """
    bits = jax.lax.bitcast_convert_type(values, jnp.dtype(f"int{8 * values.dtype.itemsize}"))
    return jax.lax.bitcast_convert_type(bits + jnp.minimum(count, 0).astype(bits.dtype), values.dtype)


@_as_stored.defjvp
def _as_stored_tangent(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return _as_stored(*primals), tangents[0]


def _validate(problem: Problem, state: State, tree: Tree, leaf_value: Array) -> tuple[Array, Array]:
    """Score the validation rows and take the metric."""
    valid = problem.valid
    if valid is None:
        return state.valid_score, jnp.zeros((), state.score.dtype)
    layout = problem.layout._replace(has_missing=True)
    trees, leaves = jax.tree.map(lambda array: array[None], (tree, leaf_value))
    score = sum_rounds(layout, problem.spec.symmetric, trees, leaves, valid.bins, state.valid_score)
    return score, _metric(problem, valid, score)


def _metric(problem: Problem, rows: Rows, score: Float[Array, "m k"]) -> Float[Array, ""]:
    shaped = score[:, 0] if problem.loss.n_outputs is None else score
    return jnp.asarray(problem.metric(shaped, rows.y, rows.weight), score.dtype)


def _signed(problem: Problem, metric: Float[Array, ""]) -> Float[Array, ""]:
    return -metric if problem.maximize else metric


def _remember(problem: Problem, state: State, score: Array, valid_score: Array, metric: Array) -> State:
    """Keep count of the rounds since the best; once finished, that no longer changes."""
    loss = _signed(problem, metric)
    better = (loss < state.best_metric) & ~is_finished(problem, state)
    since_best = jnp.where(better, 0, state.since_best + 1)
    best = jnp.where(better, loss, state.best_metric)
    return State(score, valid_score, state.key, state.round + 1, since_best, jax.lax.stop_gradient(best))
