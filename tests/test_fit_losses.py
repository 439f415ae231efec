"""A loss is only a function: copies of every built-in give the same model, and leaves follow their rule."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from experiments import nano
from jboost import Hyper, Spec, losses
from jboost._objective.loss import as_loss
from jboost.losses import Loss, Newton, Quantile, standard
from tests.of_rows import best_constant, value_grad_hess
from tests.twin import assert_same_models, problem, route_table

TINY = Spec(n_estimators=4, max_depth=1)
FAST = Hyper(learning_rate=0.3)
pytestmark = pytest.mark.usefixtures("x64")


def log_mean_exp(score):
    return jnp.log(jnp.exp(score).sum())


# Written as a user would write them, from the formula; (built-in, copy, target)
COPIES = {
    "squared_error": (losses.squared_error, lambda score, y: (score - y) ** 2 / 2, "real"),
    "absolute_error": (
        losses.absolute_error,
        Loss(lambda score, y: jnp.abs(score - y), hessian="first_order", leaf=Quantile(0.5)),
        "real",
    ),
    "quantile": (
        losses.quantile(0.8),
        Loss(
            lambda score, y: jnp.where(y > score, 0.8 * (y - score), 0.2 * (score - y)),
            hessian="first_order",
            leaf=Quantile(0.8),
        ),
        "real",
    ),
    "huber": (
        losses.huber(0.5),
        Loss(
            lambda score, y: jnp.where(
                jnp.abs(score - y) < 0.5, (score - y) ** 2 / 2, 0.5 * (jnp.abs(score - y) - 0.25)
            ),
            hessian="first_order",
        ),
        "real",
    ),
    "pseudo_huber": (
        losses.pseudo_huber(0.5),
        Loss(lambda score, y: 0.25 * (jnp.sqrt(1 + ((score - y) / 0.5) ** 2) - 1), hessian="first_order"),
        "real",
    ),
    "logistic": (losses.logistic, lambda score, y: jnp.log(1 + jnp.exp(score)) - y * score, "binary"),
    "exponential": (losses.exponential, lambda score, y: jnp.exp(-(2 * y - 1) * score), "binary"),
    "softmax": (
        losses.softmax(3),
        Loss(lambda score, y: log_mean_exp(score) - score[y], n_outputs=3),
        "class",
    ),
    "poisson": (losses.poisson, lambda score, y: jnp.exp(score) - y * score, "count"),
    "gamma": (losses.gamma, lambda score, y: score + y * jnp.exp(-score), "positive"),
    "tweedie": (
        losses.tweedie(1.5),
        lambda score, y: 2 * y * jnp.exp(-score / 2) + 2 * jnp.exp(score / 2),
        "count",
    ),
}


# One of each kind: a leaf that is a quantile, first order, one output and three, an inverse link.
@pytest.mark.parametrize(
    "name",
    ["logistic", *(pytest.param(one, marks=pytest.mark.slow) for one in ("quantile", "huber", "softmax"))],
)
def test_a_users_copy_of_a_loss_gives_the_identical_model(name):
    built_in, copy, target = COPIES[name]
    rows = problem("plain")
    y = rows.targets[target]
    fits = [
        jboost.fit(loss, rows.data, y, spec=TINY, hyper=FAST, sample_weight=rows.weight)[0]
        for loss in (built_in, copy)
    ]
    assert (np.asarray(fits[0].trees.gain) > 0).any()
    if name == "softmax":  # scores of all classes may be moved alike
        fits = [dataclasses.replace(model, base=model.base - model.base.mean()) for model in fits]
    assert_same_models(*fits, rtol=1e-9)


KINDS = ("quantile", "logistic", "softmax", "poisson")  # formulas alone are compared in test_losses.py


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in KINDS else pytest.mark.slow) for name in COPIES]
)
def test_a_users_copy_of_a_loss_gives_a_fit_the_same_numbers(name):
    """All that a fit takes of a loss: the constant to start from, derivatives of rows, values, the rule for leaves."""
    built_in, copy, target = COPIES[name]
    rows = problem("plain")
    y = jnp.asarray(rows.targets[target])
    score = np.random.default_rng(0).normal(size=(400, 3) if name == "softmax" else 400)

    @jax.jit
    def numbers(loss):
        start = best_constant(loss, y, rows.weight)
        centred = start - start.mean() if name == "softmax" else start  # all classes may be moved alike
        value, g, h = value_grad_hess(loss, score, y)
        rise = value - value_grad_hess(loss, jnp.zeros_like(score), y)[0]  # terms of y alone are left out
        return centred, rise, g, h

    one, other = as_loss(built_in), as_loss(copy)
    for found, expected in zip(numbers(other), numbers(one), strict=True):
        assert np.any(expected)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert (other.leaf, other.hessian, other.n_outputs) == (one.leaf, one.hessian, one.n_outputs)


def test_every_built_in_loss_has_a_copy_here():
    """Parameters of a loss are its name's; a new loss must be added above, or to those with numbers to learn."""
    built_in = {name for name in losses.__all__ if name[0].islower()}
    learned = (Path(__file__).parent / "test_learned_losses.py").read_text(encoding="utf-8")
    others = {name for name in built_in - set(COPIES) if f"losses.{name}(" in learned}
    assert built_in == set(COPIES) | others
    assert set(COPIES) == {name for name in built_in if hasattr(standard, name)}


