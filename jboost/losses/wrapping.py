"""What losses that are made of another loss share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jboost._objective.leaf_rules import Newton
from jboost._objective.loss import Loss


def check_wrapped(loss: Any) -> None:
    """Refuse what is no loss of a row, or finds the values of leaves by something else than its derivatives."""
    if not isinstance(loss, Loss):
        raise TypeError(
            f"loss must be a Loss, such as jboost.losses.logistic or jboost.Loss(function), got {loss!r}"
        )
    if not isinstance(loss.leaf, Newton):
        raise ValueError(f"loss must have leaf=Newton(...), got {loss.name or 'one'} with leaf={loss.leaf!r}")


def curvature_of(loss: Loss) -> Any:
    """Return the function (score, y) -> what a fit takes for second derivatives: like the score, or [k k]."""
    if loss.curvature is not None:
        return loss.curvature
    if loss.hessian == "first_order":
        return ones
    if loss.hessian == "full":
        return Partial(_full, function=loss.function)
    return loss.diagonal or Partial(_diagonal, function=loss.function)


def ones(score, y):
    """Return the second derivatives of half a square."""
    return jnp.ones_like(score)


def _full(score, y, function):
    return jax.hessian(function)(score, y)


def _diagonal(score, y, function):
    found = jax.hessian(function)(score, y)
    return found if score.ndim == 0 else jnp.diagonal(found)
