"""`fit`: check the input, run the rounds, and put the model together."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._base_score import best_constant
from jboost._bins import BinEdges, Binned, bin_features, read_bins
from jboost._boosting import Problem, Round, Rows, State, init, mean_loss, run, usable_columns
from jboost._derivatives import check_derivatives, check_range, may_fail, per_row, raw_value_grad_hess
from jboost._driver import drive
from jboost._ensemble import Ensemble, check_model, concatenate, edges_layout, score_bins
from jboost._loss import NOT_JAX, Loss, Quantile, as_loss, holds_traced, resolve_outputs, widest_array
from jboost._padding import pad_axis, reusable_size
from jboost._public import moves_arrays, warn
from jboost._spec import Hyper, Spec, check_hyper
from jboost._target import as_key, as_target, as_weight
from jboost._tree import arrange_bins
from jboost._typing import as_array, is_traced, kept_concrete, pytree
from jboost.metrics import Metric, as_metric, minds_weight
from jboost.metrics import mean_loss as mean_loss_metric

MANY_ROWS = 50  # from which on a fit should find something to split
SAME_STEP = 1e-3  # relative: rows that want steps so alike need no split
NO_GAIN = 100  # times the smallest number: a gain of less is mostly lost to rounding
TOO_LIGHT = 5  # times min_child_weight: a sum of Hessians that hardly leaves room for two sides


@pytree
class History:
    """What happened in each of t rounds.

    Attributes
    ----------
    train_loss : float [t]
        Weighted mean loss of the training rows after each round.
    valid_metric : float [t]
        Metric of the validation rows after each round; NaN without them.
    best_round : int
        Round with the best metric, counted from 0; the last round without validation rows; -1 if no round
        of a continued fit beat the initial model.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> _, history = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> history.train_loss.shape, int(history.best_round)
    ((3,), 2)
    """

    train_loss: Any
    valid_metric: Any
    best_round: Any


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
        binned = _bin(data, sample_weight, init_model, traced)
        problem = _make_problem(loss, binned, y, spec, hyper, sample_weight, valid, metric)
        problem = problem if traced else _pad(problem)
        base = _prepare(problem, init_model, traced)
        scores = _start_scores(problem, base, init_model, binned)
        state = init(problem, key, *scores, _n_trees(init_model))
        if traced:
            rounds, history = _silence_after_best(problem, *run(problem, state))
        else:
            rounds, history = _cut_after_best(problem, *drive(problem, state, verbose), state.best_metric)
            if init_model is None:  # which may have left nothing to learn
                _warn_if_nothing_was_split(problem, base, rounds)
        trees = jax.tree.map(as_array, rounds.tree)
        leaf_value = as_array(rounds.leaf_value)
    scalar = loss.n_outputs is None
    model = Ensemble(base, trees, leaf_value, binned.edges, loss.inverse_link, scalar, spec.symmetric)
    return (model if init_model is None else concatenate(init_model, model)), history


def _bin(data: Any, sample_weight: Any, init_model: Ensemble | None, traced: bool) -> Binned:
    if init_model is not None:
        if not isinstance(init_model, Ensemble):
            raise TypeError(f"init_model must be a jboost.Ensemble, got {type(init_model).__name__}")
        check_model(init_model)
        try:
            read_bins(init_model.edges, data) if isinstance(data, Binned) else None
            return data if isinstance(data, Binned) else bin_features(data, edges=init_model.edges)
        except (TypeError, ValueError) as error:
            raise type(error)(f"data does not fit init_model: {error}") from None
    if isinstance(data, Binned):
        return data
    if traced:
        raise TypeError("data must be a Binned inside jit, vmap or grad; call jboost.bin_features before")
    return bin_features(data, sample_weight=sample_weight)


def _make_problem(
    loss: Loss,
    binned: Binned,
    y: Any,
    spec: Spec,
    hyper: Hyper,
    sample_weight: Any,
    valid: tuple[Any, ...] | None,
    metric: Any,
) -> Problem:
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    train = _rows(binned, y, sample_weight, ("data", "y", "sample_weight"))
    _check_domain(loss.check_target, train)
    _check_combination(loss, y, spec)
    watched = None if valid is None else _valid_rows(valid, binned.edges, y)
    if spec.n_iter_no_change is not None and watched is None:
        raise ValueError("valid must be given when spec.n_iter_no_change asks for early stopping")
    chosen = mean_loss_metric(loss) if metric is None else as_metric(metric)
    if watched is not None:
        _check_domain(loss.check_target, watched, "valid[1]")
        _check_domain(chosen.check_target, watched, "valid[1]")
        _check_metric(chosen, watched, loss)
    layout = edges_layout(binned.edges, binned.has_missing)
    usable = usable_columns(train.bins, train.weight)
    return Problem(train, watched, usable, hyper, loss, spec, layout, chosen.function, chosen.maximize)


def _rows(binned: Binned, y: Any, weight: Any, names: tuple[str, str, str]) -> Rows:
    n_rows = binned.bins.shape[1]
    n_targets = jax.tree.leaves(y)[0].shape[0]
    if n_targets != n_rows:
        raise ValueError(
            f"{names[1]} must have one entry for each of the {n_rows} rows of {names[0]}, got {n_targets}"
        )
    y, weight = _without_absent(y, as_weight(weight, n_rows, names[2]))
    return Rows(as_array(binned.bins), y, weight)


def _without_absent(y: Any, weight: Float[Array, " n"]) -> tuple[Any, Float[Array, " n"]]:
    """Give rows of weight 0 the target of a row that counts, in case the loss is not finite at theirs.

    Such a row is absent: nothing depends on it, and the derivative by its weight is 0.
    """
    if not is_traced(weight) and np.asarray(weight).all():
        return y, weight
    numpy = jnp if is_traced(y, weight) else np  # on the host, a new shape costs no compilation
    present = numpy.asarray(weight) > 0
    source = numpy.argmax(present)

    def fill(array: Array) -> Array:
        shaped = present.reshape(-1, *[1] * (array.ndim - 1))
        return as_array(numpy.where(shaped, array, numpy.asarray(array)[source][None]))

    return jax.tree.map(fill, y), as_array(numpy.where(present, weight, numpy.zeros_like(weight)))


def _check_domain(check: Callable[[Any], None] | None, rows: Rows, name: str = "y") -> None:
    """Let a loss or a metric refuse the targets of the rows that count."""
    if check is None or is_traced(rows):
        return
    present = np.asarray(rows.weight) > 0
    try:
        check(jax.tree.map(lambda array: np.asarray(array)[present], rows.y))
    except ValueError as error:
        raise ValueError(str(error) if name == "y" else f"{name}: {error}") from None


def _check_metric(metric: Metric, rows: Rows, loss: Loss) -> None:
    """Try the metric on abstract values, so that one of another form fails before anything is compiled."""
    shape = (rows.weight.size,) if loss.n_outputs is None else (rows.weight.size, loss.n_outputs)
    score = jax.ShapeDtypeStruct(shape, rows.weight.dtype)
    try:
        value = jax.eval_shape(metric.function, score, rows.y, rows.weight)
    except jax.errors.JAXTypeError as error:
        raise TypeError(NOT_JAX.format("metric", error)) from error
    except TypeError as error:
        raise TypeError(f"metric must be a function metric(score, y, weight) -> scalar: {error}") from error
    if getattr(value, "shape", None) != ():
        raise ValueError(f"metric must return a scalar, got {value}")


def _valid_rows(valid: Any, edges: BinEdges, y: Any) -> Rows:
    if not isinstance(valid, tuple) or len(valid) not in (2, 3):
        raise TypeError(f"valid must be a tuple (X, y) or (X, y, weight), got {type(valid).__name__}")
    X, y_valid, weight = (*valid, None)[:3]
    y_valid = as_target(y_valid, "valid[1]")
    if jax.tree.structure(y_valid) != jax.tree.structure(y):
        raise ValueError("valid[1] must have the structure of y")
    for one, other in zip(jax.tree.leaves(y_valid), jax.tree.leaves(y), strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise ValueError(
                f"valid[1] must have rows of shape {other.shape[1:]} as y has, got {one.shape[1:]}"
            )
    y_valid = jax.tree.map(lambda one, other: one.astype(other.dtype), y_valid, y)
    try:
        bins = read_bins(edges, X)
    except (TypeError, ValueError) as error:
        raise type(error)(f"valid[0]: {error}") from None
    return _rows(Binned(as_array(bins), edges, True), y_valid, weight, ("valid[0]", "valid[1]", "valid[2]"))


def _check_combination(loss: Loss, y: Any, spec: Spec) -> None:
    if loss.hessian == "full" and (loss.n_outputs is None or spec.multi_output == "separate"):
        raise ValueError('hessian="full" needs several outputs that share a tree (multi_output="vector")')
    if isinstance(loss.leaf, Quantile) and not hasattr(y, "shape"):
        raise ValueError("a Quantile leaf rule needs y to be one array, got a pytree of several")


def _pad(problem: Problem) -> Problem:
    """Pad the rows by weightless copies of the first row that counts, so that other numbers reuse the program.

    A user's metric may not look at weights: it gets the validation rows as they are.
    """
    train, valid = problem.train, problem.valid
    width = widest_array(problem.loss, train.y)
    n_rows = reusable_size(train.weight.size, width)
    train = _pad_rows(train, n_rows, arrange_bins(train.bins, n_rows))
    if valid is not None and minds_weight(problem.metric):
        n_rows = reusable_size(valid.weight.size, width)
        valid = _pad_rows(valid, n_rows, as_array(pad_axis(np.asarray(valid.bins), n_rows, axis=1)))
    return dataclasses.replace(problem, train=train, valid=valid)


def _pad_rows(rows: Rows, n_rows: int, bins: Array) -> Rows:
    """Pad y and weight as the bins were, on the host, where a new shape costs no compilation."""
    weight = np.asarray(rows.weight)
    filler = np.full(n_rows - weight.size, np.argmax(weight > 0))

    def extend(array: Array) -> Array:
        host = np.asarray(array)
        return as_array(np.concatenate([host, host[filler]])) if filler.size else array

    return Rows(bins, jax.tree.map(extend, rows.y), as_array(pad_axis(weight, n_rows)))


def _prepare(problem: Problem, init_model: Ensemble | None, traced: bool) -> Float[Array, " k"]:
    """Find the base score; look at the derivatives where they are concrete."""
    if init_model is not None:
        _check_continues(init_model, problem)
    loss, y, weight = problem.loss, problem.train.y, problem.train.weight
    if traced:
        base = _base_score(y, weight, loss)
    else:
        base, suspicious = _examine(y, weight, loss)
        if suspicious:
            value, g, h = _derivatives_at(base, y, weight, loss)
            check_derivatives(loss, value, g, h, weight)
            check_range(g, weight)
    return base if init_model is None else init_model.base


def _base_score(y: Any, weight: Array, loss: Loss) -> Float[Array, " k"]:
    return jnp.reshape(best_constant(loss, y, weight), (loss.n_outputs or 1,))


@partial(jax.jit, static_argnums=2)
def _examine(y: Any, weight: Array, loss: Loss) -> tuple[Array, Array]:
    """Find the base score, and say whether the derivatives there deserve a closer look."""
    base = _base_score(y, weight, loss)
    value, g, h = _derivatives_at(base, y, weight, loss)
    return base, may_fail(loss, value, g, h, weight)


@partial(jax.jit, static_argnums=3)
def _derivatives_at(base: Array, y: Any, weight: Array, loss: Loss) -> tuple[Array, Array, Array]:
    """Return the value and derivatives of every row where boosting starts."""
    score = jnp.broadcast_to(base, (weight.size, base.size))
    return raw_value_grad_hess(loss, score[:, 0] if loss.n_outputs is None else score, y)


def _check_continues(model: Ensemble, problem: Problem) -> None:
    k = problem.loss.n_outputs
    if model.base.dtype != problem.train.weight.dtype:
        raise ValueError(
            f"init_model holds {model.base.dtype}, but JAX computes in {problem.train.weight.dtype} now"
        )
    if model.inverse_link != problem.loss.inverse_link:
        raise ValueError("init_model must come from a loss with the same inverse link")
    if (model.n_outputs, model.scalar_output) != (k or 1, k is None):
        raise ValueError(f"init_model has {model.n_outputs} output(s), but the loss and y ask for {k or 1}")
    spec = problem.spec
    depth_and_kind = (model.trees.feature.shape[-1], model.symmetric, model.trees.feature.ndim == 3)
    if depth_and_kind != (spec.n_splits, spec.symmetric, spec.multi_output == "separate"):
        raise ValueError("init_model must have the max_depth, grow_policy and multi_output of spec")


def _start_scores(
    problem: Problem, base: Float[Array, " k"], init_model: Ensemble | None, binned: Binned
) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
    """Score the training and the validation rows before the first round."""
    traced = is_traced(problem, base, init_model)
    numpy = jnp if traced else np  # on the host, a new shape costs no compilation

    def start(rows: Rows, bins: Array) -> Array:
        if init_model is None:
            return as_array(numpy.broadcast_to(base, (rows.weight.size, base.size)))
        score = score_bins(init_model, bins)
        return score if traced else as_array(pad_axis(np.asarray(score), rows.weight.size))

    nothing = as_array(numpy.zeros((0, base.size), base.dtype))
    train, valid = problem.train, problem.valid
    return start(train, binned.bins), nothing if valid is None else start(valid, valid.bins)


def _n_trees(model: Ensemble | None) -> int:
    return 0 if model is None else model.n_trees


def _losses_after(rounds: Round, final: Any) -> Any:
    """Shift the losses before each round to those after it."""
    append = jnp.append if is_traced(rounds, final) else np.append
    return append(rounds.train_loss, final)[1:]


def _valid_metrics(problem: Problem, rounds: Round, n_rounds: int) -> Any:
    """Return NaN without validation rows: in the compiled rounds it would alarm `jax_debug_nans`."""
    if problem.valid is None:
        return np.full(n_rounds, np.nan, rounds.train_loss.dtype)
    return rounds.valid_metric[:n_rounds]


def _silence_after_best(problem: Problem, state: State, rounds: Round) -> tuple[Round, History]:
    """Under a transformation: zero the leaves of the rounds after the best, since none can be dropped."""
    n_rounds = rounds.train_loss.shape[0]
    best = jnp.asarray(n_rounds - 1) if problem.valid is None else n_rounds - 1 - state.since_best
    history = History(
        _losses_after(rounds, mean_loss(problem, state)), _valid_metrics(problem, rounds, n_rounds), best
    )
    if problem.spec.n_iter_no_change is None:
        return rounds, history
    kept = (jnp.arange(n_rounds, dtype=best.dtype) <= best)[:, None, None]
    return dataclasses.replace(rounds, leaf_value=jnp.where(kept, rounds.leaf_value, 0.0)), history


def _warn_if_nothing_was_split(problem: Problem, base: Array, rounds: Round) -> None:
    """Say so where no round could learn anything: gradients too small to be squared, or rows too light to be parted."""
    train, least, gain = problem.train, float(problem.hyper.min_child_weight), rounds.tree.gain
    weight = np.asarray(train.weight)
    used = weight > 0
    could_split = used.sum() >= MANY_ROWS and gain.size and np.asarray(problem.usable).any()
    if gain.any() or not could_split:
        return
    found = _derivatives_at(base, train.y, train.weight, problem.loss)
    _, g, h = (np.asarray(part)[used] for part in found)
    share = per_row(weight[used], g)
    total = float((h * share).sum(axis=0).max())
    step = g / np.where(h > 0, h, 1)
    if (np.ptp(step, axis=0) <= SAME_STEP * np.abs(step).max(axis=0)).all():
        return
    gradient = float(np.abs(g * share, dtype=np.float64).sum(axis=0).max())
    if gradient**2 < NO_GAIN * np.finfo(g.dtype).tiny * total:
        warn(
            f"no tree has a split: gains are squares of gradients, which sum to no more than {gradient:.3g}, and "
            f"{g.dtype} has no numbers that small; multiply the target or the loss"
        )
    elif total < TOO_LIGHT * least:
        warn(
            f"no tree has a split: both sides of one need a Hessian of at least min_child_weight={least:g}, and that "
            f"of all rows is {total:.3g}; lower Hyper.min_child_weight, or multiply the loss or the weights"
        )


def _cut_after_best(problem: Problem, rounds: Round, final: Any, to_beat: Any) -> tuple[Round, History]:
    """Drop the rounds after the best if early stopping was asked for, and those that led out of the finite."""
    losses = _losses_after(rounds, final)
    finite = np.isfinite(losses)
    n_rounds = len(losses) if finite.all() else int(np.argmin(finite))
    if n_rounds < len(losses):
        warn(
            f"the training loss was no longer finite after round {n_rounds + 1}: the model holds the rounds "
            "before; lower learning_rate, raise reg_lambda or set max_delta_step",
            RuntimeWarning,
        )
    metric = _valid_metrics(problem, rounds, n_rounds)
    best = n_rounds - 1
    if problem.valid is not None and n_rounds:
        if np.isnan(metric).all():
            raise ValueError("metric must return a number, got NaN in every round")
        if np.isnan(metric).any():
            warn(f"metric is NaN, first in round {np.argmax(np.isnan(metric))}")
        signed = -metric if problem.maximize else metric
        best = int(np.nanargmin(signed)) if np.nanmin(signed) < to_beat else -1
    n_kept = n_rounds if problem.spec.n_iter_no_change is None else best + 1
    kept = jax.tree.map(lambda array: array[:n_kept], rounds)
    return kept, History(losses[:n_rounds], metric, best)
