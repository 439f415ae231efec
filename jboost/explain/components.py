"""Functional ANOVA: a model of shallow trees as a sum of functions of one feature, and of two."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.explain.grids import inside_bins
from jboost.explain.paths import Path, leaf_paths
from jboost.explain.reach import Forest
from jboost.explain.subject import Feature, Subject, read_weight, rounds_with, take_rounds

MOST_FEATURES = 2  # of a component: a table of three would hold 16 million numbers
MOST_SWEEPS = 10_000
SMALLEST_MEAN = 1e-12  # of a row or a column, in the spread of the table

Table = Float[np.ndarray, "..."]


@dataclasses.dataclass(frozen=True, eq=False)
class Components:
    """A model as an intercept, main effects and effects of pairs.

    Attributes
    ----------
    intercept : float64, or [k] for k outputs
        The weighted mean of the score.
    terms : tuple of tuples
        The features of each component, by name, or by number where there are none: main effects first.
    tables : tuple of float64 [b], [b b], with [... k] for k outputs
        What each component adds to the score, by bin code; code 0 is a missing or unseen value. The weighted mean over
        the rows is 0: of a main effect, and of a pair for each value of either feature, those between the same two
        splits of the pair being one.
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
    tables: tuple[Table, ...]
    variance: Float[np.ndarray, "c *k"]
    _subject: Subject

    def __repr__(self) -> str:
        """Count the components."""
        n_main = sum(len(term) == 1 for term in self.terms)
        return f"Components({n_main} main effects, {len(self.terms) - n_main} pairs)"

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
        found = [table[tuple(bins[list(place)])] for table, place in zip(self.tables, places, strict=True)]
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
                f"feature must be one feature, got {feature!r}; what a pair adds is in tables, in the order of terms"
            )
        (j,) = places
        name = self._subject.names()[j]
        if (name,) not in self.terms:
            raise ValueError(f"feature must have a main effect, got {feature!r}, which has none")
        table, edges = self.tables[self.terms.index((name,))], self._subject.model.edges
        known = edges.features.categories[j]
        if known is None:
            return inside_bins(edges, j), table[1:]
        values = np.array(known.values, object if "strings" in known.kinds else None)
        return values, table[np.array(known.codes)]


