"""Estimators of the textbook: of scikit-learn, which searches all values, and those of jboost that do the same."""

from __future__ import annotations

from typing import Any

DEPTH, RATE = 3, 0.1  # of gradient boosting, as scikit-learn has them


def make_estimator(kind: str, library: str, trees: int, threads: int) -> Any:
    """Return "adaboost" with stumps, or "gradient" boosting of the log loss with depthwise trees."""
    if library == "sklearn":
        from sklearn.ensemble import AdaBoostClassifier, GradientBoostingClassifier

        if kind == "adaboost":  # whose trees are stumps
            return AdaBoostClassifier(n_estimators=trees)
        return GradientBoostingClassifier(n_estimators=trees, max_depth=DEPTH, learning_rate=RATE)
    import jboost

    if kind == "adaboost":
        return jboost.AdaBoostClassifier(trees, n_jobs=threads)
    return jboost.JBoostClassifier(
        n_estimators=trees, max_depth=DEPTH, learning_rate=RATE, grow_policy="depthwise", n_jobs=threads
    )
