"""Best constants by formula: against the search, NumPy and each other's derivatives; on devices; and a user's own."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from jax.tree_util import Partial

import jboost
from jboost import losses
from jboost.losses import Loss
from tests.of_rows import best_constant, rows_of

N = 120
RNG = np.random.default_rng(4)
REAL = RNG.normal(2.0, 3.0, N)
BINARY = (RNG.uniform(size=N) < 0.2).astype(float)
COUNT = RNG.poisson(0.7, N).astype(float)
AMOUNT = RNG.gamma(0.5, 4.0, N) + 0.01
SHARE = RNG.uniform(size=N) ** 3
LABEL = RNG.integers(0, 3, N)


def shares(y, weight):
    return np.bincount(LABEL, weight) / weight.sum()


def mean(y, weight):
    return np.average(y, weights=weight, axis=0)


# loss, y, whether y has a unit, prediction by NumPy
CASES = {
    "squared_error": (losses.squared_error, REAL, True, mean),
    "squared_error_of_two": (losses.squared_error, np.stack([REAL, AMOUNT], 1), True, mean),
    "logistic": (losses.logistic, BINARY, False, mean),
    "logistic_of_shares": (losses.logistic, SHARE, False, mean),
    "logistic_of_two": (losses.logistic, np.stack([BINARY, 1 - SHARE], 1), False, mean),
    "exponential": (losses.exponential, BINARY, False, mean),
    "poisson": (losses.poisson, COUNT, True, mean),
    "gamma": (losses.gamma, AMOUNT, True, mean),
    "tweedie": (losses.tweedie(1.4), COUNT, True, mean),
    "tweedie_of_amounts": (losses.tweedie(1.7), AMOUNT, True, mean),
    "softmax": (losses.softmax(3), LABEL, False, shares),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
WEIGHTS = {
    "fractions": RNG.uniform(size=N),
    "some_zero": RNG.integers(0, 4, N).astype(float),
    "tiny": RNG.uniform(size=N) * 1e-6 / N,
    "huge": RNG.uniform(size=N) * 1e6,
}
solve = jax.jit(best_constant)


def search(loss):
    return replace(loss, constant=None)


def prediction(loss, y, weight):
    return loss.inverse_link(best_constant(loss, y, weight))


# --- Values -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@each_case
@pytest.mark.parametrize("weight", WEIGHTS.values(), ids=WEIGHTS)
def test_values_are_those_of_numpy_and_of_the_search(case, weight, precision):
    loss, y, has_unit, oracle = case
    rtol = 1e-12 if precision is np.float64 else 1e-6
    for unit in (1e-6, 1.0, 1e6) if has_unit else (1.0,):
        scaled = y * unit if has_unit else y
        found = solve(loss, jnp.asarray(scaled), jnp.asarray(weight))
        assert found.dtype == precision
        expected = oracle(scaled, weight)
        np.testing.assert_allclose(loss.inverse_link(found), expected, rtol=10 * rtol)
        searched = loss.inverse_link(solve(search(loss), jnp.asarray(scaled), jnp.asarray(weight)))
        np.testing.assert_allclose(loss.inverse_link(found), searched, rtol=100 * rtol)


@each_case
def test_the_gradient_at_the_constant_is_negligible(case, x64):
    """The first-order condition, by the loss itself."""
    loss, y, _, _ = case
    weight = WEIGHTS["some_zero"]
    constant = solve(loss, jnp.asarray(y), weight)
    g = jax.vmap(jax.grad(loss.function), (None, 0))(constant, jnp.asarray(y))
    np.testing.assert_allclose(weight @ g, 0, atol=1e-11 * (weight @ np.abs(g)).max())


def test_no_search_is_compiled_without_an_offset():
    def loops(offset):
        rows = replace(rows_of(COUNT), offset=offset)
        return str(jax.make_jaxpr(lambda: jboost.best_constant(losses.poisson, rows))()).count("while[")

    assert loops(None) == 0
    assert loops(jnp.zeros((N, 1))) > 0


@pytest.mark.parametrize("value", [0.1, 1e6 + 1 / 3, -7e-12])
def test_a_constant_target_leaves_no_residual(value, precision):
    y = np.full(N, value, precision)
    for weight in WEIGHTS.values():
        assert solve(losses.squared_error, jnp.asarray(y), jnp.asarray(weight)) == y[0]


def test_a_rare_class_keeps_its_digits():
    """1 - mean(y) would have none left."""
    y = np.ones(1_000_000, np.float32)
    y[7] = 0
    expected = np.log(y.size - 1.0)
    np.testing.assert_allclose(solve(losses.logistic, jnp.asarray(y), jnp.ones(y.size)), expected, rtol=1e-6)


def test_rows_without_weight_do_not_count_even_if_missing():
    y, weight = np.array([np.nan, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 2.0])
    for loss in (losses.squared_error, losses.logistic, losses.poisson, losses.tweedie(1.5)):
        found = solve(loss, jnp.asarray(y), jnp.asarray(weight))
        np.testing.assert_array_equal(found, solve(loss, jnp.asarray(y[[1, 1, 2, 3]]), jnp.asarray(weight)))
        by_weight = jax.jit(jax.grad(best_constant, 2))(loss, jnp.asarray(y), jnp.asarray(weight))
        assert np.isfinite(by_weight).all()


# --- Derivatives --------------------------------------------------------------------------------------------


CONTINUOUS = ["squared_error", "logistic_of_shares", "poisson", "gamma", "tweedie_of_amounts"]


QUICK = ("poisson", "softmax")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in (*CONTINUOUS, "exponential", "softmax")
    ],
)
def test_derivatives_are_those_of_the_implicit_function(name, x64):
    """First and second ones, by weights and by targets, unless these are classes."""
    loss, y, _, _ = CASES[name]
    args = (jnp.asarray(y), jnp.asarray(WEIGHTS["some_zero"]))
    which = (0, 1) if name in CONTINUOUS else (1,)
    along = tuple(jnp.asarray(RNG.normal(size=N)) for _ in which)

    def shares_of_classes(y, weight):
        return jnp.stack([weight @ (y == j) for j in range(3)]) / weight.sum()

    def derivatives(predict):
        def curved(*args):
            return jnp.sum(jnp.sin(1 + predict(*args)))

        def slope(*args):
            return sum(map(jnp.vdot, along, jax.grad(curved, which)(*args)))

        return jax.jit(lambda: (jax.grad(curved, which)(*args), jax.grad(slope, which)(*args)))()

    found = derivatives(partial(prediction, loss))
    expected = derivatives(shares_of_classes if name == "softmax" else partial(prediction, search(loss)))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.abs(one).max() > 1e-6
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9 * np.abs(other).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (losses.poisson, np.zeros(20)),
        (losses.tweedie(1.5), np.zeros(20)),
        (losses.logistic, np.ones(20)),
        (losses.logistic, np.zeros(20)),
        (losses.exponential, np.ones(20)),
        (losses.softmax(3), np.zeros(20, int)),
        (losses.softmax(3), np.arange(20) % 2),
    ],
)
def test_at_infinity_scores_are_finite_and_predictions_have_their_derivative(loss, y, precision):
    """By the weight of a row that has none, in whose target there is what the others lack."""
    y, weight = np.append(y, 2 if loss.n_outputs else 1 - y[0]), np.append(np.ones(20), 0.0)
    constant, searched = solve(loss, y, weight), solve(search(loss), y, weight)
    assert np.abs(constant).max() < 100
    tolerance = 1e-12 if precision is np.float64 else 1e-6
    np.testing.assert_allclose(loss.inverse_link(constant), loss.inverse_link(searched), atol=tolerance)

    def of_the_rare(weight):  # the other one is rounded to 1, and has no derivative
        score = best_constant(loss, y, weight)
        return loss.inverse_link(score)[2] if loss.n_outputs else loss.inverse_link(-score if y[0] else score)

    np.testing.assert_allclose(jax.jit(jax.grad(of_the_rare))(weight)[-1], 1 / 20, rtol=1e-5)


# --- Transformations and devices ----------------------------------------------------------------------------


@pytest.mark.slow
@each_case
def test_vmap_over_weights_equals_a_loop(case):
    loss, y, _, _ = case
    weights = jnp.asarray(RNG.uniform(size=(3, N)))
    together = jax.jit(jax.vmap(lambda weight: best_constant(loss, jnp.asarray(y), weight)))(weights)
    np.testing.assert_array_equal(together, [solve(loss, jnp.asarray(y), weight) for weight in weights])


DEVICES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from jboost import losses
from jboost._objective.base_score import best_constant
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows

rng = np.random.default_rng(0)
n, mesh = 8 * 40, jax.make_mesh((8,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
weight = jnp.asarray(rng.integers(0, 3, n) + rng.uniform(size=n), jnp.float32)
targets = {
    losses.squared_error: rng.normal(size=(n, 2)), losses.poisson: rng.poisson(0.7, n) + 0.0,
    losses.logistic: rng.uniform(size=n), losses.softmax(3): rng.integers(0, 3, n),
}
for loss, y in targets.items():
    y, loss = jnp.asarray(y), resolve(loss, y).loss

    def part(y, weight):
        return best_constant(loss, Rows(y, weight), lambda x: jax.lax.psum(x, "rows"))

    whole = lambda y, weight: best_constant(loss, Rows(y, weight))
    shared = jax.shard_map(part, mesh=mesh, in_specs=P("rows"), out_specs=P())
    both = lambda f: jax.jit(lambda y, weight: (f(y, weight), jax.jacobian(f, 1)(y, weight)))(y, weight)
    (constant, by_weight), (expected, derivative) = both(shared), both(whole)
    np.testing.assert_array_equal(constant, expected)
    np.testing.assert_allclose(by_weight, derivative, rtol=1e-4, atol=1e-7)
print("same")
"""


