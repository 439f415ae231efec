"""The mean loss at one constant score, its derivatives, and what rounding may do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point import find_scale, sum_by_group
from jboost._objective.differences import hessian_by_differences
from jboost._objective.rows import Rows
from jboost._objective.searching import found_by
from jboost._runtime.typing import FIXED_POINT_BITS, Reduce, varying_alike


class Moments(NamedTuple):
    """The mean loss at one constant, its derivatives, and the sizes that bound their rounding."""

    means: Array  # [1 + k] of the loss and of g
    sizes: Array  # [1 + k] those of their magnitudes, as powers of two above them
    h: Array  # [k k]

    @property
    def value(self) -> Array:
        return self.means[0]

    @property
    def value_size(self) -> Array:
        return self.sizes[0]

    @property
    def g(self) -> Array:
        return self.means[1:]

    @property
    def g_size(self) -> Array:
        return self.sizes[1:]


def moments_of_loss(
    loss: Any, reduce: Reduce | None, by_slope: bool = False
) -> Callable[[Array, Rows, Array], Moments]:
    """Return the function (constant [k], rows, share of the weight [n]) -> moments of the loss.

    `by_slope` says whether the first derivatives of the loss are all that JAX can tell.
    """

    def moments(constant: Array, rows: Rows, share: Array) -> Moments:
        def mean(values: Array) -> tuple[Array, Array]:
            return _mean_and_size(values, share, reduce)

        def slope_at(place: Array) -> Array:
            return mean(_value_and_grad(loss, place, rows)[1])[0]

        constant, _ = varying_alike(constant, share)  # or its gradient would be summed over the devices
        k = constant.size
        if by_slope:
            means, sizes = mean(jnp.concatenate(_value_and_grad(loss, constant, rows)))
            h = found_by(lambda place: hessian_by_differences(slope_at, place, sizes[1:]), constant)
            return Moments(means, sizes, h)
        by_row, h = _at_constant(loss, constant, rows, lambda values: mean(values)[0])
        means, sizes = mean(by_row)  # in one sum, which is sooner compiled than several
        h = means[1 + k :, None] if h is None else (h + h.T) / 2
        return Moments(means[: 1 + k], sizes[: 1 + k], h)

    return moments


def _at_constant(
    loss: Any, constant: Array, rows: Rows, mean: Callable[[Array], Array]
) -> tuple[Float[Array, "c n"], Float[Array, "k k"] | None]:
    """Return value and g of the rows, which lie last for XLA's loops to run along them, and the mean Hessian.

    A second derivative by one output lies below the value and g instead.
    """

    def at(constant: Array) -> tuple[Array, Array]:
        return _value_and_grad(loss, constant, rows)

    if loss.curvature is not None or loss.hessian == "first_order":
        return jnp.concatenate(at(constant)), _curvature_without_tangents(loss, constant, rows, mean)
    if constant.size == 1:
        by_row, (_, h) = jax.jvp(at, (constant,), (jnp.ones_like(constant),))
        return jnp.concatenate([*by_row, h]), None
    by_row, tangent = jax.linearize(at, constant)
    units = jnp.eye(constant.size, dtype=constant.dtype)
    return jnp.concatenate(by_row), jax.lax.map(lambda step: mean(tangent(step)[1]), units)


def _value_and_grad(
    loss: Any, constant: Array, rows: Rows
) -> tuple[Float[Array, "1 n"], Float[Array, "k n"]]:
    if loss.needs_all_rows:
        value, g = loss.value_and_grad(_score_of(loss, constant, rows), rows)
        return value[None], jnp.reshape(g.T, (constant.size, value.size))
    shared = constant[0] if loss.n_outputs is None else constant

    def of_row(y: Any, offset: Array | None) -> tuple[Array, Array]:
        score = shared if offset is None else shared + jnp.reshape(offset, shared.shape)
        return jax.value_and_grad(loss.function)(score, y)

    value, g = jax.vmap(of_row, out_axes=-1)(rows.y, rows.offset)
    return value[None], jnp.reshape(g, (constant.size, rows.weight.size))


def _curvature_without_tangents(
    loss: Any, constant: Array, rows: Rows, mean: Callable[[Array], Array]
) -> Float[Array, "k k"]:
    """Return the mean of what the loss brings, or of second derivatives in reverse mode, all that it may have."""
    score = _score_of(loss, constant, rows)
    n, k = rows.weight.size, constant.size
    if loss.curvature is not None:
        found = loss.curvature_of(score, rows)
        if found.ndim == 3:
            return mean(found.reshape(n, k * k).T).reshape(k, k)
        return jnp.diag(mean(found.reshape(n, k).T))
    _, back = jax.vjp(lambda s: jnp.reshape(loss.value_and_grad(s, rows)[1], (n, k)), score)
    hot = jnp.broadcast_to(jnp.eye(k, dtype=constant.dtype)[:, None], (k, n, k))
    return jax.lax.map(lambda one: mean(back(one)[0].reshape(n, k).T), hot)


def _score_of(loss: Any, constant: Array, rows: Rows) -> Float[Array, "n *k"]:
    score = jnp.broadcast_to(constant, (rows.weight.size, constant.size))
    score = score if rows.offset is None else score + rows.offset
    return score[:, 0] if loss.n_outputs is None else score


def _mean_and_size(
    values: Float[Array, "c n"], share: Float[Array, " n"], reduce: Reduce | None
) -> tuple[Float[Array, " c"], Float[Array, " c"]]:
    """Sum share * values over the rows; and a power of two, up to twice the sum of the magnitudes."""
    counts = (share > 0)[None] | jnp.isfinite(values)  # so that a weight of 0 has a derivative too
    products = jnp.where(counts, share[None] * values, 0)

    def of_one(column: Array) -> tuple[Array, Array]:
        scale = find_scale(column, reduce)
        size = jnp.where(scale.count > 0, 2.0**FIXED_POINT_BITS / scale.factor, 0)
        return sum_by_group(column, None, 1, reduce, scale)[0, 0], size[0]

    return jax.vmap(of_one)(products[..., None])
