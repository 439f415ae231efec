"""How much of the Hessian do several outputs need? Its diagonal, the whole of it in the leaves, or in the splits too.

    python experiments/hessians.py [--seeds N] [--markdown FILE]
    python experiments/hessians.py --rounds [--data FOLDER] [--seeds N] [--markdown FILE]

Depth 4, 150 rounds at most, the best of three learning rates (0.03, 0.1, 0.3): the mean over random splits of the rows
of the validation loss of the best round, that round and its rate, and seconds of a fit after the first. Classes of real
data that scikit-learn ships, the two parameters of a gamma distribution, and two targets whose noise is correlated.

With --rounds: in how few rounds do the diagonal and the whole matrix in the leaves reach the same loss of ten digits?
Each has the best of 12 settings (learning rate 0.1, 0.3, 0.6, 1; reg_lambda 0.1, 1, 3) for each loss, judged by curves
that are means over the splits: validation losses relative to the least of the diagonal, and two training losses.
FOLDER/multiclass/pendigits.csv.gz, whose target is the column class, adds 2,000 rows of pendigits.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.scipy.special import gammaln
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jboost
from jboost import Hyper, Loss, Spec, losses

CORRELATION = 0.95
RATES = (0.03, 0.1, 0.3)
SETTINGS = tuple(itertools.product((0.1, 0.3, 0.6, 1.0), (0.1, 1.0, 3.0)))  # learning rate, reg_lambda
DEPTHS = (2, 3, 4, 6)
TIMES_LEAST = (1.0, 1.25, 2.0)
TRAIN_LOSSES = (0.1, 0.01)
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


def digits(data: Path | None) -> list[Case]:
    """Return written digits: images and, with a folder of data, positions of a pen."""
    found = [Case("digits", losses.softmax(10), *load_digits(return_X_y=True))]
    if data is not None:
        table = pd.read_csv(data / "multiclass" / "pendigits.csv.gz").sample(2000, random_state=0)
        X, y = table.drop(columns="class").to_numpy(float), table["class"].to_numpy(int)
        found.append(Case("pendigits", losses.softmax(10), X, y))
    return found


def curves(case: Case, hessian: Any, depth: int, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the training and the validation loss [settings rounds], means over the splits."""
    loss = dataclasses.replace(case.loss, hessian=hessian)
    spec = Spec(n_estimators=150, max_depth=depth)
    found = np.zeros((2, len(SETTINGS), 150))
    for seed in range(seeds):
        X, X_valid, y, y_valid = train_test_split(case.X, case.y, test_size=0.3, random_state=seed)
        for at, (rate, reg_lambda) in enumerate(SETTINGS):
            hyper = Hyper(learning_rate=rate, reg_lambda=reg_lambda)
            _, history = jboost.fit(loss, X, y, spec=spec, hyper=hyper, valid=(X_valid, y_valid))
            found[:, at] += np.asarray([history.train_loss, history.valid_metric]) / seeds
    return found[0], found[1]


def fewest(curve: np.ndarray, target: float) -> str:
    """Return the rounds that the fastest setting takes to the target."""
    reached = (curve <= target).any(axis=0)
    return str(reached.argmax() + 1) if reached.any() else "-"


def race(case: Case, depth: int, seeds: int) -> str:
    """Return a line of the rounds, diagonal / whole in the leaves."""
    ways = [curves(case, hessian, depth, seeds) for hessian in ("diagonal", "full")]
    least = [valid.min() for _, valid in ways]
    cells = [f"{case.name}, depth {depth}", " / ".join(f"{loss:.4f}" for loss in least)]
    cells += [" / ".join(fewest(valid, times * least[0]) for _, valid in ways) for times in TIMES_LEAST]
    cells += [" / ".join(fewest(train, target) for train, _ in ways) for target in TRAIN_LOSSES]
    return "| " + " | ".join(cells) + " |"


def table_of_rounds(data: Path | None, seeds: int) -> list[str]:
    """Return the lines of the table of --rounds."""
    heads = ["", "least validation loss"]
    heads += [f"rounds to {times:g} x the diagonal's" for times in TIMES_LEAST]
    heads += [f"to training loss {loss:g}" for loss in TRAIN_LOSSES]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    races = list(itertools.product(digits(data), DEPTHS))
    return lines + [race(case, depth, seeds) for case, depth in tqdm(races, desc="rounds")]


def table_of_losses(seeds: int) -> list[str]:
    """Return the lines of the table of the best validation losses."""
    lines = ["| | " + " | ".join(WAYS) + " |", "|---" * (1 + len(WAYS)) + "|"]
    for case in tqdm(cases(), desc="hessians"):
        cells = [judge(case, way, seeds) for way in WAYS]
        lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="random splits of the rows")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--rounds", action="store_true", help="count rounds to the same loss instead")
    parser.add_argument("--data", type=Path, help="folder with multiclass/pendigits.csv.gz")
    options = parser.parse_args()
    lines = table_of_rounds(options.data, options.seeds) if options.rounds else table_of_losses(options.seeds)
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
