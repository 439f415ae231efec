"""Partial dependence: what a model gives at values of some features, averaged over the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Integer

from jboost._bins import Binned
from jboost._model.ensemble import Ensemble, score_bins
from jboost._runtime.arguments import check_choice, is_whole
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.explain.grids import check_grid, check_percentiles, make_axis, told_apart_by
from jboost.explain.reach import Forest
from jboost.explain.responses import LINEAR, Response, check_response, respond
from jboost.explain.subject import Feature, Subject, read_weight, rounds_with, take_rounds

Kind = Literal["average", "individual", "both"]
Method = Literal["brute", "recursion"]
Centre = Literal["none", "mean", "first"]

ROWS_AT_ONCE = 2**17  # rows times grid points that are scored in one call
POINTS_PER_LEAF = 2  # from which rows are sent through depthwise trees once rather than scored at each point


@dataclasses.dataclass(frozen=True, eq=False)
class PartialDependence:
    """What a model gives along a grid of one feature or several.

    Attributes
    ----------
    features : tuple of str or int
        Names, or numbers where there are none.
    grid : tuple of arrays [g]
        The values of each feature.
    average : float [g], [g1 g2 ...], with [... k] for k outputs; or None
        Mean over the rows at each point of the grid.
    individual : float [n g], [n g1 g2 ...], with [... k] for k outputs; or None
        Each row's own curve (individual conditional expectation).
    is_category : tuple of bool
        Of each feature, whether its grid holds categories.
    deciles : tuple of (float [9] or None)
        Of each feature, where the rows lie: for a picture.
    response : str
        What is averaged.
    outputs : tuple of str, or None
        The classes that scores or predictions are of, where a classifier knows them; of two classes, the second alone.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> jboost.explain.partial_dependence(model, X, 0)
    PartialDependence(features=(0,), points=(8,), response='score')
    """

    features: tuple[Feature, ...]
    grid: tuple[np.ndarray, ...]
    average: Any
    individual: Any
    is_category: tuple[bool, ...]
    deciles: tuple[np.ndarray | None, ...]
    response: str
    outputs: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Say of what it is, not what is in it."""
        points = tuple(len(values) for values in self.grid)
        return f"PartialDependence(features={self.features}, points={points}, response={self.response!r})"


