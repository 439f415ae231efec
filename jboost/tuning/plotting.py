"""A picture of a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jboost._runtime.extras import axes_or_new

if TYPE_CHECKING:
    from jboost.tuning.result import Sweep


def plot_sweep(found: Sweep, ax: Any, most: int) -> Any:
    """Draw the curves of the best settings, the best on top, with a mark at its best round."""
    ax = axes_or_new(ax, (6.4, 4.0))
    curves = found.train_loss if np.isnan(found.metric).all() else found.metric
    order = np.argsort(-found.score if found.maximize else found.score, kind="stable")[:most]
    for rank, setting in reversed(list(enumerate(order))):
        made = ~np.isnan(curves[setting]).any(axis=0)
        rounds, values = np.flatnonzero(made) + 1, curves[setting][:, made]
        mean, colour = values.mean(axis=0), "tab:blue" if rank == 0 else "0.7"
        label = _label(found, int(setting)) if rank == 0 else None
        ax.plot(rounds, mean, color=colour, linewidth=1.8 if rank == 0 else 1.0, label=label)
        if rank == 0 and len(values) > 1:
            error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
            ax.fill_between(rounds, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
    best = found.best
    ax.plot(found.best_round[best] + 1, found.score[best], "o", color="tab:blue")
    n_others = len(order) - 1
    if n_others:
        ax.plot([], [], color="0.7", label=f"the next {n_others}" if n_others > 1 else "the other")
    ax.set(xlabel="round", ylabel=found.name, title=f"{curves.shape[0]} settings, {curves.shape[1]} folds")
    ax.grid(alpha=0.3)
    ax.legend()
    return ax


def _label(found: Sweep, setting: int) -> str:
    numbers = [f"{name} {getattr(found.hyper, name)[setting]:.3g}" for name in found.varied()]
    return ", ".join(numbers) or "all rows"
