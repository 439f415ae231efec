"""Unconstrained scales, on which descent cannot leave the domain of a number."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jboost._runtime.typing import as_array
from jboost.boosting.rounds import Problem
from jboost.differentiable.loss_numbers import numbers_of, with_numbers


class Scale(NamedTuple):
    """How a number is read from a place on an unconstrained scale, and the place found of a number."""

    value: Callable[[Any], Array]
    place: Callable[[Any], Any]
    domain: str
    holds: Callable[[float], bool]


def _logit(value: Any) -> Any:
    return np.log(value) - np.log1p(-value)


POSITIVE = Scale(jnp.exp, np.log, "above 0", lambda value: value > 0)
# Beyond 1 a round may raise the training loss.
SHARE = Scale(jax.nn.sigmoid, _logit, "between 0 and 1, both exclusive", lambda value: 0 < value < 1)

SCALES = {"learning_rate": SHARE, "reg_lambda": POSITIVE, "reg_alpha": POSITIVE, "max_delta_step": POSITIVE}
OTHERS = ("loss", "sample_weight")
TIMES = "times"  # what the weight of each row is multiplied by: of no scale


def check_names(by: Any) -> tuple[str, ...]:
    """Return the names of what is to be moved; raise for those that have no derivative."""
    if isinstance(by, str) or not isinstance(by, tuple | list) or not by:
        raise TypeError(f"by must be a tuple of names, such as ('learning_rate',), got {by!r}")
    known = [*SCALES, *OTHERS]
    for name in by:
        if name not in known:
            numbers = ", ".join(known)
            raise ValueError(
                f"by must hold names among {numbers}, by which the risk has a derivative, got {name!r}; other numbers "
                "of Hyper choose splits and rows: use jboost.sweep"
            )
    if len(set(by)) < len(by):
        raise ValueError(f"by must hold each name once, got {by!r}")
    return tuple(by)


def place_of(problem: Problem, names: tuple[str, ...]) -> dict[str, Any]:
    """Return where the numbers of a problem lie on their scales: an array for each name, or several of the loss."""
    return {name: _place(problem, name) for name in names}


def _place(problem: Problem, name: str) -> Any:
    if name == "loss":
        return numbers_of(problem.loss)
    if name == "sample_weight":
        return as_array(np.zeros(problem.train.weight.size), float)
    scale, value = SCALES[name], float(getattr(problem.hyper, name))
    if not scale.holds(value):
        raise ValueError(f"hyper.{name} must be {scale.domain} to be moved from there, got {value:g}")
    return as_array(scale.place(value), float)


def moved_to(problem: Problem, place: dict[str, Any]) -> Problem:
    """Return the problem with the numbers of a place."""
    values = {name: SCALES[name].value(one) for name, one in place.items() if name in SCALES}
    problem = dataclasses.replace(problem, hyper=dataclasses.replace(problem.hyper, **values))
    if "loss" in place:
        problem = dataclasses.replace(problem, loss=with_numbers(problem.loss, place["loss"]))
    weight = problem.train.weight
    if "sample_weight" in place:
        weight = shifted(weight, place["sample_weight"])
    if TIMES in place:
        weight = weight * place[TIMES]
    return dataclasses.replace(problem, train=dataclasses.replace(problem.train, weight=weight))


def shifted(weight: Array, place: Array) -> Array:
    """Return weights with another share for each row and the same sum: a softmax of place, times the weights."""
    present = weight > 0
    highest = jax.lax.stop_gradient(jnp.max(jnp.where(present, place, -jnp.inf)))
    times = jnp.where(present, jnp.exp(jnp.where(present, place - highest, 0)), 0)
    new = weight * times
    return new * (weight.sum() / new.sum())
