"""One pass over the coefficients, and the ways to choose which of them changes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from jboost._model.linear import dot
from jboost.linear.quadratic import Quadratic, best_change

FeatureSelector = Literal["cyclic", "shuffle", "random", "greedy", "thrifty", "block"]
BY_SIZE = ("greedy", "thrifty")  # selectors that may stop after the best few


class Move(NamedTuple):
    """What a pass changes."""

    score: Float[Array, "k n"]
    constant: Float[Array, " k"]
    coef: Float[Array, "k f"]


Choose = Callable[[Array, Move], Int[Array, " k"]]  # of the number of a step and what has been moved so far


def move(
    quadratic: Quadratic, selector: FeatureSelector, n_steps: int, rate: Float[Array, ""], key: Key[Array, ""]
) -> Move:
    """Change the constant, then the coefficients: each `rate` of the way to where the quadratic is least along it."""
    bend = quadratic.h.sum(axis=1)
    constant = -rate * quadratic.g.sum(axis=1) / jnp.where(bend > 0, bend, 1)
    score = jnp.broadcast_to(constant[:, None], quadratic.g.shape)
    start = Move(score, constant, jnp.zeros_like(quadratic.coef))
    if selector == "block":
        return _move_all(quadratic, start, rate)
    choose = (
        _greedy(quadratic) if selector == "greedy" else _in_order(_order(quadratic, start, selector, key))
    )

    def step(number: Array, moved: Move) -> Move:
        return _move_one(quadratic, moved, choose(number, moved), rate)

    return jax.lax.fori_loop(0, n_steps, step, start)


def _move_one(quadratic: Quadratic, moved: Move, chosen: Int[Array, " k"], rate: Float[Array, ""]) -> Move:
    """Change one coefficient of each output."""
    output = jnp.arange(chosen.size, dtype=chosen.dtype)
    column = quadratic.columns[chosen]  # [k n]
    slope = jnp.sum(column * (quadratic.g + quadratic.h * moved.score), axis=1)
    curvature = jnp.sum(jnp.square(column) * quadratic.h, axis=1)
    coef, l2, l1 = (
        (one[output, chosen]) for one in (quadratic.coef + moved.coef, quadratic.l2, quadratic.l1)
    )
    change = rate * best_change(slope, curvature, coef, l2, l1).change
    score = moved.score + change[:, None] * column
    return Move(score, moved.constant, moved.coef.at[output, chosen].add(change))


def _move_all(quadratic: Quadratic, moved: Move, rate: Float[Array, ""]) -> Move:
    """Change all coefficients of an output at once, as far as the quadratic surely falls.

    At t times the joint change D it is no more than t (G D + penalty(b + D) - penalty(b)) + t^2 / 2 sum h (Z D)^2,
    since the penalty is convex; t minimises that bound in [0, 1].
    """
    slope = quadratic.slopes(moved.score)
    curvature = quadratic.curvatures()
    change, fall = quadratic.best(slope, curvature, quadratic.coef)
    fall = jnp.sum(fall + curvature * jnp.square(change) / 2, axis=1)  # without what bends
    direction = dot(change, quadratic.columns)
    bend = jnp.sum(quadratic.h * jnp.square(direction), axis=1)
    shortened = bend > fall
    length = rate * jnp.where(shortened, jnp.maximum(fall, 0) / jnp.where(shortened, bend, 1), 1)
    score = moved.score + length[:, None] * direction
    return Move(score, moved.constant, length[:, None] * change)


def _in_order(order: Int[Array, "k s"]) -> Choose:
    return lambda number, moved: order[:, number]


def _order(
    quadratic: Quadratic, start: Move, selector: FeatureSelector, key: Key[Array, ""]
) -> Int[Array, "k f"]:
    """Return the coefficients of each output in the order in which they change."""
    k, f = quadratic.coef.shape
    every = jnp.arange(f, dtype=jnp.int32)
    if selector == "thrifty":
        falls = quadratic.best(quadratic.slopes(start.score), quadratic.curvatures(), quadratic.coef).fall
        return jnp.argsort(-falls, axis=1, stable=True).astype(jnp.int32)
    if selector == "shuffle":
        every = jax.random.permutation(key, every)
    if selector == "random":
        every = jax.random.randint(key, (f,), 0, f, jnp.int32)
    return jnp.broadcast_to(every[None], (k, f))


def _greedy(quadratic: Quadratic) -> Choose:
    """Choose the coefficient whose change takes the quadratic down most."""
    curvature = quadratic.curvatures()

    def choose(number: Array, moved: Move) -> Int[Array, " k"]:
        falls = quadratic.best(quadratic.slopes(moved.score), curvature, quadratic.coef + moved.coef).fall
        return jnp.argmax(falls, axis=1).astype(jnp.int32)

    return choose
