"""Functional ANOVA: a model of shallow trees as a sum of functions of one feature, of two, and so on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.explain.effects import Effect, added, purified
from jboost.explain.grids import inside_bins
from jboost.explain.paths import Path, leaf_paths
from jboost.explain.reach import Forest
from jboost.explain.subject import Feature, Subject, is_split, read_weight, rounds_with, take_rounds

MOST_COMPONENTS = 4096  # each takes milliseconds
MOST_CELLS = 2**20  # of all components: some ten seconds
NAMES = {1: "main effects", 2: "pairs", 3: "triples"}

Table = Float[np.ndarray, "..."]
Effects = dict[tuple[int, ...], Effect]
Grid = list[
    tuple[np.ndarray, np.ndarray]
]  # of each feature, a code for each place, and the place of each code


@dataclasses.dataclass(frozen=True, eq=False)
class Components:
    """A model as an intercept, main effects, and effects of two features and more.

    Attributes
    ----------
    intercept : float64, or [k] for k outputs
        The weighted mean of the score.
    terms : tuple of tuples
        The features of each component, by name, or by number where there are none: main effects first.
    tables : tuple of float64 [b], [b b], ..., with [... k] for k outputs
        What each component adds to the score, by bin code; code 0 is a missing or unseen value. The weighted mean over
        the rows is 0: of a main effect, and of two features or more for each value of all but one, values between the
        same two splits being one. Made when asked for: of three features with many bins they are large.
    variance : float64 [c], or [c k]
        The weighted variance of each component.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X.sum(axis=1), spec=jboost.Spec(max_depth=1))
    >>> jboost.explain.components(model, X).terms
    ((0,), (1,))
    """

    intercept: Any
    terms: tuple[tuple[Feature, ...], ...]
    variance: Float[np.ndarray, "c *k"]
    _effects: tuple[Effect, ...]
    _subject: Subject

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return what each component adds, by bin code."""
        return tuple(effect.by_code() for effect in self._effects)

    def __repr__(self) -> str:
        """Count the components."""
        orders = [len(term) for term in self.terms]
        counts = [f"{orders.count(d)} {NAMES.get(d, f'of {d} features')}" for d in {1, 2, *orders}]
        return f"Components({', '.join(counts)})"

    def contributions(self, X: Any) -> Float[np.ndarray, "n c *k"]:
        """Return what each component adds to the score of each row: with the intercept they sum to the score.

        Parameters
        ----------
        X : array-like [n f], data frame, sparse matrix or Binned
            Rows.

        Returns
        -------
        float64 [n c], or [n c k]
        """
        bins = np.asarray(self._subject.read(X))
        places = [self._subject.places(list(term)) for term in self.terms]
        found = [effect.at(bins[list(place)]) for effect, place in zip(self._effects, places, strict=True)]
        shape = (bins.shape[1], 0, *np.shape(self.intercept))
        return np.stack(found, axis=1) if found else np.zeros(shape)

    def curve(self, feature: Feature) -> tuple[np.ndarray, Float[np.ndarray, "g *k"]]:
        """Return a value in each bin of a feature, or its categories, and the main effect there.

        Parameters
        ----------
        feature : str or int
            A feature with a main effect.

        Returns
        -------
        values [g], float64 [g] or [g k]
        """
        places = self._subject.places(feature, "feature")
        if len(places) != 1:
            raise ValueError(
                f"feature must be one feature, got {feature!r}; what several add is in tables, in the order of terms"
            )
        (j,) = places
        name = self._subject.names()[j]
        if (name,) not in self.terms:
            raise ValueError(f"feature must have a main effect, got {feature!r}, which has none")
        table, edges = self._effects[self.terms.index((name,))].by_code(), self._subject.model.edges
        known = edges.features.categories[j]
        if known is None:
            return inside_bins(edges, j), table[1:]
        values = np.array(known.values, object if "strings" in known.kinds else None)
        return values, table[np.array(known.codes)]


@moves_arrays
def components(model: Any, X: Any, *, sample_weight: Any = None) -> Components:
    """Take a model of shallow trees apart into main effects, effects of pairs, and so on (functional ANOVA).

    Each leaf is a function of the features on its path alone: of at most J - 1 in a tree of J leaves (ESL 10.11), of at
    most d at depth d. So trees of depth 1 are an additive model, and trees of depth 2 one with pairs. What a pair holds
    that one feature alone can say is moved to that feature's main effect, what three hold to their pairs, for which the
    weights are the rows': the parts are then the only ones with means of zero.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        Whose trees are shallow, or split on few features.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows by whose distribution means are taken.
    sample_weight : array-like [n], optional
        Their weights.

    Returns
    -------
    Components
        `.intercept`, `.terms`, `.tables`, `.variance`, and methods `contributions` and `curve`.

    Raises
    ------
    ValueError
        If there are more than 4,096 components, or more than a million cells in their tables; if X does not fit.

    References
    ----------
    Hooker (2007), Generalized functional ANOVA diagnostics. Lengerich et al. (2020), Purifying interaction effects with
    the functional ANOVA, algorithm 1.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(200, 3))
    >>> estimator = jboost.JBoostRegressor(n_estimators=20, max_depth=2).fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    >>> parts = jboost.explain.components(estimator, X)
    >>> total = parts.intercept + parts.contributions(X).sum(axis=1)
    >>> bool(np.allclose(total, estimator.predict(X), rtol=1e-4))
    True
    """
    subject = Subject.of(model)
    if is_traced(subject.model, X, sample_weight):
        raise TypeError("model, X and sample_weight must be concrete, got a traced array")
    bins = np.asarray(subject.read(X))
    weight = read_weight(sample_weight, bins.shape[1])[0]
    effects = _effects(subject.model)
    intercept = np.asarray(subject.model.base, np.float64) + _purify(effects, bins, weight)
    variance = [effect.mean_square(bins[list(path)], weight) for path, effect in effects.items()]
    variance = np.stack(variance) if variance else np.zeros((0, subject.model.n_outputs))
    found = tuple(effects.values())
    if subject.model.scalar_output:
        intercept, variance = intercept[0], variance[:, 0]
        found = tuple(dataclasses.replace(effect, table=effect.table[..., 0]) for effect in found)
    names = subject.names()
    terms = tuple(tuple(names[j] for j in path) for path in effects)
    return Components(intercept, terms, variance, found, subject)


