"""Pictures of partial dependence: curves, contours, bars."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost._runtime.arguments import is_whole
from jboost._runtime.extras import axes_or_new, pyplot
from jboost.plotting.axes import BLUE, PALE, RED, cut_short, name_outputs, tidy

SIZE = (5.0, 3.6)
LONGEST, WIDE = 18, 44  # letters of the name of a category, and of all that stand level side by side
MANY = 20  # categories in letters of full size
INCHES, WIDEST = 0.17, 12.0  # for the name of a category, and of a picture
MOST = int(WIDEST / INCHES)  # names of categories; of more, every second or third is written


def plot_dependence(
    dependence: Any, *, output: int | str | None = None, labels: Any = None, curves: int = 100, ax: Any = None
) -> Any:
    """Draw a partial dependence: a curve with those of single rows, contours of two features, bars of categories.

    Parameters
    ----------
    dependence : jboost.explain.PartialDependence
        What `jboost.explain.partial_dependence` returns, of one feature or two.
    output : int or str, optional
        Which output of several, or which class; all are drawn, of one feature, if None.
    labels : sequence of str, optional
        Names of the outputs; by default the classes of a classifier.
    curves : int, default 100
        The most curves of single rows (ICE) to draw, evenly taken.
    ax : matplotlib axes, optional
        Where; new ones by default.

    Returns
    -------
    matplotlib axes
        Small marks on an axis are the deciles of the rows.

    Raises
    ------
    ValueError, TypeError
        If that is no partial dependence of one or two features, or an output is needed or not there.
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("Agg")
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> estimator = jboost.JBoostRegressor(n_estimators=5).fit(X, X[:, 1])
    >>> ax = jboost.plotting.plot_dependence(jboost.explain.partial_dependence(estimator, X, 1, kind="both"))
    """
    if getattr(dependence, "grid", None) is None:
        raise TypeError(
            f"dependence must be what jboost.explain.partial_dependence returns, got {type(dependence).__name__}"
        )
    n_features = len(dependence.grid)
    if n_features > 2:
        raise ValueError(f"dependence must be of one feature or two, got {n_features}")
    average, individual, names = _chosen(dependence, n_features, output, labels)
    if n_features == 1:
        ax = axes_or_new(ax, _size(dependence, SIZE))
        _draw_one(ax, dependence, average, individual, names, curves)
    else:
        ax = axes_or_new(ax, _size(dependence, (5.4, 4.2)))
        _draw_two(ax, dependence, average, names)
    return ax


def _size(dependence: Any, least: tuple[float, float]) -> tuple[float, float]:
    """Return inches with room for the names of categories: below a picture, and of two features beside it."""
    rooms = [
        INCHES * len(values) + 1 if is_category else 0.0
        for values, is_category in zip(dependence.grid, dependence.is_category, strict=True)
    ]
    if len(rooms) == 1:
        return max(least[0], min(rooms[0], WIDEST)), least[1]
    if sum(dependence.is_category) == 2:
        return max(least[0], min(rooms[0], WIDEST)), max(least[1], min(rooms[1], WIDEST))
    return least


def _chosen(dependence: Any, n_features: int, output: Any, labels: Any) -> tuple[Any, Any, list[str] | None]:
    """Return the averages [g], [g k] or [g1 g2], the curves [n g] or None, and the names of what is drawn."""
    average, individual = (
        None if a is None else np.asarray(a) for a in (dependence.average, dependence.individual)
    )
    some: Any = average if average is not None else individual
    has_outputs = some.ndim - (average is None) > n_features
    n_outputs = some.shape[-1] if has_outputs else 1
    names = None
    if n_outputs > 1 or labels is not None or dependence.outputs is not None:
        names = name_outputs(labels, dependence.outputs, n_outputs)
    if output is not None:
        k = _number_of(output, names, n_outputs)
        names = names and names[k : k + 1]
        if has_outputs:
            average, individual = (None if a is None else a[..., k] for a in (average, individual))
            has_outputs = False
    if has_outputs and (n_features == 2 or average is None):
        raise ValueError("output must say which of several outputs is drawn, got None")
    if average is None and n_features == 2:
        raise ValueError(
            "dependence must hold averages for a picture of two features: kind='average' or 'both'"
        )
    return average, None if has_outputs else individual, names


def _number_of(output: Any, names: list[str] | None, n_outputs: int) -> int:
    """Find an output by its number or its name."""
    if isinstance(output, str):
        if output not in (names or []):
            raise ValueError(f"output must be among {names}, or a number, got {output!r}")
        return (names or []).index(output)
    if not is_whole(output):
        raise TypeError(f"output must be the number or the name of an output, got {output!r}")
    if not 0 <= output < n_outputs:
        raise ValueError(f"output must be below {n_outputs}, the number of outputs, got {output}")
    return int(output)


# ---------------------------------------------------------------- one feature


def _draw_one(
    ax: Any, dependence: Any, average: Any, individual: Any, names: list[str] | None, curves: int
) -> None:
    values, is_category = dependence.grid[0], dependence.is_category[0]
    at = np.arange(len(values)) if is_category else values
    if individual is not None:
        some = individual[np.linspace(0, len(individual) - 1, min(curves, len(individual))).astype(int)]
        marks = {"marker": "_", "linestyle": "none", "markersize": 14} if is_category else {"linewidth": 0.6}
        ax.plot(at, some.T, color=PALE, alpha=0.35, zorder=1, **marks)
    if average is not None:
        _draw_averages(ax, at, average, is_category, names, individual is not None)
    if is_category:
        _name_categories(ax, "x", values)
    elif dependence.deciles[0] is not None:
        _rug(ax, dependence.deciles[0], "x", (values[0], values[-1]))
    ax.set(xlabel=_name(dependence.features[0]), ylabel=_label(dependence, names))
    tidy(ax)


def _draw_averages(
    ax: Any, at: Any, average: Any, is_category: bool, names: list[str] | None, has_curves: bool
) -> None:
    columns = average[:, None] if average.ndim == 1 else average
    n_outputs = columns.shape[1]
    colours = (
        [RED if has_curves else BLUE]
        if n_outputs == 1
        else pyplot().get_cmap("viridis")(np.linspace(0.1, 0.85, n_outputs))
    )
    width = 0.7 / n_outputs
    for k, (name, colour) in enumerate(zip(names or [None], colours, strict=True)):
        if is_category and not has_curves:
            ax.bar(
                at + (k - (n_outputs - 1) / 2) * width,
                columns[:, k],
                width,
                color=colour,
                alpha=0.85,
                label=name,
            )
        elif is_category:
            ax.plot(at, columns[:, k], "o", color=colour, markersize=7, label=name, zorder=3)
        else:
            ax.plot(at, columns[:, k], color=colour, linewidth=2.0, label=name, zorder=3)
    if n_outputs > 1:
        ax.legend(frameon=False, fontsize=8)


# ---------------------------------------------------------------- two features


def _draw_two(ax: Any, dependence: Any, average: Any, names: list[str] | None) -> None:
    kinds, (first, second), features = (
        dependence.is_category,
        dependence.grid,
        list(map(_name, dependence.features)),
    )
    if sum(kinds) == 1:  # a curve for each category
        table = average if kinds[1] else average.T
        numbers, categories = (first, second) if kinds[1] else (second, first)
        deciles = dependence.deciles[0 if kinds[1] else 1]
        colours = pyplot().get_cmap("viridis")(np.linspace(0.1, 0.85, len(categories)))
        for column, category, colour in zip(table.T, categories, colours, strict=True):
            ax.plot(numbers, column, color=colour, linewidth=1.8, label=str(category))
        if deciles is not None:
            _rug(ax, deciles, "x", (numbers[0], numbers[-1]))
        ax.set(xlabel=features[0 if kinds[1] else 1], ylabel=_label(dependence, names))
        ax.legend(title=features[1 if kinds[1] else 0], frameon=False, fontsize=8)
        tidy(ax)
        return
    if all(kinds):
        found = ax.imshow(average.T, origin="lower", aspect="auto", cmap="viridis")
        _name_categories(ax, "x", first)
        _name_categories(ax, "y", second)
    else:
        if min(average.shape) < 2:
            raise ValueError(
                f"dependence must have two points of each feature to be drawn, got {average.shape}"
            )
        found = ax.contourf(first, second, average.T, levels=14, cmap="viridis")
        ax.contour(
            first, second, average.T, levels=found.levels[::2], colors="white", linewidths=0.5, alpha=0.6
        )
        for deciles, side, grid in zip(dependence.deciles, "xy", (first, second), strict=True):
            if deciles is not None:
                _rug(ax, deciles, side, (grid[0], grid[-1]), "white")
    ax.figure.colorbar(found, ax=ax, label=_label(dependence, names))
    ax.set(xlabel=features[0], ylabel=features[1])


def _name_categories(ax: Any, side: str, values: Any) -> None:
    """Write the categories beside an axis: long names cut short, those below it aslant, no more than fit."""
    names = [cut_short(str(value), LONGEST) for value in values]
    every = -(-len(names) // MOST)
    ticks = ax.set_xticks if side == "x" else ax.set_yticks
    style: dict[str, Any] = {"fontsize": 8 if len(names) <= MANY else 7}
    if side == "x" and sum(map(len, names)) > WIDE:
        style |= {"rotation": 60, "ha": "right", "rotation_mode": "anchor"}
    ticks(range(0, len(names), every), names[::every], **style)


def _rug(ax: Any, deciles: np.ndarray, side: str, limits: tuple[float, float], colour: str = "0.25") -> None:
    """Mark where the rows lie."""
    inside = deciles[(deciles >= limits[0]) & (deciles <= limits[1])]
    if side == "x":
        ax.vlines(inside, 0, 0.035, transform=ax.get_xaxis_transform(), color=colour, linewidth=0.9, zorder=4)
    else:
        ax.hlines(inside, 0, 0.025, transform=ax.get_yaxis_transform(), color=colour, linewidth=0.9, zorder=4)


def _label(dependence: Any, names: list[str] | None) -> str:
    of_one = f" of {names[0]}" if names and len(names) == 1 else ""
    return f"mean {dependence.response.replace('_', ' ')}{of_one}"


def _name(feature: Any) -> str:
    return feature if isinstance(feature, str) else f"feature {feature}"
