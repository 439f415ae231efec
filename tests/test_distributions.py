"""Distributions against scipy, their Fisher matrices and scores against integrals, and what fits make of them."""

from __future__ import annotations

import functools
import pickle
from dataclasses import replace
from decimal import Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from distribution_cases import CASES, CONTINUOUS, COUNTS, N
from numpy.testing import assert_allclose
from scipy import stats
from scipy.integrate import quad

import jboost
from jboost import Hyper, JBoostDistribution, Spec
from jboost import distributions as d
from jboost._objective.loss import as_loss
from tests.of_rows import best_constant

RNG = np.random.default_rng(1)
LEVELS = np.array([0.05, 0.5, 0.95])
FEW = 3  # rows that are integrated over
SPEC = Spec(n_estimators=12, max_depth=2)
solve = jax.jit(best_constant)  # the base score of a fit, without what else a fit looks at
Y = {name: case.scipy.ppf(RNG.uniform(0.02, 0.98, N)) for name, case in CASES.items()}
NODE, NODE_WEIGHT = np.polynomial.legendre.leggauss(400)
NODE, NODE_WEIGHT = (NODE + 1) / 2, NODE_WEIGHT / 2
LEVEL, LEVEL_WEIGHT = NODE**2 * (3 - 2 * NODE), 6 * NODE * (1 - NODE) * NODE_WEIGHT  # dense at both ends


ALIKE = ("student_t(5)",)  # the formulas of student_t, for a number that is given


def names(cases, slow=ALIKE):
    """Give the names of distributions as parameters of a test."""
    return [pytest.param(name, marks=pytest.mark.slow) if name in slow else name for name in cases]


@pytest.fixture(scope="module")
def told():
    """Give a function of a name: all that the distribution tells, in float64, by a program of its own."""
    return functools.cache(_told)


def _told(name):
    distribution, score, known = CASES[name]
    nodes = known.ppf(LEVEL[:, None]) if name in CONTINUOUS else None
    if nodes is not None and name == "beta":
        nodes = nodes.clip(1e-300, 1 - 1e-16)
    with jax.enable_x64(True):
        tell = jax.jit(functools.partial(_tell, distribution))
        return jax.tree.map(np.asarray, tell(score, Y[name], nodes))


def _tell(distribution, score, y, nodes):
    known = distribution(score)
    found = {
        "log_prob": known.log_prob(y),
        "cdf": known.cdf(y),
        "mean": known.mean(),
        "variance": known.variance(),
        "quantile": known.quantile(LEVELS),
        "fisher": known.fisher(),
    }
    if distribution.log_sf is not None:
        found["log_sf"] = jax.vmap(distribution.log_sf)(score, y)
    if nodes is not None:
        g = jax.vmap(jax.vmap(jax.grad(distribution.log_prob)), (None, 0))(score, nodes)
        found["mean_square"] = jnp.einsum("m,mnj,mnl->njl", jnp.asarray(LEVEL_WEIGHT), g, g)
    return found


@pytest.mark.parametrize("name", names(CASES))
def test_what_scipy_knows(name, told):
    known, ours, y = CASES[name].scipy, told(name), Y[name]
    log_prob = known.logpmf if CASES[name].distribution.is_discrete else known.logpdf
    expected = {"log_prob": log_prob(y), "cdf": known.cdf(y), "mean": known.mean(), "variance": known.var()}
    expected["quantile"] = known.ppf(LEVELS[:, None]).T
    for what, value in expected.items():
        value = (
            np.where(np.isnan(value), np.inf, value) if what == "variance" else value
        )  # of t with df below 2
        assert_allclose(ours[what], value, rtol=1e-9, atol=1e-11, err_msg=what)
    if "log_sf" in ours:
        assert_allclose(ours["log_sf"], known.logsf(y), rtol=1e-9, atol=1e-11)


