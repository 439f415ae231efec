"""Checks on the host that a concrete target lies in the domain of a loss or metric."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost._runtime.typing import is_traced


def real_argument(
    value: Any, name: str, low: float, high: float, advice: str = "", ends: tuple[float, ...] = ()
) -> Any:
    """Return `value` as a float, a traced one as it is; raise unless it lies between `low` and `high`.

    Strictly between them, or at those that `ends` names.
    """
    if is_traced(value):
        return value
    if isinstance(value, np.ndarray | jax.Array) and value.ndim == 0:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{name} must be a real number; got {value!r}")
    if not (low < value < high or value in ends):
        if ends:
            expected = f"between {low} and {high}, {' and '.join(map(str, ends))} included"
        elif (low, high) == (0, np.inf):
            expected = "positive and finite"
        else:
            expected = f"strictly between {low} and {high}"
        raise ValueError(f"{name} must be {expected}; got {value!r}{advice}")
    return float(value)


def with_number(name: str, value: Any) -> str:
    """Name a loss or a metric and the value of its parameter, if that is known."""
    return name if is_traced(value) else f"{name}({value:g})"


def check_real(y: Any) -> None:
    """Raise unless y holds finite real numbers."""
    _finite(y)


def check_binary(y: Any) -> None:
    """Raise unless y holds 0 and 1 only."""
    y = _finite(y)
    _require(y, (y == 0) | (y == 1), "0 or 1")


def check_probability(y: Any) -> None:
    """Raise unless y lies in [0, 1]."""
    y = _finite(y)
    _require(y, (y >= 0) & (y <= 1), "0 or 1, or a probability between them")


def check_non_negative(y: Any) -> None:
    """Raise unless y is at least 0."""
    y = _finite(y)
    _require(y, y >= 0, "non-negative")


def check_positive(y: Any) -> None:
    """Raise unless y is above 0."""
    y = _finite(y)
    _require(y, y > 0, "positive")


def check_label(y: Any, n_classes: int) -> None:
    """Raise unless y [n] holds whole class numbers below `n_classes`."""
    y = _finite(y)
    if y.ndim != 1:
        raise ValueError(f"y must have shape [n], one class number per row; got shape {y.shape}")
    _require(
        y, (y >= 0) & (y < n_classes) & (y == np.floor(y)), f"a whole class number from 0 to {n_classes - 1}"
    )


def check_both_classes(y: Any) -> None:
    """Raise unless y holds 0 and 1, each at least once."""
    check_binary(y)
    if np.unique(np.asarray(y)).size < 2:
        raise ValueError(f"y must hold both classes, 0 and 1; got only {np.unique(np.asarray(y))}")


def _finite(y: Any) -> np.ndarray:
    y = np.asarray(y)
    if not (y.dtype.kind in "biuf" or jnp.issubdtype(y.dtype, jnp.floating)):
        raise ValueError(f"y must hold real numbers; got dtype {y.dtype}")
    _require(y, np.isfinite(y), "finite")
    return y


def _require(y: np.ndarray, valid: np.ndarray, expected: str) -> None:
    if not valid.all():
        raise ValueError(f"y must be {expected}; got {y[~valid][0]} at row {np.argwhere(~valid)[0, 0]}")
