"""A whole fit inside jit, vmap and grad: the numbers of plain fits, and of finite differences."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from tests.twin import assert_same_models, problem, same_structure

POLICIES = ["symmetric", "depthwise"]
SMALL = Spec(n_estimators=4, max_depth=2)
pytestmark = pytest.mark.usefixtures("x64")


def logistic_fit(weight=None, policy="symmetric", **options):
    """Fit the problem's binary target; all plain fits of a policy share one compiled program."""
    rows = problem("mixed")
    spec = dataclasses.replace(SMALL, grow_policy=policy)
    return jboost.fit(
        *(losses.logistic, rows.data, rows.targets["binary"]), spec=spec, sample_weight=weight, **options
    )


def model_of(models, i):
    """One model of a batch, bin edges included: `vmap` returns those once for each."""
    return jax.tree.map(lambda leaf: leaf[i], models)


def test_jit_of_a_fit_equals_the_fit():
    rows = problem("mixed")

    @jax.jit
    def fitted(data, y, weight, hyper):
        model, history = jboost.fit(losses.logistic, data, y, spec=SMALL, hyper=hyper, sample_weight=weight)
        return model, history.train_loss, jboost.predict(model, data)

    hyper = Hyper(learning_rate=0.4)
    model, train_loss, score = fitted(rows.data, rows.targets["binary"], rows.weight, hyper)
    plain, history = logistic_fit(rows.weight, hyper=hyper)
    assert_same_models(model, plain)
    np.testing.assert_allclose(train_loss, history.train_loss, rtol=1e-9)
    np.testing.assert_allclose(score, jboost.predict(plain, rows.X), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [bool, jnp.uint8, jnp.int32])
def test_jit_of_a_fit_may_close_over_arrays_of_jax(dtype):
    rows = problem("mixed")
    y, weight = jnp.asarray(rows.targets["binary"], dtype), jnp.asarray(rows.weight, jnp.int32)

    def fitted(hyper):
        return jboost.fit(losses.logistic, rows.data, y, spec=SMALL, hyper=hyper, sample_weight=weight)[0]

    hyper = Hyper(learning_rate=0.4)
    plain = logistic_fit(np.asarray(weight), hyper=hyper)[0]
    assert_same_models(jax.jit(fitted)(hyper), plain)
    inside = jax.jit(lambda x: x + jboost.predict(fitted(hyper), rows.X))(
        1.0
    )  # where nothing of the fit is traced
    np.testing.assert_allclose(inside, 1.0 + jboost.predict(plain, rows.X), rtol=1e-12)


def test_vmap_over_numbers_equals_a_loop():
    sweep = {
        "learning_rate": [0.1, 0.5, 0.3],
        "reg_lambda": [0.0, 1.0, 10.0],
        "reg_alpha": [0.0, 2.0, 0.1],
        "gamma": [0.0, 0.0, 1.0],
        "min_child_weight": [1.0, 10.0, 5.0],
        "max_delta_step": [0.0, 0.3, 0.0],
        "subsample": [1.0, 0.7, 0.5],
        "colsample_bytree": [1.0, 1.0, 0.5],
        "cat_smooth": [10.0, 1.0, 0.0],
    }
    models = jax.jit(jax.vmap(lambda numbers: logistic_fit(hyper=Hyper(**numbers))[0]))(
        {name: jnp.array(values) for name, values in sweep.items()}
    )
    for i in range(3):
        numbers = {name: values[i] for name, values in sweep.items()}
        assert_same_models(model_of(models, i), logistic_fit(hyper=Hyper(**numbers))[0])