# Integrals take a while to compile: those over quantiles are that of inverse_gaussian, over counts that below.
@pytest.mark.parametrize("name", names(CASES, slow=(*ALIKE, "beta", "negative_binomial")))
def test_crps_against_integrals(name):
    case = CASES[name]
    with jax.enable_x64(True):
        found = jax.jit(lambda score, y: case.distribution(score).crps(y))(case.score[:FEW], Y[name][:FEW])
    for i in range(FEW):
        parameters = [np.broadcast_to(one, N)[i] for one in case.scipy.args]
        one = case.scipy.dist(
            *parameters, **{key: np.broadcast_to(v, N)[i] for key, v in case.scipy.kwds.items()}
        )
        y = Y[name][i]
        if case.distribution.is_discrete:
            x = np.arange(20_000)
            expected = np.square(one.cdf(x) - (x >= y)).sum()
        else:
            low, far, high = (float(one.ppf(q)) for q in (1e-9, 0.999, 1 - 1e-9))
            pieces = [(one.cdf, low, y), (one.sf, y, far), (one.sf, far, high)]
            expected = sum(quad(lambda t, f=f: f(t) ** 2, *ends, limit=200)[0] for f, *ends in pieces)
        assert_allclose(found[i], expected, rtol=1e-6)


def test_the_crps_of_counts_without_a_formula_is_the_sum():
    """Of a geometric distribution of one's own, also of a target that lies far above it."""

    def log_sf(score, y):
        return -(y + 1) * jnp.exp(score[0])  # the logarithm of q is -exp(score)

    geometric = d.Distribution(
        "geometric",
        1,
        log_prob=lambda score, y: -y * jnp.exp(score[0]) + jnp.log(-jnp.expm1(-jnp.exp(score[0]))),
        parameters=lambda score: {"log_q": -jnp.exp(score[0])},
        cdf=lambda score, y: jnp.where(y < 0, 0, -jnp.expm1(log_sf(score, y))),
        quantile=lambda score, level: jnp.ceil(-jnp.log1p(-level) / jnp.exp(score[0])) - 1,
        is_discrete=True,
    )
    score, y = np.log([2.0, 0.3, 0.15, 0.3]), np.array([1.0, 0.0, 9.0, 60.0])
    found = geometric(score).crps(y)
    for i, rate in enumerate(np.exp(score)):
        x = np.arange(1000)
        assert_allclose(found[i], np.square(-np.expm1(-(x + 1) * rate) - (x >= y[i])).sum(), rtol=1e-6)


def test_the_crps_of_large_poisson_counts_is_the_sum():
    """Of NumPy, over all counts with a probability of their own, and to the target where that lies beyond."""
    rate, far = np.array([3e2, 1e4, 1e6, 4e6]), np.array([0.0, 3.0, -2.0, 30.0])
    y = np.round(rate + far * np.sqrt(rate))
    found = d.poisson(np.log(rate)[:, None]).crps(y)
    for i, mean in enumerate(rate):
        width = (abs(far[i]) + 12) * np.sqrt(mean)
        x = np.arange(max(np.floor(mean - width), 0), mean + width)
        assert_allclose(found[i], np.square(stats.poisson(mean).cdf(x) - (x >= y[i])).sum(), rtol=1e-6)


def test_padding_alarms_no_one():
    """Of three rows to the number that programs have; a target of 0 lies outside of the domain."""
    with jax.debug_nans(True):
        found = d.gamma(np.zeros((3, 2))).log_prob(np.array([1.0, 2.0, 3.0]))
    assert_allclose(found, -np.array([1.0, 2.0, 3.0]), rtol=1e-12)


@pytest.mark.parametrize("name", names(CONTINUOUS))
def test_fisher_is_the_mean_square_of_the_derivative(name, told):
    ours, exact = told(name)["fisher"], told(name)["mean_square"]
    if name == "student_t":  # a bound, by the degrees of freedom
        assert (ours[:, 2, 2] >= exact[:, 2, 2]).all()
        ours = np.where(np.arange(9).reshape(3, 3) == 8, exact, ours)
    if name == "beta":  # the nodes next to 1 have no digits where much lies there
        whole = (CASES["beta"].scipy.args[0] > 0.7) & (CASES["beta"].scipy.args[1] > 0.7)
        ours, exact = ours[whole], exact[whole]
    assert_allclose(ours, exact, rtol=1e-3, atol=1e-6)


def test_fisher_of_counts(told):
    assert_allclose(told("poisson")["fisher"][:, 0, 0], COUNTS["poisson"].scipy.mean(), rtol=1e-9)
    mean, r = 5.0, np.array([0.3, 2.0, 1e4])
    y = np.arange(4000.0)
    probability = stats.nbinom.pmf(y[:, None], r, r / (r + mean))
    score = np.stack([np.full(3, np.log(mean)), np.log(r)], axis=1)
    with jax.enable_x64(True):
        g = jax.jit(jax.vmap(jax.vmap(jax.grad(d.negative_binomial.log_prob)), (None, 0)))(
            score, np.broadcast_to(y[:, None], (4000, 3))
        )
        ours = np.asarray(d.negative_binomial(score).fisher())
    exact = np.einsum("ym,ymj,yml->mjl", probability, g, g)
    assert_allclose(ours[:, 0, 0], exact[:, 0, 0], rtol=1e-6)
    assert (ours[:, 1, 1] >= exact[:, 1, 1]).all()  # a bound
    assert_allclose(ours[2, 1, 1], exact[2, 1, 1], rtol=1e-2)  # which is met


