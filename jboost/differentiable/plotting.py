"""A picture of tuning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from jboost._runtime.extras import check_axes, pyplot

if TYPE_CHECKING:
    from jboost.differentiable.tuned import Tuned

LOGARITHMIC = ("learning_rate", "reg_lambda", "reg_alpha", "max_delta_step")


def plot_tuned(found: Tuned, ax: Any) -> Any:
    """Draw the risk by step, and each number that was tuned, with a mark at the best step."""
    steps = np.arange(1, len(found.risk) + 1)
    if ax is not None:
        check_axes(ax)
        _draw(ax, steps, found.risk, found)
        ax.set(xlabel="step", ylabel=found.name)
        return ax
    curves = {found.name: found.risk} | {n: v for n, v in found.values.items() if n != "sample_weight"}
    size = (6.4, 1.4 + 1.6 * len(curves))
    _, axes = pyplot().subplots(len(curves), figsize=size, layout="constrained", sharex=True, squeeze=False)
    for one, (name, values) in zip(axes[:, 0], curves.items(), strict=True):
        _draw(one, steps, values, found)
        one.set(ylabel=name, yscale="log" if name in LOGARITHMIC else "linear")
    axes[-1, 0].set(xlabel="step")
    return axes[:, 0]


def _draw(ax: Any, steps: np.ndarray, values: np.ndarray, found: Tuned) -> None:
    ax.plot(steps, values, ".-")
    ax.axvline(found.best + 1, color="0.6", linewidth=1)
    ax.grid(alpha=0.3)
