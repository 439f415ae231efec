"""Losses with numbers that are learned: against naive formulas, quadrature and finite differences; their limits."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special

import jboost
from jboost import Hyper, Loss, Spec, losses
from jboost._runtime import programs
from jboost.losses.robust import partition
from jboost.losses.special import moment
from tests.of_rows import best_constant
from tests.twin import problem

ANY: Any = losses  # of which no type checker knows what its arguments should be
SMALL = Spec(n_estimators=3, max_depth=2)
solve = jax.jit(best_constant)
RESIDUAL = np.array([-40.0, -3.0, -1.1, -0.3, 0.0, 0.2, 1.0, 2.5, 50.0])
SCORE, LABEL = np.linspace(-6, 6, 9), np.tile([0.0, 1.0], 5)[:9]
SCORES = np.random.default_rng(0).normal(size=(9, 3)) * 3


# --- Naive formulas, with their limits as cases -------------------------------------------------------------


def rho(square, shape):
    if shape == 2:
        return square / 2
    if shape == 0:
        return np.log1p(square / 2)
    if shape == -np.inf:
        return -np.expm1(-square / 2)
    return inside(square, shape)


def inside(square, shape):
    b = 2 - shape
    return b / shape * ((square / b + 1) ** (shape / 2) - 1)


def linex(r, rate):
    return r**2 / 2 if rate == 0 else (np.exp(rate * r) - rate * r - 1) / rate**2


def asymmetric_huber(r, asymmetry, delta):
    size = np.abs(r)
    huber = np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))
    return 2 * np.where(r < 0, asymmetry, 1 - asymmetry) * huber


def focal(score, y, gamma):
    p = special.expit(np.where(y == 1, score, -score))
    return -((1 - p) ** gamma) * np.log(p)


def softmax_focal(scores, gamma):
    p = special.softmax(scores, axis=1)[np.arange(9), np.arange(9) % 3]
    return -((1 - p) ** gamma) * np.log(p)


def of_residuals(make):
    return lambda *numbers: jax.vmap(lambda r: make(*numbers).function(r, jnp.zeros_like(r)))


SHAPES = [(shape, scale) for scale in (0.5, 1.0) for shape in (-np.inf, -30.0, -2.0, 0.0, 0.7, 1.0, 1.9, 2.0)]
# loss, numbers to try, where, what it should be
CASES: dict[str, tuple[Any, list[tuple[float, ...]], Any, Any]] = {
    "general_robust": (
        of_residuals(losses.general_robust),
        SHAPES,
        RESIDUAL,
        lambda r, shape, scale: scale**2 * rho((r / scale) ** 2, shape),
    ),
    "linex": (of_residuals(losses.linex), [(0.0,), (0.7,), (-0.4,), (0.02,)], RESIDUAL, linex),
    "expectile": (
        of_residuals(losses.expectile),
        [(0.1,), (0.5,), (0.8,)],
        RESIDUAL,
        lambda r, level: np.where(r < 0, level, 1 - level) * r**2,
    ),
    "asymmetric_huber": (
        of_residuals(losses.asymmetric_huber),
        [(0.1, 1.5), (0.5, 0.7), (0.8, 2.9)],
        RESIDUAL,
        asymmetric_huber,
    ),
    "focal": (
        lambda gamma: lambda s: jax.vmap(losses.focal(gamma).function)(s, jnp.asarray(LABEL)),
        [(0.0,), (0.5,), (2.0,), (5.0,)],
        SCORE,
        lambda s, gamma: focal(s, LABEL, gamma),
    ),
    "softmax_focal": (
        lambda gamma: lambda s: jax.vmap(losses.softmax_focal(3, gamma).function)(s, jnp.arange(9) % 3),
        [(0.0,), (0.5,), (2.0,)],
        SCORES,
        softmax_focal,
    ),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@each_case
def test_values_and_derivatives_by_numbers_and_scores(case, x64):
    """Values by the naive formula; each derivative, and those of the gradient, by central differences."""
    make, tried, where, formula = case

    @jax.jit
    def everything(numbers, s):
        """Value and slope by the score, and the derivatives of both by the numbers."""

        def value(numbers):
            return make(*numbers)(s)

        def slope(numbers):
            return jax.grad(lambda s: jnp.sum(make(*numbers)(s)))(s)

        return value(numbers), slope(numbers), jax.jacfwd(value)(numbers), jax.jacfwd(slope)(numbers)

    step = 1e-5
    for numbers in tried:
        value, slope, *by_number = everything(numbers, where)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((slope, by_number)))
        np.testing.assert_allclose(value, formula(where, *numbers), rtol=1e-9, atol=1e-12)
        for j in range(where.size // 9):
            shift = step * (np.arange(where.size // 9) == j if where.ndim > 1 else 1)
            up, down = (everything(numbers, where + sign * shift)[0] for sign in (1, -1))
            column = slope if where.ndim == 1 else slope[:, j]
            np.testing.assert_allclose(column, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)
        for i, number in enumerate(numbers):
            if np.isinf(number) or number == 2.0:  # a limit; an infinite derivative
                continue
            ends = [(*numbers[:i], number + sign * step, *numbers[i + 1 :]) for sign in (1, -1)]
            up, down = (everything(one, where)[:2] for one in ends)
            for kind in (0, 1):
                expected = (up[kind] - down[kind]) / (2 * step)
                size = np.abs(expected).max() + np.abs(value).max()
                np.testing.assert_allclose(by_number[kind][i], expected, rtol=1e-6, atol=1e-9 * size)


# --- The general robust loss --------------------------------------------------------------------------------


def test_the_normaliser_is_that_of_quadrature_and_of_known_densities(x64):
    shapes = np.array([0.0, 0.05, 0.5, 1.0, 1.5, 1.9, 1.999, 2.0])
    of_all = jax.jit(jax.vmap(partition))
    found, slope = of_all(shapes), jax.jit(jax.vmap(jax.grad(lambda a: jnp.log(partition(a)))))(shapes)
    for shape, z in zip(shapes, found, strict=True):

        def density(v, shape=shape):  # of x = sinh(v), for tails as heavy as 1 / x^2
            return np.exp(-rho(np.sinh(v) ** 2, shape)) * np.cosh(v)

        parts = [integrate.quad(density, *ends, epsrel=1e-12)[0] for ends in ((0, 3), (3, 8), (8, 45))]
        np.testing.assert_allclose(z, 2 * sum(parts), rtol=1e-11)
    np.testing.assert_allclose(
        found[:: len(shapes) - 1], [np.sqrt(2) * np.pi, np.sqrt(2 * np.pi)], rtol=1e-14
    )
    bessel = 2 * np.e * special.kv(1, 1)  # Barron (2019), of a shape of 1
    np.testing.assert_allclose(found[3], bessel, rtol=1e-14)
    step = 1e-5
    inner = np.clip(shapes, shapes[1], shapes[-2])
    up, down = (np.log(of_all(inner + sign * step)) for sign in (1, -1))
    np.testing.assert_allclose(slope[1:-1], ((up - down) / (2 * step))[1:-1], rtol=1e-4)


def test_the_density_is_normal_or_cauchy_at_the_ends(precision):
    r = jnp.asarray(RESIDUAL)
    rtol = 1e-13 if precision is np.float64 else 1e-5

    @jax.jit
    def nll(shape):
        return jax.vmap(lambda r: losses.general_robust_nll(shape, 0.7).function(r, jnp.zeros_like(r)))(r)

    normal = RESIDUAL**2 / (2 * 0.49) + np.log(0.7) + np.log(2 * np.pi) / 2
    scale = np.sqrt(2) * 0.7
    cauchy = np.log(np.pi * scale * (1 + (RESIDUAL / scale) ** 2))
    np.testing.assert_allclose(nll(2.0), normal, rtol=rtol)
    np.testing.assert_allclose(nll(0.0), cauchy, rtol=rtol)


@pytest.mark.parametrize(
    "precision", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["x32", "x64"], indirect=True
)
def test_all_derivatives_are_finite_at_every_limit(precision):
    """By the score, the shape, the scale, and those of the gradient by the score."""
    largest = 1e6 if precision is np.float64 else 1e3  # beyond, the second derivative near 2 itself overflows
    residual = jnp.asarray(np.append(RESIDUAL, [1e-8, largest]))

    @jax.jit
    def everything(shape, scale):
        def value(shape, scale, r):
            plain = losses.general_robust(shape, scale).function(r, jnp.zeros_like(r))
            return plain + losses.general_robust_nll(jnp.maximum(shape, 0), scale).function(
                r, jnp.zeros_like(r)
            )

        grad = jax.grad(value, argnums=(0, 1, 2))
        first = jax.vmap(grad, (None, None, 0))(shape, scale, residual)
        return first, jax.vmap(jax.jacfwd(grad, argnums=(0, 1, 2)), (None, None, 0))(shape, scale, residual)

    tiny = np.finfo(precision).eps
    for shape in (-np.inf, -1e20, -1e3, -tiny, 0.0, tiny, 1e-3, 1.0, 1.999, 2 - 2 * tiny, 2.0):
        for leaf in jax.tree.leaves(everything(precision(shape), precision(1.0))):
            assert np.isfinite(leaf).all(), (shape, leaf)


def test_no_step_by_its_curvature_raises_it(x64):
    """Of random shapes from 2 downwards, and steps of all sizes."""
    rng = np.random.default_rng(0)
    r, step, shape = rng.standard_cauchy((3, 2000)) * 3
    shape = 2 - np.abs(shape)
    for make, shapes, factor in (
        (losses.general_robust, shape, 0.3**2),
        (losses.general_robust_nll, np.maximum(shape, 1e-3), 1.0),
    ):

        def taken(shape, r, make=make):
            loss = make(shape, 0.3)
            return jax.grad(loss.function)(r, 0.0), loss.curvature(r, 0.0) if loss.curvature else jnp.ones(())

        slope, h = jax.jit(jax.vmap(taken))(shapes, r)
        before, after = (factor * inside((one / 0.3) ** 2, shapes) for one in (r, r + step))
        assert (h > 0).all()
        assert (after <= before + slope * step + h * step**2 / 2 + 1e-9 * np.abs(before)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda unit: losses.general_robust(0.5),
        pytest.param(lambda unit: losses.general_robust_nll(0.5, 0.5 * unit), marks=pytest.mark.slow),
    ],
    ids=["general_robust", "general_robust_nll"],
)
def test_units_of_the_target_do_not_matter(make):
    rows = problem("plain")
    y = rows.targets["real"].copy()
    y[::25] *= 50
    known, _ = jboost.fit(make(1.0), rows.data, y, spec=SMALL)
    expected = np.asarray(jboost.predict(known, rows.data))
    for unit in (1e-6, 1e6):
        found, _ = jboost.fit(make(unit), rows.data, unit * y, spec=SMALL)
        np.testing.assert_array_equal(found.trees.feature, known.trees.feature)
        np.testing.assert_allclose(jboost.predict(found, rows.data) / unit, expected, rtol=1e-3, atol=1e-4)


def test_the_scale_follows_the_residuals():
    """The best constant of normal numbers with outliers, and the loss that the first round tells, by hand."""
    rng = np.random.default_rng(0)
    y = rng.normal(3.0, 2.0, 400)
    y[::20] = 1e4
    X = problem("plain").data
    model, history = jboost.fit(losses.general_robust(-2.0), X, y, spec=SMALL)
    assert abs(float(model.base[0]) - 3.0) < 0.3

    def scale_of(r):
        around = np.quantile(r, 0.5, method="averaged_inverted_cdf")
        median = np.quantile(np.abs(r - around), 0.5, method="averaged_inverted_cdf")
        return median / special.ndtri(0.75)

    score = np.asarray(jboost.predict(jboost.truncate(model, 1), X), np.float64)
    scale = scale_of(y - score)
    expected = scale**2 * rho(((y - score) / scale) ** 2, -2.0).mean()
    np.testing.assert_allclose(history.train_loss[0], expected, rtol=1e-4)


# --- Special cases of each other ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "same", "y"),
    [
        (losses.general_robust(2.0, 0.5), losses.squared_error, RESIDUAL),
        (losses.general_robust(1.0, 0.5), losses.pseudo_huber(0.5), RESIDUAL),
        (losses.linex(0.0), losses.squared_error, RESIDUAL),
        (losses.expectile(0.5), losses.squared_error, RESIDUAL),
        (losses.asymmetric_huber(0.5, 0.7), losses.huber(0.7), RESIDUAL),
        (losses.focal(0.0), losses.logistic, LABEL),
        (losses.softmax_focal(3, 0.0), losses.softmax(3), np.arange(9) % 3),
        (losses.class_balanced(losses.softmax(3), [5, 5, 5]), losses.softmax(3), np.arange(9) % 3),
        (
            losses.with_link(losses.logistic, losses.monotone_link(np.full(4, 0.3), -2, 2)),
            losses.logistic,
            LABEL,
        ),
        (
            losses.with_link(losses.huber(0.7), losses.monotone_link([0, 0], -2, 2)),
            losses.huber(0.7),
            RESIDUAL,
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Loss) else "",
)
def test_special_cases(loss, same, y, x64):
    """Value, gradient, and the curvature that a fit takes."""
    score = SCORES if loss.n_outputs else SCORE
    for found, expected in zip(everything(loss, score, y), everything(same, score, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@jax.jit
def everything(loss, score, y):
    value, g = jax.vmap(jax.value_and_grad(loss.function))(score, y)
    if loss.curvature is not None:
        h = jax.vmap(loss.curvature)(score, y)
    elif loss.hessian == "first_order":
        h = jnp.ones_like(g)
    else:
        h = jax.vmap(jax.hessian(loss.function))(score, y)
        h = h if h.ndim == 1 else jnp.diagonal(h, axis1=1, axis2=2)
    return value, g, h


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_moments_of_exponentials_are_integrals(k, precision):
    t = np.array([-80.0, -3.0, -1.0, -0.99, -1e-3, -1e-12, 0.0, 1e-9, 0.5, 1.0, 1.01, 20.0])
    expected = [integrate.quad(lambda s, t=one: s**k * np.exp(t * s), 0, 1, epsrel=1e-12)[0] for one in t]
    rtol = 2e-12 if precision is np.float64 else 3e-6
    np.testing.assert_allclose(jax.jit(lambda t: moment(k, t))(jnp.asarray(t)), expected, rtol=rtol)


# --- Links and weights of classes ---------------------------------------------------------------------------


def test_a_link_rises_and_has_the_slopes_that_were_given(x64):
    rng = np.random.default_rng(0)
    log_slopes, low, high = rng.normal(size=5) * 2, -3.0, 7.0
    link = losses.monotone_link(log_slopes, low, high)
    knots, score = np.linspace(low, high, 5), np.append(np.linspace(-10, 15, 501), [low, high])
    slopes = np.exp(log_slopes)
    slopes /= np.mean((slopes[1:] + slopes[:-1]) / 2)

    def expected(s):
        return (
            low
            + integrate.quad(lambda t: np.interp(t, knots, slopes), low, s, points=list(knots), limit=200)[0]
        )

    found = np.asarray(jax.jit(link)(score))
    assert (np.diff(found[:-2]) > 0).all()
    np.testing.assert_allclose(found[::50], [expected(s) for s in score[::50]], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found[-2:], [low, high])
    by_score = jax.jit(jax.vmap(jax.grad(link)))(score)
    np.testing.assert_allclose(by_score, np.interp(score, knots, slopes), rtol=1e-9)


def test_huge_slopes_overflow_nothing():
    slopes, score = np.array([300, 0, -300], np.float32), np.linspace(-1, 2, 7, dtype=np.float32)
    link = losses.monotone_link(slopes, 0.0, 1.0)

    @jax.jit
    def told(slopes):
        return link(score), jax.jacobian(lambda slopes: link.func(score, slopes, 0.0, 1.0))(slopes)

    for part in told(slopes):
        assert np.isfinite(part).all()


ONE_LOSS = Loss(lambda score, y: 1 + 0 * score, name="one")


def test_weights_of_classes_are_those_of_effective_numbers(x64):
    counts, label = np.array([10_000, 700, 3]), np.arange(3)
    weights = jax.jit(
        lambda beta: jax.vmap(losses.class_balanced(ONE_LOSS, counts, beta).function, (None, 0))(0.0, label)
    )
    for beta in (0.0, 0.5, 0.99, 0.999999, 1.0):
        effective = counts if beta == 1 else (1 - beta**counts) / (1 - beta)
        expected = 1 / effective / np.mean(1 / effective)
        np.testing.assert_allclose(weights(beta), expected, rtol=1e-9)
        concrete = losses.class_balanced(ONE_LOSS, counts, beta)
        np.testing.assert_allclose(concrete(0.0, 2), expected[2], rtol=1e-9)
    slope, step = jax.jit(jax.jacobian(weights)), 1e-6
    for beta in (0.5, 0.999, 1 - 1e-5):
        moved = (weights(beta + step) - weights(beta - step)) / (2 * step)
        np.testing.assert_allclose(slope(beta), moved, rtol=1e-4, atol=1e-6)
    assert all(np.isfinite(slope(beta)).all() for beta in (0.0, 1.0))


@pytest.mark.parametrize(
    "inner",
    [losses.softmax(3), pytest.param(losses.softmax_focal(3, 1.5), marks=pytest.mark.slow)],
    ids=lambda one: one.name,
)
def test_the_best_constant_of_weighted_classes_is_that_of_weighted_rows(inner, x64):
    y = np.random.default_rng(0).choice(3, 200, p=[0.8, 0.15, 0.05])
    counts = np.bincount(y)
    found = solve(losses.class_balanced(inner, counts, 1.0), y, np.ones(200))
    weight = (1 / counts)[y]
    expected = solve(inner, y, weight)
    np.testing.assert_allclose(jax.nn.softmax(found), jax.nn.softmax(expected), rtol=1e-6)
    np.testing.assert_allclose(jax.nn.softmax(found), np.full(3, 1 / 3), rtol=1e-6)


# --- In fits ------------------------------------------------------------------------------------------------


def linked(slope, shape):
    link = losses.monotone_link(jnp.stack([-slope, 0.0 * slope, slope]), -3.0, 3.0)
    return losses.with_link(losses.general_robust_nll(shape, 0.4), link)


def balanced(gamma, beta):
    return losses.class_balanced(losses.focal(gamma), [200, 40], beta)


@pytest.mark.parametrize(
    ("make", "target", "values"),
    [
        (lambda slope, shape: linked(jnp.float32(slope), shape), "real", ((0.5, 0.5), (-0.5, 1.5))),
        pytest.param(balanced, "binary", ((0.5, 0.9), (2.0, 0.99)), marks=pytest.mark.slow),
    ],
    ids=["linked", "balanced"],
)
def test_other_numbers_compile_nothing_and_count(make, target, values, monkeypatch):
    monkeypatch.setattr(programs, "MAX_MAPS", 2**62)
    rows = problem("plain")
    first, history = jboost.fit(make(*values[0]), rows.data, rows.targets[target], spec=SMALL)
    assert (np.diff(history.train_loss) <= 0).all()
    n_programs = programs.n_programs()
    second, _ = jboost.fit(make(*values[1]), rows.data, rows.targets[target], spec=SMALL)
    assert programs.n_programs() == n_programs
    assert not np.array_equal(first.leaf_value, second.leaf_value)


@pytest.mark.slow
@pytest.mark.last_digits
def test_derivatives_of_a_fit_by_numbers_are_those_of_finite_differences(x64):
    """By the slope of a link and a shape of 0, of the scores after two rounds; the splits stay under a small change."""
    rows, spec, hyper = problem("plain"), Spec(n_estimators=2, max_depth=2), Hyper(learning_rate=0.7)

    @jax.jit
    @jax.value_and_grad
    def total(numbers):
        model, _ = jboost.fit(linked(*numbers), rows.data, rows.targets["real"], spec=spec, hyper=hyper)
        return jnp.sum(jnp.sin(jboost.predict(model, rows.data)))

    numbers, step = np.array([0.7, 0.0]), 1e-6
    value, found = total(numbers)
    up, down = (total(numbers + np.array([shift, 0.0]))[0] for shift in (step, -step))
    np.testing.assert_allclose(found[0], (up - down) / (2 * step), rtol=1e-5)
    beside = total(numbers + np.array([0.0, step]))[0]  # there is nothing below 0
    np.testing.assert_allclose(found[1], (beside - value) / step, rtol=1e-4)


def test_a_learned_link_is_applied_by_hand():
    rows = problem("plain")
    loss = linked(jnp.float32(0.5), 1.0)
    model, _ = jboost.fit(loss, rows.data, rows.targets["real"], spec=SMALL)
    score = jboost.predict(model, rows.data)
    with pytest.raises(RuntimeError, match=r"call link\(jboost.predict\(model, X\)\)"):
        model.inverse_link(score)
    fixed = losses.with_link(losses.squared_error, jnp.sinh)
    spec = Spec(n_estimators=0, max_depth=2)
    model, _ = jboost.fit(fixed, rows.data, rows.targets["real"], spec=spec, base_score=0.7)
    score = jboost.predict(model, rows.data)
    np.testing.assert_allclose(model.inverse_link(score), np.sinh(score), rtol=1e-6)


def test_they_pickle():
    for loss in (
        losses.general_robust_nll(0.3, 2.0),
        losses.class_balanced(losses.focal(1.0), [3, 4]),
        losses.with_link(losses.poisson, losses.monotone_link([0.0, 1.0], 0, 1)),
    ):
        restored = pickle.loads(pickle.dumps(loss))
        assert restored == loss
        assert hash(restored) == hash(loss)


# --- What is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: losses.general_robust(2.1), "shape must be between -inf and 2, -inf and 2 included"),
        (lambda: losses.general_robust(1.0, 0.0), "scale must be positive"),
        (lambda: losses.general_robust_nll(-0.1), "shape must be between 0 and 2, 0 and 2 included"),
        (lambda: losses.general_robust_nll(float("nan")), "shape must be"),
        (lambda: losses.linex(float("inf")), "rate must be"),
        (lambda: losses.expectile(1.0), "level must be"),
        (lambda: losses.asymmetric_huber(0.0), "asymmetry must be"),
        (lambda: losses.asymmetric_huber(0.5, -1.0), "delta must be"),
        (lambda: losses.focal(-1.0), "gamma must be"),
        (lambda: losses.softmax_focal(1), "n_classes must be"),
        (lambda: losses.class_balanced(losses.logistic, [3, 4], 1.5), "beta must be"),
        (lambda: losses.class_balanced(losses.logistic, [3, 0]), "counts must be at least 1"),
        (
            lambda: losses.class_balanced(losses.softmax(3), [3, 4]),
            "counts must have one entry for each of 3",
        ),
        (lambda: losses.class_balanced(losses.logistic, 3), "counts must hold"),
        (lambda: losses.class_balanced(losses.huber(), [3, 4]), "loss must not adapt"),
        (lambda: losses.with_link(losses.quantile(0.1), jnp.exp), "loss must have leaf=Newton"),
        (lambda: losses.monotone_link([0.0], 0, 1), "log_slopes must have shape"),
        (lambda: losses.monotone_link([0.0, np.nan], 0, 1), "log_slopes must be finite"),
        (lambda: losses.monotone_link([0.0, 1.0], 1, 1), "low must be below high"),
    ],
)
def test_numbers_out_of_range_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ANY.general_robust("1"), "shape must be a real number"),
        (lambda: ANY.general_robust(True), "shape must be a real number"),
        (lambda: ANY.focal(None), "gamma must be a real number"),
        (lambda: ANY.focal(np.ones(2)), "gamma must be a real number"),
        (lambda: ANY.class_balanced(jnp.square, [3, 4]), "loss must be a Loss"),
        (lambda: ANY.with_link(jnp.square, jnp.exp), "loss must be a Loss"),
        (lambda: ANY.with_link(losses.logistic, 3), "link must be a function"),
        (lambda: ANY.monotone_link([0, 0], "0", 1), "low must be a real number"),
    ],
)
def test_other_types_are_named(make: Any, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_a_traced_shape_without_a_loss_is_nan():
    found = jax.jit(lambda shape: losses.general_robust_nll(shape)(0.0, 1.0))(jnp.array(-0.1))
    assert np.isnan(found)
    assert np.isnan(jax.jit(lambda shape: losses.general_robust(shape, 1.0)(0.0, 1.0))(2.5))


def test_class_weights_ask_for_numbers_of_classes():
    y = np.linspace(-3, 3, 20)
    with pytest.raises(ValueError, match="y must hold the numbers of 2 classes"):
        jboost.fit(losses.class_balanced(losses.squared_error, [1, 2]), y[:, None], y)
    with pytest.raises(ValueError, match="y must hold the numbers of 3 classes"):
        jboost.fit(
            losses.class_balanced(Loss(lambda score, y: (score - y) ** 2), [1, 2, 3]),
            y[:, None],
            np.arange(20) % 4,
        )
