"""Optax, which is imported when it is needed: an extra of the package."""

from __future__ import annotations

import functools
from typing import Any


def import_optax() -> Any:
    """Return the module; say how to install it where it is not."""
    try:
        import optax
    except ImportError as error:
        raise ImportError(
            'jboost.differentiable needs optax: pip install "jboost[differentiable]"'
        ) from error
    return optax


@functools.cache  # one object, so that all calls share a program
def default_optimizer() -> Any:
    """Return Adam without a rate."""
    return import_optax().scale_by_adam()


def check_optimizer(optimizer: Any) -> None:
    """Raise unless this is an optimizer of optax's kind."""
    parts = [getattr(optimizer, name, None) for name in ("init", "update")]
    if isinstance(optimizer, type) or not all(map(callable, parts)):
        raise TypeError(
            f"optimizer must be an optax.GradientTransformation, such as optax.adam(0.01), or None, got {optimizer!r}"
        )
