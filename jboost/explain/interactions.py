"""Interaction strength: how far a model is from a sum of functions of one feature each."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble, score_bins
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.explain.reach import Forest
from jboost.explain.subject import Feature, Subject, read_weight, rounds_with, take_rounds


@dataclasses.dataclass(frozen=True, eq=False)
class Interaction:
    """Friedman's H of m features.

    Attributes
    ----------
    features : tuple of str or int
        Names, or numbers where there are none.
    pairs : float64 [m m], or [m m k] for k outputs
        H of each two; 0 on the diagonal.
    overall : float64 [m], or [m k]
        H of each feature and all others of the model together.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X.sum(axis=1), spec=jboost.Spec(max_depth=1))
    >>> jboost.explain.interaction(model, X).pairs.tolist()  # stumps add up
    [[0.0, 0.0], [0.0, 0.0]]
    """

    features: tuple[Feature, ...]
    pairs: Float[np.ndarray, "m m *k"]
    overall: Float[np.ndarray, "m *k"]

    def __repr__(self) -> str:
        """Say of what it is."""
        return f"Interaction(features={self.features})"


@moves_arrays
def interaction(model: Any, X: Any, features: Any = None, *, sample_weight: Any = None) -> Interaction:
    """Measure how strongly features interact in a model (Friedman's H).

    Of two features, H^2 = sum (F_jk - F_j - F_k)^2 / sum F_jk^2 over the rows, and of one against all others,
    sum (F - F_j - F_rest)^2 / sum F^2, where each F is a partial dependence at the values of the row, less its mean.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        What is explained, by its raw scores.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows that are averaged over, and at which the dependence is compared. A few hundred do.
    features : sequence of str or int, optional
        Features; all if None.
    sample_weight : array-like [n], optional
        Weights of the rows.

    Returns
    -------
    Interaction
        H itself, the root: `.pairs` and `.overall`. 0 for features that do not interact, exactly where no tree has
        both; 1 where there is nothing but interaction. It may exceed 1.

    Raises
    ------
    ValueError, TypeError
        For features that are not there or come twice, X without rows.

    Notes
    -----
    Only rounds that split on both features count in the numerator, since in all others the parts cancel. H is a share:
    where F_jk hardly varies, noise makes it large.

    References
    ----------
    Friedman and Popescu (2008), Predictive learning via rule ensembles, equations 44 and 45.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(300, 3))
    >>> y = X[:, 0] * X[:, 1] + X[:, 2]
    >>> estimator = jboost.JBoostRegressor(n_estimators=50, max_depth=2, grow_policy="depthwise").fit(X, y)
    >>> strength = jboost.explain.interaction(estimator, X)
    >>> bool(strength.pairs[0, 1] > 0.7), bool(strength.overall[2] < 0.3)
    (True, True)
    """
    subject = Subject.of(model)
    chosen = subject.places(features)
    if is_traced(subject.model, X, sample_weight):
        raise TypeError("model, X and sample_weight must be concrete, got a traced array")
    bins = np.asarray(subject.read(X))
    weight = read_weight(sample_weight, bins.shape[1])[0]
    ensemble = subject.model
    used = rounds_with(ensemble, range(ensemble.edges.n_features))  # [t f]
    m, k = len(chosen), ensemble.n_outputs
    pairs, overall = np.zeros((m, m, k)), np.zeros((m, k))
    for a, b in itertools.combinations(range(m), 2):
        j, other = chosen[a], chosen[b]
        both = used[:, j] & used[:, other]
        if both.any():
            parts = [((j, other), 1), ((j,), -1), ((other,), -1)]
            excess = _spread(_dependence(ensemble, both, bins, weight, parts), weight)
            whole = _spread(
                _dependence(ensemble, used[:, [j, other]].any(axis=1), bins, weight, parts[:1]), weight
            )
            pairs[a, b] = pairs[b, a] = _root_of_share(excess, whole)
    whole = _spread(np.asarray(score_bins(ensemble, bins), np.float64), weight)
    for a, j in enumerate(chosen):
        others = tuple(f for f in range(ensemble.edges.n_features) if f != j)
        mixed = used[:, j] & used[:, list(others)].any(axis=1)
        if mixed.any():
            score = np.asarray(score_bins(take_rounds(ensemble, mixed, base=False), bins), np.float64)
            rest = _dependence(ensemble, mixed, bins, weight, [((j,), -1), (others, -1)])
            overall[a] = _root_of_share(_spread(score + rest, weight), whole)
    if ensemble.scalar_output:
        pairs, overall = pairs[..., 0], overall[..., 0]
    return Interaction(tuple(subject.names()[j] for j in chosen), pairs, overall)


def _dependence(
    model: Ensemble, rounds: Any, bins: np.ndarray, weight: np.ndarray, parts: Any
) -> Float[np.ndarray, "n k"]:
    """Add partial dependences on sets of features, of some rounds, at the values of each row."""
    forest = Forest.of(take_rounds(model, rounds, base=False))
    total = np.zeros((bins.shape[1], model.n_outputs))
    for features, sign in parts:
        codes, place = np.unique(bins[list(features)], axis=1, return_inverse=True)
        points = np.zeros((len(bins), codes.shape[1]), bins.dtype)
        points[list(features)] = codes
        is_open = forest.splits_on(features)
        found = forest.sum_at(~is_open, points, forest.weigh_rows(is_open, bins, weight))
        total += sign * np.asarray(found, np.float64)[place.ravel()]
    return total


def _spread(values: Float[np.ndarray, "n k"], weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
    """Return the weighted variance of each column."""
    centred = values - (weight @ values)[None]
    return weight @ np.square(centred)


def _root_of_share(part: Float[np.ndarray, " k"], whole: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    return np.sqrt(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0))