def test_float32_keeps_its_digits_and_its_derivatives():
    """Also where parameters are extreme: shapes of e^12, where logarithms of the gamma function are 1e6."""
    cases = {name: case for name, case in CASES.items() if name != "beta"}

    @jax.jit
    def tell(scores, y):
        log_prob = {name: jax.vmap(case.distribution.log_prob) for name, case in cases.items()}
        slope = {name: jax.vmap(jax.grad(case.distribution.log_prob)) for name, case in cases.items()}
        return {
            name: (log_prob[name](scores[name], y[name]), slope[name](scores[name], y[name]))
            for name in cases
        }

    y = {name: Y[name].astype(np.float32) for name in cases}
    scores = {name: case.score.astype(np.float32) for name, case in cases.items()}
    for name, (log_prob, slope) in tell(scores, y).items():
        of = cases[name].scipy.logpmf if cases[name].distribution.is_discrete else cases[name].scipy.logpdf
        assert_allclose(log_prob, of(Y[name]), rtol=5e-6, atol=5e-6, err_msg=name)
        assert np.isfinite(slope).all(), name
    far = {name: np.sign(score) * 12 for name, score in scores.items()}
    for name, (log_prob, slope) in tell(far, y).items():
        assert not np.isnan(log_prob).any(), name
        assert np.isfinite(slope[np.isfinite(log_prob)]).all(), name
    large = np.array(
        [[0.0, 12.0]] * N, np.float32
    )  # gamma and negative binomial: nearly normal, nearly Poisson
    near = 1 + 0.002 * np.linspace(-2, 2, N)
    found = tell(
        scores | {"gamma": large, "negative_binomial": large}, y | {"gamma": near.astype(np.float32)}
    )
    shape = np.exp(12.0)
    assert_allclose(found["gamma"][0], stats.gamma.logpdf(near, shape, scale=1 / shape), rtol=1e-3, atol=1e-3)
    expected = stats.poisson.logpmf(Y["negative_binomial"], 1.0)
    assert_allclose(found["negative_binomial"][0], expected, rtol=2e-2)


# --- Composed of others ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_mixtures_zeros_and_bounds():
    score = np.array([[0.3, -0.2, -1.0, 0.1, 2.0, -0.5], [0.0, 1.0, 0.0, 0.0, 0.5, 1.0]])
    weight = np.exp(score[:, :2]) / np.exp(score[:, :2]).sum(axis=1, keepdims=True)
    parts: Any = stats.norm(score[:, 2::2], np.exp(score[:, 3::2]))
    y = np.array([0.4, -1.0])
    two: Any = d.mixture(d.normal, 2)(score)
    assert_allclose(two.log_prob(y), np.log((weight * parts.pdf(y[:, None])).sum(axis=1)), rtol=1e-12)
    assert_allclose(two.cdf(two.quantile(0.3)), 0.3, rtol=1e-12)
    assert_allclose(two.mean(), (weight * parts.mean()).sum(axis=1), rtol=1e-12)
    square = (weight * (parts.var() + parts.mean() ** 2)).sum(axis=1)
    assert_allclose(two.variance(), square - two.mean() ** 2, rtol=1e-12)
    count, zero = np.array([0.0, 3.0]), 1 / (1 + np.exp(-0.7))
    base: Any = stats.poisson(2.0)
    row = np.array([[0.7, np.log(2.0)]] * 2)
    inflated, hurdle = d.zero_inflated(d.poisson)(row), d.hurdle(d.poisson)(row)
    expected = zero * (count == 0) + (1 - zero) * base.pmf(count)
    assert_allclose(np.exp(inflated.log_prob(count)), expected, rtol=1e-12)
    expected = np.where(count == 0, zero, (1 - zero) * base.pmf(count) / base.sf(0))
    assert_allclose(np.exp(hurdle.log_prob(count)), expected, rtol=1e-12)
    many = np.arange(60.0)
    for one in (inflated, hurdle):
        of_many = one.distribution(np.repeat(row[:1], 60, axis=0))
        p = np.exp(of_many.log_prob(many))
        moments = [p.sum(), p @ many, p @ many**2 - (p @ many) ** 2]
        assert_allclose(moments, [1, one.mean()[0], one.variance()[0]])
        assert_allclose(of_many.cdf(many), np.cumsum(p), rtol=1e-10)
        assert one.quantile(0.9)[0] == np.searchsorted(np.cumsum(p), 0.9)


