"""The algorithms of Friedman (2001) by name: one round by hand on six rows, and all rounds beside scikit-learn's."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit, softmax
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

import jboost
from jboost import Exact, Hyper, LineSearch, Loss, OneStep, Quantile, Spec, losses

PLAIN = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
ONE_SPLIT = Spec(n_estimators=1, max_depth=1)


def of_gradient(loss: Any, leaf: Any) -> Any:
    """Splits by the negative gradient alone, leaves by a rule."""
    return dataclasses.replace(loss, hessian="first_order", leaf=leaf)


def half_log_odds(score, y):
    """Friedman's loss for two classes: log(1 + exp(-2 z F)), z = 2 y - 1, F half the log odds."""
    return jnp.logaddexp(0.0, -2 * (2 * y - 1) * score)


M_TREEBOOST = dataclasses.replace(
    losses.huber(level=0.7, centred=False), leaf=OneStep(Quantile(0.5), hessian="first_order")
)
LOSSES = {
    "LS_Boost": losses.squared_error,
    "LAD_TreeBoost": losses.absolute_error,
    "M_TreeBoost": M_TREEBOOST,
    "L2_TreeBoost": of_gradient(Loss(half_log_odds), OneStep()),
    "log odds": of_gradient(losses.logistic, OneStep()),
    "steepest descent": of_gradient(losses.poisson, LineSearch("newton")),
    "gradient tree boosting": of_gradient(losses.poisson, Exact("newton")),
}

# --- By hand, on six rows -----------------------------------------------------------------------------------

X = np.array([[1.0, 5.0], [2.0, 3.0], [3.0, 6.0], [4.0, 1.0], [5.0, 4.0], [6.0, 2.0]])
NUMBERS = np.array([1.0, 2.0, 0.5, 7.0, 4.0, 30.0])
CLASSES = np.array([0.0, 0.0, 1.0, 1.0, 0.0, 1.0])
KINDS = np.array([0, 0, 1, 1, 2, 1])


def best_split(r: np.ndarray) -> np.ndarray:
    """Say which rows go right in the split that fits r best by least squares: all thresholds tried."""
    tried = []
    for column in X.T:
        for threshold in np.sort(column)[:-1]:
            right = column > threshold
            error = sum(np.sum((r[side] - r[side].mean()) ** 2) for side in (right, ~right))
            tried.append((error, right))
    return min(tried, key=lambda one: one[0])[1]


def quantile(values: np.ndarray, level: float) -> float:
    return float(np.quantile(values, level, method="averaged_inverted_cdf"))


