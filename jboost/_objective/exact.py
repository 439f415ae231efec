"""The leaf rule that minimises the loss itself, instead of a parabola."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point import total, totals
from jboost._objective.base_score import best_constant
from jboost._objective.derivatives import ROUNDING, value_by_row
from jboost._objective.leaf_rules import newton_step, with_second_derivatives
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows
from jboost._objective.searching import (
    SHORTEST,
    Model,
    descend,
    divided,
    found_by,
    golden_section,
    with_derivatives_of,
)
from jboost._objective.symmetric import solve
from jboost._runtime.arguments import check_choice
from jboost._runtime.typing import Reduce
from jboost._split import leaf_value, limit_step
from jboost._tree import take_leaves

Search = Literal["newton", "golden_section"]
CAP = 2.0**12  # times the loss of all rows: by so much at most may a row rise, or sums would lose the others
MOST_ROUNDED = 60  # passes of outputs that are minimised together, by a diagonal


def check_search(search: Any) -> None:
    """Raise unless it names a search."""
    if search is not None:
        check_choice("search", search, get_args(Search), " or None")


def search_for(loss: Any, search: Search | None) -> Search:
    """Return how minima are searched for: by values where the loss has no second derivative to step by."""
    return search or ("golden_section" if loss.hessian == "first_order" else "newton")


@jax.tree_util.register_static
@dataclass(frozen=True)
class Exact:
    r"""Leaf rule: the value with which the loss of the rows in the leaf is least, whatever the loss.

    .. math:: \gamma_j = \arg\min_\gamma \sum_{i \in R_j} w_i L(y_i, F(x_i) + \gamma)
        + \frac{\lambda}{2} \gamma^2 + \alpha |\gamma|, \qquad |\gamma| \le \text{max\_delta\_step}

    Splits are chosen as the `hessian` of the loss says: with ``"first_order"`` they are the least-squares splits of the
    negative gradient, and the whole is gradient tree boosting as in the textbook.

    Parameters
    ----------
    search : {"newton", "golden_section"} or None, default None
        "newton" takes Newton steps with backtracking, by the second derivatives of the loss also where it has
        ``hessian="first_order"``; "golden_section" looks at values of the loss alone, for one that has none, output by
        output. None chooses the golden section for a loss with ``hessian="first_order"``, else Newton steps.

    Raises
    ------
    ValueError
        For another search, and when the loss is one of a group or of all rows, whose leaves depend on each other.

    Notes
    -----
    The leaves of a vector of outputs are minimised together by Newton steps. Where each output has trees of its own
    (``multi_output="separate"``), and by the golden section, each output is minimised with the others as they were
    before the round: for a loss that is a sum over the outputs that is the same.

    Where a leaf has no minimum (all its rows in one class and no penalty), the search ends where nothing is left to
    gain in the floats. The golden section finds the minimum of a convex loss to about the root of the rounding, and a
    kink, such as a median, to the rounding; `Quantile` is exact and faster there.

    What is left of a value after shrinkage lowers the loss of its leaf too: where that of a loss that is not convex
    would rise, the value is halved. With trees for each output, the steps of all of them together may still raise it.

    The derivative of a leaf value is that of the implicit function, by the true second derivatives at the minimum, and
    so are second derivatives. A leaf without a second derivative there, such as one of absolute errors, has none: take
    `Quantile`, whose derivative is that of the rows it selects.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation", eq. 18. Hastie, Tibshirani and Friedman (2009), "The Elements of
    Statistical Learning", algorithm 10.3. Kiefer (1953), "Sequential minimax search for a maximum".

    Examples
    --------
    >>> import dataclasses, jboost
    >>> loss = dataclasses.replace(jboost.losses.logistic, leaf=jboost.Exact())
    >>> splits_of_the_gradient = dataclasses.replace(loss, hessian="first_order", leaf=jboost.Exact("newton"))
    >>> splits_of_the_gradient.leaf.search
    'newton'
    """

    search: Search | None = None
    needs_all_rows: ClassVar[bool] = False
    of_one_row: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_search(self.search)

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Search for the minimum in each leaf, and give it the derivative of the implicit function."""
        loss, k = leaves.loss, leaves.score.shape[1]
        by_newton = search_for(loss, self.search) == "newton"
        if by_newton and loss.hessian == "first_order":
            leaves = dataclasses.replace(leaves, loss=with_second_derivatives(loss))
        together = by_newton and leaves.leaf.ndim == 1 and k > 1
        search = _by_newton if by_newton else _by_golden_section

        def find(origin: Float[Array, "l k"]) -> tuple[Array, Array]:
            value = search(leaves, origin, together)
            return value, _share_that_lowers(leaves, value, together)

        value, share = found_by(find, jnp.zeros((leaves.n_leaves, k), leaves.score.dtype))
        step = _implicit_step_together if together else _implicit_step
        return share * with_derivatives_of(value, step(leaves, step(leaves, value)))

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Minimise the loss over all constants."""
        return best_constant(loss, rows, reduce)


def _by_newton(leaves: Leaves, origin: Float[Array, "l k"], together: bool) -> Float[Array, "l k"]:
    objective, alpha = _objective(leaves, together), leaves.hyper.reg_alpha

    def model_at(value: Float[Array, "l k"]) -> Model:
        g, target = _newton_step(leaves.moved_by(value), value)
        slope = g + leaves.hyper.reg_lambda * value
        gain = -(slope * (target - value) + alpha * (jnp.abs(target) - jnp.abs(value)))
        return Model(target, gain.sum(axis=1, keepdims=True) if together else gain)

    size = _by_leaf(leaves, size_of_rows(leaves))
    if together:
        return descend(objective, model_at, origin, size, MOST_ROUNDED)
    size = jnp.broadcast_to(size, origin.shape)
    return descend(partial(one_by_one, objective), partial(one_by_one, model_at), origin, size)


def _newton_step(moved: Leaves, value: Float[Array, "l k"]) -> tuple[Array, Array]:
    """Return the sums of g and where the quadratic models are least; of a diagonal in one pass over the rows."""
    if moved.loss.hessian == "full":
        return moved.sum_of_g(), newton_step(moved, value)
    sums = moved.sum(jnp.stack(moved.derivatives[:2], axis=-1))
    units = (1, 1) if moved.units is None else (moved.units.of_g[None], moved.units.of_h[None])
    g, h = sums[..., 0] * units[0], sums[..., 1] * units[1]
    return g, leaf_value(g - h * value, h, moved.hyper)


def _by_golden_section(leaves: Leaves, origin: Float[Array, "l k"], together: bool) -> Float[Array, "l k"]:
    objective, shape = _objective(leaves, together), leaves.score.shape
    of_g = 1 if leaves.units is None else leaves.units.of_g[None]
    size = jnp.broadcast_to(size_of_rows(leaves)[:, None], shape)
    steep = jnp.abs(leaves.derivatives.g) * of_g
    sums = leaves.sum(jnp.stack([size, steep], axis=-1))
    size, step = sums[..., 0], divided(sums[..., 0], sums[..., 1])  # about as far as the loss could fall to 0
    step = jnp.where((step > 0) & jnp.isfinite(step), step, jnp.ones_like(origin))
    bound = leaves.hyper.max_delta_step
    bound = jnp.where(bound > 0, bound, jnp.inf)
    return golden_section(partial(one_by_one, objective), step, bound, size)


def _objective(leaves: Leaves, together: bool) -> Callable[[Float[Array, "l k"]], Float[Array, "l #k"]]:
    """Return the function (leaf values) -> by how much the loss of each leaf rises, with its penalties."""
    of_rows = change_of_rows(leaves)

    def objective(value: Float[Array, "l k"]) -> Float[Array, "l #k"]:
        penalty = penalty_of(leaves, value)
        penalty = penalty.sum(axis=1, keepdims=True) if together else penalty
        return _by_leaf(leaves, of_rows(value)) + penalty

    return objective


def _share_that_lowers(leaves: Leaves, value: Float[Array, "l k"], together: bool) -> Float[Array, "l #k"]:
    """Return the share of each value, halved so often that what is left after shrinkage raises no objective."""
    objective, rate = _objective(leaves, together), leaves.hyper.learning_rate
    size = _by_leaf(leaves, size_of_rows(leaves))
    size = size if together else jnp.broadcast_to(size, value.shape)
    rounding = ROUNDING * jnp.finfo(size.dtype).eps * size

    def halve(state: tuple[Array, Array]) -> tuple[Array, Array]:
        share = state[0]
        taken = rate * share * value
        rises = ~((objective(taken) if together else one_by_one(objective, taken)) <= rounding)
        share = jnp.where(rises, jnp.where(share < SHORTEST, 0, share / 2), share)
        return share, jnp.any(rises & (share > 0))

    return jax.lax.while_loop(lambda state: state[1], halve, (jnp.ones_like(rounding), jnp.asarray(True)))[0]


def one_by_one(function: Callable[[Float[Array, "l k"]], Any], value: Float[Array, "l k"]) -> Any:
    """Return what a function says of each output when the others do not move."""
    k = value.shape[1]
    if k == 1:
        return function(value)
    found = jax.lax.map(lambda hot: function(value * hot[None]), jnp.eye(k, dtype=value.dtype))

    def own(of_outputs: Float[Array, "k l #k"]) -> Float[Array, "l k"]:
        return jnp.diagonal(jnp.broadcast_to(of_outputs, (k, *value.shape)), axis1=0, axis2=2)

    return jax.tree.map(own, found)


def size_of_rows(leaves: Leaves) -> Float[Array, " n"]:
    """Return the size of the loss of each row and of an average one, whose terms it may have, times its weight."""
    value, weight = jnp.abs(value_by_row(leaves.loss, leaves.score, leaves.rows)), leaves.weight
    there = weight > 0
    columns = [jnp.where(there, column, 0)[:, None] for column in (weight * value, weight)]
    of_loss, of_weight = totals(columns, leaves.reduce)
    return jnp.where(there, weight * (value + divided(of_loss, of_weight)), 0)


def change_of_rows(leaves: Leaves) -> Callable[[Float[Array, "l k"]], Float[Array, " n"]]:
    """Return the function (leaf values) -> by how much the loss of each row rises, times its weight."""
    before, weight = value_by_row(leaves.loss, leaves.score, leaves.rows), leaves.weight
    size = total(jnp.where(weight > 0, weight * jnp.abs(before), 0), leaves.reduce)
    cap = jnp.where(size > 0, CAP * size, jnp.finfo(before.dtype).max / before.size)

    def change(value: Float[Array, "l k"]) -> Float[Array, " n"]:
        after = value_by_row(leaves.loss, leaves.score + take_leaves(value, leaves.leaf), leaves.rows)
        rise = jnp.where(jnp.isfinite(after), weight * (after - before), jnp.inf)
        return jnp.where(weight > 0, jnp.minimum(rise, cap), 0)

    return change


def penalty_of(leaves: Leaves, value: Float[Array, "l k"]) -> Float[Array, "l k"]:
    """Return lambda u^2 / 2 + alpha |u| of each leaf and output."""
    return leaves.hyper.reg_lambda / 2 * jnp.square(value) + leaves.hyper.reg_alpha * jnp.abs(value)


def _by_leaf(leaves: Leaves, values: Float[Array, " n"]) -> Float[Array, "l #k"]:
    """Sum over the rows of each leaf: of all outputs, or of each."""
    k = leaves.score.shape[1] if leaves.leaf.ndim == 2 else 1
    return leaves.sum(jnp.broadcast_to(values[:, None, None], (values.size, k, 1)))[..., 0]


def _slope(leaves: Leaves, g: Float[Array, "l k"], value: Float[Array, "l k"]) -> Float[Array, "l k"]:
    hyper = leaves.hyper
    return g + hyper.reg_lambda * value + hyper.reg_alpha * jnp.sign(value)


def _held(leaves: Leaves, value: Float[Array, "l k"]) -> Array:
    """Say which leaves the L1 penalty holds at 0."""
    return (value == 0) & (leaves.hyper.reg_alpha > 0)


def _implicit_step(leaves: Leaves, value: Float[Array, "l k"]) -> Float[Array, "l k"]:
    """Take a Newton step by the true second derivative of each output, where it is positive."""

    def sums(value: Float[Array, "l k"], hot: Float[Array, " k"]) -> Float[Array, "l k 2"]:
        score = leaves.score + take_leaves(value, leaves.leaf)

        def gradient(score: Float[Array, "n k"]) -> Float[Array, "n k"]:
            shaped = score[:, 0] if leaves.loss.n_outputs is None else score
            return jnp.reshape(leaves.loss.value_and_grad(shaped, leaves.rows)[1], score.shape)

        g, back = jax.vjp(gradient, score)  # in reverse twice: all that a first-order loss may have
        (h,) = back(jnp.broadcast_to(hot[None], score.shape) + 0 * score)
        weight = leaves.weight[:, None, None]
        return leaves.sum(jnp.where(weight > 0, weight * jnp.stack([g, h], axis=-1), 0))

    k = value.shape[1]
    hots = jnp.eye(k, dtype=value.dtype)
    if k == 1:
        found = sums(value, hots[0])
    else:
        by_output = jax.lax.map(lambda hot: sums(value * hot[None], hot), hots)
        found = jnp.moveaxis(jnp.diagonal(by_output, axis1=0, axis2=2), -1, 1)
    g, h = found[..., 0], found[..., 1]
    usable = (h > 0) & ~_held(leaves, value)
    step = divided(_slope(leaves, g, value), jnp.where(usable, h + leaves.hyper.reg_lambda, 0))
    return limit_step(value - step, leaves.hyper)


def _implicit_step_together(leaves: Leaves, value: Float[Array, "l k"]) -> Float[Array, "l k"]:
    """Take a Newton step by the true matrix of second derivatives of each leaf."""
    loss = dataclasses.replace(leaves.loss, curvature=None)
    moved = dataclasses.replace(leaves, loss=loss).moved_by(value)
    weight = leaves.weight[:, None, None]
    hessian = loss.full_hessian(moved.score, leaves.rows)
    h = leaves.sum(jnp.where(weight > 0, weight * hessian, 0))
    free = (~_held(leaves, value)).astype(h.dtype)
    ridge = jnp.broadcast_to(leaves.hyper.reg_lambda, value.shape)
    unit = jnp.eye(h.shape[1], dtype=h.dtype)[None]
    h = (h + ridge[:, :, None] * unit) * free[:, :, None] * free[:, None] + (1 - free)[:, :, None] * unit
    step = jax.vmap(solve)(h, free * _slope(leaves, moved.sum_of_g(), value))
    return limit_step(value - step, leaves.hyper)
