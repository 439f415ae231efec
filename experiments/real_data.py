"""Measure the accuracy of jboost on real data, beside XGBoost, LightGBM, CatBoost and scikit-learn.

    python experiments/real_data.py FOLDER [--only NAME ...] [--set NAME=VALUE ...] [--markdown FILE]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py` and the peers' scores
`peers_accuracy.json`. Every library has the same few settings: at most 500 trees, learning rate 0.05, depth 6, 255
bins, early stopping after 50 rounds on the same 20 % of the training part. `--set` overrides fields of Hyper and Spec.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

import jboost

TASKS = ("regression", "binary", "multiclass", "count")
POLICIES = ("symmetric", "depthwise")
VALID_SHARE = 0.2
SMALL_TEST = 2000  # below this many test rows, noise asks for a wider margin
HIGHER_IS_BETTER = ("roc_auc",)


def load_suite(folder: Path) -> ModuleType:
    """Import the loader that comes with the data."""
    spec = importlib.util.spec_from_file_location("suite", folder / "suite.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"no suite.py in {folder}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["suite"] = module
    spec.loader.exec_module(module)
    return module


def loss_for(data: Any) -> jboost.Loss:
    """Choose the loss of a task."""
    match data.task:
        case "regression":
            return jboost.losses.squared_error
        case "binary":
            return jboost.losses.logistic
        case "count":
            return jboost.losses.poisson
    return jboost.losses.softmax(int(data.y.max()) + 1)


def fit_and_score(suite: ModuleType, data: Any, policy: str, settings: dict[str, Any]) -> dict[str, float]:
    """Fit on 80 % of the training part, stop on the rest, and score the test part."""
    rows = data.train_index
    order = np.random.default_rng(0).permutation(len(rows))
    watched = np.isin(np.arange(len(rows)), order[: int(VALID_SHARE * len(rows))])
    y, weight = data.y.astype(float), data.sample_weight
    if data.exposure is not None:  # counts are fitted as rates, with the exposure as weight
        y, weight = y / data.exposure, data.exposure
    if data.task == "multiclass":
        y = data.y

    def take(where: np.ndarray) -> tuple[pd.DataFrame, np.ndarray, np.ndarray | None]:
        return data.X.iloc[where], y[where], None if weight is None else weight[where]

    fields = {field.name for field in dataclasses.fields(jboost.Spec)}
    spec = jboost.Spec(
        **{"n_estimators": 500, "max_depth": 6, "n_iter_no_change": 50, "grow_policy": policy}
        | {name: value for name, value in settings.items() if name in fields}
    )
    hyper = jboost.Hyper(
        **{"learning_rate": 0.05} | {name: value for name, value in settings.items() if name not in fields}
    )
    X, y_train, w_train = take(rows[~watched])
    X_valid, *rest = take(rows[watched])
    start = time.perf_counter()
    binned = jboost.bin_features(X, sample_weight=w_train)
    valid = (jboost.bin_features(X_valid, edges=binned.edges), *rest)
    model, _ = jboost.fit(
        loss_for(data),
        binned,
        y_train,
        spec=spec,
        hyper=hyper,
        sample_weight=w_train,
        valid=valid,
        verbose=False,
    )
    seconds = time.perf_counter() - start
    score = jboost.predict(model, data.X.iloc[data.test_index])
    prediction = np.asarray(model.inverse_link(score), dtype=np.float64)
    return {**suite.scores(data, prediction), "rounds": model.n_trees, "fit_seconds": round(seconds, 2)}


def peer_scores(known: dict[str, Any], name: str, metric: str) -> dict[str, float]:
    """Return what each peer reached at the same settings."""
    found = {library: entry.get("common", {}).get(metric) for library, entry in known.get(name, {}).items()}
    return {library: value for library, value in found.items() if value is not None}


def compare(
    name: str, metric: str, n_test: int, ours: dict[str, Any], peers: dict[str, float]
) -> dict[str, Any]:
    """Put the better policy beside the median peer."""
    sign = 1 if metric in HIGHER_IS_BETTER else -1
    best = max((ours[policy][metric] for policy in ours), key=lambda value: sign * value)
    median = float(np.median(list(peers.values())))
    if metric in HIGHER_IS_BETTER:
        behind, allowed = median - best, 0.006 if n_test < SMALL_TEST else 0.002
    else:
        behind, allowed = best / median - 1, 0.05 if n_test < SMALL_TEST else 0.01
    return {
        "name": name,
        "metric": metric,
        **{policy: ours[policy][metric] for policy in ours},
        **{f"rounds {policy}": ours[policy]["rounds"] for policy in ours},
        **{f"seconds {policy}": ours[policy]["fit_seconds"] for policy in ours},
        **peers,
        "median": median,
        "behind": behind,
        "verdict": "better" if behind < 0 else "level" if behind <= allowed else "WORSE",
    }


def markdown(rows: list[dict[str, Any]]) -> str:
    """Lay the comparison out as a table."""
    libraries = ("xgboost", "lightgbm", "catboost", "scikit-learn")
    heads = ["data set", "metric", *POLICIES, *libraries, "behind the median", "verdict"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        values = [row.get(column) for column in (*POLICIES, *libraries)]
        cells = ["-" if value is None else f"{value:.5g}" for value in values]
        unit = f"{row['behind']:+.4f}" if row["metric"] in HIGHER_IS_BETTER else f"{row['behind']:+.2%}"
        lines.append("| " + " | ".join([row["name"], row["metric"], *cells, unit, row["verdict"]]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Fit the data sets named, or all of them, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of data sets")
    parser.add_argument("--policy", nargs="*", default=POLICIES, choices=POLICIES)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="fields of Hyper or Spec")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    folder = Path(options.folder)
    suite = load_suite(folder)
    known = json.loads((folder / "peers_accuracy.json").read_text())["results"]
    settings = {name: json.loads(value) for name, value in (item.split("=", 1) for item in options.set)}
    names = options.only or [name for task in TASKS for name in suite.names(task)]
    rows = []
    for name in tqdm(names, desc="data sets", disable=None):
        data = suite.load(name)
        ours = {policy: fit_and_score(suite, data, policy, settings) for policy in options.policy}
        peers = peer_scores(known, name, data.metric_name)
        rows.append(compare(name, data.metric_name, len(data.test_index), ours, peers))
        tqdm.write(json.dumps(rows[-1]))
    better = sum(row["behind"] < 0 for row in rows)
    worse = [row["name"] for row in rows if row["verdict"] == "WORSE"]
    summary = f"better than the median peer on {better} of {len(rows)}; beyond the margin: {', '.join(worse) or 'none'}"
    print(markdown(rows), summary, sep="\n\n")
    if options.markdown is not None:
        options.markdown.write_text(markdown(rows) + "\n\n" + summary + "\n")


if __name__ == "__main__":
    main()
