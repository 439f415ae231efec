"""What rows have beside features, targets and weights: offsets and groups; numbers that stand for missing values."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GroupShuffleSplit, train_test_split

import jboost
from jboost import BatchLoss, GroupLoss, losses
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, assert_same_model, classifier, regressor

_rng = np.random.default_rng(8)
EXPOSURE = _rng.uniform(0.2, 4.0, 60)
OFFSET = np.log(EXPOSURE)
COUNT = _rng.poisson(EXPOSURE * np.exp(Y / 3)).astype(float)
OF_CLASSES = _rng.normal(size=(60, 3))
IDS = _rng.integers(0, 20, 60)
NAMES = np.array([f"query {one}" for one in IDS])
SOME = np.where(np.arange(60) % 5 == 2, 0.0, WEIGHT)  # weights
OF_GROUPS = np.where(SOME > 0, 1.0 + IDS % 3, 0.0)  # the same for all rows of a group that count
TRAIN, VALID = np.arange(0, 60, 2), np.arange(1, 60, 2)


def core(loss: Any, y: Any, weight: Any = None, rows: Any = slice(None), **options: Any) -> Any:
    """Fit some rows without an estimator, as the parameters of the tests' estimators say."""
    weight = None if weight is None else weight[rows]
    data = jboost.bin_features(X[rows], max_bins=15, sample_weight=weight)
    hyper = jboost.Hyper(learning_rate=0.5, subsample=options.pop("subsample", 1.0))
    spec = jboost.Spec(n_estimators=6, max_depth=2, n_iter_no_change=3 if "valid" in options else None)
    return jboost.fit(loss, data, y[rows], sample_weight=weight, spec=spec, hyper=hyper, **options)