def test_a_censored_target_has_the_likelihood_and_the_constant_of_scipy():
    time, event = stats.weibull_min(1.7, scale=3.0).rvs(300, random_state=0), RNG.random(300) < 0.6
    y = {"time": time, "event": event * 1.0}
    model, _ = jboost.fit(
        d.censored(d.weibull).loss(), np.zeros((300, 3)), y, spec=replace(SPEC, n_estimators=0)
    )
    fitted: Any = stats.weibull_min.fit(stats.CensoredData(time[event], right=time[~event]), floc=0)
    shape, _, scale = fitted
    assert_allclose(model.base, [np.log(scale), -np.log(shape)], rtol=1e-3, atol=1e-3)
    known: Any = stats.weibull_min(shape, scale=scale)
    score = np.tile([np.log(scale), -np.log(shape)], (300, 1))
    expected = np.where(event, known.logpdf(time), known.logsf(time))
    assert_allclose(d.censored(d.weibull)(score).log_prob(y), expected, rtol=1e-10)


def test_several_targets():
    score = np.array([[1.0, -2.0, 0.5, 0.2, -0.3, 0.1, 0.4, -0.7, 1.2]])
    y = RNG.normal(size=(400, 3)) @ np.array([[1, 0.5, -1], [0, 1, 0.3], [0, 0, 0.2]]) + [1, 2, 3]
    three = d.multivariate_normal(3)
    known = three(np.repeat(score, 400, axis=0))
    parameters = three(score).parameters()
    normal = stats.multivariate_normal(parameters["loc"][0], parameters["covariance"][0])
    assert_allclose(known.log_prob(y), normal.logpdf(y), rtol=1e-10)
    assert_allclose(known.variance()[0], np.diag(normal.cov), rtol=1e-10)
    drawn = known.sample(0, 50).reshape(-1, 3)
    assert_allclose(np.cov(drawn.T), normal.cov, rtol=0.1, atol=0.05)
    with jax.enable_x64(True):
        of_rows = jax.vmap(jax.hessian(lambda s, y: -three.log_prob(s, y)), (None, 0))
        hessian = np.asarray(jax.jit(lambda s, y: of_rows(s, y).mean(axis=0))(score[0], drawn))
    assert_allclose(three(score).fisher()[0], hessian, rtol=0.1, atol=0.12)
    base = solve(three.loss(), y, np.ones(400))
    fitted = three(np.asarray(base)[None].astype(float)).parameters()
    assert_allclose(fitted["loc"][0], y.mean(axis=0), rtol=1e-4)
    assert_allclose(fitted["covariance"][0], np.cov(y.T, ddof=0), rtol=1e-3, atol=1e-3)


def test_labels():
    score = np.array([[-0.5, 0.3, -1.0]])
    below = 1 / (1 + np.exp(-np.cumsum([-0.5, np.exp(0.3), np.exp(-1.0)])))
    p = np.diff(np.concatenate([[0], below, [1]]))
    four = d.ordinal(4)(np.repeat(score, 4, axis=0))
    y = np.arange(4.0)
    assert_allclose(np.exp(four.log_prob(y)), p, rtol=1e-12)
    assert_allclose(four.cdf(y), np.cumsum(p), rtol=1e-12)
    assert_allclose(four.crps(y), [(np.square(np.cumsum(p) - (y >= one))).sum() for one in y], rtol=1e-10)
    assert four.quantile(0.5)[0] == np.searchsorted(np.cumsum(p), 0.5)
    three = d.categorical(3)(score)
    assert_allclose(three.mean(), np.exp(score) / np.exp(score).sum(), rtol=1e-12)
    assert_allclose(np.exp(three.log_prob(np.ones(1))), three.mean()[:, 1], rtol=1e-12)


# --- From elsewhere -----------------------------------------------------------------------------------------------


def gaussian(score, y):
    return jax.scipy.stats.norm.logpdf(y, score[0], jnp.exp(score[1]))


