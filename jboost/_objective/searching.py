"""Searches for many minima at once, and derivatives for what they find."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._objective.derivatives import NOISE, ROUNDING
from jboost._runtime.checkpointing import kept
from jboost._runtime.closures import with_explicit_closure
from jboost._runtime.rules import within_its_rule

SUFFICIENT = 0.25  # of what its slope promises: so much a step must lower the objective by
FLATTER = 0.9  # times what was left to gain: no more may be left after a step within rounding
SHORTEST = 2.0**-60  # of a Newton step: a shorter one is none
SHORT_IN_ROUNDING = 0.25  # where what is left to gain is lost in rounding
PROMISED = 4  # times the terms of an objective; a Newton step on squares promises 2
MOST_PASSES = 200
MOST_ROUNDED = 8
MOST_DOUBLINGS = 100  # of a bracket
GOLDEN = (math.sqrt(5) - 1) / 2


class Model(NamedTuple):
    """What the quadratic models of the objectives at a place say."""

    target: Float[Array, "m k"]  # where they are least
    gain: Float[Array, "m #k"]  # what their slopes promise on the way there


class _Descent(NamedTuple):
    value: Float[Array, "m k"]
    change: Float[Array, "m #k"]  # of the objective, since the place 0
    model: Model
    factor: Float[Array, "m #k"]
    done: Bool[Array, "m #k"]
    n_passes: Int[Array, ""]
    n_rounded: Int[Array, "m #k"]  # passes since what is left to gain is lost in rounding


def descend(
    objective: Callable[[Float[Array, "m k"]], Float[Array, "m #k"]],
    model_at: Callable[[Float[Array, "m k"]], Model],
    origin: Float[Array, "m k"],
    size: Float[Array, "m #k"],
    most_rounded: int = MOST_ROUNDED,
) -> Float[Array, "m k"]:
    """Minimise m objectives (or m k) from the origin by Newton steps with backtracking.

    A step is halved until it lowers the objective by a quarter of what the slope promises (Armijo 1966), or, where the
    objective is lost in rounding, until less is left to gain. `size` is that of the terms of an objective. After
    `most_rounded` passes lost in rounding it ends: two are enough for a Newton step, not for one of a diagonal alone.
    """
    eps = jnp.finfo(origin.dtype).eps
    rounding = ROUNDING * eps * size
    unknown = jnp.full_like(size, jnp.inf)

    def advance(state: _Descent) -> _Descent:
        value, here = state.value, state.model
        trial = value + state.factor * (here.target - value)
        change = objective(trial)
        falls = change <= state.change + rounding
        # Not where it rises: derivatives that overflow there would take the precision from the sums of others.
        place = jnp.where(falls, trial, value)
        there = _within(model_at(place), place, size)
        lowers = change <= state.change - SUFFICIENT * state.factor * here.gain
        accept = falls & (lowers | (there.gain < FLATTER * here.gain)) & ~state.done
        value, change, model = jax.tree.map(
            lambda new, old: jnp.where(accept, new, old), (trial, change, there), (value, state.change, here)
        )
        factor = jnp.where(accept, 1, state.factor / 2)
        shortest = jnp.where(here.gain <= rounding, SHORT_IN_ROUNDING, SHORTEST)
        stuck = ~accept & (factor < shortest)
        n_rounded = state.n_rounded + (model.gain <= rounding)
        done = state.done | stuck | (model.gain <= (NOISE * eps) ** 2 * size) | (n_rounded > most_rounded)
        return _Descent(value, change, model, factor, done, state.n_passes + 1, n_rounded)

    none, no = jnp.zeros((), jnp.int32), jnp.zeros_like(size, bool)
    model, ones = Model(origin, unknown), jnp.ones_like(size)  # it tries the origin first
    start = _Descent(origin, unknown, model, ones, no, none, jnp.zeros_like(size, jnp.int32))
    return jax.lax.while_loop(lambda s: ~jnp.all(s.done) & (s.n_passes < MOST_PASSES), advance, start).value


def _within(model: Model, place: Float[Array, "m k"], size: Float[Array, "m #k"]) -> Model:
    """Return the model with a target that promises no more than a few times what the objective is made of.

    So a loss without a second derivative, of which a Newton step knows no end, is stepped along at its own scale.
    """
    too_far = (model.gain > PROMISED * size) & (size > 0) & jnp.isfinite(model.gain)
    share = jnp.where(too_far, PROMISED * size / jnp.where(too_far, model.gain, 1), 1)
    return Model(place + share * (model.target - place), share * model.gain)


def golden_section(
    change_at: Callable[[Float[Array, "m k"]], Float[Array, "m k"]],
    step: Float[Array, "m k"],
    bound: Float[Array, ""],
    size: Float[Array, "m k"],
) -> Float[Array, "m k"]:
    """Minimise functions of one variable that fall and then rise, within a bound; they are 0 at 0.

    A bracket around 0, a step to each side, is doubled on the side where a function still falls, and then divided by
    the golden section (Kiefer 1953), about 40 times in float32 and 80 in float64. Values tell a smooth minimum from its
    neighbours to about the root of the rounding, a kink to the rounding itself.
    """
    eps = jnp.finfo(step.dtype).eps
    low, high = _bracket(change_at, jnp.minimum(step, bound), bound, ROUNDING * eps * size)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    state = low, high, left, right, change_at(left), change_at(right)

    def divide(_: Any, state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, left, right, of_left, of_right = state
        goes_left = of_left < of_right
        low, high = jnp.where(goes_left, low, left), jnp.where(goes_left, right, high)
        new = jnp.where(goes_left, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        of_new = change_at(new)
        left, right = jnp.where(goes_left, new, right), jnp.where(goes_left, left, new)
        of_left, of_right = jnp.where(goes_left, of_new, of_right), jnp.where(goes_left, of_left, of_new)
        return low, high, left, right, of_left, of_right

    n_divisions = math.ceil(math.log(float(eps) / 16) / math.log(GOLDEN))
    _, _, left, right, of_left, of_right = jax.lax.fori_loop(0, n_divisions, divide, state)
    found, change = jnp.where(of_left < of_right, left, right), jnp.minimum(of_left, of_right)
    return jnp.where(change < 0, found, 0)


def _bracket(
    change_at: Callable[[Array], Array], step: Array, bound: Array, rounding: Array
) -> tuple[Float[Array, "m k"], Float[Array, "m k"]]:
    """Return places on both sides of each minimum."""

    def widen(state: tuple[Array, ...]) -> tuple[Array, ...]:
        sides, best, _, count = state
        found = jnp.stack([change_at(sides[0]), change_at(sides[1])])
        falls = (found < best - rounding[None]) & (jnp.abs(sides) < bound)
        wider = jnp.where(falls, jnp.clip(2 * sides, -bound, bound), sides)
        return wider, jnp.minimum(best, found), jnp.any(falls), count + 1

    sides = jnp.stack([-step, step])
    state = sides, jnp.zeros_like(sides), jnp.asarray(True), jnp.zeros((), jnp.int32)
    sides, *_ = jax.lax.while_loop(lambda s: s[2] & (s[3] < MOST_DOUBLINGS), widen, state)
    return sides[0], sides[1]


def found_by(search: Callable[[Array], Any], origin: Array) -> Any:
    """Return the arrays that a search from the origin finds, as constants; a derivative does not search again."""
    explicit, closed_over = with_explicit_closure(search, origin)
    return kept(jax.lax.stop_gradient(explicit(*jax.lax.stop_gradient((origin, *closed_over)))))


@jax.custom_jvp
def with_derivatives_of(value: Array, other: Array) -> Array:
    """Return a value with the derivatives of another number, which costs nothing where none is asked for.

    Of a solution that was searched for, let the other be two Newton steps from there: an error of e becomes e^2 and
    e^4, so its derivatives are those of the solution up to the third.
    """
    return value


@with_derivatives_of.defjvp
def _tangent_of_other(primals: Any, tangents: Any) -> tuple[Array, Array]:
    return within_its_rule(with_derivatives_of, *primals), tangents[1]


def divided(numerator: Array, denominator: Array) -> Array:
    """Return a quotient, or 0 where the denominator is not above 0."""
    usable = denominator > 0
    return jnp.where(usable, numerator / jnp.where(usable, denominator, 1), 0)
