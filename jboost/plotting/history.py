"""Learning curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jboost._runtime.extras import axes_or_new, pyplot
from jboost.plotting.axes import BLUE, RED, tidy

COLOURS = (RED, "#2f855a", "#6b46c1", "#b7791f", "0.4")  # of the sets that are watched
TRAINING = "training"

Panels = dict[str, dict[str, np.ndarray]]  # by metric and set of rows


def plot_history(history: Any, *, metric: str | None = None, ax: Any = None) -> Any:
    """Draw losses and metrics by round, with a mark at the best.

    Parameters
    ----------
    history : History, fitted estimator, or dict
        What `jboost.fit` returns; an estimator, for its `history_` and `evals_result_`; or an `evals_result_`.
        Where a fit stopped early, a History holds all rounds that ran, `evals_result_` those up to the best one.
    metric : str, optional
        Draw this one alone.
    ax : matplotlib axes, optional
        Where to draw one metric: `metric`, or the last. New ones, one for each metric, by default.

    Returns
    -------
    matplotlib axes, or an array of them
        An array where several metrics are drawn.

    Raises
    ------
    ValueError, TypeError
        If there is nothing to draw, or no such metric.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> _, history = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> ax = jboost.plotting.plot_history(history)
    """
    panels, best = _panels(history)
    if not panels:
        raise ValueError("history must hold a curve, got none")
    if metric is not None:
        if metric not in panels:
            raise ValueError(f"metric must be among {', '.join(map(repr, panels))}, got {metric!r}")
        panels = {metric: panels[metric]}
    if ax is not None or len(panels) == 1:
        name, curves = list(panels.items())[-1]
        ax = axes_or_new(ax, (6.0, 3.6))
        _draw(ax, name, curves, best)
        ax.set_xlabel("round")
        return ax
    size = (6.0, 0.9 + 2.3 * len(panels))
    _, axes = pyplot().subplots(len(panels), figsize=size, layout="constrained", sharex=True)
    for one, (name, curves) in zip(axes, panels.items(), strict=True):
        _draw(one, name, curves, best)
    axes[-1].set_xlabel("round")
    return axes


def _panels(history: Any) -> tuple[Panels, int | None]:
    """Return the curves, and the best round if something was watched."""
    if isinstance(history, Mapping):
        return _of_sets(history), None
    own = getattr(history, "history_", history)
    if getattr(own, "train_loss", None) is None or getattr(own, "valid_metric", None) is None:
        raise TypeError(
            f"history must be a jboost.History, a fitted estimator or its evals_result_, got {type(history).__name__}"
        )
    train, watched = np.asarray(own.train_loss, float), np.asarray(own.valid_metric, float)
    if train.ndim != 1:
        raise ValueError(f"history must be of one fit, got curves of shape {train.shape}")
    panels = {"mean loss": {TRAINING: train}} if np.isfinite(train).any() else {}
    sets = getattr(history, "evals_result_", None) or {}
    for name, curves in _of_sets(sets).items():
        panels.setdefault("mean loss" if name in ("mean_loss", "mean loss") else name, {}).update(curves)
    if not sets and np.isfinite(watched).any():
        panels["validation metric"] = {"validation": watched}
    is_watched = bool(sets) or np.isfinite(watched).any()
    return panels, int(own.best_round) if is_watched else None


def _of_sets(sets: Mapping[str, Any]) -> Panels:
    panels: Panels = {}
    for name, metrics in sets.items():
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"history must be a dict of dicts, as evals_result_ is, got {type(metrics).__name__}"
            )
        for metric, curve in metrics.items():
            panels.setdefault(metric, {})[name] = np.asarray(curve, float)
    return panels


def _draw(ax: Any, name: str, curves: dict[str, np.ndarray], best: int | None) -> None:
    colours = iter(COLOURS * (1 + len(curves) // len(COLOURS)))
    for label, curve in curves.items():
        colour = BLUE if label == TRAINING else next(colours)
        rounds = np.arange(1, len(curve) + 1)
        ax.plot(rounds, curve, color=colour, linewidth=1.6, label=label.replace("_", " "))
        if best is not None and label != TRAINING and best < len(curve):
            ax.plot(best + 1, curve[best], "o", color=colour, markersize=5)
            ax.annotate(f"{curve[best]:.4g}", (best + 1, curve[best]), xytext=(0, 6), textcoords="offset points",
                        ha="right" if best > 0.8 * len(curve) else "center", fontsize=8, color=colour)  # fmt: skip
    if best is not None:
        ax.axvline(best + 1, color="0.8", linewidth=1.0, zorder=0)
    ax.set_ylabel(name)
    tidy(ax)
    ax.legend(frameon=False)
