"""How a tree may be kept from growing freely: what its nodes hand down, and what candidates are then worth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int

from jboost._split import Rules, Tree

Carry = Any  # a pytree of arrays, each with an entry for every node of a level


class Growth(NamedTuple):
    """Constraints on growth that a node hands down to its children, such as bounds on values or columns still allowed.

    The functions are part of the compiled program. Without a `Growth` nothing is carried, which costs nothing.

    Attributes
    ----------
    start : function (key) -> carry
        What the root is given; arrays with a leading axis of 1. The key is one for this tree.
    admit : function (carry, allowed bool [f], rules) -> bool [l f]
        The columns on which each of the l nodes may be split, among those drawn for the level. The nodes of a
        symmetric tree share a split: it must be allowed in all of them.
    descend : function (carry, splits, sums int32 [c 2l], rules) -> carry
        What the 2 l children are given, in their order: the left and the right child of each node in turn. `splits` are
        those of the level above, and `sums` the statistics of the children in fixed point.
    weigh : function (carry, gain [l f], left int32 [c l f], right [c l f], columns int32 [f], rules) -> gain [l f]
        What a candidate in each of some columns is worth to each node, given the statistics of both sides; -inf
        forbids it, as a bound on the values of the children may. None: its gain.
    combine : function (gain [l f]) -> gain [f]
        What it is worth to a level whose nodes share a split (symmetric growth). None: the sum of what is above 0.
    """

    start: Callable[[Array], Carry]
    admit: Callable[[Carry, Bool[Array, " f"], Rules], Bool[Array, "l f"]]
    descend: Callable[[Carry, Tree, Int[Array, "c l"], Rules], Carry]
    weigh: Callable[..., Float[Array, "l f"]] | None = None
    combine: Callable[[Float[Array, "l f"]], Float[Array, " f"]] | None = None
