"""Losses of whole distributions: the score of a row gives the parameters of that of its target."""

from jboost.distributions.continuous import (
    beta,
    gamma,
    inverse_gaussian,
    laplace,
    logistic,
    loglogistic,
    lognormal,
    normal,
    weibull,
)
from jboost.distributions.counts import negative_binomial, poisson
from jboost.distributions.distribution import Distribution
from jboost.distributions.predictive import Predictive
from jboost.distributions.student import student_t

__all__ = [
    "Distribution",
    "Predictive",
    "beta",
    "gamma",
    "inverse_gaussian",
    "laplace",
    "logistic",
    "loglogistic",
    "lognormal",
    "negative_binomial",
    "normal",
    "poisson",
    "student_t",
    "weibull",
]
