"""Optimizers are those of optax, an extra of the package, which is imported where one is needed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jboost._runtime import extras


def import_optax() -> Any:
    """Return the module; say how to install it where it is not."""
    return extras.optax("jboost.differentiable")


@functools.cache  # one object, so that all calls share a program
def adam_without_rate() -> Any:
    """Return the directions of Adam's steps."""
    return import_optax().scale_by_adam()


@functools.cache
def adam_in_any_unit(rate: float) -> Any:
    """Return Adam for gradients in any unit, which is taken from the first: its epsilon would drown small ones."""
    optax = import_optax()

    def init(place: Any) -> jax.Array:
        return jnp.zeros((), jax.tree.leaves(place)[0].dtype)

    def update(gradient: Any, unit: jax.Array, place: Any = None) -> tuple[Any, jax.Array]:
        largest = jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(gradient)]).max()
        unit = jnp.where(unit > 0, unit, jnp.where(largest > 0, largest, 1))
        return jax.tree.map(lambda leaf: leaf / unit, gradient), unit

    return optax.chain(optax.GradientTransformation(init, update), optax.adam(rate))


def follow(optimizer: Any, gradient: Any, state: Any, place: Any) -> tuple[Any, Any]:
    """Return the place after a step, and the state of the optimizer."""
    with jax.numpy_dtype_promotion("standard"):  # optax mixes dtypes, whatever the caller's own setting
        return _follow(optimizer.update, gradient, state, place)


@functools.partial(jax.jit, static_argnums=0)
def _follow(update: Any, gradient: Any, state: Any, place: Any) -> tuple[Any, Any]:
    updates, state = update(gradient, state, place)
    return import_optax().apply_updates(place, updates), state
