"""Leaf values: differentiable sums over the rows of a leaf, by the rule that the loss asks for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jboost._fixed_point import Scale, sum_by_group
from jboost._fixed_point.quantile import grouped_quantile
from jboost._objective.derivatives import full_hessian, value_grad_hess
from jboost._objective.loss import Loss, Quantile
from jboost._runtime.typing import Reduce, identity
from jboost._spec import Hyper
from jboost._split import leaf_value, limit_step, soft_threshold
from jboost._tree import take_leaves


def leaf_values(
    loss: Loss,
    score: Float[Array, "n k"],
    y: Any,
    weight: Float[Array, " n"],
    leaf: Int[Array, "n *k"],
    hyper: Hyper,
    n_leaves: int,
    derivatives: tuple[Array, Array],
    scales: tuple[Scale | None, Scale | None],
    reduce: Reduce = identity,
) -> Float[Array, "leaves k"]:
    """Compute every leaf's value before shrinkage; 0 for a leaf without rows.

    Parameters
    ----------
    loss : Loss
        Gives the rule: Newton steps with a diagonal, constant or full Hessian, or a quantile of the residuals.
    score, y, weight
        Current scores, targets and weights of the rows (0 where a row is not drawn).
    leaf : int32 [n] or [n k]
        Leaf of each row, for all outputs or for each.
    hyper : Hyper
        reg_lambda, reg_alpha and max_delta_step.
    n_leaves : int
        Leaves of a tree.
    derivatives : g, h [n k]
        Weighted derivatives at the current scores.
    scales : of g and h
        What `find_scale` gives for them.
    reduce : function
        Sums an array over the devices that hold the other rows; a quantile rule needs all rows on one.
    """
    if isinstance(loss.leaf, Quantile):
        if reduce is not identity:
            raise ValueError("a Quantile leaf rule needs all rows on one device")
        return _quantiles(score, y, weight, leaf, hyper, n_leaves, loss.leaf.level)
    value = jnp.zeros((n_leaves, score.shape[1]), score.dtype)
    for step in range(loss.leaf.steps):
        if step > 0:
            derivatives = weighted_derivatives(loss, score + take_leaves(value, leaf), y, weight)[1:]
            scales = None, None
        value = _newton_step(loss, score, y, weight, leaf, hyper, derivatives, scales, value, reduce)
    return value


def weighted_derivatives(
    loss: Loss, score: Float[Array, "n k"], y: Any, weight: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, "n k"], Float[Array, "n k"]]:
    """Return the loss of each row, and its gradient and Hessian times the row's weight.

    The loss has its outputs resolved: `n_outputs` of None means a scalar score.
    """
    scalar = loss.n_outputs is None
    value, g, h = value_grad_hess(loss, score[:, 0] if scalar else score, y)
    g, h = jnp.reshape(g, score.shape), jnp.reshape(h, score.shape)
    return value, g * weight[:, None], h * weight[:, None]


def _newton_step(
    loss: Loss,
    score: Array,
    y: Any,
    weight: Array,
    leaf: Array,
    hyper: Hyper,
    derivatives: tuple[Array, Array],
    scales: tuple[Scale | None, Scale | None],
    value: Float[Array, "leaves k"],
    reduce: Reduce,
) -> Float[Array, "leaves k"]:
    """Minimise G (u - v) + H (u - v)^2 / 2 + lambda u^2 / 2 + alpha |u| over u; v is the value so far."""
    n_leaves = value.shape[0]
    if loss.hessian == "full":
        at = score + take_leaves(value, leaf)
        g_sum = sum_by_leaf(derivatives[0][..., None], leaf, n_leaves, reduce, scales[0])[..., 0]
        hessian = full_hessian(loss, at, y) * weight[:, None, None]
        h_sum = sum_by_leaf(hessian, leaf, n_leaves, reduce)
        return _solve(g_sum - jnp.einsum("ljk,lk->lj", h_sum, value), h_sum, hyper)
    g_sum, h_sum = (
        sum_by_leaf(values[..., None], leaf, n_leaves, reduce, scale)[..., 0]
        for values, scale in zip(derivatives, scales, strict=True)
    )
    return leaf_value(g_sum - h_sum * value, h_sum, hyper)


def _solve(g: Float[Array, "l k"], h: Float[Array, "l k k"], hyper: Hyper) -> Float[Array, "l k"]:
    """Solve (H + lambda I) u = -T(G)."""
    empty = jnp.trace(h, axis1=1, axis2=2) == 0  # G is 0 there too, and any system will do
    ridge = hyper.reg_lambda + empty.astype(h.dtype)
    system = h + ridge[:, None, None] * jnp.eye(h.shape[1], dtype=h.dtype)[None]
    return limit_step(jnp.linalg.solve(system, -soft_threshold(g, hyper.reg_alpha)[..., None])[..., 0], hyper)


def _quantiles(
    score: Array, y: Any, weight: Array, leaf: Array, hyper: Hyper, n_leaves: int, level: float
) -> Float[Array, "leaves k"]:
    """Friedman (2001), algorithm 3: the quantile of the residuals in each leaf, output by output."""
    residual = jnp.reshape(y, score.shape).astype(score.dtype) - score
    by_output = leaf if leaf.ndim == 2 else jnp.broadcast_to(leaf[:, None], residual.shape)

    def one(residual: Array, leaf: Array) -> Array:
        return grouped_quantile(residual, weight, leaf, n_leaves, level)

    values = [
        one(residual[:, j], by_output[:, j]) for j in range(residual.shape[1])
    ]  # faster than under vmap
    return limit_step(jnp.stack(values, axis=1), hyper)


def sum_by_leaf(
    values: Float[Array, "n k c"],
    leaf: Int[Array, "n *k"],
    n_leaves: int,
    reduce: Reduce,
    scale: Scale | None = None,
) -> Float[Array, "leaves k c"]:
    """Sum the c values of each row and output by leaf; each output may have leaves of its own.

    The scale may be given where c is 1.
    """
    n, k, c = values.shape
    if leaf.ndim == 1:
        return sum_by_group(values.reshape(n, k * c), leaf, n_leaves, reduce, scale).reshape(n_leaves, k, c)

    def of_output(values: Float[Array, "n c"], leaf: Int[Array, " n"], scale: Scale | None) -> Array:
        return sum_by_group(values, leaf, n_leaves, reduce, jax.tree.map(jnp.atleast_1d, scale))

    return jax.vmap(of_output, (1, 1, 0), 1)(values, leaf, scale)
