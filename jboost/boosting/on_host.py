"""A metric that is no JAX: taken of the rounds of a chunk, on the host, after the chunk has run.

The compiled rounds know of it only which way is better. They go on to the end of the chunk; what they did after
patience ran out is dropped.
"""

from __future__ import annotations

import dataclasses
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jboost._model.scoring import sum_rounds
from jboost._runtime.programs import program
from jboost._runtime.typing import Layout, as_array
from jboost._spec import Spec
from jboost._tree import Tree
from jboost.boosting.best_round import follow, signed
from jboost.boosting.rounds import Problem, Round, State
from jboost.metrics import Metric


def placeholder(metric: Metric) -> Metric:
    """Return what stands for a metric of the host in the compiled rounds."""
    return Metric(_nothing, metric.maximize, name=metric.name, pads=True)


def _nothing(score: Array, y: Any, weight: Any) -> Array:
    return jnp.zeros((), score.dtype)


def check_not_traced(metric: Any) -> None:
    """Refuse a metric of the host where all rounds are a program, or a loop of the user's."""
    if isinstance(metric, Metric) and metric.on_host:
        raise ValueError(
            "metric must be in JAX operations inside jit, vmap or grad and in jboost.boosting.init, got one with "
            "on_host=True, which only a fit outside of them can call between its rounds"
        )


def watch_on_host(metric: Any, problem: Problem, state: State, spec: Spec) -> WatchOnHost | None:
    """Return what measures the rounds of such a fit on the host, if anything does."""
    if not (isinstance(metric, Metric) and metric.on_host) or problem.valid is None:
        return None
    of_scores = metric.of_scores(problem.loss.inverse_link, problem.loss.n_outputs)
    return WatchOnHost(of_scores, problem, state, spec.n_iter_no_change)


class WatchOnHost:
    """The metric of each round so far, and the scores from which that of the next is taken."""

    def __init__(self, metric: Metric, problem: Problem, state: State, patience: int | None) -> None:
        assert problem.valid is not None  # who watches has validation rows
        self._metric, self._problem, self._patience = metric, problem, patience
        self._counted = np.asarray(problem.valid.weight) > 0
        self._y, self._weight = jax.tree.map(self._on_host, (problem.valid.y, problem.valid.weight))
        self._score, self._values = state.valid_score, np.zeros(0, state.score.dtype)
        continues = int(state.round) > 0
        value = (
            signed(self._measure(), metric) if continues else np.inf
        )  # that of an initial model is to be beaten
        self.to_beat = as_array(value, state.score.dtype)

    def __call__(self, rounds: Round, loss: Any) -> tuple[Round, Any, bool]:
        """Measure new rounds, given the training loss after them; keep those until patience ran out, if it did."""
        before, n_new = len(self._values), len(rounds.train_loss)
        new = [self._after(jax.tree.map(lambda array, t=t: array[t : t + 1], rounds)) for t in range(n_new)]
        self._values = np.append(self._values, np.asarray(new, self._values.dtype))
        of_all = signed(self._values, self._metric)
        tol, patience = self._problem.hyper.tol, self._patience
        n_run, best = follow(of_all, np.asarray(self.to_beat), tol, patience)
        stops = patience is not None and n_run - 1 - best >= patience
        n_kept = n_run - before
        measured = dataclasses.replace(rounds, valid_metric=self._values[before:])
        kept = jax.tree.map(lambda array: array[:n_kept], measured)
        return kept, rounds.train_loss[n_kept] if n_kept < n_new else loss, stops

    def _after(self, one: Round) -> float:
        layout = self._problem.layout._replace(has_missing=True)
        symmetric, bins = self._problem.spec.symmetric, self._problem.valid_bins
        self._score = _add_round(layout, symmetric, one.tree, one.leaf_value, bins, self._score)
        return self._measure()

    def _measure(self) -> float:
        score = self._on_host(self._score)
        shaped = score[:, 0] if self._problem.loss.n_outputs is None else score
        return as_number(self._metric(shaped, self._y, self._weight))

    def _on_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)[self._counted]


@program(static_argnums=(0, 1))
def _add_round(
    layout: Layout, symmetric: bool, tree: Tree, leaf_value: Array, bins: Array, score: Array
) -> Array:
    return sum_rounds(layout, symmetric, tree, leaf_value, bins, score)


def as_number(value: Any) -> float:
    """Return what a metric of the host returned as a float; raise if it is no number."""
    if isinstance(value, np.ndarray | np.generic | jax.Array) and np.shape(value) == ():
        value = np.asarray(value).item()
    if not isinstance(value, Real):
        raise TypeError(f"metric must return a number, got {value!r}")
    return float(value)
