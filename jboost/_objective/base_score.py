"""The best constant score under a loss: where boosting starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._objective.rows import Rows, per_row
from jboost._runtime.closures import with_explicit_closure
from jboost._runtime.typing import Reduce, varying_alike

MAX_ITERATIONS = 100
CLEARLY_FLATTER = 0.9
HOPELESS_DAMPING = 1e6
ROUNDING = 16  # units of rounding below which a mean over the rows is taken for noise


def best_constant(loss: Any, rows: Rows, reduce: Reduce | None = None) -> Float[Array, " k"]:
    """Return F0 = argmin over c of sum_i w_i loss(c + offset_i, y_i).

    A loss may bring a formula for it, `constant`, for rows without offset. Else it is found by damped Newton steps,
    then one differentiable step whose derivative by weights, targets and the parameters of the loss is that of the
    implicit function. Rows of weight 0 do not count, even when their loss is NaN.
    Where the minimum lies at infinity (a Poisson target of zeros, one class only) the result is finite and its gradient
    negligible; where the loss does not depend on c at all, as in a ranking, it is 0.

    Parameters
    ----------
    loss : Loss, GroupLoss or BatchLoss
        With its outputs resolved.
    rows : Rows
        Targets, weights (non-negative, not all 0), offsets and groups.
    reduce : callable, optional
        Sums a partial result over devices; None where one has all rows.

    Returns
    -------
    float [k], of JAX's default floating dtype.

    Examples
    --------
    It is what a leaf rule of your own may start from:

    >>> import jax.numpy as jnp, jboost
    >>> from jboost._objective.rows import Rows
    >>> rows = Rows(jnp.array([1.0, 2.0, 6.0]), jnp.ones(3))
    >>> round(float(jboost.best_constant(jboost.losses.squared_error, rows)[0]), 5)
    3.0

    References
    ----------
    Friedman (2001), "Greedy Function Approximation", Algorithm 1 line 1. Marquardt (1963), "An Algorithm for
    Least-Squares Estimation of Nonlinear Parameters".
    """
    dtype = jnp.result_type(float)
    weight = jnp.asarray(rows.weight, dtype)
    if loss.constant is not None and rows.offset is None:
        constant = jnp.asarray(loss.constant(rows.y, weighted_mean(weight, reduce)), dtype)
        return jnp.broadcast_to(constant, (loss.n_outputs or 1,))
    rows = dataclasses.replace(rows, weight=weight)
    share = weight / jax.lax.stop_gradient(total(weight, reduce))
    origin = jnp.zeros(loss.n_outputs or 1, dtype)
    moments, closed_over = with_explicit_closure(_moments_of_loss(loss, reduce), origin, rows, share)
    parameters = (*closed_over, *jax.tree.leaves((rows, share)))
    frozen, rows_frozen, share_frozen = jax.lax.stop_gradient((parameters, rows, share))
    start = _mean_of_target(loss, rows_frozen, share_frozen, reduce)
    minimum = _minimise(lambda constant: moments(constant, *frozen), origin, start, loss.needs_all_rows)
    return _with_implicit_derivative(moments, minimum, *parameters)


def weighted_mean(weight: Float[Array, " n"], reduce: Reduce | None = None) -> Callable[[Any], Array]:
    """Return the function (values [n ...]) -> their mean over the rows, the same bits in any order of the rows.

    The mean of what a first mean leaves corrects it, so that the mean of equal values is that value: a target that is
    constant has no residuals.
    """
    share = weight / total(weight, reduce)

    def mean(values: Any) -> Float[Array, "..."]:
        values = jnp.asarray(values, share.dtype)
        column = per_row(share, values)
        values = jnp.where((column > 0) | jnp.isfinite(values), values, 0)
        near = total(column * values, reduce)
        return near + total(column * (values - near[None]), reduce)

    return mean


class _Moments(NamedTuple):
    """The mean loss at one constant, its derivatives, and the sizes that bound their rounding."""

    value: Array  # []
    value_size: Array  # [] mean of |loss|
    g: Array  # [k]
    g_size: Array  # [k] mean of |g|
    h: Array  # [k k]


class _Search(NamedTuple):
    constant: Array  # [k]
    at: _Moments
    first_g_size: Array  # [k] at the place the steps start from
    damping: Array  # []
    iteration: Array  # []
    done: Array  # []


def _moments_of_loss(loss: Any, reduce: Reduce | None) -> Callable[[Array, Rows, Array], _Moments]:
    """Return the function (constant [k], rows, share of the weight [n]) -> moments of the loss."""

    def moments(constant: Array, rows: Rows, share: Array) -> _Moments:
        def mean(values: Array) -> Array:
            return _mean_by_share(values, share, reduce)

        constant, _ = varying_alike(constant, share)  # or its gradient would be summed over the devices
        value, g, h = _at_constant(loss, constant, rows, mean)
        return _Moments(mean(value)[0], mean(jnp.abs(value))[0], mean(g), mean(jnp.abs(g)), (h + h.T) / 2)

    return moments


def _at_constant(
    loss: Any, constant: Array, rows: Rows, mean: Callable[[Array], Array]
) -> tuple[Float[Array, "1 n"], Float[Array, "k n"], Float[Array, "k k"]]:
    """Return value and g of the rows, which lie last for XLA's loops to run along them, and the mean Hessian."""

    def at(constant: Array) -> tuple[Array, Array]:
        return _value_and_grad(loss, constant, rows)

    if loss.curvature is not None or loss.hessian == "first_order":
        return *at(constant), _curvature_without_tangents(loss, constant, rows, mean)
    if constant.size == 1:
        (value, g), (_, dg) = jax.jvp(at, (constant,), (jnp.ones_like(constant),))
        return value, g, mean(dg)[None]
    (value, g), tangent = jax.linearize(at, constant)
    units = jnp.eye(constant.size, dtype=constant.dtype)
    return value, g, jax.lax.map(lambda step: mean(tangent(step)[1]), units)


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


