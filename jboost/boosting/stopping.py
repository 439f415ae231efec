"""What is kept of the rounds that ran: up to the best one, and nothing after the loss left the finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost._runtime.caller import warn
from jboost._runtime.typing import is_traced, pytree
from jboost.boosting.rounds import Problem, Round, State, mean_loss


@pytree
class History:
    """What happened in each of t rounds.

    Attributes
    ----------
    train_loss : float [t]
        Weighted mean loss of the training rows after each round.
    valid_metric : float [t]
        Metric of the validation rows after each round; NaN without them.
    best_round : int
        Round with the best metric, counted from 0; the last round without validation rows; -1 if no round
        of a continued fit beat the initial model.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> _, history = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> history.train_loss.shape, int(history.best_round)
    ((3,), 2)
    """

    train_loss: Any
    valid_metric: Any
    best_round: Any


def silence_after_best(problem: Problem, state: State, rounds: Round) -> tuple[Round, History]:
    """Under a transformation: zero the leaves of the rounds after the best, since none can be dropped."""
    n_rounds = rounds.train_loss.shape[0]
    best = jnp.asarray(n_rounds - 1) if problem.valid is None else n_rounds - 1 - state.since_best
    history = History(
        _losses_after(rounds, mean_loss(problem, state)), _valid_metrics(problem, rounds, n_rounds), best
    )
    if problem.spec.n_iter_no_change is None:
        return rounds, history
    kept = (jnp.arange(n_rounds, dtype=best.dtype) <= best)[:, None, None]
    return dataclasses.replace(rounds, leaf_value=jnp.where(kept, rounds.leaf_value, 0.0)), history


def cut_after_best(problem: Problem, rounds: Round, final: Any, to_beat: Any) -> tuple[Round, History]:
    """Drop the rounds after the best if early stopping was asked for, and those that led out of the finite."""
    losses = _losses_after(rounds, final)
    finite = np.isfinite(losses)
    n_rounds = len(losses) if finite.all() else int(np.argmin(finite))
    if n_rounds < len(losses):
        warn(
            f"the training loss was no longer finite after round {n_rounds + 1}: the model holds the rounds "
            "before; lower learning_rate, raise reg_lambda or set max_delta_step",
            RuntimeWarning,
        )
    metric = _valid_metrics(problem, rounds, n_rounds)
    best = n_rounds - 1
    if problem.valid is not None and n_rounds:
        if np.isnan(metric).all():
            raise ValueError("metric must return a number, got NaN in every round")
        if np.isnan(metric).any():
            warn(f"metric is NaN, first in round {np.argmax(np.isnan(metric))}")
        signed = -metric if problem.maximize else metric
        best = int(np.nanargmin(signed)) if np.nanmin(signed) < to_beat else -1
    n_kept = n_rounds if problem.spec.n_iter_no_change is None else best + 1
    kept = jax.tree.map(lambda array: array[:n_kept], rounds)
    return kept, History(losses[:n_rounds], metric, best)


def _losses_after(rounds: Round, final: Any) -> Any:
    """Shift the losses before each round to those after it."""
    append = jnp.append if is_traced(rounds, final) else np.append
    return append(rounds.train_loss, final)[1:]


def _valid_metrics(problem: Problem, rounds: Round, n_rounds: int) -> Any:
    """Return NaN without validation rows: in the compiled rounds it would alarm `jax_debug_nans`."""
    if problem.valid is None:
        return np.full(n_rounds, np.nan, rounds.train_loss.dtype)
    return rounds.valid_metric[:n_rounds]
