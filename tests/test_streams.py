"""Boosting on successive parts of the data, each seen once."""

from __future__ import annotations

import logging

import jax
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses

SPEC = Spec(n_estimators=8, max_depth=2)


def part(rng, n=600):
    X = rng.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * (X[:, 2] > 0) + 0.3 * rng.normal(size=n)


def test_the_loss_falls_with_every_part(rng):
    X, y = part(rng, 2000)
    model, errors = None, [float(np.var(y))]
    for _ in range(5):
        rows = part(rng)
        model, _ = jboost.fit(losses.squared_error, *rows, spec=SPEC, hyper=Hyper(0.2), init_model=model)
        errors.append(float(np.mean((np.asarray(jboost.predict(model, X)) - y) ** 2)))
    assert model is not None
    assert model.n_trees == 5 * SPEC.n_estimators
    assert errors == sorted(errors, reverse=True)
    alone, _ = jboost.fit(losses.squared_error, *rows, spec=SPEC, hyper=Hyper(0.2))
    assert errors[-1] < np.mean((np.asarray(jboost.predict(alone, X)) - y) ** 2)


@pytest.mark.slow
def test_a_part_goes_on_from_the_scores_of_the_model(rng, x64):
    """One more part is a fit to what the model leaves over."""
    first, second = part(rng), part(rng)
    model, _ = jboost.fit(losses.squared_error, *first, spec=SPEC)
    data = jboost.bin_features(second[0], edges=model.edges)
    further, _ = jboost.fit(losses.squared_error, data, second[1], spec=SPEC, init_model=model)
    offset = jboost.predict(model, data)
    rest, _ = jboost.fit(losses.squared_error, data, second[1], spec=SPEC, offset=offset, base_score=0.0)
    np.testing.assert_allclose(further.leaf_value[SPEC.n_estimators :], rest.leaf_value, rtol=1e-6, atol=1e-9)


def test_joining_models_compiles_nothing(rng, caplog):
    model, _ = jboost.fit(losses.squared_error, *part(rng), spec=SPEC)
    joined = model
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for _ in range(3):
            joined = jboost.concatenate(joined, model)
    assert "Compiling" not in caplog.text
    np.testing.assert_array_equal(joined.leaf_value, np.concatenate([model.leaf_value] * 4))