@moves_arrays
def components(model: Any, X: Any, *, sample_weight: Any = None) -> Components:
    """Take a model of shallow trees apart into main effects and effects of pairs (functional ANOVA).

    Each leaf is a function of the features on its path alone: of at most J - 1 in a tree of J leaves (ESL 10.11), of at
    most d at depth d. So trees of depth 1 are an additive model, and trees of depth 2 one with pairs. What a pair holds
    that one feature alone can say is moved to that feature's main effect, for which the weights are the rows':
    the parts are then the only ones with means of zero.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        Whose paths split on two features at most; of any depth.
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
        If a path of the model splits on three features or more; if X does not fit.

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
    tables = _tables(subject.model)
    tables = {path: tables[path] for path in sorted(tables, key=lambda path: (len(path), path))}
    intercept = np.asarray(subject.model.base, np.float64) + tables.pop((), 0.0)
    masses = {path: _mass(subject.model, bins, weight, path) for path in tables}
    intercept = intercept + _purify(tables, masses, subject.model)
    variance = [_mean(np.square(table), masses[path]) for path, table in tables.items()]
    variance = np.stack(variance) if variance else np.zeros((0, subject.model.n_outputs))
    found = tuple(tables.values())
    if subject.model.scalar_output:
        intercept, variance = intercept[0], variance[:, 0]
        found = tuple(table[..., 0] for table in found)
    names = subject.names()
    return Components(
        intercept, tuple(tuple(names[j] for j in path) for path in tables), found, variance, subject
    )


def _tables(model: Ensemble) -> dict[tuple[int, ...], Table]:
    """Sum the leaves by the features on their paths: for each set of them a table by bin codes [..., k]."""
    per_round = model.n_outputs if model.trees.feature.ndim == 3 else 1
    of_leaves = leaf_paths(model)
    every = set(itertools.chain.from_iterable(of_leaves))
    largest = max(map(len, every), default=0)
    if largest > MOST_FEATURES:
        raise ValueError(
            f"model must have paths of at most {MOST_FEATURES} features, as trees of depth {MOST_FEATURES} do, got one "
            f"of {largest}"
        )
    used = rounds_with(model, range(model.edges.n_features))
    tables: dict[tuple[int, ...], Table] = {}
    for path in every:
        rounds = used[:, sorted(path)].all(axis=1)
        is_mine = np.array([[leaf == path for leaf in of_tree] for of_tree in of_leaves])
        is_mine = is_mine.reshape(-1, per_round, is_mine.shape[-1])[rounds].reshape(-1, is_mine.shape[-1])
        table = _table(take_rounds(model, rounds, base=False), is_mine, path)
        if path and not table.any():
            continue
        tables[tuple(sorted(path))] = table
    for path in [path for path in tables if len(path) == MOST_FEATURES]:
        for j in path:  # to take the means of the pair
            tables.setdefault((j,), np.zeros((_n_codes(model, j), model.n_outputs)))
    return tables


def _table(model: Ensemble, is_mine: np.ndarray, path: Path) -> Table:
    """Return the sum of these leaves at every code of the features of their path."""
    features = sorted(path)
    shape = tuple(_n_codes(model, j) for j in features)
    points = np.zeros((model.edges.n_features, int(np.prod(shape))), model.edges.code_dtype)
    if features:
        points[features] = np.indices(shape).reshape(len(features), -1)
    forest = Forest.of(model)
    mask = np.zeros(forest.value.shape[:2], forest.value.dtype)
    mask[: len(is_mine)] = is_mine
    found = forest.sum_at(np.zeros_like(forest.is_split), points, mask)
    return np.array(found, np.float64).reshape(*shape, -1)


def _n_codes(model: Ensemble, feature: int) -> int:
    known = model.edges.features.categories[feature]
    if known is not None and not known.is_statistic:
        return max(known.codes, default=0) + 1
    return len(inside_bins(model.edges, feature)) + 1


def _mass(model: Ensemble, bins: np.ndarray, weight: np.ndarray, path: tuple[int, ...]) -> Table:
    """Return the share of the rows with each code, or each two."""
    shape = tuple(_n_codes(model, j) for j in path)
    place = np.ravel_multi_index(tuple(bins[j].astype(np.int64) for j in path), shape)
    return np.bincount(place, weight, int(np.prod(shape))).reshape(shape)


def _purify(
    tables: dict[tuple[int, ...], Table], masses: dict[tuple[int, ...], Table], model: Ensemble
) -> Float[np.ndarray, " k"]:
    """Move the means of pairs to main effects, and theirs to the intercept, which is returned."""
    for path in [path for path in tables if len(path) == MOST_FEATURES]:
        tables[path], means = _purified(tables[path], masses[path])
        for j, mean in zip(path, means, strict=True):
            tables[(j,)] += mean
    total = np.zeros(model.n_outputs)
    for path in [path for path in tables if len(path) == 1]:
        mean = _mean(tables[path], masses[path])
        tables[path] -= mean[None]
        total += mean
    return total


def _purified(table: Table, mass: Table) -> tuple[Table, list[Table]]:
    """Return the effect of a pair without what either feature alone can say, and that.

    Codes that the pair does not tell apart are one, so that means are over as many rows as there are.
    """
    places = [
        np.unique(_slices(table, axis), axis=0, return_index=True, return_inverse=True)[1:] for axis in (0, 1)
    ]
    (first_a, a), (first_b, b) = [(first, place.ravel()) for first, place in places]
    small, weight = table[np.ix_(first_a, first_b)], np.zeros((first_a.size, first_b.size))
    np.add.at(weight, (a[:, None], b[None]), mass)
    taken = [np.zeros((size, table.shape[-1])) for size in weight.shape]
    spread = np.abs(small).max()
    for _ in range(MOST_SWEEPS):
        largest = 0.0
        for axis in (0, 1):
            mean = _means(small, weight, 1 - axis)
            small = small - np.expand_dims(mean, 1 - axis)
            taken[axis] += mean
            largest = max(largest, np.abs(mean).max())
        if largest <= SMALLEST_MEAN * spread:
            break
    return small[np.ix_(a, b)], [taken[0][a], taken[1][b]]


def _slices(table: Table, axis: int) -> Table:
    return np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)


def _means(table: Table, mass: Table, axis: int) -> Table:
    """Return the weighted means along an axis of a pair; 0 where no row is."""
    total = mass.sum(axis=axis)
    sums = (table * mass[..., None]).sum(axis=axis)
    return np.divide(sums, total[:, None], out=np.zeros_like(sums), where=total[:, None] > 0)


def _mean(table: Table, mass: Table) -> Float[np.ndarray, " k"]:
    return np.einsum("b,bk->k", mass.ravel(), table.reshape(mass.size, -1))
