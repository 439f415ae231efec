"""Permutation importance: how much worse a metric becomes when the values of a feature are shuffled among the rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._model.ensemble import score_bins
from jboost._runtime.arguments import as_key, as_target, as_weight, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced
from jboost.explain.importances import Importance, name_of_group
from jboost.explain.subject import Subject, read_weight, rounds_with, take_rounds
from jboost.metrics import Metric
from jboost.metrics.metric import as_metric

CELLS_AT_ONCE = 2**24  # bin codes of permuted rows that are held at once


@moves_arrays
def permutation_importance(
    model: Any,
    X: Any,
    y: Any,
    metric: Any,
    *,
    features: Any = None,
    n_repeats: int = 5,
    key: Any = None,
    sample_weight: Any = None,
) -> Importance:
    """Measure how much worse a metric becomes when a feature no longer says anything about the row.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        What is explained.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows, best those that were not trained on.
    y : array-like [n] or [n k], or pytree of these
        Their targets; for a classifier, labels.
    metric : Metric or callable
        One in `jboost.metrics`, or a function ``metric(score, y, weight)`` of raw scores, less being better.
    features : sequence of (str, int or sequence of these), optional
        What is permuted: each entry alone, those of an inner sequence together. All features, one by one, if None.
    n_repeats : int, default 5
        Permutations of each.
    key : jax key, optional
        Of the permutations; `jax.random.key(0)` if None.
    sample_weight : array-like [n], optional
        Weights of the rows for the metric. Rows of weight 0 are left out.

    Returns
    -------
    Importance
        With `repeats` [f r], and `value` their mean: by how much the metric is worse, so that more is more important
        whichever way the metric goes.

    Raises
    ------
    ValueError, TypeError
        For features that are not there or come twice in a group, lengths that differ, labels the classifier does not
        know, targets for which the metric is not defined.

    Notes
    -----
    Only rounds that split on the permuted features are scored again. Features that say the same stand in for each
    other: permute them together.

    References
    ----------
    Breiman (2001), Random forests, section 10. Fisher, Rudin and Dominici (2019), All models are wrong, but many are
    useful.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> estimator = jboost.JBoostRegressor(n_estimators=20).fit(X, X[:, 0])
    >>> found = jboost.explain.permutation_importance(estimator, X, X[:, 0], jboost.metrics.rmse)
    >>> bool(found.value[0] > 0.1), abs(float(found.value[1])) < 0.05
    (True, True)
    """
    subject = Subject.of(model)
    groups = _groups(subject, features)
    n_repeats = whole_number(n_repeats, "n_repeats", 1)
    if is_traced(subject.model, X, y, sample_weight):
        raise TypeError("model, X, y and sample_weight must be concrete, got a traced array")
    bins = np.asarray(subject.read(X))
    target = as_target(_coded(subject, y), "y")
    n_rows = jax.tree.leaves(target)[0].shape[0]
    if n_rows != bins.shape[1]:
        raise ValueError(f"y must have a value for each of {bins.shape[1]} rows of X, got {n_rows}")
    counted = read_weight(sample_weight, n_rows)[1]
    weight = np.asarray(as_weight(sample_weight, n_rows, "sample_weight"))[counted]
    bins, target = bins[:, counted], jax.tree.map(lambda a: as_array(np.asarray(a)[counted]), target)
    judge = _Judge.of(subject, metric, target, weight)
    orders = permutations(as_key(key), len(groups), n_repeats, len(weight))
    risks = [_risks(subject, bins, *one, judge) for one in zip(groups, orders, strict=True)]
    rise = np.stack([risk[1:] - risk[0] for risk in risks])
    repeats = -rise if judge.metric.maximize else rise
    names = tuple(name_of_group(subject.names(), group) for group in groups)
    return Importance(repeats.mean(axis=1), names, f"permutation, {judge.name}", repeats)


def permutations(key: Array, n_groups: int, n_repeats: int, n_rows: int) -> Int[np.ndarray, "g r n"]:
    """Draw the orders of the rows, of each group and repeat by a generator of its own: more repeats change none."""
    seeds = [int(one) for one in np.asarray(jax.random.bits(key, (2,), jnp.uint32))]
    return np.stack(
        [
            [np.random.default_rng([*seeds, i, j]).permutation(n_rows) for j in range(n_repeats)]
            for i in range(n_groups)
        ]
    )


def _groups(subject: Subject, features: Any) -> list[tuple[int, ...]]:
    if features is None:
        return [(j,) for j in range(subject.model.edges.n_features)]
    if not isinstance(features, Sequence | np.ndarray) or isinstance(features, str):
        raise TypeError(f"features must be a sequence of features or groups of them, got {features!r}")
    if not len(features):
        raise ValueError("features must name at least one feature, got none")
    groups = [subject.places(one) for one in features]
    if len({frozenset(group) for group in groups}) < len(groups):
        raise ValueError(f"features must name each feature or group once, got {list(features)}")
    return groups


def _coded(subject: Subject, y: Any) -> Any:
    """Turn the labels of a classifier into the numbers that its loss knows."""
    labels = subject.labels
    if labels is None:
        return y
    given = np.asarray(y)
    if given.ndim != 1:  # several labels at once are 0 and 1 already
        return y
    place = np.clip(np.searchsorted(labels, given), 0, len(labels) - 1)
    unknown = labels[place] != given
    if unknown.any():
        raise ValueError(
            f"y must hold labels of the classifier, {labels.tolist()}, got {given[unknown][0]!r}"
        )
    return place


@dataclasses.dataclass(frozen=True)
class _Judge:
    """A metric of raw scores [r n k], for rows that stay."""

    metric: Metric
    name: str
    target: Any
    weight: Float[np.ndarray, " n"]
    is_scalar: bool

    @classmethod
    def of(cls, subject: Subject, metric: Any, target: Any, weight: Float[np.ndarray, " n"]) -> _Judge:
        given, model = as_metric(metric), subject.model
        known = given.of_scores(model.inverse_link, model.n_outputs)
        if known.check_target is not None:
            known.check_target(jax.tree.map(np.asarray, target))
        return cls(known, given.name or "metric", target, weight, model.scalar_output)

    def __call__(self, score: Float[np.ndarray, "r n k"]) -> Float[np.ndarray, " r"]:
        score = score[..., 0] if self.is_scalar else score
        if self.metric.on_host:
            target = jax.tree.map(np.asarray, self.target)
            return np.array([float(self.metric(one, target, self.weight)) for one in score])
        return np.asarray(_judged(self.metric, score, self.target, self.weight), np.float64)


@program
def _judged(metric: Metric, score: Array, target: Any, weight: Array) -> Float[Array, " r"]:
    return jax.lax.map(lambda one: jnp.reshape(metric(one, target, weight), ()), score)


def _risks(
    subject: Subject, bins: np.ndarray, group: tuple[int, ...], order: Int[np.ndarray, "r n"], judge: _Judge
) -> Float[np.ndarray, " r_and_1"]:
    """Return the metric as the rows are, and after each permutation of the features."""
    model, n_rows = subject.model, bins.shape[1]
    used = rounds_with(model, group).any(axis=1)
    rest = np.asarray(score_bins(take_rounds(model, ~used, base=True), bins))
    if not used.any():
        return judge(np.repeat(rest[None], 1 + len(order), axis=0))
    mine = take_rounds(model, used, base=False)
    order = np.vstack([np.arange(n_rows), order])
    step = max(1, CELLS_AT_ONCE // bins.size)
    found = []
    for first in range(0, len(order), step):
        some = order[first : first + step]
        tiled = np.tile(bins, (1, len(some)))
        tiled[list(group)] = bins[list(group)][:, some.ravel()]
        score = np.asarray(score_bins(mine, tiled)).reshape(len(some), n_rows, -1) + rest[None]
        found.append(judge(score))
    return np.concatenate(found)
