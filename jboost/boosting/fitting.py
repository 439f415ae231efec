"""`fit`: check the input, run the rounds, and put the model together."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import jax

from jboost._model.ensemble import Ensemble, concatenate
from jboost._objective.loss import (
    as_loss,
    holds_traced,
    resolve_outputs,
)
from jboost._runtime.arguments import as_key, as_target
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import as_array, is_traced, kept_concrete
from jboost._spec import Hyper, Spec, check_hyper
from jboost.boosting.chunks import drive
from jboost.boosting.diagnosing import find_base_score, warn_if_nothing_was_split
from jboost.boosting.preparing import bin_for, check_continues, make_problem, pad, start_scores
from jboost.boosting.rounds import init, run
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
    verbose: bool | None = None,
) -> tuple[Ensemble, History]:
    """Fit boosted trees to any loss.

    Parameters
    ----------
    loss : callable or Loss
        `loss(score, y) -> scalar` of one row; its derivatives come from JAX. A `Loss` adds a link, the
        Hessian and the leaf rule; `jboost.losses` holds many.
    data : Binned or array-like [n f]
        Features; anything but a `Binned` goes through `bin_features` first (255 bins).
    y : array [n] or [n k], or pytree of arrays with leading axis n
        Targets. A 2-d array asks for k outputs.
    spec : Spec
        Shapes and choices.
    hyper : Hyper
        Numbers; may be traced.
    sample_weight : float [n], optional
        Non-negative; a weight of 0 is the same as leaving the row out.
    valid : (X, y) or (X, y, weight), optional
        Rows to watch; early stopping needs them.
    metric : callable or Metric, optional
        `metric(score, y, weight) -> scalar` on the validation rows, lower is better unless a `Metric` says
        otherwise. The mean loss by default.
    key : JAX key, optional
        For sampling; `jax.random.key(0)` by default.
    init_model : Ensemble, optional
        A model to continue; the result holds its trees first and equals one longer run.
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
    loss, hyper, key = as_loss(loss), check_hyper(hyper), as_key(key)
    y = as_target(y, "y")
    loss = dataclasses.replace(loss, n_outputs=resolve_outputs(loss, y))
    traced = is_traced(data, y, hyper, sample_weight, valid, key, init_model) or holds_traced(loss)
    with contextlib.nullcontext() if traced else kept_concrete():
        binned = bin_for(data, sample_weight, init_model, traced)
        problem = make_problem(loss, binned, y, spec, hyper, sample_weight, valid, metric)
        problem = problem if traced else pad(problem)
        if init_model is not None:
            check_continues(init_model, problem)
        base = find_base_score(problem, init_model, traced)
        scores = start_scores(problem, base, init_model, binned)
        state = init(problem, key, *scores, _n_trees(init_model))
        if traced:
            rounds, history = silence_after_best(problem, *run(problem, state))
        else:
            rounds, history = cut_after_best(problem, *drive(problem, state, verbose), state.best_metric)
            if init_model is None:  # which may have left nothing to learn
                warn_if_nothing_was_split(problem, base, rounds)
        trees = jax.tree.map(as_array, rounds.tree)
        leaf_value = as_array(rounds.leaf_value)
    scalar = loss.n_outputs is None
    model = Ensemble(base, trees, leaf_value, binned.edges, loss.inverse_link, scalar, spec.symmetric)
    return (model if init_model is None else concatenate(init_model, model)), history


def _n_trees(model: Ensemble | None) -> int:
    return 0 if model is None else model.n_trees
