"""The linear booster: scikit-learn's linear models at convergence, a pass by hand, XGBoost's gblinear."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, QuantileRegressor, Ridge

import jboost
from jboost import JBoostClassifier, JBoostDistribution, JBoostRegressor, fit_linear, losses

N, F = 60, 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, F)) @ (np.eye(F) + 0.4 * RNG.normal(size=(F, F))) + [0.0, 5.0, 0.0, -2.0]
Y = X @ [1.0, -2.0, 0.0, 0.5] + 3 + RNG.normal(size=N)
WEIGHT = RNG.uniform(0.5, 2.0, N)
LABEL = (Y + RNG.normal(size=N) > np.median(Y)).astype(float)
CLASS = np.digitize(Y + RNG.normal(size=N), np.quantile(Y, [0.3, 0.6]))
ROUNDS = 300
PLAIN = {"n_estimators": ROUNDS, "learning_rate": 1.0, "penalties": "absolute"}


def coef_of(model: Any) -> np.ndarray:
    return np.append(np.ravel(model.coef), np.ravel(model.intercept))


MORE = [pytest.param(name, marks=pytest.mark.slow) for name in ("greedy", "thrifty", "shuffle", "random")]


@pytest.mark.parametrize("selector", ["cyclic", "block", *MORE])
def test_squared_error_converges_to_ridge_lasso_and_elastic_net(selector, x64):
    peers = {
        (3.0, 0.0): Ridge(alpha=3.0).fit(X, Y, WEIGHT),
        (0.0, 0.3 * WEIGHT.sum()): Lasso(alpha=0.3, tol=1e-15, max_iter=100_000).fit(X, Y, WEIGHT),
        (0.1 * WEIGHT.sum(), 0.1 * WEIGHT.sum()): ElasticNet(
            alpha=0.2, l1_ratio=0.5, tol=1e-15, max_iter=100_000
        ).fit(X, Y, WEIGHT),
    }
    for (reg_lambda, reg_alpha), peer in peers.items():
        model, _ = fit_linear(
            losses.squared_error, X, Y, feature_selector=selector, sample_weight=WEIGHT, reg_lambda=reg_lambda,
            reg_alpha=reg_alpha, **PLAIN,
        )  # fmt: skip
        expected = np.append(peer.coef_, peer.intercept_)
        np.testing.assert_allclose(coef_of(model), expected, rtol=0, atol=1e-9)
        assert (np.ravel(model.coef)[peer.coef_ == 0] == 0).all()


@pytest.mark.parametrize(("reg_lambda", "reg_alpha"), [(0.5, 0.0), (0.0, 1.5)])
def test_logistic_converges_to_logistic_regression(reg_lambda, reg_alpha, x64):
    model, _ = fit_linear(losses.logistic, X, LABEL, reg_lambda=reg_lambda, reg_alpha=reg_alpha, **PLAIN)
    if reg_alpha == 0:
        solver: dict[str, Any] = {"C": 1 / reg_lambda, "solver": "newton-cholesky"}
        peer = LogisticRegression(**solver, tol=1e-12).fit(X, LABEL)
        expected = np.append(peer.coef_, peer.intercept_)
        np.testing.assert_allclose(coef_of(model), expected, rtol=0, atol=1e-9)
    # The conditions of a minimum, which no solver has a say in.
    coef = np.asarray(model.coef)[0]
    g = expit(np.asarray(model.predict(X))) - LABEL
    slope = X.T @ g + reg_lambda * coef
    assert abs(g.sum()) < 1e-8
    np.testing.assert_allclose(slope[coef != 0], -reg_alpha * np.sign(coef[coef != 0]), atol=1e-8)
    assert (np.abs(slope[coef == 0]) <= reg_alpha).all()
    assert (coef == 0).any() == (reg_alpha > 0)


@pytest.mark.slow
def test_softmax_converges_to_multinomial_regression(x64):
    model, history = fit_linear(
        losses.softmax(3), X, CLASS, reg_lambda=1.0, **{**PLAIN, "n_estimators": 2000}
    )
    probability, coef = softmax(np.asarray(model.predict(X)), axis=1), np.asarray(model.coef)
    g = probability - np.eye(3)[CLASS]
    np.testing.assert_allclose(g.sum(axis=0), 0, atol=1e-9)  # the conditions of the minimum
    np.testing.assert_allclose(g.T @ X + coef, 0, atol=1e-9)
    peer = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12).fit(X, CLASS)
    np.testing.assert_allclose(coef, peer.coef_, atol=1e-7)  # as near as it comes to that
    np.testing.assert_allclose(probability, peer.predict_proba(X), atol=1e-7)
    assert (np.diff(history.train_loss[:10]) < 0).all()  # though second derivatives of classes are too small


def test_two_rounds_are_those_of_a_pass_by_hand(x64):
    rate, reg_lambda, reg_alpha, count = 0.7, 2.0, 1.0, np.floor(np.exp(LABEL))
    model, history = fit_linear(
        losses.poisson, X, count, n_estimators=2, learning_rate=rate, reg_lambda=reg_lambda, reg_alpha=reg_alpha,
        penalties="absolute", sample_weight=WEIGHT,
    )  # fmt: skip
    center = np.average(X, axis=0, weights=WEIGHT)
    constant = np.log(np.average(count, weights=WEIGHT))
    coef = np.zeros(F)
    for t in range(2):
        mean = np.exp(constant + (X - center) @ coef)
        g, h, moved = WEIGHT * (mean - count), WEIGHT * mean, np.zeros(N)
        change = -rate * g.sum() / h.sum()
        constant, moved = constant + change, moved + change
        for j in range(F):
            column = X[:, j] - center[j]
            slope, bend = column @ (g + h * moved), column**2 @ h
            target = bend * coef[j] - slope
            best = np.sign(target) * max(abs(target) - reg_alpha, 0) / (bend + reg_lambda)
            change = rate * (best - coef[j])
            coef[j], moved = coef[j] + change, moved + change * column
        np.testing.assert_allclose(model.coef_path[t, 0], coef, rtol=1e-10)
        np.testing.assert_allclose(model.constant_path[t, 0], constant, rtol=1e-10)
        score = constant + (X - center) @ coef
        value = np.average(np.exp(score) - count * score, weights=WEIGHT)
        assert np.isclose(history.train_loss[t] - value, history.train_loss[0] - _poisson_at(model, 1, count))
    np.testing.assert_allclose(model.center, center)


def _poisson_at(model: Any, n_rounds: int, count: np.ndarray) -> float:
    score = np.asarray(model.truncate(n_rounds).predict(X))
    return float(np.average(np.exp(score) - count * score, weights=WEIGHT))


@pytest.mark.filterwarnings("ignore:.*booster=gblinear. is deprecated:UserWarning")  # XGBoost 3.4
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
def test_rounds_are_those_of_gblinear_on_columns_of_mean_0(objective, x64):
    xgboost = pytest.importorskip("xgboost")
    centred = X - X.mean(axis=0)
    loss, y, base, rounds = losses.squared_error, Y - Y.mean(), 0.0, 3
    if (
        objective == "binary:logistic"
    ):  # whose second derivatives are the same for all rows in the first round alone
        loss, y, base, rounds = losses.logistic, LABEL, 0.0, 1
    options = {"booster": "gblinear", "updater": "coord_descent", "feature_selector": "cyclic", "eta": 0.5}
    options |= {
        "objective": objective,
        "lambda": 0.1,
        "alpha": 0.05,
        "base_score": 0.5 if rounds == 1 else 0.0,
    }
    peer = xgboost.train({**options, "nthread": 1}, xgboost.DMatrix(centred, y), rounds)
    model, _ = fit_linear(
        loss,
        centred,
        y,
        reg_lambda=0.1 * N,
        reg_alpha=0.05 * N,
        base_score=base,
        **{**PLAIN, "learning_rate": 0.5},
    )
    model = model.truncate(rounds)
    margin = peer.predict(xgboost.DMatrix(centred), output_margin=True)
    np.testing.assert_allclose(model.predict(centred), margin, rtol=0, atol=2e-5)


def test_greedy_changes_what_takes_the_objective_down_most(x64):
    options: dict[str, Any] = {**PLAIN, "n_estimators": 1, "top_k": 1, "reg_lambda": 2.0, "reg_alpha": 1.0}
    centred, r = X - X.mean(axis=0), Y - Y.mean()
    slope, bend = -centred.T @ r, np.sum(centred**2, axis=0)
    best = np.sign(-slope) * np.maximum(np.abs(slope) - 1, 0) / (bend + 2)
    falls = [
        np.sum(r**2) / 2 - np.sum((r - c * b) ** 2) / 2 - b**2 - abs(b)
        for c, b in zip(centred.T, best, strict=True)
    ]
    expected = np.where(np.arange(F) == np.argmax(falls), best, 0)
    for selector in ("greedy", "thrifty"):
        model, _ = fit_linear(losses.squared_error, X, Y, feature_selector=selector, **options)
        np.testing.assert_allclose(model.coef[0], expected, rtol=1e-10)


@pytest.mark.parametrize("selector", ["cyclic", pytest.param("block", marks=pytest.mark.slow)])
def test_the_objective_never_rises(selector, x64):
    """Columns that are nearly the same, two classes with an output each, and steps that are too long."""
    same = np.column_stack([X[:, 0] + 0.01 * RNG.normal(size=N) for _ in range(F)])
    for rate in (1.0, 1.9):
        model, history = fit_linear(
            losses.softmax(3), same, CLASS, feature_selector=selector, reg_lambda=0.1, reg_alpha=0.1,
            **{**PLAIN, "n_estimators": 2000, "learning_rate": rate},
        )  # fmt: skip
        coef = np.asarray(model.coef_path)
        penalty = 0.05 * np.sum(coef**2, axis=(1, 2)) + 0.1 * np.sum(np.abs(coef), axis=(1, 2))
        objective = N * np.asarray(history.train_loss) + penalty
        assert (np.diff(objective) <= 1e-10).all()
        assert objective[-1] < objective[0]


def test_units_of_target_loss_and_columns_change_nothing():
    options: dict[str, Any] = {"n_estimators": 60, "learning_rate": 1.0, "sample_weight": WEIGHT}
    penalised, _ = fit_linear(losses.squared_error, X, Y, reg_alpha=0.5, **options)
    for unit in (1e-6, 1e6):
        model, _ = fit_linear(losses.squared_error, X, Y * unit, reg_alpha=0.5, **options)
        np.testing.assert_allclose(model.coef / unit, penalised.coef, rtol=1e-4, atol=1e-5)
    free, _ = fit_linear(losses.squared_error, X, Y, reg_lambda=0.0, **options)
    unit = np.array([1e-6, 1e6, 1.0, 1e9])
    model, _ = fit_linear(losses.squared_error, X * unit, Y, reg_lambda=0.0, **options)
    np.testing.assert_allclose(model.coef[0] * unit, free.coef[0], rtol=1e-3)
    far = X + np.array([1e6, 0.0, 0.0, -1e7])
    model, _ = fit_linear(losses.squared_error, far, Y, reg_lambda=0.0, **options)
    np.testing.assert_allclose(model.predict(far), free.predict(X), atol=2e-3)


def test_missing_values_stand_at_the_mean_and_rows_without_weight_are_not_there(x64):
    gaps = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    weight = np.where(np.arange(N) < 5, 0.0, WEIGHT)
    known = np.where(np.isnan(gaps), 0, weight[:, None])
    center = np.sum(known * np.nan_to_num(gaps), axis=0) / known.sum(axis=0)
    filled = np.where(np.isnan(gaps), center, gaps)
    model, _ = fit_linear(losses.squared_error, gaps, Y, sample_weight=weight, **PLAIN)
    whole, _ = fit_linear(losses.squared_error, filled[5:], Y[5:], sample_weight=weight[5:], **PLAIN)
    np.testing.assert_allclose(coef_of(model), coef_of(whole), rtol=1e-8)
    np.testing.assert_allclose(model.predict(gaps), whole.predict(filled), rtol=1e-8)
    marked, _ = fit_linear(
        losses.squared_error,
        np.where(np.isnan(gaps), -999, gaps),
        Y,
        sample_weight=weight,
        missing=-999,
        **PLAIN,
    )
    np.testing.assert_allclose(marked.predict(np.where(np.isnan(gaps), -999, gaps)), model.predict(gaps))


def test_what_has_nothing_to_learn_from_learns_nothing():
    constant = np.column_stack([np.full(N, 0.1), X[:, 1], np.full(N, np.nan), np.full(N, -1e9)])
    model, _ = fit_linear(losses.squared_error, constant, Y, n_estimators=60, reg_lambda=0.0)
    np.testing.assert_array_equal(model.coef[0] != 0, [False, True, False, False])
    model, history = fit_linear(losses.squared_error, X, np.full(N, 7.0), n_estimators=60)
    np.testing.assert_array_equal(model.predict(X), np.full(N, 7.0, np.float32))
    assert (history.train_loss == 0).all()
    none, history = fit_linear(losses.squared_error, X, Y, n_estimators=0)
    np.testing.assert_allclose(none.predict(X), np.full(N, Y.mean()), rtol=1e-6)
    assert (none.n_rounds, len(history.train_loss)) == (0, 0)
    one_row, _ = fit_linear(losses.squared_error, X[:1], Y[:1], n_estimators=60)
    np.testing.assert_allclose(one_row.predict(X), np.full(N, Y[0]), rtol=1e-6)


def test_rounds_stop_early_at_the_best_one():
    options: dict[str, Any] = {
        "n_estimators": 60,
        "reg_lambda": 0.0,
        "metric": jboost.metrics.mae,
        "learning_rate": 0.3,
    }
    rows, held = slice(0, 12), slice(12, N)
    valid = X[held], Y[held], WEIGHT[held]
    noisy = Y[rows] + 5 * RNG.normal(size=12)
    model, history = fit_linear(
        losses.squared_error, X[rows], noisy, valid=valid, n_iter_no_change=4, **options
    )
    every, whole = fit_linear(losses.squared_error, X[rows], noisy, valid=valid, **options)
    n_run = len(history.valid_metric)
    assert n_run < 60 == len(whole.valid_metric)
    assert history.best_round == np.argmin(history.valid_metric) == model.n_rounds - 1 == n_run - 5
    np.testing.assert_allclose(history.valid_metric, whole.valid_metric[:n_run], rtol=1e-6)
    np.testing.assert_array_equal(model.coef_path, every.truncate(model.n_rounds).coef_path)
    scores = [
        np.average(np.abs(score - Y[held]), weights=WEIGHT[held]) for score in every.staged_predict(X[held])
    ]
    np.testing.assert_allclose(scores, whole.valid_metric, rtol=1e-5)


@pytest.mark.slow
def test_under_jit_the_rounds_after_the_best_repeat_it():
    options: dict[str, Any] = {
        "n_estimators": 60,
        "reg_lambda": 0.0,
        "valid": (X[12:], Y[12:]),
        "n_iter_no_change": 4,
    }
    noisy = Y[:12] + 5 * np.random.default_rng(3).normal(size=12)
    model, history = fit_linear(losses.squared_error, X[:12], noisy, **options)
    inside, told = jax.jit(lambda y: fit_linear(losses.squared_error, X[:12], y, **options))(noisy)
    assert told.best_round == history.best_round < 55
    np.testing.assert_allclose(inside.coef, model.coef, rtol=1e-4)


def risk(numbers: Any) -> Any:
    """Return the loss of rows held out, given two penalties."""
    model, _ = fit_linear(
        losses.logistic, X[:40], LABEL[:40], n_estimators=20, reg_lambda=numbers[0], reg_alpha=numbers[1]
    )
    score, y = model.predict(X[40:]), jnp.asarray(LABEL[40:])
    return jnp.mean(jnp.logaddexp(0, score) - y * score)


@pytest.mark.slow
def test_vmap_and_derivatives_by_the_penalties(x64):
    at, step = np.array([0.7, 0.4]), 1e-5
    points = np.concatenate([at[None] + step * np.eye(2), at[None] - step * np.eye(2), at[None]])
    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(risk)))(points)
    np.testing.assert_allclose(gradients[-1], (values[:2] - values[2:4]) / (2 * step), rtol=1e-6)
    alone, _ = fit_linear(losses.logistic, X[:40], LABEL[:40], n_estimators=20, reg_lambda=0.7, reg_alpha=0.4)
    score = np.asarray(alone.predict(X[40:]))
    np.testing.assert_allclose(values[-1], np.mean(np.logaddexp(0, score) - LABEL[40:] * score), rtol=1e-10)


@pytest.mark.slow
def test_derivatives_of_derivatives(x64):
    at, step = np.array([0.7, 0.4]), 1e-5
    gradient = jax.jit(jax.grad(risk))
    hessian = jax.jit(jax.hessian(risk))(at)
    numeric = [(gradient(at + step * one) - gradient(at - step * one)) / (2 * step) for one in np.eye(2)]
    np.testing.assert_allclose(hessian, numeric, rtol=1e-5)


def test_absolute_errors_go_down_to_near_the_least_whatever_the_unit():
    least = np.abs(Y - QuantileRegressor(quantile=0.5, alpha=0).fit(X, Y).predict(X)).mean()
    for unit in (1e-4, 1.0, 1e4):
        _, history = fit_linear(losses.absolute_error, X, Y * unit, n_estimators=60, reg_lambda=0.0)
        assert (np.diff(history.train_loss) <= 1e-6 * history.train_loss[0]).all()
        assert least * unit <= history.train_loss[-1] < 1.05 * least * unit


# ---------------------------------------------------------------- estimators


def test_a_regressor_is_the_function_and_a_classifier_reads_labels():
    estimator = JBoostRegressor(booster="linear", n_estimators=60).fit(X, Y, WEIGHT)
    model, history = fit_linear(
        losses.squared_error, X, Y, sample_weight=WEIGHT, n_estimators=60, learning_rate=0.1
    )
    np.testing.assert_allclose(estimator.predict(X), model.predict(X), rtol=1e-6)
    np.testing.assert_allclose(estimator.coef_, model.coef[0])
    np.testing.assert_allclose(
        estimator.predict(X), X @ estimator.coef_ + estimator.intercept_, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(estimator.predict(X, 5), model.truncate(5).predict(X), rtol=1e-6)
    np.testing.assert_array_equal(estimator.history_.train_loss, history.train_loss)
    assert len(list(estimator.staged_predict(X))) == estimator.n_trees_ == 60
    words = np.array(["low", "middle", "high"])[CLASS]
    several = JBoostClassifier(booster="linear", n_estimators=60).fit(X, words)
    assert (several.coef_.shape, several.intercept_.shape) == ((3, F), (3,))
    assert several.score(X, words) > 0.6
    two = JBoostClassifier(booster="linear", n_estimators=60).fit(X, LABEL)
    assert (two.coef_.shape, two.intercept_.shape) == ((1, F), (1,))
    probability = expit(X @ two.coef_[0] + two.intercept_[0])
    np.testing.assert_allclose(two.predict_proba(X)[:, 1], probability, atol=1e-5)


@pytest.mark.slow
def test_an_estimator_stops_early_by_metrics_of_any_kind():
    estimator = JBoostRegressor(
        booster="linear", n_estimators=60, learning_rate=0.5, n_iter_no_change=3,
        eval_metric=["mae", "neg_median_absolute_error"],
    ).fit(X[:40], Y[:40], eval_set=[(X[40:], Y[40:])])  # fmt: skip
    curves = estimator.evals_result_["validation_0"]
    median = [-np.median(np.abs(score - Y[40:])) for score in estimator.staged_predict(X[40:])]
    np.testing.assert_allclose(curves["neg_median_absolute_error"], median, rtol=1e-5)
    assert estimator.best_score_ == pytest.approx(np.max(estimator.history_.valid_metric))
    assert len(curves["mae"]) == estimator.n_trees_ < 60


def test_parameters_and_attributes_of_the_other_booster_are_refused():
    for parameters, name in [
        ({"booster": "dart"}, "booster must be one of 'tree', 'linear'"),
        (
            {"booster": "linear", "categorical_features": np.ones(F, bool)},
            "categorical_features is a parameter",
        ),
        ({"booster": np.array(["tree", "linear"])}, "booster must be one of 'tree', 'linear', got array"),
        ({"booster": "linear", "max_depth": 3}, "max_depth is a parameter of booster='tree'"),
        ({"booster": "linear", "sampler": "goss"}, "sampler is a parameter of booster='tree'"),
        ({"booster": "linear", "warm_start": True}, "warm_start is a parameter"),
        ({"top_k": 3}, "top_k is a parameter of booster='linear'"),
    ]:
        with pytest.raises(ValueError, match=name):
            JBoostRegressor(**parameters).fit(X, Y)
    with pytest.raises(ValueError, match="booster must be 'tree' in every setting"):
        jboost.JBoostSearchCV(JBoostRegressor(booster="linear"), param_grid={"reg_lambda": [1.0]}).fit(X, Y)
    for argument in ({"init_model": "model"}, {"callbacks": [print]}, {"feature_weights": np.ones(F)}):
        with pytest.raises(ValueError, match=f"{next(iter(argument))} must be None with booster='linear'"):
            JBoostRegressor(booster="linear").fit(X, Y, **argument)
    linear = JBoostRegressor(booster="linear", n_estimators=60).fit(X, Y, callbacks=[])
    assert not hasattr(linear, "feature_importances_")
    with pytest.raises(AttributeError, match="apply tells of trees"):
        linear.apply(X)
    assert not hasattr(JBoostRegressor(n_estimators=1, max_depth=2).fit(X, Y), "coef_")


@pytest.mark.slow
def test_parameters_of_a_distribution_are_linear_too():
    estimator = JBoostDistribution(booster="linear", n_estimators=60).fit(X, Y)
    assert estimator.coef_.shape == (2, F)
    assert (
        estimator.score(X, Y)
        > JBoostDistribution(booster="linear", n_estimators=0).fit(X, Y).score(X, Y) + 0.3
    )


def test_a_model_comes_back_from_a_file(tmp_path):
    estimator = JBoostRegressor(booster="linear", n_estimators=60, missing=-9.0).fit(X, Y)
    path = tmp_path / "model.jboost"
    jboost.save(estimator.model_, path)
    again = jboost.load(path)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(estimator.model_), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (again.missing, again.scalar_output) == (-9.0, True)
    broken = dataclasses.replace(again, center=again.center[:-1])
    with pytest.raises(ValueError, match="model cannot be saved: center: expected shape"):
        jboost.save(broken, path)
    with pytest.raises(ValueError, match="finite"):
        jboost.save(dataclasses.replace(again, base=again.base * np.nan), path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_estimators": -1}, "n_estimators must be at least 0"),
        ({"feature_selector": "best"}, "feature_selector must be one of"),
        ({"top_k": 2}, "top_k must be None unless"),
        ({"penalties": "none"}, "penalties must be one of"),
        ({"reg_alpha": -1.0}, "reg_alpha must be non-negative"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"n_iter_no_change": 3}, "valid must be given"),
        ({"metric": jboost.metrics.mae}, "valid must be given with a metric"),
        ({"valid": (X[:, :2], Y)}, "valid.0.: X must have the 4 columns of the training rows, got 2"),
        ({"X": X[:-1]}, "y must have one entry for each of the 59 rows of X"),
        ({"X": np.where(X > 1, np.inf, X)}, "X must be finite or missing"),
        ({"X": X[:0]}, "X must not be empty"),
        ({"X": X[:, 0]}, "X must be a 2-D array"),
        ({"y": Y * np.nan}, "y must be finite"),
        ({"missing": np.inf}, "missing must be finite"),
    ],
)
def test_bad_input_is_named(arguments, message):
    given = {"X": X, "y": Y, **arguments}
    with pytest.raises(ValueError, match=message):
        fit_linear(losses.squared_error, given.pop("X"), given.pop("y"), **given)


def test_codes_and_categories_are_refused():
    with pytest.raises(TypeError, match="got a Binned"):
        fit_linear(losses.squared_error, jboost.bin_features(X), Y)
    with pytest.raises(TypeError, match="column 0, got str; encode it"):
        fit_linear(losses.squared_error, np.full((N, 1), "a", object), Y)
    model, _ = fit_linear(losses.squared_error, X, Y, n_estimators=60)
    with pytest.raises(ValueError, match="X must have the 4 columns of fit, got 2"):
        model.predict(X[:, :2])
    with pytest.raises(ValueError, match="n_rounds must be between 0 and 60"):
        model.truncate(61)


@pytest.mark.parametrize("factor", [1e-38, 1e38, 1e200])
def test_columns_beyond_the_floats_are_refused(factor):
    X = factor * np.linspace(-1, 1, 20)[:, None]
    with pytest.raises(ValueError, match=r"X must have columns with means up to .* in column 0; scale it"):
        jboost.fit_linear(jboost.losses.squared_error, X, X[:, 0] / factor)


def test_a_linear_model_is_no_start_for_trees():
    X = np.linspace(-1, 1, 20)[:, None]
    linear = jboost.JBoostRegressor(booster="linear", n_estimators=2).fit(X, X[:, 0])
    with pytest.raises(TypeError, match=r"init_model must be a model of trees, got one .* booster='linear'"):
        jboost.JBoostRegressor().fit(X, X[:, 0], init_model=linear)
    with pytest.raises(
        ValueError, match=r"booster must be 'linear', as in the fit before, .* warm_start=False"
    ):
        linear.set_params(booster="tree", warm_start=True).fit(X, X[:, 0])


def test_columns_of_a_frame_are_read_by_name(tmp_path):
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(F)])
    turned = frame[frame.columns[::-1]]
    plain, _ = fit_linear(losses.squared_error, X, Y, n_estimators=2)
    model, history = fit_linear(losses.squared_error, frame, Y, n_estimators=2, valid=(turned, Y))
    np.testing.assert_allclose(history.valid_metric, history.train_loss, rtol=1e-5)
    estimator = JBoostRegressor(booster="linear", n_estimators=2).fit(frame, Y)
    np.testing.assert_array_equal(estimator.model_.predict(turned), estimator.predict(frame))
    jboost.save(model, tmp_path / "model.jboost")
    for one in (model, jboost.load(tmp_path / "model.jboost")):
        np.testing.assert_array_equal(one.predict(turned), plain.predict(X))
        np.testing.assert_array_equal(one.predict(X), plain.predict(X))
        with pytest.raises(ValueError, match=r"missing \['x0'\] \(1\), unexpected \['z'\]"):
            one.predict(frame.rename(columns={"x0": "z"}))