def assert_is(estimator: Any, fitted: Any) -> None:
    """Compare model and history bit for bit with those of the functional core."""
    model, history = fitted
    for one, other in zip(jax.tree.leaves(estimator.model_), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(estimator.history_.train_loss, history.train_loss)
    np.testing.assert_array_equal(estimator.history_.valid_metric, history.valid_metric)


# ---------------------------------------------------------------- offsets


@pytest.mark.slow
def test_an_exposure_is_a_weight_of_rates(x64):
    # One bin for each value, whatever the weights; and an average row is not the same in both.
    parameters = {"loss": "poisson", "max_bins": 60, "penalties": "absolute"}
    counts = regressor(**parameters).fit(X, COUNT, offset=OFFSET)
    rates = regressor(**parameters).fit(X, COUNT / EXPOSURE, EXPOSURE)
    np.testing.assert_array_equal(counts.model_.trees.feature, rates.model_.trees.feature)
    np.testing.assert_allclose(counts.predict(X), rates.predict(X), rtol=1e-8)
    np.testing.assert_allclose(counts.predict(X, offset=OFFSET), EXPOSURE * rates.predict(X), rtol=1e-8)


@pytest.mark.slow
def test_an_offset_follows_its_rows():
    """Those of weight 0 are left out, and the sets to watch have offsets of their own."""
    there = np.flatnonzero(SOME)
    estimator = regressor(loss="poisson").fit(
        X, COUNT, SOME, [(X, COUNT)], [SOME[::-1]], offset=OFFSET, eval_offset=[OFFSET]
    )
    watched = np.flatnonzero(SOME[::-1])
    valid = (X[watched], COUNT[watched], SOME[::-1][watched], OFFSET[watched])
    metric = jboost.metrics.mean_loss(losses.poisson)
    fitted = core(losses.poisson, COUNT, SOME, there, offset=OFFSET[there], valid=valid, metric=metric)
    assert_is(estimator, fitted)
    one_set = {"X_val": X, "y_val": COUNT, "sample_weight_val": SOME[::-1], "offset_val": pd.Series(OFFSET)}
    other = regressor(loss="poisson").fit(X, COUNT, SOME, offset=OFFSET.tolist(), **one_set)
    assert_same_model(other, estimator)
    assert other.evals_result_ == estimator.evals_result_


def test_rows_that_are_held_out_keep_their_offset():
    train, held = (np.sort(rows) for rows in train_test_split(np.arange(60), test_size=0.3, random_state=4))
    parameters = {"loss": "poisson", "random_state": 4}
    estimator = regressor(early_stopping=True, validation_fraction=0.3, **parameters).fit(
        X, COUNT, offset=OFFSET
    )
    by_hand = regressor(**parameters).fit(
        X[train],
        COUNT[train],
        eval_set=(X[held], COUNT[held]),
        offset=OFFSET[train],
        eval_offset=[OFFSET[held]],
    )
    assert_same_model(estimator, by_hand)
    np.testing.assert_array_equal(estimator.history_.valid_metric, by_hand.history_.valid_metric)


@pytest.mark.slow
def test_every_curve_knows_its_offset():
    pairs = [(X[TRAIN], COUNT[TRAIN]), (X[VALID], COUNT[VALID]), (X[TRAIN], COUNT[TRAIN])]
    parameters = {"loss": "poisson", "early_stopping": False, "eval_metric": "poisson_deviance"}
    offsets = [OFFSET[TRAIN], None, OFFSET[TRAIN]]
    estimator = regressor(**parameters).fit(X, COUNT, eval_set=pairs, offset=OFFSET, eval_offset=offsets)
    curves = [curve["poisson_deviance"] for curve in estimator.evals_result_.values()]
    np.testing.assert_allclose(curves[0], curves[2], rtol=1e-6)  # of which the fit itself computed the second
    for (rows, count), offset, curve in zip(pairs, offsets, curves, strict=True):
        for mean, found in zip(estimator.staged_predict(rows, offset=offset), curve, strict=True):
            of_rows = np.where(count > 0, count * np.log(np.maximum(count, 1) / mean), 0) - count + mean
            np.testing.assert_allclose(found, 2 * of_rows.mean(), rtol=1e-5)


@pytest.mark.slow
def test_an_offset_of_each_class():
    estimator = classifier().fit(X, THREE, WEIGHT, offset=OF_CLASSES)
    assert_is(estimator, core(losses.softmax(3), THREE, WEIGHT, offset=OF_CLASSES))
    score = estimator.decision_function(X, offset=OF_CLASSES)
    np.testing.assert_allclose(score, estimator.decision_function(X) + OF_CLASSES, rtol=1e-5, atol=1e-5)
    odds = np.exp(score)
    probability = estimator.predict_proba(X, offset=OF_CLASSES)
    np.testing.assert_allclose(probability, odds / odds.sum(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(estimator.predict(X, offset=OF_CLASSES), score.argmax(axis=1))
    assert np.abs(probability - estimator.predict_proba(X)).max() > 0.01
    for method in ("predict", "predict_proba", "decision_function"):
        *_, last = getattr(estimator, f"staged_{method}")(X, offset=OF_CLASSES)
        np.testing.assert_allclose(
            last, getattr(estimator, method)(X, offset=OF_CLASSES), rtol=1e-5, atol=1e-6
        )
    shorter = estimator.predict_proba(X, 2, offset=OF_CLASSES)
    *_, third, _, _, _, _ = estimator.staged_predict_proba(X, offset=OF_CLASSES)
    np.testing.assert_allclose(shorter, third, rtol=1e-5)


@pytest.mark.slow
def test_a_warm_start_with_offsets_is_one_longer_fit(x64):
    """To the last digits: the scores of the trees before are summed in another order."""
    parameters = {"loss": "poisson", "early_stopping": False}
    beside = {"offset": OFFSET, "eval_set": [(X, COUNT)], "eval_offset": [OFFSET]}
    whole = regressor(**parameters).fit(X, COUNT, **beside)
    warm = regressor(**parameters, warm_start=True, n_estimators=2).fit(X, COUNT, **beside)
    warm.set_params(n_estimators=6).fit(X, COUNT, **beside)
    first = regressor(**parameters, n_estimators=2).fit(X, COUNT, **beside)
    longer = regressor(**parameters, n_estimators=4).fit(X, COUNT, init_model=first, **beside)
    for estimator in (warm, longer):
        np.testing.assert_allclose(estimator.model_.leaf_value, whole.model_.leaf_value, rtol=1e-10)
        curves = [one.evals_result_["validation_0"]["poisson"] for one in (estimator, whole)]
        np.testing.assert_allclose(*curves, rtol=1e-10)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"offset": OFFSET[:-1]}, ValueError, r"^offset must have shape \(60,\) or \(60, 1\), got \(59,\)"),
        ({"offset": OF_CLASSES}, ValueError, r"^offset must have shape \(60,\) or \(60, 1\), got \(60, 3\)"),
        (
            {"offset": np.full(60, -np.inf)},
            ValueError,
            "^offset must be finite in float32, got -inf in row 0",
        ),
        ({"offset": NAMES}, TypeError, "^offset must hold real numbers"),
        ({"eval_offset": [OFFSET[:9]]}, ValueError, r"^eval_set\[0\]: offset must have shape \(60,\)"),
        ({"eval_offset": []}, ValueError, "^eval_offset must have an array or None for each of the 1 pairs"),
        ({"offset_val": OFFSET}, ValueError, "X_val and y_val must be given together"),
        ({"eval_groups": [IDS[:9]]}, ValueError, r"^eval_set\[0\]: groups must have shape \(60,\)"),
        ({"groups": IDS + np.nan}, TypeError, "^groups must hold numbers or strings"),
        ({"groups_val": IDS}, ValueError, "X_val and y_val must be given together"),
    ],
)
def test_what_does_not_fit_the_rows_is_named(arguments, error, message):
    with pytest.raises(error, match=message):
        regressor().fit(X, Y, SOME, [(X, Y)], **arguments)


