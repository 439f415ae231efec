"""The leaf rule that shrinks the value of every node towards its parent's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._objective.base_score import best_constant
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows
from jboost._objective.searching import divided
from jboost._runtime.typing import Reduce, as_node
from jboost._split import leaf_value


@as_node
@dataclass(frozen=True)
class PathSmoothing:
    r"""Leaf rule: Newton steps, of which those of few rows follow the nodes above them.

    From the root down, with n rows in a node and its Newton step v* = -T(G) / (H + lambda):

    .. math:: v = \frac{n}{n + s} v^* + \frac{s}{n + s} v_{\text{parent}}

    Parameters
    ----------
    strength : float, default 1.0
        s, the number of rows that the parent counts for; not negative. Rows count by their weights. May be traced.

    Raises
    ------
    TypeError, ValueError
        For another strength, and for a loss with ``hessian="full"``.

    Notes
    -----
    Splits are chosen as without it; LightGBM's ``path_smooth`` enters the gain of a split too. A node that passes all
    its rows on keeps its value, and a leaf without rows has that of its parent.

    References
    ----------
    LightGBM's parameter ``path_smooth``. Buntine (1992), "Learning Classification Trees", for smoothing along the path.

    Examples
    --------
    >>> import dataclasses, jboost
    >>> loss = dataclasses.replace(jboost.losses.logistic, leaf=jboost.PathSmoothing(10.0))
    >>> loss.leaf.strength
    10.0
    """

    strength: Any = 1.0
    needs_all_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if isinstance(self.strength, str):
            raise TypeError(f"strength must be a number of at least 0, got {self.strength!r}")
        if isinstance(self.strength, float | int) and not (0 <= self.strength < float("inf")):
            raise ValueError(f"strength must be finite and at least 0, got {self.strength!r}")

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Sum over the nodes of every level, and shrink from the root down."""
        _check(leaves.loss)
        shape = leaves.score.shape
        weights = jnp.broadcast_to(leaves.weight[:, None, None], (*shape, 1))
        of_leaves = leaves.sum_of_g(), leaves.sum_of_h(), leaves.sum(weights)[..., 0]
        depth = leaves.n_leaves.bit_length() - 1
        value = count = None
        for level in range(depth + 1):
            g, h, n = (part.reshape(2**level, -1, shape[1]).sum(axis=1) for part in of_leaves)
            own = leaf_value(g, h, leaves.hyper)
            if value is None or count is None:
                value, count = own, n
                continue
            parent, rows_of_parent = jnp.repeat(value, 2, axis=0), jnp.repeat(count, 2, axis=0)
            share = divided(n, n + self.strength)
            value = jnp.where(n == rows_of_parent, parent, parent + share * (own - parent))
            count = n
        assert value is not None
        return value

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Minimise the loss over all constants."""
        _check(loss)
        return best_constant(loss, rows, reduce)


def _check(loss: Any) -> None:
    if loss.hessian == "full":
        raise ValueError(
            'hessian must be "diagonal" or "first_order" with leaf=PathSmoothing(...), got "full"'
        )
