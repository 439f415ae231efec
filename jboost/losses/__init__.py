"""Losses of one row, from whose formula JAX derives everything else.

Each is ``loss(score, y)`` for ONE row without weight; score is the raw score before the inverse link. Those that sum
over outputs serve y [n] with a scalar score and y [n k] with a vector.
"""

from jboost._objective.batch import BatchLoss
from jboost._objective.group import GroupLoss
from jboost._objective.leaf_rules import Newton, Quantile
from jboost._objective.links import INVERSE_LINKS as INVERSE_LINKS
from jboost._objective.links import exp as exp
from jboost._objective.links import sigmoid as sigmoid
from jboost._objective.links import softmax_of_scores as softmax_of_scores
from jboost._objective.loss import Loss
from jboost.losses.standard import (
    absolute_error,
    exponential,
    gamma,
    huber,
    logistic,
    poisson,
    pseudo_huber,
    quantile,
    softmax,
    squared_error,
    tweedie,
)

__all__ = [
    "BatchLoss", "GroupLoss", "Loss", "Newton", "Quantile",
    "absolute_error", "exponential", "gamma", "huber", "logistic", "poisson", "pseudo_huber", "quantile",
    "softmax", "squared_error", "tweedie",
]  # fmt: skip
