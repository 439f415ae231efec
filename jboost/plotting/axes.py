"""What pictures share: colours, and axes without what a reader does not need."""

from __future__ import annotations

from typing import Any

INK, PALE, BLUE, RED = "0.15", "0.6", "#2b6cb0", "#c05621"


def tidy(ax: Any) -> None:
    """Leave out what a reader does not need."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
