"""The best constant against closed forms, scipy and NumPy; far starts; no minimum; its derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial
from scipy.optimize import minimize, minimize_scalar

from jboost import losses
from jboost._objective.differences import hessian_by_differences
from jboost.losses import Loss
from tests.of_rows import best_constant

N = 200
solve = jax.jit(best_constant, static_argnums=3)
RNG = np.random.default_rng(1)
WEIGHT = RNG.integers(0, 4, N).astype(float)
REAL = RNG.normal(2.0, 3.0, N)
BINARY = (RNG.uniform(size=N) < 0.2).astype(float)
COUNT = RNG.poisson(0.7, N).astype(float)
AMOUNT = RNG.gamma(0.5, 4.0, N)
LABEL = RNG.integers(0, 4, N)
TWO = np.stack([REAL, AMOUNT], axis=1)


def mean(y):
    return np.average(y, weights=WEIGHT, axis=0)


def quantile(y, level):
    return np.quantile(np.repeat(y, WEIGHT.astype(int)), level, method="averaged_inverted_cdf")


def gaussian(score, y):
    return 0.5 * ((y - score[0]) * jnp.exp(-score[1])) ** 2 + score[1]


GAUSSIAN = Loss(gaussian, n_outputs=2)
DEVIATION = np.sqrt(mean((REAL - mean(REAL)) ** 2))

CLOSED_FORMS = {
    "squared_error": (losses.squared_error, REAL, mean(REAL)),
    "squared_error_of_two": (losses.squared_error, TWO, mean(TWO)),
    "absolute_error": (losses.absolute_error, REAL, quantile(REAL, 0.5)),
    "quantile": (losses.quantile(0.9), REAL, quantile(REAL, 0.9)),
    "quantile_of_two": (losses.quantile(0.25), TWO, [quantile(column, 0.25) for column in TWO.T]),
    "logistic": (losses.logistic, BINARY, np.log(mean(BINARY) / (1 - mean(BINARY)))),
    "exponential": (losses.exponential, BINARY, np.log(mean(BINARY) / (1 - mean(BINARY))) / 2),
    "poisson": (losses.poisson, COUNT, np.log(mean(COUNT))),
    "gamma": (losses.gamma, AMOUNT, np.log(mean(AMOUNT))),
    "tweedie": (losses.tweedie(1.4), COUNT, np.log(mean(COUNT))),
    "gaussian": (GAUSSIAN, REAL, [mean(REAL), np.log(DEVIATION)]),
}


@pytest.mark.parametrize(("loss", "y", "expected"), CLOSED_FORMS.values(), ids=CLOSED_FORMS)
def test_closed_forms_with_weights(loss, y, expected):
    found = solve(loss, jnp.asarray(y), jnp.asarray(WEIGHT))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_precision_follows_jax(precision):
    found = solve(losses.gamma, jnp.asarray(AMOUNT), jnp.asarray(WEIGHT))
    assert found.dtype == precision
    np.testing.assert_allclose(found, np.log(mean(AMOUNT)), rtol=1e-12 if precision is np.float64 else 1e-5)


def test_softmax_gives_the_class_shares(precision):
    found = solve(losses.softmax(4), jnp.asarray(LABEL), jnp.asarray(WEIGHT))
    shares = np.bincount(LABEL, WEIGHT) / WEIGHT.sum()
    np.testing.assert_allclose(jax.nn.softmax(found), shares, rtol=5e-6)
    assert np.abs(found).max() < 3  # the flat direction has not been followed


def huber(r, delta):
    return np.where(np.abs(r) <= delta, r**2 / 2, delta * (np.abs(r) - delta / 2))


def pseudo_huber(r, delta):
    return delta**2 * (np.sqrt(1 + (r / delta) ** 2) - 1)


@pytest.mark.parametrize(
    ("loss", "formula", "delta"),
    [(losses.huber, huber, 0.5), (losses.pseudo_huber, pseudo_huber, 0.5), (losses.huber, huber, 100.0)],
)
def test_robust_losses_match_scipy(loss, formula, delta, x64):
    found: Any = minimize_scalar(lambda c: WEIGHT @ formula(c - REAL, delta), bracket=(-10, 10), tol=1e-12)
    np.testing.assert_allclose(solve(loss(delta), REAL, WEIGHT), found.x, atol=1e-6)


def with_one_derivative(function):
    """Give a loss a derivative that JAX cannot differentiate again, as one found by a loop until it is near enough."""
    slope = jax.grad(function)

    def back(given, ct):
        found = jax.lax.while_loop(
            lambda carry: carry[0] < 1, lambda carry: (carry[0] + 1, slope(*given)), (0, given[0])
        )
        return ct * found[1], jnp.zeros_like(given[1])

    loss = jax.custom_vjp(function)
    loss.defvjp(lambda score, y: (function(score, y), (score, y)), back)
    return Loss(loss, n_outputs=2 if function is gaussian else None, hessian="first_order")


def million(score, y):  # a million times the counts
    return jnp.exp(score) - 1e6 * y * score


def test_first_derivatives_alone_find_a_logarithm_and_its_derivative(x64):
    """Far from the start: exp(score) is 1 there, and a million where it ends."""
    counts = with_one_derivative(million)
    np.testing.assert_allclose(solve(counts, COUNT, WEIGHT), np.log(1e6 * mean(COUNT)), rtol=1e-9)
    slope = jax.jit(jax.grad(lambda weight: best_constant(counts, COUNT, weight)))(WEIGHT)
    np.testing.assert_allclose(slope, (COUNT / mean(COUNT) - 1) / WEIGHT.sum(), rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_first_derivatives_alone_find_two_outputs(x64):
    expected = [mean(REAL), np.log(mean((REAL - mean(REAL)) ** 2)) / 2]
    np.testing.assert_allclose(solve(with_one_derivative(gaussian), REAL, WEIGHT), expected, rtol=1e-7)


def test_differences_of_a_slope():
    """Of a linear slope they are its matrix, in units as different as these, and of an exponential near its own."""
    unit = jnp.array([1e-3, 1e6, 1.0])
    matrix = jnp.array([[2.0, 1.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 0.0]])
    for place in (jnp.zeros(3), 1 / unit):
        found = hessian_by_differences(lambda at: unit * (matrix @ (unit * at)), place, 10 * unit)
        np.testing.assert_allclose(found / jnp.outer(unit, unit), matrix, rtol=1e-3, atol=1e-3)
    grows = hessian_by_differences(lambda at: jnp.exp(at) - 1e6, jnp.zeros(1), jnp.array([1e6]))
    assert 1 < grows[0, 0] < 1e4  # a secant between places whose slopes differ by less than 1e6


@pytest.mark.slow
def test_two_coupled_outputs_and_a_pytree_match_scipy(x64):
    def function(score, y):
        location, log_scale = score
        return jnp.log(jnp.cosh((y["value"] - location - y["offset"]) * jnp.exp(-log_scale))) + log_scale

    loss = Loss(function, n_outputs=2)
    y = {"value": jnp.asarray(REAL), "offset": jnp.asarray(AMOUNT)}
    total = jax.jit(lambda c: jnp.sum(WEIGHT * jax.vmap(lambda row: function(c, row))(y)))
    expected = minimize(total, np.zeros(2), jac=jax.grad(total), tol=1e-12).x
    np.testing.assert_allclose(solve(loss, y, WEIGHT), expected, rtol=1e-5)


# --- Hard places --------------------------------------------------------------------------------------------


def of_first(score, y, loss):
    return loss(score, y[0])


def from_zero(loss):
    """Hide y in a tuple, so that the search has to start from 0; the numbers of the loss stay operands."""
    return Loss(Partial(of_first, loss=loss))


@pytest.mark.parametrize("delta", [1e-3, 1e3])
@pytest.mark.parametrize("hidden", [False, True], ids=["mean", "zero"])
def test_huber_far_from_the_start(delta, hidden):
    y = np.append(REAL[1:] * 1e3 + 1e6, 1e9)
    loss = losses.huber(delta)
    args = (from_zero(loss), (jnp.asarray(y),)) if hidden else (loss, jnp.asarray(y))
    found = float(solve(*args, jnp.ones(len(y))))
    slope = np.clip(found - y, -delta, delta).mean() / delta  # in units of its largest value
    assert abs(slope) <= 1.01 / len(y)


@pytest.mark.parametrize(
    "precision", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["x32", "x64"], indirect=True
)
def test_a_staircase_of_gradients(precision):
    y, weight = jnp.arange(float(N)) * 1e6, jnp.asarray(np.arange(N) < 5, float)
    np.testing.assert_allclose(solve(from_zero(losses.huber(1.0)), (y,), weight), 2e6, atol=1.0)


@pytest.mark.parametrize(
    "loss", [losses.poisson, losses.gamma, losses.tweedie(1.5)], ids=lambda loss: loss.name
)
def test_log_links_at_any_scale(loss):
    for scale in (1e-8, 1e-3, 1e3, 1e8):
        y = (AMOUNT + 0.1) * scale
        found = solve(loss, jnp.asarray(y), jnp.asarray(WEIGHT))
        np.testing.assert_allclose(np.exp(float(found)), mean(y), rtol=2e-5)


def test_squared_error_beside_a_large_offset():
    y = (REAL + 1e6).astype(np.float32)
    np.testing.assert_allclose(solve(losses.squared_error, y, WEIGHT), mean(y.astype(float)), rtol=1e-7)


@pytest.mark.parametrize(
    ("loss", "y", "prediction"),
    [
        (losses.poisson, np.zeros(N), 0),
        (losses.tweedie(1.5), np.zeros(N), 0),
        (losses.logistic, np.ones(N), 1),
        (losses.logistic, np.zeros(N), 0),
        (losses.exponential, np.ones(N), 1),
        (losses.softmax(4), np.zeros(N, int), [1, 0, 0, 0]),
        (losses.softmax(4), np.arange(N) % 2, [0.5, 0.5, 0, 0]),
    ],
)
def test_a_minimum_at_infinity_gives_a_finite_score(loss, y, prediction):
    found = solve(loss, jnp.asarray(y), jnp.ones(N))
    assert np.isfinite(found).all()
    assert np.abs(found).max() < 150
    np.testing.assert_allclose(loss.inverse_link(found), prediction, atol=1e-6)


def test_a_minimum_at_infinity_in_float64(x64):
    found = solve(losses.softmax(4), jnp.arange(N) % 2, jnp.ones(N))
    np.testing.assert_allclose(jax.nn.softmax(found), [0.5, 0.5, 0, 0], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "y", "_"), CLOSED_FORMS.values(), ids=CLOSED_FORMS)
def test_a_constant_target(loss, y, _):
    y = np.ones_like(y) * y[5]
    found = loss.inverse_link(solve(loss, jnp.asarray(y), jnp.asarray(WEIGHT)))
    if loss is GAUSSIAN:  # its likelihood has no maximum there
        assert np.isfinite(found).all()
    else:
        np.testing.assert_allclose(found, y[0], rtol=1e-5, atol=1e-6)


def test_rows_without_weight_do_not_count():
    logarithmic = Loss(lambda s, y: (s - jnp.log(y)) ** 2)
    for bad in (0.0, np.nan):
        y, weight = np.array([bad, 1.0, 3.0, 6.0]), np.array([0.0, 1.0, 2.0, 2.0])
        of_others = {losses.squared_error: 19 / 5, losses.absolute_error: 3, logarithmic: np.log(9 * 36) / 5}
        for loss, expected in of_others.items():
            found = solve(loss, jnp.asarray(y), jnp.asarray(weight))
            np.testing.assert_array_equal(found, solve(loss, y[[1, 1, 2, 3]], weight))
            np.testing.assert_allclose(found, expected, rtol=1e-6)


# --- Transformations ----------------------------------------------------------------------------------------

DIFFERENTIABLE = {
    **{name: CLOSED_FORMS[name][:2] for name in ("logistic", "gaussian")},
    "pseudo_huber": (losses.pseudo_huber(2.0), REAL),
    "softmax": (losses.softmax(4), LABEL),
}


@pytest.mark.parametrize(
    "name",
    # of formulas test_closed_constants.py says more
    [pytest.param(name, marks=() if name == "pseudo_huber" else pytest.mark.slow) for name in DIFFERENTIABLE],
)
def test_derivative_by_weights_matches_finite_differences(name, x64):
    loss, y = DIFFERENTIABLE[name]

    def prediction(weight):
        return jnp.sum(jnp.sin(loss.inverse_link(best_constant(loss, jnp.asarray(y), weight))))

    weight, step = jnp.asarray(WEIGHT), 1e-5
    told = jax.jit(jax.value_and_grad(prediction))
    grad = told(weight)[1]
    assert WEIGHT[[0, 4, 9]].min() == 0  # a weight of 0 has a derivative too
    for i in (0, 4, 9, 50):
        shift = step * (jnp.arange(N) == i)
        below = jnp.maximum(weight - shift, 0)
        slope = (told(weight + shift)[0] - told(below)[0]) / (weight + shift - below)[i]
        np.testing.assert_allclose(grad[i], slope, rtol=1e-4, atol=1e-8)


@pytest.mark.slow
def test_derivative_by_the_target_and_by_what_the_loss_closes_over(x64):
    @jax.jit
    def constant(y, power):
        loss = Loss(lambda score, y: jnp.abs(score - y) ** power)
        return best_constant(loss, y, jnp.asarray(WEIGHT))

    y, power, step = jnp.asarray(REAL), jnp.asarray(3.0), 1e-5
    by_y, by_power = jax.grad(constant, argnums=(0, 1))(y, power)
    slope = (constant(y, power + step) - constant(y, power - step)) / (2 * step)
    np.testing.assert_allclose(by_power, slope, rtol=1e-5)
    shift = step * (jnp.arange(N) == 7)
    slope = (constant(y + shift, power) - constant(y - shift, power)) / (2 * step)
    np.testing.assert_allclose(by_y[7], slope, rtol=1e-5)
    forward = jax.jvp(constant, (y, power), (jnp.zeros(N), jnp.ones(())))[1]
    np.testing.assert_allclose(forward, by_power, rtol=1e-9)


def test_second_derivative_matches_finite_differences(x64):
    """Of the Poisson deviance with an exposure: c = log(sum w y / sum w exposure)."""

    @jax.jit
    def constant(exposure_power, weight):
        exposure = jnp.asarray(AMOUNT + 1.0) ** exposure_power
        loss = Loss(lambda score, y: jnp.exp(score) * y["exposure"] - y["count"] * score)
        return best_constant(loss, {"count": jnp.asarray(COUNT), "exposure": exposure}, weight)

    def closed_form(power, weight):
        return jnp.log(jnp.sum(weight * COUNT) / jnp.sum(weight * (AMOUNT + 1.0) ** power))

    def told(f):
        """The slope, its derivatives in reverse, by the power and by the weights, and the first of them forward."""
        slope, (twice, mixed) = jax.value_and_grad(jax.grad(f), argnums=(0, 1))(0.7, jnp.asarray(WEIGHT))
        return jnp.stack([slope, twice, jax.jacfwd(jax.grad(f))(0.7, jnp.asarray(WEIGHT))]), mixed

    (found, mixed), (expected, expected_mixed) = (
        jax.jit(lambda f=f: told(f))() for f in (constant, closed_form)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    np.testing.assert_allclose(mixed, expected_mixed, rtol=1e-7, atol=1e-12)


@pytest.mark.slow
def test_derivative_of_coupled_outputs(x64):
    """The softmax of equal classes has a flat direction and equal eigenvalues; here its tilt is traced."""

    def curved(shares):
        return jnp.sum(jnp.sin(3 * shares))

    def found(tilt):
        loss = Loss(lambda score, y: losses.softmax(4)(score + tilt * jnp.arange(4.0), y), n_outputs=4)
        return curved(jax.nn.softmax(best_constant(loss, jnp.arange(8) % 4, jnp.ones(8))))

    def closed_form(tilt):
        return curved(jax.nn.softmax(-tilt * jnp.arange(4.0)))

    for order in (lambda f: f, jax.grad, jax.jacfwd):
        np.testing.assert_allclose(*(jax.jit(order(f))(0.4) for f in (found, closed_form)), rtol=1e-8)


def test_traced_integers_in_the_closure(x64):
    """A derivative taken of a compiled function, whose loss closes over its arguments."""

    @jax.jit
    def constant(offset, table, label):
        loss = Loss(lambda score, y: (score - offset * table[y]) ** 2)
        return best_constant(loss, label, jnp.asarray(WEIGHT))

    table, label = jnp.array([3, 1, 4, 1]), jnp.asarray(LABEL)
    expected = mean(np.asarray(table)[LABEL])
    told = jax.vmap(jax.value_and_grad(constant), (0, None, None))(jnp.array([1.0, 2.0]), table, label)
    np.testing.assert_allclose(told, [[expected, 2 * expected], [expected, expected]], rtol=1e-12)


def test_without_derivatives_the_loss_is_traced_once_in_the_loop_and_nowhere_else():
    def function(score, y):
        return jnp.tan(score - y) ** 2

    program = jax.make_jaxpr(lambda y, w: best_constant(Loss(function), y, w))(jnp.zeros(9), jnp.ones(9))
    sites = [str(equation).count(" tan ") for equation in program.eqns]
    loops = [equation.primitive.name for equation, count in zip(program.eqns, sites, strict=True) if count]
    assert loops == ["while"]


def test_vmap_over_weights_equals_a_loop():
    weights, loss, y = RNG.uniform(size=(3, N)), losses.softmax(4), jnp.asarray(LABEL)
    together = jax.jit(jax.vmap(lambda weight: best_constant(loss, y, weight)))(weights)
    np.testing.assert_allclose(together, [solve(loss, y, weight) for weight in weights], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "loss",
    [losses.logistic, pytest.param(losses.absolute_error, marks=pytest.mark.slow)],
    ids=lambda loss: loss.name,
)
def test_rows_spread_over_devices(loss):
    def part(y, weight):
        return best_constant(loss, y, weight, lambda x: jax.lax.psum(x, "device"))

    y, weight = jnp.asarray(BINARY).reshape(4, -1), jnp.asarray(WEIGHT).reshape(4, -1)
    whole = solve(loss, jnp.asarray(BINARY), jnp.asarray(WEIGHT))
    parts = jax.jit(jax.vmap(part, axis_name="device"))(y, weight)
    np.testing.assert_allclose(parts, np.full(4, whole), rtol=1e-6)


def test_a_quantile_leaf_rule_needs_one_value_for_each_score():
    with pytest.raises(ValueError, match="y must be one array with a value per score"):
        best_constant(
            Loss(lambda s, y: jnp.abs(s - y[0]), leaf=losses.Quantile()), (jnp.zeros(3),), jnp.ones(3)
        )
