"""Leaf rules that search for the minimum of the loss, steps of one length, and values smoothed along the path."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

import jboost
from jboost import (
    BatchLoss,
    Exact,
    GroupLoss,
    Hyper,
    LeafRule,
    LineSearch,
    Loss,
    Newton,
    OneStep,
    PathSmoothing,
    Quantile,
    Spec,
    losses,
)

N = 200
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, 3))
WEIGHT = RNG.uniform(0.5, 2, N)
SKEWED = np.exp(ROWS[:, 0]) * RNG.gamma(0.5, size=N)
SKEWED[::20] *= 50
DATA = jboost.bin_features(ROWS, 31)
ONE = Spec(n_estimators=1, max_depth=2)
ABSOLUTE = dataclasses.replace(ONE, penalties="absolute")
PLAIN = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)


def with_rule(loss: Any, leaf: Any, **fields: Any) -> Any:
    return dataclasses.replace(loss, leaf=leaf, **fields)


def fit_one(loss: Any, y: Any, hyper: Hyper = PLAIN, **options: Any) -> tuple[Any, np.ndarray]:
    """Fit a tree: the model, and what it adds to the score of each row."""
    options = {"spec": ONE, "sample_weight": WEIGHT, **options}
    model, _ = jboost.fit(loss, DATA, y, hyper=hyper, **options)
    return model, np.asarray(jboost.predict(model, DATA), np.float64) - np.asarray(model.base, np.float64)


def poisson(score: Any, y: Any) -> Any:
    return np.exp(score) - y * score


# --- The minimum of each leaf -------------------------------------------------------------------------------


# The golden section is also that of the weighted median below.
@pytest.mark.parametrize(
    "rule",
    [
        pytest.param(Exact(), id="newton"),
        pytest.param(Exact("golden_section"), id="golden", marks=pytest.mark.slow),
    ],
)
def test_a_leaf_minimises_the_loss_and_the_penalties(rule, x64):
    """Against scipy, leaf by leaf; the numbers are operands of one program."""
    loss = with_rule(losses.poisson, rule)
    far = np.where(np.arange(N) == 7, 1e12, SKEWED)  # a row whose first steps overflow hides no other
    cases = [
        ({}, SKEWED if rule.search else far),
        ({"reg_lambda": 20.0}, SKEWED),
        ({"reg_alpha": 30.0}, SKEWED),
    ]
    for numbers, y in [*cases, ({"max_delta_step": 0.5}, SKEWED)]:
        hyper = dataclasses.replace(PLAIN, **numbers)
        model, added = fit_one(loss, y, hyper, spec=ABSOLUTE)
        limit = hyper.max_delta_step or 40.0
        for leaf in np.unique(added):
            rows = added == leaf

            def objective(value, rows=rows, y=y, hyper=hyper, base=float(model.base[0])):
                total = np.sum(WEIGHT[rows] * poisson(base + value, y[rows]))
                return total + hyper.reg_lambda / 2 * value**2 + hyper.reg_alpha * abs(value)

            best = optimize.minimize_scalar(
                objective, bounds=(-limit, limit), method="bounded", options={"xatol": 1e-10}
            )
            assert objective(leaf) <= best.fun + 1e-9 * abs(best.fun) + 1e-9  # pyright: ignore
            np.testing.assert_allclose(leaf, best.x, atol=1e-5)  # pyright: ignore


@pytest.mark.slow
def test_the_loss_falls_further_than_by_one_newton_step():
    """On a skewed target, in one round and after several; also where splits are those of the gradient."""
    found = {}
    for name, rule in (("newton", Newton()), ("exact", Exact())):
        _, history = jboost.fit(
            with_rule(losses.poisson, rule),
            DATA,
            SKEWED,
            spec=dataclasses.replace(ONE, n_estimators=5),
            hyper=PLAIN,
        )
        found[name] = np.asarray(history.train_loss)
        assert (np.diff(found[name]) <= 0).all()
    assert found["exact"][0] < found["newton"][0]
    assert found["exact"][-1] < found["newton"][-1]


def test_the_golden_section_finds_the_weighted_median():
    """LAD, in any unit of y: to the rounding of the loss of all rows, beside which the weight of one row counts."""
    y = np.sign(ROWS[:, 0]) * SKEWED
    searched = with_rule(losses.absolute_error, Exact())
    for unit in (1.0, 1e-6, 1e6):
        model, added = fit_one(searched, unit * y)
        rounding = float(np.finfo(np.float32).eps * unit * np.sum(WEIGHT * np.abs(y)))
        residual = unit * y - float(model.base[0])
        leaves = [added == value for value in np.unique(added)]
        assert len(leaves) == 4
        for rows in leaves:
            np.testing.assert_allclose(
                added[rows], weighted_median(residual[rows], WEIGHT[rows]), atol=rounding
            )


def weighted_median(values: np.ndarray, weight: np.ndarray) -> float:
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][np.searchsorted(share, 0.5)])


def test_an_exponential_leaf_is_half_the_weighted_log_odds(x64):
    y = (ROWS[:, 0] + 3 * RNG.normal(size=N) > 0).astype(float)
    loss = with_rule(losses.exponential, Exact("newton"), hessian="first_order")
    _, score = fit_one(loss, y, dataclasses.replace(PLAIN, min_child_weight=20.0), base_score=0.0)
    for leaf in np.unique(score):
        here = score == leaf
        ones, all_rows = np.sum(WEIGHT[here] * y[here]), np.sum(WEIGHT[here])
        np.testing.assert_allclose(leaf, 0.5 * np.log(ones / (all_rows - ones)), rtol=1e-9)
    apart = (np.asarray(DATA.bins)[0] > 15).astype(float)  # leaves of one class
    model, added = fit_one(loss, apart, base_score=0.0)
    assert np.isfinite(model.leaf_value).all()
    assert np.mean(np.exp(-np.abs(added))) < 1e-4


@pytest.mark.slow
def test_a_leaf_of_one_class_is_finite():
    X = np.arange(40.0)[:, None]
    y = (X[:, 0] > 19).astype(float)
    model, history = jboost.fit(with_rule(losses.logistic, Exact()), X, y, spec=ONE, hyper=PLAIN)
    assert np.isfinite(model.leaf_value).all()
    assert history.train_loss[-1] < 1e-4


@pytest.mark.slow
def test_all_outputs_of_a_leaf_are_minimised_together(x64):
    """Of a softmax in one leaf the best scores are those of the shares of the classes, by either Hessian."""
    y = np.digitize(ROWS[:, 0] + 0.3 * RNG.normal(size=N), [-0.4, 0.5])
    for hessian in ("diagonal", "full"):
        model, added = fit_one(with_rule(losses.softmax(3), Exact(), hessian=hessian), y)
        score = added + np.asarray(model.base)
        p = np.exp(score) / np.exp(score).sum(axis=1, keepdims=True)
        for leaf in np.unique(added[:, 0]):
            here = added[:, 0] == leaf
            shares = [np.average(y[here] == k, weights=WEIGHT[here]) for k in range(3)]
            np.testing.assert_allclose(p[here][0], shares, atol=1e-6)


@pytest.mark.slow
def test_outputs_with_trees_of_their_own_are_minimised_one_by_one(x64):
    both = np.stack([SKEWED, np.sign(ROWS[:, 1]) * SKEWED], axis=1)
    spec = dataclasses.replace(ONE, multi_output="separate")
    model, added = fit_one(with_rule(losses.absolute_error, Exact()), both, spec=spec)
    for column in range(2):
        start = float(model.base[column])
        _, expected = fit_one(losses.absolute_error, both[:, column], base_score=start)
        np.testing.assert_allclose(added[:, column], expected, atol=1e-8)


# --- One length for a round ---------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["newton", pytest.param("golden_section", marks=pytest.mark.slow)])
def test_a_step_of_steepest_descent_is_as_long_as_scipy_says(search, x64):
    loss = with_rule(losses.poisson, LineSearch(search), hessian="first_order")
    for numbers in ({}, {"reg_lambda": 5.0, "reg_alpha": 2.0}, {"max_delta_step": 0.7}):
        hyper = dataclasses.replace(PLAIN, **numbers)
        model, added = fit_one(loss, SKEWED, hyper, spec=ABSOLUTE)
        base, h = float(model.base[0]), np.zeros(N)
        g, leaves = np.exp(base) - SKEWED, []
        for leaf in np.unique(added):
            here = added == leaf
            G = np.sum(WEIGHT[here] * g[here])
            h[here] = -np.sign(G) * max(abs(G) - hyper.reg_alpha, 0) / (WEIGHT[here].sum() + hyper.reg_lambda)
            h[here] = np.clip(h[here], -(hyper.max_delta_step or np.inf), hyper.max_delta_step or np.inf)
            leaves.append(h[here][0])

        leaves = np.array(leaves)

        def objective(length, h=h, leaves=leaves, hyper=hyper, base=base):
            penalty = hyper.reg_lambda / 2 * np.sum((length * leaves) ** 2) + hyper.reg_alpha * np.sum(
                np.abs(length * leaves)
            )
            return np.sum(WEIGHT * poisson(base + length * h, SKEWED)) + penalty

        longest = hyper.max_delta_step / np.abs(h).max() if hyper.max_delta_step else 10.0
        best = optimize.minimize_scalar(
            objective, bounds=(0, longest), method="bounded", options={"xatol": 1e-10}
        )
        np.testing.assert_allclose(added, best.x * h, atol=1e-6)  # pyright: ignore


@pytest.mark.slow
def test_losses_of_groups_take_steps_of_one_length():
    def pairwise(score, y, mask):
        pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
        return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))

    loss = GroupLoss(pairwise, hessian="first_order", leaf=LineSearch("newton"))
    spec = dataclasses.replace(ONE, n_estimators=5)
    _, history = jboost.fit(loss, DATA, SKEWED, groups=np.arange(N) // 10, spec=spec, hyper=PLAIN)
    assert (np.diff(history.train_loss) < 0).all()


# --- Under transformations ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [
        with_rule(losses.poisson, Exact()),
        with_rule(losses.poisson, LineSearch("newton"), hessian="first_order"),
        with_rule(losses.softmax(3), Exact(), hessian="full"),
    ],
    ids=["exact", "line search", "together"],
)
def test_derivatives_go_through_what_was_searched_for(loss, x64):
    """Of a fit by the penalty and by a weight, once and twice, against central differences."""
    y = np.floor(3 * np.argsort(np.argsort(SKEWED)) / N)

    @jax.jit
    def risk(ridge, weight):
        hyper = Hyper(learning_rate=0.3, reg_lambda=ridge, min_child_weight=0.0)
        weight = jnp.asarray(WEIGHT).at[3].set(weight)
        model, _ = jboost.fit(
            loss, DATA, y, spec=dataclasses.replace(ONE, n_estimators=2), hyper=hyper, sample_weight=weight
        )
        return jnp.sum(jnp.sin(jboost.predict(model, DATA)))

    slope, step = jax.jit(jax.grad(risk, argnums=(0, 1))), 1e-4
    by_ridge, by_weight = slope(2.0, 1.0)
    np.testing.assert_allclose(by_ridge, (risk(2 + step, 1.0) - risk(2 - step, 1.0)) / (2 * step), rtol=1e-5)
    np.testing.assert_allclose(by_weight, (risk(2.0, 1 + step) - risk(2.0, 1 - step)) / (2 * step), rtol=1e-5)
    if loss.n_outputs is not None:
        return  # second derivatives of three outputs take a minute to compile
    twice = jax.jit(jax.grad(lambda ridge: slope(ridge, 1.0)[0]))(2.0)
    differences = (slope(2 + step, 1.0)[0] - slope(2 - step, 1.0)[0]) / (2 * step)
    np.testing.assert_allclose(twice, differences, rtol=1e-5)


def test_fits_side_by_side_are_those_one_by_one(x64):
    loss = with_rule(losses.poisson, Exact())
    ridges = jnp.array([0.5, 20.0])

    def leaves(ridge):
        hyper = dataclasses.replace(PLAIN, reg_lambda=ridge)
        options = {"spec": ABSOLUTE, "hyper": hyper, "sample_weight": WEIGHT}
        return jboost.fit(loss, DATA, SKEWED, **options)[0].leaf_value

    together = jax.jit(jax.vmap(leaves))(ridges)
    for ridge, one in zip(ridges, together, strict=True):
        np.testing.assert_allclose(one, leaves(float(ridge)), rtol=1e-5, atol=1e-6)


# --- Smoothing along the path -------------------------------------------------------------------------------


def test_values_are_smoothed_from_the_root_down(x64):
    """By a loop over the nodes: n / (n + s) of a node's own step, and the rest of its parent's value."""
    spec = dataclasses.replace(ABSOLUTE, grow_policy="depthwise")
    hyper, strength = dataclasses.replace(PLAIN, reg_lambda=2.0), 7.0
    loss = with_rule(losses.squared_error, PathSmoothing(strength))
    model, _ = fit_one(loss, SKEWED, hyper, spec=spec, base_score=1.0)
    none = with_rule(losses.squared_error, PathSmoothing(0.0))
    plain, added = fit_one(none, SKEWED, hyper, spec=spec, base_score=1.0)
    np.testing.assert_array_equal(model.trees.feature, plain.trees.feature)
    values = np.asarray(plain.leaf_value)[0, :, 0]
    rows_of = [np.isclose(added, value) for value in values]  # no two leaves are alike

    def own(rows: np.ndarray) -> float:
        return np.sum(WEIGHT[rows] * (SKEWED[rows] - 1)) / (WEIGHT[rows].sum() + 2.0)

    root = own(np.ones(N, bool))
    for leaf, rows in enumerate(rows_of):
        np.testing.assert_allclose(values[leaf], own(rows), rtol=1e-12)
        value, sibling = root, rows_of[leaf ^ 1]
        for node in (rows | sibling, rows):
            share = WEIGHT[node].sum() / (WEIGHT[node].sum() + strength)
            value = share * own(node) + (1 - share) * value
        np.testing.assert_allclose(model.leaf_value[0, leaf, 0], value, rtol=1e-9)


# --- What is refused ----------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused():
    wrong: Any = "bisection"
    for rule in (Exact, LineSearch):
        with pytest.raises(ValueError, match=r"search must be one of .* or None, got 'bisection'"):
            rule(wrong)
    with pytest.raises(ValueError, match=r"leaf must be Newton\(...\) or LineSearch\(...\) for a BatchLoss"):
        BatchLoss(lambda score, y, weight: jnp.sum(weight * (score - y) ** 2), leaf=Exact())
    with pytest.raises(ValueError, match="hessian must be one of"):
        OneStep(hessian="full")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="factor must be positive and finite, got -1"):
        OneStep(factor=-1)
    with pytest.raises(TypeError, match="start must be None or a leaf rule"):
        OneStep(start=0.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="strength must be finite and at least 0, got -1"):
        PathSmoothing(-1.0)
    with pytest.raises(
        ValueError, match=r'hessian must be "diagonal" or "first_order" with leaf=PathSmoothing'
    ):
        jboost.fit(with_rule(losses.softmax(3), PathSmoothing(), hessian="full"), DATA, np.arange(N) % 3)
    with pytest.raises(TypeError, match="centred must be True or False, got 1"):
        losses.huber(centred=1)  # pyright: ignore[reportArgumentType]
    for rule in (Exact(), LineSearch(), OneStep(), OneStep(Quantile(0.5)), PathSmoothing()):
        assert isinstance(rule, LeafRule)
        assert isinstance(
            jax.tree.map(lambda leaf: leaf, Loss(losses.squared_error.function, leaf=rule)).leaf, type(rule)
        )
