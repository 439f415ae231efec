"""A function of a few features, by their bin codes: to sum, and to take apart into means and what is left."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Float, Int, Integer

MOST_SWEEPS = 10_000
SMALLEST_MEAN = 1e-12  # in the spread of the table

Table = Float[np.ndarray, "..."]


@dataclasses.dataclass(frozen=True, eq=False)
class Effect:
    """What a component adds to the score; codes that it does not tell apart share a place in its table.

    Attributes
    ----------
    table : float64 [p ...], with [... k] for k outputs
        One axis for each feature.
    places : tuple of int [b]
        Of each feature, the place of each bin code.
    """

    table: Table
    places: tuple[Int[np.ndarray, " _"], ...]

    def at(self, codes: Integer[np.ndarray, "d n"]) -> Float[np.ndarray, "n *k"]:
        """Return what rows with these codes get."""
        return self.table[tuple(place[code] for place, code in zip(self.places, codes, strict=True))]

    def by_code(self) -> Table:
        """Return a table with a place for each code."""
        return self.table[np.ix_(*self.places)]

    def mass(self, codes: Integer[np.ndarray, "d n"], weight: Float[np.ndarray, " n"]) -> Table:
        """Return the share of the rows in each place."""
        shape = self.table.shape[: len(self.places)]
        cell = np.ravel_multi_index(
            tuple(place[code] for place, code in zip(self.places, codes, strict=True)), shape
        )
        return np.bincount(cell, weight, int(np.prod(shape))).reshape(shape)

    def mean_square(
        self, codes: Integer[np.ndarray, "d n"], weight: Float[np.ndarray, " n"]
    ) -> Float[np.ndarray, " k"]:
        """Return the weighted mean of the square, of each output."""
        mass = self.mass(codes, weight)
        return np.einsum("b,bk->k", mass.ravel(), np.square(self.table).reshape(mass.size, -1))


def added(one: Effect, other: Effect) -> Effect:
    """Return the sum of two effects of the same features, with a place for what either tells apart."""
    pairs = [np.stack(both) for both in zip(one.places, other.places, strict=True)]
    apart = [np.unique(pair, axis=1, return_inverse=True) for pair in pairs]
    parts = [
        effect.table[np.ix_(*(pair[side] for pair, _ in apart))] for side, effect in enumerate((one, other))
    ]
    return Effect(parts[0] + parts[1], tuple(place.ravel() for _, place in apart))


def purified(
    effect: Effect, codes: Integer[np.ndarray, "d n"], weight: Float[np.ndarray, " n"]
) -> tuple[Effect, list[Effect]]:
    """Return what is left of an effect without its means over each feature, and these, as effects of the others.

    Codes that the effect does not tell apart are one, so that means are over as many rows as there are.
    """
    small = _merged(effect)
    axes = range(len(small.places))
    left, mass = small.table, small.mass(codes, weight)
    taken = [np.zeros_like(left.take(0, axis)) for axis in axes]
    spread = np.abs(left).max()
    for _ in range(MOST_SWEEPS):
        largest = 0.0
        for axis in reversed(axes):
            mean = _means(left, mass, axis)
            left = left - np.expand_dims(mean, axis)
            taken[axis] += mean
            largest = max(largest, np.abs(mean).max())
        if largest <= SMALLEST_MEAN * spread:
            break
    others = [small.places[:axis] + small.places[axis + 1 :] for axis in axes]
    return Effect(left, small.places), [Effect(*one) for one in zip(taken, others, strict=True)]


def _merged(effect: Effect) -> Effect:
    """Give codes one place where the table says the same of them."""
    table, places = effect.table, []
    for axis, place in enumerate(effect.places):
        slices = np.moveaxis(effect.table, axis, 0).reshape(effect.table.shape[axis], -1)
        _, first, merged = np.unique(slices, axis=0, return_index=True, return_inverse=True)
        table = table.take(first, axis)
        places.append(merged.ravel()[place])
    return Effect(table, tuple(places))


def _means(table: Table, mass: Table, axis: int) -> Table:
    """Return the weighted means along an axis; 0 where no row is."""
    total = mass.sum(axis=axis)[..., None]
    sums = (table * mass[..., None]).sum(axis=axis)
    return np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)
