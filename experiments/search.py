"""How long does a search take? 64 settings on 5 folds, by JBoostSearchCV and by GridSearchCV over the peers.

    python experiments/search.py [--rows N] [--trees N] [--peer-settings N] [--markdown FILE]

10,000 rows of 28 features, 100 trees of depth 6, learning rates and L2 penalties, logistic loss, scored by log loss;
each library on all cores, in this process. Peers are timed on some of the settings, times what is missing. The second
search of jboost has other numbers: it compiles nothing.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from jboost import JBoostClassifier, JBoostSearchCV

PEERS = {
    "xgboost": ("XGBClassifier", {"tree_method": "hist"}),
    "lightgbm": ("LGBMClassifier", {"verbose": -1, "num_leaves": 63}),
}


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels that depend on some of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 28)).astype(np.float32)
    signal = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3])
    return X, (signal + rng.normal(size=n) > 0).astype(int)


def grid(n_settings: int, shift: float = 1.0) -> list[dict[str, Any]]:
    """Return settings one by one, for a grid of lists of one value."""
    rates, penalties = np.geomspace(0.02, 0.3, 8) * shift, np.geomspace(0.1, 10, 8)
    settings = [{"learning_rate": [rate], "reg_lambda": [penalty]} for rate in rates for penalty in penalties]
    return settings[:: 64 // n_settings]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--peer-settings", type=int, default=8, choices=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    X, y = rows(options.rows)
    common = {"n_estimators": options.trees, "max_depth": 6}
    how = {"cv": StratifiedKFold(5), "scoring": "neg_log_loss", "refit": False}
    lines = ["| | seconds | best log loss |", "|---|---|---|"]

    def add(name: str, seconds: float, search: Any) -> None:
        lines.append(f"| {name} | {seconds:.1f} | {-search.cv_results_['mean_test_score'].max():.4f} |")
        print(lines[-1], flush=True)

    print("\n".join(lines))
    for policy in ("symmetric", "depthwise"):
        estimator = JBoostClassifier(**common, grow_policy=policy)
        for which, shift in (("first", 1.0), ("second", 1.01)):
            start = time.perf_counter()
            search = JBoostSearchCV(estimator, param_grid=grid(64, shift), **how).fit(X, y)
            add(f"JBoostSearchCV, {policy}, {which}", time.perf_counter() - start, search)
    for name, (kind, more) in PEERS.items():
        try:
            estimator = getattr(importlib.import_module(name), kind)(**common, **more)
        except ImportError:
            continue
        n_settings = options.peer_settings
        start = time.perf_counter()
        search = GridSearchCV(estimator, grid(n_settings), **how).fit(X, y)
        seconds = (time.perf_counter() - start) * 64 / n_settings
        add(f"GridSearchCV over {kind}" + f", {n_settings} settings x {64 // n_settings}", seconds, search)
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
