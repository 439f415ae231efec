"""Functions whose closed-over arrays become arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.core
from jaxtyping import Array


def with_explicit_closure(
    function: Callable[..., Any], *examples: Any
) -> tuple[Callable[..., Any], list[Any]]:
    """Return the function of (its first argument, what it closes over, leaves of the others), and what it closes over.

    So a loop can be kept from being differentiated by these arrays, or a rule can be made that is. Unlike
    `jax.closure_convert` this takes integers too, which a rule may not close over while they are traced.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    structure, n_closed_over = jax.tree.structure(shapes), len(program.consts)

    def explicit(first: Array, *rest: Any) -> Any:
        closed_over, arguments = rest[:n_closed_over], rest[n_closed_over:]
        results = jax.core.eval_jaxpr(program.jaxpr, closed_over, first, *arguments)
        return jax.tree.unflatten(structure, results)

    return explicit, program.consts
