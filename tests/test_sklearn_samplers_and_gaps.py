"""Estimators with a sampler, and with targets that have gaps: the models that `jboost.fit` gives for the same."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import r2_score

import jboost
from jboost import Hyper, Loss, Spec, losses
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, classifier, regressor

ESTIMATORS = {
    "regressor": (regressor, Y),
    "classifier": (classifier, POSITIVE),
    "classes": (classifier, THREE),
}
LOSSES = {"regressor": losses.squared_error, "classifier": losses.logistic, "classes": losses.softmax(3)}
TRAIN, VALID = np.arange(0, 60, 2), np.arange(1, 60, 2)


def by_fit(loss, y, rows: Any = slice(None), **options):
    """Fit by `jboost.fit` what the small estimators fit."""
    data = jboost.bin_features(X[rows], max_bins=15, sample_weight=options.get("sample_weight"))
    spec = Spec(n_estimators=6, max_depth=2, n_iter_no_change=3 if "valid" in options else None)
    return jboost.fit(loss, data, y[rows], spec=spec, hyper=Hyper(learning_rate=0.5), **options)


def assert_same(estimator, model):
    for one, other in zip(jax.tree.leaves(estimator.model_), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)


# ---------------------------------------------------------------- samplers


def steepest(key, g, h, weight):
    """Take the rows with large gradients, and some others by chance."""
    size = jnp.abs(g).sum(axis=1)
    drawn = jax.random.uniform(key, size.shape) < 0.3
    return jnp.where((size > jnp.mean(size)) | drawn, weight, 0.0)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Share:
    """Draw this share of the rows, each with so much more weight."""

    share: Any = 0.5

    def __call__(self, key, g, h, weight):
        return jnp.where(jax.random.uniform(key, weight.shape) < self.share, weight / self.share, 0.0)


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize(
    "sampler", [steepest, pytest.param(Share(0.6), marks=pytest.mark.slow)], ids=["function", "pytree"]
)
def test_rows_are_drawn_by_the_sampler(kind, sampler):
    make, y = ESTIMATORS[kind]
    estimator = make(sampler=sampler, random_state=3).fit(X, y, WEIGHT)
    options = {"sample_weight": WEIGHT, "key": jax.random.key(3)}
    assert_same(estimator, by_fit(LOSSES[kind], y, sampler=sampler, **options)[0])
    everyone = make(random_state=3).fit(X, y, WEIGHT)
    assert not np.array_equal(estimator.model_.leaf_value, everyone.model_.leaf_value)


@pytest.mark.slow
def test_a_sampler_draws_of_the_rows_that_are_not_held_out():
    estimator = regressor(sampler=Share(0.6), random_state=3)
    estimator.fit(X[TRAIN], Y[TRAIN], X_val=X[VALID], y_val=Y[VALID])
    options = {"sampler": Share(0.6), "key": jax.random.key(3)}
    model, history = by_fit(losses.squared_error, Y, TRAIN, valid=(X[VALID], Y[VALID]), **options)
    assert_same(estimator, model)
    np.testing.assert_array_equal(estimator.history_.valid_metric, history.valid_metric)


@pytest.mark.slow
@pytest.mark.parametrize("make", [regressor, classifier])
def test_a_sampler_is_a_parameter_like_others(make):
    assert make().get_params()["sampler"] is None
    estimator = make(sampler=Share(0.6), random_state=3).fit(X, POSITIVE)
    cloned: Any = clone(estimator)
    assert cloned.get_params()["sampler"] == Share(0.6)
    assert_same(cloned.fit(X, POSITIVE), estimator.model_)
    pickled = pickle.loads(pickle.dumps(estimator))
    assert pickled.sampler == Share(0.6)
    assert_same(pickled, estimator.model_)
    assert_same(make(random_state=3).set_params(sampler=Share(0.6)).fit(X, POSITIVE), estimator.model_)


def test_wrong_samplers_are_refused():
    with pytest.raises(ValueError, match="subsample must be 1 beside a sampler"):
        regressor(sampler=steepest, subsample=0.5).fit(X, Y)
    with pytest.raises(TypeError, match="sampler must be a function"):
        classifier(sampler=3).fit(X, POSITIVE)
    with pytest.raises(TypeError, match=r"goss makes one where it is called: give samplers\.goss\(\)"):
        classifier(sampler=jboost.samplers.goss).fit(X, POSITIVE)


# ---------------------------------------------------------------- targets with gaps

SEVERAL = np.stack([Y, X[:, 1] ** 2, -Y], axis=1)
GAPS = SEVERAL.copy()
GAPS[::3, 0] = GAPS[1::4, 1] = GAPS[5] = np.nan  # row 5 knows none


def of_known(score, y):
    known = ~jnp.isnan(y)
    return jnp.sum(jnp.where(known, (score - jnp.where(known, y, 0.0)) ** 2, 0.0)) / 2


KNOWN = Loss(of_known, allow_nan=True)


def of_scalar(score, y):
    known = ~jnp.isnan(y)
    return jnp.where(known, (score - jnp.where(known, y, 0.0)) ** 2, 0.0) / 2


@pytest.mark.slow
def test_targets_with_gaps_are_taken_where_the_loss_takes_them():
    estimator = regressor(loss=KNOWN).fit(X, GAPS, WEIGHT)
    assert_same(estimator, by_fit(KNOWN, GAPS, sample_weight=WEIGHT)[0])
    assert np.isfinite(estimator.predict(X)).all()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["eval_set", "X_val"])
def test_rows_to_watch_may_have_gaps(form):
    pair = (X[VALID], GAPS[VALID])
    named = (
        {"eval_set": [(X[TRAIN], GAPS[TRAIN]), pair]}
        if form == "eval_set"
        else {"X_val": pair[0], "y_val": pair[1]}
    )
    estimator = regressor(loss=KNOWN).fit(X[TRAIN], GAPS[TRAIN], **named)
    model, history = by_fit(KNOWN, GAPS, TRAIN, valid=pair)
    assert_same(estimator, model)
    np.testing.assert_array_equal(estimator.history_.valid_metric, history.valid_metric)
    (_, curve), *_ = list(estimator.evals_result_.values())[-1].items()
    np.testing.assert_array_equal(curve, history.valid_metric[: model.n_trees])
    if form == "eval_set":
        curve = next(iter(estimator.evals_result_["validation_0"].values()))
        errors = estimator.predict(X[TRAIN]) - GAPS[TRAIN]
        np.testing.assert_allclose(curve[-1], np.nansum(errors**2) / 2 / len(TRAIN), rtol=1e-5)


def test_rows_held_out_may_have_gaps():
    estimator = regressor(loss=KNOWN, early_stopping=True, random_state=0, validation_fraction=0.3).fit(
        X, GAPS
    )
    assert np.isfinite(estimator.best_score_)


@pytest.mark.parametrize(
    "y",
    [
        pd.DataFrame(GAPS, columns=["a", "b", "c"]),
        pd.DataFrame(GAPS).astype("Float64"),
        np.where(np.isnan(GAPS), np.array(None), GAPS),
    ],
    ids=["frame", "nullable", "none"],
)
def test_gaps_in_any_form(y):
    estimator = regressor(loss=KNOWN).fit(X, y)
    assert_same(estimator, regressor(loss=KNOWN).fit(X, GAPS).model_)
    np.testing.assert_allclose(estimator.score(X, y), estimator.score(X, GAPS), rtol=1e-6)


@pytest.mark.slow
def test_dicts_of_targets_may_have_gaps():
    loss = Loss(lambda score, y: of_known(score, jnp.stack([y["a"], y["b"]])), n_outputs=2, allow_nan=True)
    y = {"a": GAPS[:, 0], "b": GAPS[:, 1]}
    expected = regressor(loss=Loss(of_known, allow_nan=True)).fit(X, GAPS[:, :2])
    assert_same(regressor(loss=loss).fit(X, y), expected.model_)


@pytest.mark.slow
def test_the_score_is_that_of_what_is_known():
    estimator = regressor(loss=KNOWN).fit(X, GAPS)
    predicted = estimator.predict(X)
    expected = []
    for j in range(3):
        known = ~np.isnan(GAPS[:, j])
        expected.append(r2_score(GAPS[known, j], predicted[known, j], sample_weight=WEIGHT[known]))
    np.testing.assert_allclose(estimator.score(X, GAPS, WEIGHT), np.mean(expected), rtol=1e-12)
    np.testing.assert_allclose(estimator.score(X, SEVERAL), r2_score(SEVERAL, predicted), rtol=1e-12)
    one_left = np.where([True, False, False], SEVERAL, np.nan)
    np.testing.assert_allclose(estimator.score(X, one_left), r2_score(Y, predicted[:, 0]), rtol=1e-12)
    scalar = regressor(loss=Loss(of_scalar, allow_nan=True)).fit(X, GAPS[:, 0])
    known = ~np.isnan(GAPS[:, 0])
    np.testing.assert_allclose(
        scalar.score(X, GAPS[:, [0]]), r2_score(Y[known], scalar.predict(X)[known]), rtol=1e-12
    )
    with pytest.raises(ValueError, match="y must hold a number, got missing values only"):
        estimator.score(X, np.full_like(GAPS, np.nan))
    with pytest.raises(
        ValueError, match=r"y must have the shape of the predictions, \(60, 3\), got \(60, 1\)"
    ):
        estimator.score(X, Y)


def test_gaps_are_refused_elsewhere():
    gap = np.where(np.arange(60) == 7, np.nan, Y)
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor().fit(X, gap)
    with pytest.raises(ValueError, match="y contains NaN"):
        regressor(loss=Loss(of_known)).fit(X, GAPS)
    with pytest.raises(ValueError, match=r"eval_set\[0\].*y contains NaN"):
        regressor().fit(X, Y, eval_set=[(X, gap)])
    with pytest.raises(ValueError, match="contains NaN"):
        regressor().fit(X, Y).score(X, gap)
    with pytest.raises(ValueError, match="y contains NaN"):
        classifier(loss=Loss(of_scalar, allow_nan=True)).fit(X, np.where(np.isnan(gap), gap, POSITIVE))
    masked = np.ma.masked_array(SEVERAL, np.isnan(GAPS))
    with pytest.raises(ValueError, match="y must not be masked"):
        regressor(loss=KNOWN).fit(X, masked)
    with pytest.raises(ValueError, match="y contains infinity"):
        regressor(loss=KNOWN).fit(X, np.where(np.isnan(GAPS), np.inf, GAPS))
