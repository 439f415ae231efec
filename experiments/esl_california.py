"""Gradient tree boosting of California housing, beside the figures of "The Elements of Statistical Learning".

    python experiments/esl_california.py FOLDER [--seeds N] [--rounds N] [--markdown FILE] [--plot FILE] [--peer]

FOLDER holds the data sets' loader `suite.py`. As in section 10.14.1: eight predictors, the median house value in
100,000 dollars, four fifths of the rows for training, drawn at random, Huber's loss (M_TreeBoost), learning rate 0.1,
800 rounds, trees of six leaves; and trees of a depth, of 2 or 3 (up to four or eight leaves). Mean absolute error and
R2 of the test rows: medians over random divisions of the rows. `--peer` also fits scikit-learn's
GradientBoostingRegressor with six leaves, which takes minutes. The published figures are quoted from the book's text.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jboost
from experiments.real_data import load_suite
from jboost import Hyper, OneStep, Quantile, Spec, losses

PUBLISHED = 0.31  # mean absolute error after 800 rounds, and R2
PUBLISHED_R2 = 0.84
M_TREEBOOST = dataclasses.replace(
    losses.huber(level=0.9, centred=False), leaf=OneStep(Quantile(0.5), hessian="first_order")
)


class Setting(NamedTuple):
    """What is varied."""

    loss: Any = M_TREEBOOST
    depth: int = 3
    policy: Any = "depthwise"
    rate: float = 0.1
    subsample: float = 1.0
    leaves: int | None = None


SETTINGS = {
    "M_TreeBoost, six leaves": Setting(depth=5, leaves=6),
    "M_TreeBoost, depth 2": Setting(depth=2),
    "M_TreeBoost, depth 3": Setting(),
    "... symmetric trees": Setting(policy="symmetric"),
    "... without shrinkage": Setting(rate=1.0),
    "... half of the rows a round": Setting(subsample=0.5),
    "... half of the rows, without shrinkage": Setting(rate=1.0, subsample=0.5),
    "LS_Boost, depth 3": Setting(losses.squared_error),
    "LAD_TreeBoost, depth 3": Setting(losses.absolute_error),
}
DRAWN = (
    "M_TreeBoost, six leaves",
    "M_TreeBoost, depth 3",
    "... without shrinkage",
    "... half of the rows a round",
)
DRAWN += ("... half of the rows, without shrinkage",)


def load(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the eight predictors of Pace and Barry (1997) and the value in 100,000 dollars."""
    data = load_suite(folder).load("california_housing")
    X, households = data.X, data.X["households"]
    columns = [
        X["median_income"], X["housing_median_age"], X["total_rooms"] / households, X["total_bedrooms"] / households,
        X["population"], X["population"] / households, X["latitude"], X["longitude"],
    ]  # fmt: skip
    return np.column_stack(columns).astype(float), data.y / 100_000


def errors(setting: Setting, parts: Any, rounds: int) -> tuple[np.ndarray, float]:
    """Return the mean absolute error of the test rows after each round, and R2 after the last."""
    X, X_test, y, y_test = parts
    spec = Spec(
        n_estimators=rounds, max_depth=setting.depth, grow_policy=setting.policy, max_leaves=setting.leaves
    )
    hyper = Hyper(setting.rate, reg_lambda=0.0, min_child_weight=0.0, subsample=setting.subsample)
    model, history = jboost.fit(
        setting.loss, X, y, spec=spec, hyper=hyper, valid=(X_test, y_test), metric=jboost.metrics.mae
    )
    return np.asarray(history.valid_metric), r2(y_test, np.asarray(jboost.predict(model, X_test)))


def r2(y: np.ndarray, prediction: np.ndarray) -> float:
    return 1 - float(np.mean((y - prediction) ** 2) / np.var(y))


def peer(parts: Any, rounds: int) -> tuple[np.ndarray, float]:
    """Do the same by scikit-learn, whose trees have six leaves; it takes no missing values."""
    X, X_test, y, y_test = parts
    X, X_test = np.nan_to_num(X, nan=-1), np.nan_to_num(X_test, nan=-1)
    model = GradientBoostingRegressor(loss="huber", n_estimators=rounds, max_depth=5, max_leaf_nodes=6)
    staged = list(model.fit(X, y).staged_predict(X_test))
    return np.array([np.abs(y_test - one).mean() for one in staged]), r2(y_test, staged[-1])


def row(name: str, found: list[tuple[np.ndarray, float]]) -> str:
    """Return the medians over the divisions of the rows."""
    curves = np.array([curve for curve, _ in found])
    at = [min(rounds, curves.shape[1]) for rounds in (100, 200, 400, 800)]
    cells = [f"{np.median(curves[:, rounds - 1]):.3f}" for rounds in at]
    return f"| {name} | {' | '.join(cells)} | {np.median([one for _, one in found]):.3f} |"


def draw(found: dict[str, list[tuple[np.ndarray, float]]], place: Path) -> None:
    """Draw the test error against the rounds."""
    figure, ax = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for name in DRAWN:
        curve = np.median([curve for curve, _ in found[name]], axis=0)
        ax.plot(np.arange(1, len(curve) + 1), curve, label=name.removeprefix("... "), linewidth=1.4)
    ax.axhline(PUBLISHED, color="0.4", linestyle="--", linewidth=1, label="published, after 800 rounds")
    ax.set(xlabel="round", ylabel="mean absolute test error (100,000 dollars)", ylim=(0.28, 0.54))
    ax.grid(alpha=0.3)
    ax.legend(loc="upper right", ncols=2)  # above the curves
    figure.savefig(place, dpi=100)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the data sets")
    parser.add_argument("--seeds", type=int, default=5, help="random divisions of the rows")
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--plot", type=Path, help="draw the curves into this file")
    parser.add_argument("--peer", action="store_true", help="also fit scikit-learn, once")
    options = parser.parse_args()
    X, y = load(options.folder)
    parts = [train_test_split(X, y, test_size=0.2, random_state=seed) for seed in range(options.seeds)]
    found = {
        name: [errors(setting, one, options.rounds) for one in parts]
        for name, setting in tqdm(SETTINGS.items(), desc="settings")
    }
    constant = np.median([np.abs(one[3] - np.median(one[2])).mean() for one in parts])
    lines = ["| | after 100 rounds | 200 | 400 | 800 | R² |", "|---" * 6 + "|"]
    lines += [row(name, one) for name, one in found.items()]
    if options.peer:
        lines.append(row("scikit-learn, six leaves, one division", [peer(parts[0], options.rounds)]))
    lines.append(f"| published, six leaves | | | | {PUBLISHED} | {PUBLISHED_R2} |")
    lines.append(f"| the median of the training rows | | | | {constant:.3f} | |")
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")
    if options.plot is not None:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
