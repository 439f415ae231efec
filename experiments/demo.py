"""Fit three real data sets with a built-in loss and with a loss written here: a table, learning curves.

Run it with `make demo`. The data come with scikit-learn; nothing is downloaded. Every model may use up to
200 rounds and stops when the validation rows no longer improve; the metrics are those of test rows that no
model has seen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from scipy.special import expit, log_softmax, softmax
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, recall_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jboost

mpl.use("Agg")  # draws into a file, also where there is no screen
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent / "output"
SPEC = jboost.Spec(n_estimators=200, max_depth=4, n_iter_no_change=20)
HYPER = jboost.Hyper(learning_rate=0.1)
PEER = {"max_iter": 200, "max_depth": 4, "learning_rate": 0.1, "early_stopping": True, "n_iter_no_change": 20}


# ---------------------------------------------------------------------------- losses of one row, written here
def costly_shortfall(score, y):
    """Squared error where predicting too little costs four times as much as predicting too much."""
    error = y - score
    return jnp.where(error > 0, 4.0, 1.0) * error**2 / 2


def costly_miss(score, y):
    """Log loss where a malignant tumour (y = 0) that is taken for a benign one costs ten times as much."""
    return jnp.where(y == 0, 10.0 * jax.nn.softplus(score), jax.nn.softplus(-score))


def smoothed_softmax(score, y):
    """Cross-entropy against the label smoothed over all classes (Szegedy et al. 2016, section 7)."""
    target = 0.9 * jax.nn.one_hot(y, score.size) + 0.1 / score.size
    return -jnp.sum(target * jax.nn.log_softmax(score))


# --------------------------------------------------------------------------------------- metrics of test rows
Metric = Callable[[np.ndarray, np.ndarray], float]  # (y, score) -> number


def shortfall_cost(y, score):
    """Mean of `costly_shortfall`."""
    return float(np.mean(np.where(y > score, 4.0, 1.0) * (y - score) ** 2 / 2))


def miss_cost(y, score):
    """Mean of `costly_miss`."""
    return float(np.mean(np.where(y == 0, 10.0, 1.0) * np.logaddexp(0, np.where(y == 0, score, -score))))


def found_tumours(y, score):
    """Share of malignant tumours (y = 0) that are recognised."""
    return float(recall_score(y, score > 0, pos_label=0))


@dataclass(frozen=True)
class Task:
    """A data set, two losses to fit it with and metrics to judge by (the first two are drawn)."""

    name: str
    load: Callable
    built_in: jboost.Loss
    own: jboost.Loss | Callable
    metrics: dict[str, Metric]
    peer: Callable  # scikit-learn's estimator
    peer_scores: Callable  # (fitted estimator, X) -> its raw scores after each round


def staged_margins(model, X) -> Iterator[np.ndarray]:
    """Give the raw scores of scikit-learn's classifier after each of its rounds."""
    return (margin.squeeze() for margin in model.staged_decision_function(X))


TASKS = [
    Task(
        "regression: diabetes",
        load_diabetes,
        jboost.losses.squared_error,
        costly_shortfall,
        {"RMSE": root_mean_squared_error, "shortfall cost": shortfall_cost},
        HistGradientBoostingRegressor,
        lambda model, X: model.staged_predict(X),
    ),
    Task(
        "binary: breast cancer",
        load_breast_cancer,
        jboost.losses.logistic,
        jboost.Loss(costly_miss, inverse_link=jax.nn.sigmoid),
        {
            "log loss": lambda y, score: float(log_loss(y, expit(score))),
            "cost of misses": miss_cost,
            "tumours found": found_tumours,
        },
        HistGradientBoostingClassifier,
        staged_margins,
    ),
    Task(
        "multiclass: digits",
        load_digits,
        jboost.losses.softmax(10),
        jboost.Loss(smoothed_softmax, n_outputs=10, inverse_link=jax.nn.softmax),
        {
            "log loss": lambda y, score: float(log_loss(y, softmax(score, axis=1), labels=range(10))),
            "error rate": lambda y, score: float(np.mean(y != score.argmax(axis=1))),
        },
        HistGradientBoostingClassifier,
        staged_margins,
    ),
]


# ----------------------------------------------------------------------------------------------------- models
@dataclass(frozen=True)
class Fitted:
    """What one model reached: its raw test scores after each round, the seconds of its fit."""

    name: str
    scores: list[np.ndarray]
    seconds: float


@dataclass(frozen=True)
class Rows:
    """Rows to train on, to stop by and to judge by."""

    X: np.ndarray
    y: np.ndarray
    X_valid: np.ndarray
    y_valid: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def split(task: Task) -> Rows:
    """Split 60 / 20 / 20 percent at random; classes in the same shares everywhere."""
    X, y = task.load(return_X_y=True)
    classes = y if task.peer is HistGradientBoostingClassifier else None
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0, stratify=classes)
    classes = y if classes is not None else None
    X, X_valid, y, y_valid = train_test_split(X, y, test_size=0.25, random_state=0, stratify=classes)
    return Rows(*(np.asarray(part) for part in (X, y, X_valid, y_valid, X_test, y_test)))


