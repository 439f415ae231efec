"""Losses of whole distributions: the score of a row gives the parameters of that of its target."""

from jboost.distributions.classes import categorical, ordinal
from jboost.distributions.composed import censored, hurdle, mixture, zero_inflated
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
from jboost.distributions.own import from_log_prob, from_object
from jboost.distributions.predictive import Predictive
from jboost.distributions.several import multivariate_normal
from jboost.distributions.student import student_t

__all__ = [
    "Distribution", "Predictive", "beta", "categorical", "censored", "from_log_prob", "from_object", "gamma", "hurdle",
    "inverse_gaussian", "laplace", "logistic", "loglogistic", "lognormal", "mixture", "multivariate_normal",
    "negative_binomial", "normal", "ordinal", "poisson", "student_t", "weibull", "zero_inflated",
]  # fmt: skip