@pytest.mark.slow
def test_vmap_over_weights_and_keys_equals_a_loop():
    """Weights of zero make folds: three fits, each without a third of the rows."""
    weights = jnp.asarray(problem("mixed").weight * (np.arange(400) % 3 != np.arange(3)[:, None]))
    keys = jax.random.split(jax.random.key(5), 3)

    def fitted(weight, key):
        return logistic_fit(weight, "depthwise", hyper=Hyper(subsample=0.8), key=key)[0]

    models = jax.jit(jax.vmap(fitted))(weights, keys)
    assert not same_structure(model_of(models, 0), model_of(models, 1))
    for i in range(3):
        assert_same_models(model_of(models, i), fitted(weights[i], keys[i]))


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_derivatives_of_a_validation_loss_through_the_whole_fit(policy):
    """By the numbers of Hyper and by the weights, against differences of plain fits with the same splits.

    Base score, leaf values of every round and the gradients that later rounds start from all depend on them.
    """
    rows = problem("mixed")
    shift = np.array([0.1, 0.1, 0.1, 0.0, 0.0])
    valid = jboost.bin_features(rows.X[::-1] + shift, edges=rows.data.edges)
    y_valid = jnp.asarray(rows.targets["binary"][::-1].copy())

    def valid_loss(numbers, weight):
        learning_rate, reg_lambda, reg_alpha = numbers
        hyper = Hyper(learning_rate=learning_rate, reg_lambda=reg_lambda, reg_alpha=reg_alpha, subsample=0.8)
        model, _ = logistic_fit(weight, policy, hyper=hyper, key=jax.random.key(0))
        return jax.vmap(losses.logistic)(jboost.predict(model, valid), y_valid).mean(), model

    at = (jnp.array([0.3, 1.5, 0.4]), jnp.asarray(rows.weight))
    (by_numbers, by_weight), model = jax.jit(jax.grad(valid_loss, argnums=(0, 1), has_aux=True))(*at)
    rng = np.random.default_rng(0)
    directions = [(np.eye(3)[i], np.zeros(400)) for i in range(3)]
    directions += [(np.zeros(3), rng.normal(size=400)) for _ in range(2)]
    directions += [(np.zeros(3), (np.arange(400) == i).astype(float)) for i in (0, 100)]
    eps = 1e-5
    for direction in directions:
        ends = [
            valid_loss(*(x + sign * eps * d for x, d in zip(at, direction, strict=True))) for sign in (1, -1)
        ]
        assert all(same_structure(moved, model) for _, moved in ends)
        difference = float(ends[0][0] - ends[1][0]) / (2 * eps)
        derivative = float(by_numbers @ direction[0] + by_weight @ direction[1])
        assert abs(difference) > 1e-6  # there is something to agree on
        np.testing.assert_allclose(derivative, difference, rtol=1e-5, atol=1e-9)


def test_a_traced_fit_takes_binned_rows_only():
    rows = problem("plain")
    y = jnp.asarray(rows.targets["real"])
    with pytest.raises(TypeError, match="Binned"):
        jax.jit(lambda X: jboost.fit(losses.squared_error, X, y, spec=SMALL)[0])(jnp.asarray(rows.X))


@pytest.mark.slow
def test_a_loss_with_learned_parameters_is_differentiated_through_the_fit():
    """The only traced value is one that the loss closes over."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + rng.normal(size=200)
    data, spec = jboost.bin_features(X, max_bins=31), jboost.Spec(n_estimators=4, max_depth=2)

    def risk(weight_above):
        def loss(score, target):
            return jnp.where(target > score, weight_above, 1.0) * (target - score) ** 2

        model, _ = jboost.fit(loss, data, y, spec=spec)
        return jnp.mean((jboost.predict(model, data) - y) ** 2)

    with jax.enable_x64(True):
        data = jboost.bin_features(X, max_bins=31)
        both, eps = jax.jit(jax.value_and_grad(risk)), 1e-5  # one program for values and slopes
        slope, difference = float(both(3.0)[1]), float(both(3.0 + eps)[0] - both(3.0 - eps)[0]) / (2 * eps)
    assert abs(slope - difference) < 1e-6 * abs(difference) + 1e-8
    assert slope != 0


@pytest.mark.slow
def test_a_concrete_fit_inside_a_trace_stays_concrete():
    X = np.linspace(-1, 1, 100)[:, None]
    spec = jboost.Spec(n_estimators=3, max_depth=2)
    outside, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=spec)

    @jax.jit
    def inside(offset):
        model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=spec)
        return jboost.predict(model, X) + offset

    np.testing.assert_array_equal(inside(0.0), jboost.predict(outside, X))
