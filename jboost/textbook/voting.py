"""Rounds of AdaBoost in one compiled scan: a tree by weights, its error, its say, other weights.

A tree of squared error on indicators of the classes is one by Gini impurity: with no penalty its gain is half of
sum_l W_l sum_k p_lk^2 over the children less that of the parent, and a leaf holds the shares p_lk of the classes.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._fixed_point import sum_by_group, total
from jboost._runtime.typing import pytree
from jboost.boosting import Problem, Round, State, step

NOISE = 16  # times the precision of a float: what rounding may do to an error, or to a share


@pytree
class Voting:
    """What a round changes."""

    state: State
    weight: Float[Array, " n"]  # their sum stays that of the first round
    n_rounds: Int[Array, ""]  # that have a say
    ended: Bool[Array, ""]


class Verdict(NamedTuple):
    """What follows from the error of a tree."""

    alpha: Float[Array, ""]  # 0 if it has no say
    counts: Bool[Array, ""]
    ends: Bool[Array, ""]


def run(
    problem: Problem, state: State, learning_rate: Float[Array, ""], n_classes: int
) -> tuple[Voting, Round, Float[Array, " t"], Float[Array, " t"]]:
    """Run all rounds: the votes of leaves come back stacked, with the say and the error of each tree.

    Rounds after the end, as those of a tree that is no better than chance, have no say.
    """
    label = class_of(problem.train.y, n_classes)
    problem = dataclasses.replace(problem, edges=None, base=None)

    def one(before: Voting, _: None) -> tuple[Voting, tuple[Round, Array, Array]]:
        state, grown, vote = _grow(problem, before, label, n_classes)
        wrong = vote != label
        error = total(jnp.where(wrong, before.weight, 0)) / total(before.weight)
        verdict = judge(error, (wrong & (before.weight > 0)).any(), learning_rate, n_classes)
        alpha = jnp.where(before.ended, 0, verdict.alpha)
        counts, ended = verdict.counts & ~before.ended, verdict.ends | before.ended
        weight = jnp.where(ended, before.weight, _reweighted(before.weight, wrong, alpha))
        after = Voting(state, weight, before.n_rounds + counts.astype(jnp.int32), ended)
        return after, (grown, alpha, error)

    start = Voting(state, problem.train.weight, jnp.int32(0), jnp.asarray(False))
    after, (rounds, alpha, error) = jax.lax.scan(one, start, length=problem.spec.n_estimators)
    return after, rounds, alpha, error


def judge(
    error: Float[Array, ""], errs: Bool[Array, ""], learning_rate: Float[Array, ""], n_classes: int
) -> Verdict:
    """Give a tree its say: alpha = log((1 - err) / err) + log(K - 1), times the learning rate.

    One without an error ends the rounds with a say of 1, and one no better than chance, without a say.
    """
    # Hastie et al. (2009), Algorithm 10.1, line 2c; Zhu et al. (2009), Algorithm 2, line 2c
    chance = 1 - 1 / n_classes
    limits = jnp.finfo(error.dtype)
    is_chance = error >= chance - NOISE * limits.eps
    usual = errs & ~is_chance
    inside = jnp.where(usual, jnp.maximum(error, limits.tiny), chance / 2)  # whose logarithm has a derivative
    alpha = learning_rate * (jnp.log1p(-inside) - jnp.log(inside) + jnp.log(float(n_classes - 1)))
    return Verdict(jnp.where(usual, alpha, (~errs).astype(alpha.dtype)), ~is_chance, ~usual)


def class_of(target: Float[Array, "n *k"], n_classes: int) -> Int[Array, " n"]:
    """Return the class that a target stands for: -1 and 1, or indicators."""
    if n_classes == 2:
        return (target > 0).astype(jnp.int32)
    return jnp.argmax(target, axis=1).astype(jnp.int32)


def class_with_most(share: Float[Array, "n k"]) -> Int[Array, " n"]:
    """Return the class with the largest share of a leaf, the first of those that but rounding keeps apart."""
    slack = NOISE * jnp.finfo(share.dtype).eps
    if share.shape[1] == 1:  # the share of the second class less that of the first
        return (share[:, 0] > slack).astype(jnp.int32)
    return jnp.argmax(share >= share.max(axis=1, keepdims=True) - slack, axis=1).astype(jnp.int32)


def targets_of(label: Int[Array, " n"], n_classes: int, dtype: jnp.dtype) -> Float[Array, "n *k"]:
    """Return what stands for the classes: -1 and 1 for two, else an indicator of each."""
    if n_classes == 2:
        return 2 * label.astype(dtype) - 1
    return (label[:, None] == jnp.arange(n_classes, dtype=label.dtype)[None]).astype(dtype)


def _grow(
    problem: Problem, before: Voting, label: Int[Array, " n"], n_classes: int
) -> tuple[State, Round, Int[Array, " n"]]:
    """Grow a tree by the weights; return it with votes in its leaves, and the vote for each row."""
    # Scores start at the shares of all rows: a gain is then no difference of large numbers.
    share = _shares(before.weight, label, n_classes)
    score = jnp.broadcast_to(share[None], before.state.score.shape)
    train = dataclasses.replace(problem.train, weight=before.weight)
    state = dataclasses.replace(before.state, score=score)
    state, grown = step(dataclasses.replace(problem, train=train), state)
    winner = class_with_most(share[None] + grown.leaf_value)
    votes = targets_of(winner, n_classes, score.dtype).reshape(grown.leaf_value.shape)
    votes = jnp.where(grown.leaf_count > 0, votes, 0)  # a leaf that no row has come to abstains
    return state, dataclasses.replace(grown, leaf_value=votes), class_with_most(state.score)


def _shares(weight: Float[Array, " n"], label: Int[Array, " n"], n_classes: int) -> Float[Array, " k"]:
    """Return the mean target of the rows by their weights."""
    of_class = sum_by_group(weight[:, None], label, n_classes)[:, 0]
    share = of_class / of_class.sum()
    return share[1:] - share[:1] if n_classes == 2 else share


def _reweighted(
    weight: Float[Array, " n"], wrong: Bool[Array, " n"], alpha: Float[Array, ""]
) -> Float[Array, " n"]:
    """Multiply the weights of rows that are wrong by exp(alpha), but for a factor that keeps the sum.

    The others are divided instead, so that nothing overflows. No weight above 0 vanishes: it may be wanted again.
    """
    grown = weight * jnp.where(wrong, 1, jnp.exp(-alpha))
    scaled = grown * (total(weight) / total(grown))
    return jnp.where(weight > 0, jnp.maximum(scaled, jnp.finfo(weight.dtype).tiny), 0)
