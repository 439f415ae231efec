"""Compare ways of finding splits: every value, candidates proposed once or for each tree, and what missing values cost.

    python experiments/split_finding.py FOLDER [--data NAME ...] [--splits N] [--trees N] [--plot FILE] [--times]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py`. Prints the test AUC against
eps, one over the bins of a feature, with a global proposal (weighted quantiles found once) and a local one (found anew
for each tree, weighted by second derivatives), beside exact greedy splits and XGBoost, as in figure 3 of Chen and
Guestrin (2016); `--times` adds the processor time of a tree by each way, on one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # as a script: find this checkout, which need not be installed
    sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import xgboost  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402
from tqdm import tqdm  # noqa: E402

import jboost  # noqa: E402
from experiments.real_data import load_suite  # noqa: E402
from jboost._runtime.library import at_most  # noqa: E402

BINS = (2, 3, 5, 10, 20, 50, 100)  # one over eps
RATE, DEPTH = 0.1, 6
WAYS = ("global", "local", "XGBoost global", "XGBoost local")
EXACT = ("exact", "XGBoost exact")

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def read(folder: Path, name: str, seed: int) -> Split:
    """Return training and test rows, categories as numbers; the first split is that of the data set."""
    data = load_suite(folder).load(name)
    X = np.column_stack([_numbers(data.X[column]) for column in data.X]).astype(np.float32)
    train, test = data.train_index, data.test_index
    if seed:
        order = np.random.default_rng(seed).permutation(len(X))
        train, test = order[: len(train)], order[len(train) :]
    return X[train], data.y[train].astype(float), X[test], data.y[test].astype(float)


def _numbers(column: Any) -> np.ndarray:
    if column.dtype == "category":
        codes = column.cat.codes.to_numpy().astype(float)
        return np.where(codes < 0, np.nan, codes)
    return column.to_numpy(dtype=float, na_value=np.nan)


def fit_jboost(X: np.ndarray, y: np.ndarray, way: str, bins: int, trees: int) -> Callable[[np.ndarray], Any]:
    """Fit by node; a global proposal is the bins of the data, a local one joins the bins of all values."""
    data = jboost.bin_features(X, max_bins=bins if way == "global" else "exact")
    spec = jboost.Spec(n_estimators=trees, max_depth=DEPTH, grow_policy="depthwise", penalties="absolute")
    if way == "local":
        spec = dataclasses.replace(spec, n_candidates=bins)
    hyper = jboost.Hyper(learning_rate=RATE)
    model, _ = jboost.fit(jboost.losses.logistic, data, y, spec=spec, hyper=hyper, verbose=False)
    return lambda rows: np.asarray(jboost.predict(model, rows))


def fit_xgboost(X: np.ndarray, y: np.ndarray, way: str, bins: int, trees: int) -> Callable[[np.ndarray], Any]:
    """Fit by XGBoost: `hist` proposes once, `approx` before each tree."""
    method = {"global": "hist", "local": "approx", "exact": "exact"}[way]
    options: dict[str, Any] = {"objective": "binary:logistic", "eta": RATE, "max_depth": DEPTH, "nthread": 1}
    options |= {"tree_method": method} | ({} if way == "exact" else {"max_bin": bins})
    booster = xgboost.train(options, xgboost.DMatrix(X, y, nthread=1), trees)
    return lambda rows: booster.predict(xgboost.DMatrix(rows), output_margin=True)


def fit(X: np.ndarray, y: np.ndarray, way: str, bins: int, trees: int) -> Callable[[np.ndarray], Any]:
    """Fit by one of the ways."""
    maker = fit_xgboost if way.startswith("XGBoost") else fit_jboost
    return maker(X, y, way.removeprefix("XGBoost "), bins, trees)


def accuracies(splits: list[Split], trees: int) -> dict[tuple[str, int], float]:
    """Return the mean test AUC of each way and number of bins; exact ways have 0 bins."""
    asked = [(way, 0) for way in EXACT] + [(way, bins) for bins in BINS for way in WAYS]
    found: dict[tuple[str, int], list[float]] = {one: [] for one in asked}
    with tqdm(total=len(asked) * len(splits)) as bar:
        for X, y, X_test, y_test in splits:
            for way, bins in asked:
                score = fit(X, y, way, bins, trees)(X_test)
                found[way, bins].append(float(roc_auc_score(y_test, score)))
                bar.update()
    return {one: float(np.mean(values)) for one, values in found.items()}


def table_of_accuracies(name: str, found: dict[tuple[str, int], float]) -> str:
    """Lay the AUC out in Markdown: a line for each eps, and one for exact splits."""
    lines = [f"| {name}: eps | {' | '.join(WAYS)} |", "|---" * (1 + len(WAYS)) + "|"]
    for bins in BINS:
        cells = [f"{1 / bins:.2f}", *(f"{found[way, bins]:.4f}" for way in WAYS)]
        lines += [f"| {' | '.join(cells)} |"]
    exact, peer = (f"{found[way, 0]:.4f}" for way in EXACT)
    return "\n".join([*lines, f"| exact | {exact} | {exact} | {peer} | {peer} |"])


def times(n: int = 10_000, f: int = 28, trees: int = 20) -> str:
    """Lay out the processor time of a tree by each way, of full rows and with nine in ten values missing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, f), dtype=np.float32)
    y = (X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + rng.normal(size=n) > 0).astype(float)
    sparse = np.where(rng.random((n, f)) < 0.9, np.float32(np.nan), X)
    lines = ["| ms of one thread for a tree | all values there | 9 in 10 missing |", "|---|---|---|"]
    for name, way, bins in (
        ("every value", "exact", 0),
        ("255 candidates, once", "global", 255),
        ("50 candidates, once", "global", 50),
        ("50 candidates, for each tree", "local", 50),
    ):
        for maker, of in ((fit_jboost, "jboost"), (fit_xgboost, "XGBoost")):
            spent = [_milliseconds(maker, rows, y, way, bins, trees) for rows in (X, sparse)]
            lines.append(f"| {name}, {of} | " + " | ".join(f"{one:.1f}" for one in spent) + " |")
    return "\n".join(lines)


