"""Rules for derivatives that stay in force when what they give is differentiated in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

KEEPS_RULES = (0, 12)  # version of JAX; in 0.10 they get lost


def within_its_rule(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that has a `custom_jvp` from inside of this very rule.

    As JAX 0.10 linearises a scan, it takes apart what a rule calls and forgets rules in there: second derivatives come
    out wrong, in silence. It leaves the branches of a `cond` alone, so there the call stands in both.
    """
    if jax.__version_info__ >= KEEPS_RULES:
        return function(*arguments)
    first = next(leaf for leaf in jax.tree.leaves(arguments) if jnp.issubdtype(leaf.dtype, jnp.floating))
    return jax.lax.cond(_either(jax.lax.stop_gradient(first)), function, function, *arguments)


@jax.custom_batching.custom_vmap
def _either(values: jax.Array) -> jax.Array:
    """Return True or False, which is not known before the program runs: else it would choose a branch beforehand."""
    return jnp.sum(jnp.ravel(values)[:1]) > 0


@_either.def_vmap
def _one_for_all(axis_size: int, in_batched: list[bool], values: jax.Array) -> tuple[jax.Array, bool]:
    """Choose once for all of a vmap, which would take both branches."""
    return _either(values[0]), False