@pytest.mark.slow
@pytest.mark.parametrize("with_library", ["0", "1"], ids=["plain", "native"])
def test_rows_on_eight_devices_give_the_same_bits(with_library):
    assert native_library.run_script(DEVICES, devices=8, JBOOST_NATIVE=with_library) == "same"


# --- A user's own -------------------------------------------------------------------------------------------


def power_mean(score, y, power):
    return 0.5 * (score - y**power) ** 2


def mean_of_power(y, mean, power):
    return mean(y**power)


def made(power):
    return Loss(Partial(power_mean, power=power), constant=Partial(mean_of_power, power=power), name="power")


def normal(score, y):
    return 0.5 * ((y - score[0]) * jnp.exp(-score[1])) ** 2 + score[1]


def mean_and_log_deviation(y, mean):
    centre = mean(y)
    return jnp.stack([centre, 0.5 * jnp.log(mean((y - centre) ** 2))])


@pytest.mark.slow
def test_a_loss_of_ones_own_brings_a_formula(x64):
    for loss, y in ((made(1.5), AMOUNT), (Loss(normal, 2, constant=mean_and_log_deviation), REAL)):
        weight = jnp.asarray(WEIGHTS["some_zero"])
        for order in (lambda f: f, jax.jacobian):
            found, expected = (
                jax.jit(order(lambda w, one=one: best_constant(one, jnp.asarray(y), w)))(weight)  # noqa: B023
                for one in (loss, search(loss))
            )
            np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_its_numbers_are_operands_and_have_derivatives(x64):
    traces = []

    @jax.jit
    def constant(loss):
        traces.append(None)
        return best_constant(loss, jnp.asarray(AMOUNT), jnp.ones(N))

    step = 1e-6
    values = [constant(made(1.5 + shift)) for shift in (-step, step)]
    assert len(traces) == 1
    by_power = jax.grad(lambda power: constant(made(power)))(1.5)
    np.testing.assert_allclose(by_power, (values[1] - values[0]) / (2 * step), rtol=1e-6)


