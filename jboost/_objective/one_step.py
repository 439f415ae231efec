"""The leaf rule of Friedman's algorithms for classes and for M-regression: one Newton step, from a start."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._objective.base_score import best_constant
from jboost._objective.leaf_rules import LeafRule, newton_step, with_second_derivatives
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows
from jboost._runtime.arguments import check_choice
from jboost._runtime.typing import Reduce, as_node

StepHessian = Literal["diagonal", "first_order"]


@as_node
@dataclass(frozen=True)
class OneStep:
    r"""Leaf rule: one Newton step by second derivatives of its own, whatever the splits are chosen by.

    .. math:: \gamma_j = s_j - c \frac{\sum w_i g_i(s_j) + \lambda s_j}{\sum w_i h_i(s_j) + \lambda}

    with a start s, 0 unless another rule finds one, and a factor c. It makes Friedman's leaves of splits that are the
    least-squares fit of the negative gradient (``hessian="first_order"`` of the loss):

    - ``OneStep()`` is the leaf of L2_TreeBoost: with h = p (1 - p) for log odds, or :math:`|r| (2 - |r|)` of residuals
      r for half of them;
    - ``OneStep(factor=(k - 1) / k)`` that of LK_TreeBoost for k classes;
    - ``OneStep(Quantile(0.5), hessian="first_order")`` that of M_TreeBoost: the median of the residuals and the mean of
      what the Huber loss leaves of their distances from it.

    Parameters
    ----------
    start : LeafRule or None, default None
        Whose values the step starts from, and whose base score boosting starts from: a `Quantile`, say.
    hessian : {"diagonal", "first_order"}, default "diagonal"
        The second derivatives of the step: those of the loss, also where splits take none
        (``hessian="first_order"`` of the loss; a full matrix stays one), or 1.
    factor : float, default 1.0
        Of the step, positive. May be traced.

    Raises
    ------
    TypeError, ValueError
        For fields that are not these.

    Notes
    -----
    Nothing shortens the step, so that it is the formula: the loss of a leaf may rise. A leaf rule with steps that do
    not climb is `Newton`.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation", algorithms 4 (M_TreeBoost), 5 (L2_TreeBoost) and 6
    (LK_TreeBoost).

    Examples
    --------
    >>> import dataclasses, jboost
    >>> logistic = jboost.losses.logistic
    >>> l2_treeboost = dataclasses.replace(logistic, hessian="first_order", leaf=jboost.OneStep())
    >>> jboost.OneStep(factor=2 / 3).factor == 2 / 3
    True
    """

    start: LeafRule | None = None
    hessian: StepHessian = dataclasses.field(default="diagonal", metadata={"static": True})
    factor: Any = 1.0
    descends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_choice("hessian", self.hessian, get_args(StepHessian))
        if isinstance(self.factor, str):
            raise TypeError(f"factor must be a positive number, got {self.factor!r}")
        if isinstance(self.factor, float | int) and not 0 < self.factor < float("inf"):
            raise ValueError(f"factor must be positive and finite, got {self.factor!r}")
        if isinstance(self.start, str | type | float | int):
            raise TypeError(
                f"start must be None or a leaf rule, such as jboost.Quantile(0.5), got {self.start!r}"
            )

    @property
    def needs_all_rows(self) -> bool:
        """Whether the start needs all rows at once."""
        return self.start is not None and self.start.needs_all_rows

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Find the start, and take the step from there."""
        loss = leaves.loss
        if self.hessian == "first_order":
            loss = dataclasses.replace(loss, hessian="first_order", curvature=None)
        elif loss.hessian == "first_order":
            loss = with_second_derivatives(loss)
        if self.start is None:
            value = jnp.zeros((leaves.n_leaves, leaves.score.shape[1]), leaves.score.dtype)
        else:
            value = self.start.leaf_values(leaves)
        moved = dataclasses.replace(leaves, loss=loss).moved_by(value)
        return value + self.factor * (newton_step(moved, value) - value)

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Start where the start does, or at the best constant."""
        if self.start is None:
            return best_constant(loss, rows, reduce)
        return self.start.base_score(loss, rows, reduce)