@pytest.mark.parametrize("name", ["eval_sample_weight", "eval_offset", "eval_groups"])
def test_what_is_for_an_eval_set_is_not_for_x_val(name):
    with pytest.raises(ValueError, match=f"{name} must be None where X_val and y_val are given"):
        regressor().fit(X, Y, X_val=X, y_val=Y, **{name: [IDS]})


def test_an_offset_of_a_prediction_must_fit():
    estimator = regressor(n_estimators=0).fit(X, Y)
    for method in (estimator.predict, lambda X, offset: list(estimator.staged_predict(X, offset=offset))):
        with pytest.raises(ValueError, match=r"offset must have shape \(7,\) or \(7, 1\), got \(60,\)"):
            method(X[:7], offset=OFFSET)


# ---------------------------------------------------------------- groups


def pairwise(score, y, mask):
    pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
    return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))


RANKING = GroupLoss(pairwise, name="pairwise")


def mean_pairwise(score, y, ids):
    """Sum over all pairs that belong together, for each row."""
    pair = (ids[:, None] == ids[None]) & (y[:, None] > y[None])
    return np.log1p(np.exp(score[None] - score[:, None]))[pair].sum() / len(y)


@pytest.mark.parametrize(
    "ids",
    [
        IDS,
        *(pytest.param(names, marks=pytest.mark.slow) for names in (NAMES, NAMES.astype(object))),
        pd.Series(NAMES, dtype="category"),
    ],
)
def test_groups_reach_the_fit(ids):
    estimator = regressor(loss=RANKING).fit(X, Y, OF_GROUPS, groups=ids)
    there = np.flatnonzero(OF_GROUPS)
    assert_is(estimator, core(RANKING, Y, OF_GROUPS, there, groups=IDS[there]))
    score = estimator.predict(X)
    pair = (IDS[:, None] == IDS[None]) & (Y[:, None] > Y[None])
    assert (score[:, None] > score[None])[pair].mean() > 0.9


@pytest.mark.slow
def test_the_loss_of_groups_is_watched():
    pairs = [(X[VALID], Y[VALID]), (X, Y), (X[VALID], Y[VALID])]
    groups = [NAMES[VALID], IDS, IDS[VALID]]
    estimator = regressor(loss=RANKING).fit(X, Y, eval_set=pairs, groups=IDS, eval_groups=groups)
    valid = (X[VALID], Y[VALID], None, None, IDS[VALID])
    assert_is(estimator, core(RANKING, Y, groups=IDS, valid=valid))
    curves = [curve["pairwise"] for curve in estimator.evals_result_.values()]
    assert estimator.best_score_ == min(curves[2]) == curves[2][-1]
    for (rows, y), ids, curve in zip(pairs, groups, curves, strict=True):
        expected = [mean_pairwise(score, y, ids) for score in estimator.staged_predict(rows)]
        np.testing.assert_allclose(curve, expected, rtol=1e-5)
    one_set = {"X_val": X[VALID], "y_val": Y[VALID], "groups_val": IDS[VALID]}
    assert_same_model(regressor(loss=RANKING).fit(X, Y, groups=IDS, **one_set), estimator)


@pytest.mark.slow
def test_a_metric_of_ones_own_watches_a_loss_of_groups():
    estimator = regressor(loss=RANKING, eval_metric="mae", early_stopping=False)
    estimator.fit(X, Y, eval_set=[(X, Y)], groups=IDS, eval_groups=[IDS])
    np.testing.assert_allclose(estimator.best_score_, np.abs(estimator.predict(X) - Y).mean(), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [RANKING, "squared_error"], ids=["of groups", "of rows"])
@pytest.mark.parametrize("fraction", [0.3, 6])
def test_whole_groups_are_held_out(loss, fraction):
    splitter = GroupShuffleSplit(n_splits=1, test_size=fraction, random_state=2)
    train, held = next(splitter.split(X, groups=IDS))
    assert not set(IDS[train]) & set(IDS[held])
    estimator = regressor(loss=loss, early_stopping=True, validation_fraction=fraction, random_state=2)
    estimator.fit(X, Y, groups=IDS)
    by_hand = regressor(loss=loss, random_state=2).fit(
        X[train], Y[train], eval_set=[(X[held], Y[held])], groups=IDS[train], eval_groups=[IDS[held]]
    )
    assert_same_model(estimator, by_hand)
    np.testing.assert_array_equal(estimator.history_.valid_metric, by_hand.history_.valid_metric)


def test_groups_that_cannot_be_held_out():
    with pytest.raises(ValueError, match=r"validation_fraction=0.1 of 1 groups cannot be held out"):
        regressor(early_stopping=True).fit(X, Y, groups=np.zeros(60))
    with pytest.raises(ValueError, match=r"must leave some of the 19 groups to train on, got 30"):
        regressor(early_stopping=True, validation_fraction=30).fit(X, Y, groups=IDS)


