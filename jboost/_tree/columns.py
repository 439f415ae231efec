"""What a tree grows from: columns, and the derivatives of the loss."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Integer, UInt

from jboost._runtime.typing import Layout

Bins = UInt[Array, "f n"]
Codes = Integer[Array, "f n"]  # of rows that are only routed: integers of any type
Grouped = UInt[Array, "groups n width"]  # columns side by side for each row, as the C++ library reads them


class Columns(NamedTuple):
    """What a tree may use of the columns."""

    bins: Bins | Grouped
    allowed: Bool[Array, "d f"]  # drawn for each level
    layout: Layout


class GradientPairs(NamedTuple):
    """First and second derivatives of the loss by the scores, times the weight of the row."""

    g: Float[Array, "n k"]
    h: Float[Array, "n k"]
    cross: Float[Array, "n c"] | None = (
        None  # by two outputs, pairs 12, 13, ..., 23, ..., where splits use them
    )
