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
SMALL = Spec(n_estimators=5, max_depth=3)
pytestmark = pytest.mark.usefixtures("x64")


def model_of(models, i):
    """One model of a batch, bin edges included: `vmap` returns those once for each."""
    return jax.tree.map(lambda leaf: leaf[i], models)


@pytest.mark.parametrize("policy", POLICIES)
def test_jit_of_a_fit_equals_the_fit(policy):
    rows = problem("mixed")
    spec = dataclasses.replace(SMALL, grow_policy=policy)

    @jax.jit
    def fitted(data, y, weight, hyper):
        model, history = jboost.fit(losses.logistic, data, y, spec=spec, hyper=hyper, sample_weight=weight)
        return model, history.train_loss, jboost.predict(model, data)

    arguments = (rows.data, jnp.asarray(rows.targets["binary"]), jnp.asarray(rows.weight))
    model, train_loss, score = fitted(*arguments, Hyper(learning_rate=0.4))
    plain, history = jboost.fit(
        *(losses.logistic, *arguments[:2]),
        spec=spec,
        hyper=Hyper(learning_rate=0.4),
        sample_weight=arguments[2],
    )
    assert_same_models(model, plain)
    np.testing.assert_allclose(train_loss, history.train_loss, rtol=1e-9)
    np.testing.assert_allclose(score, jboost.predict(plain, rows.X), rtol=1e-9)


def test_vmap_over_numbers_equals_a_loop():
    rows = problem("mixed")
    y = jnp.asarray(rows.targets["real"])
    sweep = {
        "learning_rate": [0.1, 0.5, 0.3],
        "reg_lambda": [0.0, 1.0, 10.0],
        "reg_alpha": [0.0, 2.0, 0.1],
        "gamma": [0.0, 0.0, 5.0],
        "min_child_weight": [1.0, 20.0, 5.0],
        "max_delta_step": [0.0, 0.3, 0.0],
        "subsample": [1.0, 0.7, 0.5],
        "colsample_bytree": [1.0, 1.0, 0.5],
        "cat_smooth": [10.0, 1.0, 0.0],
    }
    key = jax.random.key(2)

    def fitted(numbers):
        hyper = Hyper(**numbers)
        return jboost.fit(losses.squared_error, rows.data, y, spec=SMALL, hyper=hyper, key=key)[0]

    models = jax.vmap(fitted)({name: jnp.array(values) for name, values in sweep.items()})
    for i in range(3):
        assert_same_models(model_of(models, i), fitted({name: values[i] for name, values in sweep.items()}))


def test_vmap_over_weights_and_keys_equals_a_loop():
    """Weights of zero make folds: three fits, each without a third of the rows."""
    rows = problem("mixed")
    y = jnp.asarray(rows.targets["class"])
    weights = jnp.asarray(rows.weight * (np.arange(400) % 3 != np.arange(3)[:, None]))
    keys = jax.random.split(jax.random.key(5), 3)
    spec, hyper = dataclasses.replace(SMALL, grow_policy="depthwise"), Hyper(subsample=0.8)

    def fitted(weight, key):
        return jboost.fit(
            losses.softmax(3), rows.data, y, spec=spec, hyper=hyper, sample_weight=weight, key=key
        )[0]

    models = jax.vmap(fitted)(weights, keys)
    assert not same_structure(model_of(models, 0), model_of(models, 1))
    for i in range(3):
        assert_same_models(model_of(models, i), fitted(weights[i], keys[i]))


@pytest.mark.parametrize("loss_and_target", [("squared_error", "real"), ("logistic", "binary")])
@pytest.mark.parametrize("policy", POLICIES)
def test_derivatives_of_a_validation_loss_through_the_whole_fit(policy, loss_and_target):
    """By the numbers of Hyper and by the sample weights, where the splits do not change.

    Base score, leaf values of every round and the gradients that later rounds start from all depend on them.
    """
    name, target = loss_and_target
    loss = getattr(losses, name)
    rows = problem("mixed")
    train, valid = rows.take(slice(0, 260)), rows.take(slice(260, 400))
    y, y_valid = jnp.asarray(train.targets[target]), jnp.asarray(valid.targets[target])
    spec = dataclasses.replace(SMALL, grow_policy=policy)
    names = ("learning_rate", "reg_lambda", "reg_alpha")

    def valid_loss(numbers, weight):
        hyper = Hyper(**dict(zip(names, numbers, strict=True)), subsample=0.8)
        model, _ = jboost.fit(
            loss, train.data, y, spec=spec, hyper=hyper, sample_weight=weight, key=jax.random.key(0)
        )
        return jax.vmap(loss)(jboost.predict(model, valid.data), y_valid).mean(), model

    at = (jnp.array([0.3, 1.5, 0.4]), jnp.asarray(train.weight))
    (by_numbers, by_weight), model = jax.jit(jax.grad(valid_loss, argnums=(0, 1), has_aux=True))(*at)
    value = jax.jit(valid_loss)
    rng = np.random.default_rng(0)
    directions = [(np.eye(3)[i], np.zeros(260)) for i in range(3)]
    directions += [(np.zeros(3), rng.normal(size=260)) for _ in range(2)]
    directions += [(np.zeros(3), (np.arange(260) == i).astype(float)) for i in (0, 100)]
    eps = 1e-5
    for direction in directions:
        ends = [value(*(x + sign * eps * d for x, d in zip(at, direction, strict=True))) for sign in (1, -1)]
        for _, moved in ends:
            assert same_structure(moved, model)
        difference = float(ends[0][0] - ends[1][0]) / (2 * eps)
        derivative = float(by_numbers @ direction[0] + by_weight @ direction[1])
        assert abs(difference) > 1e-6  # there is something to agree on
        np.testing.assert_allclose(derivative, difference, rtol=1e-5, atol=1e-9)


def test_a_traced_fit_takes_binned_rows_only():
    rows = problem("plain")
    y = jnp.asarray(rows.targets["real"])
    with pytest.raises(TypeError, match="Binned"):
        jax.jit(lambda X: jboost.fit(losses.squared_error, X, y, spec=SMALL)[0])(jnp.asarray(rows.X))
