"""What a round learns of the validation rows: their metric, and how long ago the best one was.

A problem here is whatever has `valid`, `metric`, `loss`, `hyper` and `spec`, as `Problem` does.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._fixed_point import mean
from jboost.boosting.best_round import has_had_enough, improves, signed


def is_finished(problem: Any, since_best: Array) -> Bool[Array, ""]:
    """Say whether early stopping has had enough."""
    patience = None if problem.valid is None else problem.spec.n_iter_no_change
    return has_had_enough(since_best, patience)


def metric_of(problem: Any, score: Float[Array, "m k"]) -> Float[Array, ""]:
    """Take the metric of the validation rows, by default their mean loss."""
    rows, loss = problem.valid, problem.loss
    shaped = score[:, 0] if loss.n_outputs is None else score
    if problem.metric is None:
        return jnp.asarray(mean(loss.value(shaped, rows), rows.weight), score.dtype)
    return jnp.asarray(problem.metric(shaped, rows.y, rows.weight), score.dtype)


def remembered(problem: Any, metric: Array, since_best: Array, best_metric: Array) -> tuple[Array, Array]:
    """Keep count of the rounds since the best, and of its metric; once finished, that no longer changes."""
    loss = signed(metric, problem.metric)
    better = improves(loss, best_metric, problem.hyper.tol) & ~is_finished(problem, since_best)
    best = jnp.where(better, loss, best_metric)
    return jnp.where(better, 0, since_best + 1), jax.lax.stop_gradient(best)
