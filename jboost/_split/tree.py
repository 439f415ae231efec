"""The record of splits: those of a level, of a tree, or of many trees."""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Int, UInt32

from jboost._runtime.typing import pytree


@pytree
class Tree:
    """Splits of one tree; stacked over rounds (and over outputs, where each has its own tree).

    Slots run level by level: a symmetric tree has one a level, a depthwise tree has slot 2**level - 1 + node.

    Attributes
    ----------
    feature : int32 [s]
        Column that is looked at.
    threshold : int32 [s]
        Bin codes above it go right; the number of codes where nothing is split.
    missing_right : bool [s]
        Whether missing and unseen values go right.
    categories_right : uint32 [s, words] or None
        For a categorical feature, the set of codes that go right, 32 to a word. None in a model without categorical
        features.
    gain : float [s]
        What the split gained, gamma taken off unless trees are pruned afterwards; 0 where nothing is split.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> spec = jboost.Spec(n_estimators=1, max_depth=1)
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0] > 2.5, spec=spec)
    >>> model.trees.threshold.tolist()  # values up to that of code 3, which is 2.0, go left
    [[3]]
    """

    feature: Int[Array, "*trees s"]
    threshold: Int[Array, "*trees s"]  # codes above it go right; n_codes where nothing is split
    missing_right: Bool[Array, "*trees s"]
    categories_right: UInt32[Array, "*trees s words"] | None  # set of codes, for a categorical feature
    gain: Float[Array, "*trees s"]
