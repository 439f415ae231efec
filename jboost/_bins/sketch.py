"""Weighted quantiles of a stream within a rank error: the sketch of Chen and Guestrin (2016), appendix A."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from jboost._bins.quantiles import distinct_values, quantile_cuts, separators
from jboost._runtime.arguments import check_weight

ZETA = 2.6123753486854883  # sum of i^-1.5 over i = 1, 2, ...


class Summary(NamedTuple):
    """Some of the values of a set, in order, with what is known of the weight below and up to each.

    The weight below a value is at least `below`, that up to it at most `up_to`, and its own at least `weight`. The
    error of a summary is the largest `up_to - below - weight`, at its values or between two of them.
    """

    value: Float[np.ndarray, " m"]
    below: Float[np.ndarray, " m"]
    up_to: Float[np.ndarray, " m"]
    weight: Float[np.ndarray, " m"]

    @property
    def total(self) -> float:
        """The weight of the whole set."""
        return float(self.up_to[-1]) if self.value.size else 0.0


def summary_of(values: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"] | None) -> Summary:
    """Summarise values without an error; NaN is left out."""
    value, mass = distinct_values(values, weight)
    up_to = np.cumsum(mass)
    return Summary(value.astype(np.float64), up_to - mass, up_to, mass)


def merge(one: Summary, other: Summary) -> Summary:
    """Summarise the union of two sets; the errors add up, so relative to the weight none grows (theorem A.1)."""
    value = np.union1d(one.value, other.value)
    parts = zip(_at(one, value), _at(other, value), strict=True)
    return Summary(value, *(a + b for a, b in parts))


def _at(summary: Summary, value: Float[np.ndarray, " m"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what is known of the weight below, up to and at each value (equations 13 to 15)."""
    last = summary.value.size - 1
    if last < 0:
        nothing = np.zeros(value.size)
        return nothing, nothing, nothing
    place = np.searchsorted(summary.value, value)
    here = np.minimum(place, last)
    is_known = summary.value[here] == value
    before = np.maximum(place - 1, 0)
    below = np.where(place > 0, summary.below[before] + summary.weight[before], 0.0)
    up_to = np.where(place <= last, summary.up_to[here] - summary.weight[here], summary.total)
    up_to = np.where(place > 0, up_to, 0.0)  # below the least value there is nothing
    return (
        np.where(is_known, summary.below[here], below),
        np.where(is_known, summary.up_to[here], up_to),
        np.where(is_known, summary.weight[here], 0.0),
    )


def prune(summary: Summary, size: int) -> Summary:
    """Keep at most `size + 1` of the values, which adds at most 1 / size of the weight to the error (theorem A.2)."""
    if summary.value.size <= size + 1:
        return summary
    kept = np.unique(query(summary, summary.total * (np.arange(size + 1) / size)))
    return Summary(*(part[kept] for part in summary))


def query(summary: Summary, rank: Float[np.ndarray, " q"]) -> Int[np.ndarray, " q"]:
    """Find the value whose rank is nearest to each of these, by what is known (algorithm A.1)."""
    middle = (summary.below + summary.up_to) / 2
    last = middle.size - 1
    left = np.clip(np.searchsorted(middle, rank, side="right") - 1, 0, last)
    right = np.minimum(left + 1, last)
    ends = summary.below[left] + summary.weight[left] + summary.up_to[right] - summary.weight[right]
    return np.where((rank < middle[0]) | (2 * rank < ends), left, right)


