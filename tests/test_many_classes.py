"""Second derivatives of many outputs by a formula: those of automatic differentiation, in one pass."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import BatchLoss, Spec, losses
from jboost.losses import Loss
from jboost.losses.standard import FEW
from tests.of_rows import raw_value_grad_hess

N, K = 80, 8
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3))
LABEL = np.argmax(X @ RNG.normal(size=(3, K)) + RNG.gumbel(size=(N, K)), axis=1)
SCORES = RNG.normal(size=(N, K)) * 3
SMALL = Spec(n_estimators=2, max_depth=2)
SOFTMAX = losses.softmax(K)
BY_AUTODIFF = replace(SOFTMAX, diagonal=None)


def test_the_formula_is_the_second_derivative(precision):
    rtol, atol = (1e-10, 1e-14) if precision is np.float64 else (2e-5, 2e-6)
    found = raw_value_grad_hess(SOFTMAX, jnp.asarray(SCORES), jnp.asarray(LABEL))
    expected = raw_value_grad_hess(BY_AUTODIFF, jnp.asarray(SCORES), jnp.asarray(LABEL))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == precision
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("size", [0.0, 30.0, 1e4])
def test_extreme_scores_give_finite_ones(size):
    scores = jnp.full((N, K), -size, jnp.float32).at[:, 1].set(size)
    h = raw_value_grad_hess(SOFTMAX, scores, jnp.asarray(LABEL))[2]
    assert np.isfinite(h).all()
    assert np.min(h) >= 0


@pytest.mark.parametrize(("n_classes", "loops"), [(FEW, 1), (FEW + 1, 0), (300, 0)])
def test_one_pass_from_many_classes_on(n_classes, loops):
    program = jax.make_jaxpr(raw_value_grad_hess)(
        losses.softmax(n_classes), jnp.zeros((4, n_classes)), jnp.zeros(4)
    )
    assert str(program).count("scan[") == loops


@pytest.mark.slow
def test_a_full_hessian_has_the_formula_on_its_diagonal_only():
    """And a loss of the same function, without the formula, gives the same model up to rounding."""
    y = jnp.asarray(LABEL)
    full = [
        replace(SOFTMAX, hessian="full"),
        Loss(SOFTMAX.function, n_outputs=K, hessian="full", inverse_link=SOFTMAX.inverse_link),
    ]
    one, other = (jboost.predict(jboost.fit(loss, X, y, spec=SMALL)[0], X) for loss in full)
    np.testing.assert_allclose(jax.nn.softmax(one), jax.nn.softmax(other), rtol=1e-4, atol=1e-5)
    assert np.abs(one - jboost.predict(jboost.fit(SOFTMAX, X, y, spec=SMALL)[0], X)).max() > 1e-3


@pytest.mark.slow
def test_derivatives_of_a_fit_go_through_it(x64):
    data = jboost.bin_features(X, max_bins=15)

    def risk(loss, weight, rate):
        hyper = jboost.Hyper(learning_rate=rate)
        model, _ = jboost.fit(loss, data, LABEL, spec=SMALL, hyper=hyper, sample_weight=weight)
        return jnp.mean(jax.vmap(SOFTMAX.function)(jboost.predict(model, data), jnp.asarray(LABEL)))

    weight = jnp.asarray(RNG.uniform(0.5, 1.5, N))
    slope = jax.jit(jax.grad(risk, (1, 2)))
    found, expected = (slope(loss, weight, 0.3) for loss in (SOFTMAX, BY_AUTODIFF))
    for one, other in zip(found, expected, strict=True):
        assert np.abs(one).max() > 0
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s, y: jnp.ones(()),
        lambda s, y: jnp.eye(K),
        lambda s, y: None,
        lambda s: s,
        lambda s, y: jnp.ones(K, int),
    ],
)
def test_formulas_of_another_form_are_named(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^diagonal must be"):
        jboost.fit(replace(SOFTMAX, diagonal=wrong), X, LABEL, spec=SMALL)


def test_formulas_are_functions_of_one_row():
    with pytest.raises(TypeError, match=r"^diagonal must be callable or None, got 1"):
        replace(SOFTMAX, diagonal=1)
    with pytest.raises(ValueError, match=r"^diagonal must be None for a BatchLoss"):
        BatchLoss(lambda score, y, weight: jnp.sum(weight * score), diagonal=lambda s, y: s)