def _milliseconds(maker: Any, X: np.ndarray, y: np.ndarray, way: str, bins: int, trees: int) -> float:
    """Take the difference between fits of many and of few trees, so that what comes before them does not count."""
    with at_most(1):
        for count in (trees, 5 * trees):  # compiles, if anything does
            maker(X, y, way, bins, count)
        spent = []
        for count in (trees, 5 * trees):
            start = time.process_time()
            maker(X, y, way, bins, count)
            spent.append(time.process_time() - start)
    return 1000 * (spent[1] - spent[0]) / (4 * trees)


def draw(found: dict[str, dict[tuple[str, int], float]], file: Path) -> None:
    """Draw the AUC against eps for each data set."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 3.2))
    axes = figure.subplots(1, len(found), squeeze=False)
    for axis, (name, values) in zip(axes[0], found.items(), strict=True):
        for way, style in zip(WAYS, ("C0o-", "C1s-", "C0o:", "C1s:"), strict=True):
            label = way if way.startswith("XGBoost") else f"{way} proposal"
            axis.plot(
                [1 / bins for bins in BINS],
                [values[way, bins] for bins in BINS],
                style,
                label=label,
                markersize=4,
            )
        axis.axhline(values["exact", 0], color="k", linewidth=1, label="exact")
        axis.axhline(values["XGBoost exact", 0], color="k", linewidth=1, linestyle=":", label="XGBoost exact")
        axis.set(xscale="log", xlabel="eps (one over bins)", ylabel="test AUC", title=name)
        axis.invert_xaxis()
    axes[0, 0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file, dpi=90)


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--data", nargs="*", default=["adult", "credit_default"], metavar="NAME")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args(arguments)
    found = {}
    if options.folder is not None:
        for name in options.data:
            splits = [read(Path(options.folder), name, seed) for seed in range(options.splits)]
            found[name] = accuracies(splits, options.trees)
            print(table_of_accuracies(name, found[name]), end="\n\n", flush=True)
    if found:
        print(
            "published, on Higgs: exact splits, a local proposal with eps 0.3 and a global one with 0.05 are level\n"
        )
    if options.times:
        print(times())
    if options.plot and found:
        draw(found, options.plot)


if __name__ == "__main__":
    main()
