"""A picture of a tree, read from left to right."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jboost._runtime.arguments import whole_number
from jboost._runtime.extras import axes_or_new, pyplot
from jboost.plotting.axes import INK, PALE, cut_short, name_outputs
from jboost.plotting.nodes import Node, number_text, read_tree, value_text

LEVEL, LEAF = 2.5, 0.44  # inches between levels and between leaves
FIGURE_SPACE = "\u2007"  # as wide as a digit
BOLD_PER_SMALL = 0.7  # spaces in bold type that are as wide as a character of the line below
WIDEST = 30  # letters of a question: longer ones would hide the words on the branches
THICKEST = 7.0  # points: the branch of all rows
LESS, MORE = (0.40, 0.58, 0.82), (0.85, 0.45, 0.35)
DEEPEST = 0.8  # share of a colour that still lets one read


@dataclasses.dataclass(frozen=True)
class _Paint:
    """The colours of leaves: white, and the more of an output's colour the more it gains over the mean of all."""

    colours: np.ndarray  # [k 3]
    largest: float
    leaders: frozenset[int]  # outputs that gain most somewhere

    @classmethod
    def of(cls, values: list[np.ndarray]) -> _Paint:
        """Look at what the leaves that are shown add; where splits alone are shown there is nothing to paint."""
        n_outputs = values[0].size if values else 1
        if n_outputs == 1:
            colours, sizes = np.array([MORE]), [abs(float(one[0])) for one in values]
        else:
            dark = pyplot().get_cmap("viridis")(np.linspace(0.15, 0.9, n_outputs))[:, :3]
            colours = 1 + (dark - 1) * 0.65
            sizes = [float(one.max() - one.mean()) for one in values]
        leaders = frozenset(int(one.argmax()) for one in values)
        return cls(colours, max(sizes, default=0.0) or 1.0, leaders)

    def colour(self, value: np.ndarray) -> tuple[float, float, float]:
        """Mix white with the colour of a leaf: of one output blue for less than nothing, red for more."""
        if value.size == 1:
            end, size = (LESS if value[0] < 0 else self.colours[0]), abs(value[0])
        else:
            end, size = self.colours[value.argmax()], value.max() - value.mean()
        red, green, blue = 1 + (np.asarray(end) - 1) * min(size / self.largest, 1.0) * DEEPEST
        return float(red), float(green), float(blue)


def plot_tree(
    model: Any, number: int, *, output: int | None = None, max_depth: int | None = None, ax: Any = None
) -> Any:
    """Draw a tree, from the root on the left to the leaves on the right.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        Where the tree is.
    number : int
        The round, from 0; negative ones count from the last.
    output : int, optional
        Which output: needed where each has a tree of its own.
    max_depth : int, optional
        Levels to show; below, a mark says how many leaves there are.
    ax : matplotlib axes, optional
        Where; new ones, of a size that fits, by default.

    Returns
    -------
    matplotlib axes
        Each split has its gain and cover; a branch is as thick as its share in the cover, and says on which side
        missing values are. Leaves are coloured by what they add: blue is less, red is more; of several outputs by the
        one that gains most in the leaf.

    Raises
    ------
    ValueError, TypeError
        If there is no such tree.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=1, max_depth=2))
    >>> ax = jboost.plotting.plot_tree(model, 0)
    """
    root = read_tree(model, number, output)
    most = root.depth if max_depth is None else whole_number(max_depth, "max_depth", or_else=" or None")
    depth = min(root.depth, most)
    places = _places(root, depth)
    n_rows = 1 + max(y for _, _, y in places)
    size = LEVEL * (depth + 0.9), max(LEAF * (n_rows + 0.6), 1.2)
    is_given, ax = ax is not None, axes_or_new(ax, size)
    scale = _scale(ax, size) if is_given else 1.0
    paint = _Paint.of([node.value for node, _, _ in places if not node.children])
    for node, x, y in places:
        _draw_box(ax, node, x, y, x == depth, paint, scale)
    if len(paint.colours) > 1:
        names = name_outputs(None, _classes(model), len(paint.colours))
        _name_colours(ax, names, paint, 7 * scale)
    _draw_branches(ax, root, places, depth, scale)
    ax.set(xlim=(-0.42, depth + 0.42), ylim=(n_rows - 0.4, -0.6))
    ax.axis("off")
    return ax


