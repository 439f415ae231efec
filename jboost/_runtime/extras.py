"""Packages that only some features need: imported where one is used, with a word on how to install it."""

from __future__ import annotations

import importlib
from typing import Any

EXTRAS = {"matplotlib": "plot", "optax": "differentiable"}  # of pyproject.toml, by package


def optax(needed_by: str) -> Any:
    """Return the module; `needed_by` begins the message where it is not installed."""
    return _imported("optax", needed_by)


def check_optimizer(optimizer: Any) -> None:
    """Raise unless this is an optimizer of optax's kind."""
    parts = [getattr(optimizer, name, None) for name in ("init", "update")]
    if isinstance(optimizer, type) or not all(map(callable, parts)):
        raise TypeError(
            f"optimizer must be an optax.GradientTransformation, such as optax.adam(0.01), or None, got {optimizer!r}"
        )


def pyplot() -> Any:
    """Return matplotlib's module when something is drawn."""
    return _imported("matplotlib.pyplot", "plotting")


def axes_or_new(ax: Any, size: tuple[float, float]) -> Any:
    """Return the axes that were given, or new ones of a size in inches."""
    if ax is None:
        return pyplot().subplots(figsize=size, layout="constrained")[1]
    check_axes(ax)
    return ax


def check_axes(ax: Any) -> None:
    """Raise unless these are axes of matplotlib's."""
    if not hasattr(ax, "get_window_extent"):
        raise TypeError(f"ax must be matplotlib axes or None, got {type(ax).__name__}")


def _imported(module: str, needed_by: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f'{needed_by} needs {package}: pip install "jboost[{EXTRAS[package]}]"') from error
