"""What a leaf rule knows: rows with their derivatives and leaves, and exact sums over the rows of a leaf."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._fixed_point import Scale, count_by_group, find_scale, moments_by_group, sum_by_group
from jboost._objective.derivatives import Expansion, derivatives_by_row
from jboost._objective.rows import Rows, gathered
from jboost._objective.units import Units
from jboost._runtime.checkpointing import kept
from jboost._runtime.dividing import all_rows
from jboost._runtime.typing import Reduce
from jboost._spec import Hyper
from jboost._split import soft_threshold
from jboost._tree import take_leaves


class Derivatives(NamedTuple):
    """g and h of the rows, times the weights with which they take part in a round, and the scales of their sums."""

    g: Float[Array, "n k"]  # in units of the fit, if `Leaves` has some
    h: Float[Array, "n k"]
    scale_of_g: Scale | None = None  # None: not found yet
    scale_of_h: Scale | None = None
    cross: Float[Array, "n c"] | None = None  # h by two outputs, where splits use the whole matrix
    scale_of_cross: Scale | None = None


class Sums(NamedTuple):
    """Of g and h, in the units of the derivatives, and the number of rows that take part, by leaf."""

    g: Float[Array, "leaves k"]
    h: Float[Array, "leaves k"]
    count: Float[Array, "leaves #k"]
    derivatives: Derivatives  # whose sums they are


def weighted_derivatives(
    found: Expansion,
    weight: Float[Array, " n"],
    units: Units | None,
    reduce: Reduce | None = None,
    scales: bool = True,
) -> Derivatives:
    """Return g and h of a unit of weight times the weights of the rows, in units of the fit."""
    g, h = found.g * weight[:, None], found.h * weight[:, None]
    if units is not None:
        g, h = g * (1 / units.of_g)[None], h * (1 / units.of_h)[None]
    return Derivatives(g, h, find_scale(g, reduce), find_scale(h, reduce)) if scales else Derivatives(g, h)


def with_cross(
    derivatives: Derivatives,
    loss: Any,
    score: Float[Array, "n k"],
    rows: Rows,
    weight: Float[Array, " n"],
    units: Units,
    reduce: Reduce | None = None,
) -> Derivatives:
    """Add the mixed second derivatives, pairs of outputs 12, 13, ..., 23, ..., and the scales of their sums."""
    left, right = np.triu_indices(score.shape[1], 1)
    unit = jnp.sqrt(units.of_h)
    cross = (
        loss.full_hessian(score, rows)[:, left, right] * weight[:, None] / (unit[left] * unit[right])[None]
    )
    return derivatives._replace(cross=cross, scale_of_cross=find_scale(cross, reduce))


@dataclasses.dataclass(frozen=True)
class Leaves:
    """The rows of a round in their leaves.

    Attributes
    ----------
    loss : Loss, GroupLoss or BatchLoss
        With its outputs resolved.
    score : float [n k]
        Scores before the round.
    rows : Rows
        Targets, weights and groups.
    weight : float [n]
        With which the rows take part in the round: 0 for those that were not drawn.
    leaf : int32 [n] or [n k]
        Leaf of each row, for all outputs or for each.
    n_leaves : int
        Leaves of a tree.
    hyper : Hyper
        max_delta_step and others; reg_lambda and reg_alpha, one for each output, as they are to be added to sums.
    derivatives : Derivatives
        Of the loss at the scores.
    reduce : function or None
        Sums an array over the devices that hold the other rows.
    units : Units or None
        What the derivatives are measured in; sums are in units of the loss.
    sums : Sums or None
        Of the derivatives, once they have been made.

    Examples
    --------
    Its sums are those of the rows of each leaf, here of g, the residuals, of two rows in one leaf and one in another:

    >>> import jax.numpy as jnp, jboost
    >>> from jboost._objective.leaves import Derivatives
    >>> from jboost._objective.rows import Rows
    >>> y, weight = jnp.array([1.0, 2.0, 5.0]), jnp.ones(3)
    >>> g, h = -y[:, None], jnp.ones((3, 1))
    >>> leaves = jboost.Leaves(
    ...     jboost.losses.squared_error, jnp.zeros((3, 1)), Rows(y, weight), weight, jnp.array([0, 0, 1]), 2,
    ...     jboost.Hyper(), Derivatives(g, h))
    >>> leaves.sum_of_g()[:, 0].tolist(), leaves.weight_of_leaf().tolist()
    ([-3.0, -5.0], [2.0, 1.0])
    """

    loss: Any
    score: Float[Array, "n k"]
    rows: Rows
    weight: Float[Array, " n"]
    leaf: Int[Array, "n *k"]
    n_leaves: int
    hyper: Hyper
    derivatives: Derivatives
    reduce: Reduce | None = None
    units: Units | None = None
    sums: Sums | None = None

    def moved_by(self, value: Float[Array, "leaves k"]) -> Leaves:
        """Return the same with the derivatives at other scores: those given, plus a value for each leaf."""
        score = self.score + take_leaves(value, self.leaf)
        found = derivatives_by_row(self.loss, score, self.rows, self.unit_of_h)
        derivatives = weighted_derivatives(found, self.weight, self.units, scales=False)
        return dataclasses.replace(self, score=score, derivatives=derivatives)

    def of_all_rows(self) -> Leaves:
        """Return the same with the rows of all devices, for a rule that needs them."""
        axis = self.rows.axis
        if axis is None:
            return self
        score, weight, leaf, g, h = all_rows(
            (self.score, self.weight, self.leaf, *self.derivatives[:2]), axis
        )
        derivatives = self.derivatives._replace(g=g, h=h)
        rows = gathered(self.rows)
        return dataclasses.replace(
            self, score=score, rows=rows, weight=weight, leaf=leaf, derivatives=derivatives, reduce=None
        )

    def summed(self) -> Leaves:
        """Return the same with the sums of all leaves made: in one call for all that ask."""
        return dataclasses.replace(self, sums=self._sums())

    def sum_of_g(self) -> Float[Array, "leaves k"]:
        """Sum the first derivatives of each leaf."""
        total = self._sums().g
        return total if self.units is None else total * self.units.of_g[None]

    def sum_of_h(self) -> Float[Array, "leaves k"]:
        """Sum the second derivatives of each leaf."""
        total = self._sums().h
        return total if self.units is None else total * self.units.of_h[None]

    def count(self) -> Float[Array, "leaves #k"]:
        """Count the rows of each leaf that take part: for each output if leaves are, else for all."""
        return self._sums().count

    def _sums(self) -> Sums:
        if self.sums is not None and self.sums.derivatives is self.derivatives:
            return self.sums
        g, h, scale_of_g, scale_of_h, *_ = self.derivatives
        drawn, k, given = self.weight > 0, g.shape[1], (self.n_leaves, self.reduce)

        def of_output(g: Array, h: Array, leaf: Array, *scales: Scale | None) -> tuple[Array, Array, Array]:
            scales = jax.tree.map(jnp.atleast_1d, scales)
            return moments_by_group(g[:, None], h[:, None], drawn, leaf, *given, *scales)

        if k == 1:
            scales = scale_of_g, scale_of_h
            of_g, of_h, count = moments_by_group(g, h, drawn, self.leaf.reshape(-1), *given, *scales)
        elif self.leaf.ndim == 2:
            found = jax.vmap(of_output, (1, 1, 1, 0, 0), 1)(g, h, self.leaf, scale_of_g, scale_of_h)
            of_g, of_h, count = (one.reshape(-1, k) for one in found)
        else:
            of_g, of_h = (
                self.sum(one[..., None], scale)[..., 0] for one, scale in ((g, scale_of_g), (h, scale_of_h))
            )
            count = count_by_group(drawn, self.leaf, *given).astype(g.dtype)[:, None]
        return Sums(*kept((of_g, of_h, count)), derivatives=self.derivatives)

    @property
    def unit_of_h(self) -> Float[Array, " k"]:
        """The second derivative of an average row by each output, where penalties are read in such units; else 1."""
        return jnp.ones_like(self.score[0]) if self.units is None else self.units.h

    def sum_of_full_hessian(self) -> Float[Array, "leaves k k"]:
        """Sum the Hessians of each leaf, with the floor of the loss added to the diagonal of each row.

        So the flat direction of a softmax, all scores moved alike, can be solved for without regularisation.
        """
        ridge = self.loss.hessian_floor * jnp.diag(self.unit_of_h)
        hessian = self.loss.full_hessian(self.score, self.rows) + ridge[None]
        return self.sum(hessian * self.weight[:, None, None])

    def weight_of_leaf(self) -> Float[Array, " leaves"]:
        """Sum the weights of each leaf, for outputs that share a tree."""
        return sum_by_group(self.weight[:, None], self.leaf, self.n_leaves, self.reduce)[:, 0]

    def penalised(self, g: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return what the L1 penalty leaves of sums of g."""
        return soft_threshold(g, self.hyper.reg_alpha)

    def sum(self, values: Float[Array, "n k c"], scale: Scale | None = None) -> Float[Array, "leaves k c"]:
        """Sum the c values of each row and output by leaf, the same bits in any order and on any number of devices.

        Each output may have leaves of its own. The scale may be given where c is 1.
        """
        n, k, c = values.shape
        if self.leaf.ndim == 1:
            flat = kept(sum_by_group(values.reshape(n, k * c), self.leaf, self.n_leaves, self.reduce, scale))
            return flat.reshape(self.n_leaves, k, c)

        def of_output(values: Float[Array, "n c"], leaf: Int[Array, " n"], scale: Scale | None) -> Array:
            return sum_by_group(values, leaf, self.n_leaves, self.reduce, jax.tree.map(jnp.atleast_1d, scale))

        return kept(jax.vmap(of_output, (1, 1, 0), 1)(values, self.leaf, scale))