class Gaussian:
    """What a class of numpyro looks like."""

    def __init__(self, loc, scale):
        self.loc, self.scale, self.mean = loc, scale, loc

    def log_prob(self, y):
        return jax.scipy.stats.norm.logpdf(y, self.loc, self.scale)

    def icdf(self, q):
        return self.loc + self.scale * jax.scipy.special.ndtri(q)

    def cdf(self, y):
        return jax.scipy.special.ndtr((y - self.loc) / self.scale)

    def sample(self, seed):
        return self.loc + self.scale * jax.random.normal(seed)


def of_score(score):
    return Gaussian(score[0], jnp.exp(score[1]))


def test_densities_and_objects_from_elsewhere():
    score, y = np.array([[1.0, 0.5], [-2.0, -1.0]]), np.array([0.3, 0.1])
    known = d.normal(score)
    own, other = d.from_log_prob(gaussian, 2), d.from_object(of_score, 2)
    for one in (own, other):
        assert_allclose(one(score).log_prob(y), known.log_prob(y), rtol=1e-12)
    assert_allclose(other(score).quantile(LEVELS), known.quantile(LEVELS), rtol=1e-12)
    assert_allclose(other(score).crps(y), known.crps(y), rtol=1e-6)
    assert_allclose(other(score).fisher(), known.fisher(), rtol=1e-2, atol=1e-6)  # over its quantiles
    assert other(score).sample(3, 5).shape == (5, 2)
    with pytest.raises(ValueError, match="gaussian has no mean function"):
        own(score).mean()
    with pytest.raises(ValueError, match="variance"):
        other(score).std()
    with pytest.raises(ValueError, match='curvature must be "observed" for gaussian'):
        own.loss(curvature="fisher")
    with pytest.raises(TypeError, match="log_prob"):
        d.from_object(lambda score: score, 1)


# --- Fits ---------------------------------------------------------------------------------------------------------


def heteroscedastic(n=300):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + np.exp(1.5 * X[:, 1]) * rng.normal(size=n)


@pytest.mark.parametrize("curvature", ["observed", pytest.param("fisher", marks=pytest.mark.slow)])
def test_a_normal_with_full_leaves_converges_in_any_units(curvature):
    X, y = heteroscedastic()
    y[:40] *= np.linspace(1e-3, 1e3, 40)  # far outliers, and rows that nearly have no residual
    loss, spec = d.normal.loss(hessian="full", curvature=curvature), replace(SPEC, n_estimators=40)
    falls = []
    for unit in (1e-6, 1.0, 1e6):
        _, history = jboost.fit(loss, X, unit * y, spec=spec, hyper=Hyper(learning_rate=1.0))
        assert (np.diff(history.train_loss) <= 1e-6).all()
        falls.append(history.train_loss[0] - history.train_loss[-1])
    assert min(falls) > 0.5
    assert_allclose(falls, falls[1], rtol=0.05)


@pytest.mark.slow
def test_a_positive_target_is_learned_in_any_units():
    X, y = heteroscedastic()
    y = np.exp(y / 4)
    for one in (d.gamma, d.weibull):
        means = []
        for unit in (1e-6, 1.0, 1e6):
            model, history = jboost.fit(one.loss(), X, unit * y, spec=SPEC)
            means.append(np.asarray(one(jboost.predict(model, X)).mean()) / unit)
            assert (np.diff(history.train_loss) <= 1e-6).all()
        assert_allclose(means[0], means[1], rtol=5e-2)
        assert_allclose(means[2], means[1], rtol=5e-2)


@pytest.mark.parametrize("unit", [1e-15, 1e-6, 1.0, 1e9])
def test_a_laplace_starts_from_median_and_mean_distance(unit):
    y = np.exp(np.random.default_rng(3).normal(size=301)) * unit
    weight = np.random.default_rng(4).integers(0, 4, 301).astype(float)
    counted = np.repeat(y, weight.astype(int))
    centre = np.quantile(counted, 0.5, method="averaged_inverted_cdf")
    base = solve(d.laplace.loss(), y, weight)
    assert_allclose(base, [centre, np.log(np.abs(counted - centre).mean())], rtol=1e-5)


