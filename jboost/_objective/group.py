"""`GroupLoss`: a loss of the rows that belong together, such as the answers to a query."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._objective.curvature import MAX_EXACT, exact_diagonal, probed_diagonal
from jboost._objective.objective import Objective, register
from jboost._objective.rows import GroupTable, Rows, take_rows

Parts = tuple[Array, ...]


@register
class GroupLoss(Objective):
    """A loss of a group of rows: their order, their spread, or what else one row does not know.

    Give the groups to `fit`: ``fit(loss, data, y, groups=ids)``, and those of validation rows in `valid`. Whole groups
    are padded to few sizes, drawn by `subsample`, and held out together.

    Parameters
    ----------
    function : callable
        ``function(score, y, mask) -> scalar`` of the m rows of ONE group: score [m], or [m k] with k outputs; y [m], or
        a pytree of arrays; mask bool [m], True for the rows that are there. Where it is False, score and y are those of
        another row of the group, and must not count. No weight: a row's derivatives are multiplied by its weight, and
        the value by the mean weight of the group.
    n_outputs, inverse_link, hessian_floor, leaf, check_target, name, allow_nan, constant
        As in `Loss`.
    hessian : {"diagonal", "first_order"}, default "diagonal"
        "diagonal" takes the second derivative by each score: exactly, one pass for each row of a group, in groups of up
        to 32 rows, and in larger ones an estimate of 16 products with fixed random signs (Hutchinson's).
    curvature : callable or None, default None
        ``curvature(score, y, mask)``, of the shape of the scores, instead of the second derivative.

    References
    ----------
    Burges (2010), "From RankNet to LambdaRank to LambdaMART: An Overview", for such losses. Bekas, Kokiopoulou and
    Saad (2007), "An estimator for the diagonal of a matrix", for the estimate.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, jboost
    >>> def pairwise(score, y, mask):  # the logistic loss of each pair of which one is to be above the other
    ...     pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
    ...     return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))
    >>> X = np.arange(12.0)[:, None]
    >>> loss, ids = jboost.GroupLoss(pairwise), np.arange(12) // 4
    >>> model, _ = jboost.fit(loss, X, np.arange(12) % 4, groups=ids, spec=jboost.Spec(n_estimators=3))
    >>> model.n_trees
    3
    """

    needs_all_rows: ClassVar[bool] = True

    def value(self, score: Float[Array, "n *k"], rows: Rows) -> Float[Array, " n"]:
        """Return each row's share in the loss of its group."""
        return self._by_group(score, rows, lambda *group: (self.function(*group),))[0]

    def value_and_grad(
        self, score: Float[Array, "n *k"], rows: Rows
    ) -> tuple[Float[Array, " n"], Float[Array, "n *k"]]:
        """Return each row's share in the loss of its group, and the derivative of that loss by its score."""
        value, g = self._by_group(score, rows, jax.value_and_grad(self.function))
        return value, g

    def hessian_diagonal(self, score: Float[Array, "n *k"], rows: Rows) -> tuple[Array, Array, Array]:
        """Return value, g and the second derivative by each score."""

        def derivatives(score: Array, y: Any, mask: Array) -> Parts:
            def at(score: Array) -> tuple[Array, Array]:
                return jax.value_and_grad(self.function)(score, y, mask)

            diagonal = exact_diagonal if score.size <= MAX_EXACT else probed_diagonal
            return diagonal(at, score)

        value, g, h = self._by_group(score, rows, derivatives)
        return value, g, h

    def curvature_of(self, score: Float[Array, "n *k"], rows: Rows) -> Array:
        """Return what the loss brings instead of the second derivative."""

        def both(score: Array, y: Any, mask: Array) -> Parts:
            return jnp.zeros((), score.dtype), self.curvature(score, y, mask)  # pyright: ignore[reportOptionalCall]

        return self._by_group(score, rows, both)[1]

    def joined(self, values: Float[Array, " n"], rows: Rows) -> Float[Array, " n"]:
        """Sum over the rows of each group."""
        assert rows.groups is not None  # `_tables` has seen them
        number = rows.groups.number
        return jnp.zeros_like(values).at[number].add(jnp.where(rows.weight > 0, values, 0))[number]

    def _tables(self, rows: Rows) -> tuple[GroupTable, ...]:
        if rows.groups is None:
            raise ValueError("groups must be given for a GroupLoss, to fit and in valid")
        return rows.groups.tables

    def _by_group(self, score: Array, rows: Rows, of_group: Callable[..., Parts]) -> Parts:
        """Call a function (score, y, mask) -> (value, parts like the score) for each group; return parts by row."""
        found: Parts | None = None
        for table in self._tables(rows):
            some = _of_table(score, rows, table, of_group)
            found = some if found is None else jax.tree.map(jnp.add, found, some)
        assert found is not None  # there are rows, so there are groups
        return found


def _of_table(score: Array, rows: Rows, table: GroupTable, of_group: Callable[..., Parts]) -> Parts:
    mask: Bool[Array, "groups m"] = table.is_row & (rows.weight[table.row] > 0)
    # A group without rows is shown some all the same, and forgotten below: 0 / 0 in it would spoil derivatives.
    shown = mask | ~mask.any(axis=1, keepdims=True)
    value, *parts = jax.vmap(of_group)(score[table.row], take_rows(rows.y, table.row), shown)
    share = value / jnp.maximum(mask.sum(axis=1), 1).astype(value.dtype)
    spread = partial(_to_rows, table.row, mask, score.shape[0])
    return spread(jnp.broadcast_to(share[:, None], mask.shape)), *(spread(part) for part in parts)


def _to_rows(row: Array, mask: Array, n_rows: int, values: Array) -> Array:
    """Put values [groups m ...] in the places of their rows, and 0 elsewhere."""
    values = jnp.where(mask.reshape(*mask.shape, *[1] * (values.ndim - 2)), values, 0)
    return jnp.zeros((n_rows, *values.shape[2:]), values.dtype).at[row].add(values)
