"""The best constant of distributions with several parameters, at any scale of the target and where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import optimize, special, stats

from jboost import losses
from jboost._objective.base_score import _place_of_target
from jboost._objective.damped_newton import minimise
from jboost._objective.moments import moments_of_loss
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows
from jboost.losses import Loss
from tests.of_rows import best_constant, rows_of

N = 401
RNG = np.random.default_rng(11)
solve = jax.jit(best_constant)


def ones():
    return jnp.ones(N)


# --- Distributions, as a user writes them -------------------------------------------------------------------


def normal(score, y):
    return 0.5 * jnp.square((y - score[0]) * jnp.exp(-score[1])) + score[1]


def student(score, y):
    dof, ratio = jnp.exp(score[2]), (y - score[0]) * jnp.exp(-score[1])
    constant = gammaln(dof / 2) - gammaln((dof + 1) / 2) + score[2] / 2 + score[1]
    return constant + (dof + 1) / 2 * jnp.log1p(ratio * ratio / dof)


def negative_binomial(score, y):
    size, odds = jnp.exp(-score[1]), score[0] + score[1]  # size = 1 / dispersion
    return gammaln(size) - gammaln(y + size) + size * jax.nn.softplus(odds) + y * jax.nn.softplus(-odds)


def weibull(score, y):
    shape = jnp.exp(score[1])
    z = jnp.log(y["time"]) - score[0]
    return jnp.exp(shape * z) - y["event"] * (score[1] + shape * z - jnp.log(y["time"]))


def gamma(score, y):
    shape, ratio = jnp.exp(score[1]), jnp.log(y) - score[0]
    return gammaln(shape) - shape * score[1] + shape * (jnp.exp(ratio) - ratio) + jnp.log(y)


def gumbel(score, y):
    ratio = (y - score[0]) * jnp.exp(-score[1])
    return score[1] + ratio + jnp.exp(-ratio)  # of no float at scores of 0 where y is -100


def logistic(score, y):
    ratio = (y - score[0]) / jnp.exp(score[1])
    return score[1] + ratio + 2 * jax.nn.softplus(-ratio)


def sinh_arcsinh(score, y):
    """Of Jones and Pewsey (2009): a normal variable whose skewness and tails are two more scores."""
    ratio = (y - score[0]) * jnp.exp(-score[1])
    normal = jnp.exp(score[3]) * jnp.arcsinh(ratio) - score[2]
    log_slope = jnp.log(jnp.cosh(normal)) + score[3] - 0.5 * jnp.log1p(ratio**2) - score[1]
    return 0.5 * jnp.sinh(normal) ** 2 - log_slope


def mixture(score, y):
    """Of two normals; the second lies a standard deviation above the first when all scores are 0."""

    def log_density(centre, log_scale):
        return -0.5 * jnp.square((y - centre) * jnp.exp(-log_scale)) - log_scale

    odds, centre, log_scale, shift, log_ratio = score
    one = jax.nn.log_sigmoid(odds) + log_density(centre, log_scale)
    other = jax.nn.log_sigmoid(-odds)
    other += log_density(centre + jnp.exp(log_scale) * (1 + shift), log_scale + log_ratio)
    return -other - jax.nn.softplus(one - other)


NORMAL, STUDENT, MIXTURE = Loss(normal, 2), Loss(student, 3), Loss(mixture, 5)
NEGATIVE_BINOMIAL, WEIBULL, GAMMA = Loss(negative_binomial, 2), Loss(weibull, 2), Loss(gamma, 2)
GUMBEL, LOGISTIC, SINH_ARCSINH = Loss(gumbel, 2), Loss(logistic, 2), Loss(sinh_arcsinh, 4)

HEAVY = RNG.standard_t(4, N)
TWO_HUMPS = np.where(RNG.uniform(size=N) < 0.35, RNG.normal(-2, 0.7, N), RNG.normal(2, 1.2, N))
AMOUNT = RNG.gamma(2.5, 1.0, N)
TIME, CENSORED = RNG.weibull(1.7, N), RNG.uniform(0.3, 2.0, N)
EVENT, TIME = (TIME <= CENSORED) * 1.0, np.minimum(TIME, CENSORED)


# --- Oracles: scipy in double precision, in units of the spread ----------------------------------------------


def minimum(function, start):
    found = optimize.minimize(function, start, method="BFGS", options={"gtol": 1e-9})
    return optimize.minimize(
        function, found.x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-14}
    ).x


def student_by_scipy(y):
    def mean_loss(c):
        dof, ratio = np.exp(c[2]), (y - c[0]) * np.exp(-c[1])
        constant = special.gammaln(dof / 2) - special.gammaln((dof + 1) / 2) + c[2] / 2 + c[1]
        return np.mean(constant + (dof + 1) / 2 * np.log1p(ratio**2 / dof))

    return minimum(mean_loss, [np.median(y), np.log(y.std()), 1.0])


def negative_binomial_by_scipy(y):
    mean = y.mean()  # the maximum of the likelihood, whatever the dispersion

    def mean_loss(log_dispersion):
        size = np.exp(-log_dispersion)
        log_share = np.log(size / (size + mean))
        of_counts = special.gammaln(y + size) - special.gammaln(size) + y * np.log(mean / (size + mean))
        return -np.mean(of_counts + size * log_share)

    found: Any = optimize.minimize_scalar(mean_loss, bracket=(-2, 1), tol=1e-12)
    return [np.log(mean), found.x]


def weibull_by_scipy(time, event):
    def mean_loss(c):
        z = np.log(time) - c[0]
        shape = np.exp(c[1])
        return np.mean(np.exp(shape * z) - event * (c[1] + shape * z))

    return minimum(mean_loss, [np.log(time.mean()), 0.0])


def gamma_by_scipy(y):
    gap = np.log(y.mean()) - np.log(y).mean()
    shape: Any = optimize.brentq(lambda k: np.log(k) - special.digamma(k) - gap, 1e-3, 1e3, xtol=1e-14)
    return [np.log(y.mean()), np.log(shape)]


def gumbel_by_scipy(y):
    def excess(scale):  # where the likelihood is largest by the location, its slope by the scale
        return y.mean() - scale - np.average(y, weights=np.exp(-y / scale))

    scale: Any = optimize.brentq(excess, 0.1 * y.std(), 10 * y.std(), xtol=1e-14)
    return [-scale * np.log(np.exp(-y / scale).mean()), np.log(scale)]


def sinh_arcsinh_by_scipy(y):
    def mean_loss(c):
        z = (y - c[0]) * np.exp(-c[1])
        normal = np.exp(c[3]) * np.arcsinh(z) - c[2]
        slope = np.cosh(normal) * np.exp(c[3] - c[1]) / np.sqrt(1 + z**2)
        return -np.mean(stats.norm.logpdf(np.sinh(normal)) + np.log(slope))

    start = minimum(mean_loss, [np.median(y), 0.0, 0.0, 0.0])
    return minimum(mean_loss, start)


def mixture_by_scipy(y):
    def mean_loss(c):
        odds, centre, log_scale, shift, log_ratio = c
        z = (y - centre) * np.exp(-log_scale)
        one = -np.log1p(np.exp(-odds)) - 0.5 * z**2 - log_scale
        other = -np.log1p(np.exp(odds)) - 0.5 * ((z - 1 - shift) * np.exp(-log_ratio)) ** 2
        return -np.mean(np.logaddexp(one, other - log_scale - log_ratio))

    return minimum(mean_loss, [0.0, -2.0, 0.0, 1.0, 0.0])


SCALES = [1e-9, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e9]
SHIFTED = [(scale, 0.0) for scale in SCALES] + [(scale, 1e6) for scale in (1e3, 1e6, 1e9)]


def representable(location):
    """Return half the distance of floats there: a score cannot be nearer."""
    return np.spacing(np.float32(abs(location))) / 2


@pytest.mark.parametrize(("scale", "shift"), SHIFTED)
def test_a_normal_has_the_mean_and_the_log_deviation(scale, shift):
    y = np.float32(HEAVY * scale + shift)
    found, exact = solve(NORMAL, jnp.asarray(y), ones()), y.astype(float)
    deviation = exact.std()
    assert abs(float(found[0]) - exact.mean()) <= 1e-5 * deviation + representable(exact.mean())
    np.testing.assert_allclose(found[1], np.log(deviation), atol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e3, 1e6, 1e9, 1e15])
def test_a_normal_of_a_real_target(regression_data, scale):
    y = np.resize(regression_data.y, N)
    found = solve(NORMAL, jnp.asarray(y * scale, jnp.float32), ones())
    np.testing.assert_allclose(found[0] / scale, y.mean(), atol=1e-5 * y.std())
    np.testing.assert_allclose(found[1], np.log(y.std() * scale), atol=1e-5)


@pytest.mark.parametrize(("scale", "shift"), SHIFTED)
def test_student_matches_scipy(scale, shift):
    y = np.float32(HEAVY * scale + shift)
    found, expected = (
        solve(STUDENT, jnp.asarray(y), ones()),
        student_by_scipy((y.astype(float) - shift) / scale),
    )
    location = expected[0] * scale + shift
    assert abs(float(found[0]) - location) <= 1e-5 * y.std() + representable(location)
    np.testing.assert_allclose(found[1], expected[1] + np.log(scale), atol=2e-5)
    np.testing.assert_allclose(found[2], expected[2], atol=1e-4)


@pytest.mark.parametrize("mean", [0.3, 3.0, 1e3, 1e5])
def test_negative_binomial_matches_scipy(mean):
    y = np.random.default_rng(3).negative_binomial(2, 2 / (2 + mean), N).astype(float)
    found = solve(NEGATIVE_BINOMIAL, jnp.asarray(y), ones())
    np.testing.assert_allclose(found, negative_binomial_by_scipy(y), atol=2e-5)


@pytest.mark.parametrize("scale", SCALES)
def test_weibull_of_censored_times_matches_scipy(scale):
    y = {"time": jnp.asarray(TIME * scale), "event": jnp.asarray(EVENT)}
    log_scale, log_shape = weibull_by_scipy(TIME, EVENT)
    np.testing.assert_allclose(solve(WEIBULL, y, ones()), [log_scale + np.log(scale), log_shape], atol=1e-5)


@pytest.mark.parametrize("scale", SCALES)
def test_gamma_of_two_parameters_matches_scipy(scale):
    log_mean, log_shape = gamma_by_scipy(AMOUNT)
    found = solve(GAMMA, jnp.asarray(AMOUNT * scale), ones())
    np.testing.assert_allclose(found, [log_mean + np.log(scale), log_shape], atol=1e-5)


@pytest.mark.parametrize("scale", SCALES)
def test_gumbel_matches_scipy_where_the_loss_at_0_is_no_float(scale):
    location, log_scale = gumbel_by_scipy(HEAVY)
    found = solve(GUMBEL, jnp.asarray(HEAVY * scale), ones())
    np.testing.assert_allclose(found[0] / scale, location, atol=1e-5)
    np.testing.assert_allclose(found[1], log_scale + np.log(scale), atol=1e-5)


@pytest.mark.parametrize(("scale", "shift"), [*SHIFTED, (1e4, 1e10)])
def test_a_logistic_far_from_zero_matches_scipy(scale, shift):
    """The last one lies between floats a tenth of its scale apart: the location is the nearest of them."""
    y = np.float32(HEAVY * scale + shift)
    found, (location, unit) = (
        solve(LOGISTIC, jnp.asarray(y), ones()),
        stats.logistic.fit((y.astype(float) - shift) / scale),
    )
    location = location * scale + shift
    assert abs(float(found[0]) - location) <= 1e-4 * scale + representable(location)
    np.testing.assert_allclose(found[1], np.log(unit * scale), atol=2e-3 if shift == 1e10 else 5e-5)


@pytest.mark.parametrize("scale", SCALES)
def test_skewness_and_tails_match_scipy_at_any_scale(scale):
    location, log_scale, skew, log_tail = sinh_arcsinh_by_scipy(HEAVY)
    found = solve(SINH_ARCSINH, jnp.asarray(HEAVY * scale), ones())
    np.testing.assert_allclose(found[0] / scale, location, atol=1e-4)
    np.testing.assert_allclose(found[1:], [log_scale + np.log(scale), skew, log_tail], atol=1e-4)


@pytest.mark.parametrize("scale", [1e-1, 1.0])
def test_a_mixture_matches_scipy(scale):
    odds, centre, log_scale, shift, log_ratio = mixture_by_scipy(TWO_HUMPS)
    expected = [odds, centre * scale, log_scale + np.log(scale), shift, log_ratio]
    np.testing.assert_allclose(solve(MIXTURE, jnp.asarray(TWO_HUMPS * scale), ones()), expected, atol=2e-4)


SEARCHED = {
    loss.name: replace(loss, constant=None)
    for loss in (losses.squared_error, losses.poisson, losses.gamma, losses.tweedie(1.5))
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in ("gamma", "tweedie(1.5)") else name
        for name in SEARCHED
    ],
)
def test_built_in_losses_without_their_formulas_find_the_mean(name, scale):
    y = AMOUNT * scale
    found = SEARCHED[name].inverse_link(solve(SEARCHED[name], jnp.asarray(y), ones()))
    np.testing.assert_allclose(found, y.mean(), rtol=3e-5)


@pytest.mark.parametrize(("scale", "shift"), SHIFTED)
@pytest.mark.parametrize("loss", [losses.huber, pytest.param(losses.pseudo_huber, marks=pytest.mark.slow)])
def test_robust_losses_in_units_of_the_target_match_scipy(loss, scale, shift):
    y = np.float32(HEAVY * scale + shift)
    found, exact = solve(loss(0.5 * scale), jnp.asarray(y), ones()), (y.astype(float) - shift) / scale

    def slope(c):
        r = c - exact
        return np.mean(np.clip(r, -0.5, 0.5) if loss is losses.huber else r / np.sqrt(1 + (r / 0.5) ** 2))

    expected = optimize.brentq(slope, -5, 5, xtol=1e-13) * scale + shift
    assert abs(float(found) - expected) <= 1e-5 * y.std() + representable(expected)


# --- Where there is no minimum, or no single one -------------------------------------------------------------


def passes(loss, y):
    """Count the places at which the search looks at the rows, and return where it ends."""
    rows = rows_of(y)
    loss = resolve(loss, rows.y).loss

    @jax.jit
    def search(rows: Rows):
        share = rows.weight / rows.weight.sum()
        moments = moments_of_loss(loss, None)
        origin = jnp.zeros(loss.n_outputs or 1)
        start = _place_of_target(loss, rows, share, None)
        return minimise(lambda c: moments(c, rows, share), origin, start, False)

    state = search(rows)
    return int(state.iteration), np.asarray(state.constant)


@pytest.mark.parametrize("n_absent", [1, 2])
def test_a_class_that_does_not_occur_takes_few_passes(n_absent):
    n, scores = passes(replace(losses.softmax(4), constant=None), np.arange(N) % (4 - n_absent))
    assert n <= 12
    shares = np.asarray(jax.nn.softmax(scores))
    assert (shares[4 - n_absent :] <= 1e-13).all()
    assert np.abs(scores).max() < 100
    np.testing.assert_allclose(shares[: 4 - n_absent], 1 / (4 - n_absent), rtol=1e-2)


@pytest.mark.parametrize(("name", "target"), [("logistic", 0.0), ("logistic", 1.0), ("poisson", 0.0)])
def test_a_target_of_one_value_takes_few_passes(name, target):
    loss = replace(getattr(losses, name), constant=None)
    n, score = passes(loss, np.full(N, target))
    assert n <= 12
    np.testing.assert_allclose(loss.inverse_link(jnp.asarray(score)), target, atol=1e-6)
    assert np.abs(score).max() < 100


def test_usual_targets_take_few_passes():
    assert passes(replace(losses.softmax(3), constant=None), np.arange(N) % 3)[0] <= 8
    assert passes(NORMAL, RNG.normal(2.0, 3.0, N))[0] <= 10


def test_degrees_of_freedom_of_a_normal_target_end_where_nothing_is_left_to_gain():
    """In float64 the loss there is that of a normal variable, the best at infinity, nearly."""
    y = special.ndtri((np.arange(N) + 0.5) / N)  # tails that are lighter than any of Student's
    for scale in (1e-3, 1.0, 1e3):
        location, log_scale, log_dof = np.asarray(solve(STUDENT, jnp.asarray(y * scale), ones()))
        assert 5 < log_dof < 100
        np.testing.assert_allclose(location, 0, atol=1e-3 * scale)
        found = -stats.t.logpdf(y * scale, np.exp(float(log_dof)), location, np.exp(float(log_scale))).mean()
        assert 0 < found + stats.norm.logpdf(y * scale, 0, y.std() * scale).mean() < 1e-4


@pytest.mark.parametrize("value", [0.0, 3.0, 1.1e6])
def test_the_deviation_of_a_constant_target_is_the_least_that_floats_hold(value):
    location, log_scale = np.asarray(solve(NORMAL, jnp.full(N, value), ones()))
    np.testing.assert_allclose(location, value, rtol=1e-6, atol=1e-6)
    assert -89 < log_scale < -10


@pytest.mark.slow
def test_parts_of_a_mixture_that_could_change_places_stay_finite():
    def exchangeable(score, y):
        one, other = (
            jax.nn.log_sigmoid(sign * score[0]) - normal(score[i : i + 2], y) for sign, i in ((1, 1), (-1, 3))
        )
        return -other - jax.nn.softplus(one - other)

    found = np.asarray(solve(Loss(exchangeable, 5), jnp.asarray(HEAVY), ones()))
    assert np.isfinite(found).all()
    single = np.mean(
        jax.vmap(normal, (None, 0))(solve(NORMAL, jnp.asarray(HEAVY), ones()), jnp.asarray(HEAVY))
    )
    assert np.mean(jax.vmap(exchangeable, (None, 0))(found, jnp.asarray(HEAVY))) <= single + 1e-5


# --- Order of the rows, derivatives --------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "y"), [(NORMAL, HEAVY * 1e6), (STUDENT, HEAVY), (GAMMA, AMOUNT * 1e-6)])
def test_the_order_of_the_rows_changes_no_bit(loss, y):
    found = solve(loss, jnp.asarray(y), ones())
    np.testing.assert_array_equal(found, solve(loss, jnp.asarray(y[::-1].copy()), ones()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y"), [(NORMAL, HEAVY * 1e6), (STUDENT, HEAVY * 1e3)], ids=["normal", "student"]
)
def test_derivatives_by_a_weight_match_finite_differences(loss, y, x64):
    y, step = jnp.asarray(y), 1e-4

    def moved(t):
        return best_constant(loss, y, ones() + t * (jnp.arange(N) == 5))

    value, derivative = jax.jit(moved), jax.jit(jax.jacobian(moved))
    expected = (value(step) - value(-step)) / (2 * step)
    np.testing.assert_allclose(derivative(0.0), expected, rtol=1e-5, atol=1e-9)
