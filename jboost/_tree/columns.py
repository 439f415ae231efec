"""The columns of a tree."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Bool, Int

from jboost._typing import Layout

Bins = Int[Array, "f n"]


class Columns(NamedTuple):
    """What a tree may use of the columns."""

    bins: Bins
    allowed: Bool[Array, "d f"]  # drawn for each level
    layout: Layout
    grouped: Int[Array, "groups n width"] | None = None  # the bins again, as the C++ library reads them
