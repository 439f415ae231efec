"""Splits of several outputs by whole matrices: their gains, what is nearly singular, and whole fits."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jboost
from jboost import Hyper, Loss, Spec, losses
from jboost._split.quadratic import LEAST_PIVOT, quadratic_form

FULL = replace(losses.softmax(3), hessian="full")
SPEC = Spec(n_estimators=4, max_depth=2, split_hessian="full")
PAIR = Spec(n_estimators=4, max_depth=2, grow_policy="depthwise", penalties="absolute")


def of_matrices(g: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Give `quadratic_form` matrices [m k k] as it wants them."""
    k = g.shape[1]
    above = np.triu_indices(k, 1)
    diagonal, cross = np.diagonal(matrices, axis1=1, axis2=2).T, matrices[:, above[0], above[1]].T
    return np.asarray(quadratic_form(*(jnp.asarray(part)[:, None] for part in (g.T, diagonal, cross))))[0]


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_the_form_is_that_of_the_inverse(k, rng):
    roots, g = rng.normal(size=(20, k, k)), rng.normal(size=(20, k))
    matrices = roots @ roots.swapaxes(1, 2) + np.eye(k)
    expected = [slope @ np.linalg.inv(matrix) @ slope for slope, matrix in zip(g, matrices, strict=True)]
    np.testing.assert_allclose(of_matrices(g, matrices), expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_what_is_indefinite_or_singular_gains_no_more_than_a_part_of_its_diagonal_allows(rng):
    """The pivots that are too small are replaced, and one of 0 on the diagonal gives nothing."""
    singular, indefinite = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[1.0, 3.0], [3.0, 2.0]])
    g = np.array([[1.0, 2.0], [1.0, 1.0], [1.0, 1.0], [3.0, 0.0]])
    found = of_matrices(g, np.stack([singular, singular, indefinite, np.zeros((2, 2))]))
    # In the direction of g the first has curvature 5, and nothing is left of the second output.
    expected = [1.0, 1 + 1 / (4 * LEAST_PIVOT), 1 + 4 / (2 * LEAST_PIVOT), 0.0]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def problem(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    return X, np.digitize(X[:, 0] + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n), [-0.5, 0.5])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("penalties", [pytest.param("relative", marks=pytest.mark.slow), "absolute"])
def test_a_stump_has_the_largest_gain_of_all(penalties):
    """The gain that is stored is that of brute force over all rows, features and thresholds."""
    X, y = problem(60)
    spec = Spec(n_estimators=1, max_depth=1, split_hessian="full", penalties=penalties)
    hyper = Hyper(reg_lambda=0.5, min_child_weight=0.0)
    model, _ = jboost.fit(FULL, X, y, spec=spec, hyper=hyper)
    base = np.asarray(model.base)
    p = np.exp(base) / np.exp(base).sum()
    g = p[None] - np.eye(3)[y]
    row = np.diag(p) - np.outer(p, p)
    unit = p * (1 - p) if penalties == "relative" else np.ones(3)
    found, best = np.asarray(model.trees.gain)[0, 0], 0.0

    def score(rows: np.ndarray) -> float:
        slope = g[rows].sum(axis=0)
        return slope @ np.linalg.solve(row * rows.sum() + 0.5 * np.diag(unit), slope)

    everyone = np.ones(len(X), bool)
    for column in X.T:
        for threshold in np.unique(column)[:-1]:
            left = column <= threshold
            best = max(best, (score(left) + score(~left) - score(everyone)) / 2)
    if penalties == "absolute":
        np.testing.assert_allclose(found, best, rtol=1e-6)
    else:  # in units that are powers of two near those of an average row
        assert 0.5 < found / best < 2


def of_sum_and_difference(s, y, both, difference):
    r = s - y
    return both * (jnp.square(r[0] + r[1]) + difference * jnp.square(r[0] - r[1])) / 4


def two_outputs(both: float, difference: float) -> Loss:
    """Give a loss whose numbers are operands of one program; with ones it is that of two outputs side by side."""
    return Loss(Partial(of_sum_and_difference, both=both, difference=difference), n_outputs=2, hessian="full")


