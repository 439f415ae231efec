"""The small problem of the tests of whole fits, and how a fitted model is held against the NumPy twin."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import jboost
from experiments import nano

MAX_BINS = 31
CATEGORICAL = (3, 4)


@dataclass(frozen=True)
class Problem:
    """Rows with numbers (two columns with missing values) and categories, and a target of every kind."""

    X: np.ndarray
    weight: np.ndarray
    targets: dict[str, np.ndarray]
    data: jboost.Binned

    @property
    def codes(self) -> np.ndarray:
        return np.asarray(self.data.bins).astype(int)

    def take(self, rows: Any) -> Problem:
        """Give some of the rows, binned as before."""
        targets = {name: y[rows] for name, y in self.targets.items()}
        data = jboost.bin_features(self.X[rows], edges=self.data.edges)
        return Problem(self.X[rows], self.weight[rows], targets, data)


@functools.cache
def problem(kind: str = "mixed", n: int = 400) -> Problem:
    """Make the problem: "mixed", "missing" (no categories) or "plain" (nothing is missing either)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    X[:, 3], X[:, 4] = rng.integers(0, 3, n), rng.integers(0, 9, n)
    absent = rng.random((n, 5)) < np.array([0.2, 0.1, 0.0, 0.1, 0.0])
    signal = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * (X[:, 2] > 0) + (X[:, 3] == 1) + np.cos(5 * X[:, 4])
    if kind != "plain":
        signal = signal + absent[:, 0]
        X = np.where(absent, np.nan, X)
    noisy = signal + 0.3 * rng.normal(size=n)
    targets = {
        "real": noisy,
        "binary": (noisy > 0.7).astype(float),
        "class": np.digitize(noisy, [0.0, 1.2]),
        "count": rng.poisson(np.exp(0.5 * signal)).astype(float),
        "positive": np.exp(0.5 * noisy),
        "pair": np.column_stack([noisy, X[:, 2] ** 2 - noisy]),
    }
    categorical = list(CATEGORICAL) if kind == "mixed" else None
    data = jboost.bin_features(X, max_bins=MAX_BINS, categorical=categorical)
    return Problem(X, rng.uniform(0.5, 2.0, n), targets, data)


def settings(spec: jboost.Spec, hyper: jboost.Hyper) -> nano.Settings:
    """Give the twin the same choices and numbers."""
    given = {**dataclasses.asdict(spec), **dataclasses.asdict(hyper)}
    names = {field.name for field in dataclasses.fields(nano.Settings)}
    return nano.Settings(**{name: value for name, value in given.items() if name in names})


def route_table(model: jboost.Ensemble, tree: Any, slot: int) -> np.ndarray:
    """Which bin codes go right at one split, read from the arrays as they are documented."""
    codes, feature = np.arange(model.edges.n_codes), int(tree.feature[slot])
    right = codes > int(tree.threshold[slot])
    if model.edges.features.categories[feature] is not None:
        words = np.asarray(tree.categories_right[slot])
        right = (words[codes // 32] >> (codes % 32).astype(np.uint32) & 1).astype(bool)
    right[0] = bool(tree.missing_right[slot])
    return right


def assert_same_trees(model: jboost.Ensemble, twins: list[nano.Tree], rtol: float) -> None:
    """Same splits in the same slots: feature, threshold, side of every bin code, gain."""
    assert model.n_trees == len(twins)
    for t, twin in enumerate(twins):
        tree = jax.tree.map(lambda field, t=t: np.asarray(field[t]), model.trees)
        splits = [split for level in twin.splits for split in level]
        assert len(tree.feature) == len(splits)
        np.testing.assert_array_equal(tree.threshold, [split.threshold for split in splits], f"tree {t}")
        for slot, split in enumerate(splits):
            where = f"tree {t}, slot {slot}"
            if split.gain > 0:  # elsewhere nothing is split and the feature means nothing
                assert tree.feature[slot] == split.feature, where
            np.testing.assert_array_equal(route_table(model, tree, slot), split.right, where)
        np.testing.assert_allclose(tree.gain, [split.gain for split in splits], rtol, rtol)


def assert_same_scores(
    model: jboost.Ensemble, base: np.ndarray, twins: list[nano.Tree], rows: Problem, rtol: float
) -> None:
    """Same scores of every row after every round."""
    score = np.tile(base, (len(rows.X), 1))
    for twin, staged in zip(twins, jboost.staged_predict(model, rows.data), strict=True):
        score = score + twin.leaf_value[nano.leaf_of(twin, rows.codes)]
        np.testing.assert_allclose(np.reshape(staged, score.shape), score, rtol, rtol)
    np.testing.assert_allclose(np.reshape(jboost.predict(model, rows.X), score.shape), score, rtol, rtol)


def same_structure(first: jboost.Ensemble, second: jboost.Ensemble) -> bool:
    """Whether two models split alike everywhere."""
    names = ("feature", "threshold", "missing_right", "categories_right")
    return all(np.array_equal(getattr(first.trees, name), getattr(second.trees, name)) for name in names)


def assert_same_models(first: jboost.Ensemble, second: jboost.Ensemble, rtol: float = 1e-10) -> None:
    """Same splits, and the same numbers up to the order of floating-point sums."""
    assert same_structure(first, second)
    np.testing.assert_allclose(first.base, second.base, rtol, rtol)
    np.testing.assert_allclose(first.leaf_value, second.leaf_value, rtol, rtol)