def constant_score(task: Task, y: np.ndarray) -> np.ndarray:
    """Compute the raw score of the model that knows only the mean or the shares of the classes."""
    if task.peer is HistGradientBoostingRegressor:
        return y.mean()
    log_share = np.log(np.bincount(y) / len(y))
    return log_share[1] - log_share[0] if len(log_share) == 2 else log_softmax(log_share)


def fit_constant(task: Task, rows: Rows) -> Fitted:
    """Predict the same for every row."""
    score = constant_score(task, rows.y)
    return Fitted("constant", [np.broadcast_to(score, (len(rows.y_test), *np.shape(score)))], 0.0)


def fit_peer(task: Task, rows: Rows) -> Fitted:
    """Fit scikit-learn's histogram gradient boosting with the same limits and the same validation rows."""
    start = time.perf_counter()
    model = task.peer(**PEER, random_state=0).fit(rows.X, rows.y, X_val=rows.X_valid, y_val=rows.y_valid)
    seconds = time.perf_counter() - start
    return Fitted("scikit-learn HGBT", list(task.peer_scores(model, rows.X_test)), seconds)


def fit_jboost(name: str, loss: jboost.Loss | Callable, rows: Rows) -> Fitted:
    """Bin once, fit with the loss, and score the test rows after each round."""
    start = time.perf_counter()
    data = jboost.bin_features(rows.X)
    valid = jboost.bin_features(rows.X_valid, edges=data.edges)
    model, _ = jboost.fit(loss, data, rows.y, spec=SPEC, hyper=HYPER, valid=(valid, rows.y_valid))
    seconds = time.perf_counter() - start
    return Fitted(name, [np.asarray(score) for score in jboost.staged_predict(model, rows.X_test)], seconds)


def fit_all(task: Task, rows: Rows, progress: tqdm) -> list[Fitted]:
    """Fit the four models of one task."""
    fits = [
        lambda: fit_constant(task, rows),
        lambda: fit_peer(task, rows),
        lambda: fit_jboost("jboost, built-in loss", task.built_in, rows),
        lambda: fit_jboost("jboost, own loss", task.own, rows),
    ]
    fitted = []
    for fit in fits:
        fitted.append(fit())
        progress.update()
    return fitted


# ----------------------------------------------------------------------------------------------------- output
def print_table(task: Task, rows: Rows, fitted: list[Fitted]) -> None:
    """Print one line a model: its metrics on the test rows, its trees and its seconds."""
    counts = f"{len(rows.y)} + {len(rows.y_valid)} + {len(rows.y_test)} rows x {rows.X.shape[1]} features"
    print(f"\n{task.name} ({counts})")
    print(f"  {'':<22}" + "".join(f"{name:>16}" for name in task.metrics) + f"{'rounds':>8}{'seconds':>9}")
    for model in fitted:
        values = [metric(rows.y_test, model.scores[-1]) for metric in task.metrics.values()]
        rounds = 0 if model.name == "constant" else len(model.scores)
        print(
            f"  {model.name:<22}"
            + "".join(f"{value:>16.4g}" for value in values)
            + f"{rounds:>8}{model.seconds:>9.1f}"
        )


def draw_curves(results: list[tuple[Task, Rows, list[Fitted]]], path: Path) -> None:
    """Draw the first two metrics of each task on the test rows after each round."""
    size = (4.2 * len(results), 6.0)
    figure, axes = plt.subplots(2, len(results), figsize=size, sharex="col", layout="constrained")
    for column, (task, rows, fitted) in zip(axes.T, results, strict=True):
        column[0].set_title(f"{task.name}, {len(rows.y_test)} test rows")
        column[1].set_xlabel("boosting rounds")
        for ax, (name, metric) in zip(column, task.metrics.items(), strict=False):
            draw_metric(ax, name, metric, rows.y_test, fitted)
    axes[0, -1].legend(fontsize=9)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def draw_metric(ax: Axes, name: str, metric: Metric, y: np.ndarray, fitted: list[Fitted]) -> None:
    """Draw one metric of all models into one panel."""
    constant, *models = fitted
    for model in models:
        curve = [metric(y, score) for score in model.scores]
        ax.plot(np.arange(1, len(curve) + 1), curve, label=model.name)
    ax.axhline(metric(y, constant.scores[0]), color="grey", linestyle=":", label="constant")
    ax.set_ylabel(f"{name} (lower is better)")
    ax.grid(alpha=0.3)


def main() -> None:
    """Fit every task, then print and draw."""
    print(f"JAX {jax.__version__} on {jax.devices()[0].device_kind}; seconds of jboost include compilation")
    results = []
    with tqdm(total=4 * len(TASKS), desc="fitting", unit="model") as progress:
        for task in TASKS:
            rows = split(task)
            results.append((task, rows, fit_all(task, rows, progress)))
    for result in results:
        print_table(*result)
    path = OUTPUT / "learning_curves.png"
    draw_curves(results, path)
    print(f"\nlearning curves: {path}")


if __name__ == "__main__":
    main()
