"""The rounds of a fit: early stopping, metrics, continuing a model, an interrupt, one compilation for all."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from tests.twin import assert_same_models, problem, same_structure

SMALL = Spec(n_estimators=6, max_depth=3)
TRAIN, VALID = slice(0, 260), slice(260, 400)


def halves():
    rows = problem("mixed")
    return rows.take(TRAIN), rows.take(VALID)


@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_early_stopping_keeps_the_best_round(policy, x64):
    train, valid = halves()
    hyper, patience = Hyper(learning_rate=0.8, reg_lambda=0.0), 4
    spec = Spec(n_estimators=40, max_depth=3, grow_policy=policy)
    watched = (valid.data, valid.targets["real"], valid.weight)
    fit_all = (losses.squared_error, train.data, train.targets["real"])
    every, _ = jboost.fit(*fit_all, spec=spec, hyper=hyper)
    curve = [
        np.average(0.5 * (np.asarray(score) - watched[1]) ** 2, weights=watched[2])
        for score in jboost.staged_predict(every, valid.data)
    ]
    best = next(
        t for t in range(40) if min(curve[t + 1 : t + 1 + patience]) >= curve[t] == min(curve[: t + 1])
    )
    assert 0 < best < 40 - patience - 1  # it does stop, and not at once

    stopping = dataclasses.replace(spec, n_iter_no_change=patience)
    model, history = jboost.fit(*fit_all, spec=stopping, hyper=hyper, valid=watched)
    assert history.best_round == best
    assert model.n_trees == best + 1
    assert_same_models(model, jboost.truncate(every, best + 1))
    assert len(history.valid_metric) == len(history.train_loss) == best + 1 + patience
    np.testing.assert_allclose(history.valid_metric, curve[: best + 1 + patience], rtol=1e-9)


def test_validation_that_never_stops_reports_every_round(x64):
    train, valid = halves()
    spec = dataclasses.replace(SMALL, n_iter_no_change=5)
    model, history = jboost.fit(
        *(losses.squared_error, train.data, train.targets["real"]),
        spec=spec,
        valid=(valid.data, valid.targets["real"]),
    )
    assert history.best_round == int(np.argmin(history.valid_metric))
    assert model.n_trees == history.best_round + 1
    assert len(history.valid_metric) == 6


def test_a_custom_metric_is_watched_in_place_of_the_loss(x64):
    train, valid = halves()

    def error_rate(score, y, weight):
        return jnp.average((score > 0) != (y > 0.5), weights=weight)

    spec = Spec(n_estimators=20, max_depth=3, n_iter_no_change=3)
    y = valid.targets["binary"]
    model, history = jboost.fit(
        *(losses.logistic, train.data, train.targets["binary"]),
        spec=spec,
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


def test_continuing_a_model_equals_one_longer_run(x64):
    rows = problem("mixed")
    hyper, key = Hyper(subsample=0.6, colsample_bytree=0.7), jax.random.key(1)
    arguments = (losses.logistic, rows.data, rows.targets["binary"])
    whole, history = jboost.fit(*arguments, spec=Spec(n_estimators=7, max_depth=3), hyper=hyper, key=key)
    first, _ = jboost.fit(*arguments, spec=Spec(n_estimators=3, max_depth=3), hyper=hyper, key=key)
    both, tail = jboost.fit(
        *arguments, spec=Spec(n_estimators=4, max_depth=3), hyper=hyper, key=key, init_model=first
    )
    assert both.n_trees == 7
    assert_same_models(both, whole)
    np.testing.assert_allclose(tail.train_loss[-1], history.train_loss[-1], rtol=1e-9)


def test_a_model_of_other_columns_is_not_continued():
    rows = problem("plain")
    model, _ = jboost.fit(losses.squared_error, rows.X[:, :3], rows.targets["real"], spec=SMALL)
    with pytest.raises(ValueError, match="edges of the model"):
        jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=SMALL, init_model=model)


def test_nothing_recompiles():
    """Other numbers, another number of rounds and slightly fewer rows trace the loss no more than a repetition.

    (Which traces it for one row, to check its form, without compiling anything.)
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
    assert traces_of_a_fit(hyper=Hyper(learning_rate=0.2, reg_alpha=1.0, subsample=0.5)) == again
    assert traces_of_a_fit(spec=dataclasses.replace(SMALL, n_estimators=17)) == again
    assert traces_of_a_fit(fewer.data, y[:390]) == again
    assert traces_of_a_fit(sample_weight=rows.weight) == again


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


def test_an_interrupt_returns_what_is_trained(x64, monkeypatch):
    rows = problem("mixed")
    arguments = (losses.squared_error, rows.data, rows.targets["real"])
    bar = Interrupted(after=5)
    monkeypatch.setattr("jboost._driver.tqdm", bar)
    spec = dataclasses.replace(SMALL, n_estimators=500)
    with pytest.warns(UserWarning, match="interrupted"):
        model, history = jboost.fit(*arguments, spec=spec, verbose=True)
    monkeypatch.undo()
    assert 5 <= model.n_trees == bar.done < 500
    assert len(history.train_loss) == model.n_trees
    whole, _ = jboost.fit(*arguments, spec=dataclasses.replace(SMALL, n_estimators=model.n_trees))
    assert same_structure(model, whole)
    assert_same_models(model, whole)