def _mean_by_share(
    values: Float[Array, "k n"], share: Float[Array, " n"], reduce: Reduce | None
) -> Float[Array, " k"]:
    """Sum share * values over the rows."""
    counts = (share > 0)[None] | jnp.isfinite(values)  # so that a weight of 0 has a derivative too
    products = jnp.where(counts, share[None] * values, 0)
    return jax.vmap(lambda row: total(row, reduce))(products)


def _mean_of_target(loss: Any, rows: Rows, share: Array, reduce: Reduce | None) -> Float[Array, " k"]:
    """Return the mean of y when it has one value per score, else 0: a second place to start from."""
    y, k = rows.y, loss.n_outputs or 1
    is_score = hasattr(y, "shape") and y.shape[1:] == (() if loss.n_outputs is None else (k,))
    if loss.allow_nan or loss.needs_all_rows or not is_score:
        return jnp.zeros(k, share.dtype)
    target = jnp.asarray(y, share.dtype).reshape(-1, k)
    target = target if rows.offset is None else target - rows.offset
    return total(jnp.where(share[:, None] > 0, share[:, None] * target, 0), reduce)


def _minimise(moments: Callable[[Array], _Moments], origin: Array, start: Array, may_be_level: bool) -> Array:
    """Minimise by Newton steps damped as in Marquardt (1963), from the better of two places.

    Where the loss may not depend on the constant at all, while its weighted derivatives do not sum to 0, a step must
    make the slope clearly smaller, and the search soon gives up.
    """
    eps = jnp.finfo(origin.dtype).eps

    def advance(state: _Search) -> _Search:
        step = _damped_step(state.at, state.damping)
        place = jnp.where(state.iteration == 0, origin, start)
        starting = state.iteration < 2
        trial = jnp.where(starting, place, state.constant + step)
        at = moments(trial)
        accept = jnp.where(starting, at.value < state.at.value, _is_better(at, state.at, step, may_be_level))
        constant, at = jax.tree.map(
            lambda a, b: jnp.where(accept, a, b), (trial, at), (state.constant, state.at)
        )
        damping = jnp.where(accept, jnp.maximum(state.damping / 8, eps**2), state.damping * 4)
        first_g_size = jnp.where(starting, at.g_size, state.first_g_size)
        # Flat up to rounding, or so much flatter than at the start that the minimum must lie at infinity.
        flat = jnp.abs(at.g) <= jnp.maximum(ROUNDING * eps * at.g_size, eps**2 * first_g_size)
        at_rest = (jnp.abs(step) <= eps / 2 * jnp.abs(state.constant)) & (~accept | (state.damping < 1))
        done = jnp.all(flat | at_rest)
        if may_be_level:
            done |= damping > HOPELESS_DAMPING
        return _Search(constant, at, first_g_size, damping, state.iteration + 1, done & ~starting)

    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(moments, origin))
    nowhere = nowhere._replace(value=jnp.full_like(nowhere.value, jnp.inf))
    damping = jnp.asarray(1e-3, origin.dtype)
    state = _Search(origin, nowhere, nowhere.g_size, damping, jnp.asarray(0), jnp.asarray(False))
    state = jax.lax.while_loop(lambda s: ~s.done & (s.iteration < MAX_ITERATIONS), advance, state)
    return state.constant


