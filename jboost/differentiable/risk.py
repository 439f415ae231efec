"""The risk of a fit, the mean loss of other rows, as a function of what it was fitted with, and its derivatives."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced, kept_concrete
from jboost._sampling import draws_any
from jboost._spec import Spec
from jboost.boosting.best_round import signed
from jboost.boosting.loop import Posed, pose, start
from jboost.boosting.rounds import Problem, run
from jboost.differentiable.scales import moved_to

NOT_FINITE = (
    "scale y where it is large, and write the loss and the metric without 0/0, inf - inf or a root or logarithm at "
    "0, and with derivatives there"
)


class Draws(NamedTuple):
    """Fits whose risks are averaged: what each multiplies the weights of the rows by, and its key."""

    times: Float[Array, "s n"]
    keys: Key[Array, " s"]


class Fitted(NamedTuple):
    """A fit whose risk is asked for."""

    problem: Problem  # without edges, which are no part of the compiled program
    draws: Draws
    base_score: Any


def posed_for_risk(
    loss: Any, data: Any, y: Any, valid: Any, spec: Any, hyper: Any, metric: Any, options: dict[str, Any]
) -> Posed:
    """Check the arguments of a fit that is to be differentiated outside of transformations."""
    if is_traced(data, y, valid, hyper, loss, list(options.values())):
        raise TypeError(
            "differentiable functions must be called outside of jit, vmap and grad: inside use jax.grad of a function "
            "that calls jboost.fit"
        )
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    if spec.n_iter_no_change is not None:
        raise ValueError(
            "spec.n_iter_no_change must be None: the risk is that after all spec.n_estimators rounds, whose number has "
            f"no derivative, got {spec.n_iter_no_change}"
        )
    if not spec.n_estimators:
        raise ValueError("spec.n_estimators must be at least 1, got 0")
    if valid is None:
        raise ValueError("valid must be the rows (X, y) whose risk is asked for, got None")
    posed = pose(loss, data, y, valid=valid, spec=spec, hyper=hyper, metric=metric, **options)
    if posed.problem.metric is not None and posed.problem.metric.on_host:
        raise ValueError("metric must be in JAX operations to be differentiated, got one with on_host=True")
    return posed


def fitted_of(posed: Posed, n_draws: int) -> Fitted:
    """Return the fit, or so many of them, each with weights drawn anew by the Bayesian bootstrap (Rubin 1981)."""
    problem, key = posed.problem, posed.key
    problem = dataclasses.replace(problem, edges=None, draws=draws_any(problem.hyper))
    times = np.ones((max(n_draws, 1), problem.train.weight.size))
    with kept_concrete():
        if not n_draws:
            return Fitted(problem, Draws(as_array(times, float), key[None]), posed.base_score)
        keys = jax.random.split(key, n_draws)
        seed = np.asarray(jax.random.key_data(jax.random.fold_in(key, n_draws))).ravel()
        # Not of the padding, on whose size nothing may depend.
        times[:, : posed.n_rows] = np.random.default_rng(seed.tolist()).exponential(
            size=(n_draws, posed.n_rows)
        )
        return Fitted(problem, Draws(as_array(times, float), keys), posed.base_score)


@program
def risk_and_gradient(place: dict[str, Any], fitted: Fitted) -> tuple[Array, dict[str, Any]]:
    """Return the risk of the fit at a place on the unconstrained scales, and its derivatives by it.

    The draws run one after the other, so that the memory is that of one.
    """

    def risk(place: dict[str, Any], times: Array, key: Array) -> Array:
        problem = moved_to(fitted.problem, place)
        weight = problem.train.weight * times
        problem = dataclasses.replace(problem, train=dataclasses.replace(problem.train, weight=weight))
        return final_risk(problem, key, fitted.base_score)

    found = jax.lax.map(lambda draw: jax.value_and_grad(risk)(place, *draw), tuple(fitted.draws))
    return jax.tree.map(lambda values: jnp.mean(values, axis=0), found)


def final_risk(problem: Problem, key: Array, base_score: Any) -> Float[Array, ""]:
    """Fit, and return the metric of the validation rows after the last round; less is better."""
    problem, state = start(Posed(problem, 0, key, None, None, base_score, traced=True))
    _, rounds = run(problem, state)
    return signed(rounds.valid_metric[-1], problem.metric)
