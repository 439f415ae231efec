"""The ratios as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.benchmark.report import Line

COLOURS = {"stretch met": "#2a7f62", "wanted met": "#8fbf6a", "behind": "#c9533c"}


def draw(lines: Sequence[Line], path: Path) -> None:
    """Draw a bar for each ratio, on a logarithmic axis with 1 for as fast as the fastest peer.

    Raises
    ------
    ValueError
        If no line has a ratio.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # no window
    from matplotlib import pyplot as plt

    shown = [line for line in lines if line.ratio is not None and not line.absolute]
    if not shown:
        raise ValueError("plot needs at least one row with a ratio to a peer")
    figure, axes = plt.subplots(figsize=(9, 1.4 + 0.42 * len(shown)), layout="constrained")
    for place, line in enumerate(shown):
        _bar(axes, place, line)
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", yticks=range(len(shown)), yticklabels=[line.name for line in shown])
    axes.set_xlabel(
        "jboost / fastest peer (of custom-loss: / built-in loss), logarithmic: left of 1 is better"
    )
    axes.invert_yaxis()
    _set_ticks(axes, shown)
    _add_legend(axes)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _bar(axes: Any, place: int, line: Line) -> None:
    """Draw a bar from 1, its value, and marks at what is wanted."""
    assert line.ratio is not None
    axes.barh(place, line.ratio - 1, left=1, height=0.6, color=COLOURS.get(line.verdict, "grey"))
    axes.text(  # beside the axes, clear of the marks
        1.01,
        place,
        f"{line.ratio:.2f}  ({line.other_name})",
        transform=axes.get_yaxis_transform(),
        va="center",
        fontsize=9,
    )
    axes.plot(line.wanted, place, "|", color="black", markersize=16, markeredgewidth=2)
    axes.plot(line.stretch, place, "d", color="black", markersize=5, markerfacecolor="white")


def _set_ticks(axes: Any, shown: Sequence[Line]) -> None:
    """Leave room on both sides, and write plain numbers."""
    values = [value for line in shown for value in (line.ratio or 1, line.wanted, line.stretch, 1)]
    axes.set_xlim(min(values) / 1.5, max(values) * 1.5)
    ticks = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
    low, high = axes.get_xlim()
    inside = [tick for tick in ticks if low <= tick <= high]
    axes.set_xticks(inside, labels=[f"{tick:g}" for tick in inside])
    axes.minorticks_off()
    axes.grid(axis="x", color="0.9")
    axes.set_axisbelow(True)


def _add_legend(axes: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks = [
        Line2D(
            [], [], color="black", marker="|", linestyle="", markersize=12, markeredgewidth=2, label="wanted"
        ),
        Line2D([], [], color="black", marker="d", linestyle="", markerfacecolor="white", label="stretch"),
    ]
    patches = [Patch(color=colour, label=verdict) for verdict, colour in COLOURS.items()]
    axes.figure.legend(
        handles=[*marks, *patches], loc="outside lower center", ncols=5, fontsize=8, frameon=False
    )
