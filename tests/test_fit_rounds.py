"""The rounds of a fit: early stopping, metrics, continuing a model, an interrupt, one compilation for all."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from tests.twin import assert_same_models, problem

PATIENCE = 4
SMALL = Spec(n_estimators=6, max_depth=2)
STOPPING = dataclasses.replace(SMALL, n_estimators=60, n_iter_no_change=PATIENCE)
pytestmark = pytest.mark.usefixtures("x64")


def parts():
    """Rows to train on and rows to watch."""
    rows = problem("mixed")
    return rows.take(slice(0, 260)), rows.take(slice(260, 400))


def test_early_stopping_keeps_the_best_round():
    train, valid = parts()
    hyper = Hyper(learning_rate=0.8, reg_lambda=0.0)
    watched = (valid.data, valid.targets["real"], valid.weight)
    fit_all = (losses.squared_error, train.data, train.targets["real"])
    every, _ = jboost.fit(*fit_all, spec=dataclasses.replace(SMALL, n_estimators=60), hyper=hyper)
    curve = [
        np.average(0.5 * (np.asarray(score) - watched[1]) ** 2, weights=watched[2])
        for score in jboost.staged_predict(every, valid.data)
    ]
    best = next(
        t
        for t in range(60 - PATIENCE)
        if curve[t] == min(curve[: t + 1]) and curve[t] <= min(curve[t + 1 : t + 1 + PATIENCE])
    )
    assert 0 < best < 60 - PATIENCE - 1  # it does stop, and not at once

    model, history = jboost.fit(*fit_all, spec=STOPPING, hyper=hyper, valid=watched)
    assert history.best_round == best
    assert model.n_trees == best + 1
    assert_same_models(model, jboost.truncate(every, best + 1))
    assert len(history.valid_metric) == len(history.train_loss) == best + 1 + PATIENCE
    np.testing.assert_allclose(history.valid_metric, curve[: best + 1 + PATIENCE], rtol=1e-9)


def test_early_stopping_that_never_stops_keeps_the_best_round_too():
    train, valid = parts()
    model, history = jboost.fit(
        *(losses.squared_error, train.data, train.targets["real"]),
        spec=dataclasses.replace(STOPPING, n_estimators=PATIENCE),
        valid=(valid.data, -valid.targets["real"]),  # which no round helps
    )
    assert len(history.valid_metric) == PATIENCE
    assert history.best_round == 0 == int(np.argmin(history.valid_metric))
    assert model.n_trees == 1


@pytest.mark.slow
def test_a_custom_metric_is_watched_in_place_of_the_loss():
    train, valid = parts()

    def error_rate(score, y, weight):
        return jnp.average((score > 0) != (y > 0.5), weights=weight)

    y = valid.targets["binary"]
    model, history = jboost.fit(
        *(losses.logistic, train.data, train.targets["binary"]),
        spec=STOPPING,
        hyper=Hyper(learning_rate=0.5),
        valid=(valid.data, y, valid.weight),
        metric=error_rate,
    )
    rates = [
        np.average((np.asarray(score) > 0) != y, weights=valid.weight)
        for score in jboost.staged_predict(model, valid.X)
    ]
    assert len(set(rates)) > 1
    np.testing.assert_allclose(history.valid_metric[: model.n_trees], rates, rtol=1e-9)
    assert history.best_round == int(np.argmin(history.valid_metric))  # the first of equals
    assert model.n_trees == history.best_round + 1


def test_continuing_a_model_equals_one_longer_run():
    train, _ = parts()
    arguments = (losses.squared_error, train.data, train.targets["real"])
    options = {"hyper": Hyper(subsample=0.6, colsample_bytree=0.7), "key": jax.random.key(1)}
    whole, history = jboost.fit(*arguments, spec=dataclasses.replace(SMALL, n_estimators=7), **options)
    first, head = jboost.fit(*arguments, spec=dataclasses.replace(SMALL, n_estimators=3), **options)
    both, tail = jboost.fit(
        *arguments, spec=dataclasses.replace(SMALL, n_estimators=4), init_model=first, **options
    )
    assert both.n_trees == 7
    assert_same_models(both, whole)
    np.testing.assert_allclose([*head.train_loss, *tail.train_loss], history.train_loss, rtol=1e-9)


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_a_continued_fit_is_the_same_bit_for_bit(policy, dtype, rng):
    """So are the scores that it goes on from: those of the stored leaves, to the last digit."""
    X = rng.normal(size=(500, 6))
    y = X[:, 0] + X[:, 1] * X[:, 2]

    def fit(n_rounds, init_model=None):
        spec = Spec(n_estimators=n_rounds, max_depth=3, grow_policy=policy)
        options = {"hyper": Hyper(subsample=0.7), "init_model": init_model}
        return jboost.fit(losses.squared_error, X, y, spec=spec, **options)[0]

    with jax.enable_x64(dtype is np.float64):
        whole, both = fit(7), fit(4, fit(3))
    assert whole.base.dtype == dtype
    jax.tree.map(np.testing.assert_array_equal, both, whole)


def test_a_sound_fit_gives_no_alarm_where_nan_is_looked_for(rng):
    X = rng.normal(size=(100, 2))
    with jax.debug_nans(True):
        _, history = jboost.fit(losses.squared_error, X, X[:, 0], spec=SMALL)
    assert np.isnan(history.valid_metric).all()


def test_a_model_of_other_bins_is_not_continued():
    train, _ = parts()
    y = train.targets["real"]
    model, _ = jboost.fit(losses.squared_error, train.data, y, spec=SMALL)
    other = jboost.bin_features(train.X, max_bins=20, categorical=[3, 4])
    with pytest.raises(ValueError, match="edges of the model"):
        jboost.fit(losses.squared_error, other, y, spec=SMALL, init_model=model)


def test_a_model_of_another_depth_is_not_continued():
    train, _ = parts()
    y = train.targets["real"]
    model, _ = jboost.fit(losses.squared_error, train.data, y, spec=SMALL)
    with pytest.raises(
        ValueError, match=r"init_model must have the max_depth=3,.* one array, got 2, 'symmetric'"
    ):
        jboost.fit(losses.squared_error, train.data, y, spec=Spec(max_depth=3), init_model=model)


def test_nothing_recompiles():
    """Other numbers, more rounds, fewer rows and weights trace the loss no more than a repetition.

    Only the first fit that draws rows or columns is another program.
    """
    traces = []

    def loss(score, y):
        traces.append(None)
        return 0.5 * (score - y) ** 2

    rows = problem("mixed")
    fewer = rows.take(slice(0, 390))
    y = rows.targets["real"]

    def traces_of_a_fit(data=rows.data, y=y, spec=SMALL, **options):
        before = len(traces)
        jboost.fit(loss, data, y, spec=spec, **options)
        return len(traces) - before

    first, again = traces_of_a_fit(), traces_of_a_fit()
    assert again <= 1 < first
    assert traces_of_a_fit(hyper=Hyper(learning_rate=0.2, reg_alpha=1.0)) <= again
    assert traces_of_a_fit(hyper=Hyper(subsample=0.5)) < first
    assert traces_of_a_fit(hyper=Hyper(subsample=0.6, colsample_bytree=0.7, colsample_bylevel=0.8)) <= again
    assert traces_of_a_fit(spec=dataclasses.replace(SMALL, n_estimators=17)) <= again
    assert traces_of_a_fit(fewer.data, y[:390]) <= again
    assert traces_of_a_fit(sample_weight=rows.weight) <= again


@contextlib.contextmanager
def compilations(caplog):
    """Gather the names of the programs that JAX compiles."""
    names = []
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        yield names
    found = (re.match(r"Compiling (\S+)", record.getMessage()) for record in caplog.records)
    names += [match.group(1) for match in found if match]


@pytest.mark.parametrize("policy", ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)])
def test_a_second_fit_compiles_nothing(policy, caplog, monkeypatch):
    """Neither for other numbers and rounds nor for a tenth more or fewer rows, to train on or to watch."""
    monkeypatch.setattr("jboost._runtime.padding._sizes", set())
    rng = np.random.default_rng(0)
    n_features = 7 if policy == "symmetric" else 6  # shapes of its own, so that the first fit does compile
    X = rng.normal(size=(3000, n_features)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    edges = jboost.bin_features(X).edges
    spec = dataclasses.replace(STOPPING, grow_policy=policy, n_estimators=5)

    def fit(n, n_valid, loss=losses.squared_error, hyper=Hyper(), rounds=5, weight=None):
        data = jboost.bin_features(X[:n], edges=edges)
        valid = (jboost.bin_features(X[-n_valid:], edges=edges), y[-n_valid:])
        chosen = dataclasses.replace(spec, n_estimators=rounds)
        jboost.fit(loss, data, y[:n], spec=chosen, hyper=hyper, valid=valid, sample_weight=weight)

    with compilations(caplog) as first:
        fit(2000, 500)
    assert any("run_chunk" in name for name in first)
    with compilations(caplog) as drawing:
        fit(2000, 500, hyper=Hyper(subsample=0.6))
    assert drawing == ["jit(run_chunk)"]
    with compilations(caplog) as second:
        fit(2000, 500)
        fit(2000, 500, hyper=Hyper(learning_rate=0.3, reg_lambda=2.0, gamma=0.1))
        fit(2000, 500, hyper=Hyper(subsample=0.5, colsample_bytree=0.5))
        fit(2000, 500, rounds=9)
        fit(2200, 550)
        fit(1800, 450)
        fit(1999, 501, weight=np.linspace(0, 1, 1999))
    assert second == []


class Interrupted:
    """A progress bar at which the user presses Ctrl-C when some rounds are done."""

    def __init__(self, after):
        self.after, self.done = after, 0

    def __call__(self, *arguments, **options):
        return self

    def update(self, rounds=1):
        self.done += rounds
        if self.done >= self.after:
            raise KeyboardInterrupt

    def set_postfix(self, *arguments, **options):
        pass

    set_postfix_str = set_description = refresh = set_postfix

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def test_an_interrupt_returns_what_is_trained(monkeypatch):
    train, _ = parts()
    arguments = (losses.squared_error, train.data, train.targets["real"])
    bar = Interrupted(after=5)
    monkeypatch.setattr("jboost.boosting.pacing.tqdm", bar)
    spec = dataclasses.replace(SMALL, n_estimators=500)
    with pytest.warns(UserWarning, match="interrupted"):
        model, history = jboost.fit(*arguments, spec=spec, verbose=True)
    monkeypatch.undo()
    assert 5 <= model.n_trees == bar.done < 500
    assert len(history.train_loss) == model.n_trees
    whole, _ = jboost.fit(*arguments, spec=dataclasses.replace(SMALL, n_estimators=model.n_trees))
    assert_same_models(model, whole)


@pytest.mark.slow
@pytest.mark.parametrize("traced", [False, True])
def test_a_continued_fit_keeps_no_round_that_does_not_beat_the_initial_model(traced, rng):
    X, y = rng.normal(size=(200, 3)), rng.normal(size=200)  # nothing to learn: more rounds only fit noise
    train = jboost.bin_features(X[:120])
    valid = (jboost.bin_features(X[120:], edges=train.edges), y[120:])
    spec = jboost.Spec(n_estimators=30, max_depth=3, n_iter_no_change=4)
    loss = jboost.losses.squared_error
    first, _ = jboost.fit(loss, train, y[:120], spec=spec, valid=valid)

    def go_on(weight):
        return jboost.fit(
            loss, train, y[:120], spec=spec, valid=valid, init_model=first, sample_weight=weight
        )

    weight = np.ones(120, np.float32)
    model, history = jax.jit(go_on)(weight) if traced else go_on(weight)
    assert int(history.best_round) == -1
    np.testing.assert_array_equal(jboost.predict(model, X), jboost.predict(first, X))
