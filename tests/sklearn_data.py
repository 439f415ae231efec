"""Sixty rows that the tests of the estimators share: one shape of data, so that few programs are compiled."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jboost import JBoostClassifier, JBoostRegressor

SMALL = {"n_estimators": 6, "max_depth": 2, "learning_rate": 0.5, "max_bins": 15, "n_iter_no_change": 3}
_rng = np.random.default_rng(0)
X = np.round(_rng.normal(size=(60, 3)), 1)
Y = 2 * X[:, 0] + np.abs(X[:, 1]) + 0.3 * _rng.normal(size=60)
POSITIVE = (Y > 0.8).astype(int)
THREE = np.digitize(Y, [-0.5, 1.5])
WEIGHT = _rng.integers(1, 4, size=60).astype(float)
for _array in (X, Y, POSITIVE, THREE, WEIGHT):
    _array.setflags(write=False)


def regressor(**parameters) -> Any:
    return JBoostRegressor(**SMALL | parameters)


def classifier(**parameters) -> Any:
    return JBoostClassifier(**SMALL | parameters)


def assert_same_model(one, other):
    """Compare two estimators' trees bit for bit."""
    np.testing.assert_array_equal(one.model_.base, other.model_.base)
    np.testing.assert_array_equal(one.model_.leaf_value, other.model_.leaf_value)
    for a, b in zip(jax.tree.leaves(one.model_.trees), jax.tree.leaves(other.model_.trees), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.model_.edges.exact, other.model_.edges.exact)