def leaves_of_first_tree(model, codes):
    """Follow the twin's routing with the tables of the library's first tree."""
    tree = jax.tree.map(lambda field: field[0], model.trees)
    splits = [
        [nano.Split(int(tree.feature[slot]), 0, route_table(model, tree, slot), 0.0)]
        for slot in range(len(tree.feature))
    ]
    return nano.leaf_of(nano.Tree(splits, np.zeros(1)), codes)


ONE_TREE = Spec(n_estimators=1, max_depth=2)


def leaf_steps(loss, target, hyper=Hyper(learning_rate=1.0, reg_lambda=2.0)):
    """Fit one tree; give y, scores before, leaf numbers and what the tree added."""
    rows = problem("mixed")
    y = rows.targets[target]
    model, _ = jboost.fit(loss, rows.data, y, spec=ONE_TREE, hyper=hyper, sample_weight=rows.weight)
    leaf = leaves_of_first_tree(model, rows.codes)
    added = np.asarray(jboost.predict(model, rows.X)) - np.asarray(
        model.base if y.ndim > 1 or target == "class" else model.base[0]
    )
    assert len(np.unique(leaf)) > 2
    return y, rows.weight, np.asarray(model.base), leaf, added


@pytest.mark.slow
def test_a_quantile_leaf_holds_the_weighted_quantile_of_its_residuals():
    y, weight, base, leaf, added = leaf_steps(losses.quantile(0.8), "real")
    for number in np.unique(leaf):
        here = leaf == number
        order = np.argsort(y[here])
        share = np.cumsum(weight[here][order]) / weight[here].sum()
        expected = y[here][order][np.searchsorted(share, 0.8)] - base[0]
        np.testing.assert_allclose(added[here], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_several_newton_steps_in_a_leaf_reach_its_regularised_optimum():
    loss = dataclasses.replace(losses.logistic, leaf=Newton(8))
    y, weight, base, leaf, added = leaf_steps(loss, "binary")
    unit = np.exp(base[0]) / np.square(1 + np.exp(base[0]))
    for number in np.unique(leaf):
        here = leaf == number
        step = added[here][0]
        p = 1 / (1 + np.exp(-base[0] - step))
        # Of sum_i w_i L_i + lambda / 2 step^2, lambda being 2 in units of the curvature at the base score.
        gradient = weight[here] @ (p - y[here]) + 2.0 * unit * step
        np.testing.assert_allclose(gradient, 0, atol=1e-8)


@pytest.mark.slow
def test_a_full_hessian_is_solved_in_each_leaf():
    loss = dataclasses.replace(losses.softmax(3), hessian="full")
    y, weight, base, leaf, added = leaf_steps(loss, "class")
    p = np.exp(base) / np.exp(base).sum()
    hessian = np.diag(p) - np.outer(p, p)
    problem_, _ = jboost.boosting.init(loss, problem("mixed").data, y, sample_weight=weight)
    units = np.asarray(problem_.units.h)  # of the curvature of each output
    for number in np.unique(leaf):
        here = leaf == number
        G = weight[here] @ (p - np.eye(3)[y[here]])
        ridge = 2.0 * np.diag(units)
        expected = -np.linalg.solve(weight[here].sum() * hessian + ridge, G)
        np.testing.assert_allclose(added[here], np.tile(expected, (here.sum(), 1)), rtol=1e-4)


@pytest.mark.slow
def test_a_target_of_several_arrays():
    """Exposure beside counts: the fit is that of the rates with the exposures as weights."""
    rows = problem("plain")
    count, exposure = rows.targets["count"], rows.weight

    def loss(score, y):
        return y["exposure"] * jnp.exp(score) - y["count"] * score

    spec = dataclasses.replace(TINY, penalties="absolute")  # an average row is not the same in both
    model, _ = jboost.fit(loss, rows.data, {"count": count, "exposure": exposure}, spec=spec, hyper=FAST)
    rates, _ = jboost.fit(
        losses.poisson, rows.data, count / exposure, spec=spec, hyper=FAST, sample_weight=exposure
    )
    assert_same_models(model, rates, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("hessian", ["diagonal", "full"])
def test_rows_of_weight_zero_may_be_outside_the_domain_of_the_loss(hessian):
    """Neither the fit nor its derivative sees the infinite curvature of a row that is not there."""
    rows = problem("plain")
    counted = np.arange(400) % 10 > 0
    y, weight = np.abs(rows.targets["pair"]) + 0.5, jnp.asarray(counted.astype(float))

    def log_error(score, y):
        return ((score - jnp.log(y)) ** 2).sum() + 0.1 * score[0] * score[1] * jnp.log(y[0]) ** 2

    def total(learning_rate, y):
        loss, hyper = Loss(log_error, hessian=hessian), Hyper(learning_rate=learning_rate)
        model, _ = jboost.fit(loss, rows.data, y, spec=TINY, hyper=hyper, sample_weight=weight)
        return jboost.predict(model, rows.data).sum(), model

    gradient, gradients, models = jax.jit(jax.grad(total, has_aux=True)), [], []
    for absent in (0.0, 1.0):  # log(0) is infinite
        target = jnp.asarray(np.where(counted[:, None], y, absent))
        models.append(total(0.3, target)[1])
        gradients.append(gradient(0.3, target)[0])
    assert models[1].n_trees == TINY.n_estimators
    assert_same_models(*models)
    assert np.isfinite(gradients[1])
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-9)


def test_a_loss_without_curvature_is_refused_with_advice():
    rows = problem("plain")
    with pytest.raises(ValueError, match="first_order"):
        jboost.fit(lambda score, y: jnp.abs(score - y), rows.data, rows.targets["real"], spec=TINY)
