"""The best constant score under a loss: where boosting starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._fixed_point.quantile import weighted_quantile
from jboost._objective.loss import Loss, Quantile, resolve_outputs
from jboost._runtime.typing import Reduce, identity, varying_alike

MAX_ITERATIONS = 100
ROUNDING = 16  # units of rounding below which a mean over the rows is taken for noise


def best_constant(
    loss: Loss, y: Any, weight: Float[Array, " n"], reduce: Reduce = identity
) -> Float[Array, ""] | Float[Array, " k"]:
    """Return F0 = argmin over c of sum_i w_i loss(c, y_i).

    A loss with a `Quantile` leaf rule starts from the weighted quantile of y; any other is minimised by
    damped Newton steps, then one differentiable step whose derivative by `weight` and `y` is that of the
    implicit function. Rows of weight 0 do not count, even when their loss is NaN. Where the minimum lies at
    infinity (a Poisson target of zeros, one class only) the result is finite and its gradient negligible.

    Parameters
    ----------
    loss : Loss
    y : pytree of arrays
        Target; every leaf has n as its leading axis.
    weight : [n]
        Non-negative, not all 0.
    reduce : callable, default identity
        Sums a partial result over devices.

    Returns
    -------
    [] or [k], of JAX's default floating dtype.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation", Algorithm 1 line 1. Marquardt (1963), "An Algorithm for
    Least-Squares Estimation of Nonlinear Parameters".
    """
    n_outputs = resolve_outputs(loss, y)
    dtype = jnp.result_type(float)
    weight = jnp.asarray(weight, dtype)
    if isinstance(loss.leaf, Quantile):
        return _quantile_of_target(loss.leaf, n_outputs, y, weight, reduce)
    share = weight / jax.lax.stop_gradient(total(weight, reduce))
    origin = jnp.zeros(n_outputs or 1, dtype)
    moments, closed_over = _with_explicit_closure(
        _mean_loss(loss, n_outputs is None, reduce), origin, y, share
    )
    parameters = (*closed_over, *jax.tree.leaves((y, share)))
    frozen, y_frozen, share_frozen = jax.lax.stop_gradient((parameters, y, share))
    start = _mean_of_target(n_outputs, y_frozen, share_frozen, reduce)
    minimum = _minimise(lambda constant: moments(constant, *frozen), origin, start)
    constant = _with_implicit_derivative(moments, minimum, *parameters)
    return constant[0] if n_outputs is None else constant


def _quantile_of_target(
    leaf: Quantile, n_outputs: int | None, y: Any, weight: Array, reduce: Reduce
) -> Array:
    if not hasattr(y, "shape") or y.shape[1:] != (() if n_outputs is None else (n_outputs,)):
        raise ValueError(
            "y must be one array with a value per score for a loss with a Quantile leaf rule; "
            f"got {jax.tree.map(jnp.shape, y)}"
        )
    y = jnp.asarray(y, weight.dtype)
    if n_outputs is None:
        return weighted_quantile(y, weight, leaf.level, reduce)
    return jnp.stack([weighted_quantile(column, weight, leaf.level, reduce) for column in y.T])


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


def _mean_loss(loss: Loss, scalar: bool, reduce: Reduce) -> Callable[[Array, Any, Array], _Moments]:
    """Return the function (constant [k], y, share of the weight [n]) -> moments of the loss."""

    def moments(constant: Array, y: Any, share: Array) -> _Moments:
        def mean(values: Array) -> Array:
            return _mean_by_share(values, share, reduce)

        def at(constant: Array) -> tuple[Array, Array]:
            """Return the value [1 n] and g [k n]: rows last, for XLA's loops to run along them."""
            score = constant[0] if scalar else constant
            value, g = jax.vmap(lambda y: jax.value_and_grad(loss.function)(score, y), out_axes=-1)(y)
            return value[None], jnp.reshape(g, (constant.size, share.size))

        constant, _ = varying_alike(constant, share)  # or its gradient would be summed over the devices
        if scalar:
            (value, g), (_, dg) = jax.jvp(at, (constant,), (jnp.ones_like(constant),))
            h = mean(dg)[None]
        else:
            (value, g), tangent = jax.linearize(at, constant)
            h = jax.lax.map(lambda step: mean(tangent(step)[1]), jnp.eye(constant.size, dtype=constant.dtype))
            h = (h + h.T) / 2
        return _Moments(mean(value)[0], mean(jnp.abs(value))[0], mean(g), mean(jnp.abs(g)), h)

    return moments


