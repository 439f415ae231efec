"""Fine-tuning against closed forms, finite differences and itself in other units; what it keeps and refuses."""

from __future__ import annotations

import dataclasses
import functools
import logging
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import twin

import jboost
from jboost import losses
from jboost._model.leaves import leaf_numbers
from jboost.differentiable import descent, finetune, hard
from jboost.differentiable.descent import run_chunk

N = 120
SPEC = jboost.Spec(n_estimators=4, max_depth=2)
FORMS = [pytest.param("symmetric", "vector", marks=pytest.mark.slow), ("depthwise", "separate")]
ALL = ("leaf_value", "tree_weight", "base")
SGD = optax.sgd(1.0)


def rows(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)


@functools.cache
def model_of() -> jboost.Ensemble:
    with jax.enable_x64(False):
        return jboost.fit(losses.squared_error, *rows(), spec=SPEC)[0]


def in_float64(model: jboost.Ensemble) -> jboost.Ensemble:
    return jax.tree.map(lambda leaf: leaf.astype(float) if leaf.dtype == np.float32 else leaf, model)


def log_loss(score, y):  # of scores without a link, as those of the model have
    return jnp.logaddexp(0.0, score) - y * score


# ---------------------------------------------------------------- against other computations


def indicators(model: jboost.Ensemble, X: np.ndarray) -> np.ndarray:
    """Say by a column for each leaf of each tree which rows it holds."""
    leaf = leaf_numbers(model, X)
    return (leaf[:, :, None] == np.arange(4)).reshape(len(X), -1).astype(float)


def test_squares_and_decay_end_at_the_ridge_solution(x64):
    """Least squares in the leaf values and the base score, with a penalty on the way from those of the model."""
    X, y = rows()
    model, decay, weight = in_float64(model_of()), 0.7, 1.0 + np.arange(N) % 3
    target = 2 * y + X[:, 1]
    by, optimizer = ("leaf_value", "base"), optax.sgd(0.2, momentum=0.9)
    how = {"by": by, "optimizer": optimizer, "steps": 5000, "decay": decay, "sample_weight": weight}
    found, history = finetune(model, losses.squared_error, X, target, **how)
    A = np.column_stack([indicators(model, X), np.ones(N)])
    price = np.append(np.full(4 * model.n_trees, decay * model.n_trees), decay)
    residual = target - np.asarray(jboost.predict(model, X))
    moved = np.linalg.solve(A.T @ (weight[:, None] * A) + np.diag(price), A.T @ (weight * residual))
    start, end = (np.append(one.leaf_value.ravel(), one.base) for one in (model, found))
    np.testing.assert_allclose(end - start, moved, rtol=1e-5, atol=1e-6)
    loss = np.average(np.square(target - A @ moved - (target - residual)) / 2, weights=weight)
    np.testing.assert_allclose(history.train_loss[-1], loss, rtol=1e-6)


def test_a_step_goes_down_the_gradient_of_the_mean_loss(x64):
    """Against central differences of a loss written in NumPy, by everything that can be trained."""
    X, y = rows()
    model, label, offset = in_float64(model_of()), (y > 0.3) * 1.0, 0.2 * X[:, :1]
    weight = 1.0 + np.arange(N) % 2
    moved, _ = finetune(
        model, log_loss, X, label, by=ALL, optimizer=SGD, steps=1, sample_weight=weight, offset=offset
    )

    def mean_loss(name: str, value: np.ndarray) -> float:
        changed = dataclasses.replace(model, **{name: jnp.asarray(value)})
        score = np.asarray(jboost.predict(changed, X, offset=offset))
        return float(np.average(np.logaddexp(0, score) - label * score, weights=weight))

    for name in ALL:
        at, step = np.asarray(getattr(model, name)), np.asarray(getattr(moved, name) - getattr(model, name))
        for place in np.ndindex(at.shape):
            nudge = np.zeros(at.shape)
            nudge[place] = 1e-5
            slope = (mean_loss(name, at + nudge) - mean_loss(name, at - nudge)) / 2e-5
            np.testing.assert_allclose(-step[place], slope, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("policy", "multi_output"), FORMS)
