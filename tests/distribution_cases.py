"""Distributions of jboost beside those of scipy, at scores that are far apart."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from jboost import distributions as d


class Case(NamedTuple):
    """A distribution, scores of its rows, and the same of scipy, whose parameters are arrays."""

    distribution: d.Distribution
    score: np.ndarray
    scipy: Any


RNG = np.random.default_rng(0)
N = 40
LOC, LOG_SCALE = 3 * RNG.normal(size=N), RNG.uniform(-2, 2, N)
TWO = np.stack([LOC, LOG_SCALE], axis=1)
SMALL = np.stack([LOC / 3, LOG_SCALE / 4 - 1], axis=1)  # of logarithms, whose variance exists
SCALE, MEAN, SHAPE = np.exp(LOG_SCALE), np.exp(SMALL[:, 0]), np.exp(LOG_SCALE)
THREE = np.column_stack([TWO, RNG.uniform(0, 3, N)])
COUNT = np.stack([LOC / 2, LOG_SCALE], axis=1)
RATE = np.exp(COUNT[:, 0])
A, B = np.exp(LOG_SCALE + 1) / (1 + np.exp(-LOC / 3)), np.exp(LOG_SCALE + 1) / (1 + np.exp(LOC / 3))

CONTINUOUS = {
    "normal": Case(d.normal, TWO, stats.norm(LOC, SCALE)),
    "laplace": Case(d.laplace, TWO, stats.laplace(LOC, SCALE)),
    "logistic": Case(d.logistic, TWO, stats.logistic(LOC, SCALE)),
    "student_t(5)": Case(d.student_t(5.0), TWO, stats.t(5.0, LOC, SCALE)),
    "student_t": Case(d.student_t(), THREE, stats.t(1 + np.exp(THREE[:, 2]), LOC, SCALE)),
    "lognormal": Case(d.lognormal, SMALL, stats.lognorm(np.exp(SMALL[:, 1]), scale=MEAN)),
    "weibull": Case(d.weibull, SMALL, stats.weibull_min(np.exp(-SMALL[:, 1]), scale=MEAN)),
    "loglogistic": Case(d.loglogistic, SMALL, stats.fisk(np.exp(-SMALL[:, 1]), scale=MEAN)),
    "gamma": Case(
        d.gamma, np.stack([SMALL[:, 0], LOG_SCALE], axis=1), stats.gamma(SHAPE, scale=MEAN / SHAPE)
    ),
    "inverse_gaussian": Case(
        d.inverse_gaussian,
        np.stack([SMALL[:, 0], LOG_SCALE], axis=1),
        stats.invgauss(MEAN / SCALE, scale=SCALE),
    ),
    "beta": Case(d.beta, np.stack([LOC / 3, LOG_SCALE + 1], axis=1), stats.beta(A, B)),
}
COUNTS = {
    "poisson": Case(d.poisson, COUNT[:, :1], stats.poisson(RATE)),
    "negative_binomial": Case(d.negative_binomial, COUNT, stats.nbinom(SHAPE, SHAPE / (SHAPE + RATE))),
}
CASES = CONTINUOUS | COUNTS
