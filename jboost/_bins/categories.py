"""Categorical features: the record of their values and codes, how it is found, and how it is applied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int, UInt32

from jboost._bins.columns import Factor
from jboost._bins.device import host_words
from jboost._runtime.typing import MISSING_BIN

Category = str | bool | int | float


@dataclass(frozen=True, eq=False)
class Categories:
    """The known values of a categorical feature, in order, and the bin code of each.

    Codes follow the order of the values (numbers before strings), so they depend neither on the order of the
    rows nor on pandas' own codes; or they are the bins of a target statistic, which a split cuts as it does numbers.
    The hash is kept, because JAX takes it at every call of a compiled function.
    """

    values: tuple[Category, ...]
    codes: tuple[int, ...]
    unknown: int | None = None  # the code of other values where codes are those of a statistic

    @property
    def is_statistic(self) -> bool:
        """Whether the order of the codes means something."""
        return self.unknown is not None

    @property
    def code_of_unknown(self) -> int:
        """The code of a value that is not known: where codes have no order it counts as missing."""
        return MISSING_BIN if self.unknown is None else self.unknown

    @cached_property
    def code_of(self) -> dict[Category, int]:
        """Look a value up; 1, 1.0 and True are the same category."""
        return dict(zip(self.values, self.codes, strict=True))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of values known: "strings", "numbers", both or none."""
        return frozenset(_kind(value) for value in self.values)

    @cached_property
    def _hash(self) -> int:
        return hash((self.values, self.codes, self.unknown))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Categories) or self._hash != other._hash:
            return False
        same_types = list(map(type, self.values)) == list(map(type, other.values))
        mine, others = ((one.values, one.codes, one.unknown) for one in (self, other))
        return same_types and mine == others

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is cached behind: the hash of a string changes by process."""
        return {"values": self.values, "codes": self.codes, "unknown": self.unknown}


def find_categories(
    values: list[Category],
    index: Int[np.ndarray, " m"],
    weight: Float[np.ndarray, " m"] | None,
    max_bins: int,
) -> Categories:
    """Give each category that occurs a code; above max_bins of them, the rarest share the last code.

    `index` says which value each row has (-1: missing). Of values that are equal, such as 1 and True, one stays.
    """
    seen = index >= 0
    mass = np.bincount(index[seen], None if weight is None else weight[seen], len(values))
    present = [(value, m) for value, m in zip(values, mass.tolist(), strict=True) if m > 0]
    present.sort(key=lambda pair: (isinstance(pair[0], str), pair[0], type(pair[0]).__name__))
    mass_of: dict[Category, float] = {}
    for value, m in present:
        mass_of[value] = mass_of.get(value, 0.0) + m
    codes = np.arange(1, len(mass_of) + 1)
    if len(mass_of) > max_bins:
        rarest = np.argsort([-m for m in mass_of.values()], kind="stable")[max_bins - 1 :]
        alone = np.ones(len(mass_of), dtype=bool)
        alone[rarest] = False
        codes = np.where(alone, np.cumsum(alone), max_bins)
    return Categories(tuple(mass_of), tuple(codes.tolist()))


def category_codes(known: Categories, factor: Factor, label: str) -> Int[np.ndarray, " n"]:
    """Return the code of each row's value: 0 for a missing one, `code_of_unknown` for one that is not known."""
    for value in factor.values if known.kinds else ():
        if _kind(value) not in known.kinds:  # "1" where 1 was learned is a mistake, not a new category
            wanted = " or ".join(known.kinds)
            raise TypeError(
                f"X must hold {wanted} as categories in {label}, as when the edges were found, got {value!r}"
            )
    codes = [known.code_of.get(value, known.code_of_unknown) for value in factor.values]
    return np.array([*codes, MISSING_BIN], dtype=np.int32)[factor.index]


def category_numbers(known: Categories, factor: Factor) -> Int[np.ndarray, " n"]:
    """Return the place of each row's value among those that are known, and -1 for a missing or an unknown one."""
    place = {value: i for i, value in enumerate(known.values)}
    return np.array([*(place.get(value, -1) for value in factor.values), -1])[factor.index]


def category_tables(
    features: list[Categories], n_words: int
) -> tuple[UInt32[np.ndarray, "f m w"], Int[np.ndarray, "f m"]]:
    """Return the numeric categories that a float of n_words holds exactly, as words, and their codes."""
    dtype = np.float32 if n_words == 1 else np.float64
    tables: list[dict[float, int]] = []
    for known in features:
        if "strings" in known.kinds:
            raise TypeError(f"X must be concrete, as {known.values[-1]!r} is a category; got a traced array")
        tables.append({float(v): c for v, c in known.code_of.items() if _is_exact(v, dtype)})
    longest = max(1, *map(len, tables))
    values = np.full((len(tables), longest), np.inf, dtype)
    codes = np.zeros((len(tables), longest), np.int32)
    for row, table in enumerate(tables):
        values[row, : len(table)] = list(table)
        codes[row, : len(table)] = list(table.values())
    return host_words(values), codes


def _is_exact(value: Category, dtype: type[np.floating]) -> bool:
    try:
        with np.errstate(over="ignore"):
            return float(dtype(value)) == value
    except OverflowError:  # an int beyond every float
        return False


def _kind(value: Category) -> str:
    return "strings" if isinstance(value, str) else "numbers"
