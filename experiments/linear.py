"""Linear functions beside trees, and trees with linear leaves beside trees with constant ones, on real data.

    python experiments/linear.py FOLDER [--splits N] [--rows N] [--markdown FILE] [--plot FILE]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py`. Prints the median over splits
of the test error (RMSE, or the log loss): of `booster="linear"` after 500 rounds, of scikit-learn's model that it
converges to, and of trees; then of boosted trees with constant and with linear leaves, here and in LightGBM.
Columns are encoded (one-hot) and scaled for the linear functions.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # as a script: find this checkout, which need not be installed
    sys.path.insert(0, str(ROOT))

import lightgbm  # noqa: E402  # pyright: ignore[reportMissingImports]
import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from sklearn.compose import make_column_selector, make_column_transformer  # noqa: E402
from sklearn.impute import SimpleImputer  # noqa: E402
from sklearn.linear_model import LogisticRegression, Ridge  # noqa: E402
from sklearn.metrics import log_loss, root_mean_squared_error  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402
from tqdm import tqdm  # noqa: E402

import jboost  # noqa: E402
from experiments.real_data import load_suite, loss_for  # noqa: E402
from jboost import learners, losses  # noqa: E402

FUNCTIONS = ("concrete", "wine_quality", "ames_housing", "spambase", "credit_default", "satimage")
LEAVES = ("concrete", "wine_quality", "california_housing", "protein_casp", "spambase", "credit_default")
SELECTORS = ("cyclic", "shuffle", "random", "greedy", "thrifty", "block")
DEPTH, RATE, TREES = 4, 0.1, 200
HYPER = jboost.Hyper(learning_rate=1.0, reg_lambda=1.0, min_child_weight=5.0)
LEARNERS = {
    "constant": learners.Tree(DEPTH, hyper=HYPER),
    "linear": learners.LinearTree(DEPTH, hyper=HYPER),
}
FLOOR = 1e-6  # of the picture: float32 tells no more

Split = tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]


def read(data: Any, seed: int, rows: int) -> Split:
    """Return training and test rows; the first split is that of the data set."""
    train, test = data.train_index, data.test_index
    rng = np.random.default_rng(seed)
    if seed:
        order = rng.permutation(len(data.y))
        train, test = order[: len(train)], order[len(train) :]
    train = rng.permutation(train)[:rows]
    return data.X.iloc[train], data.y[train], data.X.iloc[test], data.y[test]


def encoded(model: Any) -> Any:
    """Put one-hot codes, means for missing values and a standard scale before a model."""
    kinds = make_column_selector(dtype_exclude="number")
    means: Any = SimpleImputer(keep_empty_features=True)
    codes = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    columns = make_column_transformer((codes, kinds), remainder=means)
    return make_pipeline(columns, StandardScaler(), model)


def error_of(model: Any, split: Split, task: str) -> float:
    """Fit, and return the error of the test rows."""
    X, y, X_test, y_test = split
    model.fit(X, y)
    if task == "regression":
        return float(root_mean_squared_error(y_test, model.predict(X_test)))
    return float(log_loss(y_test, model.predict_proba(X_test)))


def linear_functions(split: Split, task: str) -> list[float]:
    """Return the errors of the linear booster, of what it converges to, and of trees."""
    is_regression = task == "regression"
    kind = jboost.JBoostRegressor if is_regression else jboost.JBoostClassifier
    options: dict[str, Any] = {"booster": "linear", "n_estimators": 500, "learning_rate": 0.5}
    peer = Ridge() if is_regression else LogisticRegression(max_iter=5000)
    models = (
        encoded(kind(**options, penalties="absolute")),
        encoded(peer),
        kind(n_estimators=TREES, max_depth=DEPTH, learning_rate=RATE),
    )
    return [error_of(model, split, task) for model in models]


def leaves(split: Split, loss: Any, task: str) -> list[float]:
    """Return the errors of boosted trees with constant and with linear leaves."""
    X, y, X_test, y_test = split
    found = []
    for learner in LEARNERS.values():
        model, _ = jboost.boost(loss, learner, X, y, n_estimators=TREES, learning_rate=RATE)
        predicted = np.asarray(model.inverse_link(model.predict(X_test)), np.float64)
        measure = root_mean_squared_error if task == "regression" else log_loss
        found.append(float(measure(y_test, predicted)))
    options: dict[str, Any] = {
        "n_estimators": TREES,
        "learning_rate": RATE,
        "max_depth": DEPTH,
        "verbose": -1,
    }
    options |= {"num_leaves": 2**DEPTH, "min_child_samples": 5, "reg_lambda": 1.0, "n_jobs": 1}
    kind: Any = lightgbm.LGBMRegressor if task == "regression" else lightgbm.LGBMClassifier
    names = [str(j) for j in range(X.shape[1])]  # LightGBM refuses some characters
    split = X.set_axis(names, axis=1), y, X_test.set_axis(names, axis=1), y_test
    for linear in (False, True):
        model = kind(**options, linear_tree=linear, linear_lambda=1.0)
        found.append(error_of(model, split, task))
    return found


def table(
    title: str,
    heads: list[str],
    names: tuple[str, ...],
    rows: Callable[[Any, int], list[float]],
    suite: Any,
    splits: int,
) -> list[str]:
    """Return a table of medians over splits."""
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for name in tqdm(names, desc=title):
        data = suite.load(name)
        found = np.median([rows(data, seed) for seed in range(splits)], axis=0)
        lines.append(f"| {name} | " + " | ".join(f"{value:.4g}" for value in found) + " |")
    return lines


def gaps(split: Split) -> dict[str, np.ndarray]:
    """Return by how much each selector's objective lies above the least after each round, relative to the first."""
    X, y, *_ = split
    matrix = encoded("passthrough").fit_transform(X)
    y = (y - y.mean()) / y.std()
    found = {}
    for selector in SELECTORS:
        model, history = jboost.fit_linear(
            losses.squared_error, matrix, y, feature_selector=selector, n_estimators=400, learning_rate=1.0,
            penalties="absolute", reg_lambda=1.0, reg_alpha=5.0,
        )  # fmt: skip
        coef = np.asarray(model.coef_path, np.float64)[:, 0]
        penalty = 0.5 * np.sum(coef**2, axis=1) + 5 * np.sum(np.abs(coef), axis=1)
        found[selector] = len(y) * np.asarray(history.train_loss, np.float64) + penalty
    least = min(objective.min() for objective in found.values())
    return {name: objective / least - 1 for name, objective in found.items()}