@pytest.mark.slow
def test_whole_groups_are_drawn():
    estimator = regressor(subsample=0.6, random_state=5).fit(X, Y, groups=NAMES)
    fitted = core(losses.squared_error, Y, groups=IDS, subsample=0.6, key=jax.random.key(5))
    assert_is(estimator, fitted)
    other = regressor(subsample=0.6, random_state=5).fit(X, Y)
    assert (np.asarray(other.model_.leaf_value) != estimator.model_.leaf_value).any()


@pytest.mark.slow
def test_a_classifier_takes_a_loss_of_groups():
    def logistic(score, y, mask):
        return jnp.sum(jnp.where(mask, jax.nn.softplus(score) - y * score, 0.0))

    estimator = classifier(loss=GroupLoss(logistic)).fit(X, POSITIVE, groups=IDS)
    expected = classifier().fit(X, POSITIVE).predict_proba(X)
    np.testing.assert_allclose(estimator.predict_proba(X), expected, rtol=1e-5)


def test_groups_must_be_given_for_a_loss_of_groups():
    with pytest.raises(ValueError, match=r"^groups must be given for a GroupLoss"):
        regressor(loss=RANKING).fit(X, Y)
    with pytest.raises(ValueError, match=r"^eval_set\[1\]: groups must be given for a GroupLoss"):
        regressor(loss=RANKING).fit(X, Y, eval_set=[(X, Y), (X, Y)], groups=IDS, eval_groups=[IDS, None])


def spread(score, y, weight):
    squares = jnp.sum(weight * (score - y) ** 2) / 2
    return squares + jnp.sum(weight * score) ** 2 / jnp.sum(weight)


@pytest.mark.slow
def test_a_loss_of_all_rows_is_watched():
    loss, half = BatchLoss(spread), WEIGHT[VALID]
    pairs, weights = [(X, Y), (X[VALID], Y[VALID])], [SOME, half]
    estimator = regressor(loss=loss).fit(X, Y, WEIGHT, pairs, weights)
    assert_is(estimator, core(loss, Y, WEIGHT, valid=(X[VALID], Y[VALID], half)))
    for (rows, y), weight, curve in zip(pairs, weights, estimator.evals_result_.values(), strict=True):
        scores = estimator.staged_predict(rows)
        expected = [spread(score, y, weight) / weight.sum() for score in scores]
        np.testing.assert_allclose(curve["metric"], expected, rtol=1e-5)


# ---------------------------------------------------------------- numbers that stand for missing values


def test_a_number_stands_for_a_missing_value(tmp_path):
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.2, np.nan, X)
    coded = np.where(np.isnan(gaps) & (np.arange(60) % 2 == 0)[:, None], -999.0, gaps)  # beside NaN
    expected = regressor().fit(gaps, Y, eval_set=[(gaps, Y)])
    estimator = regressor(missing=-999).fit(coded, Y, eval_set=[(coded, Y)])
    assert_same_model(estimator, expected)
    assert estimator.evals_result_ == expected.evals_result_
    np.testing.assert_array_equal(estimator.predict(coded), expected.predict(gaps))
    assert (expected.predict(coded) != expected.predict(gaps)).any()
    jboost.save(estimator.model_, tmp_path / "model.jboost")
    score = jboost.predict(jboost.load(tmp_path / "model.jboost"), coded)
    np.testing.assert_array_equal(np.float64(score), expected.predict(gaps))
    halves = regressor(missing=-999, n_estimators=2).fit(coded, Y)
    for missing in (np.nan, None, -999.0):  # the model that is continued remembers it
        continued = regressor(missing=missing, n_estimators=4).fit(coded, Y, init_model=halves)
        np.testing.assert_array_equal(continued.model_.leaf_value, estimator.model_.leaf_value)


def test_a_number_that_stands_for_no_missing_value_is_refused():
    with pytest.raises(TypeError, match=r"^missing must be a number, got 'NA'"):
        regressor(missing="NA").fit(X, Y)
    with pytest.raises(ValueError, match=r"^missing must be finite or NaN, got inf"):
        classifier(missing=np.inf).fit(X, THREE)
    first, coded = regressor(n_estimators=1).fit(X, Y), regressor(n_estimators=1, missing=-1).fit(X, Y)
    with pytest.raises(ValueError, match="missing must be NaN, as in the model that is continued, got 0"):
        regressor(missing=0).fit(X, Y, init_model=first)
    with pytest.raises(ValueError, match=r"missing must be -1\.0 or NaN, as in the model .*, got 0"):
        coded.set_params(missing=0, warm_start=True, n_estimators=2).fit(X, Y)
