"""A history that goes on where an earlier fit ended: what one longer fit would have recorded."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jboost.boosting import History
from jboost.boosting.best_round import follow


def continued(before: History, after: History, n_kept: int) -> History:
    """Join the first rounds of an earlier fit to those of the fit that continued it."""
    joined = {
        name: np.append(getattr(before, name)[:n_kept], getattr(after, name))
        for name in ("train_loss", "valid_metric")
    }
    return dataclasses.replace(after, **joined, best_round=n_kept + after.best_round)


def cut(history: History, patience: int, tol: Any, maximize: bool, best: int) -> History:
    """End a history where early stopping would have ended it, had `best` been the best round before.

    The fit that continued a model knew nothing of the metric that the model had reached, and so stopped
    no earlier than this.
    """
    metric = -history.valid_metric if maximize else history.valid_metric
    if best < 0 or np.isnan(metric[best]):  # the earlier fit watched nothing
        return history
    n_more, found = follow(metric[best + 1 :], metric[best], tol, patience)
    n_rounds = best + 1 + n_more
    return dataclasses.replace(
        history,
        train_loss=history.train_loss[:n_rounds],
        valid_metric=history.valid_metric[:n_rounds],
        best_round=best + 1 + found,
    )
