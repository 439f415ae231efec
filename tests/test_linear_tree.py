"""Linear leaves: the ridge of each leaf by normal equations in NumPy, rows that lack a value, any loss."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from jboost import Hyper, boost, learners, losses

N, DEPTH = 120, 2
RNG = np.random.default_rng(1)
NUMBERS = np.where(RNG.random((N, 3)) < 0.1, np.nan, RNG.normal(size=(N, 3)) + np.array([0.0, 5.0, 0.0]))
KIND = RNG.integers(0, 3, N)
X = pd.DataFrame({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1], "c": NUMBERS[:, 2], "kind": pd.Categorical(KIND)})
FILLED = np.nan_to_num(NUMBERS)
Y = np.abs(FILLED[:, 0]) + FILLED[:, 1] * (KIND == 1) + 0.3 * RNG.normal(size=N)
LABEL = (Y > 1).astype(float)
WEIGHT = RNG.uniform(0.5, 2.0, N)
PENALTY = 0.7


def path_of(splits: Any, leaf: int, symmetric: bool) -> list[int]:
    """Walk down to a leaf; return the columns of numbers on the way, each once."""
    found, node = [], 0
    for level in range(DEPTH):
        slot = level if symmetric else 2**level - 1 + node
        feature = int(splits.feature[slot])
        if splits.gain[slot] > 0 and feature < 3 and feature not in found:
            found.append(feature)
        node = 2 * node + (leaf >> (DEPTH - 1 - level) & 1)
    return found


@pytest.mark.parametrize(
    ("loss", "policy"),
    [(losses.squared_error, "symmetric"), pytest.param(losses.logistic, "depthwise", marks=pytest.mark.slow)],
    ids=["ls", "logistic"],
)
def test_a_leaf_is_a_ridge_in_the_columns_of_its_path(loss, policy, x64):
    y = Y if loss is losses.squared_error else LABEL
    learner = learners.LinearTree(DEPTH, policy, linear_lambda=PENALTY)
    model, _ = boost(loss, learner, X, y, n_estimators=1, learning_rate=1.0, sample_weight=WEIGHT)
    base = float(model.base[0])
    g, h = (
        (base - y, np.ones(N))
        if loss is losses.squared_error
        else (expit(base) - y, np.full(N, expit(base) * expit(-base)))
    )
    target, weight = -g / h, WEIGHT * h
    params = jax.tree.map(lambda array: array[0], model.params)
    leaf = np.asarray(learner.tree.leaf_of(model.known.edges, params.tree, model._rows(X).bins))
    standard = (NUMBERS - np.nanmean(NUMBERS, axis=0)) / np.nanstd(NUMBERS, axis=0)
    expected = np.zeros(N)
    for one in np.unique(leaf):
        rows, path = leaf == one, path_of(params.tree.splits, one, policy == "symmetric")
        expected[rows] = np.average(target[rows], weights=weight[rows])
        z = np.column_stack([np.ones(N), *(standard[:, feature] for feature in path)])
        rows = rows & ~np.isnan(z).any(axis=1)
        if not rows.any():
            continue
        ridge = PENALTY * weight.mean() * np.diag([0.0] + [1.0] * len(path))
        normal = (weight[rows, None] * z[rows]).T @ z[rows] + ridge
        expected[rows] = z[rows] @ np.linalg.solve(normal, (weight[rows] * target[rows]) @ z[rows])
    assert len(np.unique(leaf)) == 2**DEPTH
    np.testing.assert_allclose(np.asarray(model.predict(X)) - base, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_a_line_is_found_by_one_tree():
    line = 3 * FILLED[:, 0] - 2
    found, _ = boost(
        losses.squared_error, learners.LinearTree(DEPTH, linear_lambda=1e-4), FILLED[:, :1], line, n_estimators=1,
        learning_rate=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(found.predict(FILLED[:, :1]), line, atol=1e-3)


@pytest.mark.slow
def test_the_penalty_has_a_derivative(x64):
    def loss_of(penalty: Any) -> Any:
        learner = learners.LinearTree(DEPTH, linear_lambda=penalty)
        return boost(losses.squared_error, learner, X, Y, n_estimators=2)[1].train_loss[-1]

    with jax.enable_x64(True):
        values, gradient = jax.jit(jax.vmap(jax.value_and_grad(loss_of)))(
            jnp.array([0.7 - 1e-5, 0.7, 0.7 + 1e-5])
        )
        np.testing.assert_allclose(gradient[1], (values[2] - values[0]) / 2e-5, rtol=1e-5)


@pytest.mark.slow
def test_units_change_nothing_and_several_outputs_have_their_own_lines():
    learner = learners.LinearTree(DEPTH, hyper=Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=5.0))
    both = np.column_stack([Y, -Y])
    model, record = boost(losses.squared_error, learner, X, both, n_estimators=5)
    assert model.predict(X).shape == (N, 2)
    np.testing.assert_allclose(model.predict(X)[:, 0], -model.predict(X)[:, 1], rtol=1e-4, atol=1e-4)
    far = X.assign(a=X.a * 1e6 + 1e6, b=X.b * 1e-6)
    again, _ = boost(losses.squared_error, learner, far, both, n_estimators=5)
    np.testing.assert_allclose(again.predict(far), model.predict(X), rtol=1e-3, atol=1e-3)
    assert np.isfinite(model.predict(X.assign(a=np.nan, b=np.nan, c=np.nan))).all()
    assert (np.diff(record.train_loss) < 0).all()


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="linear_lambda must be positive and finite"):
        boost(losses.squared_error, learners.LinearTree(linear_lambda=0.0), X, Y)
    with pytest.raises(TypeError, match="X must be concrete"):
        jax.jit(lambda rows: boost(losses.squared_error, learners.LinearTree(), rows, Y)[0].base)(FILLED)
