"""`fit_linear`: boost a linear function by coordinate descent."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from jboost._bins import read_matrix
from jboost._bins.arguments import check_missing
from jboost._bins.order import names_of
from jboost._bins.table import check_not_empty
from jboost._model.linear import LinearModel
from jboost._objective.derivatives import explained
from jboost._objective.loss import as_loss
from jboost._objective.resolve import Resolved, resolve
from jboost._runtime.arguments import as_key, as_target, check_choice, whole_number
from jboost._runtime.caller import moves_arrays, warn
from jboost._runtime.padding import reusable_size
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced, kept_concrete
from jboost._spec import Hyper, Penalties, check_hyper
from jboost.boosting import History
from jboost.boosting.best_round import follow, signed
from jboost.boosting.diagnosing import adapted_at, as_base_score, find_start
from jboost.boosting.on_host import as_number, check_not_traced
from jboost.boosting.preparing import (
    RowArguments,
    check_domain,
    chosen_metric,
    pad_rows,
    rows_of,
    valid_arguments,
)
from jboost.linear.passes import BY_SIZE, FeatureSelector
from jboost.linear.rounds import Choices, LinearProblem, LinearRound, run
from jboost.linear.scaling import Scale, find_scale, standardised, unit_of
from jboost.metrics import Metric

NAMES = ("X", "y", "sample_weight", "offset", "groups")


@moves_arrays
def fit_linear(
    loss: Any,
    X: Any,
    y: Any,
    *,
    n_estimators: int = 100,
    feature_selector: FeatureSelector = "cyclic",
    top_k: int | None = None,
    learning_rate: Any = 0.5,
    reg_lambda: Any = 1.0,
    reg_alpha: Any = 0.0,
    penalties: Penalties = "relative",
    sample_weight: Any = None,
    valid: tuple[Any, ...] | None = None,
    metric: Any = None,
    n_iter_no_change: int | None = None,
    tol: Any = 0.0,
    offset: Any = None,
    groups: Any = None,
    base_score: Any = None,
    key: Any = None,
    missing: float | None = None,
) -> tuple[LinearModel, History]:
    r"""Fit a linear function of the columns to any loss, with L1 and L2 penalties, by boosting.

    It goes down the objective

    .. math:: \sum_i w_i L(y_i, a + b^T x_i) + \sum_j \frac{\lambda}{2} b_j^2 + \alpha |b_j|

    in rounds. Each takes the derivatives g and h of the loss at the scores, and makes one pass over the coefficients of
    the quadratic that they make: first the constant a, which no penalty touches, then one coefficient after the other
    goes `learning_rate` of the way to where the quadratic is least along it, by soft thresholding. A pass is shortened
    where the objective would not fall. At convergence this is ridge regression, the lasso or the elastic net for the
    squared error, and penalised logistic regression for `losses.logistic` and `losses.softmax`.

    Parameters
    ----------
    loss : callable, Loss, GroupLoss or BatchLoss
        As in `jboost.fit`; of its Hessian the diagonal is used.
    X : array-like, sparse matrix or data frame [n f]
        Numbers. A missing value (NaN) stands at the weighted mean of its column, and so adds nothing; XGBoost takes it
        for a zero. A sparse matrix is made dense. Categories must be encoded before.
    y : array-like or pytree
        Targets, as the loss takes them.
    n_estimators : int
        Rounds, at most; 0 gives the base score.
    feature_selector : {"cyclic", "shuffle", "random", "greedy", "thrifty", "block"}
        Which coefficients a pass changes, and in which order: as they come; in an order drawn anew for each round;
        drawn one by one, with replacement; always that whose change takes the quadratic down most ("greedy", which
        looks at all columns before each change); in the order in which they do so at the start of the pass ("thrifty");
        or all at once, as far as the quadratic surely falls ("block").
    top_k : int, optional
        With "greedy" and "thrifty", change so many coefficients in a pass instead of as many as there are.
    learning_rate : float
        Share of the way, above 0. May be traced, like the other numbers.
    reg_lambda, reg_alpha : float
        L2 and L1 penalty on the coefficients, in the units of the columns as they are given.
    penalties : {"relative", "absolute"}
        How they are read: in average rows and average gradients where boosting starts, as in `jboost.Spec`, so that
        targets and losses in other units change nothing; or "absolute", as in the formula above. Then, with n
        rows of weight 1, reg_lambda is `alpha` of scikit-learn's `Ridge` and 1 / C of its `LogisticRegression`, and
        reg_alpha is n `alpha` of its `Lasso` and 1 / C. XGBoost's penalties are these over the sum of the weights.
    sample_weight : float [n], optional
        Non-negative; a weight of 0 is the same as leaving the row out.
    valid : (X, y), optionally with more: (X, y, weight, offset, groups)
        Rows to watch; early stopping needs them.
    metric : callable or Metric, optional
        What is computed of them after each round, as in `jboost.fit`. The mean loss by default.
    n_iter_no_change : int, optional
        Stop after so many rounds without a metric that is better by more than `tol`, and keep those up to the best.
    tol : float
        See above.
    offset, groups, base_score
        As in `jboost.fit`.
    key : JAX key, optional
        For the selectors that draw; `jax.random.key(0)` by default.
    missing : float, optional
        A number in X that stands for a missing value, beside NaN; the model remembers it.

    Returns
    -------
    LinearModel
        With `coef` [k f], `intercept` [k], `predict(X)` and `staged_predict(X)`: a pytree. Up to the best round where
        rounds stop early.
    History
        Loss and metric of each round, without the penalties.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled.

    Notes
    -----
    All rounds are one compiled scan. Inside, columns have a mean of 0 and a deviation of 1, so that the constant waits
    for no coefficient, and penalties are scaled to match: neither the minimum nor a pass over columns of mean 0 depends
    on it. Inside `jit`, `vmap` and `grad` all rounds are kept; with early stopping those after the best repeat it.

    A loss with ``hessian="first_order"`` takes steps of the gradient's length, of which 41 multiples are tried. Where
    it has a kink, as absolute errors have, coordinate descent may end short of the minimum.

    References
    ----------
    Friedman, Hastie and Tibshirani (2010), "Regularization Paths for Generalized Linear Models via Coordinate Descent".
    Bradley et al. (2011), "Parallel Coordinate Descent for L1-Regularized Loss Minimization" (shotgun). Chen and
    Guestrin (2016), "XGBoost", whose ``booster="gblinear"`` it is. Bühlmann and Yu (2003), "Boosting With the L2 Loss".
    Lee, Sun and Saunders (2014), "Proximal Newton-Type Methods for Minimizing Composite Functions" (test of a step).

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> y = X @ [1.0, -2.0, 0.0] + 3
    >>> options = {"reg_lambda": 0.0, "reg_alpha": 5.0, "learning_rate": 1.0}
    >>> model, history = jboost.fit_linear(jboost.losses.squared_error, X, y, **options)
    >>> (model.coef[0] == 0).tolist(), bool(abs(model.intercept[0] - 3) < 0.1)
    ([False, False, True], True)

    The gradient of a validation loss by the penalty:

    >>> import jax
    >>> def risk(reg_lambda):
    ...     model, _ = jboost.fit_linear(jboost.losses.squared_error, X[:100], y[:100], reg_lambda=reg_lambda)
    ...     return ((model.predict(X[100:]) - y[100:].astype("float32")) ** 2).mean()
    >>> bool(jax.grad(risk)(1.0) > 0)
    True
    """
    hyper = check_hyper(
        Hyper(learning_rate=learning_rate, reg_lambda=reg_lambda, reg_alpha=reg_alpha, tol=tol)
    )
    loss, key, missing = as_loss(loss), as_key(key), check_missing(missing)
    y = as_target(y, "y", loss.allow_nan)
    resolved = resolve(loss, y)
    given = (X, y, hyper, sample_weight, valid, offset, base_score, key, metric)
    traced = resolved.traced or is_traced(*given)
    matrix = read_matrix(X, missing)
    check_not_empty(matrix.shape)
    spec = _choices(n_estimators, feature_selector, top_k, n_iter_no_change, penalties, matrix.shape[1])
    with contextlib.nullcontext() if traced else kept_concrete():
        rows = RowArguments(matrix, y, sample_weight, offset, groups, NAMES)
        names = names_of(X)
        problem, scale = _pose(resolved, rows, spec, hyper, valid, metric, missing, names)
        base = None if base_score is None else as_base_score(base_score, problem.loss.n_outputs or 1)
        problem = _begun(problem, base, traced)
        if metric is not None and traced:
            check_not_traced(metric)
        on_host = problem.metric is not None and problem.metric.on_host
        in_rounds = dataclasses.replace(
            problem,
            metric=None if on_host else problem.metric,
            spec=spec._replace(n_iter_no_change=None) if on_host else spec,
        )
        with explained(problem.loss):
            rounds = (run if traced else program(run))(in_rounds, key)
        model = dataclasses.replace(_model(problem, scale, rounds, missing), names=names)
        if traced:
            return _after_best_repeated(problem, model, rounds)
        return _cut(problem, model, rounds, valid if on_host else None)


def _choices(
    n_estimators: Any,
    feature_selector: Any,
    top_k: Any,
    n_iter_no_change: Any,
    penalties: Any,
    n_features: int,
) -> Choices:
    """Check the choices of a fit."""
    n_estimators = whole_number(n_estimators, "n_estimators")
    patience = None
    if n_iter_no_change is not None:
        patience = whole_number(n_iter_no_change, "n_iter_no_change", 1, or_else=" or None")
    check_choice("feature_selector", feature_selector, get_args(FeatureSelector))
    check_choice("penalties", penalties, get_args(Penalties))
    n_steps = n_features
    if top_k is not None:
        top_k = whole_number(top_k, "top_k", 1, or_else=" or None")
        if feature_selector not in BY_SIZE:
            raise ValueError(f"top_k must be None unless feature_selector is one of {BY_SIZE}, got {top_k}")
        n_steps = min(top_k, n_features)
    return Choices(n_estimators, feature_selector, n_steps, patience, penalties)


def _pose(
    resolved: Resolved,
    given: RowArguments,
    spec: Choices,
    hyper: Hyper,
    valid: Any,
    metric: Any,
    missing: float | None,
    names: tuple[str, ...] | None,
) -> tuple[LinearProblem, Scale]:
    """Check the rows, and put them together with columns in units of their own."""
    loss = resolved.loss
    train = rows_of(given, loss)
    check_domain(loss.check_target, train)
    if spec.n_iter_no_change is not None and valid is None:
        raise ValueError("valid must be given when n_iter_no_change asks for early stopping")
    scale = find_scale(given.data, train.weight)
    padded = loss.pads and not is_traced(given.data, train)
    n_rows = reusable_size(train.weight.size, resolved.numbers_per_row) if padded else train.weight.size
    columns = standardised(given.data, scale, n_rows)
    train = pad_rows(train, n_rows) if padded else train
    valid_columns = watched = None
    if valid is not None:
        of_valid = valid_arguments(valid, lambda X: _read_valid(X, missing, names, given), given.y, loss)
        watched = rows_of(of_valid, loss)
        valid_columns = standardised(of_valid.data, scale, watched.weight.size)
    chosen, deviation = chosen_metric(metric, loss, watched), unit_of(scale)
    problem = LinearProblem(columns, train, valid_columns, watched, loss, chosen, hyper, deviation, spec)
    return problem, scale


def _read_valid(X: Any, missing: float | None, names: tuple[str, ...] | None, given: RowArguments) -> Any:
    matrix = read_matrix(X, missing, names)
    if matrix.shape[1] != given.data.shape[1]:
        raise ValueError(
            f"X must have the {given.data.shape[1]} columns of the training rows, got {matrix.shape[1]}"
        )
    return matrix


def _begun(problem: LinearProblem, base: Any, traced: bool) -> LinearProblem:
    """Find the base score and the units there."""
    zeros = as_array(np.zeros(problem.loss.n_outputs or 1, problem.train.weight.dtype))
    problem = dataclasses.replace(problem, loss=adapted_at(problem, zeros, traced))
    base, units = find_start(problem, base, traced, lambda: None)
    return dataclasses.replace(problem, loss=adapted_at(problem, base, traced), base=base, units=units)


def _model(problem: LinearProblem, scale: Scale, rounds: LinearRound, missing: float | None) -> LinearModel:
    """Give the coefficients back the units of the columns."""
    base, loss = problem.base, problem.loss
    assert base is not None
    coef = rounds.coef / problem.deviation[None, None]
    return LinearModel(
        base, scale.center, coef, rounds.constant, loss.inverse_link, loss.n_outputs is None, missing
    )


def _after_best_repeated(
    problem: LinearProblem, model: LinearModel, rounds: LinearRound
) -> tuple[LinearModel, History]:
    """Under a transformation no round can be dropped: after early stopping they repeat the best one."""
    n_rounds = problem.spec.n_estimators
    if problem.valid is None or n_rounds == 0:
        none = np.full(n_rounds, np.nan, rounds.train_loss.dtype)
        return model, History(rounds.train_loss, none, n_rounds - 1)
    numbers = jnp.arange(n_rounds, dtype=jnp.int32)
    best = jnp.max(jnp.where(rounds.since_best == 0, numbers, 0))
    history = History(rounds.train_loss, rounds.valid_metric, best)
    if problem.spec.n_iter_no_change is None:
        return model, history
    place = jnp.minimum(numbers, best)
    paths = {"coef_path": model.coef_path[place], "constant_path": model.constant_path[place]}
    return dataclasses.replace(model, **paths), history


def _cut(
    problem: LinearProblem, model: LinearModel, rounds: LinearRound, valid_on_host: Any
) -> tuple[LinearModel, History]:
    """Keep the rounds up to the best one if early stopping was asked for, and none that is not finite."""
    losses = np.asarray(rounds.train_loss)
    finite = np.isfinite(losses) & np.isfinite(np.asarray(rounds.constant)).all(axis=1)
    n_rounds = len(losses) if finite.all() else int(np.argmin(finite))
    if n_rounds < len(losses):
        warn(
            f"the training loss was no longer finite after round {n_rounds + 1}: the model holds the rounds before; "
            "lower learning_rate or raise reg_lambda",
            RuntimeWarning,
        )
    model = model.truncate(n_rounds)
    if problem.valid is None:
        return model, History(losses[:n_rounds], np.full(n_rounds, np.nan, losses.dtype), n_rounds - 1)
    metric = np.asarray(rounds.valid_metric)[:n_rounds]
    if valid_on_host is not None:
        metric = _measured_on_host(problem, model, valid_on_host)
    if n_rounds and np.isnan(metric).all():
        raise ValueError("metric must return a number, got NaN in every round")
    patience, tol = problem.spec.n_iter_no_change, np.asarray(problem.hyper.tol)
    n_run, best = follow(signed(metric, problem.metric), np.inf, tol, patience)
    history = History(losses[:n_run], metric[:n_run], best)
    return (model if patience is None else model.truncate(best + 1)), history


def _measured_on_host(problem: LinearProblem, model: LinearModel, valid: tuple[Any, ...]) -> np.ndarray:
    """Take a metric that is no JAX of the scores after each round."""
    rows, metric = problem.valid, problem.metric
    assert rows is not None
    assert isinstance(metric, Metric)
    y, weight = jax.tree.map(np.asarray, (rows.y, rows.weight))
    there = weight > 0
    y = jax.tree.map(lambda array: array[there], y)
    found = [
        as_number(metric(np.asarray(score)[there], y, weight[there]))
        for score in model.staged_predict(valid[0], rows.offset)
    ]
    return np.array(found, np.asarray(rows.weight).dtype)