def _effects(model: Ensemble) -> Effects:
    """Sum the leaves by the features on their paths, and make room for the means of all their subsets."""
    per_round = model.n_outputs if model.trees.feature.ndim == 3 else 1
    of_leaves = leaf_paths(model)
    used = rounds_with(model, range(model.edges.n_features))
    paths = set(itertools.chain.from_iterable(of_leaves))
    _with_subsets(map(sorted, paths))
    rounds = {path: used[:, sorted(path)].all(axis=1) for path in paths}
    parts = {path: take_rounds(model, rounds[path], base=False) for path in paths}
    grids = {path: [_places(parts[path], j) for j in sorted(path)] for path in paths}
    _check_size(grids)
    own: Effects = {}
    for path in paths:
        is_mine = np.array([[leaf == path for leaf in of_tree] for of_tree in of_leaves])
        is_mine = is_mine.reshape(-1, per_round, is_mine.shape[-1])[rounds[path]].reshape(
            -1, is_mine.shape[-1]
        )
        effect = _effect(parts[path], is_mine, sorted(path), grids[path])
        if effect.table.any():
            own[tuple(sorted(path))] = effect
    every = _with_subsets(own)
    return {path: own[path] if path in own else _nothing(model, path) for path in sorted(every, key=_order)}


def _order(path: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return len(path), path


def _with_subsets(paths: Iterable[Collection[int]]) -> set[tuple[int, ...]]:
    """Add the subsets of each path; raise where they are too many."""
    every: set[tuple[int, ...]] = {()}
    for path in paths:
        for order in range(1, len(path) + 1):
            every.update(itertools.combinations(path, order))
        if len(every) > MOST_COMPONENTS + 1:
            raise ValueError(
                f"model must have at most {MOST_COMPONENTS} components, got more: a path of {len(path)} features alone "
                f"has {2 ** len(path) - 1}; shallower trees have fewer"
            )
    return every


def _nothing(model: Ensemble, path: tuple[int, ...]) -> Effect:
    places = tuple(np.zeros(_n_codes(model, j), np.int64) for j in path)
    return Effect(np.zeros((*[1] * len(path), model.n_outputs)), places)


def _check_size(grids: dict[Path, Grid]) -> None:
    sizes = [float(np.prod([first.size for first, _ in grid])) for grid in grids.values()]
    if sum(sizes) > MOST_CELLS:
        raise ValueError(
            f"model must have components of at most {MOST_CELLS} cells in all, got {sum(sizes):.0f}, "
            f"{max(sizes):.0f} of them in one; trees of fewer levels, rounds or bins have fewer"
        )


def _effect(model: Ensemble, is_mine: np.ndarray, features: list[int], grid: Grid) -> Effect:
    """Return the sum of these leaves at every code of the features of their path, as far as splits tell them apart."""
    shape = tuple(first.size for first, _ in grid)
    n_points = int(np.prod(shape))
    padded = 4 ** max(3, -(-(n_points - 1).bit_length() // 2))  # few sizes, as each is compiled
    points = np.zeros((model.edges.n_features, padded), model.edges.code_dtype)
    for j, codes in zip(features, np.meshgrid(*(first for first, _ in grid), indexing="ij"), strict=True):
        points[j, :n_points] = codes.ravel()
    forest = Forest.of(model)
    mask = np.zeros(forest.value.shape[:2], forest.value.dtype)
    mask[: len(is_mine)] = is_mine
    found = forest.sum_at(np.zeros_like(forest.is_split), points, mask)[:n_points]
    return Effect(np.array(found, np.float64).reshape(*shape, -1), tuple(place for _, place in grid))


def _places(model: Ensemble, feature: int) -> tuple[np.ndarray, np.ndarray]:
    """Give the codes of a feature between the same two splits one place; return a code for each, and the places."""
    codes = np.arange(_n_codes(model, feature))
    known = model.edges.features.categories[feature]
    if known is not None and not known.is_statistic:
        return codes, codes
    mine = (np.asarray(model.trees.feature) == feature) & np.asarray(is_split(model))
    below = np.searchsorted(np.unique(np.asarray(model.trees.threshold)[mine]), codes)
    below[0] = -1  # a missing value goes its own way
    first, place = np.unique(below, return_index=True, return_inverse=True)[1:]
    return first, place


def _n_codes(model: Ensemble, feature: int) -> int:
    known = model.edges.features.categories[feature]
    if known is not None and not known.is_statistic:
        return max(known.codes, default=0) + 1
    return len(inside_bins(model.edges, feature)) + 1


def _purify(effects: Effects, bins: np.ndarray, weight: np.ndarray) -> Float[np.ndarray, " k"]:
    """Move the means of each effect to those of fewer features, and in the end to the intercept, which is returned."""
    for path in sorted(effects, key=_order, reverse=True):
        if path:
            effects[path], means = purified(effects[path], bins[list(path)], weight)
            for j, mean in zip(path, means, strict=True):
                rest = tuple(one for one in path if one != j)
                effects[rest] = added(effects[rest], mean)
    return effects.pop(()).table