def test_rows_are_scored_as_by_predict(policy, multi_output, monkeypatch):
    """Missing values, categories, trees of every form; with leaves that are known, and found anew in each step."""
    given = twin.problem()
    y = given.targets["pair"]
    spec = dataclasses.replace(SPEC, grow_policy=policy, multi_output=multi_output)
    model, _ = jboost.fit(losses.squared_error, given.data, y, spec=spec)
    of_rows = np.square(np.asarray(jboost.predict(model, given.X)) - y).sum(axis=1) / 2
    found = []
    for most in (2**30, 0):
        monkeypatch.setattr(hard, "MOST_KNOWN", most)
        found.append(finetune(model, losses.squared_error, given.X, y, steps=2))
    np.testing.assert_allclose(found[0][1].train_loss[0], of_rows.mean(), rtol=1e-5)
    np.testing.assert_allclose(found[0][1].train_loss, found[1][1].train_loss, rtol=1e-5)
    np.testing.assert_allclose(found[0][0].leaf_value, found[1][0].leaf_value, rtol=1e-3, atol=1e-6)


def test_units_of_the_target_do_not_matter():
    """Nor how the leaf values are shared out between leaves and weights of trees."""
    X, y = rows()
    found, falls = [], []
    for unit, share in ((1.0, 1.0), (1e-6, 1.0), (1e6, 1.0), (1.0, 1e-3)):
        model, _ = jboost.fit(losses.squared_error, X, unit * y, spec=SPEC)
        shared = {"leaf_value": model.leaf_value / share, "tree_weight": model.tree_weight * share}
        model = dataclasses.replace(model, **shared)
        tuned, history = finetune(
            model, losses.squared_error, X, unit * (3 * y + 1), steps=300, by=ALL, decay=0.1
        )
        found.append(np.asarray(jboost.predict(tuned, X)) / unit)
        falls.append(history.train_loss[-1] / history.train_loss[0])
    assert falls[0] < 0.5
    np.testing.assert_allclose(falls, falls[0], rtol=1e-4)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=0.01, atol=0.01)
    # Squares of 1e-20 are 0 in float32, so that no step could be better than another.
    model, _ = jboost.fit(losses.squared_error, X, 1e-20 * y, spec=SPEC)
    with pytest.warns(RuntimeWarning, match="the loss was 0 in every step.*scale y"):
        tuned, history = finetune(
            model, losses.squared_error, X, 1e-20 * (3 * y + 1), steps=300, by=ALL, decay=0.1
        )
    np.testing.assert_array_equal(tuned.leaf_value, model.leaf_value)


def test_losses_of_groups_and_of_all_rows_are_those_of_rows_where_these_stand_alone():
    X, y = rows()

    def of_all(score, y, weight):
        return (weight * jnp.square(score - y)).sum() / 2

    def of_group(score, y, mask):
        return jnp.where(mask, jnp.square(score - y), 0).sum() / 2

    model, groups = model_of(), np.arange(N) // 3
    options: dict[str, Any] = {"steps": 5}
    alone, _ = finetune(model, losses.squared_error, X, 2 * y, **options)
    together, _ = finetune(model, jboost.BatchLoss(of_all), X, 2 * y, **options)
    grouped, _ = finetune(model, jboost.GroupLoss(of_group), X, 2 * y, groups=groups, **options)
    for other in (together, grouped):
        np.testing.assert_allclose(other.leaf_value, alone.leaf_value, rtol=1e-3, atol=1e-6)


# ---------------------------------------------------------------- batches, stopping, programs


def linear(score, y):  # whose gradient is the target, so that steps of rate 1 add up
    return score * y


def test_a_pass_of_mini_batches_takes_each_row_once():
    X, _ = rows()
    y, weight = 2.0 ** (np.arange(N) % 10), np.where(np.arange(N) < 20, 1.0, 0.0)
    model = model_of()
    options = {"by": ("base",), "optimizer": SGD, "batch_size": 1, "sample_weight": weight}
    _, history = finetune(model, linear, X, y, steps=40, **options)
    moved = [finetune(model, linear, X, y, steps=steps, **options)[0].base - model.base for steps in (20, 40)]
    np.testing.assert_allclose(np.ravel(moved), -y[:20].sum() * np.array([1, 2]), rtol=1e-5)
    assert history.best_step == 40