def curves(split: Split) -> dict[str, list[float]]:
    """Return the test error after each round, by constant and by linear leaves."""
    X, y, X_test, y_test = split
    found = {}
    for name, learner in LEARNERS.items():
        model, _ = jboost.boost(losses.squared_error, learner, X, y, n_estimators=TREES, learning_rate=RATE)
        found[name] = [
            float(np.sqrt(np.mean((np.asarray(score) - y_test) ** 2)))
            for score in model.staged_predict(X_test)
        ]
    return found


def plot(path: Path, above: dict[str, np.ndarray], errors: dict[str, list[float]]) -> None:
    """Draw both."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
    for name, gap in above.items():
        left.plot(np.arange(1, 1 + len(gap)), np.maximum(gap, FLOOR), label=name)
    left.set(xscale="log", yscale="log", xlabel="round", ylabel="objective above the least, relative")
    left.set_title("Elastic net on ames_housing: one pass a round", fontsize=10)
    for name, error in errors.items():
        right.plot(np.arange(1, 1 + len(error)), error, label=f"{name} leaves")
    right.set(xlabel="round", ylabel="test RMSE", yscale="log")
    right.set_title("Trees of depth 4 on concrete", fontsize=10)
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper right")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def main() -> None:
    """Print the tables, and draw the picture."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5000, help="training rows at most")
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--plot", type=Path, help="draw convergence and test errors into this file")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("give the folder of the data, or set JBOOST_DATA")
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    suite = load_suite(Path(options.folder))

    def of_functions(data: Any, seed: int) -> list[float]:
        return linear_functions(read(data, seed, options.rows), data.task)

    def of_leaves(data: Any, seed: int) -> list[float]:
        return leaves(read(data, seed, options.rows), loss_for(data), data.task)

    heads = ["booster linear", "scikit-learn", "trees"]
    lines = table("linear functions", heads, FUNCTIONS, of_functions, suite, options.splits)
    heads = ["constant", "linear", "LightGBM constant", "LightGBM linear"]
    lines += ["", *table("leaves", heads, LEAVES, of_leaves, suite, options.splits)]
    print("\n".join(lines))
    if options.markdown:
        options.markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    if options.plot:
        of_gaps = read(suite.load("ames_housing"), 0, options.rows)
        plot(options.plot, gaps(of_gaps), curves(read(suite.load("concrete"), 0, options.rows)))


if __name__ == "__main__":
    main()
