"""Derivatives of derivatives through a fit, against finite differences of first derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses

N = 60


def normal(score, y):
    mean, log_scale = score
    return 0.5 * ((y - mean) * jnp.exp(-log_scale)) ** 2 + log_scale


LOSSES = {
    "squared_error": losses.squared_error,
    "logistic": losses.logistic,
    "softmax": losses.softmax(3),
    "a loss whose base score is searched for": jboost.Loss(normal, n_outputs=2),
    "absolute_error": losses.absolute_error,
}


def risk_of(loss, in_validation):
    """Return the mean loss after three rounds as a function of numbers and weights, of held-out rows if asked for."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    y = 2 * X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.normal(size=N)
    y = {"logistic": y > 0, "softmax(3)": np.digitize(y, [0, 2])}.get(loss.name, y).astype(float)
    data, spec = jboost.bin_features(X, max_bins=8), Spec(n_estimators=3, max_depth=1)

    def risk(rate, penalty, weight):
        options = {"spec": spec, "hyper": Hyper(learning_rate=rate, reg_lambda=penalty)}
        if in_validation:
            held = jboost.bin_features(X[:20], edges=data.edges), y[:20]
            return jboost.fit(loss, data, y, sample_weight=weight, valid=held, **options)[1].valid_metric[-1]
        model, _ = jboost.fit(loss, data, y, sample_weight=weight, **options)
        value = jax.vmap(loss.function)(jboost.predict(model, data), jnp.asarray(y))
        return jnp.mean(value)

    return risk


# Twins of one definition: a few of them say as much as all.
CASES = [
    ("squared_error", False, False),
    pytest.param("logistic", True, False, marks=pytest.mark.slow),
    pytest.param("softmax", False, False, marks=pytest.mark.slow),
    pytest.param("a loss whose base score is searched for", True, False, marks=pytest.mark.slow),
    pytest.param("absolute_error", False, False, marks=pytest.mark.slow),
    pytest.param("squared_error", True, True, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "in_validation", "plain"), CASES)
def test_the_second_derivative_is_that_of_the_first(name, in_validation, plain):
    loss = LOSSES[name]
    with jax.enable_x64(True), jboost.plain_jax(plain):
        rng = np.random.default_rng(1)
        at = (jnp.array(0.3), jnp.array(1.0), jnp.asarray(rng.uniform(0.5, 1.5, N)))
        along = (jnp.array(1.0), jnp.array(0.5), 0.3 * jnp.asarray(rng.normal(size=N)))
        gradient = jax.grad(risk_of(loss, in_validation), argnums=(0, 1, 2))

        def slope(*place):
            return sum(jnp.vdot(g, a) for g, a in zip(gradient(*place), along, strict=True))

        @jax.jit  # one program for all there is to compare
        def derivatives(*place):
            return *jax.jvp(gradient, place, along), jax.grad(slope, argnums=(0, 1, 2))(*place)

        _, by_forward_mode, found = derivatives(*at)
        step = 1e-5
        ahead, behind = (
            derivatives(*(a + sign * step * v for a, v in zip(at, along, strict=True)))[0] for sign in (1, -1)
        )
        for one, other, up, down in zip(found, by_forward_mode, ahead, behind, strict=True):
            expected = (up - down) / (2 * step)
            size = np.abs(expected).max() + 1e-8
            np.testing.assert_allclose(one, expected, rtol=0, atol=2e-6 * size)
            np.testing.assert_allclose(other, expected, rtol=0, atol=2e-6 * size)
