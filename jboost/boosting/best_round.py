"""Which round is the best: one definition for the compiled rounds, the history and a fit that is continued."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jboost.metrics import Metric


def improves(metric: Any, best: Any, tol: Any) -> Any:
    """Say whether a metric, less being better, beats the best so far by more than `tol`; NaN never does."""
    return metric < best - tol


def signed(value: Any, metric: Metric | None) -> Any:
    """Turn a metric round if more is better; None is the mean loss."""
    return -value if metric is not None and metric.maximize else value


def has_had_enough(since_best: Any, patience: int | None) -> Any:
    """Say whether so many rounds without a better one end the fit; None never does."""
    return jnp.zeros((), bool) if patience is None else since_best >= patience


def follow(metric: Float[np.ndarray, " t"], best: Any, tol: Any, patience: int | None) -> tuple[int, int]:
    """Go through the metrics of rounds, less being better, as early stopping does.

    Parameters
    ----------
    metric : float [t]
        After each round.
    best : float
        What the first round has to beat; infinity for any number.
    tol : float
        An improvement that is no larger does not count.
    patience : int or None
        Rounds without an improvement after which to stop.

    Returns
    -------
    int
        Rounds until the end, or until patience ran out.
    int
        The best of them, counted from 0; -1 if none beats `best`.
    """
    best, tol, found = np.asarray(best), np.asarray(tol), -1
    for t, value in enumerate(metric):
        if improves(value, best, tol):
            found, best = t, value
        elif patience is not None and t - found >= patience:
            return t + 1, found
    return len(metric), found
