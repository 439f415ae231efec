"""Steps that do not climb: a leaf whose step would raise the loss of its rows takes a shorter one.

How far a step is shortened carries no derivative: it is held fixed, as the splits are.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jboost._fixed_point import total
from jboost._objective import native
from jboost._objective.derivatives import NOISE, NUDGE, ROUNDING, Expansion, value_by_row
from jboost._objective.leaf_rules import Newton
from jboost._objective.leaves import Leaves
from jboost._objective.units import are_alone
from jboost._runtime.checkpointing import kept
from jboost._runtime.closures import with_explicit_closure
from jboost._runtime.library import by_platform
from jboost._runtime.typing import over_devices
from jboost._tree import take_leaves

WIDE = 128  # times as far a score is moved to see how steep the loss is on both sides
AVERAGES = 8  # average losses below which the terms of a loss are taken to lie
SUFFICIENT = 0.25  # of what its slope promises: so much a step that was shortened must lower the loss by
SHORTEST = 2.0**-96  # of a step, or of 1 where that is less: a shorter one is none
CAP = 2.0**12  # times the loss and all that it could fall by: a row that rises by more makes its leaf rise


class Step(NamedTuple):
    """The step of a round from the scores of the rows, and what is known of the loss there."""

    leaves: Leaves
    before: Expansion  # of the loss of a unit of weight, at the scores before
    leaf_value: Float[Array, "leaves k"]  # what the leaf rule found, times the learning rate
    mean_loss: Float[Array, ""]  # before


def shortened(step: Step) -> Float[Array, "leaves k"]:
    """Return the values of the leaves, smaller where the loss of a leaf's rows would rise.

    Such a step is halved until the step of a learning rate of 1 lowers the loss with its penalties by a quarter of what
    the slope promises, and the one that is taken does not raise it. Outputs with trees and targets of their own take
    the steps that each would take alone, as far as they do not raise the loss together.

    References
    ----------
    Armijo (1966), "Minimization of functions having Lipschitz continuous first partial derivatives".
    """
    k = step.leaf_value.shape[1]
    if k == 1 or step.leaves.leaf.ndim == 1 or not are_alone(k, step.leaves.rows):
        return _halved(step)

    def of_output(j: Array) -> Float[Array, " leaves"]:
        is_own = jnp.arange(k, dtype=j.dtype) == j
        return _halved(step._replace(leaf_value=jnp.where(is_own[None], step.leaf_value, 0))).sum(axis=1)

    by_output = jax.lax.map(of_output, jnp.arange(k, dtype=jnp.int32))
    return _halved(step._replace(leaf_value=by_output.T), together=True)


def _halved(step: Step, together: bool = False) -> Float[Array, "leaves k"]:
    """Halve leaf by leaf, or all together where each output has done so alone: its rows lie in leaves of the others."""
    k = step.leaf_value.shape[1] if step.leaves.leaf.ndim == 2 else 1
    whole = jnp.ones((step.leaf_value.shape[0], k), step.leaf_value.dtype)
    rises_at, closed_over = with_explicit_closure(lambda factor: _rises(step, factor, together), whole)
    closed_over = jax.lax.stop_gradient(closed_over)
    value = jnp.where(jnp.isfinite(step.leaf_value), step.leaf_value, 0)
    # Where a loss hardly bends, a step may be as long as floats are.
    size = jnp.maximum(1, jax.lax.stop_gradient(_of_outputs(step, jnp.abs(value))))

    def halve(state: tuple[Array, Array]) -> tuple[Array, Array]:
        # What no halving changes would be computed before the loop, in every round.
        factor, *fixed = jax.lax.optimization_barrier((state[0], *closed_over))
        rises = rises_at(factor, *fixed)
        factor = jnp.where(rises, factor / 2, factor)
        return jnp.where(factor * size < SHORTEST, 0, factor), jnp.any(rises)

    start = whole, jax.lax.stop_gradient(may_rise(step))
    factor, _ = kept(jax.lax.while_loop(lambda state: state[1], halve, start))
    return value * factor


def may_rise(step: Step) -> Bool[Array, ""]:
    r"""Say whether the loss of a leaf may rise, at little cost: always where it does, seldom elsewhere.

    With :math:`u = -\eta G / (H + \lambda)` no leaf rises if in each row

    .. math:: L(s + u) - L(s) \le g u + (1 / \eta - 1/2) h u^2,

    for the sum over a leaf of what stands on the right is at most :math:`-H u^2 / 2 - \lambda u^2 / \eta`. The majorant
    of a loss says so for all of its rows. Where u comes from anything but g and h, this says nothing: True.
    """
    loss = step.leaves.loss
    if not is_told_by_rows(loss):
        return jnp.asarray(True)
    if _is_bounded(loss):
        largest = jnp.max(jnp.abs(step.leaf_value))
        return ~(loss.majorant(largest) <= _bound(step))  # also where it is NaN
    score = step.leaves.score + take_leaves(step.leaf_value, step.leaves.leaf)
    rises = ~(value_by_row(loss, score, step.leaves.rows) <= allowed(step))  # also where it is NaN
    return (
        over_devices(step.leaves.reduce, jnp.sum(rises.astype(jnp.float32))) > 0
    )  # sooner compiled than `any`


def allowed(step: Step) -> Float[Array, " n"]:
    """Return the loss that each row may have after the step: where none has more, the loss of no leaf rises."""
    leaves, before, leaf_value, _ = step
    moved = take_leaves(leaf_value, leaves.leaf)
    expected = (before.g * moved + _bound(step) * before.h * jnp.square(moved)).sum(axis=1)
    rounding = _rounding(step) * (jnp.abs(before.value) + _typical(step))
    # Where floats do not hold what is expected there is no bound: NaN, which no loss stays below.
    most = jnp.where(expected < jnp.inf, before.value + (expected + rounding), jnp.nan)
    return jnp.where(leaves.weight > 0, most, jnp.inf)


def moved_and_allowed(step: Step) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
    """Return the scores after the step, and the loss that each row may have there."""
    on_cpu = _moved_in_cpp if native.moves_available() else _moved_in_jax
    return by_platform(cpu=partial(on_cpu, step), default=partial(_moved_in_jax, step))


def _moved_in_jax(step: Step) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
    return step.leaves.score + take_leaves(step.leaf_value, step.leaves.leaf), allowed(step)


def _moved_in_cpp(step: Step) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
    """Do so in one pass over the rows, from the derivatives that the tree was grown with: g and h need not be kept."""
    leaves, before, leaf_value, _ = step
    (n, k), (g, h, *_), units = leaves.score.shape, leaves.derivatives, leaves.units
    ones = jnp.ones(k, g.dtype)
    of_g_and_h = jnp.stack([ones, ones] if units is None else [units.of_g, units.of_h])
    numbers = jnp.stack([_bound(step), _typical(step), jnp.asarray(_rounding(step))]).astype(g.dtype)
    leaf = leaves.leaf.reshape(n, -1)
    return native.move_scores(
        leaves.score, leaf, leaf_value, g, h, before.value, leaves.weight, of_g_and_h, numbers
    )


def _rounding(step: Step) -> float:
    return ROUNDING * float(jnp.finfo(step.before.value.dtype).eps)


def _typical(step: Step) -> Float[Array, ""]:
    """Return a loss beside which that of a row is rounded."""
    typical, units = AVERAGES * jnp.abs(step.mean_loss), step.leaves.units
    return typical if units is None else jnp.minimum(typical, units.loss)


def is_told_by_the_next(loss: Any) -> bool:
    """Say whether the losses at the start of the next round tell whether a step has raised any.

    Then they need not be computed for that alone. A loss that is `adapted` in each round is another one there.
    """
    return is_told_by_rows(loss) and not _is_bounded(loss) and loss.adapt is None and loss.leaf.descends


def _is_bounded(loss: Any) -> bool:
    return loss.majorant is not None and loss.hessian == "diagonal" and loss.curvature is None


def _bound(step: Step) -> Float[Array, ""]:
    return 1 / step.leaves.hyper.learning_rate - 0.5


def is_told_by_rows(loss: Any) -> bool:
    """Say whether `may_rise` can tell: for one Newton step on the diagonal of a loss of one row."""
    is_one_step = type(loss.leaf) is Newton and loss.leaf.steps == 1  # a class made of it may step elsewhere
    return not loss.needs_all_rows and loss.hessian != "full" and is_one_step


def _rises(step: Step, factor: Float[Array, "leaves #k"], together: bool) -> Bool[Array, "leaves #k"]:
    """Say which leaves this share of a step raises, or lowers too little if it was shortened; or whether all rise.

    So does one after which rounding a score moves the loss by more than it falls: a loss without a minimum may fall
    for ever in exact numbers, where the next float of the score is a cliff.
    """
    leaves, before, leaf_value, _ = step
    weight, rate, eps = leaves.weight, leaves.hyper.learning_rate, jnp.finfo(leaves.weight.dtype).eps
    size, slope = jnp.abs(before.value), (before.g * take_leaves(leaf_value, leaves.leaf)).sum(axis=1)
    taken, whole = factor * leaf_value, factor * leaf_value / rate
    one, none = jnp.ones_like(rate), jnp.zeros_like(rate)
    shares = jnp.stack([one, 1 / rate, one, one, none])
    nudges = eps * jnp.array([0, 0, WIDE * NUDGE, -WIDE * NUDGE, NUDGE], rate.dtype)

    def value_at(place: tuple[Array, Array]) -> Array:
        score = leaves.score + take_leaves(place[0] * taken, leaves.leaf)
        return value_by_row(leaves.loss, score * (1 + place[1]), leaves.rows)

    after, after_whole, up, down, nudged = jax.lax.map(value_at, (shares, nudges))
    moved = leaves.score * (1 + NUDGE * eps) - leaves.score
    bend = (before.h * jnp.square(moved) / 2).sum(axis=1)
    noise = jnp.abs(nudged - before.value - (before.g * moved).sum(axis=1) - bend)
    # What a parabola makes of a wide move, made of a small one: the rounding of the loss itself does not count here.
    cliff = jnp.maximum(jnp.abs((up + down) / 2 - after) / WIDE**2 - bend, 0)
    cap = CAP * total(weight * (size + jnp.abs(slope)), leaves.reduce)

    def counted(rise: Array) -> Array:
        return jnp.minimum(jnp.where(jnp.isnan(rise), jnp.inf, weight * rise), cap)

    of_rows = jnp.stack(
        [
            counted(after - before.value),
            counted(after_whole - before.value),
            counted(cliff),
            weight * jnp.where(jnp.isfinite(noise), noise, 0),
            weight * size,
            weight * slope,
        ]
    )
    sums = _by_leaf(step, jnp.where(weight > 0, of_rows, 0))
    risen, risen_of_whole, cliff, noise, size, slope = sums
    rounding = ROUNDING * eps * size + NOISE * noise
    penalty, penalty_of_whole = _penalty(step, taken), _penalty(step, whole)
    promised = SUFFICIENT * factor * jnp.minimum((slope + _alpha(step, leaf_value)) / rate, 0)
    lowers = (risen_of_whole + penalty_of_whole <= promised + rounding) | (factor == 1)
    sound = cliff <= jnp.abs(risen) + NOISE * rounding
    rises = ~((risen + penalty <= rounding) & lowers & sound)
    # Trees of several outputs move the same rows: where none of their leaves rises, all may still do together.
    all_rise = ~(risen[:, 0].sum() + penalty.sum() <= rounding[:, 0].sum())
    shortens = jnp.zeros_like(rises) if together else rises & (factor > 0)
    return jnp.where(jnp.any(shortens), shortens, all_rise & (factor > 0))


def _by_leaf(step: Step, values: Float[Array, "c n"]) -> Float[Array, "c leaves #k"]:
    """Sum over the rows of each leaf: of all outputs, or of each."""
    k = step.leaf_value.shape[1] if step.leaves.leaf.ndim == 2 else 1
    of_outputs = jnp.broadcast_to(values.T[:, None], (values.shape[1], k, values.shape[0]))
    return jnp.moveaxis(step.leaves.sum(of_outputs), 2, 0)


def _penalty(step: Step, taken: Float[Array, "leaves k"]) -> Float[Array, "leaves #k"]:
    """Return lambda u^2 / 2 + alpha |u| of each leaf, or of each output of it."""
    of_output = step.leaves.hyper.reg_lambda / 2 * jnp.square(taken)
    return _of_outputs(step, of_output) + _alpha(step, taken)


def _alpha(step: Step, taken: Float[Array, "leaves k"]) -> Float[Array, "leaves #k"]:
    return _of_outputs(step, step.leaves.hyper.reg_alpha * jnp.abs(taken))


def _of_outputs(step: Step, values: Float[Array, "leaves k"]) -> Float[Array, "leaves #k"]:
    return values if step.leaves.leaf.ndim == 2 else values.sum(axis=1, keepdims=True)
