"""Metrics of predicted probabilities: [n] of y = 1, or [n k] of each class, where y [n] holds numbers from 0.

Two of them, logloss and brier, also take [n k] beside y [n k] of 0 and 1, for labels of which several may hold.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import xlog1py, xlogy

from jboost._fixed_point import mean
from jboost._objective.domains import check_probability, check_real
from jboost._objective.links import sigmoid, sigmoid_of_double, softmax_of_scores
from jboost.metrics.metric import Metric
from jboost.metrics.targets import check_binary_or_label, elementwise, without_column


def _inside(probability):
    """Keep probabilities off 0 and 1, as scikit-learn does: a wrong certainty costs much, but not everything."""
    least = jnp.finfo(probability.dtype).eps
    return jnp.clip(probability, least, 1 - least)


# - y log p - (1 - y) log(1 - p)
@elementwise
def _logloss(probability, y, weight):
    p = _inside(probability)
    return mean(-xlogy(y, p) - xlog1py(1 - y, -p), weight)


@elementwise
def _logloss_of_log_odds(score, y, weight):
    return mean(jax.nn.softplus(score) - y * score, weight)


def _logloss_of_half_log_odds(score, y, weight):
    return _logloss_of_log_odds(2 * score, y, weight)


logloss = Metric(
    _logloss,
    check_target=check_probability,
    name="logloss",
    pads=True,
    of="prediction",
    from_score={sigmoid: _logloss_of_log_odds, sigmoid_of_double: _logloss_of_half_log_odds},
)


def _is_class(k, y):
    """Say of each of k classes whether it is that of the row."""
    return jnp.arange(k, dtype=float)[None, :] == jnp.asarray(y, float)[:, None]


# - log p_y
def _multi_logloss(probability, y, weight):
    _check_classes("multi_logloss", probability, y)
    of_y = jnp.sum(jnp.where(_is_class(probability.shape[1], y), probability, 0), axis=1)
    return mean(-jnp.log(_inside(of_y)), weight)


def _multi_logloss_of_scores(score, y, weight):
    _check_classes("multi_logloss", score, y)
    of_y = jnp.sum(jnp.where(_is_class(score.shape[1], y), score, 0), axis=1)
    return mean(jax.nn.logsumexp(score, axis=1) - of_y, weight)


multi_logloss = Metric(
    _multi_logloss,
    check_target=check_real,
    name="multi_logloss",
    pads=True,
    of="prediction",
    from_score={softmax_of_scores: _multi_logloss_of_scores},
)


def _check_classes(name, probability, y):
    if jnp.ndim(probability) != 2 or jnp.ndim(y) != 1:
        raise ValueError(
            f"{name} takes predictions [n k] of k classes and a class number y [n], got shapes "
            f"{jnp.shape(probability)} and {jnp.shape(y)}"
        )


# Share of rows whose most probable class is y: p > 1/2 for two classes, the first of the greatest for more
def _is_right(probability, y, least=0.5):
    y = jnp.asarray(without_column(y, jnp.zeros(0)), float)
    probability = without_column(probability, y)
    if y.ndim != 1:
        raise ValueError(f"accuracy and error take one label for each row, got y of shape {jnp.shape(y)}")
    predicted = probability > least if probability.ndim == 1 else jnp.argmax(probability, axis=1)
    return predicted.astype(float) == y


def _accuracy(probability, y, weight):
    return mean(_is_right(probability, y).astype(probability.dtype), weight)


def _accuracy_of_scores(score, y, weight):  # log odds, half of them, or of a softmax
    return mean(_is_right(score, y, 0.0).astype(score.dtype), weight)


accuracy = Metric(
    _accuracy,
    maximize=True,
    check_target=check_real,
    name="accuracy",
    pads=True,
    of="prediction",
    from_score=dict.fromkeys((sigmoid, sigmoid_of_double, softmax_of_scores), _accuracy_of_scores),
)


# Share of the others
def _error(probability, y, weight):
    return mean((~_is_right(probability, y)).astype(probability.dtype), weight)


def _error_of_scores(score, y, weight):
    return mean((~_is_right(score, y, 0.0)).astype(score.dtype), weight)


error = Metric(
    _error,
    check_target=check_real,
    name="error",
    pads=True,
    of="prediction",
    from_score=dict.fromkeys((sigmoid, sigmoid_of_double, softmax_of_scores), _error_of_scores),
)


# (p - y)^2 for two classes, the sum over classes of (p_j - [j = y])^2 for more: Brier (1950)
def _brier(probability, y, weight):
    probability = without_column(probability, y)
    if jnp.ndim(probability) == 2 and jnp.ndim(y) == 1:
        squares = jnp.square(probability - _is_class(probability.shape[1], y).astype(probability.dtype))
        return mean(jnp.sum(squares, axis=1), weight)
    return _brier_of_each(probability, y, weight)


@elementwise
def _brier_of_each(probability, y, weight):
    return mean(jnp.square(probability - y), weight)


brier = Metric(_brier, check_target=check_binary_or_label, name="brier", pads=True, of="prediction")
