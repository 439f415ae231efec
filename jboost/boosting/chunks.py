"""The rounds of a fit in compiled chunks, with progress, real stopping and Ctrl-C between them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost import _devices
from jboost._objective.damping import is_told_by_rows
from jboost._runtime import library
from jboost._runtime.memory import release_freed
from jboost._runtime.padding import ROOMY_NUMBERS, ROOMY_ROWS
from jboost._runtime.programs import program
from jboost._runtime.typing import zeros_varying_like
from jboost._sampling import draws_any
from jboost._tree import Tree
from jboost.boosting.callbacks import Callback, Progress, call_all
from jboost.boosting.diagnosing import warn_of_derivatives
from jboost.boosting.pacing import in_chunks, progress_bar
from jboost.boosting.rounds import (
    Problem,
    Round,
    State,
    counted,
    is_told_later,
    losses_of_rows,
    mean_of,
    try_step,
    unknown_one,
)
from jboost.boosting.stopping import history_of, losses_after
from jboost.boosting.watching import is_finished

CAPACITY = 64  # rounds that one call can return
ROOM = 4 << 20  # bytes that they may take

Watch = Callable[[Round, Any], tuple[Round, Any, bool]]


class Packed(NamedTuple):
    """Rounds as the compiled loop stores them, or one of them: all their numbers in two arrays."""

    floats: Float[Array, "*rounds f"]
    integers: Int[Array, "*rounds i"]


def drive(
    problem: Problem,
    state: State,
    verbose: bool | None,
    callbacks: tuple[Callback, ...] = (),
    watch: Watch | None = None,
) -> tuple[Round, Any]:
    """Run the rounds of a concrete problem.

    The number of rounds is no part of the compiled program. Ctrl-C ends the run with a warning; a loss that is
    no longer finite ends it too, and so does a callback that returns True. `watch` measures the new rounds on the host,
    and may keep fewer of them and end the run.

    Returns
    -------
    Round
        The rounds, stacked, on the host.
    float
        Training loss after the last of them.
    """
    wanted = problem.spec.n_estimators
    run = _Run(_for_the_program(problem), _placed(problem, state), watch)
    most, start = _capacity(problem, state), time.perf_counter()
    del state  # or its scores would stay beside those of the rounds

    def stops() -> bool:
        return bool(callbacks) and call_all(callbacks, run.progress(time.perf_counter() - start))

    try:
        if wanted:
            in_chunks(run.advance, wanted, most, progress_bar(wanted, "boosting", verbose), stops)
    finally:
        library.release_scratch()
    return _joined(run.chunks), run.loss


class _Run:
    """Rounds so far, and the state after them."""

    def __init__(self, problem: Problem, state: State, watch: Watch | None) -> None:
        self._problem, self._state, self._watch = problem, state, watch
        self._to_beat, self._memory_counts = state.best_metric, _is_large(problem)
        self._holds_few = _capacity(problem, state) < CAPACITY  # rounds a call, as many outputs take much
        self.chunks, self.loss = [_blank(problem, state, 0)], jnp.nan

    def advance(self, n_rounds: int) -> tuple[int, dict[str, str], bool]:
        """Run up to so many rounds; return their number, figures to show, and whether these were the last."""
        self._spare_memory()
        before, problem = self._state, self._problem
        state, rounds, loss, finished, rises, sound = run_chunk(problem, before, n_rounds)
        if rises:  # these once more, and all that follow, with the program that shortens steps
            self._problem = dataclasses.replace(problem, shortens=True)
            return 0, {}, False
        count = int(state.round) - int(before.round)
        if not sound:  # once more, as far as they were
            count -= 1
            state, rounds, loss, finished, *_ = run_chunk(problem, before, count)
            warn_of_derivatives(problem, state)
            if not count:
                return 0, {}, True
        made = _unpacked(rounds, count, _blank(problem, before, 1))
        if self._watch is not None:  # before anything is kept: it may take long, and be interrupted
            made, loss, finished = self._watch(made, loss)
        self.chunks.append(made)
        self._state, self.loss = state, loss
        return count, _figures(problem, made, loss), bool(finished or not sound or not np.isfinite(loss))

    def progress(self, seconds: float) -> Progress:
        """Say where the fit stands."""
        return _progress(self._problem, self.chunks, self.loss, self._to_beat, seconds)

    def _spare_memory(self) -> None:
        if (
            self._memory_counts and self._holds_few
        ):  # or the library and each thread of XLA keep what they took
            library.release_scratch()
            release_freed()
        if self._memory_counts and len(self.chunks) == 1:
            _compile_in_little_memory(self._problem, self._state)


def _compile_in_little_memory(problem: Problem, state: State) -> None:
    """Compile the rounds, and give back what that has freed before their arrays are made."""
    release_freed()
    if not run_chunk.is_kept(problem, state, 1):
        run_chunk.prepare(problem, state, 1)
        release_freed()


def begin_to_compile(problem: Problem, start: Callable[[], State]) -> None:
    """Begin to compile the rounds in another thread, while this one finds where they start.

    Not where memory counts, of which both compilers would take their share at the same time.
    """
    if not _is_large(problem) and problem.spec.n_estimators:
        with contextlib.suppress(Exception):  # it comes again where it is explained
            run_chunk.begin(_for_the_program(problem), _placed(problem, start()), 1)


def _for_the_program(problem: Problem) -> Problem:
    """Leave out what the compiled rounds need not know."""
    spec = dataclasses.replace(problem.spec, n_estimators=0)
    draws, shortens = draws_any(problem.hyper), not is_told_by_rows(problem.loss)
    return dataclasses.replace(problem, spec=spec, draws=draws, shortens=shortens, base=None, edges=None)


def _placed(problem: Problem, state: State) -> State:
    return _devices.placed(_devices.mesh_for(problem.train.weight.size), state)


def _is_large(problem: Problem) -> bool:
    """Say whether memory counts."""
    n_rows, k = problem.train.weight.size, problem.loss.n_outputs or 1
    return n_rows >= ROOMY_ROWS or problem.bins.size + n_rows * k >= ROOMY_NUMBERS


@program
def run_chunk(
    problem: Problem, state: State, n_rounds: int | Int[Array, ""]
) -> tuple[State, Packed, Array, Array, Array, Array]:
    """Run up to `n_rounds` rounds; return them in the first places of `_capacity`, and the loss after them.

    And whether a step is to be shortened, of which nothing else here may be used, and whether all derivatives were
    finite: else those of the last round were not.
    """
    mesh = _devices.mesh_for(problem.train.weight.size)
    if mesh is None:
        return _rounds(problem, state, n_rounds)
    return _devices.divided(mesh, _rounds, problem, state)(problem, state, jnp.asarray(n_rounds))


def _rounds(
    problem: Problem, state: State, n_rounds: Any
) -> tuple[State, Packed, Array, Array, Array, Array]:
    first, later = state.round, is_told_later(problem)

    def goes_on(carry: tuple[State, Packed, Any, Array, Array]) -> Array:
        state, _, _, rises, sound = carry
        return (state.round - first < n_rounds) & ~is_finished(problem, state.since_best) & ~rises & sound

    def one_more(carry: tuple[State, Packed, Any, Array, Array]) -> tuple[State, Packed, Any, Array, Array]:
        state, rounds, most, _, _ = carry
        new, result, rises, sound, most = try_step(_tied_to(state.round, problem), state, most)
        place = state.round - first
        # `at[place].set` would look for places out of range, in programs of its own.
        rounds = jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, place, 0),
            rounds,
            _packed(result),
        )
        return new, rounds, most, rises & (sound | later), sound

    room = jax.eval_shape(_packed, _blank(problem, state, 1))
    blank = jax.tree.map(lambda one: jnp.zeros((_capacity(problem, state), one.size), one.dtype), room)
    weight = problem.train.weight
    most = zeros_varying_like(weight, weight.shape, weight.dtype) + jnp.inf if later else None
    start = state, blank, most, jnp.asarray(False), jnp.asarray(True)
    state, rounds, most, rises, sound = jax.lax.while_loop(goes_on, one_more, start)
    loss = mean_of(counted(losses_of_rows(problem, state), problem.train, most), problem.train)
    rises |= jnp.isnan(loss) & later
    return state, rounds, loss, is_finished(problem, state.since_best), rises, sound


def _tied_to(n_rounds: Array, problem: Problem) -> Problem:
    """Return the problem with its numbers times 1.

    What follows from them alone would be computed before the loop, and each result takes a kernel of its own.
    """
    one = unknown_one(n_rounds)
    hyper, units = jax.tree.map(lambda x: x * one.astype(x.dtype), (problem.hyper, problem.units))
    return dataclasses.replace(problem, hyper=hyper, units=units)


def _packed(one: Round) -> Packed:
    """Put the numbers of a round side by side: a compiler takes as long for each array that is stored."""
    found = jax.tree.leaves(one)
    floats = [array.ravel() for array in found if jnp.issubdtype(array.dtype, jnp.floating)]
    integers = [array.ravel() for array in found if not jnp.issubdtype(array.dtype, jnp.floating)]
    return Packed(jnp.concatenate(floats), jnp.concatenate([_as_int32(array) for array in integers]))


def _as_int32(array: Array) -> Array:
    is_word = array.dtype == jnp.uint32
    return jax.lax.bitcast_convert_type(array, jnp.int32) if is_word else array.astype(jnp.int32)


def _unpacked(rounds: Packed, count: int, blank: Round) -> Round:
    """Take the rounds that were made apart, on the host and in arrays of their own; `blank` is like one of them."""
    floats, integers = (np.asarray(array)[:count] for array in rounds)
    places = {True: 0, False: 0}

    def take(like: np.ndarray) -> np.ndarray:
        is_float = like.dtype.kind == "f"
        start = places[is_float]
        places[is_float] += like.size
        found = (floats if is_float else integers)[:, start : places[is_float]]
        taken = np.empty((count, *like.shape[1:]), like.dtype)
        taken.reshape(count, like.size)[:] = found.view(np.uint32) if like.dtype == np.uint32 else found
        return taken

    return jax.tree.map(take, blank)


def _blank(problem: Problem, state: State, n: int) -> Round:
    """Make room for n rounds on the host."""
    zeros: Any = np.zeros
    spec, k, dtype = problem.spec, state.score.shape[1], state.score.dtype
    lead = (n, k) if spec.separate else (n,)
    splits = (*lead, spec.n_splits)
    tree = Tree(
        zeros(splits, jnp.int32),
        zeros(splits, jnp.int32),
        zeros(splits, bool),
        zeros((*splits, problem.layout.n_words), jnp.uint32),
        zeros(splits, dtype),
    )
    leaves = zeros((n, spec.n_leaves, k), dtype)
    counts = leaves if spec.separate else leaves[..., :1]
    return Round(tree, leaves, leaves, counts, zeros(n, dtype), zeros(n, dtype))


def _capacity(problem: Problem, state: State) -> int:
    """How many rounds a call returns: fewer than `CAPACITY` where many outputs make them large."""
    of_one = sum(array.nbytes for array in jax.tree.leaves(_blank(problem, state, 1)))
    return int(np.clip(ROOM // of_one, 1, CAPACITY))


def _joined(parts: list[Round]) -> Round:
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def _progress(problem: Problem, chunks: list[Round], loss: Any, to_beat: Any, seconds: float) -> Progress:
    """Say where the fit stands. The trees are left out, as joining them after every chunk would take long."""
    others = {
        one.name: None for one in dataclasses.fields(Round) if one.name not in ("train_loss", "valid_metric")
    }
    rounds = _joined([dataclasses.replace(chunk, **others) for chunk in chunks])
    history = history_of(problem, rounds, losses_after(rounds, loss), to_beat)
    return Progress(len(history.train_loss), history, seconds)


def _figures(problem: Problem, rounds: Round, loss: Any) -> dict[str, str]:
    figures = {"loss": f"{float(loss):.5g}"}
    return figures if problem.valid is None else figures | {"valid": f"{rounds.valid_metric[-1]:.5g}"}
