"""A search of 64 settings on 5 folds: JBoostSearchCV, and GridSearchCV over the estimators of peers."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

DEPTH, N_SETTINGS, N_FOLDS = 6, 64, 5
PEERS = {
    "xgboost": ("XGBClassifier", {"tree_method": "hist"}),
    "lightgbm": ("LGBMClassifier", {"verbose": -1, "num_leaves": 2**DEPTH - 1}),
}


def settings(n: int = N_SETTINGS, shift: float = 1.0) -> list[dict[str, Any]]:
    """Return 64 learning rates and L2 penalties, for a grid of lists of one value; or 8 that have every number once."""
    rates, penalties = np.geomspace(0.02, 0.3, 8) * shift, np.geomspace(0.1, 10, 8)
    pairs = [{"learning_rate": [rate], "reg_lambda": [penalty]} for rate in rates for penalty in penalties]
    return pairs if n == N_SETTINGS else pairs[::9]


def make_search(
    library: str, trees: int, threads: int | None, n: int = N_SETTINGS, shift: float = 1.0
) -> Any:
    """Return a search that is yet to be fitted, scored by log loss; None for all threads."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    how = {"cv": StratifiedKFold(N_FOLDS), "scoring": "neg_log_loss", "refit": False}
    common = {"n_estimators": trees, "max_depth": DEPTH, "n_jobs": threads}
    if library in PEERS:
        kind, more = PEERS[library]
        estimator = getattr(importlib.import_module(library), kind)(**common, **more)
        return GridSearchCV(estimator, settings(n, shift), **how)
    from jboost import JBoostClassifier, JBoostSearchCV

    policy = "depthwise" if library == "jboost-depthwise" else "symmetric"
    return JBoostSearchCV(
        JBoostClassifier(**common, grow_policy=policy), param_grid=settings(n, shift), **how
    )
