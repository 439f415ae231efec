"""The loop in your own hands: `init` prepares a fit, `step` adds a round, `finish` makes the model."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._devices import mesh_for
from jboost._model.ensemble import Ensemble
from jboost._objective.loss import as_loss
from jboost._objective.resolve import resolve
from jboost._runtime.arguments import as_key, as_target
from jboost._runtime.caller import moves_arrays
from jboost._runtime.dividing import check_not_explicit
from jboost._runtime.typing import as_array, is_traced, kept_concrete
from jboost._spec import Hyper, Spec, check_hyper
from jboost._tree.columns import Bins
from jboost.boosting import rounds as _rounds
from jboost.boosting.diagnosing import adapted_at, as_base_score, find_start, warn_if_units_are_far
from jboost.boosting.on_host import check_not_traced
from jboost.boosting.ordered import check_supported, supporting_models, supporting_scores
from jboost.boosting.preparing import (
    OF_TRAINING,
    RowArguments,
    arranged,
    as_feature_weight,
    bin_for,
    check_continues,
    make_problem,
    pad,
    start_scores,
)
from jboost.boosting.rounds import Problem, Round, State
from jboost.boosting.trials import check_sampler, try_functions

Prepared = tuple[Problem, State, Ensemble | None]


class Posed(NamedTuple):
    """A fit whose arguments have been checked and put together, before it is known where it starts."""

    problem: Problem
    n_rows: int  # as they were given: the others are padding
    key: Array
    init_model: Ensemble | None
    bins: Bins | None  # of the rows as they were given, for the scores of `init_model`
    base_score: Float[Array, " k"] | None
    traced: bool


def prepare(
    loss: Any,
    data: Any,
    y: Any,
    *,
    begin: Callable[[Problem, Callable[[], State]], None] | None = None,
    **options: Any,
) -> Prepared:
    """Check what a fit is given, and find where it starts.

    `begin(problem, start)` is called in between, where the base score must be compiled, with what makes a state like
    that of the start: with a base score of 0.
    """
    posed = pose(loss, data, y, **options)
    with contextlib.nullcontext() if posed.traced else kept_concrete():
        problem, state = start(posed, begin)
        if not posed.traced:
            check_sampler(problem, state)
    return problem, state, posed.init_model


def pose(
    loss: Any,
    data: Any,
    y: Any,
    *,
    spec: Spec = Spec(),
    hyper: Hyper = Hyper(),
    sample_weight: Any = None,
    valid: tuple[Any, ...] | None = None,
    metric: Any = None,
    key: Any = None,
    init_model: Ensemble | None = None,
    offset: Any = None,
    groups: Any = None,
    sampler: Any = None,
    base_score: Any = None,
    feature_weights: Any = None,
) -> Posed:
    """Check the arguments of a fit, and put them together."""
    loss, hyper, key = as_loss(loss), check_hyper(hyper), as_key(key)
    check_not_explicit(data=data, y=y, sample_weight=sample_weight, valid=valid, offset=offset)
    y = as_target(y, "y", loss.allow_nan)
    resolved = resolve(loss, y)
    given = (data, y, hyper, sample_weight, valid, key, init_model, offset, metric, sampler)
    given = (*given, base_score, feature_weights)
    traced = resolved.traced or is_traced(*given)
    with contextlib.nullcontext() if traced else kept_concrete():
        binned = bin_for(data, sample_weight, init_model, traced)
        rows = RowArguments(binned, y, sample_weight, offset, groups, OF_TRAINING)
        problem = make_problem(resolved, rows, spec, hyper, valid, metric, sampler)
        problem = arranged(problem) if traced else pad(problem, binned, resolved.numbers_per_row)
        if init_model is not None:
            check_continues(init_model, problem)
            if base_score is not None:
                raise ValueError("base_score must be None with init_model, which has its own")
        kind, n_padded = problem.spec.boosting_type, problem.train.weight.size
        if kind != "plain":
            check_supported(kind, problem.loss, init_model is not None, mesh_for(n_padded) is not None)
            sizes = binned.bins.shape[1], n_padded, problem.spec.n_permutations
            models = supporting_models(kind, key, *sizes)
            problem = dataclasses.replace(problem, supporting=models)
        try_functions(problem)
        feature_weight = as_feature_weight(feature_weights, problem)
        problem = dataclasses.replace(problem, edges=binned.edges, feature_weight=feature_weight)
        base = base_score if init_model is None else init_model.base
        base = None if base is None else as_base_score(base, problem.loss.n_outputs or 1)
    n_rows, bins = binned.bins.shape[1], None if init_model is None else binned.bins
    return Posed(problem, n_rows, key, init_model, bins, base, traced)


def start(
    posed: Posed, begin: Callable[[Problem, Callable[[], State]], None] | None = None
) -> tuple[Problem, State]:
    """Find where a fit starts: its base score, its units and the scores there."""
    problem, traced = posed.problem, posed.traced
    zeros = as_array(np.zeros(problem.loss.n_outputs or 1, problem.train.weight.dtype))
    problem = dataclasses.replace(problem, loss=adapted_at(problem, zeros, traced))

    def state_at(base: Any) -> State:
        n_before = 0 if posed.init_model is None else posed.init_model.n_trees
        scores = start_scores(problem, base, posed.init_model, posed.bins)
        supporting = supporting_scores(problem.supporting, scores[0])
        return _rounds.start(problem, posed.key, *scores, n_before, supporting)

    def compiling() -> None:
        if begin is not None:
            begin(problem, lambda: state_at(zeros))

    base, units = find_start(problem, posed.base_score, traced, compiling)
    if posed.base_score is not None and posed.init_model is None and not traced:
        warn_if_units_are_far(problem, base, units, problem.hyper)
    loss = adapted_at(problem, base, traced)
    return dataclasses.replace(problem, loss=loss, base=base, units=units), state_at(base)


@moves_arrays
def init(loss: Any, data: Any, y: Any, **options: Any) -> tuple[Problem, State]:
    """Prepare a fit whose rounds you run yourself.

    Parameters
    ----------
    loss, data, y
        As in `jboost.fit`.
    **options
        Those of `jboost.fit`, but for `verbose` and `callbacks`: spec, hyper, sample_weight, valid, metric, key,
        init_model, offset, groups, sampler, base_score, feature_weights. `spec.n_estimators` and
        `spec.n_iter_no_change` end no loop of yours.

    Returns
    -------
    Problem
        What no round changes: a pytree whose arrays you may replace between rounds with others of the same shape. The
        parameters of the loss are in `problem.loss`, and `problem.hyper` holds the numbers. Outside of transformations
        rows of weight 0 are added to those given, up to a round number.
    State
        What a round changes: the scores of the rows, and the number of rounds.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled.

    Examples
    --------
    Three rounds by hand:

    >>> import jax, numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> step, rounds = jax.jit(jboost.boosting.step), []
    >>> for _ in range(3):
    ...     state, one = step(problem, state)
    ...     rounds.append(one)
    >>> jboost.boosting.finish(problem, rounds).n_trees
    3
    """
    check_not_traced(options.get("metric"))
    return prepare(loss, data, y, **options)[:2]


def step(problem: Problem, state: State) -> tuple[State, Round]:
    """Add a round: differentiate, sample, grow a tree, fill its leaves, move the scores.

    Pure: put it under `jax.jit`, `jax.vmap` and `jax.grad`, or into a `jax.lax.scan`.

    Parameters
    ----------
    problem : Problem
        From `init`.
    state : State
        From `init`, or from the round before.

    Returns
    -------
    State
        The scores after the round.
    Round
        The tree, its leaf values, the training loss before it and the metric of the validation rows after it.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> state, one = jboost.boosting.step(problem, state)
    >>> int(state.round)
    1
    """
    if not (isinstance(problem, Problem) and isinstance(state, State)):
        found = f"{type(problem).__name__} and {type(state).__name__}"
        raise TypeError(f"problem and state must be a Problem and a State, as init returns them, got {found}")
    return _rounds.step(problem, state)


@moves_arrays
def finish(problem: Problem, rounds: Round | Sequence[Round]) -> Ensemble:
    """Put the trees of rounds together to a model.

    Parameters
    ----------
    problem : Problem
        From `init`.
    rounds : Round or sequence of them
        In their order: a list of single rounds, or one `Round` of stacked arrays as a `jax.lax.scan` returns it.

    Returns
    -------
    Ensemble
        The model. If `init` was given an `init_model`, put it before: ``jboost.concatenate(init_model, model)``.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> problem, state = jboost.boosting.init(jboost.losses.squared_error, X, X[:, 0] ** 2)
    >>> state, one = jboost.boosting.step(problem, state)
    >>> jboost.boosting.finish(problem, [one]).n_trees
    1
    """
    stacked = jax.tree.map(as_array, rounds if isinstance(rounds, Round) else _stack(rounds))
    assert problem.base is not None  # init set it
    assert problem.edges is not None
    trees = stacked.tree
    if not problem.layout.categorical:
        trees = dataclasses.replace(trees, categories_right=None)
    return Ensemble(
        base=problem.base,
        trees=trees,
        leaf_value=stacked.leaf_value,
        leaf_hessian=stacked.leaf_hessian,
        leaf_count=stacked.leaf_count,
        tree_weight=as_array(np.ones(len(stacked.leaf_value), stacked.leaf_value.dtype)),
        edges=problem.edges,
        inverse_link=problem.loss.inverse_link,
        scalar_output=problem.loss.n_outputs is None,
        symmetric=problem.spec.symmetric,
    )


def _stack(rounds: Sequence[Round]) -> Round:
    if not (isinstance(rounds, Sequence) and all(isinstance(one, Round) for one in rounds)):
        found = type(rounds).__name__
        raise TypeError(f"rounds must be a Round, or a sequence of them as step returns them, got {found}")
    if not rounds:
        raise ValueError("rounds must hold at least one round, got none")
    stack = jnp.stack if is_traced(list(rounds)) else np.stack
    return jax.tree.map(lambda *parts: stack(parts), *rounds)
