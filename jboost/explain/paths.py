"""The features on the way from a root to each leaf, and so the order of a model's interactions."""

from __future__ import annotations

from typing import Any

import numpy as np

from jboost._model.ensemble import Ensemble
from jboost.explain.subject import Subject, is_split

Path = frozenset[int]


def interaction_order(model: Any) -> int:
    """Return the most features that any path of any tree splits on: the order of the model's interactions.

    A tree with J leaves has J - 1 splits, so its paths, and its interactions, have at most J - 1 features (ESL 10.11);
    a tree of depth d at most d.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        What is explained.

    Returns
    -------
    int
        0 for a constant, 1 for an additive model.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 4))
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X.sum(axis=1), spec=jboost.Spec(max_depth=1))
    >>> jboost.explain.interaction_order(model)
    1
    """
    ensemble = Subject.of(model).model
    return max((len(path) for of_tree in leaf_paths(ensemble) for path in of_tree), default=0)


def leaf_paths(model: Ensemble) -> list[list[Path]]:
    """Return the features on the path to each leaf of each tree; of several outputs one tree after the other."""
    feature, splits = np.asarray(model.trees.feature), np.asarray(is_split(model))
    feature, splits = (a.reshape(-1, a.shape[-1]).tolist() for a in (feature, splits))
    n_levels = model.leaf_value.shape[1].bit_length() - 1
    of_tree = _of_symmetric_tree if model.symmetric else _of_tree
    return [of_tree(*one, n_levels) for one in zip(feature, splits, strict=True)]


def _of_symmetric_tree(feature: list[int], splits: list[bool], n_levels: int) -> list[Path]:
    return [frozenset(f for f, is_one in zip(feature, splits, strict=True) if is_one)] * 2**n_levels


def _of_tree(feature: list[int], splits: list[bool], n_levels: int) -> list[Path]:
    above: list[Path] = [frozenset()]
    for level in range(n_levels):
        slots = range(2**level - 1, 2 ** (level + 1) - 1)
        nodes = [path | {feature[s]} if splits[s] else path for s, path in zip(slots, above, strict=True)]
        above = [path for path in nodes for _ in range(2)]
    return above
