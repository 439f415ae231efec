"""`boost`: forward stagewise additive modelling with any base learner."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins.order import in_order, names_of, take_rows, width_of
from jboost._objective.derivatives import explained
from jboost._objective.group import GroupLoss
from jboost._objective.loss import as_loss
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows
from jboost._runtime.arguments import as_key, as_offset, as_target, as_weight, check_choice, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.parametrised import parametrised
from jboost._runtime.typing import as_array, is_traced, pytree
from jboost._spec import Hyper, Spec, check_hyper
from jboost.boosting.callbacks import check_callbacks
from jboost.boosting.diagnosing import as_base_score
from jboost.boosting.preparing import check_domain, chosen_metric, valid_arguments
from jboost.boosting.stopping import History, cut_after_best, losses_after, silence_after_best
from jboost.boosting.trials import try_metric
from jboost.learners import Learner
from jboost.metrics import Metric
from jboost.textbook.additive import Additive
from jboost.textbook.stages import Stage, Step, Task, run_concrete, run_traced


@pytree
class BoostRecord:
    """What happened in each of t rounds.

    Attributes
    ----------
    train_loss : float [t]
        Weighted mean loss of the training rows after each round.
    length : float [t]
        What each learner was multiplied by, the learning rate included.
    valid_metric : float [t]
        Metric of the validation rows after each round; NaN without them.
    best_round : int
        Round with the best metric, counted from 0; the last round without validation rows.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> _, record = jboost.boost(jboost.losses.squared_error, jboost.learners.Linear(), X, X[:, 0], n_estimators=3)
    >>> [round(float(length), 3) for length in record.length]
    [0.1, 0.1, 0.1]
    """

    train_loss: Any
    length: Any
    valid_metric: Any
    best_round: Any


@moves_arrays
def boost(
    loss: Any,
    learner: Learner,
    X: Any,
    y: Any,
    *,
    n_estimators: int = 100,
    learning_rate: Any = 0.1,
    step: Step = "newton",
    line_search: bool | None = None,
    sample_weight: Any = None,
    offset: Any = None,
    base_score: Any = None,
    key: Any = None,
    valid: tuple[Any, ...] | None = None,
    metric: Any = None,
    n_iter_no_change: int | None = None,
    tol: Any = 0.0,
    callbacks: Any = None,
    verbose: bool | None = None,
) -> tuple[Additive, BoostRecord]:
    r"""Add up base learners, each fitted to where the loss wants the scores to go.

    From the best constant on, each round fits a learner :math:`h_t` by weighted least squares and moves the scores,
    :math:`F_t = F_{t-1} + \nu \rho_t h_t`:

    - ``step="newton"``: targets are the Newton steps -g / h of the rows, with weights w h: the residuals, for the
      squared error, and LogitBoost, for the logistic loss;
    - ``step="gradient"``: targets are the negative gradients -g, with weights w, and the length :math:`\rho_t` is that
      for which the loss of all rows is least (Gradient_Boost).

    Parameters
    ----------
    loss : function or Loss
        As in `jboost.fit`; not a `GroupLoss`.
    learner : Learner
        One of `jboost.learners`, or three functions of your own.
    X : array-like [n f]
        Features, as the learner takes them.
    y : array-like or pytree
        Targets, as the loss takes them.
    n_estimators : int
        Rounds, at least 1.
    learning_rate : float
        Above 0. May be traced.
    step : {"newton", "gradient"}
        What the learner is fitted to.
    line_search : bool, optional
        Whether to search for the length of each round. By default only with ``step="gradient"``; else it is 1.
    sample_weight, offset, base_score
        As in `jboost.fit`.
    key : JAX key or int, optional
        For learners that draw; `jax.random.key(0)` by default.
    valid : (X, y), (X, y, weight) or (X, y, weight, offset), optional
        Rows to watch, as in `jboost.fit`.
    metric : callable or Metric, optional
        What is computed of them after each round, as in `jboost.fit`, in JAX operations. The mean loss by default.
    n_iter_no_change : int, optional
        Rounds without a better metric after which to stop; the model then ends with the best round.
    tol : float
        How much better the metric must be for a round to count as the best so far. May be traced.
    callbacks, verbose
        As in `jboost.fit`.

    Returns
    -------
    Additive
        The model: a pytree with `predict(X)` and `staged_predict(X)`.
    BoostRecord
        The loss, the metric and the length of each round.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit; if a learner gives NaN, with the round in which it did.

    Notes
    -----
    Inside `jit`, `vmap` or `grad` all rounds are one compiled scan, and early stopping gives the learners after the
    best round a length of 0. Elsewhere they run in compiled calls of half a second or so, the same for any number of
    rounds; Ctrl-C ends them with a warning. `jboost.fit` is the way to boost trees: it knows penalties and samplers.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation: A Gradient Boosting Machine", algorithm 1. Friedman, Hastie and
    Tibshirani (2000), "Additive logistic regression", algorithm 3 (LogitBoost).

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> y = X[:, 0] + X[:, 1] > 0
    >>> model, record = jboost.boost(jboost.losses.logistic, jboost.learners.Linear(), X, y, n_estimators=20)
    >>> bool(np.mean((model.predict(X) > 0) == y) > 0.95)
    True
    """
    _check(learner, n_estimators, step)
    functions = check_callbacks(callbacks)
    spec = Spec(n_estimators=n_estimators, n_iter_no_change=n_iter_no_change)
    hyper, key = check_hyper(Hyper(learning_rate=learning_rate, tol=tol)), as_key(key)
    loss = as_loss(loss)
    if isinstance(loss, GroupLoss):
        raise TypeError("loss must be one of rows or a BatchLoss, got a GroupLoss; jboost.fit takes it")
    y = as_target(y, "y", loss.allow_nan)
    loss = resolve(loss, y).loss
    k = loss.n_outputs or 1
    rows = _rows_of(y, sample_weight, offset, k, ("sample_weight", "offset"))
    check_domain(loss.check_target, rows)
    columns = names_of(X), width_of(X)
    known, prepared = _begin(learner, jax.random.fold_in(key, 0), X, rows.weight)
    _check_rows(learner, known, prepared, rows.weight, k, "y (X must have as many rows)")
    valid_prepared, watched = None, None
    if valid is not None:
        valid_prepared, watched = _watched(valid, y, loss, learner, known, columns)
    elif n_iter_no_change is not None:
        raise ValueError("valid must be given when n_iter_no_change asks for early stopping")
    search = step == "gradient" if line_search is None else bool(line_search)
    base = None if base_score is None else as_base_score(base_score, k)
    task = Task(
        learner=parametrised(learner), known=known, prepared=prepared, train=rows, valid_prepared=valid_prepared,
        valid=watched, loss=loss, metric=_metric(metric, loss, watched), hyper=hyper, base=base, key=key,
        spec=spec, step=step, line_search=search,
    )  # fmt: skip
    with explained(loss):
        model, record = _traced(task, functions) if is_traced(task) else _concrete(task, verbose, functions)
    return dataclasses.replace(model, names=columns[0], width=columns[1]), record


def _traced(task: Task, functions: Any) -> tuple[Additive, BoostRecord]:
    if functions:
        raise ValueError("callbacks must be empty inside jit, vmap or grad, where all rounds are one program")
    base, final, stages, loss_after = run_traced(task)
    kept, history = silence_after_best(task, loss_after, final.since_best, stages, "length")
    return _model(task, base, kept), _record(history, stages)


def _concrete(task: Task, verbose: bool | None, functions: Any) -> tuple[Additive, BoostRecord]:
    base, stages, loss_after = run_concrete(task, verbose, functions)
    _check_finite(stages, losses_after(stages, loss_after))
    kept, history = cut_after_best(task, stages, loss_after, np.inf)
    return _model(task, base, jax.tree.map(as_array, kept)), _record(history, stages)


def _model(task: Task, base: Any, stages: Stage) -> Additive:
    loss = task.loss
    learned = task.known, stages.params, stages.length, task.learner
    return Additive(base, *learned, loss.inverse_link, loss.n_outputs is None)


def _record(history: History, stages: Stage) -> BoostRecord:
    return BoostRecord(history.train_loss, stages.length, history.valid_metric, history.best_round)


def _rows_of(y: Any, weight: Any, offset: Any, k: int, names: tuple[str, str]) -> Rows:
    n = jax.tree.leaves(y)[0].shape[0]
    offset = None if offset is None else as_offset(offset, n, k, names[1])
    return Rows(y, as_weight(weight, n, names[0]), offset)


def _watched(
    valid: Any, y: Any, loss: Any, learner: Learner, known: Any, columns: tuple[Any, Any]
) -> tuple[Any, Rows]:
    """Return validation rows as the learner reads them, and their targets."""

    def read(X: Any) -> Any:
        return learner.init(jax.random.key(0), in_order(X, *columns), known)[1]

    given = valid_arguments(valid, read, y, loss)
    if given.groups is not None:
        raise ValueError("valid[4] must be None: losses of groups are for jboost.fit")
    k, prepared = loss.n_outputs or 1, given.data
    rows = _rows_of(given.y, given.weight, given.offset, k, ("valid[2]", "valid[3]"))
    _check_rows(learner, known, prepared, rows.weight, k, "valid[1] (valid[0] must have as many rows)")
    return prepared, rows


def _metric(metric: Any, loss: Any, valid: Rows | None) -> Metric | None:
    found = chosen_metric(metric, loss, valid)
    if found is not None and found.on_host:
        raise ValueError("metric must be in JAX operations in jboost.boost, got one with on_host=True")
    if found is not None and valid is not None:
        try_metric(found, valid, loss.n_outputs)
    return found


def _check(learner: Any, n_estimators: Any, step: Any) -> None:
    if not isinstance(learner, Learner) or isinstance(learner, type):
        got = f"the class {learner.__name__}; call it" if isinstance(learner, type) else repr(learner)
        raise TypeError(f"learner must have the methods init, fit and predict (jboost.learners), got {got}")
    whole_number(n_estimators, "n_estimators", 1)
    check_choice("step", step, get_args(Step))


def _begin(learner: Learner, key: Array, X: Any, weight: Float[Array, " n"]) -> tuple[Any, Any]:
    """Let the learner look at the features of the rows that count: one of weight 0 changes nothing."""
    if is_traced(weight) or is_traced(X) or (there := np.asarray(weight) > 0).all():
        return _looked(learner, key, X)
    if (n := X.shape[0] if hasattr(X, "shape") else len(X)) != there.size:
        raise ValueError(f"X must have {there.size} rows, as many as y, got {n}")
    known, _ = _looked(learner, key, take_rows(X, there))
    return learner.init(key, X, known)


def _looked(learner: Learner, key: Array, X: Any) -> tuple[Any, Any]:
    found = learner.init(key, X)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise TypeError(
            f"learner.init must return a tuple, what is known and the rows, got {type(found).__name__}"
        )
    return found


def _check_rows(
    learner: Learner, known: Any, prepared: Any, weight: Float[Array, " n"], k: int, of: str
) -> None:
    """Try the learner on abstract targets: it must give a score for each row and output."""
    n = weight.size
    key = jax.eval_shape(lambda: jax.random.key(0))
    target = jax.ShapeDtypeStruct((n, k), weight.dtype)

    def both(key: Any, known: Any, prepared: Any, target: Any, weight: Any) -> Any:
        return learner.predict(known, learner.fit(key, known, prepared, target, weight), prepared)

    try:
        found = jax.eval_shape(both, key, known, prepared, target, target)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"learner failed on targets [{n} {k}], one for each output and row of {of}: {error}"
        ) from error
    if getattr(found, "shape", None) != (n, k) or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(
            f"learner.predict must return floats [{n} {k}], one for each output and row of {of}, got {found}"
        )


def _check_finite(stages: Stage, losses: Float[np.ndarray, " t"]) -> None:
    """Raise if a learner gave what is not finite."""
    if not losses.size:
        return
    arrays = [np.asarray(one) for one in jax.tree.leaves((stages.params, stages.length, losses))]
    floats = [one.reshape(len(losses), -1) for one in arrays if np.issubdtype(one.dtype, np.floating)]
    sound = np.isfinite(np.concatenate(floats, axis=1)).all(axis=1)
    if not sound.all():
        raise ValueError(
            f"the learner or the loss gave what is not finite in round {int(np.argmin(sound))}: a lower learning_rate, "
            "a penalty in the learner, a bounded loss, or y divided by its size where it has no squares may help"
        )
