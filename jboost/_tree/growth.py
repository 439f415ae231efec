"""How a tree may be kept from growing freely: what is carried down with its nodes, and what that forbids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Int

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
    """

    start: Callable[[Array], Carry]
    admit: Callable[[Carry, Bool[Array, " f"], Rules], Bool[Array, "l f"]]
    descend: Callable[[Carry, Tree, Int[Array, "c l"], Rules], Carry]
