"""Losses on targets and weights alone, as most tests of them are written."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jboost._objective.derivatives import derivatives_by_row, raw_derivatives
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows


def rows_of(y: Any, weight: Any = None) -> Rows:
    """Make rows, of weight 1 by default."""
    y = jax.tree.map(jnp.asarray, y)
    n = jax.tree.leaves(y)[0].shape[0]
    return Rows(y, jnp.ones(n) if weight is None else weight)


@jax.jit
def raw_value_grad_hess(loss: Any, score: Any, y: Any) -> Any:
    """Differentiate at scores [n] or [n k]."""
    return raw_derivatives(loss, score, rows_of(y))


@jax.jit
def value_grad_hess(loss: Any, score: Any, y: Any) -> Any:
    """Do so with the floor on the second derivative, in the shape of the scores."""
    loss = dataclasses.replace(loss, n_outputs=None if score.ndim == 1 else score.shape[1])
    value, g, h = derivatives_by_row(loss, jnp.reshape(score, (score.shape[0], -1)), rows_of(y))
    return value, g.reshape(score.shape), h.reshape(score.shape)


def resolve_outputs(loss: Any, y: Any) -> int | None:
    """Return the length of the score vector of one row, None for a scalar."""
    return resolve(loss, y).loss.n_outputs


def best_constant(loss: Any, y: Any, weight: Any, reduce: Any = None) -> Any:
    """Return the base score by the leaf rule, a scalar where scores are."""
    loss = resolve(loss, y).loss
    found = loss.leaf.base_score(loss, rows_of(y, weight), reduce)
    return found[0] if loss.n_outputs is None else found


__all__ = ["best_constant", "raw_value_grad_hess", "resolve_outputs", "rows_of", "value_grad_hess"]
