"""Options of `fit` beside the data: base score, weights of features, callbacks, tolerance of early stopping."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Progress, Spec, losses
from jboost.boosting.best_round import follow
from tests.twin import assert_same_models, problem

SMALL = Spec(n_estimators=6, max_depth=2)
pytestmark = pytest.mark.usefixtures("x64")


def parts():
    """Rows to train on and rows to watch."""
    rows = problem("mixed")
    return rows.take(slice(0, 260)), rows.take(slice(260, 400))


def fit_real(spec=SMALL, **options):
    train, _ = parts()
    return jboost.fit(losses.squared_error, train.data, train.targets["real"], spec=spec, **options)


# ---------------------------------------------------------------- base score


def test_a_base_score_is_where_a_fit_starts():
    """Under the squared error, that is the fit of what a constant leaves, which would start from its own mean."""
    train, _ = parts()
    y = train.targets["real"]
    model, _ = fit_real(base_score=3.0)
    shifted, _ = jboost.fit(losses.squared_error, train.data, y - 3.0, spec=SMALL, base_score=0.0)
    assert float(model.base[0]) == 3.0
    expected = 3.0 + np.asarray(jboost.predict(shifted, train.X))
    np.testing.assert_allclose(jboost.predict(model, train.X), expected, rtol=1e-6, atol=1e-6)
    best, _ = fit_real()
    assert_same_models(fit_real(base_score=np.asarray(best.base)[0])[0], best)


@pytest.mark.slow
def test_a_base_score_for_each_output():
    train, _ = parts()
    y = np.stack([train.targets["real"], train.targets["real"] ** 2], axis=1)
    model, _ = jboost.fit(losses.squared_error, train.data, y, spec=SMALL, base_score=[1.0, -2.0])
    np.testing.assert_array_equal(model.base, [1.0, -2.0])
    both, _ = jboost.fit(losses.squared_error, train.data, y, spec=SMALL, base_score=1)
    np.testing.assert_array_equal(both.base, [1.0, 1.0])


def test_a_base_score_may_be_traced():
    train, _ = parts()
    y = train.targets["real"]

    @jax.jit
    @jax.grad
    def slope(base_score):
        model, _ = jboost.fit(losses.squared_error, train.data, y, spec=SMALL, base_score=base_score)
        return jboost.predict(model, train.data).sum()

    # A constant more in every score is, in every leaf of squared error, a constant G more: linear.
    at = [np.asarray(jboost.predict(fit_real(base_score=b)[0], train.X)).sum() for b in (0.5, 0.5 + 1e-6)]
    np.testing.assert_allclose(slope(0.5), (at[1] - at[0]) / 1e-6, rtol=1e-3)


@pytest.mark.parametrize(
    ("base_score", "error", "message"),
    [
        ("0.5", TypeError, "base_score must be a number"),
        (True, TypeError, "base_score must be a number"),
        (np.ma.masked_array([1.0], mask=[True]), ValueError, "base_score .*mask"),
        (np.nan, ValueError, "base_score must be finite"),
        ([0.0, 1.0], ValueError, r"base_score must be a number or have shape \(1,\)"),
    ],
)
def test_a_base_score_that_is_none_is_refused(base_score, error, message):
    with pytest.raises(error, match=message):
        fit_real(base_score=base_score)


def test_a_continued_fit_has_a_base_score_already():
    with pytest.raises(ValueError, match="base_score must be None with init_model"):
        fit_real(base_score=1.0, init_model=fit_real()[0])


# ---------------------------------------------------------------- weights of features


def test_a_feature_of_weight_zero_is_not_used():
    train, _ = parts()
    weights = np.ones(train.X.shape[1])
    weights[0] = 0
    model, _ = fit_real(feature_weights=weights)
    used, gain = np.ravel(model.trees.feature), np.ravel(model.trees.gain)
    assert 0 in np.ravel(fit_real()[0].trees.feature)
    assert 0 not in used[gain > 0]


def test_a_heavy_feature_is_used_more_often():
    train, _ = parts()
    spec, hyper = dataclasses.replace(SMALL, n_estimators=60), Hyper(colsample_bylevel=0.1)
    counts = []
    for heavy in (1.0, 30.0):
        weights = np.ones(train.X.shape[1])
        weights[1] = heavy
        model, _ = fit_real(spec, hyper=hyper, feature_weights=weights)
        counts.append((np.ravel(model.trees.feature)[np.ravel(model.trees.gain) > 0] == 1).sum())
    assert counts[1] > 2 * counts[0]


def test_equal_weights_of_features_change_nothing():
    train, _ = parts()
    hyper = Hyper(colsample_bytree=0.5)
    weighted, _ = fit_real(hyper=hyper, feature_weights=np.full(train.X.shape[1], 2.0))
    assert_same_models(weighted, fit_real(hyper=hyper)[0])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], "feature_weights must have shape .* one weight for each feature"),
        (
            [-1.0, 1.0, 1.0, 1.0, 1.0],
            "feature_weights must be finite and non-negative, got -1.0 in feature 0",
        ),
        ([0.0] * 5, "feature_weights must (hold a weight above zero|not be 0 for every feature)"),
    ],
)
def test_weights_of_features_that_are_none_are_refused(weights, message):
    assert parts()[0].X.shape[1] == 5
    with pytest.raises(ValueError, match=message):
        fit_real(feature_weights=weights)


# ---------------------------------------------------------------- callbacks


def test_callbacks_are_told_of_every_round():
    _, valid = parts()
    seen: list[Progress] = []
    watched = (valid.data, valid.targets["real"])
    spec = dataclasses.replace(SMALL, n_estimators=40, n_iter_no_change=3)
    model, history = fit_real(spec, hyper=Hyper(learning_rate=0.8), valid=watched, callbacks=[seen.append])
    rounds = [progress.n_rounds for progress in seen]
    assert rounds[0] == 1
    assert rounds == sorted(set(rounds))
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)
    for progress in seen:
        count = progress.n_rounds
        assert len(progress.history.train_loss) == len(progress.history.valid_metric) == count
        assert progress.history.best_round == int(np.argmin(history.valid_metric[:count]))
    last = seen[-1].history
    np.testing.assert_array_equal(last.train_loss, history.train_loss)
    np.testing.assert_array_equal(last.valid_metric, history.valid_metric)
    assert model.n_trees == last.best_round + 1


def test_a_callback_may_end_a_fit():
    asked = []

    def stop(progress):
        asked.append(progress.n_rounds)
        return progress.n_rounds >= 5

    told = []
    model, history = fit_real(
        dataclasses.replace(SMALL, n_estimators=500), callbacks=[stop, lambda progress: told.append(1)]
    )
    assert model.n_trees == len(history.train_loss) == asked[-1] < 500
    assert asked[-2] < 5 <= asked[-1]
    assert len(told) == len(asked)  # the others hear of it too
    assert_same_models(model, fit_real(dataclasses.replace(SMALL, n_estimators=model.n_trees))[0])


def test_an_error_of_a_callback_is_that_of_the_fit():
    def fail(progress):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        fit_real(callbacks=[fail])


@pytest.mark.parametrize(
    ("callbacks", "error", "message"),
    [
        (print, TypeError, "callbacks must be a list"),
        ("early", TypeError, "callbacks must be a list"),
        ([3], TypeError, "callbacks must hold functions of a jboost.Progress, got 3"),
        ([lambda progress: 0.5], TypeError, "callbacks must return True to stop"),
    ],
)
def test_callbacks_that_are_none_are_refused(callbacks, error, message):
    with pytest.raises(error, match=message):
        fit_real(callbacks=callbacks)


def test_callbacks_cannot_be_called_inside_a_transformation():
    train, _ = parts()
    with pytest.raises(ValueError, match="callbacks must be empty inside jit"):
        jax.jit(
            lambda rate: (
                jboost.fit(
                    *(losses.squared_error, train.data, train.targets["real"]),
                    hyper=Hyper(learning_rate=rate),
                    callbacks=[print],
                )[0].base
            )
        )(0.1)


# ---------------------------------------------------------------- the best round, and the tolerance


@pytest.mark.parametrize(
    ("metric", "best", "tol", "patience", "expected"),
    [
        ([3, 2, 2, 1], np.inf, 0, None, (4, 3)),
        ([3, 2, 2, 2], np.inf, 0, None, (4, 1)),  # the first of equals
        ([3, 2, 2, 2, 1], np.inf, 0, 2, (4, 1)),
        ([3, 2, 2, 1, 1, 1], np.inf, 0, 2, (6, 3)),
        ([3, 2.5, 2.5, 1], np.inf, 0.5, 3, (4, 3)),  # 2.5 is better by no more than the tolerance
        ([3, 2.5, 2.4, 1], np.inf, 0.5, 3, (4, 3)),
        ([3, 2.5, 2.4, 2.4], np.inf, 0.5, None, (4, 2)),  # little by little: better than 3 by more
        ([3, 2.5, 2.6, 1], np.inf, 0.5, 2, (3, 0)),
        ([np.nan, 2, np.nan], np.inf, 0, None, (3, 1)),
        ([np.nan, np.inf], np.inf, 0, None, (2, -1)),
        ([3, 2], 1, 0, 5, (2, -1)),
        ([3, 2], 1, 0, 2, (2, -1)),
        ([3, 2, 0], 1, 0, 2, (2, -1)),
        ([0.9, 0.1], 1, 0.5, 2, (2, 1)),
        ([], np.inf, 0, 2, (0, -1)),
    ],
)
def test_the_best_round(metric, best, tol, patience, expected):
    assert follow(np.array(metric, float), best, tol, patience) == expected


PATIENT = dataclasses.replace(SMALL, n_estimators=40, n_iter_no_change=3)


def watching(maximize):
    _, valid = parts()
    metric = jboost.metrics.r2 if maximize else jboost.metrics.rmse
    return {"valid": (valid.data, jnp.asarray(valid.targets["real"])), "metric": metric}


@functools.cache
def silenced(maximize):
    """Compile the best round of a fit inside of jit, for all tolerances."""

    @jax.jit
    def best_round(rate, tol):
        return fit_real(PATIENT, hyper=Hyper(learning_rate=rate, tol=tol), **watching(maximize))[1].best_round

    return best_round


@pytest.mark.slow
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("tol", [0.0, 0.02, 0.3])
def test_rounds_stop_where_the_metrics_of_all_rounds_say(tol, maximize):
    hyper = Hyper(learning_rate=0.4, tol=tol)
    _, every = fit_real(dataclasses.replace(SMALL, n_estimators=40), hyper=hyper, **watching(maximize))
    model, history = fit_real(PATIENT, hyper=hyper, **watching(maximize))
    signed = -every.valid_metric if maximize else every.valid_metric
    best, expected_best = np.inf, -1
    for t, value in enumerate(signed):  # as it is written in the documentation of Hyper.tol
        if value < best - tol:
            best, expected_best = value, t
        elif t == expected_best + 3:
            break
    assert (history.best_round, model.n_trees) == (expected_best, expected_best + 1)
    assert len(history.valid_metric) == t + 1
    np.testing.assert_array_equal(history.valid_metric, every.valid_metric[: t + 1])

    assert int(silenced(maximize)(0.4, tol)) == expected_best


def test_a_larger_tolerance_ends_a_fit_sooner():
    _, valid = parts()
    spec = dataclasses.replace(SMALL, n_estimators=60, n_iter_no_change=3)
    watched = (valid.data, valid.targets["real"])
    ends = [
        len(fit_real(spec, valid=watched, hyper=Hyper(learning_rate=0.4, tol=tol))[1].valid_metric)
        for tol in (0.0, 0.02, 0.3)
    ]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] > ends[-1]


# ---------------------------------------------------------------- what forbids every split


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "hyper", "message"),
    [
        ({"min_child_samples": 131}, {}, r"min_child_samples=131 rows, and a tree gets 260; lower Spec"),
        ({"min_child_samples": 60}, {"subsample": 0.25}, r"min_child_samples=60 rows, and a tree gets 65;"),
        ({}, {"subsample": 1e-6}, r"a tree gets 0\.00026 of the 260 rows .* raise Hyper.subsample"),
        ({}, {"gamma": 1e6}, r"gains more than gamma=1e\+06; lower Hyper.gamma"),
        ({}, {"reg_alpha": 1e5}, r"must exceed reg_alpha=100000, .* lower Hyper.reg_alpha"),
    ],
)
@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_what_forbids_every_split_is_named(spec, hyper, message, policy):
    chosen = dataclasses.replace(SMALL, grow_policy=policy, **spec)
    with pytest.warns(UserWarning, match=message):
        model, _ = fit_real(chosen, hyper=Hyper(**hyper))
    assert not np.any(model.trees.gain)


def test_nothing_is_said_where_something_is_split_or_nothing_is_to_be(recwarn):
    model, _ = fit_real(dataclasses.replace(SMALL, min_child_samples=100), hyper=Hyper(gamma=1.0))
    assert np.any(model.trees.gain)
    train, _ = parts()
    constant = np.ones(len(train.X))
    jboost.fit(losses.squared_error, train.data, constant, spec=SMALL, hyper=Hyper(gamma=1.0))
    assert not recwarn.list
