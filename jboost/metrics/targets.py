"""Which targets a metric of ranks takes, and how predictions and targets lie beside each other."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost._objective.domains import check_binary, check_both_classes, check_label, check_real
from jboost._runtime.typing import of_floats


@dataclass(frozen=True)
class EachClass:
    """Raise unless each class occurs: 0 and 1, in each column if there are several, or numbers below `n_classes`."""

    n_classes: int | None = None

    def among(self, n_classes: int | None) -> EachClass:
        """Return the check for so many classes; for None and up to two, of 0 and 1."""
        return EachClass(n_classes)

    def __call__(self, y: Any) -> None:
        """Check a concrete target."""
        y = np.asarray(y)
        if y.ndim == 2:
            for column in y.T:
                check_both_classes(column)
        elif self.n_classes is None or self.n_classes <= 2:
            check_both_classes(y)
        else:
            check_label(y, self.n_classes)
            absent = np.setdiff1d(np.arange(self.n_classes), y)
            if absent.size:
                raise ValueError(f"y must hold each of the {self.n_classes} classes, but none is {absent[0]}")


def check_binary_or_label(y: Any) -> None:
    """Raise unless y [n] holds class numbers from 0, or y [n k] only 0 and 1."""
    y = np.asarray(y)
    if y.ndim == 2:
        return check_binary(y)
    check_real(y)
    wrong = (y < 0) | (y != np.floor(y))
    if wrong.any():
        raise ValueError(
            f"y must be 0 or 1, or the number of a class; got {y[wrong][0]} at row {np.argmax(wrong)}"
        )
    return None


def elementwise(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Let a metric of predictions and targets of one shape say so, and take [n 1] for [n]; whole y become floats."""
    with_floats = of_floats(function)

    @functools.wraps(function)
    def aligned(prediction: Any, y: Any, *more: Any, **named: Any) -> jax.Array:
        prediction, y = without_column(prediction, y), without_column(y, prediction)
        if jnp.shape(prediction) != jnp.shape(y):
            raise ValueError(
                f"{function.__name__.strip('_').partition('_of_')[0]} takes one prediction for each target, got shapes "
                f"{jnp.shape(prediction)} and {jnp.shape(y)}"
            )
        return with_floats(prediction, y, *more, **named)

    return aligned


def without_column(array: Any, other: Any) -> Any:
    """Return [n] for [n 1] where the other is [n]."""
    is_column = jnp.ndim(array) == 2 and jnp.shape(array)[1] == 1 and jnp.ndim(other) == 1
    return jnp.reshape(array, -1) if is_column else array