def test_a_pass_of_mini_batches_takes_each_group_once_and_whole():
    def of_group(score, y, mask):  # which knows how many rows there are
        return jnp.where(mask, score * y, 0).sum() * mask.sum().astype(score.dtype)

    # Two classes of sizes; a batch has two groups of the one and one of the other.
    ids = np.repeat(np.arange(13), [3] * 8 + [5] * 5)
    X, y, weight = rows()[0][:49], 2.0 ** (np.arange(49) % 10), np.where(ids < 12, 1.0, 0.0)
    mixed = np.random.default_rng(1).permutation(49)
    X, y, weight, ids = X[mixed], y[mixed], weight[mixed], ids[mixed]
    model, loss = model_of(), jboost.GroupLoss(of_group)
    options: dict[str, Any] = {
        "by": ("base",),
        "optimizer": SGD,
        "batch_size": 11,
        "sample_weight": weight,
        "groups": ids,
    }
    moved = [finetune(model, loss, X, y, steps=steps, **options)[0].base - model.base for steps in (4, 8)]
    in_all = sum(y[ids == one].sum() * (ids == one).sum() for one in range(12)) / 11
    np.testing.assert_allclose(np.ravel(moved), -in_all * np.array([1, 2]), rtol=1e-5)
    options["optimizer"] = optax.sgd(0.0)
    _, history = finetune(model, loss, X, y, steps=8, **options)
    means = history.train_loss[:8].reshape(2, 4)
    np.testing.assert_allclose(*means.mean(axis=1), rtol=1e-5)
    assert len(np.unique(np.round(means, 3))) > 4  # another order in the second pass


def test_the_best_numbers_on_the_validation_rows_are_kept():
    X, y = rows()
    train, valid = (X[:30], -y[:30]), (X[60:], y[60:], None, np.full(60, 0.1))
    model, history = finetune(
        model_of(), losses.squared_error, *train, valid=valid, metric=jboost.metrics.rmse, steps=40
    )
    assert history.best_step == np.argmin(history.valid_metric) < 40
    score = np.asarray(jboost.predict(model, X[60:])) + 0.1
    np.testing.assert_allclose(
        np.sqrt(np.square(score - y[60:]).mean()), history.valid_metric[history.best_step], rtol=1e-5
    )
    _, stopped = finetune(
        model_of(),
        losses.squared_error,
        *train,
        valid=valid,
        metric=jboost.metrics.rmse,
        n_iter_no_change=3,
        steps=40,
    )
    assert len(stopped.train_loss) == stopped.best_step + 4


def test_mini_batches_are_judged_once_a_pass():
    X, y = rows()
    _, history = finetune(model_of(), losses.huber(1.0), X, 2 * y, valid=(X, 2 * y), batch_size=40, steps=10)
    assert np.flatnonzero(np.isfinite(history.valid_metric)).tolist() == [0, 3, 6, 9, 10]


def test_other_numbers_compile_nothing(caplog):
    X, y = rows()
    options = {"valid": (X, y), "batch_size": 40}
    finetune(model_of(), losses.huber(1.0), X, y + 3, steps=10, decay=1.0, **options)
    model = dataclasses.replace(model_of(), leaf_value=2 * model_of().leaf_value)
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        finetune(model, losses.huber(2.0), X[:-1] + 1, y[:-1], steps=20, decay=0.5, **options)
    assert not [message for message in caplog.messages if "Compiling" in message or "compilation" in message]


def test_a_tuned_model_is_one_like_any_other(tmp_path):
    X, y = rows()
    model, _ = finetune(model_of(), losses.squared_error, X, 2 * y, steps=5, by=ALL, decay=0.1)
    jboost.save(model, tmp_path / "model")
    np.testing.assert_array_equal(
        jboost.predict(jboost.load(tmp_path / "model"), X), jboost.predict(model, X)
    )
    longer, history = jboost.fit(losses.squared_error, X, 2 * y, spec=SPEC, init_model=model)
    assert longer.n_trees == 2 * SPEC.n_estimators
    assert history.train_loss[-1] < np.square(np.asarray(jboost.predict(model, X)) - 2 * y).mean() / 2


# ---------------------------------------------------------------- what goes wrong


def test_steps_that_are_too_large_lose_nothing():
    X, y = rows()
    model = model_of()
    with pytest.warns(RuntimeWarning, match="learning rate of optimizer"):
        found, history = finetune(model, losses.squared_error, X, 2 * y, optimizer=optax.sgd(1e9), steps=50)
    assert history.best_step == 0
    np.testing.assert_array_equal(found.leaf_value, model.leaf_value)
    with pytest.warns(RuntimeWarning, match="the loss rose"):
        finetune(model, losses.squared_error, X, 2 * y, optimizer=optax.sgd(3.0), steps=3)


