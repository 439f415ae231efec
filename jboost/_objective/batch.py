"""`BatchLoss`: a loss of all rows at once."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._objective.curvature import MAX_EXACT, exact_diagonal, probed_diagonal
from jboost._objective.objective import Objective, register
from jboost._objective.rows import Rows, per_row


@register
class BatchLoss(Objective):
    """A loss of all rows at once: a partial likelihood, a penalty on what groups of people are given.

    Parameters
    ----------
    function : callable
        ``function(score, y, weight) -> scalar`` of all n rows: score [n], or [n k] with k outputs; y [n], or a pytree
        of arrays; weight [n]. It should be a weighted sum rather than a mean: its scale decides, with the penalties on
        leaves and `min_child_weight`, how far a step goes. A row of weight 0 must not count.
    n_outputs, inverse_link, hessian_floor, leaf, check_target, name, allow_nan, constant
        As in `Loss`.
    hessian : {"diagonal", "first_order"}, default "diagonal"
        "diagonal" takes the second derivative by each score: exactly for up to 32 scores, beyond by an estimate of 16
        products with fixed random signs (Hutchinson's), which is exact where rows do not depend on each other.
        "first_order" takes h = weight.
    curvature : callable or None, default None
        ``curvature(score, y, weight)``, of the shape of the scores, instead of the second derivative; weights included.

    Notes
    -----
    The loss in the history is the function's value over the sum of the weights. No rows are added to such a fit, so
    another number of rows compiles anew.

    References
    ----------
    Bekas, Kokiopoulou and Saad (2007), "An estimator for the diagonal of a matrix".

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, jboost
    >>> def spread(score, y, weight):  # squares, and the square of the mean score
    ...     return jnp.sum(weight * (score - y) ** 2) / 2 + jnp.sum(weight * score) ** 2 / jnp.sum(weight)
    >>> X = np.arange(12.0)[:, None]
    >>> model, _ = jboost.fit(jboost.BatchLoss(spread), X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> model.n_trees
    3
    """

    needs_all_rows: ClassVar[bool] = True
    pads: ClassVar[bool] = False

    def value(self, score: Float[Array, "n *k"], rows: Rows) -> Float[Array, " n"]:
        """Return what each row's unit of weight has of the loss."""
        return _shared(self.function(score, rows.y, rows.weight), rows)

    def value_and_grad(
        self, score: Float[Array, "n *k"], rows: Rows
    ) -> tuple[Float[Array, " n"], Float[Array, "n *k"]]:
        """Return what each row's unit of weight has of the loss, and of the derivative by its score."""
        value, g = self._at(score, rows)
        return _shared(value, rows), _of_unit(g, rows)

    def hessian_diagonal(self, score: Float[Array, "n *k"], rows: Rows) -> tuple[Array, Array, Array]:
        """Return value, g and the second derivative by each score, of a unit of weight."""
        diagonal = exact_diagonal if score.size <= MAX_EXACT else probed_diagonal
        value, g, h = diagonal(lambda s: self._at(s, rows), score)
        return _shared(value, rows), _of_unit(g, rows), _of_unit(h, rows)

    def curvature_of(self, score: Float[Array, "n *k"], rows: Rows) -> Array:
        """Return what the loss brings instead of the second derivative."""
        found = self.curvature(score, rows.y, rows.weight)  # pyright: ignore[reportOptionalCall]
        return _of_unit(found, rows)

    def joined(self, values: Float[Array, " n"], rows: Rows) -> Float[Array, " n"]:
        """Sum over all rows."""
        weight = jnp.asarray(rows.weight, values.dtype)
        return jnp.broadcast_to(total(jnp.where(weight > 0, weight * values, 0)), values.shape)

    def _at(self, score: Array, rows: Rows) -> tuple[Array, Array]:
        return jax.value_and_grad(self.function)(score, rows.y, rows.weight)


def _shared(value: Float[Array, ""], rows: Rows) -> Float[Array, " n"]:
    return jnp.broadcast_to(value / rows.weight.sum(), rows.weight.shape)


def _of_unit(found: Any, rows: Rows) -> Any:
    """Divide by the weights, with which boosting multiplies; 0 for a row that is not there."""
    weight = per_row(rows.weight, found)
    return jnp.where(weight > 0, found / jnp.where(weight > 0, weight, 1), 0)
