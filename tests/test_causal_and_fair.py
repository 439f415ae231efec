"""Effects of treatments and a penalty on parity, as a user writes them: against what is true and against NumPy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import jboost
from experiments import causal, fairness
from jboost import Spec

SPEC, NUISANCE = Spec(n_estimators=60, max_depth=2), Spec(n_estimators=100, max_depth=4)


@pytest.fixture(scope="module")
def trial():
    return causal.simulated(3000, np.random.default_rng(2))


@pytest.mark.slow
def test_effects_are_found_nearer_than_by_two_models(trial):
    X, outcome, treated, effect = trial
    fold = np.random.default_rng(0).permutation(len(X)) % causal.FOLDS
    ways = {
        "two": causal.two_models(X, outcome, treated, NUISANCE),
        "r": causal.r_learner(X, outcome, treated, fold, SPEC, NUISANCE),
    }
    ways["robust"], mean = causal.doubly_robust(X, outcome, treated, fold, SPEC, NUISANCE)
    fresh = causal.simulated(2000, np.random.default_rng(3))
    error = {
        name: np.sqrt(np.mean(np.square(np.asarray(function(fresh.X)) - fresh.effect)))
        for name, function in ways.items()
    }
    assert error["r"] < 0.7 * error["two"], error
    assert error["robust"] < error["two"], error
    assert max(error["r"], error["robust"]) < fresh.effect.std(), error
    naive = outcome[treated == 1].mean() - outcome[treated == 0].mean()
    assert abs(mean - effect.mean()) < 0.2 * abs(naive - effect.mean())


@pytest.mark.slow
def test_predictions_out_of_fold_never_saw_the_row(trial):
    """Each is that of a fit to the other rows alone; the program is one of the test above."""
    X, outcome, *_ = trial
    loss, data, fold = jboost.losses.squared_error, jboost.bin_features(X), np.arange(len(X)) % causal.FOLDS
    found = causal.out_of_fold(loss, data, outcome, np.ones(len(X)), fold, NUISANCE)
    others = jboost.bin_features(X[fold != 2], edges=data.edges)
    model, _ = jboost.fit(loss, others, outcome[fold != 2], spec=NUISANCE, hyper=causal.HYPER)
    expected = jboost.predict(model, X[fold == 2])
    np.testing.assert_allclose(np.asarray(found)[fold == 2], expected, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def groups():
    """Rows of two groups, whose first feature tells the group and the label."""
    rng = np.random.default_rng(0)
    group = (rng.random(800) < 0.4).astype(int)
    X = rng.normal(size=(800, 3)) + group[:, None] * [1.0, 0, 0]
    label = (X[:, 0] + 1.5 * X[:, 1] + rng.logistic(size=800) > 0.5).astype(float)
    return X, {"label": label, "group": group}


@pytest.mark.slow
def test_the_gap_falls_with_the_penalty_at_little_loss(groups):
    X, y = groups
    data, penalties = jboost.bin_features(X), (0.0, 0.5, 2.0, 8.0)
    spec = Spec(n_estimators=40, max_depth=2)
    probability = np.asarray(fairness.fits(data, jax.tree.map(jnp.asarray, y), penalties, data, spec))
    gap = [fairness.gaps(one, y["group"])[0] for one in probability]
    accuracy = ((probability > 0.5) == y["label"]).mean(axis=1)
    assert (np.diff(gap) < 0).all(), gap
    assert gap[-1] < 0.35 * gap[0], gap
    assert accuracy[-1] > accuracy[0] - 0.1, accuracy


def test_the_loss_with_a_penalty_is_that_of_numpy(groups, x64):
    _, y = groups
    rng = np.random.default_rng(1)
    score, weight = rng.normal(size=800), rng.uniform(0.5, 2, 800)
    p, in_1 = expit(score), y["group"] == 1
    means = [np.average(p[part], weights=weight[part]) for part in (in_1, ~in_1)]
    entropy = -np.where(y["label"] == 1, np.log(p), np.log1p(-p))
    expected = weight @ entropy + 3 * weight.sum() * (means[0] - means[1]) ** 2
    np.testing.assert_allclose(fairness.parity(3.0)(score, y, weight), expected, rtol=1e-10)
