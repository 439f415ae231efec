"""Where boosting starts, whether the loss can be boosted from there, and why nothing was learned."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
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
from jboost._objective.rows import Rows
from jboost._objective.units import Units, find_units
from jboost._runtime.caller import warn
from jboost._runtime.containers import refuse_masked
from jboost._runtime.memory import release_freed
from jboost._runtime.padding import ROOMY_NUMBERS
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced
from jboost._spec import Hyper
from jboost.boosting.rounds import Problem, Round, State

TOO_FEW = 5  # times min_child_samples: so many rows hardly leave room for two sides
MANY_ROWS = 50  # from which on a fit should find something to split
SAME_STEP = 1e-3  # relative: rows that want steps so alike need no split
RISEN = 1e-4  # relative: less may be rounding
RISEN_OF_DRAWN = 0.1  # or chance, where not all rows take part in a round
FAR = 16  # times: units at a base score that is given may differ so much from those at the best constant
LONG = 10  # times 1 / learning_rate: in so many rounds a fit should come near the end of its way
MANY_ROUNDS = 30  # before anything is said of how they went on
STEADY = 0.9  # of what the first third of the rounds lowers the loss by: where the last third still does
TOO_LIGHT = 5  # times min_child_weight: a sum of Hessians that hardly leaves room for two sides


class LossOnRows(Protocol):
    """A problem whose base score is to be found: of trees, or of what else is boosted."""

    @property
    def loss(self) -> Any:
        """Of the fit."""
        ...

    @property
    def train(self) -> Rows:
        """Its rows."""
        ...

    @property
    def spec(self) -> Any:
        """Its choices, `penalties` and `separate` among them."""
        ...


def find_start(
    problem: LossOnRows, given: Array | None, traced: bool, compiling: Callable[[], None]
) -> tuple[Float[Array, " k"], Units]:
    """Find the base score, unless it is given, and the units there; look at the derivatives where they are concrete.

    `compiling` is called before anything is compiled for that.
    """
    loss, rows = problem.loss, problem.train
    spec = problem.spec
    arguments = loss, rows, given, spec.penalties == "relative", spec.separate
    with explained(loss):
        if traced:
            return _start(*arguments)[:2]
        if not _examine.is_kept(*arguments):
            compiling()
            if rows.weight.size * (loss.n_outputs or 1) >= ROOMY_NUMBERS:
                _examine.prepare(*arguments)
                release_freed()  # as much as the arrays of all scores take
        base, units, suspicious = _examine(*arguments)
    if suspicious:
        if loss.constant is not None and not np.isfinite(base).all():
            raise ValueError(f"constant must return a finite score, got {np.asarray(base)}")
        value, g, h = _derivatives_at(loss, rows, base)
        check_derivatives(loss, value, g, h, rows.weight, np.asarray(base), given is not None, rows.y)
        check_range(g, h, rows.weight, np.asarray(base), given is not None)
    return base, units


def warn_if_units_are_far(problem: LossOnRows, given: Array, units: Units, hyper: Hyper) -> None:
    """Say so where a base score that is given sets other units than the best constant that a formula tells."""
    loss, rows = problem.loss, problem.train
    of_gradients = bool(hyper.reg_alpha or hyper.gamma)
    bends_alike = loss.homogeneous or loss.hessian == "first_order"
    if problem.spec.penalties != "relative" or (bends_alike and not of_gradients):
        return  # the base score decides nothing
    if loss.constant is None or rows.offset is not None:
        return
    best = program(_base_score)(loss, rows)
    _, usual, _ = _examine(
        loss, rows, best, True, problem.spec.separate
    )  # compiled for the base score that was given
    ratios = [np.asarray(units.of_h) / np.asarray(usual.of_h)]
    if of_gradients:
        ratios.append(np.asarray(units.of_g * units.size) / np.asarray(usual.of_g * usual.size))
    ratio = max(np.concatenate(ratios).tolist(), key=lambda one: abs(np.log(one)))
    if not 1 / FAR <= ratio <= FAR:
        warn(
            f"base_score={_numbers(given)} lies far from the best constant, {_numbers(best)}: the units of reg_lambda, "
            f"reg_alpha, gamma and min_child_weight are found there and {ratio:.3g} times as large; leave "
            'base_score out, give one that is nearer, or use Spec(penalties="absolute")'
        )


def _numbers(score: Array) -> str:
    return ", ".join(f"{number:.4g}" for number in np.ravel(score))


def adapted_at(problem: LossOnRows, base: Any, traced: bool) -> Any:
    """Return the loss with the numbers that it has where boosting starts, if it adapts to the scores."""
    loss = problem.loss
    if loss.adapt is None:
        return loss
    # A number of Python's is another type to a program than an array.
    loss = jax.tree.map(lambda leaf: as_array(leaf, float) if isinstance(leaf, float) else leaf, loss)
    numbers = (_adapted if traced else program(_adapted))(loss, problem.train, base)
    return jax.tree.unflatten(jax.tree.structure(loss), numbers)


def _adapted(loss: Any, rows: Rows, base: Array) -> list[Any]:
    return jax.tree.leaves(loss.adapted(_score_at(rows, base), rows))


def _base_score(loss: Any, rows: Rows) -> Float[Array, " k"]:
    return loss.leaf.base_score(loss, rows, None)


def as_base_score(given: Any, k: int) -> Float[Array, " k"]:
    """Return the score to start from, of each output; raise unless it is finite."""
    refuse_masked(given, "base_score", "give a number for each output")
    array = given if is_traced(given) else np.asarray(given)
    if not (jnp.issubdtype(array.dtype, jnp.integer) or jnp.issubdtype(array.dtype, jnp.floating)):
        raise TypeError(f"base_score must be a number, or one for each output, got {given!r}")
    if array.shape not in ((), (k,)):
        raise ValueError(f"base_score must be a number or have shape ({k},), got shape {array.shape}")
    if not is_traced(array) and not np.isfinite(np.asarray(as_array(array, float))).all():
        raise ValueError(f"base_score must be finite, got {given!r}")
    return jnp.broadcast_to(as_array(array, float), (k,))


@partial(program, static_argnums=(3, 4))
def _examine(
    loss: Any, rows: Rows, given: Array | None, relative: bool, separate: bool
) -> tuple[Array, Units, Array]:
    """Find the base score unless it is given, and say whether the derivatives there deserve a closer look."""
    base, units, found = _start(loss, rows, given, relative, separate)
    return base, units, may_fail(loss, *found, rows.weight)


def _start(
    loss: Any, rows: Rows, given: Array | None, relative: bool, separate: bool
) -> tuple[Array, Units, tuple[Array, Array, Array]]:
    """Return the base score, the units there, and the value and derivatives of every row."""
    base = _base_score(loss, rows) if given is None else given
    score = _score_at(rows, base)
    found = _expanded(loss, rows, score)
    return base, find_units(loss, score, found, rows, relative, separate), found


@program
def _derivatives_at(loss: Any, rows: Rows, base: Array) -> tuple[Array, Array, Array]:
    """Return the value and derivatives of every row where boosting starts."""
    return _expanded(loss, rows, _score_at(rows, base))


def _score_at(rows: Rows, base: Float[Array, " k"]) -> Float[Array, "n k"]:
    score = jnp.broadcast_to(base, (rows.weight.size, base.size))
    return score if rows.offset is None else score + rows.offset


def _expanded(loss: Any, rows: Rows, score: Float[Array, "n k"]) -> tuple[Array, Array, Array]:
    return raw_derivatives(loss, score[:, 0] if loss.n_outputs is None else score, rows)


def warn_of_derivatives(problem: Problem, state: State) -> None:
    """Say in which round, and of which row, a derivative was not finite: what was learned before is kept."""
    loss, rows = problem.loss, problem.train
    _, g, h = (np.asarray(part) for part in program(_expanded)(loss, rows, state.score))
    used = np.asarray(rows.weight) > 0
    for label, values in (("first", g), ("second", h)):
        bad = ~np.isfinite(values.reshape(len(used), -1)).all(axis=1) & used
        if bad.any():
            row = int(np.argmax(bad))
            warn(
                f"the {label} derivative of {loss.name or 'the loss'} was not finite in round {int(state.round) + 1} "
                f"(row {row}: {values[row]} at a score of {np.asarray(state.score)[row]}): the model holds the rounds "
                "before; write the loss without 0/0, inf - inf or a root or logarithm at 0",
                RuntimeWarning,
            )
            return
    if problem.sampler is None:
        _warn_of_range(loss, rows, state, g, h)
        return
    warn(
        f"a derivative was not finite in round {int(state.round) + 1}: the model holds the rounds before; look at the "
        "weights of a sampler of your own",
        RuntimeWarning,
    )


def _warn_of_range(loss: Any, rows: Rows, state: State, g: np.ndarray, h: np.ndarray) -> None:
    """Name the row whose derivative counts most where all are finite, but not in units of the fit."""
    weight = np.asarray(rows.weight, np.float64)

    def largest(values: np.ndarray) -> np.ndarray:
        sizes = np.abs(values.reshape(weight.size, -1)).max(axis=1)
        return np.where(weight > 0, sizes, 0) * weight

    of_g, of_h = largest(g), largest(h)
    label, values, sizes = ("first", g, of_g) if of_g.max() > of_h.max() else ("second", h, of_h)
    row = int(np.argmax(sizes))
    warn(
        f"the {label} derivatives of {loss.name or 'the loss'}, in units of the fit, left the range of {values.dtype} "
        f"in round {int(state.round) + 1} (row {row}: {values[row]} at a score of {np.asarray(state.score)[row]}): the "
        "model holds the rounds before; bound the outputs in the loss where it falls without end",
        RuntimeWarning,
    )


def warn_if_nothing_was_split(problem: Problem, rounds: Round) -> None:
    """Say so where no round could learn anything, and name what forbids every split."""
    train, least, gain = problem.train, float(problem.hyper.min_child_weight), rounds.tree.gain
    weight = np.asarray(train.weight)
    used = weight > 0
    could_split = used.sum() >= MANY_ROWS and gain.size and np.asarray(problem.usable).any()
    if gain.any() or not could_split:
        return
    assert problem.base is not None
    _, g, h = (np.asarray(part)[used] for part in _derivatives_at(problem.loss, train, problem.base))
    step = g / np.where(h > 0, h, 1)
    if (np.ptp(step, axis=0) <= SAME_STEP * np.abs(step).max(axis=0)).all():
        return
    gradient, total = _sums_in_units(problem.units, g, h, weight[used])
    if total < TOO_LIGHT * least:
        warn(
            f"no tree has a split: both sides of one need a Hessian of at least min_child_weight={least:g}, and that "
            f"of all rows is {total:.3g}{_of_rows(problem)}; lower Hyper.min_child_weight"
        )
    else:
        _warn_of_what_forbids_splits(problem, int(used.sum()), gradient)


def warn_if_loss_rose(problem: Problem, rounds: Round, loss: Any) -> None:
    """Say so where the training loss ended above where it began."""
    history = np.asarray(rounds.train_loss)
    if problem.loss.adapt is not None or not rounds.tree.gain.any() or not np.isfinite(loss):
        return
    all_rows = problem.sampler is None and float(problem.hyper.subsample) == 1
    least = RISEN if all_rows else RISEN_OF_DRAWN
    if loss > history[0] + least * np.abs([history[0], history.min()]).max():
        warn(
            f"the training loss ended at {float(loss):.6g}, above the {history[0]:.6g} that the base score has; lower "
            "Hyper.learning_rate, which should be at most 1, or raise Hyper.subsample or Hyper.reg_lambda"
        )


def warn_if_steps_are_short(problem: Problem, rounds: Round, loss: Any) -> None:
    """Say so where the training loss falls as slowly, after many rounds, as at the start: the way is much longer."""
    history = np.append(np.asarray(rounds.train_loss, np.float64), float(loss))
    n_rounds, third = len(history) - 1, (len(history) - 1) // 3
    is_long = n_rounds >= max(MANY_ROUNDS, LONG / float(problem.hyper.learning_rate))
    if (
        problem.loss.adapt is not None
        or not rounds.tree.gain.any()
        or not is_long
        or not np.isfinite(history).all()
    ):
        return
    first, last = history[0] - history[third], history[-1 - third] - history[-1]
    if np.ptp(history) == 0:
        said = f"stayed at {history[0]:.6g}"
    elif first > 0 and last >= STEADY * first:
        said = f"fell by {first:.3g} in the first {third} rounds, by {last:.3g} in the last ones, to {history[-1]:.6g}"
    else:
        return
    warn(
        f"the training loss {said}: the way is much longer than the steps. A loss whose width is a number, as "
        "huber(1.0), needs a larger one, or huber(), which follows the residuals; else raise Hyper.learning_rate or "
        "Spec.n_estimators"
    )


def _sums_in_units(units: Units, g: Any, h: Any, weight: Any) -> tuple[float, float]:
    """Return the largest sums over the rows of the sizes of gradients and of h, in units of the penalties."""
    k, column = np.asarray(units.h).size, weight[:, None]
    of_g, of_h, size = (np.asarray(one, np.float64) for one in (units.of_g, units.of_h, units.size))
    gradients = np.abs(g.reshape(-1, k) * column, dtype=np.float64) / (of_g * size)
    return float(gradients.sum(axis=0).max()), float((h.reshape(-1, k) * column / of_h).sum(axis=0).max())


def _of_rows(problem: Problem) -> str:
    return " times that of an average one" if problem.spec.penalties == "relative" else ""


def _warn_of_what_forbids_splits(problem: Problem, n_rows: int, gradient: float) -> None:
    """Name the setting that leaves no split, where rows want different steps and weigh enough."""
    hyper, few = problem.hyper, problem.spec.min_child_samples
    drawn, alpha, gamma = (
        float(number) for number in (n_rows * hyper.subsample, hyper.reg_alpha, hyper.gamma)
    )
    if drawn < 2:
        warn(
            f"no tree has a split: a tree gets {drawn:.2g} of the {n_rows} rows on average by subsample="
            f"{float(hyper.subsample):g}; raise Hyper.subsample"
        )
    elif problem.spec.counts_rows and drawn < TOO_FEW * few:
        warn(
            f"no tree has a split: both sides of one need min_child_samples={few} rows, and a tree gets {drawn:.0f}; "
            "lower Spec.min_child_samples"
        )
    elif gradient <= alpha:
        warn(
            f"no tree has a split: the sum of gradients on a side must exceed reg_alpha={alpha:g}, and that of "
            f"the sizes of all is {gradient:.3g}; lower Hyper.reg_alpha"
        )
    elif gamma > 0:
        warn(f"no tree has a split: no admissible one gains more than gamma={gamma:g}; lower Hyper.gamma")
