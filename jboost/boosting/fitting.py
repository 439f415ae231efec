"""`fit`: check the input, run the rounds, and put the model together."""

from __future__ import annotations

import dataclasses
from typing import Any

from jboost._model.ensemble import Ensemble, concatenate
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced, kept_concrete
from jboost._spec import Hyper, Spec
from jboost.boosting.callbacks import check_callbacks
from jboost.boosting.chunks import begin_to_compile, drive
from jboost.boosting.diagnosing import warn_if_loss_rose, warn_if_nothing_was_split, warn_if_steps_are_short
from jboost.boosting.loop import finish, prepare
from jboost.boosting.on_host import check_not_traced, watch_on_host
from jboost.boosting.rounds import run, train_loss
from jboost.boosting.scaling import exponent_of, fit_in_unit
from jboost.boosting.stopping import History, cut_after_best, silence_after_best


@moves_arrays
def fit(
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
    callbacks: Any = None,
    verbose: bool | None = None,
) -> tuple[Ensemble, History]:
    """Fit boosted trees to any loss.

    Parameters
    ----------
    loss : callable, Loss, GroupLoss or BatchLoss
        `loss(score, y) -> scalar` of one row; its derivatives come from JAX. A `Loss` adds a link, the
        Hessian and the leaf rule; `jboost.losses` holds many. A `GroupLoss` is one of rows that belong together, a
        `BatchLoss` one of all rows. The arrays of a callable pytree are operands, not part of the program.
    data : Binned or array-like [n f]
        Features; anything but a `Binned` goes through `bin_features` first (255 bins).
    y : array [n] or [n k], data frame, or pytree of these with leading axis n
        Targets. A 2-d array asks for k outputs. A data frame is its columns in order, without their names: [n k],
        or [n] if there is one.
    spec : Spec
        Shapes and choices.
    hyper : Hyper
        Numbers; may be traced.
    sample_weight : float [n], optional
        Non-negative; a weight of 0 is the same as leaving the row out.
    valid : (X, y), optionally with more: (X, y, weight, offset, groups)
        Rows to watch; early stopping needs them. What is not needed may be None or left out at the end.
    metric : callable or Metric, optional
        What is computed of the validation rows after each round: `metric(score, y, weight) -> scalar` of raw scores,
        of which lower is better, or a `Metric`, which may say otherwise. Those in `jboost.metrics` judge predictions,
        the scores through the inverse link of the loss. The mean loss by default.
    key : JAX key or int, optional
        For sampling; `jax.random.key(0)` by default.
    init_model : Ensemble, optional
        A model to continue; the result holds its trees first and equals one longer run.
    offset : float [n] or [n k], optional
        Added to the score of each row before the first tree: a base margin, the logarithm of an exposure. It is no
        part of the model: `predict` takes its own.
    groups : int or str [n], optional
        The group of each row, for a `GroupLoss`; whole groups are drawn by `subsample`, with any loss.
    sampler : callable, optional
        `sampler(key, g, h, weight) -> weight`: with which weight each row takes part in a round, given the derivatives
        [n k] of a unit of weight; instead of `Hyper.subsample`. It may be a callable pytree.
    base_score : float or float [k], optional
        The score to start from, before the inverse link: log odds for `losses.logistic`, the logarithm of the mean for
        `losses.poisson`. The best constant under the loss by default.
    feature_weights : float [f], optional
        Non-negative: how likely each column is drawn next where `colsample_bytree` or `colsample_bylevel` is below 1;
        a column of weight 0 is never used.
    callbacks : list of functions, optional
        Each is called with a `Progress` after each chunk of rounds: after the first round, then about twice a second,
        and at least every 64 rounds. The fit ends if one returns True; an error that one raises is the fit's.
    verbose : bool, optional
        Show a progress bar: always, never, or (None) after two seconds on a terminal.

    Returns
    -------
    Ensemble
        The model; with early stopping, up to its best round.
    History
        Loss and metric of each round.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled.

    Notes
    -----
    Inside `jit`, `vmap` or `grad` give a `Binned`: the rounds then run as one scan. Early stopping there
    silences the trees after the best round instead of dropping them. Elsewhere Ctrl-C, or a loss that is no longer
    finite, ends the fit with a warning and returns the rounds so far.

    The method is that of Friedman, "Greedy Function Approximation" (2001), with the regularised Newton
    objective of Chen and Guestrin, "XGBoost" (2016).

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> def log_cosh(score, y):
    ...     return jnp.logaddexp(score - y, y - score) - jnp.log(2.0)
    >>> model, history = jboost.fit(log_cosh, X, X[:, 0] ** 2, spec=jboost.Spec(n_estimators=20))
    >>> bool(history.train_loss[-1] < history.train_loss[0])
    True
    """
    options = {
        "spec": spec, "hyper": hyper, "sample_weight": sample_weight, "valid": valid, "metric": metric, "key": key,
        "init_model": init_model, "offset": offset, "groups": groups, "sampler": sampler, "base_score": base_score,
        "feature_weights": feature_weights, "callbacks": callbacks, "verbose": verbose,
    }  # fmt: skip
    exponent = exponent_of(loss, data, y, options)
    return fit_in_unit(_fit, exponent, loss, data, y, options) if exponent else _fit(loss, data, y, **options)


def _fit(
    loss: Any,
    data: Any,
    y: Any,
    *,
    spec: Spec,
    metric: Any,
    callbacks: Any,
    verbose: bool | None,
    **options: Any,
) -> tuple[Ensemble, History]:
    """Fit in the unit of y."""
    functions = check_callbacks(callbacks)
    problem, state, init_model = prepare(
        loss, data, y, spec=spec, metric=metric, begin=begin_to_compile, **options
    )
    if is_traced(problem, state):
        check_not_traced(metric)
        if functions:
            raise ValueError(
                "callbacks must be empty inside jit, vmap or grad, where all rounds are one program"
            )
        final, rounds = run(problem, state)
        loss_after = train_loss(problem, final)
        rounds, history = silence_after_best(problem, loss_after, final.since_best, rounds)
        return _after(init_model, finish(problem, rounds)), history
    with kept_concrete():
        watch = watch_on_host(metric, problem, state, spec)
        if watch is not None:
            state = dataclasses.replace(state, best_metric=watch.to_beat)
        best_metric, begun = state.best_metric, [state]
        del state  # the first rounds make other scores, and these go
        rounds, loss_after = drive(problem, begun.pop(), verbose, functions, watch)
        if init_model is None:
            warn_if_loss_rose(problem, rounds, loss_after)
            warn_if_steps_are_short(problem, rounds, loss_after)
        # Patience is no part of what only the host measures.
        problem = dataclasses.replace(problem, spec=spec)
        rounds, history = cut_after_best(problem, rounds, loss_after, best_metric)
        if init_model is None:  # which may have left nothing to learn
            warn_if_nothing_was_split(problem, rounds)
        return _after(init_model, finish(problem, rounds)), history


def _after(init_model: Ensemble | None, model: Ensemble) -> Ensemble:
    return model if init_model is None else concatenate(init_model, model)
