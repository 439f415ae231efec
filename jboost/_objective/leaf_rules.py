"""Leaf rules: how the value of a leaf is found, and with it the constant from which boosting starts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point.quantile import grouped_quantile, weighted_quantile
from jboost._objective.base_score import best_constant
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows
from jboost._runtime.arguments import whole_number
from jboost._runtime.rules import within_its_rule
from jboost._runtime.typing import Reduce, as_node
from jboost._split import leaf_value, limit_step

LEAST_FLOOR = 1e-15  # of a second derivative whose unit nothing tells


@runtime_checkable
class LeafRule(Protocol):
    """What finds the values of the leaves of a tree.

    `Newton`, `Quantile`, `Exact`, `OneStep`, `LineSearch`, `PathSmoothing`, or an object of your own.

    A rule is hashable or a pytree, and its methods are JAX code.

    Attributes
    ----------
    needs_all_rows : bool
        Whether the rule must see all rows at once, because it is not made of sums over them. Rows that are divided
        among devices are then brought together on each.
    descends : bool, optional
        Whether a leaf whose loss its value would raise is to get a smaller one, as with `Newton`. No by default.
    of_one_row : bool, optional
        Whether the rule asks for a loss of one row, and a `GroupLoss` or `BatchLoss` is refused. No by default.

    Examples
    --------
    A Newton step of half the length:

    >>> import numpy as np, jboost
    >>> class HalfStep:
    ...     needs_all_rows = False
    ...     def leaf_values(self, leaves):
    ...         return -0.5 * leaves.sum_of_g() / (leaves.sum_of_h() + leaves.hyper.reg_lambda)
    ...     def base_score(self, loss, rows, reduce):
    ...         return jboost.best_constant(loss, rows, reduce)
    >>> loss = jboost.Loss(jboost.losses.squared_error.function, leaf=HalfStep())
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(loss, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> model.n_trees
    3
    """

    needs_all_rows: ClassVar[bool]

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Return every leaf's value before shrinkage; 0 for a leaf without rows. `Leaves` says what is known."""
        ...

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Return the constant score from which boosting starts; `jboost.best_constant` minimises the loss."""
        ...


@jax.tree_util.register_static
@dataclass(frozen=True)
class Newton:
    """Leaf rule: Newton steps on the loss of the rows in the leaf, each -G / (H + lambda).

    Parameters
    ----------
    steps : int, default 1
        How many steps; g and h are taken anew before each.

    References
    ----------
    Chen and Guestrin (2016), "XGBoost: A Scalable Tree Boosting System", eq. 5. Dauphin et al. (2014), "Identifying and
    attacking the saddle point problem", for the magnitudes of the eigenvalues of a full Hessian.

    Examples
    --------
    >>> from jboost import Loss, Newton, losses
    >>> Loss(losses.logistic.function, leaf=Newton(steps=3)).leaf.steps
    3
    """

    steps: int = 1
    needs_all_rows: ClassVar[bool] = False
    descends: ClassVar[bool] = True

    def __post_init__(self) -> None:
        whole_number(self.steps, "steps", 1)

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Minimise the quadratic model of the loss in each leaf, as often as asked for."""
        value = jnp.zeros((leaves.n_leaves, leaves.score.shape[1]), leaves.score.dtype)
        for step in range(self.steps):
            value = newton_step(leaves if step == 0 else leaves.moved_by(value), value)
        return value

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Minimise the loss over all constants."""
        return best_constant(loss, rows, reduce)


def newton_step(leaves: Leaves, value: Float[Array, "leaves k"]) -> Float[Array, "leaves k"]:
    """Minimise G (u - v) + H (u - v)^2 / 2 + lambda u^2 / 2 + alpha |u| over u; v is the value so far."""
    hyper = leaves.hyper
    g = leaves.sum_of_g()
    if leaves.loss.hessian != "full":
        h = leaves.sum_of_h()
        return leaf_value(g - h * value, h, hyper)
    # With scores in units in which the second derivatives of an average row are 1.
    unit = jnp.sqrt(leaves.unit_of_h)
    h, weight = leaves.sum_of_full_hessian() / (unit[:, None] * unit[None])[None], leaves.weight_of_leaf()
    h = _positive(h, leaves.loss.hessian_floor * weight)
    empty = jnp.trace(h, axis1=1, axis2=2) == 0  # G is 0 there too, and any system will do
    ridge = jnp.atleast_2d(hyper.reg_lambda) / jnp.square(unit)[None] + empty.astype(h.dtype)[:, None]
    system = h + ridge[:, :, None] * jnp.eye(h.shape[1], dtype=h.dtype)[None]
    right = -leaves.penalised(g - unit[None] * jnp.einsum("ljk,lk->lj", h, unit[None] * value)) / unit[None]
    return limit_step(jnp.linalg.solve(system, right[..., None])[..., 0] / unit[None], hyper)


def with_second_derivatives(loss: Any) -> Any:
    """Return a first-order loss as one with the second derivatives that it has, however small its unit makes them."""
    return dataclasses.replace(loss, hessian="diagonal", hessian_floor=LEAST_FLOOR)


@jax.custom_jvp
def _positive(h: Float[Array, "l k k"], least: Float[Array, " l"]) -> Float[Array, "l k k"]:
    """Turn negative eigenvalues round and raise small ones: a step along them would raise the loss.

    What is positive already stays as it is, to the last bit.
    """
    values, vectors, made, _ = _made_positive(h, least)
    return h + jnp.einsum("lij,lj,lkj->lik", vectors, made - values, vectors)


@_positive.defjvp
def _tangent_of_positive(primals: Any, tangents: Any) -> tuple[Array, Array]:
    """Follow a function of a symmetric matrix: divided differences of its eigenvalues (Daleckii and Krein 1965)."""
    (h, least), (dh, dleast) = primals, tangents
    values, vectors, made, slope = _made_positive(h, least)
    gap = values[:, :, None] - values[:, None]
    apart = jnp.abs(gap) > jnp.finfo(h.dtype).eps ** 0.5 * jnp.abs(values).max(axis=1)[:, None, None]
    quotient = (made[:, :, None] - made[:, None]) / jnp.where(apart, gap, 1)
    quotient = jnp.where(apart, quotient, (slope[:, :, None] + slope[:, None]) / 2)
    inside = jnp.einsum("lji,ljk,lkm->lim", vectors, (dh + jnp.swapaxes(dh, 1, 2)) / 2, vectors)
    change = (quotient - 1) * inside
    raised = (slope == 0).astype(h.dtype) * dleast[:, None]
    change += raised[:, :, None] * jnp.eye(h.shape[1], dtype=h.dtype)[None]
    found = within_its_rule(_positive, h, least)
    return found, dh + jnp.einsum("lij,ljk,lmk->lim", vectors, change, vectors)


def _made_positive(h: Float[Array, "l k k"], least: Float[Array, " l"]) -> tuple[Array, Array, Array, Array]:
    """Return eigenvalues and vectors, what is made of the values, and the slopes of that: 1, -1, or 0 at the floor.

    Where nothing is to be changed they are those of another matrix: equal eigenvalues, as in a leaf without rows, have
    no derivatives.
    """
    h, floor = (h + jnp.swapaxes(h, 1, 2)) / 2, least[:, None]
    known = jnp.linalg.eigvalsh(jax.lax.stop_gradient(h))
    changes = jnp.any(_is_wrong(known, floor), axis=1)[:, None]
    other = jnp.diag(jnp.arange(1, h.shape[1] + 1, dtype=h.dtype))
    values, vectors = jnp.linalg.eigh(jnp.where(changes[..., None], h, other[None]))
    wrong = changes & _is_wrong(values, floor)
    made = jnp.where(wrong, jnp.maximum(jnp.abs(values), floor), values)
    slope = jnp.where(wrong, jnp.where(values < -floor, -1, 0), 1).astype(h.dtype)
    return values, vectors, made, slope


def _is_wrong(values: Float[Array, "l k"], floor: Float[Array, "l 1"]) -> Any:
    return values < floor / 2  # less than half: rounding is no reason


@as_node
@dataclass(frozen=True)
class Quantile:
    """Leaf rule: the weighted quantile of the residuals y - score in the leaf.

    Parameters
    ----------
    level : float, default 0.5
        Which quantile, between 0 and 1 exclusive; 0.5 is the median. May be traced.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation: A Gradient Boosting Machine", Algorithm 3
    (LAD_TreeBoost).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import Loss, Quantile
    >>> median = Loss(lambda score, y: jnp.abs(y - score), hessian="first_order", leaf=Quantile(0.5))
    >>> median.leaf.level
    0.5
    """

    level: Any = 0.5
    needs_all_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.level, float | int) and not 0.0 < self.level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1, got {self.level!r}")

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Friedman (2001), algorithm 3: the quantile of the residuals in each leaf, output by output."""
        score, leaf = leaves.score, leaves.leaf
        residual = _as_scores(leaves.rows.y, score.shape, score.dtype) - score
        by_output = leaf if leaf.ndim == 2 else jnp.broadcast_to(leaf[:, None], residual.shape)
        values = [  # faster than under vmap
            grouped_quantile(residual[:, j], leaves.weight, by_output[:, j], leaves.n_leaves, self.level)
            for j in range(residual.shape[1])
        ]
        return limit_step(jnp.stack(values, axis=1), leaves.hyper)

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Return the quantile of the target, less the offset."""
        dtype = jnp.result_type(float)
        shape = (rows.weight.size, loss.n_outputs or 1)
        target = _as_scores(rows.y, shape, dtype)
        target = target if rows.offset is None else target - rows.offset
        weight = jnp.asarray(rows.weight, dtype)
        return jnp.stack([weighted_quantile(column, weight, self.level, reduce) for column in target.T])


def _as_scores(y: Any, shape: tuple[int, ...], dtype: Any) -> Float[Array, "n k"]:
    if not hasattr(y, "shape") or y.size != shape[0] * shape[1]:
        raise ValueError(
            f"y must be one array with a value per score for a Quantile leaf rule, got {jax.tree.map(jnp.shape, y)}"
        )
    return jnp.reshape(y, shape).astype(dtype)