@moves_arrays
def partial_dependence(
    model: Any,
    X: Any,
    features: Any,
    *,
    grid: Any = 100,
    percentiles: tuple[float, float] = (0.05, 0.95),
    kind: Kind = "average",
    method: Method = "brute",
    centre: Centre = "none",
    sample_weight: Any = None,
    response: Response = "score",
) -> PartialDependence:
    """Average a model over the rows, with some features held at each point of a grid.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        What is explained. Its leaf values may be traced, with a grid of values or a concrete X.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows to average over; where `method` is "recursion", only the grid is made of them, and they may be None where
        it is given.
    features : str, int, or sequence of these
        One feature, or several that are held together.
    grid : int, array-like [g], or sequence of these, default 100
        Values for each feature, or how many. A number gives the distinct values where they are fewer, else points at
        equal distances between two quantiles, as in scikit-learn; of a categorical feature, the categories that occur.
    percentiles : (float, float), default (0.05, 0.95)
        The shares of the rows between which points lie.
    kind : {"average", "individual", "both"}
        The mean over rows, the curve of each row (ICE), or both.
    method : {"brute", "recursion"}
        Whether the rows of X are averaged over, or the training rows by the covers that the trees hold: at a split on
        another feature a tree goes both ways, in the shares of the training rows (Friedman's weighted traversal). That
        needs no rows, but sees the other features as they are *given* the path so far.
    centre : {"none", "mean", "first"}
        What is taken off each curve: nothing, its mean over the grid, or its value at the first point.
    sample_weight : array-like [n], optional
        Weights of the rows.
    response : {"score", "prediction", "log_odds"} or callable
        What is averaged: raw scores; predictions, through the inverse link of the loss; of several classes,
        f_k = log p_k - mean_l log p_l (ESL 10.52), which is the score of a softmax less its mean over the classes; or a
        function of the scores [n] or [n k], such as ``lambda score: jboost.distributions.normal(score).mean()``.

    Returns
    -------
    PartialDependence
        With `.grid`, `.average` and `.individual`.

    Raises
    ------
    ValueError, TypeError
        For features that are not there or come twice, a grid of other shapes or with NaN, X without rows.

    Notes
    -----
    The mean of scores is exact and need not score each row at each point: the rows pass each tree once, both ways at
    its splits on the features, and the sums of their weights in the leaves serve for all points. Only rounds that split
    on the features are looked at, and points between which no split lies are one.

    References
    ----------
    Friedman (2001), section 8.2. Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 10.13.2.
    Goldstein et al. (2015), Peeking inside the black box (ICE).

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(200, 2))
    >>> estimator = jboost.JBoostRegressor(n_estimators=50).fit(X, X[:, 0] > 0.5)
    >>> found = jboost.explain.partial_dependence(estimator, X, 0, grid=[0.1, 0.9])
    >>> bool(found.average[1] - found.average[0] > 0.8)
    True
    """
    subject = Subject.of(model)
    if features is None:
        raise TypeError("features must be names or numbers of features, got None")
    chosen = subject.places(features)
    _check_choices(kind, method, centre, response, sample_weight, subject.model)
    wanted, limits = check_grid(grid, len(chosen)), check_percentiles(percentiles)
    if X is None and (method == "brute" or any(map(is_whole, wanted))):
        raise TypeError("X must be given unless method='recursion' and the grid holds values, got None")
    if is_traced(subject.model.edges):
        raise TypeError(
            "model must have concrete edges: trace its leaf values, by dataclasses.replace(model, leaf_value=...)"
        )
    bins = subject.read(X) if method == "brute" or isinstance(X, Binned) else None
    weight, counted = (None, slice(None)) if bins is None else read_weight(sample_weight, bins.shape[1])
    axes = [
        make_axis(subject, X, bins, counted, feature, points, limits)
        for feature, points in zip(chosen, wanted, strict=True)
    ]
    told_apart = [
        told_apart_by(subject.model, *one) for one in zip(chosen, (a.codes for a in axes), strict=True)
    ]
    codes = np.stack([c.ravel() for c in np.meshgrid(*told_apart, indexing="ij")])
    distinct, place = np.unique(codes, axis=1, return_inverse=True)
    task = _Task(subject.model, bins, chosen, distinct, weight, response)
    average, individual = task.run(kind, method)
    shape, place = tuple(len(axis.values) for axis in axes), place.ravel()
    if average is not None:
        average = _centred(average[place], centre, 0)
        average = average.reshape(*shape, *average.shape[1:])
    if individual is not None:
        individual = _centred(individual[:, place], centre, 1)
        individual = individual.reshape(individual.shape[0], *shape, *individual.shape[2:])
    return PartialDependence(
        tuple(subject.names()[j] for j in chosen),
        tuple(axis.values for axis in axes),
        average,
        individual,
        tuple(axis.is_category for axis in axes),
        tuple(axis.deciles for axis in axes),
        response if isinstance(response, str) else getattr(response, "__name__", "response"),
        subject.outputs() if isinstance(response, str) else None,
    )


def _check_choices(
    kind: Any, method: Any, centre: Any, response: Any, sample_weight: Any, model: Ensemble
) -> None:
    choices = {"kind": (kind, Kind), "method": (method, Method), "centre": (centre, Centre)}
    for name, (value, known) in choices.items():
        check_choice(name, value, get_args(known))
    check_response(response, model)
    if method == "brute":
        return
    if kind != "average" or response not in LINEAR or sample_weight is not None:
        raise ValueError(
            "method='recursion' must come with kind='average', a response of 'score' or 'log_odds' and no "
            "sample_weight: it knows no rows, only the covers of the trees"
        )
    if not is_traced(model.leaf_count) and np.isnan(np.asarray(model.leaf_count)).any():
        raise ValueError("method must be 'brute' for a model that does not know its covers, got 'recursion'")


def _centred(values: Any, centre: Centre, axis: int) -> Any:
    """Take off the mean along the points of the grid, or the value at the first."""
    if centre == "none":
        return values
    first = values[(slice(None),) * axis + (slice(0, 1),)]
    return values - (first if centre == "first" else values.mean(axis=axis, keepdims=True))


