"""What is kept of the rounds that ran: up to the best one, and nothing after the loss left the finite."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost._runtime.caller import warn
from jboost._runtime.typing import is_traced, pytree
from jboost.boosting.best_round import follow, signed


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


def silence_after_best(
    problem: Any, final_loss: Any, since_best: Any, rounds: Any, silenced: str = "leaf_value"
) -> tuple[Any, History]:
    """Under a transformation: zero the leaves of the rounds after the best, since none can be dropped.

    `silenced` names what is 0 then.
    """
    n_rounds = rounds.train_loss.shape[0]
    best = jnp.asarray(n_rounds - 1) if problem.valid is None else n_rounds - 1 - since_best
    history = History(losses_after(rounds, final_loss), _valid_metrics(problem, rounds, n_rounds), best)
    if problem.spec.n_iter_no_change is None:
        return rounds, history
    kept, values = jnp.arange(n_rounds, dtype=best.dtype) <= best, getattr(rounds, silenced)
    values = jnp.where(kept.reshape(-1, *[1] * (values.ndim - 1)), values, 0.0)
    return dataclasses.replace(rounds, **{silenced: values}), history


def cut_after_best(problem: Any, rounds: Any, final: Any, to_beat: Any) -> tuple[Any, History]:
    """Drop the rounds after the best if early stopping was asked for, and those that led out of the finite."""
    losses = losses_after(rounds, final)
    finite = np.isfinite(losses)
    n_rounds = len(losses) if finite.all() else int(np.argmin(finite))
    if n_rounds < len(losses):
        warn(
            f"the training loss was no longer finite after round {n_rounds + 1}: the model holds the rounds "
            "before; lower learning_rate, raise reg_lambda or set max_delta_step, and look at a leaf rule, "
            "a curvature or a sampler of your own",
            RuntimeWarning,
        )
    history = history_of(problem, rounds, losses[:n_rounds], to_beat)
    if problem.valid is not None and n_rounds:
        is_nan = np.isnan(history.valid_metric)
        if is_nan.all():
            raise ValueError("metric must return a number, got NaN in every round")
        if is_nan.any():
            warn(f"metric is NaN, first in round {np.argmax(is_nan)}")
    n_kept = n_rounds if problem.spec.n_iter_no_change is None else history.best_round + 1
    return jax.tree.map(lambda array: array[:n_kept], rounds), history


def history_of(problem: Any, rounds: Any, losses: np.ndarray, to_beat: Any) -> History:
    """Say what happened in the rounds that these training losses follow, given the metric of an initial model."""
    metric, best = _valid_metrics(problem, rounds, len(losses)), len(losses) - 1
    if problem.valid is not None:
        loss = signed(metric, problem.metric)
        _, best = follow(loss, to_beat, problem.hyper.tol, problem.spec.n_iter_no_change)
    return History(losses, metric, best)


def losses_after(rounds: Any, final: Any) -> Any:
    """Shift the losses before each round to those after it."""
    append = jnp.append if is_traced(rounds, final) else np.append
    return append(rounds.train_loss, final)[1:]


def _valid_metrics(problem: Any, rounds: Any, n_rounds: int) -> Any:
    """Return NaN without validation rows: in the compiled rounds it would alarm `jax_debug_nans`."""
    if problem.valid is None:
        return np.full(n_rounds, np.nan, rounds.train_loss.dtype)
    return rounds.valid_metric[:n_rounds]
