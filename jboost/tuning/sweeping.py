"""`sweep`: many fits of one data set as one program."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jboost._bins import Binned
from jboost._model.ensemble import Ensemble
from jboost._objective.damping import is_told_by_rows
from jboost._objective.loss import as_loss
from jboost._runtime.arguments import as_group_ids, as_key, check_weight, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced, kept_concrete
from jboost._sampling import draws_any
from jboost._spec import Hyper, Spec, check_hypers
from jboost.boosting.fitting import fit
from jboost.boosting.loop import pose
from jboost.boosting.pacing import progress_bar
from jboost.boosting.preparing import bin_for, check_domain
from jboost.boosting.rounds import Problem
from jboost.boosting.scaling import (
    exponent_of,
    hyper_in_unit,
    is_loss_of_unit,
    loss_of_unit,
    metric_in_unit,
    target_in_unit,
    times,
)
from jboost.boosting.stopping import History
from jboost.boosting.trials import check_sampler, try_metric
from jboost.metrics import Metric
from jboost.metrics.metric import as_metric
from jboost.tuning.batches import Done, Keeps, Member, run_all
from jboost.tuning.folds import held_out
from jboost.tuning.members import Fold, make_fold, own_of, state_of
from jboost.tuning.result import Sweep

MEMORY = 2**30  # bytes that the members that run at a time may take
ARRAYS = 12  # of one number for each row and output that a member has at a time, about
HISTOGRAMS = 3  # of the last level: those of the level before, its own, and their candidates
MOST_MEMBERS = 64  # at a time


class Plan(NamedTuple):
    """What the weights of the rows are multiplied by where a fold trains, and which rows it holds out."""

    times: Float[np.ndarray, " n"]
    held: Bool[np.ndarray, " n"]


class Members(NamedTuple):
    """The fits of a sweep: every setting on every plan."""

    problem: Problem  # of all rows, with the metric and the spec of the members
    bins: np.ndarray
    plans: list[Plan]
    settings: list[Hyper]
    keys: list[Any]
    base_score: Any
    exponent: int  # of the power of two that y is divided by, so that its squares are floats
    is_loss: bool  # whether the metric is in the unit of squares of y

    def fold(self, plan: int, size: int) -> Fold:
        """Return what the fits of a plan start from, with so many rows watched."""
        found = make_fold(self.problem, self.bins, *self.plans[plan], size, self.base_score)
        check_sampler(found.problem, state_of(found, self.keys[0]))
        metric, valid = self.problem.metric, found.problem.valid
        if metric is not None and valid is not None:
            check_domain(metric.check_target, valid, f"fold {plan}, for metric {metric.name}")
        return found

    def make(self, fold: Fold, setting: int) -> Member:
        """Return the fit of a setting."""
        return Member(own_of(fold, self.settings[setting]), state_of(fold, self.keys[setting]))

    def given_back(self, done: Done) -> Done:
        """Return what a fit leaves, losses and scores in the unit of y."""
        if not self.exponent:
            return done
        losses = loss_of_unit(done.train_loss, self.exponent)
        metric = loss_of_unit(done.metric, self.exponent) if self.is_loss else done.metric
        held, score = (times(one, self.exponent) for one in (done.held_score, done.score))
        return Done(losses, metric, done.best_round, held, score)


@moves_arrays
def sweep(
    loss: Any,
    data: Any,
    y: Any,
    *,
    hyper: Hyper = Hyper(),
    spec: Spec = Spec(),
    folds: Any = None,
    keys: Any = None,
    sample_weight: Any = None,
    metric: Any = None,
    groups: Any = None,
    offset: Any = None,
    sampler: Any = None,
    base_score: Any = None,
    feature_weights: Any = None,
    memory: int = MEMORY,
    verbose: bool | None = None,
) -> Sweep:
    """Fit every setting of the numbers on every fold, in one compiled program.

    The features are binned once. Members run side by side, as many at a time as the memory allows; one that has stopped
    early makes room for another. On a CPU each has the same history as `jboost.fit` of the rows that its fold leaves,
    to the last bit.

    Parameters
    ----------
    loss, data, y
        As in `jboost.fit`.
    hyper : Hyper
        Its fields are numbers, or arrays [s] with a value for each of s settings.
    spec : Spec
        Shapes and choices, the same for all. `n_estimators` rounds at most; `n_iter_no_change` ends a member sooner.
    folds : int, bool [c n] or None
        So many folds of rows, drawn at random (of whole groups where `groups` are given; the same in every call, and
        whatever y is), or a mask of the rows that each of c folds holds out, each row in one fold at most. None holds
        out nothing: the training loss is judged.
    keys : JAX key or int, or a list [s] of them, optional
        For sampling: one for all, or one for each setting. `jax.random.key(0)` by default.
    sample_weight, metric, groups, offset, sampler, base_score, feature_weights
        As in `jboost.fit`; the metric is that of the rows held out.
    memory : int, default 2**30
        Bytes that members may take at a time, about.
    verbose : bool, optional
        Show a progress bar: always, never, or (None) after two seconds on a terminal.

    Returns
    -------
    Sweep
        Metric and training loss of each setting, fold and round; the best setting, and a fit with it.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> rates = jboost.Hyper(learning_rate=np.array([0.01, 0.3]))
    >>> spec = jboost.Spec(n_estimators=20, max_depth=2)
    >>> found = jboost.sweep(jboost.losses.squared_error, X, X[:, 0], hyper=rates, spec=spec, folds=3)
    >>> found.metric.shape, float(found.best_hyper.learning_rate).__round__(2)
    ((2, 3, 20), 0.3)
    >>> model, _ = found.fit()
    """
    if is_traced(
        data, y, hyper, folds, keys, sample_weight, offset, base_score, feature_weights, as_loss(loss)
    ):
        raise TypeError(
            "sweep must be called outside of jit, vmap and grad: inside use jax.vmap over jboost.fit"
        )
    settings, memory = check_hypers(hyper), whole_number(memory, "memory", 1)
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    options = {
        "sample_weight": sample_weight, "groups": groups, "offset": offset, "sampler": sampler,
        "base_score": base_score, "feature_weights": feature_weights,
    }  # fmt: skip
    with kept_concrete():
        binned = bin_for(data, sample_weight, None, False)
        n = binned.bins.shape[1]
        weight = check_weight(sample_weight, n, "sample_weight")
        mask = held_out(folds, weight, None if groups is None else as_group_ids(groups, n, "groups"))
        holds_out = bool(mask.any())
        if spec.n_iter_no_change is not None and not holds_out:
            raise ValueError("folds must be given when spec.n_iter_no_change asks for early stopping")
        if metric is not None and not holds_out:
            raise ValueError("folds must be given with a metric, which is that of the rows held out")
        key_of = _keys(keys, len(settings))
        plans = [Plan((~held).astype(float), held) for held in mask]
        members = members_of(loss, binned, y, plans, spec, settings, key_of, metric, **options)
        found = run_members(members, memory, verbose)
    again = partial(_fit_again, loss, binned, y, settings, spec, key_of, options)
    return Sweep.of(found, settings, spec, members.problem.metric, holds_out, again)


def members_of(
    loss: Any,
    data: Binned,
    y: Any,
    plans: list[Plan],
    spec: Spec,
    settings: list[Hyper],
    keys: list[Any],
    metric: Any = None,
    **options: Any,
) -> Members:
    """Return the fits of every setting on every plan, in a unit of y whose squares are floats, as `fit` has it."""
    penalised = next((one for one in settings if one.reg_alpha or one.gamma), settings[0])
    of_fit = {"spec": spec, "hyper": penalised, "init_model": None} | options
    exponent, is_loss = exponent_of(loss, data, y, of_fit), is_loss_of_unit(metric)
    if exponent:
        y = target_in_unit(loss, y, options["sample_weight"], exponent)
        options |= {name: times(options[name], -exponent) for name in ("offset", "base_score")}
        settings = [hyper_in_unit(one, exponent, is_loss) for one in settings]
        metric = metric if is_loss else metric_in_unit(metric, exponent)
    problem, base = _prepared(loss, data, y, spec, settings, **options)
    problem = dataclasses.replace(problem, metric=_watched(metric, problem))
    return Members(problem, np.asarray(data.bins), plans, settings, keys, base, exponent, is_loss)


def _prepared(
    loss: Any, data: Any, y: Any, spec: Spec, settings: list[Hyper], **options: Any
) -> tuple[Problem, Any]:
    """Return the problem of all rows, for programs that do all that any of the settings asks for.

    And the base score, if one is given.
    """
    if spec.boosting_type != "plain":
        raise ValueError(
            f"spec.boosting_type must be 'plain' where fits run side by side, got {spec.boosting_type!r}"
        )
    strictest = min(settings, key=lambda one: (float(one.colsample_bynode), float(one.subsample)))
    plain = dataclasses.replace(spec, n_iter_no_change=None)
    posed = pose(loss, data, y, spec=plain, hyper=strictest, **options)
    draws, shortens = any(map(draws_any, settings)), not is_told_by_rows(posed.problem.loss)
    return dataclasses.replace(posed.problem, spec=spec, draws=draws, shortens=shortens), posed.base_score


def _keys(keys: Any, n_settings: int) -> list[Any]:
    """Return the key of each setting."""
    if isinstance(keys, jax.Array):
        is_one = keys.ndim == (0 if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else 1)
    else:
        is_one = not isinstance(keys, list | tuple)
    if is_one:
        return [as_key(keys)] * n_settings
    found = [as_key(key) for key in keys]
    if len(found) != n_settings:
        raise ValueError(
            f"keys must be one key, or one for each of the {n_settings} settings, got {len(found)}"
        )
    return found


def _watched(metric: Any, problem: Problem) -> Metric | None:
    """Return the metric of raw scores; None is the mean loss."""
    if metric is None:
        return None
    chosen = as_metric(metric).of_scores(problem.loss.inverse_link, problem.loss.n_outputs)
    if chosen.on_host:
        raise ValueError("metric must be in JAX operations in a sweep, got one with on_host=True")
    try_metric(chosen, problem.train, problem.loss.n_outputs)
    return chosen


def run_members(
    members: Members, memory: int, verbose: bool | None, keeps: Keeps = "nothing"
) -> list[list[Done]]:
    """Run every setting on every plan; return what each setting leaves on each.

    Those whose metric knows no weights share a program where as many rows are held out: there is no padding.
    """
    problem, plans = members.problem, members.plans
    n_settings, n_rounds = len(members.settings), problem.spec.n_estimators
    pads = problem.loss.pads if problem.metric is None else problem.metric.pads
    sizes = [int(plan.held.sum()) for plan in plans]
    sizes = [max(sizes)] * len(sizes) if pads else sizes
    found: dict[tuple[int, int], Done] = {}
    total = n_settings * len(plans) * n_rounds
    with progress_bar(total, "sweep", verbose) as bar:

        def progress(rounds: int) -> None:
            bar.update(min(rounds, total - bar.n))

        for size in sorted(set(sizes)):
            chosen = [c for c, of_fold in enumerate(sizes) if of_fold == size]
            folds = [members.fold(c, size) for c in chosen]
            places = [(s, i) for s in range(n_settings) for i in range(len(folds))]

            def ended(number: int, done: Done, places: Any = places, chosen: Any = chosen) -> None:
                s, i = places[number]
                found[s, chosen[i]] = members.given_back(done)
                progress(n_rounds - len(done.train_loss))

            makers = [partial(members.make, folds[i], s) for s, i in places]
            run_all(folds[0].problem, makers, _width(problem, memory, len(makers)), ended, progress, keeps)
    return [[found[s, c] for c in range(len(plans))] for s in range(n_settings)]


def _width(problem: Problem, memory: int, n_members: int) -> int:
    """Return how many members run at a time."""
    return int(np.clip(memory // _bytes_of_one(problem), 1, min(n_members, MOST_MEMBERS)))


def _bytes_of_one(problem: Problem) -> int:
    """Return about how much memory a member takes of its own."""
    weight, k, spec = problem.train.weight, problem.loss.n_outputs or 1, problem.spec
    found = ARRAYS * weight.nbytes * k
    if problem.loss.hessian == "full":
        found += 2 * weight.nbytes * k**2
    if problem.engine.by_level:
        n_codes = min(problem.layout.n_codes, spec.n_candidates or problem.layout.n_codes)
        n_outputs = min(k, spec.sketch_size or k)
        n_sums = n_outputs * (n_outputs + 3) // 2 if spec.crosses_outputs else 2 * n_outputs
        found += HISTOGRAMS * 4 * n_codes * n_sums * 2 ** (spec.max_depth - 1) * problem.usable.size
    return found


def _fit_again(
    loss: Any,
    data: Any,
    y: Any,
    settings: list[Hyper],
    spec: Spec,
    keys: list[Any],
    options: dict[str, Any],
    setting: int,
    n_rounds: int,
    changes: dict[str, Any],
) -> tuple[Ensemble, History]:
    """Fit the model of a setting on all rows."""
    spec = dataclasses.replace(spec, n_estimators=n_rounds, n_iter_no_change=None)
    chosen = {"spec": spec, "hyper": settings[setting], "key": keys[setting]}
    return fit(**({"loss": loss, "data": data, "y": y} | chosen | options | changes))
