"""One round of boosting: `start` makes a state, `step` adds a tree, `run` repeats it in one compiled scan.

Everything here is pure and works under `jit`, `vmap` and `grad`: splits are chosen from integers, through which
no derivative flows, and leaf values are differentiable sums. The plan is Friedman's (2001) with Newton steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from jboost import _devices
from jboost._bins import BinEdges
from jboost._model.scoring import sum_rounds
from jboost._objective.cover import leaf_cover
from jboost._objective.damping import Step, is_told_by_the_next, may_rise, moved_and_allowed, shortened
from jboost._objective.derivatives import Expansion, derivatives_by_row, value_by_row
from jboost._objective.leaves import Derivatives, Leaves, weighted_derivatives, with_cross
from jboost._objective.rows import Rows
from jboost._objective.sketching import sketched
from jboost._objective.units import Units
from jboost._runtime.checkpointing import computed_again, kept
from jboost._runtime.dividing import all_rows, own_rows
from jboost._runtime.parametrised import Parametrised
from jboost._runtime.typing import Layout, as_array, over_devices, pytree, static_field, zeros_varying_like
from jboost._sampling import sample_columns, sample_rows
from jboost._spec import Hyper, Spec
from jboost._split import Rules
from jboost._tree import Columns, Engine, GradientPairs, Growth, Tree, grow_and_prune, take_leaves
from jboost._tree.columns import Bins, Bundling, Grouped, Joint
from jboost.boosting.best_round import signed
from jboost.boosting.ordered import Supporting, Unseen, leaves_of_models, look_ahead
from jboost.boosting.watching import metric_of, remembered
from jboost.metrics import Metric

SKETCH = 2**20  # folded into the key of a round's columns, for the draw of a sketch


@pytree
class Problem:
    """All that a round needs and no round changes; its arrays may be replaced between rounds.

    The parameters of `loss`, the numbers in `hyper`, `y`, weights and offsets are leaves of this pytree.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> float(problem.hyper.reg_lambda)
    1.0
    """

    bins: Bins | Joint | Grouped  # as `engine` reads them, once they have been arranged
    train: Rows
    valid_bins: UInt[Array, "f m"] | None
    valid: Rows | None
    usable: Bool[Array, " f"]  # columns with anything to split
    hyper: Hyper
    loss: Any  # n_outputs resolved: None for a scalar score
    metric: Metric | None  # None: the mean loss
    sampler: Parametrised | None  # None: rows are drawn with probability hyper.subsample
    units: Units  # of penalties and statistics
    spec: Spec = static_field()
    layout: Layout = static_field()
    engine: Engine = static_field()
    growth: Growth | None = static_field(default=None)
    draws: bool = static_field(default=True)  # whether the numbers in hyper may leave out rows or columns
    shortens: bool = static_field(
        default=True
    )  # whether a step that would raise the loss of a leaf is shortened
    feature_weight: Float[Array, " f"] | None = None  # of columns where a share of them is drawn
    base: Float[Array, " k"] | None = None  # the score before the first tree
    bundling: Bundling | None = None  # where bins are joint codes
    edges: BinEdges | None = None  # of the bins; not known to the compiled rounds
    held: Int[Array, " m"] | None = (
        None  # places of validation rows among the training rows, which score them too
    )
    supporting: Supporting | None = None  # models, where `spec.boosting_type` asks for some


@pytree
class State:
    """What a round changes.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> int(state.round)
    0
    """

    score: Float[Array, "n k"]
    valid_score: Float[Array, "m k"]
    key: Key[Array, ""]
    round: Int[Array, ""]  # rounds so far, those of an initial model included
    since_best: Int[Array, ""]  # rounds since the best one
    best_metric: Float[Array, ""]  # lower is better here
    supporting: Float[Array, "e k"] | None = None  # scores of the supporting models


@pytree
class Round:
    """What a round leaves behind.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> state, one = jboost.boosting.step(problem, state)
    >>> one.leaf_value.shape
    (64, 1)
    """

    tree: Tree
    leaf_value: Float[Array, "leaves k"]
    leaf_hessian: Float[Array, "leaves k"]
    leaf_count: Float[Array, "leaves #k"]  # for each output if each has its own leaves, else one
    train_loss: Float[Array, ""]  # before the round's tree
    valid_metric: Float[Array, ""]  # after it; 0 without validation rows


def start(
    problem: Any,
    key: Array,
    score: Array,
    valid_score: Array,
    first_round: int | Array = 0,
    supporting: Array | None = None,
) -> State:
    """Start from given scores: the base score, or those of an initial model, whose metric is then to be beaten."""
    best = as_array(np.inf, score.dtype)  # from the host: an operation here would be compiled
    if problem.valid is not None and not (isinstance(first_round, int) and first_round == 0):
        best = signed(metric_of(problem, valid_score), problem.metric)
    rounds, since_best = as_array(first_round, np.int32), as_array(0, np.int32)
    return State(score, valid_score, key, rounds, since_best, best, supporting)


def step(problem: Problem, state: State) -> tuple[State, Round]:
    """Add one round: differentiate, sample, grow, fill the leaves, move the scores.

    The rows may be those of one device of several: then sums run over all of them.
    """
    tried = try_step(problem, state)
    loss = tried.result.train_loss
    return tried.state, dataclasses.replace(tried.result, train_loss=jnp.where(tried.sound, loss, jnp.nan))


class Tried(NamedTuple):
    """A round, and whether it is to be taken back."""

    state: State
    result: Round
    rises: Bool[Array, ""]  # whether the loss of a leaf may, if its step was not to be shortened
    sound: Bool[Array, ""]  # whether all derivatives were finite
    most: (
        Float[Array, " n"] | None
    )  # what each row's loss may be now, if the next round is to tell whether one rose


def try_step(problem: Problem, state: State, most: Float[Array, " n"] | None = None) -> Tried:
    """Add one round, in which steps that would raise the loss of a leaf are shortened or said to be there.

    Given what the loss of each row may be at most, `rises` says whether the step before this one has raised one above.
    """
    rows, spec, hyper = problem.train, problem.spec, problem.hyper
    loss = problem.loss.adapted(state.score, rows)
    reduce = _devices.reduce_over(rows.axis)
    row_key, column_key = jax.vmap(jax.random.fold_in, (None, 0))(
        state.key, 2 * state.round + jnp.arange(2, dtype=jnp.int32)
    )
    units = problem.units
    before = derivatives_by_row(loss, state.score, rows, units.h)
    unseen = _unseen(problem, loss, state)
    at, found = (state.score, before) if unseen is None else (unseen.score, unseen.of_rows)
    weight = _draw(problem, row_key, found.g, found.h)
    to_grow = weighted_derivatives(found, weight, units, reduce)
    if spec.crosses_outputs:
        to_grow = with_cross(to_grow, loss, at, rows, weight, units, reduce)
    shares = (hyper.colsample_bytree, hyper.colsample_bylevel)
    allowed = sample_columns(
        column_key, problem.usable, *shares, spec.max_depth, problem.feature_weight, problem.draws
    )
    tree, leaf = kept(_grow(problem, allowed, to_grow, weight > 0, column_key))
    derivatives = to_grow if unseen is None else weighted_derivatives(before, weight, units, reduce)
    penalties = units.for_leaves(hyper)
    leaves = Leaves(
        loss, state.score, rows, weight, leaf, spec.n_leaves, penalties, derivatives, reduce, units
    ).summed()
    cover = leaf_cover(leaves, drawn_by_hyper=problem.sampler is None)
    before = before._replace(value=counted(before.value, rows, most))
    mean_loss = mean_of(before.value, rows)
    at_leaves = leaves, before, mean_loss, cover[1], state.round
    leaf_value, score, rises, most = _fill(*at_leaves, problem.shortens, is_told_later=most is not None)
    valid_score, metric = _validate(problem, state, tree, leaf_value, score)
    sound = _is_sound(derivatives)
    if unseen is not None:
        supporting, more_rise, are_sound = _move_models(problem, state.round, unseen, leaves, mean_loss)
        state = dataclasses.replace(state, supporting=supporting)
        rises, sound = rises | more_rise, sound & are_sound & _is_sound(to_grow)
    best = remembered(problem, metric, state.since_best, state.best_metric)
    new = State(score, valid_score, state.key, state.round + 1, *best, state.supporting)
    return Tried(new, Round(tree, leaf_value, *cover, mean_loss, metric), rises, sound, most)


def _unseen(problem: Problem, loss: Any, state: State) -> Unseen | None:
    """Differentiate at the scores of the supporting models, if there are any."""
    if problem.supporting is None or state.supporting is None:
        return None
    return look_ahead(problem.supporting, loss, state.supporting, problem.train, problem.units, state.round)


def _move_models(
    problem: Problem, n_rounds: Array, unseen: Unseen, leaves: Leaves, mean_loss: Float[Array, ""]
) -> tuple[Float[Array, "e k"], Bool[Array, ""], Bool[Array, ""]]:
    """Move the scores of the supporting models by the tree of the round, with leaf values of their own.

    And say whether the loss of a leaf may rise that should not, and whether all derivatives were finite.
    """
    own = leaves_of_models(unseen, leaves)
    _, count = leaf_cover(own, drawn_by_hyper=False)
    filled = _fill(own, unseen.before, mean_loss, count, n_rounds, problem.shortens)
    return filled.score, filled.rises, _is_sound(own.derivatives)


def _is_sound(derivatives: Derivatives) -> Bool[Array, ""]:
    """Say whether all derivatives are finite, which finding their scales has told."""
    scales = (derivatives.scale_of_g, derivatives.scale_of_h, derivatives.scale_of_cross)
    return ~jnp.isnan(jnp.concatenate([scale.factor for scale in scales if scale is not None])).any()


def run(problem: Problem, state: State) -> tuple[State, Round]:
    """Repeat `step` for all rounds in one scan; rounds come back stacked."""
    problem = dataclasses.replace(problem, edges=None)

    @computed_again
    def one(state: State, _: None) -> tuple[State, Round]:
        return step(problem, state)

    return jax.lax.scan(one, state, length=problem.spec.n_estimators)


def is_told_later(problem: Problem) -> bool:
    """Say whether it is the next round that tells whether the loss of a leaf has risen."""
    return not problem.shortens and problem.supporting is None and is_told_by_the_next(problem.loss)


def train_loss(problem: Any, state: State) -> Float[Array, ""]:
    """Average the loss over the training rows as things stand."""
    return plain_mean(losses_of_rows(problem, state), problem.train)


def losses_of_rows(problem: Any, state: State) -> Float[Array, " n"]:
    """Return the loss of each training row as things stand, of a unit of weight."""
    loss = problem.loss.adapted(state.score, problem.train)
    return value_by_row(loss, state.score, problem.train)


def plain_mean(values: Float[Array, " n"], rows: Rows) -> Float[Array, ""]:
    """Average the rows whose weight is above 0, in a plain sum: nothing but the history depends on it."""
    return mean_of(counted(values, rows), rows)


def counted(
    values: Float[Array, " n"], rows: Rows, most: Float[Array, " n"] | None = None
) -> Float[Array, " n"]:
    """Return 0 for rows that do not count, and NaN for those above what they may be at most."""
    if most is not None:
        values = jnp.where(values <= most, values, jnp.nan)
    return jnp.where(rows.weight > 0, values, 0.0)


def mean_of(values: Float[Array, " n"], rows: Rows) -> Float[Array, ""]:
    """Average rows that are 0 where they do not count."""
    reduce = _devices.reduce_over(rows.axis)
    total = over_devices(reduce, (values * rows.weight).sum())
    return total / over_devices(reduce, rows.weight.sum())


def _draw(problem: Problem, key: Array, g: Array, h: Array) -> Float[Array, " n"]:
    """Return the weights with which the rows take part in a round."""
    rows, fraction, axis = problem.train, problem.hyper.subsample, problem.train.axis
    if problem.sampler is not None:
        drawn = problem.sampler(key, *all_rows((g, h, rows.weight), axis))
        return own_rows(jnp.asarray(drawn, rows.weight.dtype), axis)
    if not problem.draws:
        return rows.weight
    everyone = ~zeros_varying_like(rows.weight, rows.weight.shape, bool)

    def some() -> Bool[Array, " n"]:
        drawn = sample_rows(key, rows.weight.size * _devices.n_devices(axis), fraction)  # as on one device
        return own_rows(drawn, axis) if rows.groups is None else drawn[rows.groups.number]

    return jnp.where(jax.lax.cond(fraction < 1, some, lambda: everyone), rows.weight, 0.0)


def _grow(
    problem: Problem,
    allowed: Bool[Array, "d f"],
    derivatives: Derivatives,
    active: Bool[Array, " n"],
    key: Array,
) -> tuple[Tree, Int[Array, "n *k"]]:
    """Grow one tree for all outputs, or one for each."""
    spec, engine = problem.spec, problem.engine
    columns = Columns(problem.bins, allowed, problem.layout, problem.bundling)
    derivatives, units, hyper = jax.lax.stop_gradient((derivatives, problem.units, problem.hyper))
    hyper = units.for_tree(hyper)
    reduce = _devices.reduce_over(problem.train.axis)
    if spec.sketch_size is not None and spec.sketch_size < derivatives.g.shape[1]:
        derivatives = sketched(
            derivatives, jax.random.fold_in(key, SKETCH), spec.sketch_size, spec.sketch, reduce
        )
    scales = derivatives.scale_of_g, derivatives.scale_of_h
    factors = jnp.stack([scale.factor for scale in scales if scale is not None], axis=-1)

    def grow(
        pairs: GradientPairs, factors: Float[Array, "k 2"], hyper: Hyper
    ) -> tuple[Tree, Int[Array, " n"]]:
        in_order = factors.reshape(-1)
        if derivatives.scale_of_cross is not None:
            in_order = jnp.append(in_order, derivatives.scale_of_cross.factor)
        if spec.counts_rows:
            in_order = jnp.append(in_order, 1.0)
        rules = Rules(hyper, in_order, spec)
        given = columns, pairs, active, rules, problem.growth, key, reduce
        prunes = spec.post_prune or spec.limits_leaves
        return grow_and_prune(engine, *given) if prunes else engine.grow(*given)

    def grow_one(
        g: Float[Array, " n"], h: Float[Array, " n"], factors: Float[Array, " 2"], hyper: Hyper
    ) -> Any:
        return grow(GradientPairs(g[:, None], h[:, None]), factors[None], hyper)

    if spec.separate:
        own = jax.tree.map(
            lambda number: 0 if number.ndim else None, hyper
        )  # penalties in units of each output
        by_output = jax.vmap(grow_one, in_axes=(1, 1, 0, own), out_axes=(0, 1))
        tree, leaf = by_output(derivatives.g, derivatives.h, factors, hyper)
    else:
        tree, leaf = grow(GradientPairs(derivatives.g, derivatives.h, derivatives.cross), factors, hyper)
    of_gain = units.of_gain[:, None] if units.of_gain.ndim else units.of_gain
    return dataclasses.replace(tree, gain=tree.gain * of_gain), leaf


class _Filled(NamedTuple):
    """The leaves of a round, and where they lead."""

    leaf_value: Float[Array, "leaves k"]
    score: Float[Array, "n k"]
    rises: Bool[Array, ""]  # whether the loss of a leaf may that should not
    most: Float[Array, " n"] | None  # what the loss of a row may be, if the next round is to tell


def _fill(
    leaves: Leaves,
    before: Expansion,
    mean_loss: Float[Array, ""],
    count: Float[Array, "leaves #k"],
    n_rounds: Array,
    shortens: bool,
    is_told_later: bool = False,
) -> _Filled:
    """Find the values of the leaves and move the scores by them.

    If the next round is to tell whether a loss rose in this one, it is said here whether one rose in the round before.
    """
    rule, no = leaves.loss.leaf, jnp.asarray(False)
    known = leaves.of_all_rows() if rule.needs_all_rows else leaves
    values = _without_empty(rule.leaf_values(known), count)
    # Whatever reads the scores comes before they are moved: XLA would copy them first if the loss did not.
    last = n_rounds + jnp.isnan(mean_loss).astype(n_rounds.dtype)
    leaf_value = _as_stored(leaves.hyper.learning_rate * values, last)
    step, descends = Step(leaves, before, leaf_value, mean_loss), getattr(rule, "descends", False)
    if descends and is_told_later:
        score, most = moved_and_allowed(step)
        return _Filled(leaf_value, score, jnp.isnan(mean_loss), most)
    rises = may_rise(step) if descends and not shortens else no
    if descends and shortens:
        leaf_value = shortened(step)
    return _Filled(leaf_value, leaves.score + take_leaves(leaf_value, leaves.leaf), rises, None)


def _without_empty(
    value: Float[Array, "leaves k"], count: Float[Array, "leaves #k"]
) -> Float[Array, "leaves k"]:
    """Return 0 where a rule found 0 / 0 in a leaf without rows."""
    return jnp.where(jnp.isnan(value) & (count == 0), 0.0, value)


def _as_stored(values: Float[Array, "..."], count: Int[Array, ""]) -> Float[Array, "..."]:
    """Return the values as they are, rounded: XLA would fuse their last product with the sum they go into.

    Scores are then those that the stored values give to others, and a fit goes on as if it had not been interrupted.
    It is a product with 1, whose fusion with the sum rounds nothing twice. A `custom_jvp` would lose its second
    derivative inside of a scan.
    """
    return values * unknown_one(count).astype(values.dtype)


def unknown_one(count: Int[Array, ""]) -> Int[Array, ""]:
    """Return 1 for any count of rounds, which a compiler cannot know: a product with it rounds nothing."""
    return 1 + jnp.minimum(count, 0)


def _validate(
    problem: Problem, state: State, tree: Tree, leaf_value: Array, score: Float[Array, "n k"]
) -> tuple[Array, Array]:
    """Score the validation rows and take the metric; `score` is that of the training rows."""
    if problem.valid is None:
        return state.valid_score, jnp.zeros((), state.score.dtype)
    if problem.held is not None:
        found = score[problem.held]
        return found, metric_of(problem, found)
    layout = problem.layout._replace(has_missing=True)
    trees, leaves = jax.tree.map(lambda array: array[None], (tree, leaf_value))
    score = sum_rounds(layout, problem.spec.symmetric, trees, leaves, problem.valid_bins, state.valid_score)
    return score, metric_of(problem, score)
