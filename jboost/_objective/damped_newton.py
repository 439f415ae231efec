"""The minimum of a mean loss over one constant score, in whatever units, by damped Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jboost._objective.moments import Moments
from jboost._objective.symmetric import along, diagonal_of, scaled_eigen

MAX_ITERATIONS = 300
CLEARLY_FLATTER = 0.9
HARDLY_HIGHER = 0.01  # of a mean loss: so much may it rise where the slope falls
HOPELESS_DAMPING = 1e6
ROUNDING = 8  # units of rounding below which a mean over the rows is taken for noise
FIRST_DAMPING = 1e-3
LEAST_BEND = 1 / 64  # of a loss, in the unit that an output is taken to have
LEAST_DAMPING = 1 / 64  # after a step that failed: less would hardly change the step
HARDLY_FLATTER = 0.3  # times the slope before: towards infinity a Newton step leaves 1/e of it
BOUND = 4.0  # on a step, times 1 or the size of the score
SIZES = 5  # of a score, doubled from that of the bound, to look for a finite loss
EDGE = 1e-3  # of a score: so short a step out of the range of the floats means a loss without a bound


class Place(NamedTuple):
    """A place to start from, where the loss must bend about as it does in the units that outputs are taken to have."""

    constant: Array  # [k]
    unit: Array  # [k] of the outputs; 0: any


class _Search(NamedTuple):
    constant: Array  # [k] the best place so far
    at: Moments
    trial: Array  # [k] the place to look at next
    gain: Array  # [] twice what a parabola through the best place promises
    limited: Array  # [] whether the bound on steps brought the trial nearer
    largest: Array  # [] value_size so far
    damping: Array  # []
    reach: Array  # [k] above 1 times a Newton step, or times the bound if that limits; below 1 a share of the bound
    fails: Array  # [] in a row
    iteration: Array  # []
    done: Array  # []


def minimise(moments: Callable[[Array], Moments], origin: Array, start: Place, may_be_level: bool) -> _Search:
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
        bends = jnp.abs(diagonal_of(new.h)) * start.unit * start.unit >= LEAST_BEND
        may_start = (state.iteration != 1) | jnp.all(bends | (start.unit == 0))
        # Where nothing may depend on the constant, the first place is not left for its rounding.
        least = ROUNDING * eps * state.at.value_size if may_be_level else 0
        is_lower = state.at.value - new.value > least
        accept = finite & jnp.where(starting, may_start & is_lower, is_better)
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
        trial = jnp.where(state.iteration == 0, start.constant, trial)
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


def _is_better(new: Moments, old: Moments, step: Array, may_be_level: bool) -> Array:
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
    state: _Search, new: Moments, step: Array, accept: Array, starting: Array
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


def _damped_step(at: Moments, damping: Array, bound: Array, largest: Array) -> tuple[Array, Array, Array]:
    """Return -(|H| + damping diag H)^-1 g, damped further until it is within the bound; g |H|^-1 g; whether it had to.

    Left out are directions in which g is only rounding, and outputs by which all rows together can gain nothing that
    counts: those whose minimum lies at infinity.
    """
    eps = jnp.finfo(at.g.dtype).eps
    # Where second derivatives overflow, those of an exponential: as large as the first ones.
    unit = jnp.eye(at.g.size, dtype=at.g.dtype)
    h = jnp.where(jnp.all(jnp.isfinite(at.h)), at.h, unit * jnp.abs(at.g)[None])
    gone = jnp.square(at.g_size) <= eps**2 * jnp.minimum(largest, 1) * jnp.abs(diagonal_of(h))
    scale, values, vectors = scaled_eigen(h)
    slope = along(vectors, scale * jnp.where(gone, 0, at.g))
    rounding = ROUNDING * eps * along(jnp.abs(vectors), scale * at.g_size)
    slope = jnp.where(jnp.abs(slope) <= rounding, 0, slope)
    size = jnp.abs(values)
    gain = jnp.sum(jnp.where(slope == 0, 0, jnp.square(slope) / size))
    per_bound = jnp.abs(vectors) * (scale / bound)[:, None]
    least = jnp.max(per_bound * jnp.abs(slope)[None] - size[None])
    step = -scale * along(vectors.T, slope / (size + jnp.maximum(damping, least)))
    return step, gain, least > damping


def _steps_apart(at: Moments, bound: Array) -> Array:
    """Return the step of each output alone, within its bound.

    An output that hardly bends has the others damped with it, until rounding takes the steps of all.
    """
    size = jnp.abs(at.g)
    return -at.g / jnp.where(size > 0, jnp.abs(diagonal_of(at.h)) + size / bound, 1)


def _elsewhere(origin: Array, turn: Array) -> Array:
    """Return where to look for a finite loss after 0 and the mean: one output at 4, -4, 8, ... -64, the others 0."""
    k = origin.size
    doubled, place = jnp.divmod(turn - 1, 2 * k)
    size = jnp.where(place < k, BOUND, -BOUND) * jnp.exp2(doubled.astype(origin.dtype))
    return jnp.where(jnp.arange(k) == place % k, size, origin)
