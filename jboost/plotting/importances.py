"""Bars of importances."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost._runtime.arguments import whole_number
from jboost._runtime.extras import axes_or_new, pyplot
from jboost.plotting.axes import BLUE, name_outputs, tidy


def plot_importance(importance: Any, *, top: int = 20, labels: Any = None, ax: Any = None) -> Any:
    """Draw importances as bars, the largest first.

    Parameters
    ----------
    importance : jboost.explain.Importance
        What `jboost.explain.importance` or `jboost.explain.permutation_importance` returns.
    top : int, default 20
        Features to show.
    labels : sequence of str, optional
        Names of the outputs where there is a value for each, whose bars are stacked; by default the classes of a
        classifier.
    ax : matplotlib axes, optional
        Where; new ones by default.

    Returns
    -------
    matplotlib axes
        With permutations, each is a dot, and the bar their mean.

    Raises
    ------
    ValueError, TypeError
        If that is no importance, or top is below 1.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> estimator = jboost.JBoostRegressor(n_estimators=5).fit(X, X[:, 1])
    >>> ax = jboost.plotting.plot_importance(jboost.explain.importance(estimator))
    """
    if getattr(importance, "value", None) is None or getattr(importance, "features", None) is None:
        raise TypeError(
            f"importance must be what jboost.explain.importance returns, got {type(importance).__name__}"
        )
    top = whole_number(top, "top", 1)
    value = np.asarray(importance.value, float)
    total = value.reshape(len(value), -1).sum(axis=1)
    order = np.argsort(-total, kind="stable")[:top]
    ax = axes_or_new(ax, (6.0, 0.8 + 0.28 * len(order)))
    rows = np.arange(len(order))
    if value.ndim == 1:
        ax.barh(rows, value[order], color=BLUE, alpha=0.85, height=0.7)
    else:
        _stack(ax, rows, value[order], name_outputs(labels, importance.outputs, value.shape[1]))
    if importance.repeats.size:
        repeats = importance.repeats[order]
        ax.plot(
            repeats,
            np.broadcast_to(rows[:, None], repeats.shape),
            ".",
            color="0.2",
            markersize=3.5,
            alpha=0.6,
        )
    ax.set_yticks(rows, [_name(importance.features[j]) for j in order])
    ax.set(xlabel=importance.kind.replace("_", " "), ylim=(len(order) - 0.4, -0.6))
    tidy(ax)
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return ax


def _stack(ax: Any, rows: np.ndarray, value: np.ndarray, names: list[str]) -> None:
    colours = pyplot().get_cmap("viridis")(np.linspace(0.15, 0.9, len(names)))
    start = np.zeros(len(rows))
    for k, name in enumerate(names):
        ax.barh(rows, value[:, k], left=start, color=colours[k], height=0.7, label=name)
        start += value[:, k]
    ax.legend(frameon=False, fontsize=8)


def _name(feature: Any) -> str:
    if isinstance(feature, tuple):
        return ", ".join(map(_name, feature))
    return feature if isinstance(feature, str) else f"feature {feature}"
