"""Losses of one row, from whose formula JAX derives everything else.

Each is ``loss(score, y)`` for ONE row without weight; score is the raw score before the inverse link. Those that sum
over outputs serve y [n] with a scalar score and y [n k] with a vector.

=============================================================  ====================================================
``squared_error``, ``absolute_error``, ``quantile(level)``,    numbers
``expectile(level)``, ``linex(rate)``
``huber``, ``pseudo_huber``, ``general_robust(shape, scale)``  numbers with outliers
``asymmetric_huber(asymmetry, delta)``
``general_robust_nll(shape, scale)``                           the same, to learn shape and scale by
``poisson``, ``gamma``, ``tweedie(power)``                     counts and amounts; scores are logarithms
``logistic``, ``exponential``, ``focal(gamma)``                0 or 1
``softmax(k)``, ``softmax_focal(k, gamma)``                    class numbers
``class_balanced(loss, counts, beta)``                         a loss of classes, weighted by class
``with_link(loss, monotone_link(log_slopes, low, high))``      a loss of a rising function of the score
=============================================================  ====================================================

The numbers in brackets are operands of a compiled fit: others compile nothing, and `jax.vmap` and `jax.grad` go through
them. Each may be traced, and is then not checked.
"""

from jboost._objective.batch import BatchLoss
from jboost._objective.group import GroupLoss
from jboost._objective.leaf_rules import Newton, Quantile
from jboost._objective.links import INVERSE_LINKS as INVERSE_LINKS
from jboost._objective.links import exp as exp
from jboost._objective.links import sigmoid as sigmoid
from jboost._objective.links import softmax_of_scores as softmax_of_scores
from jboost._objective.loss import Loss
from jboost.losses.asymmetric import asymmetric_huber, expectile, linex
from jboost.losses.imbalance import class_balanced, focal, softmax_focal
from jboost.losses.monotone import monotone_link, with_link
from jboost.losses.robust import general_robust, general_robust_nll
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
    "absolute_error", "asymmetric_huber", "class_balanced", "expectile", "exponential", "focal", "gamma",
    "general_robust", "general_robust_nll", "huber", "linex", "logistic", "monotone_link", "poisson", "pseudo_huber",
    "quantile", "softmax", "softmax_focal", "squared_error", "tweedie", "with_link",
]  # fmt: skip
