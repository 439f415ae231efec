"""Where boosting starts, whether the loss can be boosted from there, and why nothing was learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._objective.derivatives import (
    check_derivatives,
    check_range,
    explained,
    may_fail,
    raw_derivatives,
)
from jboost._objective.rows import Rows, per_row
from jboost._runtime.caller import warn
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced
from jboost.boosting.rounds import Problem, Round

TOO_FEW = 5  # times min_child_samples: so many rows hardly leave room for two sides
MANY_ROWS = 50  # from which on a fit should find something to split
SAME_STEP = 1e-3  # relative: rows that want steps so alike need no split
NO_GAIN = 100  # times the smallest number: a gain of less is mostly lost to rounding
TOO_LIGHT = 5  # times min_child_weight: a sum of Hessians that hardly leaves room for two sides


def find_base_score(
    problem: Problem, given: Any, traced: bool, compiling: Callable[[], None]
) -> Float[Array, " k"]:
    """Find the base score, unless it is given; look at the derivatives where they are concrete.

    `compiling` is called before anything is compiled for that.
    """
    loss, rows = problem.loss, problem.train
    given = None if given is None else _check_base_score(given, loss.n_outputs or 1)
    with explained(loss):
        if traced:
            return _base_score(loss, rows) if given is None else given
        if not _examine.is_kept(loss, rows, given):
            compiling()
        base, suspicious = _examine(loss, rows, given)
    if suspicious:
        if loss.constant is not None and not np.isfinite(base).all():
            raise ValueError(f"constant must return a finite score, got {np.asarray(base)}")
        value, g, h = _derivatives_at(loss, rows, base)
        check_derivatives(loss, value, g, h, rows.weight)
        check_range(g, rows.weight)
    return base


def _base_score(loss: Any, rows: Rows) -> Float[Array, " k"]:
    return loss.leaf.base_score(loss, rows, None)


def _check_base_score(given: Any, k: int) -> Float[Array, " k"]:
    array = given if is_traced(given) else np.asarray(given)
    if not (jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"base_score must be a number, or one for each output, got {given!r}")
    if array.shape not in ((), (k,)):
        raise ValueError(f"base_score must be a number or have shape ({k},), got shape {array.shape}")
    if not is_traced(array) and not np.isfinite(np.asarray(as_array(array, float))).all():
        raise ValueError(f"base_score must be finite, got {given!r}")
    return jnp.broadcast_to(as_array(array, float), (k,))


@program
def _examine(loss: Any, rows: Rows, given: Array | None) -> tuple[Array, Array]:
    """Find the base score unless it is given, and say whether the derivatives there deserve a closer look."""
    base = _base_score(loss, rows) if given is None else given
    value, g, h = _derivatives_at(loss, rows, base)
    return base, may_fail(loss, value, g, h, rows.weight)


@program
def _derivatives_at(loss: Any, rows: Rows, base: Array) -> tuple[Array, Array, Array]:
    """Return the value and derivatives of every row where boosting starts."""
    score = jnp.broadcast_to(base, (rows.weight.size, base.size))
    score = score if rows.offset is None else score + rows.offset
    return raw_derivatives(loss, score[:, 0] if loss.n_outputs is None else score, rows)


def warn_if_nothing_was_split(problem: Problem, rounds: Round) -> None:
    """Say so where no round could learn anything: gradients too small to be squared, or rows too light to be parted."""
    train, least, gain = problem.train, float(problem.hyper.min_child_weight), rounds.tree.gain
    weight = np.asarray(train.weight)
    used = weight > 0
    could_split = used.sum() >= MANY_ROWS and gain.size and np.asarray(problem.usable).any()
    if gain.any() or not could_split:
        return
    assert problem.base is not None
    found = _derivatives_at(problem.loss, train, problem.base)
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
    else:
        _warn_of_what_forbids_splits(problem, int(used.sum()), gradient)


def _warn_of_what_forbids_splits(problem: Problem, n_rows: int, gradient: float) -> None:
    """Name the setting that leaves no split, where rows want different steps and weigh enough."""
    hyper, few = problem.hyper, problem.spec.min_child_samples
    drawn, alpha, gamma = (
        float(number) for number in (n_rows * hyper.subsample, hyper.reg_alpha, hyper.gamma)
    )
    if problem.spec.counts_rows and drawn < TOO_FEW * few:
        warn(
            f"no tree has a split: both sides of one need min_child_samples={few} rows, and a tree gets {drawn:.0f}; "
            "lower Spec.min_child_samples"
        )
    elif gradient <= alpha:
        warn(
            f"no tree has a split: the sum of gradients on a side must exceed reg_alpha={alpha:g}, and that of "
            f"the sizes of all is {gradient:.3g}; lower Hyper.reg_alpha, or multiply the loss or the weights"
        )
    elif gamma > 0:
        warn(
            f"no tree has a split: no admissible one gains more than gamma={gamma:g}; lower Hyper.gamma, or "
            "multiply the loss or the weights"
        )