def _mean_by_share(
    values: Float[Array, "k n"], share: Float[Array, " n"], reduce: Reduce
) -> Float[Array, " k"]:
    """Sum share * values over the rows."""
    counts = (share > 0)[None] | jnp.isfinite(values)  # so that a weight of 0 has a derivative too
    products = jnp.where(counts, share[None] * values, 0)
    return jax.vmap(lambda row: total(row, reduce))(products)


def _mean_of_target(n_outputs: int | None, y: Any, share: Array, reduce: Reduce) -> Array:
    """Return the mean of y when it has one value per score, else 0: a second place to start from."""
    k = n_outputs or 1
    if not hasattr(y, "shape") or y.shape[1:] != (() if n_outputs is None else (k,)):
        return jnp.zeros(k, share.dtype)
    share = share[:, None]
    rows = jnp.asarray(y, share.dtype).reshape(-1, k)
    return total(jnp.where(share > 0, share * rows, 0), reduce)


def _minimise(moments: Callable[[Array], _Moments], origin: Array, start: Array) -> Array:
    """Minimise by Newton steps damped as in Marquardt (1963), from the better of two places."""
    eps = jnp.finfo(origin.dtype).eps

    def advance(state: _Search) -> _Search:
        step = _damped_step(state.at, state.damping)
        place = jnp.where(state.iteration == 0, origin, start)
        starting = state.iteration < 2
        trial = jnp.where(starting, place, state.constant + step)
        at = moments(trial)
        accept = jnp.where(starting, at.value < state.at.value, _is_better(at, state.at, step))
        constant, at = jax.tree.map(
            lambda a, b: jnp.where(accept, a, b), (trial, at), (state.constant, state.at)
        )
        damping = jnp.where(accept, jnp.maximum(state.damping / 8, eps**2), state.damping * 4)
        first_g_size = jnp.where(starting, at.g_size, state.first_g_size)
        # Flat up to rounding, or so much flatter than at the start that the minimum must lie at infinity.
        flat = jnp.abs(at.g) <= jnp.maximum(ROUNDING * eps * at.g_size, eps**2 * first_g_size)
        at_rest = (jnp.abs(step) <= eps / 2 * jnp.abs(state.constant)) & (~accept | (state.damping < 1))
        done = jnp.all(flat | at_rest)
        return _Search(constant, at, first_g_size, damping, state.iteration + 1, done & ~starting)

    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(moments, origin))
    nowhere = nowhere._replace(value=jnp.full_like(nowhere.value, jnp.inf))
    damping = jnp.asarray(1e-3, origin.dtype)
    state = _Search(origin, nowhere, nowhere.g_size, damping, jnp.asarray(0), jnp.asarray(False))
    state = jax.lax.while_loop(lambda s: ~s.done & (s.iteration < MAX_ITERATIONS), advance, state)
    return state.constant


def _is_better(new: _Moments, old: _Moments, step: Array) -> Array:
    """Accept a clear decrease, or within the rounding of the mean loss a smaller slope."""
    rounding = ROUNDING * jnp.finfo(step.dtype).eps * old.value_size
    change = new.value - old.value
    slope, old_slope = jnp.abs(new.g @ step), jnp.abs(old.g @ step)
    flatter = (slope < old_slope) | ((slope == old_slope) & (change <= 0))  # or steps might go back and forth
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


def _with_explicit_closure(
    function: Callable[..., Any], *examples: Any
) -> tuple[Callable[..., Any], list[Array]]:
    """Return the function of (what it closes over, leaves of its arguments), and the arrays it closes over.

    So the loop can be kept from being differentiated by them, and the derivative below can be. Unlike
    `jax.closure_convert` this takes integers too, which a rule may not close over while they are traced.
    """
    program, shapes = jax.make_jaxpr(function, return_shape=True)(*examples)
    structure, n_closed_over = jax.tree.structure(shapes), len(program.consts)

    def explicit(first: Array, *rest: Array) -> Any:
        closed_over, arguments = rest[:n_closed_over], rest[n_closed_over:]
        results = jax.core.eval_jaxpr(program.jaxpr, closed_over, first, *arguments)
        return jax.tree.unflatten(structure, results)

    return explicit, program.consts


def _with_implicit_derivative(moments: Callable[..., _Moments], minimum: Array, *parameters: Array) -> Array:
    """Return `minimum` with the derivatives of the solution c of G(c, parameters) = 0: dc = -H^-1 dG.

    A direction in which the loss is flat has none.
    """

    @jax.custom_jvp
    def solution(minimum: Array, *parameters: Array) -> Array:
        return minimum

    def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
        constant = solution(*primals)  # so that the derivative can be differentiated in turn
        moving = [i for i, t in enumerate(tangents) if i > 0 and not isinstance(t, SymbolicZero)]

        def slope_and_curvature(*moved: Array) -> tuple[Array, Array]:
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
