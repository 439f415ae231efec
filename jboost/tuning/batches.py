"""Members of a sweep in one compiled program, some at a time: where one has ended another takes its place."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jboost._runtime import library
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array
from jboost.boosting.best_round import follow, signed
from jboost.boosting.rounds import Problem, State, train_loss, try_step
from jboost.tuning.members import Own, of_member

Keeps = Literal["nothing", "held", "all"]
MOST_ROUNDS = 32  # of a call: so often members that have ended make room


class Member(NamedTuple):
    """A fit that is to be run, and how far it is."""

    own: Own
    state: State


class Done(NamedTuple):
    """What a member leaves behind."""

    train_loss: Float[np.ndarray, " t"]  # after each round
    metric: Float[np.ndarray, " t"]
    best_round: int
    held_score: Float[np.ndarray, "m k"] | None = None  # of the rows held out, after the last call
    score: Float[np.ndarray, "n k"] | None = None  # of all rows


class Found(NamedTuple):
    """What a call makes of b members in some rounds, of which there is room for `MOST_ROUNDS`."""

    state: State
    train_loss: Float[Array, "rounds b"]  # before each round
    metric: Float[Array, "rounds b"]
    sound: Bool[Array, "rounds b"]  # whether all derivatives of a round were finite
    rises: Bool[Array, " b"]  # whether the loss of a leaf may have risen while they were
    loss_after: Float[Array, " b"]


def run_all(
    shared: Problem,
    members: Sequence[Callable[[], Member]],
    width: int,
    ended: Callable[[int, Done], None],
    progress: Callable[[int], Any],
    keeps: Keeps = "nothing",
) -> None:
    """Run members, `width` at a time, and give `ended` what each leaves.

    Parameters
    ----------
    shared : Problem
        What all have in common; its spec says when a member has ended.
    members : functions
        Each makes a member when its turn has come.
    width : int
        How many run at a time, one compiled program for all; the last ones have idle neighbours.
    ended : function
        Of a member's number and what it leaves.
    progress : function
        Of the number of rounds that were made.
    keeps : str
        What scores a member leaves: of the rows held out, or of all.
    """
    spec, waiting = shared.spec, deque(enumerate(members))
    of_program = dataclasses.replace(spec, n_estimators=0, n_iter_no_change=None)
    shared = dataclasses.replace(shared, spec=of_program, base=None, edges=None)
    running: list[_Running] = []
    batch = None
    try:
        while waiting or running:
            while waiting and len(running) < width:
                number, make = waiting.popleft()
                running.append(_Running(number, make()))
                batch = None
            if batch is None:
                batch = _stacked([one.member for one in running], width)
            n_rounds = min(MOST_ROUNDS, *(spec.n_estimators - len(one.before) for one in running))
            found = run_batch(shared, *batch, n_rounds)
            if np.asarray(found.rises).any():  # once more, with steps that are shortened
                shared = dataclasses.replace(shared, shortens=True)
                continue
            batch = batch[0], found.state
            progress(n_rounds * len(running))
            going = _going(running, found, n_rounds, shared, spec, ended, keeps)
            if len(going) < len(running):
                state = jax.tree.map(_on_host, found.state)
                running = [one.at(state, place) for place, one in going]
                batch = None
    finally:
        library.release_scratch()


def _going(
    running: list[_Running],
    found: Found,
    n_rounds: int,
    shared: Problem,
    spec: Any,
    ended: Callable[[int, Done], None],
    keeps: Keeps,
) -> list[tuple[int, _Running]]:
    """Note what a call has made of the members; return those that have not ended, with their places."""
    parts = [np.asarray(part) for part in (found.train_loss, found.metric, found.sound)]
    going, after = [], np.asarray(found.loss_after)
    for place, one in enumerate(running):
        losses, metric, sound = (part[:n_rounds, place] for part in parts)
        one.note(losses, metric, sound, after[place])
        done = one.done(shared, spec)
        if done is None:
            going.append((place, one))
        else:
            state, scores = found.state, {}
            if keeps != "nothing":
                scores["held_score"] = np.asarray(state.valid_score[place])
            if keeps == "all":
                scores["score"] = np.asarray(state.score[place])
            ended(one.number, done._replace(**scores))
    return going


class _Running:
    """A member on its way."""

    def __init__(self, number: int, member: Member) -> None:
        self.number, self.member = number, member
        self.before = np.zeros(0, member.state.score.dtype)  # the training loss before each round
        self.metric, self.after, self.is_sound = self.before, self.before.dtype.type(0), True

    def note(self, losses: np.ndarray, metric: np.ndarray, sound: np.ndarray, after: np.ndarray) -> None:
        """Add the rounds of a call, up to one whose derivatives are not finite."""
        n_sound = int(np.argmin(np.append(sound, False)))
        self.is_sound = n_sound == len(sound)
        self.after = after if self.is_sound else losses[n_sound]
        self.before = np.append(self.before, losses[:n_sound])
        self.metric = np.append(self.metric, metric[:n_sound])

    def done(self, shared: Problem, spec: Any) -> Done | None:
        """Return what it leaves if it has ended: as early stopping, and a loss that is no number, end a fit."""
        losses = np.append(self.before[1:], self.after)[: len(self.before)]
        n_rounds = int(np.argmin(np.append(np.isfinite(losses), False)))
        ends = n_rounds < len(losses) or not self.is_sound or n_rounds == spec.n_estimators
        if shared.valid is None:
            none = np.full(n_rounds, np.nan, losses.dtype)
            return Done(losses[:n_rounds], none, n_rounds - 1) if ends else None
        patience, metric = spec.n_iter_no_change, self.metric[:n_rounds]
        n_kept, best = follow(signed(metric, shared.metric), np.inf, self.member.own.hyper.tol, patience)
        ends |= patience is not None and n_kept - 1 - best >= patience
        return Done(losses[:n_kept], metric[:n_kept], best) if ends else None

    def at(self, state: State, place: int) -> _Running:
        """Return it with its state, which is in this place of those of a batch."""
        self.member = self.member._replace(state=jax.tree.map(lambda part: part[place], state))
        return self


@program
def run_batch(shared: Problem, own: Own, state: State, n_rounds: int | Int[Array, ""]) -> Found:
    """Run some rounds of all members; end early where one has a step that is to be shortened."""

    def one_round(own: Own, state: State) -> tuple[State, Any, Array]:
        new, result, rises, sound, _ = try_step(of_member(shared, own), state)
        return new, (result.train_loss, result.valid_metric, sound), rises

    def goes_on(carry: tuple[Any, ...]) -> Array:
        i, _, _, rises = carry
        return (i < n_rounds) & ~jnp.any(rises)

    def one_more(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, state, stored, _ = carry
        state, found, rises = jax.vmap(one_round)(own, state)
        stored = jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, i, 0), stored, found
        )
        return i + 1, state, stored, rises & stored[2].all(axis=0)

    b = own.weight.shape[0]
    room = jnp.zeros((MOST_ROUNDS, b), state.score.dtype)
    start = (
        jnp.asarray(0, jnp.int32),
        state,
        (room, room, jnp.ones((MOST_ROUNDS, b), bool)),
        jnp.zeros(b, bool),
    )
    _, state, stored, rises = jax.lax.while_loop(goes_on, one_more, start)
    after = jax.vmap(lambda own, state: train_loss(of_member(shared, own), state))(own, state)
    losses, metrics, sound = stored
    return Found(state, losses, metrics, sound, rises, after)


def _stacked(members: list[Member], width: int) -> Any:
    """Put members side by side, the last one again where there are too few."""
    members = members + [members[-1]] * (width - len(members))

    def stack(*parts: Any) -> Any:
        if not jnp.issubdtype(parts[0].dtype, jax.dtypes.prng_key):
            return as_array(np.stack([np.asarray(part) for part in parts]))
        data = np.stack([np.asarray(jax.random.key_data(part)) for part in parts])
        return jax.random.wrap_key_data(as_array(data), impl=jax.random.key_impl(parts[0]))

    return jax.tree.map(stack, *members)


def _on_host(part: Any) -> Any:
    return part if jnp.issubdtype(part.dtype, jax.dtypes.prng_key) else np.asarray(part)
