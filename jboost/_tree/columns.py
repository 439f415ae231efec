"""What a tree grows from: columns, and the derivatives of the loss."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Bool, Float, Int32, Integer, UInt, UInt8

from jboost._runtime.typing import Layout

Bins = UInt[Array, "f n"]
Codes = Integer[Array, "f n"]  # of rows that are only routed: integers of any type
Joint = UInt[Array, "m n"]  # joint codes of features in bundles
Grouped = UInt[Array, "groups n width"]  # columns side by side for each row, as the C++ library reads them


class Bundling(NamedTuple):
    """What the joint codes of bundles stand for: see `jboost._bins.Bundles`."""

    column: Int32[Array, " f"]
    code: UInt8[Array, "f 256"]
    n_joint: Int32[Array, " places"]  # of the columns, and 0 for what fills up the last group
    order: UInt8[Array, "f 256"]  # joint codes by rising code of the feature, those of its usual one last
    n_unusual: Int32[Array, " f"]  # joint codes before those


class Columns(NamedTuple):
    """What a tree may use of the columns."""

    bins: Bins | Joint | Grouped
    allowed: Bool[Array, "d f"]  # drawn for each level
    layout: Layout
    bundling: Bundling | None = None  # where `bins` are joint codes


class GradientPairs(NamedTuple):
    """First and second derivatives of the loss by the scores, times the weight of the row."""

    g: Float[Array, "n k"]
    h: Float[Array, "n k"]
    cross: Float[Array, "n c"] | None = (
        None  # by two outputs, pairs 12, 13, ..., 23, ..., where splits use them
    )