def by_hand(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a target and the scores after one round of the algorithm of that name, as it is printed."""
    y = CLASSES if name in ("L2_TreeBoost", "log odds") else NUMBERS
    z, mean, delta = 2 * y - 1, y.mean(), np.nan
    if name == "LS_Boost":
        start, r = y.mean(), y - y.mean()
    elif name == "LAD_TreeBoost":
        start = np.median(y)
        r = np.sign(y - start)
    elif name == "M_TreeBoost":
        start = np.median(y)
        delta = quantile(np.abs(y - start), 0.7)
        r = np.clip(y - start, -delta, delta)
    elif name == "L2_TreeBoost":
        start = 0.5 * np.log((1 + z.mean()) / (1 - z.mean()))
        r = 2 * z / (1 + np.exp(2 * z * start))
    elif name == "log odds":
        start = np.log(mean / (1 - mean))
        r = y - expit(start)
    else:
        start = np.log(mean)
        r = y - mean
    right = best_split(r)
    sides, score = (right, ~right), np.full(6, start)
    if name == "steepest descent":
        h = sum(np.where(side, r[side].mean(), 0) for side in sides)
        length = optimize.brentq(lambda rho: np.sum(h * (np.exp(start + rho * h) - y)), 0, 10, xtol=1e-14)
        return y, score + h * length
    for side in sides:
        residual = y[side] - start
        if name == "LS_Boost":
            leaf = residual.mean()
        elif name == "LAD_TreeBoost":
            leaf = np.median(residual)
        elif name == "M_TreeBoost":
            middle = np.median(residual)
            leaf = middle + np.mean(np.clip(residual - middle, -delta, delta))
        elif name == "L2_TreeBoost":
            leaf = r[side].sum() / np.sum(np.abs(r[side]) * (2 - np.abs(r[side])))
        elif name == "log odds":
            leaf = r[side].sum() / np.sum(np.abs(r[side]) * (1 - np.abs(r[side])))
        else:
            leaf = np.log(y[side].sum() / side.sum()) - start
        score = score + np.where(side, leaf, 0)
    return y, score


# The others are versions of these, or what test_exact_leaves.py holds against scipy.
QUICK = ("LS_Boost", "M_TreeBoost", "L2_TreeBoost")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LOSSES]
)
def test_one_round_by_hand(name, x64):
    y, expected = by_hand(name)
    model, _ = jboost.fit(LOSSES[name], X, y, spec=ONE_SPLIT, hyper=PLAIN)
    np.testing.assert_allclose(np.ravel(jboost.predict(model, X)), expected, rtol=1e-9, atol=1e-9)


def test_one_round_of_several_classes_by_hand(x64):
    """LK_TreeBoost: a tree for each class, whose leaves hold (K - 1) / K sum r / sum |r| (1 - |r|)."""
    loss = of_gradient(losses.softmax(3), OneStep(factor=2 / 3))
    spec = dataclasses.replace(ONE_SPLIT, multi_output="separate")
    model, _ = jboost.fit(loss, X, KINDS, spec=spec, hyper=PLAIN, base_score=np.zeros(3))
    expected = np.zeros((6, 3))
    for k in range(3):
        r = (k == KINDS) - softmax(np.zeros((6, 3)), axis=1)[:, k]
        right = best_split(r)
        for side in (right, ~right):
            size = np.abs(r[side])
            expected[side, k] = 2 / 3 * r[side].sum() / np.sum(size * (1 - size))
    np.testing.assert_allclose(jboost.predict(model, X), expected, rtol=1e-9, atol=1e-12)


# --- Beside scikit-learn ------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(101, 3)).astype(np.float32)  # as scikit-learn rounds them
WEIGHT = RNG.uniform(0.5, 2, 101)  # no quantile falls between two rows, where definitions differ
REAL = ROWS[:, 0] + ROWS[:, 1] * ROWS[:, 2] + 0.5 * RNG.standard_t(2, size=101)
SPEC = Spec(n_estimators=4, max_depth=2, grow_policy="depthwise")
M_OF_PEER = dataclasses.replace(M_TREEBOOST, adapt=losses.huber(level=0.9, centred=False).adapt)
PEERS: dict[str, Any] = {
    "squared_error": (losses.squared_error, GradientBoostingRegressor, REAL),
    "absolute_error": (losses.absolute_error, GradientBoostingRegressor, REAL),
    "huber": (M_OF_PEER, GradientBoostingRegressor, REAL),
    "log_loss": (LOSSES["log odds"], GradientBoostingClassifier, REAL > 0),
    "exponential": (of_gradient(losses.exponential, OneStep()), GradientBoostingClassifier, REAL > 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "n_leaves"), [*((name, None) for name in PEERS), ("huber", 6)])
def test_every_round_is_that_of_scikit_learn(name, n_leaves, x64):
    loss, peer, y = PEERS[name]
    hyper = dataclasses.replace(PLAIN, learning_rate=0.5)
    y, depth = y.astype(float), 5 if n_leaves else 2
    spec = dataclasses.replace(SPEC, max_depth=depth, max_leaves=n_leaves)
    model, _ = jboost.fit(loss, ROWS, y, spec=spec, hyper=hyper, sample_weight=WEIGHT)
    size = {"max_depth": depth, "max_leaf_nodes": n_leaves}
    known = peer(loss=name, n_estimators=4, learning_rate=0.5, random_state=0, **size)
    known.fit(ROWS, y, sample_weight=WEIGHT)
    staged = known.staged_predict if peer is GradientBoostingRegressor else known.staged_decision_function
    for found, expected in zip(jboost.staged_predict(model, ROWS), staged(ROWS), strict=True):
        np.testing.assert_allclose(np.ravel(found), np.ravel(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_every_round_of_several_classes_is_that_of_scikit_learn(x64):
    """The two begin at logarithms of class shares that differ by a constant, which no probability knows."""
    y = np.digitize(REAL, [-0.5, 0.5])
    loss = of_gradient(losses.softmax(3), OneStep(factor=2 / 3))
    spec, hyper = (
        dataclasses.replace(SPEC, multi_output="separate"),
        dataclasses.replace(PLAIN, learning_rate=0.5),
    )
    model, _ = jboost.fit(loss, ROWS, y, spec=spec, hyper=hyper, sample_weight=WEIGHT)
    known = GradientBoostingClassifier(n_estimators=4, max_depth=2, learning_rate=0.5, random_state=0)
    known.fit(ROWS, y, sample_weight=WEIGHT)
    stages = zip(jboost.staged_predict(model, ROWS), known.staged_decision_function(ROWS), strict=True)
    for found, expected in stages:
        found = np.asarray(found)
        left, right = (one - one.mean(axis=1, keepdims=True) for one in (found, expected))
        np.testing.assert_allclose(left, right, rtol=1e-10, atol=1e-12)


# --- The regularised objective ------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["depthwise", pytest.param("symmetric", marks=pytest.mark.slow)])
def test_the_objective_falls_by_exactly_the_gain(policy, x64):
    """Sum of losses + gamma T + lambda / 2 sum w^2 + alpha sum |w|, from one leaf to those of a tree."""
    hyper = Hyper(learning_rate=1.0, reg_lambda=3.0, reg_alpha=2.0, gamma=1.5, min_child_weight=0.0)
    depth = 2 if policy == "depthwise" else 1  # a symmetric level splits nodes that it does not help too
    spec = Spec(n_estimators=1, max_depth=depth, grow_policy=policy, penalties="absolute")
    model, _ = jboost.fit(losses.squared_error, ROWS, REAL, spec=spec, hyper=hyper, base_score=-2.0)
    residual = REAL + 2

    def objective(values: np.ndarray, counts: int, leaves: np.ndarray) -> float:
        penalty = 3.0 / 2 * np.sum(leaves**2) + 2.0 * np.sum(np.abs(leaves)) + 1.5 * counts
        return np.sum((residual - values) ** 2) / 2 + penalty

    def one_leaf(rows: np.ndarray) -> float:
        total = residual[rows].sum()
        return np.sign(total) * max(abs(total) - 2.0, 0) / (rows.sum() + 3.0)

    root = one_leaf(np.ones(101, bool))
    values = np.ravel(jboost.predict(model, ROWS)) + 2
    leaves = np.asarray(model.leaf_value)[0, :, 0][np.asarray(model.leaf_count)[0, :, 0] > 0]
    n_splits = int((np.asarray(model.trees.gain) > 0).sum())
    assert len(leaves) == n_splits + 1 > 1
    for leaf in leaves:
        np.testing.assert_allclose(leaf, one_leaf(np.isclose(values, leaf)), rtol=1e-10)
    fallen = objective(np.full(101, root), 1, np.array([root])) - objective(values, len(leaves), leaves)
    np.testing.assert_allclose(np.sum(model.trees.gain), fallen, rtol=1e-7)  # sums in units of 2^-30


def test_shrinkage_multiplies_every_leaf(x64):
    whole, small = (
        jboost.fit(losses.squared_error, X, NUMBERS, spec=ONE_SPLIT, hyper=hyper)[0]
        for hyper in (PLAIN, dataclasses.replace(PLAIN, learning_rate=0.1))
    )
    np.testing.assert_allclose(small.leaf_value, 0.1 * np.asarray(whole.leaf_value), rtol=1e-12)
