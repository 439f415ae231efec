"""Metrics of the order of predictions, with ties: only which is larger counts.

They take [n] beside y [n] of 0 and 1; [n k] beside y [n] of class numbers, each class against the rest; or [n k] beside
y [n k] of 0 and 1. Of several the mean is taken, each weighing the same. Scores of a known link say more than
predictions, among which large ones may be equal by rounding.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jboost._fixed_point.quantile import fixed_point
from jboost._objective.links import exp, sigmoid, sigmoid_of_double, softmax_of_scores
from jboost.metrics.metric import Metric
from jboost.metrics.targets import EachClass, without_column

_INCREASING = (sigmoid, sigmoid_of_double, exp)


def _through(upto, last):
    """Carry what is reached at the last row of a tie back to all rows of the tie."""
    return jax.lax.cummin(jnp.where(last, upto, upto[-1]), reverse=True)


def _starts_of_ties(score):
    return jnp.concatenate([jnp.ones(1, bool), score[1:] != score[:-1]])


# P(score of a positive row > score of a negative row), a tie counting one half
def _roc_auc_of_one(score, positive, weight):
    """Sum each positive's share of the negatives below it and half of those beside it; the sums are exact."""
    order = jnp.argsort(score)
    score, positive = score[order], positive[order]
    weight = jnp.asarray(weight, score.dtype)[order]
    weight_positive, weight_negative = jnp.where(positive, weight, 0), jnp.where(positive, 0, weight)
    mass = fixed_point(weight_negative)
    upto = jnp.cumsum(mass)
    first = _starts_of_ties(score)
    last = jnp.concatenate([first[1:], jnp.ones(1, bool)])
    below = jax.lax.cummax(jnp.where(first, upto - mass, 0))
    through = _through(upto, last)
    share = (below.astype(score.dtype) + through.astype(score.dtype)) / (2 * upto[-1].astype(score.dtype))
    return jnp.sum(weight_positive * share) / jnp.sum(weight_positive)


# sum over thresholds of (recall - recall before) * precision, a tie being one threshold
def _average_precision_of_one(score, positive, weight):
    order = jnp.argsort(-score)
    score, positive = score[order], positive[order]
    weight = jnp.asarray(weight, score.dtype)[order]
    mass = fixed_point(weight)
    first = _starts_of_ties(score)
    last = jnp.concatenate([first[1:], jnp.ones(1, bool)])
    found = _through(jnp.cumsum(jnp.where(positive, mass, 0)), last).astype(score.dtype)
    taken = _through(jnp.cumsum(mass), last).astype(score.dtype)
    weight_positive = jnp.where(positive, weight, 0)
    precision = found / jnp.where(taken > 0, taken, 1)
    return jnp.sum(weight_positive * precision) / jnp.sum(weight_positive)


def _mean_over_classes(of_one, score, y, weight):
    score, y = without_column(score, y), without_column(y, score)
    if jnp.ndim(score) == 1 and jnp.ndim(y) == 1:
        return of_one(score, y == 1, weight)
    if jnp.ndim(y) == 2 and jnp.shape(score) == jnp.shape(y):
        return jnp.mean(jax.lax.map(lambda one: of_one(*one, weight), (score.T, y.T == 1)))
    if jnp.ndim(score) != 2 or jnp.ndim(y) != 1:
        raise ValueError(
            "a metric of ranks takes [n] predictions, or [n k] beside y [n] or [n k], got shapes "
            f"{jnp.shape(score)} and {jnp.shape(y)}"
        )
    label = jnp.asarray(y, float)
    if score.shape[1] == 2:
        return of_one(score[:, 1], label == 1, weight)
    classes = jnp.arange(score.shape[1], dtype=float)
    return jnp.mean(jax.lax.map(lambda one: of_one(one[0], label == one[1], weight), (score.T, classes)))


def _log_odds_of_each(score):
    """Return log p_j - log(1 - p_j) [n k] for the softmax p: the score of a class less that of all others together."""
    classes = jnp.arange(score.shape[1])

    def of_one(j):
        others = jnp.where((classes == j)[None], -jnp.inf, score)
        return score[:, j] - jax.nn.logsumexp(others, axis=1)

    return jax.lax.map(of_one, classes).T


def _roc_auc(score, y, weight):
    return _mean_over_classes(_roc_auc_of_one, score, y, weight)


def _roc_auc_of_softmax(score, y, weight):
    return _roc_auc(_log_odds_of_each(score), y, weight)


roc_auc = Metric(
    _roc_auc,
    maximize=True,
    check_target=EachClass(),
    name="roc_auc",
    pads=True,
    of="prediction",
    from_score={**dict.fromkeys(_INCREASING, _roc_auc), softmax_of_scores: _roc_auc_of_softmax},
)


def _average_precision(score, y, weight):
    return _mean_over_classes(_average_precision_of_one, score, y, weight)


def _average_precision_of_softmax(score, y, weight):
    return _average_precision(_log_odds_of_each(score), y, weight)


average_precision = Metric(
    _average_precision,
    maximize=True,
    check_target=EachClass(),
    name="average_precision",
    pads=True,
    of="prediction",
    from_score={
        **dict.fromkeys(_INCREASING, _average_precision),
        softmax_of_scores: _average_precision_of_softmax,
    },
)
