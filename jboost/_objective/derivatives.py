"""Value, gradient and Hessian of a row loss for every row, by automatic differentiation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jboost._objective.loss import Loss

Scores = Float[Array, " n"] | Float[Array, "n k"]


def value_grad_hess(loss: Loss, score: Scores, y: Any) -> tuple[Float[Array, " n"], Scores, Scores]:
    """Return the loss, gradient g and floored diagonal Hessian h of each row.

    Parameters
    ----------
    loss : Loss
    score : [n] or [n k]
        Raw scores; their dtype is the dtype of all results.
    y : pytree of arrays
        Target; every leaf has n as its leading axis.

    Returns
    -------
    value : [n]
        Loss of each row.
    g, h : shape of `score`
        First derivative; second derivative by each output, at least `loss.hessian_floor`, or 1 for
        ``hessian="first_order"``.
    """
    value, g, h = raw_value_grad_hess(loss, score, y)
    if loss.hessian != "first_order":
        h = jnp.maximum(h, loss.hessian_floor)
    return value, g, h


def raw_value_grad_hess(loss: Loss, score: Scores, y: Any) -> tuple[Float[Array, " n"], Scores, Scores]:
    """Return what `value_grad_hess` does, with the second derivatives as they come, before the floor."""
    if loss.hessian == "first_order":
        value, g = _value_and_grad(loss, score, y)
        h = jnp.ones_like(score)
    elif score.ndim == 1:
        # A tangent of one gives the whole derivative, and all three results fuse into one pass over the rows.
        step = (jnp.ones_like(score),)
        (value, g), (_, h) = jax.jvp(lambda s: _value_and_grad(loss, s, y), (score,), step)
    else:
        (value, g), hessian_column = jax.linearize(lambda s: _value_and_grad(loss, s, y), score)
        h = jax.lax.map(
            lambda j: hessian_column(_one_hot_rows(score, j))[1][:, j], jnp.arange(score.shape[1])
        ).T
    return value.astype(score.dtype), g, h


def full_hessian(loss: Loss, score: Float[Array, "n k"], y: Any) -> Float[Array, "n k k"]:
    """Return the k x k Hessian of each row, with `loss.hessian_floor` added to its diagonal.

    So the flat direction of a softmax, all scores moved alike, can be solved for without regularisation.
    """
    _, hessian_column = jax.linearize(lambda s: _value_and_grad(loss, s, y)[1], score)
    columns = jax.lax.map(lambda j: hessian_column(_one_hot_rows(score, j)), jnp.arange(score.shape[1]))
    ridge = loss.hessian_floor * jnp.eye(score.shape[1], dtype=score.dtype)
    return jnp.moveaxis(columns, 0, 2) + ridge[None]


def _value_and_grad(loss: Loss, score: Scores, y: Any) -> tuple[Float[Array, " n"], Scores]:
    return jax.vmap(jax.value_and_grad(loss.function))(score, y)


def _one_hot_rows(score: Float[Array, "n k"], j: Array) -> Float[Array, "n k"]:
    is_hot = (jnp.arange(score.shape[1], dtype=j.dtype) == j)[None]
    # Inside shard_map both may vary over the devices, as the score does.
    return jnp.where(is_hot, jnp.ones_like(score), jnp.zeros_like(score))


def check_derivatives(loss: Loss, value: Any, g: Any, h_raw: Any, weight: Any) -> None:
    """Raise ValueError when a loss cannot be boosted with the Hessian it asks for.

    Parameters
    ----------
    loss : Loss
    value, g, h_raw : concrete arrays [n], [n] or [n k], like g
        Result of `raw_value_grad_hess` at the base score.
    weight : concrete array [n]
        Rows of weight 0 are not looked at.
    """
    name = loss.name or "the loss"
    used = np.asarray(weight) > 0
    for label, array in (("value", value), ("first derivative", g), ("second derivative", h_raw)):
        array = np.asarray(array)
        bad = ~np.isfinite(array) & per_row(used, array)
        if bad.any():
            row = int(np.argwhere(bad)[0, 0])
            raise ValueError(
                f"loss: the {label} of {name} is not finite at the base score (row {row}: "
                f"{array[row]}); write it without overflow (exp or cosh of y), 0/0, inf - inf or a root or "
                "logarithm at 0, and check that y lies in its domain"
                + _advice(loss, label == "second derivative")
            )
    if loss.hessian == "first_order":
        return
    steep = np.abs(np.asarray(g))[used].max(axis=0, initial=0.0) > loss.hessian_floor
    flat = np.asarray(h_raw)[used].max(axis=0, initial=-np.inf) <= 0
    if np.any(steep & flat):
        raise ValueError(
            f"loss: the second derivative of {name} is nowhere positive at the base score, so Newton steps "
            "are undefined" + _advice(loss, True)
        )


def check_range(g: Any, weight: Any) -> None:
    """Refuse gradients whose sums cannot be squared: gains would be infinite, and any split as good as another."""
    g, weight = np.asarray(g), np.asarray(weight)
    total, largest = np.abs(g.astype(np.float64) * per_row(weight, g)).sum(), _largest_sum(g.dtype)
    if total > largest:
        raise ValueError(
            f"y is too large for {g.dtype}: the gradients of the loss sum to {total:.3g}, above {largest:.3g}; scale y"
        )


def may_fail(loss: Loss, value: Array, g: Array, h_raw: Array, weight: Float[Array, " n"]) -> Bool[Array, ""]:
    """Say whether the two checks above are worth making: always where one fails, seldom elsewhere.

    It runs where the rows are, in floats of their precision; the limits here are nearer by a half.
    """
    used = weight > 0
    most = _largest_sum(g.dtype) / 2 / g.size  # the largest times their number is no less than the sum
    small = jnp.isfinite(h_raw) & (jnp.abs(g) * per_row(weight, g) <= most)  # false for NaN too
    fails = jnp.any(used & ~jnp.isfinite(value)) | jnp.any(per_row(used, g) & ~small)
    if loss.hessian == "first_order":
        return fails
    steep = per_row(used, g) & (jnp.abs(g) > loss.hessian_floor / 2)
    curved = per_row(used, g) & (h_raw > loss.hessian_floor)
    return fails | jnp.any(jnp.any(steep, axis=0) & ~jnp.any(curved, axis=0))


def per_row(rows: Any, like: Any) -> Any:
    """Shape [n] to be combined with an array [n] or [n k]."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def _largest_sum(dtype: Any) -> float:
    return float(np.sqrt(np.finfo(dtype).max)) / 100


def _advice(loss: Loss, about_hessian: bool) -> str:
    if not about_hessian or loss.hessian == "first_order":
        return ""
    return '; use Loss(..., hessian="first_order"), with leaf=Quantile(level) for an absolute or pinball loss'
