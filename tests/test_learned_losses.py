"""Losses with numbers that are learned: against naive formulas, quadrature and finite differences; their limits."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy import integrate, special

import jboost
from jboost import Hyper, Loss, Spec, losses
from jboost._runtime import programs
from jboost.losses.robust import partition
from jboost.losses.special import moment
from tests.of_rows import best_constant
from tests.twin import problem

SMALL = Spec(n_estimators=3, max_depth=2)
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
    found, slope = (jax.jit(jax.vmap(f))(shapes) for f in (partition, jax.grad(lambda a: jnp.log(partition(a)))))
    for shape, z in zip(shapes, found, strict=True):

        def density(v, shape=shape):  # of x = sinh(v), for tails as heavy as 1 / x^2
            return np.exp(-rho(np.sinh(v) ** 2, shape)) * np.cosh(v)

        parts = [integrate.quad(density, *ends, epsrel=1e-12)[0] for ends in ((0, 3), (3, 8), (8, 45))]
        np.testing.assert_allclose(z, 2 * sum(parts), rtol=1e-11)
    np.testing.assert_allclose(found[:: len(shapes) - 1], [np.sqrt(2) * np.pi, np.sqrt(2 * np.pi)], rtol=1e-14)
    bessel = 2 * np.e * special.kv(1, 1)  # Barron (2019), of a shape of 1
    np.testing.assert_allclose(found[3], bessel, rtol=1e-14)
    step = 1e-5
    up, down = (np.log(jax.vmap(partition)(shapes[1:-1] + sign * step)) for sign in (1, -1))
    np.testing.assert_allclose(slope[1:-1], (up - down) / (2 * step), rtol=1e-4)


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


def test_all_derivatives_are_finite_at_every_limit(precision):
    """By the score, the shape, the scale, and those of the gradient by the score."""
    largest = 1e6 if precision is np.float64 else 1e3  # beyond, the second derivative near 2 itself overflows
    residual = jnp.asarray(np.append(RESIDUAL, [1e-8, largest]))

    @jax.jit
    def everything(shape, scale):
        def value(shape, scale, r):
            plain = losses.general_robust(shape, scale).function(r, jnp.zeros_like(r))
            return plain + losses.general_robust_nll(jnp.maximum(shape, 0), scale).function(r, jnp.zeros_like(r))

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
        (losses.general_robust_nll, np.maximum(shape, 1e-9), 1.0),
    ):

        def taken(shape, r, make=make):
            loss = make(shape, 0.3)
            return jax.grad(loss.function)(r, 0.0), loss.curvature(r, 0.0) if loss.curvature else jnp.ones(())

        slope, h = jax.jit(jax.vmap(taken))(shapes, r)
        before, after = (factor * inside((one / 0.3) ** 2, shapes) for one in (r, r + step))
        assert (h > 0).all()
        assert (after <= before + slope * step + h * step**2 / 2 + 1e-9 * np.abs(before)).all()


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_the_target_do_not_matter(unit):
    rows = problem("plain")
    y = rows.targets["real"].copy()
    y[::25] *= 50
    for make in (lambda unit: losses.general_robust(0.5), lambda unit: losses.general_robust_nll(0.5, 0.5 * unit)):
        known, _ = jboost.fit(make(1.0), rows.data, y, spec=SMALL)
        found, _ = jboost.fit(make(unit), rows.data, unit * y, spec=SMALL)
        np.testing.assert_array_equal(found.trees.feature, known.trees.feature)
        expected = np.asarray(jboost.predict(known, rows.data))
        np.testing.assert_allclose(jboost.predict(found, rows.data) / unit, expected, rtol=1e-3, atol=1e-4)


def test_the_scale_follows_the_residuals():
    """The best constant of normal numbers with outliers, and the loss that the first round tells, by hand."""
    rng = np.random.default_rng(0)
    y = rng.normal(3.0, 2.0, 400)
    y[::20] = 1e4
    X = rng.normal(size=(400, 2))
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
        (losses.with_link(losses.logistic, losses.monotone_link(np.full(4, 0.3), -2, 2)), losses.logistic, LABEL),
        (losses.with_link(losses.huber(0.7), losses.monotone_link([0, 0], -2, 2)), losses.huber(0.7), RESIDUAL),
    ],
    ids=lambda value: value.name if isinstance(value, Loss) else "",
)
def test_special_cases(loss, same, y, x64):
    """Value, gradient, and the curvature that a fit takes."""
    score = jnp.asarray(SCORES if loss.n_outputs else SCORE)

    @jax.jit
    def everything(loss):
        value, g = jax.vmap(jax.value_and_grad(loss.function))(score, y)
        bare = loss if loss.hessian != "first_order" else None
        if loss.curvature is not None:
            h = jax.vmap(loss.curvature)(score, y)
        elif bare is None:
            h = jnp.ones_like(g)
        else:
            h = jax.vmap(jax.hessian(loss.function))(score, y)
            h = h if h.ndim == 1 else jnp.diagonal(h, axis1=1, axis2=2)
        return value, g, h

    for found, expected in zip(everything(loss), everything(same), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_moments_of_exponentials_are_integrals(k, precision):
    t = np.array([-80.0, -3.0, -1.0, -0.99, -1e-3, -1e-12, 0.0, 1e-9, 0.5, 1.0, 1.01, 20.0])
    expected = [integrate.quad(lambda s, t=one: s**k * np.exp(t * s), 0, 1, epsrel=1e-12)[0] for one in t]
    rtol = 2e-12 if precision is np.float64 else 3e-6
    np.testing.assert_allclose(jax.jit(lambda t: moment(k, t))(jnp.asarray(t)), expected, rtol=rtol)
