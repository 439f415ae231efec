"""The fits of a sweep: what each has of its own, and what they share."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from jboost._objective.rows import Rows
from jboost._runtime.padding import pad_axis
from jboost._runtime.typing import as_array
from jboost.boosting import rounds as _rounds
from jboost.boosting.diagnosing import adapted_at, find_start
from jboost.boosting.preparing import start_scores, usable_columns
from jboost.boosting.rounds import Problem, State


class Own(NamedTuple):
    """What a member does not share with the others, under one program."""

    hyper: Any
    weight: Array
    valid: Rows | None
    held: Array | None
    usable: Array
    units: Any
    parameters: list[Array]  # of a loss that adapts


class Fold(NamedTuple):
    """A problem whose training rows are those that a fold leaves, and where its boosting starts."""

    problem: Problem
    base: Any


def of_member(shared: Problem, own: Own) -> Problem:
    """Return the problem of a member."""
    loss = shared.loss
    if own.parameters:
        loss = jax.tree.unflatten(jax.tree.structure(loss), own.parameters)
    train = dataclasses.replace(shared.train, weight=own.weight)
    return dataclasses.replace(
        shared, hyper=own.hyper, train=train, valid=own.valid, held=own.held, usable=own.usable, units=own.units,
        loss=loss,
    )  # fmt: skip


def own_of(fold: Fold, hyper: Any) -> Own:
    """Return what a fit with these numbers has of its own."""
    problem = fold.problem
    parameters = [] if problem.loss.adapt is None else jax.tree.leaves(problem.loss)
    return Own(
        hyper, problem.train.weight, problem.valid, problem.held, problem.usable, problem.units, parameters
    )


def state_of(fold: Fold, key: Any) -> State:
    """Return the state of a fit before its first round."""
    problem = fold.problem
    score, _ = start_scores(dataclasses.replace(problem, valid=None), fold.base, None, None)
    valid = np.zeros((0, fold.base.size), score.dtype)
    if problem.held is not None:
        valid = np.asarray(score)[np.asarray(problem.held)]
    return _rounds.start(dataclasses.replace(problem, valid=None), key, score, as_array(valid))


def make_fold(
    problem: Problem,
    bins: np.ndarray,
    times: Float[np.ndarray, " n"],
    held: Bool[np.ndarray, " n"],
    size: int,
    base_score: Any,
) -> Fold:
    """Multiply the weights of the rows, find where boosting starts from those that have any, and watch those held out.

    `size` is how many rows are watched in all folds that share a program: those that are too few are filled up by rows
    without weight.
    """
    weight = np.asarray(problem.train.weight)
    n_rows = held.size  # the others are padding
    train = (weight * pad_axis(times, weight.size)).astype(weight.dtype)
    usable = usable_columns(bins, train[:n_rows])
    rows = dataclasses.replace(problem.train, weight=as_array(train))
    problem = dataclasses.replace(problem, train=rows, usable=usable)
    watched = (None, None) if not held.any() else _watched(problem, held, weight, size)
    zeros = as_array(np.zeros(problem.loss.n_outputs or 1, weight.dtype))
    problem = dataclasses.replace(problem, loss=adapted_at(problem, zeros, False))
    base, units = find_start(problem, base_score, False, lambda: None)
    loss = adapted_at(problem, base, False)
    valid, places = watched
    return Fold(
        dataclasses.replace(problem, base=base, units=units, loss=loss, valid=valid, held=places), base
    )


def _watched(
    problem: Problem, held: Bool[np.ndarray, " n"], weight: np.ndarray, size: int
) -> tuple[Rows, Array]:
    """Return the held-out rows and their places; all rows where a loss of several rows is to judge them."""
    if problem.metric is None and problem.loss.needs_all_rows:
        counted = np.where(pad_axis(held, weight.size), weight, 0).astype(weight.dtype)
        everywhere = np.arange(weight.size, dtype=np.int32)
        return dataclasses.replace(problem.train, weight=as_array(counted)), as_array(everywhere)
    places = np.flatnonzero(held)  # some of no weight, up to `size`, follow them
    places = np.append(places, np.full(size - places.size, places[0])).astype(np.int32)
    counted = np.where(np.arange(size) < held.sum(), weight[places], 0).astype(weight.dtype)
    y, offset = jax.tree.map(
        lambda array: as_array(np.asarray(array)[places]), (problem.train.y, problem.train.offset)
    )
    return Rows(y, as_array(counted), offset), as_array(places)
