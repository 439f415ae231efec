"""Measure what averaging ordered target statistics over permutations does to a column that says nothing.

    python -m experiments.ordered_permutations [--draws N]

2,000 rows of three numeric columns, a label that depends on them, and a random category of four rows; 100 trees of
depth 4, learning rate 0.1. The table has the log loss of 2,000 other rows against that without the category: the mean
over draws of the data, with the smallest and the largest.
"""

from __future__ import annotations

import argparse

import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import jboost

N, ROWS_OF_A_CATEGORY = 2000, 4
NUMBERS = (1, 4, 16, 64)
SPEC = jboost.Spec(n_estimators=100, max_depth=4)


def columns_of(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers, a label and a category of twice as many rows as are trained on."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * N, 3))
    y = rng.random(2 * N) < 1 / (1 + np.exp(-X[:, 0] - X[:, 1] * X[:, 2]))
    return X, y.astype(float), rng.integers(0, N // ROWS_OF_A_CATEGORY, (2 * N, 1))


def loss_with(X: np.ndarray, y: np.ndarray, train: np.ndarray | None, test: np.ndarray | None) -> float:
    """Return the log loss of the other rows, with a column more if there is one."""
    parts = [X[:N], X[N:]]
    if train is not None and test is not None:
        parts = [np.hstack(pair) for pair in zip(parts, (train, test), strict=True)]
    model, _ = jboost.fit(jboost.losses.logistic, parts[0], y[:N], spec=SPEC, verbose=False)
    score = jboost.predict(model, parts[1])
    return float(jboost.metrics.mean_loss(jboost.losses.logistic)(score, jnp.asarray(y[N:]), jnp.ones(N)))


def losses_of(seed: int) -> list[float]:
    """Return the losses with each way to make the statistic, against that without the category."""
    X, y, category = columns_of(seed)
    alone = loss_with(X, y, None, None)
    every = jboost.OrderedTargetEncoder().fit(category[:N], y[:N])
    test = every.transform(category[N:])
    found = [loss_with(X, y, every.transform(category[:N]), test)]
    for number in NUMBERS:
        encoder = jboost.OrderedTargetEncoder(n_permutations=number, random_state=seed)
        found.append(loss_with(X, y, encoder.fit_transform(category[:N], y[:N]), test))
    return [100 * (loss / alone - 1) for loss in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    options = parser.parse_args()
    found = np.array([losses_of(seed) for seed in tqdm(range(options.draws), desc="draws")])
    names = ["all rows", *(f"{number} permutation{'s' * (number > 1)}" for number in NUMBERS)]
    print("| the statistic of | log loss |", "|---|---|", sep="\n")
    for name, rises in zip(names, found.T, strict=True):
        print(f"| {name} | {rises.mean():+.1f} % ({rises.min():+.1f} to {rises.max():+.1f}) |")


if __name__ == "__main__":
    main()
