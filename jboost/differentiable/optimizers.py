"""Optimizers are those of optax, which is imported where one is needed."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp


def optax_module() -> ModuleType:
    """Import optax, or say how to get it."""
    try:
        import optax
    except ImportError as error:
        raise ImportError(
            "optimizer needs optax: pip install 'jboost[differentiable]', or pip install optax"
        ) from error
    return optax


def check_optimizer(optimizer: Any, rate: float) -> Any:
    """Return the optimizer, Adam with this rate by default; raise unless it is one of optax's."""
    optax = optax_module()
    if optimizer is None:
        return _adam(rate)
    if not isinstance(optimizer, optax.GradientTransformation):
        raise TypeError(
            f"optimizer must be an optax.GradientTransformation such as optax.adam(0.1), got {type(optimizer).__name__}"
        )
    return optimizer


@functools.cache
def _adam(rate: float) -> Any:
    """Make Adam for gradients in any unit: its epsilon would drown small ones. One for all calls, compiled once."""
    optax = optax_module()

    def init(place: Any) -> jax.Array:
        return jnp.zeros((), jax.tree.leaves(place)[0].dtype)

    def update(gradient: Any, unit: jax.Array, place: Any = None) -> tuple[Any, jax.Array]:
        largest = jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(gradient)]).max()
        unit = jnp.where(unit > 0, unit, jnp.where(largest > 0, largest, 1))  # that of the first step
        return jax.tree.map(lambda leaf: leaf / unit, gradient), unit

    return optax.chain(optax.GradientTransformation(init, update), optax.adam(rate))


def follow(optimizer: Any, gradient: Any, state: Any, place: Any) -> tuple[Any, Any]:
    """Return the place after a step, and the state of the optimizer."""
    return _follow(optimizer.update, gradient, state, place)


@functools.partial(jax.jit, static_argnums=0)
def _follow(update: Any, gradient: Any, state: Any, place: Any) -> tuple[Any, Any]:
    updates, state = update(gradient, state, place)
    return optax_module().apply_updates(place, updates), state