@pytest.mark.parametrize("policy", [pytest.param("symmetric", marks=pytest.mark.slow), "depthwise"])
def test_a_diagonal_matrix_gives_the_model_of_its_diagonal(policy):
    """Outputs that have nothing to do with each other: the same splits, and the same leaves to rounding."""
    X, _ = problem()
    y = np.stack([X[:, 0] + X[:, 1], X[:, 2] ** 2], axis=1)
    whole, diagonal = (
        jboost.fit(two_outputs(1.0, 1.0), X, y, spec=replace(PAIR, grow_policy=policy, split_hessian=by))[0]
        for by in ("full", "diagonal")
    )
    np.testing.assert_array_equal(whole.trees.feature, diagonal.trees.feature)
    np.testing.assert_array_equal(whole.trees.threshold, diagonal.trees.threshold)
    np.testing.assert_allclose(whole.leaf_value, diagonal.leaf_value, rtol=1e-6)


def test_dependent_outputs_are_split_by_what_they_gain_together():
    """Two outputs of which only the sum matters: the diagonal counts what both gain, the matrix counts it once."""
    X, _ = problem()
    X[:, 0], X[:, 1] = np.arange(200) // 2 % 2, np.arange(200) % 2
    signs = np.where(X[:, :2] > 0, 1.0, -1.0)
    y = signs[:, :1] * [1.0, 1.0] + 1.3 * signs[:, 1:] * [1.0, -1.0]
    hyper = Hyper(reg_lambda=0.0, learning_rate=1.0)
    first = {}
    for by in ("full", "diagonal"):
        spec = replace(PAIR, n_estimators=1, split_hessian=by)
        model, _ = jboost.fit(two_outputs(2.0, 0.125), X, y, spec=spec, hyper=hyper)
        first[by] = int(np.asarray(model.trees.feature)[0, 0]), float(np.asarray(model.trees.gain)[0, 0])
    # Moving the sum by 1 gains 4 / 2 a row, and its difference by 1.3 gains 2.6^2 / 16.
    np.testing.assert_allclose(first["full"], [0, 200 * 2.0], rtol=1e-5)
    assert first["diagonal"][0] == 0
    assert first["diagonal"][1] > first["full"][1]


@pytest.mark.slow
def test_vmap_and_plain_jax_give_the_same_model():
    X, y = problem()
    rates = jnp.array([0.1, 0.3])
    data = jboost.bin_features(X, 16)

    def fitted(rate):
        return jboost.fit(FULL, data, y, spec=SPEC, hyper=Hyper(learning_rate=rate))[0]

    every = jax.vmap(fitted)(rates)
    with jboost.plain_jax():
        plain = fitted(0.3)
    for one in (fitted(0.3), plain):
        np.testing.assert_array_equal(np.asarray(every.leaf_value)[1], one.leaf_value)
        np.testing.assert_array_equal(np.asarray(every.trees.threshold)[1], one.trees.threshold)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives_are_those_of_the_same_splits():
    X, y = problem(80)
    data = jboost.bin_features(X, 16)

    def risk(penalty):
        model, _ = jboost.fit(FULL, data, y, spec=SPEC, hyper=Hyper(reg_lambda=penalty))
        return jnp.square(model.leaf_value).sum()

    step = 1e-5
    expected = (risk(1.0 + step) - risk(1.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(risk)(1.0), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("loss", "choices", "message"),
    [
        (losses.softmax(3), {}, 'needs a loss of several outputs with hessian="full"'),
        (losses.squared_error, {}, 'needs a loss of several outputs with hessian="full"'),
        (FULL, {"multi_output": "separate"}, "share a tree"),
    ],
)
def test_losses_that_have_no_whole_matrix_are_refused(loss, choices, message):
    X, y = problem()
    with pytest.raises(ValueError, match=message):
        jboost.fit(loss, X, y, spec=replace(SPEC, **choices))


def test_a_wrong_choice_is_named():
    with pytest.raises(ValueError, match="split_hessian"):
        Spec(split_hessian="both")  # type: ignore[arg-type]