def _classes(given: Any) -> Any:
    """Return the classes of a classifier, or None."""
    labels = getattr(given, "classes_", None)
    return None if not isinstance(labels, np.ndarray) else tuple(map(str, labels))


def _name_colours(ax: Any, names: list[str], paint: _Paint, size: float) -> None:
    """Say which output a colour stands for, of those that lead in a leaf."""
    from matplotlib.patches import Patch

    found = [
        Patch(facecolor=paint.colours[k], label=cut_short(names[k], WIDEST)) for k in sorted(paint.leaders)
    ]
    ax.legend(
        handles=found, frameon=False, fontsize=size, loc="upper left", title="gains most", title_fontsize=size
    )


def _scale(ax: Any, size: tuple[float, float]) -> float:
    """Return how much smaller the letters must be on given axes than on new ones."""
    box = ax.get_window_extent()
    return min(1.0, box.width / ax.figure.dpi / size[0], box.height / ax.figure.dpi / size[1])


def _places(root: Node, depth: int) -> list[tuple[Node, int, float]]:
    """Put leaves one below the other, and each split in the middle of its children."""
    found: list[tuple[Node, int, float]] = []
    next_row = 0

    def put(node: Node, level: int) -> float:
        nonlocal next_row
        if not node.children or level == depth:
            row, next_row = float(next_row), next_row + 1
        else:
            row = sum(put(child, level + 1) for child in node.children) / 2
        found.append((node, level, row))
        return row

    put(root, 0)
    return found


def _draw_box(ax: Any, node: Node, x: float, y: float, is_last: bool, paint: _Paint, scale: float) -> None:
    box = {
        "boxstyle": "round,pad=0.35,rounding_size=0.25",
        "linewidth": 0.8,
        "edgecolor": PALE,
        "facecolor": "white",
    }
    cover = f"cover {number_text(node.cover)}"
    if node.children and is_last:
        _write(ax, x, y, f"{node.n_leaves} leaves\n{cover}", 7 * scale, bbox=box | {"linestyle": "--"})
        return
    if node.children:
        facts = f"gain {number_text(node.gain)}   {cover}"
        question = _widened(cut_short(node.question or "", WIDEST), BOLD_PER_SMALL * len(facts))
        _write(ax, x, y, f"{question}\n", 9 * scale, bbox=box, fontweight="bold", linespacing=1.15)
        _write(ax, x, y, f"\n{facts}", 7 * scale, color="0.4", linespacing=1.6)
        return
    box |= {"facecolor": paint.colour(node.value), "edgecolor": "white"}
    value = _widened(value_text(node.value), len(cover) - 1)
    _write(ax, x, y, f"{value}\n", 9 * scale, bbox=box)
    _write(ax, x, y, f"\n{cover}", 7 * scale, color="0.35")


def _widened(text: str, length: float) -> str:
    """Put spaces on both sides, so that the box is as wide as the line below."""
    spaces = FIGURE_SPACE * max(0, round((length - len(text)) / 2))
    return f"{spaces}{text}{spaces}"


def _write(ax: Any, x: float, y: float, text: str, size: float, **options: Any) -> None:
    ax.text(
        x, y, text, **{"ha": "center", "va": "center", "fontsize": size, "color": INK, "zorder": 3} | options
    )


def _draw_branches(
    ax: Any, root: Node, places: list[tuple[Node, int, float]], depth: int, scale: float
) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    place = {id(node): (x, y) for node, x, y in places}
    for node, x, y in places:
        if x == depth:
            continue
        for is_right, child in enumerate(node.children):
            x1, y1 = place[id(child)]
            share = child.cover / root.cover if root.cover > 0 else 0.0  # NaN is not above 0
            curve = Path([(x, y), (x + 0.55, y), (x1 - 0.6, y1), (x1, y1)], [Path.MOVETO] + [Path.CURVE4] * 3)
            width = scale * (0.8 + (THICKEST - 0.8) * share)
            ax.add_patch(
                PathPatch(curve, fill=False, edgecolor="0.82", linewidth=width, capstyle="round", zorder=1)
            )
            label = ("yes", "no")[is_right] + (" · missing" if node.missing_right == bool(is_right) else "")
            half = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.75}
            _write(ax, x + 0.52 * (x1 - x), (y + y1) / 2, label, 7 * scale, color="0.4", bbox=half, zorder=2)