@pytest.mark.parametrize("what", ["cdf", pytest.param("quantile", marks=pytest.mark.slow)])
def test_a_negative_binomial_of_large_size_is_poissons(what):
    """Float32 and float64, on both sides of where the one formula ends."""
    count = np.arange(12.0)
    for x64, tolerance in ((False, 3e-3), (True, 1e-6)):
        with jax.enable_x64(x64):
            for log_size in (2.0, 7.0, 9.0, 14.0, 25.0, 45.0, 80.0):
                score = jnp.asarray(np.tile([np.log(3.0), log_size], (12, 1)))
                found = d.negative_binomial(score)
                size = np.exp(log_size)
                expected = stats.nbinom(size, size / (size + 3)) if log_size < 30 else stats.poisson(3)
                if what == "cdf":
                    assert_allclose(found.cdf(jnp.asarray(count)), expected.cdf(count), atol=tolerance)
                else:
                    assert (np.asarray(found.quantile(0.5)) == expected.ppf(0.5)).all()


def _slope_by_log_size(log_mean: float, log_size: float, y: int) -> float:
    """Return the derivative of a negative binomial log probability, with fifty digits."""
    with localcontext() as context:
        context.prec = 50
        mean, r = Decimal(float(np.float32(log_mean))).exp(), Decimal(float(np.float32(log_size))).exp()
        steps = sum((1 / (r + i) for i in range(y)), Decimal(0))
        return float(r * (steps + (r / (r + mean)).ln() + 1 - (r + y) / (r + mean)))


def test_the_slope_by_a_large_size_has_its_digits():
    """Where a negative binomial is nearly Poisson's, what is left of the slope is no rounding."""
    slope = jax.jit(jax.vmap(jax.grad(d.negative_binomial.log_prob)))
    for log_mean in (-4.6, 0.0, 3.0):
        for log_size in (-5.0, 2.0, 5.0, 10.0, 19.4):
            y = np.array([0, 1, 5, 100])
            ours = slope(np.tile(np.array([log_mean, log_size], np.float32), (4, 1)), y.astype(np.float32))[
                :, 1
            ]
            assert_allclose(ours, [_slope_by_log_size(log_mean, log_size, int(one)) for one in y], rtol=2e-3)


def test_the_slope_by_large_degrees_of_freedom_has_its_digits():
    slope = jax.vmap(jax.grad(d.student_t().log_prob))
    score = np.array([[0.0, 0.0, log_df] for log_df in (2, 8, 12, 19)])
    for z in (-3.0, 0.5, 4.0):
        ours = slope(jnp.asarray(score, jnp.float32), jnp.full(4, z, jnp.float32))[:, 2]
        # of z^4 - 2 z^2 - 1 over 4 df, the first term in 1 / df of the log density
        assert_allclose(ours[2:], -(z**4 - 2 * z**2 - 1) / 4 / np.exp(score[2:, 2]), rtol=3e-4)
        with jax.enable_x64(True):
            assert_allclose(ours[:2], slope(jnp.asarray(score), jnp.full(4, z))[:2, 2], rtol=1e-4)


