"""Several models of one data set as one: the weighted mean of their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble, concatenate
from jboost._runtime.typing import as_array


def averaged(models: Sequence[Ensemble], weights: Float[np.ndarray, " m"]) -> Ensemble:
    """Return a model whose score is the mean of those of models with the same bins and form, by weights that sum to 1.

    Their trees one after the other, each with its weight.
    """
    parts = [
        dataclasses.replace(model, tree_weight=as_array(np.asarray(model.tree_weight) * weight))
        for model, weight in zip(models, weights.astype(models[0].base.dtype), strict=True)
    ]
    base = sum(
        weight * np.asarray(model.base, np.float64) for model, weight in zip(models, weights, strict=True)
    )
    return dataclasses.replace(
        reduce(concatenate, parts), base=as_array(np.asarray(base, models[0].base.dtype))
    )


def chosen_greedily(
    n_models: int, n_steps: int, judge: Callable[[Float[np.ndarray, " m"]], float]
) -> Float[np.ndarray, " m"]:
    """Add a model to the mean, as often as asked for, each time the one with which it is judged best; return weights.

    A model may be added again. The step that was judged best counts.

    References
    ----------
    Caruana, Niculescu-Mizil, Crew and Ksikes (2004), "Ensemble Selection from Libraries of Models".
    """
    counts, best, found = np.zeros(n_models), -np.inf, np.zeros(n_models)
    for step in range(1, n_steps + 1):
        judged = [judge((counts + one) / step) for one in np.eye(n_models)]
        counts[int(np.argmax(judged))] += 1
        if max(judged) > best:
            best, found = max(judged), counts / step
    return found
