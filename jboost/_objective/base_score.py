"""The best constant score under a loss: where boosting starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float

from jboost._fixed_point import find_scale, sum_by_group, total
from jboost._objective.derivatives import lacks_derivative
from jboost._objective.differences import hessian_by_differences
from jboost._objective.rows import Rows, per_row
from jboost._objective.searching import found_by
from jboost._runtime.closures import with_explicit_closure
from jboost._runtime.typing import FIXED_POINT_BITS, Reduce, varying_alike

MAX_ITERATIONS = 300
CLEARLY_FLATTER = 0.9
HARDLY_HIGHER = 0.01  # of a mean loss: so much may it rise where the slope falls
HOPELESS_DAMPING = 1e6
ROUNDING = 8  # units of rounding below which a mean over the rows is taken for noise
FIRST_DAMPING = 1e-3
LEAST_DAMPING = 1 / 64  # after a step that failed: less would hardly change the step
HARDLY_FLATTER = 0.3  # times the slope before: towards infinity a Newton step leaves 1/e of it
BOUND = 4.0  # on a step, times 1 or the size of the score
SIZES = 5  # of a score, doubled from that of the bound, to look for a finite loss
EDGE = 1e-3  # of a score: so short a step out of the range of the floats means a loss without a bound


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

    def explicit(loss: Any) -> tuple[Callable[..., _Moments], tuple[Any, ...]]:
        try:
            moments, closed_over = with_explicit_closure(_moments_of_loss(loss, reduce), origin, rows, share)
        except (TypeError, ValueError, NotImplementedError) as error:
            if not lacks_derivative(error):
                raise
            by_slope = _moments_of_loss(loss, reduce, by_slope=True)
            moments, closed_over = with_explicit_closure(by_slope, origin, rows, share)
        return moments, (*closed_over, *jax.tree.leaves((rows, share)))

    moments, parameters = explicit(loss)
    frozen, rows_frozen, share_frozen = jax.lax.stop_gradient((parameters, rows, share))
    start = _mean_of_target(loss, rows_frozen, share_frozen, reduce)
    minimum = _minimise(lambda constant: moments(constant, *frozen), origin, start, loss.needs_all_rows)
    if (
        loss.curvature is not None
    ):  # which serves the search; the derivative is that by the second derivatives
        moments, parameters = explicit(dataclasses.replace(loss, curvature=None))
    return _with_implicit_derivative(moments, minimum.constant, *parameters)


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


class _Search(NamedTuple):
    constant: Array  # [k] the best place so far
    at: _Moments
    trial: Array  # [k] the place to look at next
    gain: Array  # [] twice what a parabola through the best place promises
    limited: Array  # [] whether the bound on steps brought the trial nearer
    largest: Array  # [] value_size so far
    damping: Array  # []
    reach: Array  # [k] above 1 times a Newton step, or times the bound if that limits; below 1 a share of the bound
    fails: Array  # [] in a row
    iteration: Array  # []
    done: Array  # []


def _moments_of_loss(
    loss: Any, reduce: Reduce | None, by_slope: bool = False
) -> Callable[[Array, Rows, Array], _Moments]:
    """Return the function (constant [k], rows, share of the weight [n]) -> moments of the loss.

    `by_slope` says whether the first derivatives of the loss are all that JAX can tell.
    """

    def moments(constant: Array, rows: Rows, share: Array) -> _Moments:
        def mean(values: Array) -> tuple[Array, Array]:
            return _mean_and_size(values, share, reduce)

        def slope_at(place: Array) -> Array:
            return mean(_value_and_grad(loss, place, rows)[1])[0]

        constant, _ = varying_alike(constant, share)  # or its gradient would be summed over the devices
        k = constant.size
        if by_slope:
            means, sizes = mean(jnp.concatenate(_value_and_grad(loss, constant, rows)))
            h = found_by(lambda place: hessian_by_differences(slope_at, place, sizes[1:]), constant)
            return _Moments(means, sizes, h)
        by_row, h = _at_constant(loss, constant, rows, lambda values: mean(values)[0])
        means, sizes = mean(by_row)  # in one sum, which is sooner compiled than several
        h = means[1 + k :, None] if h is None else (h + h.T) / 2
        return _Moments(means[: 1 + k], sizes[: 1 + k], h)

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


def _mean_of_target(loss: Any, rows: Rows, share: Array, reduce: Reduce | None) -> Float[Array, " k"]:
    """Return the mean of y when it has one value per score, else 0: a second place to start from."""
    y, k = rows.y, loss.n_outputs or 1
    is_score = hasattr(y, "shape") and y.shape[1:] == (() if loss.n_outputs is None else (k,))
    if loss.allow_nan or loss.needs_all_rows or not is_score:
        return jnp.zeros(k, share.dtype)
    target = jnp.asarray(y, share.dtype).reshape(-1, k)
    target = target if rows.offset is None else target - rows.offset
    return total(jnp.where(share[:, None] > 0, share[:, None] * target, 0), reduce)


def _minimise(
    moments: Callable[[Array], _Moments], origin: Array, start: Array, may_be_level: bool
) -> _Search:
    """Minimise by Newton steps damped as in Marquardt (1963), from the better of two places.

    Nothing is known of the units of the scores. So steps are bounded by the size of the score, and the bound, or else
    the Newton step itself, is doubled as long as the slope does not change its sign: a score of 1e9, or a logarithm of
    1e-9, is reached in a few passes over the rows, and so is a place towards infinity where nothing is left to gain.

    Where the loss may not depend on the constant at all, while its weighted derivatives do not sum to 0, a step must
    make the slope clearly smaller, and the search soon gives up.
    """
    eps = jnp.finfo(origin.dtype).eps

    def advance(state: _Search) -> _Search:
        new, step = moments(state.trial), state.trial - state.constant
        starting = (state.iteration < 2) | ~jnp.isfinite(state.at.value)
        finite = jnp.all(jnp.isfinite(new.means))
        is_better = _is_better(new, state.at, step, may_be_level)
        accept = finite & jnp.where(starting, new.value < state.at.value, is_better)
        constant, at = jax.tree.map(
            lambda new, old: jnp.where(accept, new, old), (state.trial, new), (state.constant, state.at)
        )
        largest = jnp.maximum(state.largest, jnp.where(accept, at.value_size, 0))
        fails, damping, reach = _adapted(state, new, step, accept | starting, starting)
        bound = jnp.where(state.limited, reach, jnp.minimum(reach, 1))
        bound = BOUND * bound * jnp.maximum(1, jnp.abs(constant))
        newton, gain, limited = _damped_step(at, damping, bound, largest)
        is_lost = limited & jnp.all(constant + newton == constant)
        newton = jnp.where(is_lost, _steps_apart(at, bound), newton)
        longer = newton * jnp.where(state.limited, 1, jnp.maximum(reach, 1))
        nowhere_finite = ~jnp.isfinite(at.value)
        trial = jnp.where(nowhere_finite, _elsewhere(origin, state.iteration), constant + longer)
        trial = jnp.where(state.iteration == 0, start, trial)
        reach = jnp.where(state.limited & ~limited, 1, reach)
        # A Newton step of so little gain that fails shows the rounding of the slope.
        at_floor = ~accept & ~state.limited & jnp.all(state.reach <= 1) & (state.damping < 1)
        at_floor &= state.gain <= ROUNDING * eps * at.value_size
        at_edge = ~finite & jnp.all(jnp.abs(step) <= EDGE * jnp.abs(constant))
        done = jnp.all(trial == constant) | at_floor | at_edge
        if may_be_level:
            done |= damping > HOPELESS_DAMPING
        iteration = state.iteration + 1
        done = jnp.where(starting, nowhere_finite & (state.iteration > 2 * origin.size * SIZES), done)
        return _Search(constant, at, trial, gain, limited, largest, damping, reach, fails, iteration, done)

    nowhere = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(moments, origin))
    nowhere = nowhere._replace(means=nowhere.means.at[0].set(jnp.inf))
    zero, none, no = jnp.zeros((), origin.dtype), jnp.asarray(0), jnp.asarray(False)
    reach, damping = jnp.ones_like(origin), zero + FIRST_DAMPING
    state = _Search(origin, nowhere, origin, zero, no, zero, damping, reach, none, none, no)
    return jax.lax.while_loop(lambda s: ~s.done & (s.iteration < MAX_ITERATIONS), advance, state)


def _is_better(new: _Moments, old: _Moments, step: Array, may_be_level: bool) -> Array:
    """Accept a clear decrease, or within the rounding of the mean loss a smaller slope along the step.

    The weights of rows that depend on each other make slopes that are those of no mean loss: then the slope decides
    where the two disagree, near the place where it is 0.
    """
    rounding = ROUNDING * jnp.finfo(step.dtype).eps * old.value_size
    change = new.value - old.value
    slope, old_slope = jnp.sum(new.g * step), jnp.abs(jnp.sum(old.g * step))
    if may_be_level:
        flatter = (jnp.abs(slope) < CLEARLY_FLATTER * old_slope) & (change <= HARDLY_HIGHER * old.value_size)
        return flatter | ((change < -rounding) & (slope <= 0))
    size = jnp.abs(slope)
    flatter = (size < old_slope) | ((size == old_slope) & (change <= 0))  # or steps might go back and forth
    return (change < -rounding) | ((change <= rounding) & flatter)


def _adapted(
    state: _Search, new: _Moments, step: Array, accept: Array, starting: Array
) -> tuple[Array, Array, Array]:
    """Return the failures in a row, the damping and the reach after a step.

    What fails is undone in this order: the lengthening of a step, the bound that limits it, the damping.
    """
    limited, lengthened = state.limited, jnp.any(state.reach > 1)
    fails = jnp.where(accept, 0, state.fails + 1)
    # After a failure one step is taken as it is, or every second one would fail.
    may_go_on = (state.fails == 0) & ~starting
    old_slope = jnp.sum(state.at.g * step)
    left = jnp.sum(new.g * step) / jnp.where(old_slope == 0, 1, old_slope)
    goes_on = may_go_on & (left > jnp.where(limited | lengthened, 0, HARDLY_FLATTER))
    # Of the outputs only those whose own slope is left: those that are where they should be stay there.
    least = jnp.where(state.reach > 1, 0, HARDLY_FLATTER)
    goes_on &= limited | (new.g * jnp.sign(state.at.g) > least * jnp.abs(state.at.g))
    longer = jnp.where(goes_on, 2 * state.reach, jnp.minimum(1, 2 * state.reach))
    shorter = jnp.where(limited & ~lengthened, state.reach / 4, jnp.minimum(state.reach, 1))
    # A large damping belongs to the place where it was found.
    less = jnp.minimum(state.damping, jnp.sqrt(state.damping)) / 8
    more = jnp.maximum(state.damping, LEAST_DAMPING) * 4.0**fails
    more = jnp.where(lengthened | limited, state.damping, more)
    damping = jnp.maximum(jnp.where(accept, less, more), jnp.finfo(step.dtype).eps ** 2)
    return fails, damping, jnp.where(accept, longer, shorter)


def _damped_step(at: _Moments, damping: Array, bound: Array, largest: Array) -> tuple[Array, Array, Array]:
    """Return -(|H| + damping diag H)^-1 g, damped further until it is within the bound; g |H|^-1 g; whether it had to.

    Left out are directions in which g is only rounding, and outputs by which all rows together can gain nothing that
    counts: those whose minimum lies at infinity.
    """
    eps = jnp.finfo(at.g.dtype).eps
    # Where second derivatives overflow, those of an exponential: as large as the first ones.
    unit = jnp.eye(at.g.size, dtype=at.g.dtype)
    h = jnp.where(jnp.all(jnp.isfinite(at.h)), at.h, unit * jnp.abs(at.g)[None])
    gone = jnp.square(at.g_size) <= eps**2 * jnp.minimum(largest, 1) * jnp.abs(_diagonal(h))
    scale, values, vectors = _scaled_eigen(h)
    slope = _along(vectors, scale * jnp.where(gone, 0, at.g))
    rounding = ROUNDING * eps * _along(jnp.abs(vectors), scale * at.g_size)
    slope = jnp.where(jnp.abs(slope) <= rounding, 0, slope)
    size = jnp.abs(values)
    gain = jnp.sum(jnp.where(slope == 0, 0, jnp.square(slope) / size))
    per_bound = jnp.abs(vectors) * (scale / bound)[:, None]
    least = jnp.max(per_bound * jnp.abs(slope)[None] - size[None])
    step = -scale * _along(vectors.T, slope / (size + jnp.maximum(damping, least)))
    return step, gain, least > damping


def _steps_apart(at: _Moments, bound: Array) -> Array:
    """Return the step of each output alone, within its bound.

    An output that hardly bends has the others damped with it, until rounding takes the steps of all.
    """
    size = jnp.abs(at.g)
    return -at.g / jnp.where(size > 0, jnp.abs(_diagonal(at.h)) + size / bound, 1)


def _elsewhere(origin: Array, turn: Array) -> Array:
    """Return where to look for a finite loss after 0 and the mean: one output at 4, -4, 8, ... -64, the others 0."""
    k = origin.size
    doubled, place = jnp.divmod(turn - 1, 2 * k)
    size = jnp.where(place < k, BOUND, -BOUND) * jnp.exp2(doubled.astype(origin.dtype))
    return jnp.where(jnp.arange(k) == place % k, size, origin)


def _along(vectors: Array, column: Array) -> Array:
    """Multiply as a sum, which is sooner compiled than a product of matrices."""
    return jnp.sum(vectors * column[:, None], axis=0)


def _diagonal(h: Array) -> Array:
    return jnp.sum(jnp.where(jnp.eye(h.shape[0], dtype=bool), h, 0), axis=0)  # sooner compiled than jnp.diag


def _scaled_eigen(h: Array) -> tuple[Array, Array, Array]:
    """Return S and the eigenvalues and vectors of S H S, whose diagonal is one (zero where that of H is)."""
    diagonal = jnp.abs(_diagonal(h))
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
        return constant, solve(h, -dg)

    solution.defjvp(rule, symbolic_zeros=True)
    return solution(minimum, *parameters)


def solve(h: Array, b: Array) -> Array:
    """Return H^-1 b, without the directions in which H is flat; the derivatives are those of the solution."""
    scale, values, vectors = _scaled_eigen(jax.lax.stop_gradient(h))
    flat = values <= 10 * values.size * jnp.finfo(values.dtype).eps * jnp.max(values, initial=0)
    inverse = jnp.where(flat, 0, 1 / jnp.where(flat, 1, values))

    def apply_inverse(_: Any, b: Array) -> Array:
        return scale * (vectors @ (inverse * (vectors.T @ (scale * b))))

    return jax.lax.custom_linear_solve(lambda x: h @ x, b, apply_inverse, symmetric=True)
