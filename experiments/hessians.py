"""How much of the Hessian do several outputs need? Its diagonal, the whole of it in the leaves, or in the splits too.

    python experiments/hessians.py [--seeds N] [--markdown FILE]

Depth 4, 150 rounds at most, the best of three learning rates (0.03, 0.1, 0.3): the mean over random splits of the rows
of the validation loss of the best round, that round and its rate, and seconds of a fit after the first. Classes of real
data that scikit-learn ships, the two parameters of a gamma distribution, and two targets whose noise is correlated.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jboost
from jboost import Hyper, Loss, Spec, losses

CORRELATION = 0.95
RATES = (0.03, 0.1, 0.3)
WAYS: dict[str, tuple[Any, Any]] = {  # how leaves and splits take it
    "diagonal": ("diagonal", "diagonal"),
    "whole in the leaves": ("full", "diagonal"),
    "whole in leaves and splits": ("full", "full"),
}


class Case(NamedTuple):
    """Rows and their loss."""

    name: str
    loss: Any
    X: Any
    y: Any


def gamma(score: Any, y: Any) -> Any:
    """Return the negative log density of a gamma variable: log shape and log rate, whose estimates are correlated."""
    shape, rate = jnp.exp(score)
    return gammaln(shape) - shape * score[1] - (shape - 1) * jnp.log(y) + rate * y


def correlated(score: Any, y: Any) -> Any:
    """Return that of two normal variables whose noise has a correlation which is known."""
    left, right = score - y
    product = 2 * CORRELATION * left * right
    return (jnp.square(left) + jnp.square(right) - product) / (2 * (1 - CORRELATION**2))


def cases() -> list[Case]:
    """Return the cases."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    shape, mean = np.exp(0.5 * X[:, 0] + 1), np.exp(0.7 * X[:, 1])
    noise = rng.multivariate_normal([0, 0], [[1, CORRELATION], [CORRELATION, 1]], 3000) / 2
    both = np.stack([X[:, 0] + np.sin(2 * X[:, 1]), X[:, 0] - np.sin(2 * X[:, 1])], axis=1) + noise
    return [
        Case("wine, 3 classes", losses.softmax(3), *load_wine(return_X_y=True)),
        Case("digits, 10 classes", losses.softmax(10), *load_digits(return_X_y=True)),
        Case("gamma(shape, rate)", Loss(gamma, n_outputs=2), X, rng.gamma(shape, mean / shape)),
        Case("two correlated targets", Loss(correlated, n_outputs=2), X, both),
    ]


def judge(case: Case, way: str, seeds: int) -> str:
    """Fit at each learning rate and say what the best of them reaches."""
    of_leaves, of_splits = WAYS[way]
    loss = dataclasses.replace(case.loss, hessian=of_leaves)
    spec = Spec(n_estimators=150, max_depth=4, split_hessian=of_splits)
    found = []
    for rate in RATES:
        histories, seconds = [], []
        for seed in range(seeds):
            X, X_valid, y, y_valid = train_test_split(case.X, case.y, test_size=0.3, random_state=seed)
            start = time.perf_counter()
            _, history = jboost.fit(
                loss, X, y, spec=spec, hyper=Hyper(learning_rate=rate), valid=(X_valid, y_valid)
            )
            seconds.append(time.perf_counter() - start)
            histories.append(np.asarray(history.valid_metric))
        best = np.array([(history.min(), history.argmin() + 1) for history in histories]).mean(axis=0)
        found.append((*best, rate, min(seconds)))
    least, rounds, rate, seconds = min(found)
    return f"{least:.4f} ({rounds:.0f} at {rate}; {seconds:.2f} s)"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="random splits of the rows")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    lines = ["| | " + " | ".join(WAYS) + " |", "|---" * (1 + len(WAYS)) + "|"]
    for case in tqdm(cases(), desc="hessians"):
        cells = [judge(case, way, options.seeds) for way in WAYS]
        lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