def test_a_fit_starts_from_it_and_its_loss_pickles():
    X = REAL[:, None]
    loss = pickle.loads(pickle.dumps(made(2.0)))
    assert loss == made(2.0) != search(loss)
    model, _ = jboost.fit(loss, X, AMOUNT, spec=jboost.Spec(n_estimators=2, max_depth=2))
    np.testing.assert_allclose(model.base, [np.mean(AMOUNT**2)], rtol=1e-6)
    exported = jboost.io.export(model)
    np.testing.assert_allclose(exported.call(X.astype(np.float32)), jboost.predict(model, X), rtol=1e-6)


def test_one_number_serves_all_outputs():
    both = Loss(lambda s, y: jnp.sum((s - y) ** 2), n_outputs=2, constant=lambda y, mean: mean(y))
    np.testing.assert_allclose(best_constant(both, REAL, jnp.ones(N)), np.full(2, REAL.mean()), rtol=1e-6)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y, mean: None,
        lambda y, mean: y,
        lambda y, mean: jnp.ones(2),
        lambda y, mean: jnp.ones((), int),
        lambda y: y,
        lambda y, mean: mean(mean(y)),
        lambda y, mean: 1.0 if mean(y) > 0 else 2.0,
    ],
)
def test_formulas_of_another_form_are_named(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^constant must be"):
        jboost.fit(Loss(lambda s, y: (s - y) ** 2, constant=wrong), REAL[:, None], REAL)


def test_what_is_no_function_is_refused():
    with pytest.raises(TypeError, match=r"^constant must be callable or None, got 3"):
        Loss(lambda s, y: (s - y) ** 2, constant=3)  # pyright: ignore[reportArgumentType]


def test_a_constant_that_is_not_finite_is_named():
    X = np.arange(20.0)[:, None]
    loss = jboost.Loss(losses.squared_error.function, constant=lambda y, mean: jnp.log(mean(y) - 100))
    with pytest.raises(ValueError, match=r"constant must return a finite score, got \[nan\]"):
        jboost.fit(loss, X, X[:, 0])
    whole = jboost.Loss(losses.squared_error.function, constant=lambda y, mean: 3)
    with pytest.raises(ValueError, match=r"constant\(y, mean\) -> scalar or \[k\], of floats of shape"):
        jboost.fit(whole, X, X[:, 0])
