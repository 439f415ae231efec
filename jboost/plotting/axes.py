"""Axes to draw on, and what is said where matplotlib is not installed."""

from __future__ import annotations

from typing import Any

INK, PALE, BLUE, RED = "0.15", "0.6", "#2b6cb0", "#c05621"


def pyplot() -> Any:
    """Import matplotlib when something is drawn."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError('plotting needs matplotlib: pip install "jboost[plot]"') from error
    return plt


def axes_or_new(ax: Any, size: tuple[float, float]) -> Any:
    """Return the axes that were given, or new ones of a size in inches."""
    plt = pyplot()
    return plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


def tidy(ax: Any) -> None:
    """Leave out what a reader does not need."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
