"""The best constant score under a loss: where boosting starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._objective.damped_newton import Place, minimise
from jboost._objective.derivatives import lacks_derivative
from jboost._objective.moments import Moments, moments_of_loss
from jboost._objective.rows import Rows, per_row
from jboost._objective.symmetric import solve
from jboost._runtime.closures import with_explicit_closure
from jboost._runtime.typing import Reduce

FAR = 64.0  # times the deviation, or 1: a target so far off has units of its own


def best_constant(loss: Any, rows: Rows, reduce: Reduce | None = None) -> Float[Array, " k"]:
    """Return F0 = argmin over c of sum_i w_i loss(c + offset_i, y_i).

    A loss may bring a formula for it, `constant`, for rows without offset. Else it is found by damped Newton steps,
    then one differentiable step whose derivative by weights, targets and the parameters of the loss is that of the
    implicit function. Where JAX cannot differentiate a first derivative again, differences of it serve the steps. Rows
    of weight 0 do not count, even when their loss is NaN.

    Where there is no minimum the result is finite all the same:

    - where it lies at infinity (a Poisson target of zeros, a class that does not occur, degrees of freedom of a normal
      target), what is left to gain is lost in rounding;
    - where the loss falls without a bound (the deviation of a constant target), it is the last place that floats reach,
      a logarithm of about -88;
    - where the loss does not depend on c at all, as in a ranking, it is 0;
    - where outputs could change places, as the parts of a mixture, they may stay equal, or one part may vanish: the
      result is a stationary point, not the best one. Give a `base_score` then.

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
    moments, parameters = _explicit_moments(loss, reduce, origin, rows, share)
    frozen, rows_frozen, share_frozen = jax.lax.stop_gradient((parameters, rows, share))
    start = _place_of_target(loss, rows_frozen, share_frozen, reduce)
    minimum = minimise(lambda constant: moments(constant, *frozen), origin, start, loss.needs_all_rows)
    if loss.curvature is not None:  # it serves the search; the derivative is that by the second derivatives
        loss = dataclasses.replace(loss, curvature=None)
        moments, parameters = _explicit_moments(loss, reduce, origin, rows, share)
    return _with_implicit_derivative(moments, minimum.constant, *parameters)


def _explicit_moments(
    loss: Any, reduce: Reduce | None, *place: Any
) -> tuple[Callable[..., Moments], tuple[Any, ...]]:
    """Return the function (constant, *parameters) -> moments, and the parameters: all that the moments depend on."""
    try:
        moments, closed_over = with_explicit_closure(moments_of_loss(loss, reduce), *place)
    except (TypeError, ValueError, NotImplementedError) as error:
        if not lacks_derivative(error):
            raise
        moments, closed_over = with_explicit_closure(moments_of_loss(loss, reduce, by_slope=True), *place)
    return moments, (*closed_over, *jax.tree.leaves(place[1:]))


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


def _place_of_target(loss: Any, rows: Rows, share: Array, reduce: Reduce | None) -> Place:
    """Return a second place to start from: the mean of y where it has one value per score, else 0.

    Where there are more scores than values, the first ones are often locations and the next ones logarithms of scales.
    So for a target far from 0 or from a spread of 1 they are its means and log deviations: from 0, a search for the
    scale goes where the location has no slope left.
    """
    y, k = rows.y, loss.n_outputs or 1
    shape = getattr(y, "shape", (0,) * 3)
    m = int(np.prod(shape[1:]))
    is_score = shape[1:] == () or (len(shape) == 2 and loss.n_outputs is not None)
    nowhere = jnp.zeros(k, share.dtype)
    if loss.allow_nan or not is_score or m > k:
        return Place(nowhere, nowhere)
    target = jnp.asarray(y, share.dtype).reshape(-1, m)
    target = target if rows.offset is None else target - rows.offset[:, :m]

    def mean(values: Array) -> Array:
        return total(jnp.where(share[:, None] > 0, share[:, None] * values, 0), reduce)

    location = mean(target)
    if m == k:
        return Place(location, nowhere)
    deviation = mean(jnp.abs(target - location[None]))
    log_scale = jnp.log(jnp.where(deviation > 0, deviation, 1))
    is_far = (jnp.abs(location) > FAR * deviation) | (jnp.abs(log_scale) > np.log(FAR))
    constant = jnp.concatenate([location, log_scale, nowhere])[:k]
    return Place(jnp.where(jnp.any(is_far), constant, 0), jnp.concatenate([deviation, nowhere])[:k])


def _with_implicit_derivative(moments: Callable[..., Moments], minimum: Array, *parameters: Any) -> Array:
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
        return constant, solve(h, -dg)

    solution.defjvp(rule, symbolic_zeros=True)
    return solution(minimum, *parameters)