@dataclasses.dataclass(frozen=True)
class _Task:
    """Bin codes [d g] that features [d] are held at, over rows [f n] of some shares in all."""

    model: Ensemble
    bins: Any
    features: Sequence[int]
    codes: Integer[np.ndarray, "d g"]
    weight: Any  # [n]; None without rows
    response: Any

    def run(self, kind: Kind, method: Method) -> tuple[Any, Any]:
        """Return averages [g ...] and curves [n g ...], or None."""
        n_leaves, n_points = self.model.leaf_value.shape[1], self.codes.shape[1]
        follows = isinstance(self.response, str) and self.response in LINEAR
        follows &= self.model.symmetric or n_points >= POINTS_PER_LEAF * n_leaves
        if method == "recursion":
            return self._respond(self._by_cover()), None
        if kind == "average" and follows:
            return self._respond(self._by_rows()), None
        parts = list(self._scored(kind))
        averages, curves = zip(*parts, strict=True)
        concatenate = jnp.concatenate if is_traced(parts) else np.concatenate
        average = None if kind == "individual" else concatenate(averages)
        return average, None if kind == "average" else concatenate(curves, axis=1)

    def _respond(self, score: Any) -> Any:
        return respond(self.response, self.model, score)

    def _points(self) -> Integer[Any, "f g"]:
        points = np.zeros((self.model.edges.n_features, self.codes.shape[1]), self.codes.dtype)
        points[list(self.features)] = self.codes
        return points

    def _parts(self) -> tuple[Ensemble, Any]:
        """Return the rounds that look at the features, and what the others give each row [n k]."""
        if is_traced(self.model, self.bins):
            base = jnp.broadcast_to(self.model.base, (self.bins.shape[1], self.model.n_outputs))
            return dataclasses.replace(self.model, base=jnp.zeros_like(self.model.base)), base
        used = rounds_with(self.model, self.features).any(axis=1)
        rest = score_bins(take_rounds(self.model, ~used, base=True), self.bins)
        return take_rounds(self.model, used, base=False), np.asarray(rest)

    def _by_rows(self) -> Float[Any, "g k"]:
        used, rest = self._parts()
        forest = Forest.of(used)
        is_open = forest.splits_on(self.features)
        weight = forest.weigh_rows(is_open, self.bins, self.weight)
        found = forest.sum_at(~is_open, self._points(), weight)
        mean = np.einsum("nk,n->k", rest, self.weight) if isinstance(rest, np.ndarray) else rest[0]
        return _sum(mean[None], found)

    def _by_cover(self) -> Float[Any, "g k"]:
        forest = Forest.of(self.model)
        is_open = forest.splits_on(self.features)
        found, base = forest.sum_at(~is_open, self._points(), forest.weigh_by_cover(is_open)), self.model.base
        return _sum(jnp.expand_dims(base, 0) if is_traced(base) else np.asarray(base)[None], found)

    def _scored(self, kind: Kind) -> Iterator[tuple[Any, Any]]:
        """Score all rows at some points after the others: averages [g ...] and curves [n g ...] of these."""
        used, rest = self._parts()
        n_rows, n_points = self.bins.shape[1], self.codes.shape[1]
        step = max(1, ROWS_AT_ONCE // n_rows)
        for first in range(0, n_points, step):
            codes = self.codes[:, first : first + step]
            score = score_bins(used, _held_at(self.bins, self.features, codes)).reshape(-1, *rest.shape)
            score = score + rest[None] if is_traced(score) else np.asarray(score) + rest[None]
            found = self._respond(score.reshape(-1, rest.shape[-1]))
            found = found.reshape(-1, n_rows, *found.shape[1:])
            found = found if is_traced(found) else np.asarray(found)
            average = _mean(found, self.weight)
            yield average, None if kind == "average" else found.swapaxes(0, 1)


def _held_at(bins: Any, features: Sequence[int], codes: Integer[np.ndarray, "d g"]) -> Any:
    """Repeat the rows for each point, and hold the features there: [f, g n]."""
    n_rows = bins.shape[1]
    values = np.repeat(codes, n_rows, axis=1)
    if is_traced(bins):
        return jnp.tile(bins, (1, codes.shape[1])).at[np.asarray(features)].set(values.astype(bins.dtype))
    tiled = np.tile(np.asarray(bins), (1, codes.shape[1]))
    tiled[list(features)] = values
    return tiled


def _mean(found: Any, weight: Float[np.ndarray, " n"]) -> Any:
    if is_traced(found):
        return jnp.einsum("gn...,n->g...", found, jnp.asarray(weight, found.dtype), precision="highest")
    return np.einsum("gn...,n->g...", found, weight).astype(found.dtype)


def _sum(mean: Any, found: Any) -> Any:
    """Add in the precision of the model; on the host unless traced."""
    if is_traced(mean, found):
        return mean + found
    return (np.asarray(mean, np.float64) + np.asarray(found)).astype(np.asarray(found).dtype)
