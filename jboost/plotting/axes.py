"""What pictures share: colours, and axes without what a reader does not need."""

from __future__ import annotations

from typing import Any

INK, PALE, BLUE, RED = "0.15", "0.6", "#2b6cb0", "#c05621"


def cut_short(text: str, length: int) -> str:
    """Return a text of at most so many letters: its beginning and its end, which tells names of one kind apart."""
    end = length // 3
    return text if len(text) <= length else f"{text[: length - 1 - end].rstrip()}…{text[-end:].lstrip()}"


def name_outputs(labels: Any, known: Any, n_outputs: int) -> list[str]:
    """Return the names that are given, or else those that are known, or numbers."""
    if labels is None:
        return list(known) if known is not None else [f"output {k}" for k in range(n_outputs)]
    names = list(map(str, labels))
    if len(names) != n_outputs:
        raise ValueError(f"labels must name {n_outputs} outputs, got {len(names)}")
    return names


def tidy(ax: Any) -> None:
    """Leave out what a reader does not need."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)
    ax.set_axisbelow(True)