def test_rare_counts_are_learned_beside_a_size_that_runs_off():
    """Four ones among zeros: the best size is infinite, and the mean is learned as by Poisson's."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 4)), np.zeros(400)
    y[:4] = 1
    spec = Spec(n_estimators=25, max_depth=3)
    _, alone = jboost.fit(d.poisson.loss(), X, y, spec=spec)
    _, history = jboost.fit(d.negative_binomial.loss(), X, y, spec=spec)
    assert alone.train_loss[-1] < 0.5 * alone.train_loss[0]
    assert_allclose(history.train_loss, alone.train_loss, rtol=1e-3)


def test_a_scale_whose_square_is_no_float_is_said_to_have_run_off():
    y = np.zeros(400)
    y[:4] = 1
    with pytest.raises(
        ValueError, match=r"output 1 has run off to -44\.\d+, as the loss falls without end there"
    ):
        jboost.fit(d.student_t().loss(), np.arange(400.0)[:, None], y, spec=SPEC)


@pytest.mark.parametrize("name", ["negative_binomial", "student_t"])
def test_what_has_run_off_is_finite(name):
    """Far beyond the floats of its logarithm, as trees may take it."""
    distribution = d.negative_binomial if name == "negative_binomial" else d.student_t()
    at = jnp.zeros(distribution.n_parameters).at[-1].set(200.0)
    found = distribution(at[None])
    numbers = (
        distribution.log_prob(at, 2.0),
        jax.grad(distribution.log_prob)(at, 2.0),
        found.sample(jax.random.key(0)),
    )
    assert all(np.isfinite(one).all() for one in (*numbers, found.fisher(), found.cdf(jnp.array([2.0]))))
    density = stats.poisson.logpmf(2, 1) if name == "negative_binomial" else stats.norm.logpdf(2)
    assert_allclose(numbers[0], density, rtol=1e-5)


def test_a_mixture_starts_from_parts_of_its_own():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(400) < 0.3, -4, 4) + rng.normal(size=400)
    two = d.mixture(d.normal, 2)
    for unit in (1, 1e-6, 1e6):
        base = solve(two.loss(), unit * y, np.ones(400))
        parameters = two(np.asarray(base)[None]).parameters()
        order = np.argsort(parameters["loc"][0])
        assert_allclose(parameters["loc"][0][order] / unit, [y[y < 0].mean(), y[y > 0].mean()], atol=0.05)
        assert_allclose(parameters["probs"][0][order], [(y < 0).mean(), (y > 0).mean()], atol=0.01)


@pytest.mark.slow
def test_numbers_in_a_distribution_are_operands():
    X, y = heteroscedastic()
    data = jboost.bin_features(X)

    def risk(df):
        one = d.student_t(df)
        model, _ = jboost.fit(one.loss(), data, y, spec=replace(SPEC, n_estimators=3))
        return -jnp.mean(one(jboost.predict(model, data)).log_prob(jnp.asarray(y, float)))

    with jax.enable_x64(True):
        found = jax.jit(jax.vmap(jax.value_and_grad(risk)))(np.array([4.0, 4.001, 4.002]))
        risks, slopes = map(np.asarray, found)
    assert_allclose((risks[2] - risks[0]) / 0.002, slopes[1], rtol=1e-3)


def test_derivatives_of_quantiles():
    with jax.enable_x64(True):
        score, h = np.array([0.3, 0.7]), 1e-5

        def of_gamma(score, q):
            return d.gamma(score[None]).quantile(q)[0]

        slope, of_q = map(np.asarray, jax.jit(jax.grad(of_gamma, (0, 1)))(score, 0.8))
        moved = d.gamma(score + h * np.concatenate([np.eye(2), -np.eye(2)])).quantile(0.8)
        assert_allclose(slope, (moved[:2] - moved[2:]) / (2 * h), rtol=1e-6)
        q = stats.gamma.ppf([0.8 + h, 0.8 - h], np.exp(0.7), scale=np.exp(-0.4))
        assert_allclose(of_q, (q[0] - q[1]) / (2 * h), rtol=1e-6)


# --- The estimator ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_normal():
    """Give an estimator that has stopped early."""
    X, y = heteroscedastic()
    # Full Hessians always take the program that may shorten steps, and so one alone.
    estimator = JBoostDistribution(
        "normal",
        n_estimators=60,
        max_depth=2,
        learning_rate=0.5,
        eval_metric=["rmse", "crps"],
        hessian="full",
    )
    return estimator.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])])


def test_the_estimator_tells_the_distribution_and_stops_early(of_normal):
    (X, y), estimator = heteroscedastic(), of_normal
    assert estimator.n_trees_ < estimator.n_iter_ <= 60
    same = pickle.loads(pickle.dumps(estimator))
    predicted = same.predict_dist(X[200:])
    scale = predicted.parameters()["scale"]
    assert scale.dtype == np.float64
    known: Any = stats.norm(estimator.predict(X[200:]), scale)
    assert_allclose(estimator.score(X[200:], y[200:]), known.logpdf(y[200:]).mean(), rtol=1e-5)
    assert_allclose(np.stack(predicted.interval(0.9)), known.interval(0.9), rtol=1e-9)
    curves = estimator.evals_result_["validation_0"]
    assert_allclose(curves["crps"][-1], estimator.crps(X[200:], y[200:]), rtol=1e-5)
    assert_allclose(curves["rmse"][-1], np.sqrt(np.mean((y[200:] - known.mean()) ** 2)), rtol=1e-5)
    assert estimator.best_score_ == pytest.approx(curves["crps"][-1])


def test_dicts_of_targets_and_distributions_by_name(of_normal):
    X, y = heteroscedastic()
    time = np.exp(y / 4)
    event = (time < 1.5) * 1.0
    target = {"time": np.minimum(time, 1.5), "event": event}
    estimator = JBoostDistribution(d.censored(d.weibull), n_estimators=5, max_depth=2).fit(X, target)
    assert estimator.predict(X).shape == (300,)
    assert_allclose(estimator.score(X, target), estimator.predict_dist(X).log_prob(target).mean(), rtol=1e-5)
    assert (
        str(JBoostDistribution("gamma", learning_rate=0.5))
        == "JBoostDistribution(dist='gamma', learning_rate=0.5)"
    )
    for wrong, kind, text in (
        ({"dist": "gauss"}, ValueError, "dist must be"),
        ({"dist": 3}, TypeError, "dist must be"),
        ({"curvature": "x"}, ValueError, "curvature must be"),
    ):
        with pytest.raises(kind, match=text):
            JBoostDistribution(n_estimators=1).set_params(**wrong).fit(X, y)
    frame = pd.DataFrame(target)
    gap = np.where(np.arange(300) == 7, np.nan, y)
    for name, call, text in (
        ("gamma", lambda one: one.fit(X, y), "y must be positive"),
        (
            d.censored(d.weibull),
            lambda one: one.fit(X, frame),
            "y must be a dict.*shape.*y.name. for name in",
        ),
        ("normal", lambda one: one.fit(X, np.stack([y, y], axis=1)), "y must hold one target"),
        ("normal", lambda one: one.fit(X, 1e19 * y), "y must have a standard deviation of at most.*scale y"),
        (
            "logistic",
            lambda one: one.fit(X, 1e19 * y),
            "y must have a standard deviation of at most.*scale y",
        ),
        ("normal", lambda one: of_normal.crps(X, gap), "y contains NaN"),
        ("normal", lambda one: of_normal.crps(X, np.stack([y, y], axis=1)), "y must hold one target"),
    ):
        with pytest.raises(ValueError, match=text):
            call(JBoostDistribution(name, n_estimators=1))
    as_parts = {name: frame[name] for name in ("time", "event")}
    assert estimator.score(X, as_parts) == estimator.score(X, target)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gamma", "y is out of the range of float32"),
        pytest.param("weibull", "is not finite at the base score that was found", marks=pytest.mark.slow),
    ],
)
def test_a_constant_target_that_runs_off_is_named(name, message):
    X, _ = heteroscedastic()
    with pytest.raises(
        ValueError, match=rf"{message}.*; output 1 has run off to -?8\d\..*give base_score, or bound"
    ):
        JBoostDistribution(name, n_estimators=1).fit(X, np.full(300, 3.0))


def test_wrong_arguments_are_named():
    known = d.normal(np.zeros((3, 2)))
    for given in (d.normal, d.normal.loss):
        with pytest.raises(TypeError, match="the method loss of normal makes one: call it"):
            jboost.fit(given, np.zeros((3, 1)), np.zeros(3))
    own = SimpleNamespace(loss=lambda score, y: (score - y) ** 2)  # a name that others may use
    assert as_loss(own.loss).value is not None
    for call, text in (
        (lambda: d.normal(np.zeros((3, 3))), r"score must have shape \[n 2\]"),
        (lambda: known.quantile(1.0), "q must lie strictly between 0 and 1"),
        (lambda: known.interval(0.0), "level must lie"),
        (lambda: known.log_prob(np.zeros(4)), "one entry for each of the 3 rows"),
        (lambda: d.student_t(-1.0), "df must be positive"),
        (lambda: d.zero_inflated(d.gamma), "use hurdle"),
        (lambda: d.mixture(d.normal, 1), "n_components"),
        (lambda: check(d.beta, np.array([0.5, 1.0])), "strictly between 0 and 1; got 1.0"),
        (lambda: check(d.poisson, np.array([0.5])), "whole numbers"),
        (lambda: check(d.censored(d.weibull), {"time": np.ones(2)}), 'dict of the arrays "time" and "event"'),
        (lambda: check(d.censored(d.weibull), {"time": np.ones(2), "event": np.full(2, 3)}), "event"),
        (lambda: loss(d.normal, "first_order"), "hessian must be one of"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def loss(distribution: Any, hessian: str) -> Any:
    return distribution.loss(hessian)


def check(distribution: Any, y: Any) -> None:
    distribution.check_target(y)


@pytest.mark.slow
def test_transforms_are_uniform_and_drawn():
    pytest.importorskip("matplotlib").use("Agg")
    for one, score in ((d.hurdle(d.gamma), [0.5, 0.3, 0.2]), (d.poisson, [0.4])):
        known = one(np.tile(score, (4000, 1)))
        y = known.sample(1)
        assert stats.kstest(known.pit(y), "uniform").pvalue > 0.01
        assert_allclose(y.mean(), known.mean()[0], rtol=0.1)
    assert known.plot_calibration(y).get_title() == "poisson"
