"""The step rule of steepest descent: one step length for all leaves of a round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._fixed_point import total, totals
from jboost._objective.base_score import best_constant
from jboost._objective.exact import (
    Search,
    change_of_rows,
    check_search,
    penalty_of,
    search_for,
    size_of_rows,
)
from jboost._objective.leaf_rules import newton_step
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows, gathered
from jboost._objective.searching import (
    Model,
    descend,
    divided,
    found_by,
    golden_section,
    with_derivatives_of,
)
from jboost._objective.units import nearest_power_of_two
from jboost._runtime.dividing import all_rows, own_rows
from jboost._runtime.typing import Reduce
from jboost._tree import take_leaves


@jax.tree_util.register_static
@dataclass(frozen=True)
class LineSearch:
    r"""Leaf rule: a tree is a direction, and one step length along it is searched for in each round.

    .. math:: \rho_t = \arg\min_{\rho \ge 0} \sum_i w_i L(y_i, F_{t-1}(x_i) + \rho h_t(x_i))
        + \sum_j \frac{\lambda}{2} (\rho h_{tj})^2 + \alpha |\rho h_{tj}|

    With ``hessian="first_order"`` the direction h is the least-squares fit of a tree to the negative gradient, each
    leaf the mean of -g (with `reg_lambda` of 0), and the whole is gradient boosting by steepest descent. With another
    `hessian` the direction is that of a Newton step.

    Parameters
    ----------
    search : {"newton", "golden_section"} or None, default None
        As in `Exact`.

    Raises
    ------
    ValueError
        For another search.

    Notes
    -----
    No leaf goes beyond `max_delta_step`, which bounds the length. `learning_rate` shrinks what was found. The loss of
    all rows falls with a convex loss; that of a single leaf may rise. All outputs share the length. Losses of a group
    and of all rows are served too.

    The derivative of the length is that of the implicit function, by the true second derivative along the direction;
    where that is 0, as for absolute errors, there is none.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation", algorithm 1 (Gradient_Boost), lines 4 to 6.

    Examples
    --------
    >>> import dataclasses, numpy as np, jboost
    >>> steepest = dataclasses.replace(jboost.losses.poisson, hessian="first_order", leaf=jboost.LineSearch())
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> _, history = jboost.fit(steepest, X, np.floor(9 * X[:, 0]), spec=jboost.Spec(n_estimators=5))
    >>> bool(history.train_loss[-1] < history.train_loss[0])
    True
    """

    search: Search | None = None
    needs_all_rows: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_search(self.search)

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Fit the direction, and go along it as far as the loss falls."""
        direction = newton_step(
            leaves, jnp.zeros((leaves.n_leaves, leaves.score.shape[1]), leaves.score.dtype)
        )
        direction = direction / nearest_power_of_two(jnp.max(jnp.abs(direction)))  # or squares might overflow
        return best_length(leaves, direction, self.search) * direction

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Minimise the loss over all constants."""
        return best_constant(loss, rows, reduce)


def best_length(
    leaves: Leaves, direction: Float[Array, "l k"], search: Search | None = None
) -> Float[Array, "1 1"]:
    """Return how far to go along a direction, given by leaf, for the loss of all rows to be least."""
    by_newton = search_for(leaves.loss, search) == "newton"
    look = _by_newton if by_newton else _by_golden_section
    origin = jnp.zeros((1, 1), direction.dtype)
    length = found_by(lambda origin: look(leaves, direction, origin), origin)
    slopes = _slopes_along(leaves, direction)

    def step(length: Float[Array, "1 1"]) -> Float[Array, "1 1"]:
        slope, bend = slopes(length)
        usable = (length > 0) & (bend > _penalty_along(leaves, direction))
        return _limited(length - divided(slope, jnp.where(usable, bend, 0)), leaves, direction)

    return with_derivatives_of(length, step(step(length)))


def _longest(leaves: Leaves, direction: Float[Array, "l k"]) -> Float[Array, ""]:
    """Return the length with which the largest leaf reaches `max_delta_step`."""
    bound, largest = leaves.hyper.max_delta_step, jnp.max(jnp.abs(direction))
    bounds = (bound > 0) & (largest > 0)
    return jnp.where(bounds, bound / jnp.where(bounds, largest, 1), jnp.inf)


def _limited(length: Float[Array, "1 1"], leaves: Leaves, direction: Float[Array, "l k"]) -> Array:
    return jnp.clip(length, 0, _longest(leaves, direction))


def _penalty_along(leaves: Leaves, direction: Float[Array, "l k"]) -> Float[Array, ""]:
    return jnp.sum(leaves.hyper.reg_lambda * jnp.square(direction))


def _change_along(leaves: Leaves, direction: Float[Array, "l k"]) -> Callable[[Array], Array]:
    of_rows = change_of_rows(leaves)

    def change(length: Float[Array, "1 1"]) -> Float[Array, "1 1"]:
        taken = length * direction
        return (total(of_rows(taken), leaves.reduce) + jnp.sum(penalty_of(leaves, taken))).reshape(1, 1)

    return change


def _slopes_along(leaves: Leaves, direction: Float[Array, "l k"]) -> Callable[[Array], tuple[Array, Array]]:
    """Return the function (length) -> first and second derivative of the objective by it."""
    moved, weight = take_leaves(direction, leaves.leaf), leaves.weight

    def of_rows(score: Float[Array, "n k"]) -> Float[Array, " n"]:
        g = _gradient_by_row(leaves.loss, score, leaves.rows)
        return jnp.where(weight > 0, weight * jnp.sum(g * moved, axis=1), 0)

    def slopes(length: Float[Array, "1 1"]) -> tuple[Array, Array]:
        slope, back = jax.vjp(
            of_rows, leaves.score + length * moved
        )  # in reverse twice, as a loss may have no more
        (along,) = back(jnp.ones_like(slope))
        slope, bend = totals([slope[:, None], jnp.sum(along * moved, axis=1, keepdims=True)], leaves.reduce)
        ridge = _penalty_along(leaves, direction)
        alpha = jnp.sum(leaves.hyper.reg_alpha * jnp.abs(direction))
        return (slope + ridge * length[0, 0] + alpha).reshape(1, 1), (bend + ridge).reshape(1, 1)

    return slopes


def _gradient_by_row(loss: Any, score: Float[Array, "n k"], rows: Rows) -> Float[Array, "n k"]:
    if rows.axis is not None and loss.needs_all_rows:
        return own_rows(_gradient_by_row(loss, all_rows(score, rows.axis), gathered(rows)), rows.axis)
    shaped = score[:, 0] if loss.n_outputs is None else score
    return jnp.reshape(loss.value_and_grad(shaped, rows)[1], score.shape)


def _by_newton(leaves: Leaves, direction: Array, origin: Float[Array, "1 1"]) -> Float[Array, "1 1"]:
    slopes_at = _slopes_along(leaves, direction)
    size = total(size_of_rows(leaves), leaves.reduce).reshape(1, 1)

    def model_at(length: Float[Array, "1 1"]) -> Model:
        slope, bend = slopes_at(length)
        bend = jnp.maximum(jnp.abs(bend), divided(slope * slope, size))  # or a straight loss would not move
        target = _limited(length - divided(slope, bend), leaves, direction)
        return Model(target, -slope * (target - length))

    return descend(_change_along(leaves, direction), model_at, origin, size)


def _by_golden_section(leaves: Leaves, direction: Array, origin: Float[Array, "1 1"]) -> Float[Array, "1 1"]:
    moved = take_leaves(direction, leaves.leaf)
    of_g = 1 if leaves.units is None else leaves.units.of_g[None]
    steep = jnp.abs(jnp.sum(leaves.derivatives.g * of_g * moved, axis=1))
    size, steep = totals([size_of_rows(leaves)[:, None], steep[:, None]], leaves.reduce)
    step = divided(size, steep)  # about as far as the loss could fall to 0
    step = jnp.where((step > 0) & jnp.isfinite(step), step, 1).reshape(1, 1)
    found = golden_section(
        _change_along(leaves, direction), step, _longest(leaves, direction), size.reshape(1, 1)
    )
    return jnp.maximum(found, origin)