class QuantileSketch:
    """Weighted quantiles of a stream of numbers, within a rank error, in little memory.

    Numbers come in chunks, with weights; sketches of parts of a stream can be merged, and those merged again. The error
    is guaranteed however many chunks there are, in whatever order, and however they were merged.

    Parameters
    ----------
    eps : float
        The most by which the rank of a quantile may be wrong, as a share of the whole weight, in (0, 1). Some
        `log(chunks)**3 / eps` numbers are kept at most.

    Raises
    ------
    TypeError, ValueError
        If `eps` is no number in (0, 1).

    Notes
    -----
    Each chunk becomes a summary. Two of one level are merged, which adds no error; what has become too large is pruned
    to one of the next level, as digits are carried. The pruning to level i may add (i + 1)^-1.5 / zeta(1.5) of eps,
    which for all levels adds up to eps.

    References
    ----------
    Chen and Guestrin (2016), XGBoost: a scalable tree boosting system, section 3.3 and appendix A. KDD.
    Greenwald and Khanna (2001), Space-efficient online computation of quantile summaries. SIGMOD.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> sketch = jboost.QuantileSketch(eps=0.01)
    >>> for start in range(0, 10_000, 1000):
    ...     _ = sketch.update(np.arange(start, start + 1000.0))
    >>> bool(abs(sketch.quantile(0.25) - 2500) <= 100)
    True
    """

    def __init__(self, eps: float) -> None:
        self.eps = check_eps(eps)
        self._levels: list[Summary | None] = []

    def __repr__(self) -> str:
        """Say how much it has seen, and how much it keeps."""
        return f"QuantileSketch(eps={self.eps:g}, weight={self.weight:g}, size={self.size})"

    @property
    def weight(self) -> float:
        """The weight of all numbers so far."""
        return math.fsum(level.total for level in self._levels if level is not None)

    @property
    def size(self) -> int:
        """How many numbers are kept."""
        return sum(level.value.size for level in self._levels if level is not None)

    def update(self, values: Any, weight: Any = None) -> Self:
        """Take more numbers.

        Parameters
        ----------
        values : array_like [n]
            Numbers; NaN is left out, infinities are the extreme values.
        weight : array_like [n], optional
            Their weights, such as second derivatives; a weight of 0 leaves a number out.

        Returns
        -------
        QuantileSketch
            Itself.

        Raises
        ------
        TypeError, ValueError
            If values are no vector of real numbers; if weights are negative, not finite or not one for each.
        """
        column = np.asarray(values)
        if column.dtype.kind not in "biuf":
            raise TypeError(f"values must be real numbers, got dtype {column.dtype}")
        if column.ndim != 1:
            raise ValueError(f"values must be an array [n], got shape {column.shape}")
        column = column.astype(np.float64)
        if weight is not None:
            given = np.asarray(weight)
            if given.shape == column.shape and not given.any():  # of none, or of none that counts
                return self
            weight = check_weight(weight, column.size, "weight")
            column, weight = column[weight > 0], weight[weight > 0]
        summary = summary_of(column, weight)
        if summary.value.size:
            self._carry(prune(summary, self._size_of(0)), 0)
        return self

    def merge(self, other: QuantileSketch) -> Self:
        """Take in all that another sketch of the same `eps` has seen.

        Parameters
        ----------
        other : QuantileSketch
            It stays as it is.

        Returns
        -------
        QuantileSketch
            Itself.

        Raises
        ------
        TypeError, ValueError
            If it is no sketch, or one of another eps, whose error would not be known.
        """
        if not isinstance(other, QuantileSketch):
            raise TypeError(f"other must be a QuantileSketch, got {type(other).__name__}")
        if other.eps != self.eps:
            raise ValueError(f"other must have the same eps of {self.eps:g}, got {other.eps:g}")
        for level, summary in enumerate(list(other._levels)):
            if summary is not None:
                self._carry(summary, level)
        return self

    def quantile(self, q: Any) -> Any:
        """Return numbers that were seen, whose ranks are within `eps` of a share of the weight.

        Parameters
        ----------
        q : float or array_like [...]
            Shares, 0 to 1.

        Returns
        -------
        float or float64 [...]
            The quantiles.

        Raises
        ------
        ValueError
            If a share is not from 0 to 1, or nothing was seen.
        """
        shares = np.asarray(q, np.float64)
        if not ((shares >= 0) & (shares <= 1)).all():
            raise ValueError(f"q must be from 0 to 1, got {q!r}")
        summary = self.summary()
        if not summary.value.size:
            raise ValueError("the sketch must have seen a number to have quantiles, got none")
        found = summary.value[query(summary, shares.ravel() * summary.total)].reshape(shares.shape)
        return float(found) if found.ndim == 0 else found

    def edges(self, max_bins: int) -> Float[np.ndarray, " e"]:
        """Return increasing numbers that cut the stream into at most `max_bins` bins, as `bin_features` does.

        Parameters
        ----------
        max_bins : int
            The most bins, at least 2. Up to as many distinct numbers have a bin each if the sketch still has them all.

        Returns
        -------
        float64 [e]
            Edges between numbers that were kept.
        """
        summary = self.summary()
        value = summary.value
        cuts = np.arange(1, value.size)
        if value.size > max_bins:
            start = (summary.below + summary.up_to - summary.weight) / 2  # about the weight below each
            cuts = quantile_cuts(np.diff(start, append=summary.total), max_bins)
        return separators(value[cuts - 1], value[cuts])

    def summary(self) -> Summary:
        """Return all that is known, as one summary."""
        found = summary_of(np.zeros(0), None)
        for level in self._levels:
            found = found if level is None else merge(found, level)
        return found

    def _carry(self, summary: Summary, level: int) -> None:
        """Put a summary in its place; where one is already, both become one, of the next level if it is too large."""
        self._levels += [None] * (level + 1 - len(self._levels))
        there = self._levels[level]
        if there is None:
            self._levels[level] = summary
            return
        both = merge(there, summary)
        if both.value.size <= self._size_of(level):
            self._levels[level] = both
            return
        self._levels[level] = None
        self._carry(prune(both, self._size_of(level + 1)), level + 1)

    def _size_of(self, level: int) -> int:
        return math.ceil(ZETA * (level + 1) ** 1.5 / self.eps)


def check_eps(eps: Any) -> float:
    """Return a rank error as a float; raise unless it is in (0, 1)."""
    if isinstance(eps, bool | np.bool_) or not isinstance(eps, Real):
        raise TypeError(f"eps must be a number, got {eps!r}")
    if not 0 < float(eps) < 1:
        raise ValueError(f"eps must be in (0, 1), got {eps}")
    return float(eps)