@pytest.mark.parametrize("n_calls", [0, 2])
def test_an_interrupt_keeps_the_best_so_far(n_calls, monkeypatch):
    X, y = rows()
    calls = []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > n_calls:
            raise KeyboardInterrupt
        return run_chunk(*arguments)

    monkeypatch.setattr(descent, "run_chunk", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        model, history = finetune(model_of(), losses.squared_error, X, 2 * y, valid=(X, 2 * y), steps=1000)
    assert len(history.train_loss) == len(history.valid_metric)
    assert (len(history.train_loss) > 0) == (n_calls > 0)
    assert np.array_equal(model.leaf_value, model_of().leaf_value) == (n_calls == 0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda s, y: jnp.log(s - 1e9),
            "^loss: the loss must be finite at the scores of model, got nan; write",
        ),
        (
            lambda s, y: 0.5 + jnp.sqrt(0 * (s - y)),
            "^loss: the gradient of the loss must be .* not, where the loss is 0.5; write",
        ),
    ],
)
def test_a_model_that_is_no_start_is_refused(loss, message):
    with pytest.raises(ValueError, match=message):
        finetune(model_of(), loss, *rows(), steps=3)


def of_all(score, y, weight):
    return score.sum()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"by": "leaf_value"}, TypeError, "by must be a tuple"),
        ({"by": ("threshold",)}, ValueError, "by must name"),
        ({"by": ()}, ValueError, "by must name"),
        ({"by": ("base", "base")}, ValueError, "each once"),
        ({"metric": jboost.metrics.rmse}, ValueError, "valid must be given with a metric"),
        ({"groups": np.zeros(N, int)}, ValueError, "groups must be None for a Loss"),
        ({"steps": -1}, ValueError, "steps must be at least 0"),
        ({"steps": 1.5}, TypeError, "steps must be an integer"),
        ({"decay": -1.0}, ValueError, "decay must be a finite number"),
        ({"decay": "much"}, TypeError, "decay must be a number"),
        ({"optimizer": optax.adam}, TypeError, "optimizer must be an optax"),
        ({"optimizer": 0.1}, TypeError, "optimizer must be an optax"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"batch_size": N + 1}, ValueError, "at most the number of rows"),
        ({"loss": jboost.BatchLoss(of_all), "batch_size": 5}, ValueError, "depend on each other"),
        ({"loss": losses.logistic, "y": np.zeros(N)}, ValueError, "inverse_link"),
        ({"loss": losses.softmax(3), "y": np.zeros(N)}, ValueError, "inverse_link"),
        ({"y": np.zeros((N, 2))}, ValueError, "the loss and y ask for 2"),
        ({"y": np.zeros(3)}, ValueError, "y must have one entry for each"),
        ({"X": np.zeros((N, 2))}, ValueError, "X has 2 features"),
        ({"n_iter_no_change": 2}, ValueError, "valid must be given"),
        ({"valid": (np.zeros((2, 3)), np.zeros(3))}, ValueError, "one entry for each of the 2 rows"),
        ({"metric": jboost.Metric(of_all, on_host=True)}, ValueError, "metric must be in JAX"),
        ({"model": None}, TypeError, "model must be a jboost.Ensemble"),
        ({"key": 3.0}, TypeError, "key must be a JAX key"),
        ({"sample_weight": np.zeros(N)}, ValueError, "sample_weight must hold a weight above zero"),
    ],
)
def test_what_does_not_fit_is_named(changes, error, message):
    X, y = rows()
    given = {"model": model_of(), "loss": losses.squared_error, "X": X, "y": y, **changes}
    positional = [given.pop(name) for name in ("model", "loss", "X", "y")]
    with pytest.raises(error, match=message):
        finetune(*positional, **given)


def test_a_transformation_is_told_what_to_do():
    X, y = rows()
    with pytest.raises(TypeError, match=r"jax\.grad of a loss"):
        jax.jit(lambda y: finetune(model_of(), losses.squared_error, X, y, steps=1)[0].base)(y)


def test_without_optax_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r"jboost\[differentiable\]"):
        finetune(model_of(), losses.squared_error, *rows())


@pytest.mark.slow
def test_a_metric_that_is_no_number_is_refused():
    X, y = rows()
    with pytest.raises(ValueError, match="metric must return a number"):
        finetune(
            model_of(),
            losses.squared_error,
            X,
            y,
            valid=(X, y),
            metric=lambda s, y, w: jnp.nan * s.sum(),
            steps=2,
        )
