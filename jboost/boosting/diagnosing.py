"""Where boosting starts, whether the loss can be boosted from there, and why nothing was learned."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._model.ensemble import Ensemble
from jboost._objective.base_score import best_constant
from jboost._objective.derivatives import (
    check_derivatives,
    check_range,
    may_fail,
    per_row,
    raw_value_grad_hess,
)
from jboost._objective.loss import (
    Loss,
)
from jboost._runtime.caller import warn
from jboost.boosting.rounds import Problem, Round

MANY_ROWS = 50  # from which on a fit should find something to split
SAME_STEP = 1e-3  # relative: rows that want steps so alike need no split
NO_GAIN = 100  # times the smallest number: a gain of less is mostly lost to rounding
TOO_LIGHT = 5  # times min_child_weight: a sum of Hessians that hardly leaves room for two sides


def find_base_score(problem: Problem, init_model: Ensemble | None, traced: bool) -> Float[Array, " k"]:
    """Find the base score; look at the derivatives where they are concrete."""
    loss, y, weight = problem.loss, problem.train.y, problem.train.weight
    if traced:
        base = _base_score(y, weight, loss)
    else:
        base, suspicious = _examine(y, weight, loss)
        if suspicious:
            value, g, h = _derivatives_at(base, y, weight, loss)
            check_derivatives(loss, value, g, h, weight)
            check_range(g, weight)
    return base if init_model is None else init_model.base


def _base_score(y: Any, weight: Array, loss: Loss) -> Float[Array, " k"]:
    return jnp.reshape(best_constant(loss, y, weight), (loss.n_outputs or 1,))


@partial(jax.jit, static_argnums=2)
def _examine(y: Any, weight: Array, loss: Loss) -> tuple[Array, Array]:
    """Find the base score, and say whether the derivatives there deserve a closer look."""
    base = _base_score(y, weight, loss)
    value, g, h = _derivatives_at(base, y, weight, loss)
    return base, may_fail(loss, value, g, h, weight)


@partial(jax.jit, static_argnums=3)
def _derivatives_at(base: Array, y: Any, weight: Array, loss: Loss) -> tuple[Array, Array, Array]:
    """Return the value and derivatives of every row where boosting starts."""
    score = jnp.broadcast_to(base, (weight.size, base.size))
    return raw_value_grad_hess(loss, score[:, 0] if loss.n_outputs is None else score, y)


def warn_if_nothing_was_split(problem: Problem, base: Array, rounds: Round) -> None:
    """Say so where no round could learn anything: gradients too small to be squared, or rows too light to be parted."""
    train, least, gain = problem.train, float(problem.hyper.min_child_weight), rounds.tree.gain
    weight = np.asarray(train.weight)
    used = weight > 0
    could_split = used.sum() >= MANY_ROWS and gain.size and np.asarray(problem.usable).any()
    if gain.any() or not could_split:
        return
    found = _derivatives_at(base, train.y, train.weight, problem.loss)
    _, g, h = (np.asarray(part)[used] for part in found)
    share = per_row(weight[used], g)
    total = float((h * share).sum(axis=0).max())
    step = g / np.where(h > 0, h, 1)
    if (np.ptp(step, axis=0) <= SAME_STEP * np.abs(step).max(axis=0)).all():
        return
    gradient = float(np.abs(g * share, dtype=np.float64).sum(axis=0).max())
    if gradient**2 < NO_GAIN * np.finfo(g.dtype).tiny * total:
        warn(
            f"no tree has a split: gains are squares of gradients, which sum to no more than {gradient:.3g}, and "
            f"{g.dtype} has no numbers that small; multiply the target or the loss"
        )
    elif total < TOO_LIGHT * least:
        warn(
            f"no tree has a split: both sides of one need a Hessian of at least min_child_weight={least:g}, and that "
            f"of all rows is {total:.3g}; lower Hyper.min_child_weight, or multiply the loss or the weights"
        )
