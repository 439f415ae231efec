"""The numbers of a model that may be trained: which there are, how far they have moved, and how large a step is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._runtime.typing import as_array
from jboost.differentiable.soft import SoftEnsemble

RATE = 0.02  # of a step of the default optimizer, in units of what it moves


def chosen(model: Any, by: Any, known: tuple[str, ...]) -> dict[str, Array]:
    """Return the fields of a model that `by` names."""
    if isinstance(by, str) or not isinstance(by, Sequence):
        raise TypeError(f"by must be a tuple of names among {known}, got {by!r}")
    unknown = [name for name in by if name not in known]
    if unknown or not by or len(set(by)) < len(by):
        raise ValueError(f"by must name at least one of {known}, each once, got {tuple(by)!r}")
    found = {name: getattr(model, name) for name in by}
    if not any(array.size for array in found.values()):
        raise ValueError(f"by must name something that the model has: {tuple(by)!r} of {model!r} are empty")
    return found


def distance(model: Any, start: Any) -> Float[Array, " k"]:
    """Return the squared distance of two models of the same trees, by output, in units of squared scores.

    That of the base score, and the number of trees times that of what each leaf adds: at least the square by which the
    score of a row has moved because of the leaves it is in, however many trees share in it. A threshold of a soft tree
    that has moved by the spread of its feature counts as if all leaves of the tree had moved by their values.
    """
    before = _added(start)
    leaves = jnp.square(_added(model) - before).sum(axis=(0, 1))
    if isinstance(model, SoftEnsemble):
        moved = jnp.square(model.threshold - start.threshold).sum(axis=-1)  # [t] or [t k]
        leaves += (jnp.square(before).sum(axis=1) * moved.reshape(moved.shape[0], -1)).sum(axis=0)
    return model.n_trees * leaves + jnp.square(model.base - start.base)


def rates(model: Any, names: Sequence[str]) -> dict[str, Array]:
    """Return the steps of the default optimizer: shares of the size of what is moved.

    The base score moves as far in a step as the leaves of all trees together do, a threshold by a share of the
    temperature.
    """
    weight, base = (np.abs(np.asarray(one, np.float64)) for one in (model.tree_weight, model.base))
    leaves = np.abs(np.asarray(model.leaf_value, np.float64))
    largest = leaves.max(axis=(0, 1), initial=0)
    size = np.where(largest > 0, largest, 1)
    filled = np.maximum((leaves > 0).sum(axis=1), 1)  # leaves without rows are 0
    of_trees = size * np.sqrt(np.square(leaves / size).sum(axis=1) / filled)  # [t k]
    n_used = np.maximum((of_trees > 0).sum(axis=0), 1)
    reach = (weight[:, None] * of_trees).sum(axis=0)  # how far all trees together move a score
    reach = np.where(reach > 0, reach, np.where(base > 0, base, 1))
    typical = of_trees.sum(axis=0) / n_used
    found = {
        "base": reach,
        "leaf_value": np.where(typical > 0, typical, reach / n_used)[None, None],
        "tree_weight": np.array([weight.mean() if weight.any() else 1.0]),
    }
    if isinstance(model, SoftEnsemble):
        found["threshold"] = np.full((1,) * model.threshold.ndim, float(model.temperature))
    return {name: as_array((RATE * found[name]).astype(model.base.dtype)) for name in names}


def _added(model: Any) -> Float[Array, "t leaves k"]:
    """What each leaf adds to a score."""
    return model.leaf_value * model.tree_weight.astype(model.leaf_value.dtype)[:, None, None]