def _is_better(new: _Moments, old: _Moments, step: Array, may_be_level: bool) -> Array:
    """Accept a clear decrease, or within the rounding of the mean loss a smaller slope."""
    rounding = ROUNDING * jnp.finfo(step.dtype).eps * old.value_size
    change = new.value - old.value
    slope, old_slope = jnp.abs(new.g @ step), jnp.abs(old.g @ step)
    flatter = (slope < old_slope) | ((slope == old_slope) & (change <= 0))  # or steps might go back and forth
    if may_be_level:
        flatter = slope < CLEARLY_FLATTER * old_slope
    finite = jnp.isfinite(change) & jnp.all(jnp.isfinite(new.g)) & jnp.all(jnp.isfinite(new.h))
    return finite & ((change < -rounding) | ((change <= rounding) & flatter))


def _damped_step(at: _Moments, damping: Array) -> Array:
    """Return -(|H| + damping diag H)^-1 g without the directions in which g is only rounding."""
    scale, values, vectors = _scaled_eigen(at.h)
    slope = vectors.T @ (scale * at.g)
    rounding = ROUNDING * jnp.finfo(slope.dtype).eps * (jnp.abs(vectors).T @ (scale * at.g_size))
    slope = jnp.where(jnp.abs(slope) <= rounding, 0, slope)
    return -scale * (vectors @ (slope / (jnp.abs(values) + damping)))


def _scaled_eigen(h: Array) -> tuple[Array, Array, Array]:
    """Return S and the eigenvalues and vectors of S H S, whose diagonal is one (zero where that of H is)."""
    diagonal = jnp.abs(jnp.diag(h))
    scale = jnp.where(diagonal > 0, jax.lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1)), 1)
    scaled = scale[:, None] * h * scale[None, :]
    if h.shape == (1, 1):
        return scale, scaled[0], jnp.ones_like(h)
    values, vectors = jnp.linalg.eigh(scaled)
    return scale, values, vectors


def _with_implicit_derivative(moments: Callable[..., _Moments], minimum: Array, *parameters: Any) -> Array:
    """Return `minimum` with the derivatives of the solution c of G(c, parameters) = 0: dc = -H^-1 dG.

    A direction in which the loss is flat has none.
    """

    @jax.custom_jvp
    def solution(minimum: Array, *parameters: Any) -> Array:
        return minimum

    def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
        constant = solution(*primals)  # so that the derivative can be differentiated in turn
        moving = [i for i, t in enumerate(tangents) if i > 0 and not isinstance(t, SymbolicZero)]

        def slope_and_curvature(*moved: Any) -> tuple[Array, Array]:
            place = dict(zip(moving, moved, strict=True))
            at = moments(constant, *(place.get(i, primals[i]) for i in range(1, len(primals))))
            return at.g, at.h

        at, change = [primals[i] for i in moving], [tangents[i] for i in moving]
        _, dg, h = jax.jvp(slope_and_curvature, at, change, has_aux=True)
        return constant, _solve(h, -dg)

    solution.defjvp(rule, symbolic_zeros=True)
    return solution(minimum, *parameters)


def _solve(h: Array, b: Array) -> Array:
    """Return H^-1 b, without the directions in which H is flat; the derivatives are those of the solution."""
    scale, values, vectors = _scaled_eigen(jax.lax.stop_gradient(h))
    flat = values <= 10 * values.size * jnp.finfo(values.dtype).eps * jnp.max(values, initial=0)
    inverse = jnp.where(flat, 0, 1 / jnp.where(flat, 1, values))

    def apply_inverse(_: Any, b: Array) -> Array:
        return scale * (vectors @ (inverse * (vectors.T @ (scale * b))))

    return jax.lax.custom_linear_solve(lambda x: h @ x, b, apply_inverse, symmetric=True)
