"""`boost`: forward stagewise additive modelling with any base learner."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from jboost._fixed_point import mean
from jboost._objective.derivatives import Expansion, derivatives_by_row, explained, value_by_row
from jboost._objective.group import GroupLoss
from jboost._objective.leaves import Derivatives, Leaves
from jboost._objective.line_search import best_length
from jboost._objective.loss import as_loss
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows
from jboost._runtime.arguments import as_key, as_offset, as_target, as_weight
from jboost._runtime.caller import moves_arrays
from jboost._runtime.parametrised import Parametrised, parametrised
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced, pytree
from jboost._spec import Hyper
from jboost.boosting.diagnosing import as_base_score
from jboost.boosting.preparing import check_domain
from jboost.learners import Learner
from jboost.textbook.additive import Additive

Step = Literal["newton", "gradient"]
FREE = Hyper(reg_lambda=0.0, reg_alpha=0.0)  # of penalties: a learner has its own


@pytree
class BoostRecord:
    """What happened in each of t rounds.

    Attributes
    ----------
    train_loss : float [t]
        Weighted mean loss of the training rows after each round.
    length : float [t]
        What each learner was multiplied by, the learning rate included.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> _, record = jboost.boost(jboost.losses.squared_error, jboost.learners.Linear(), X, X[:, 0], n_estimators=3)
    >>> [round(float(length), 3) for length in record.length]
    [0.1, 0.1, 0.1]
    """

    train_loss: Float[Array, " t"]
    length: Float[Array, " t"]


class _Choices(NamedTuple):
    n_rounds: int
    step: Step
    line_search: bool


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
    key : JAX key, optional
        For learners that draw; `jax.random.key(0)` by default.

    Returns
    -------
    Additive
        The model: a pytree with `predict(X)` and `staged_predict(X)`.
    BoostRecord
        The loss and the length of each round.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit; if a learner gives NaN, with the round in which it did.

    Notes
    -----
    All rounds are one compiled scan. `jboost.fit` is the way to boost trees: it knows penalties, samplers, early
    stopping and progress.

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
    choices = _check(learner, n_estimators, learning_rate, step, line_search)
    loss, key = as_loss(loss), as_key(key)
    if isinstance(loss, GroupLoss):
        raise TypeError("loss must be one of rows or a BatchLoss, got a GroupLoss; jboost.fit takes it")
    y = as_target(y, "y", loss.allow_nan)
    loss = resolve(loss, y).loss
    n, k = jax.tree.leaves(y)[0].shape[0], loss.n_outputs or 1
    offset = None if offset is None else as_offset(offset, n, k, "offset")
    rows = Rows(y, as_weight(sample_weight, n, "sample_weight"), offset)
    check_domain(loss.check_target, rows)
    known, prepared = _begin(learner, jax.random.fold_in(key, 0), X, rows.weight)
    _check_rows(learner, known, prepared, n, k, rows.weight.dtype)
    base = None if base_score is None else as_base_score(base_score, k)
    given = parametrised(learner), known, prepared, loss, rows, base, as_array(learning_rate, float), key
    with explained(loss):
        run = _run.__wrapped__ if is_traced(given) else _run
        base, params, record = run(*given, choices)
    if not is_traced(record):
        _check_finite(record, params)
    model = Additive(base, known, params, record.length, given[0], loss.inverse_link, loss.n_outputs is None)
    return model, record


def _run_rounds(
    learner: Parametrised,
    known: Any,
    prepared: Any,
    loss: Any,
    rows: Rows,
    base: Float[Array, " k"] | None,
    learning_rate: Float[Array, ""],
    key: Key[Array, ""],
    choices: _Choices,
) -> tuple[Float[Array, " k"], Any, BoostRecord]:
    base = jnp.asarray(loss.leaf.base_score(loss, rows, None) if base is None else base)
    score = jnp.broadcast_to(base[None], (rows.weight.size, base.size))
    score = score if rows.offset is None else score + rows.offset
    whole = learner.whole

    def one(score: Float[Array, "n k"], number: Array) -> tuple[Array, tuple[Any, Array, Array]]:
        adapted = loss.adapted(score, rows)
        found = derivatives_by_row(adapted, score, rows)
        target, weight = _wanted(found, rows, choices.step)
        params = whole.fit(jax.random.fold_in(key, number + 1), known, prepared, target, weight)
        direction = whole.predict(known, params, prepared)
        length = learning_rate * (
            _length(adapted, score, rows, found, direction)
            if choices.line_search
            else jnp.ones_like(learning_rate)
        )
        score = score + length * direction
        return score, (params, length, mean(value_by_row(adapted, score, rows), rows.weight))

    numbers = jnp.arange(choices.n_rounds, dtype=jnp.int32)
    _, (params, length, train_loss) = jax.lax.scan(one, score, numbers)
    return base, params, BoostRecord(train_loss, length)


_run = program(_run_rounds, static_argnums=8)


def _wanted(found: Expansion, rows: Rows, step: Step) -> tuple[Float[Array, "n k"], Float[Array, "n k"]]:
    """Return what the learner is to fit, and by which weights; 0 for rows that are not there."""
    weight, there = rows.weight[:, None], (rows.weight > 0)[:, None]
    g, h = jnp.where(there, found.g, 0), jnp.where(there, found.h, 1)
    if step == "gradient":
        return -g, jnp.broadcast_to(weight, g.shape)
    return -g / h, weight * h


def _length(
    loss: Any, score: Float[Array, "n k"], rows: Rows, found: Expansion, direction: Float[Array, "n k"]
) -> Float[Array, ""]:
    """Search for the length of a round, with a leaf for each row."""
    n = rows.weight.size
    g = found.g * rows.weight[:, None]
    hyper = jax.tree.map(lambda number: jnp.asarray(number, score.dtype), FREE)
    leaf = jnp.arange(n, dtype=jnp.int32)
    leaves = Leaves(loss, score, rows, rows.weight, leaf, n, hyper, Derivatives(g, jnp.ones_like(g)))
    size = jnp.max(jnp.abs(direction))
    unit = jnp.where(size > 0, size, 1)
    return best_length(leaves, direction / unit)[0, 0] / unit


def _check(learner: Any, n_estimators: Any, learning_rate: Any, step: Any, line_search: Any) -> _Choices:
    if not isinstance(learner, Learner) or isinstance(learner, type):
        raise TypeError(
            f"learner must have the methods init, fit and predict (jboost.learners), got {learner!r}"
        )
    if isinstance(n_estimators, bool) or not isinstance(n_estimators, int | np.integer) or n_estimators < 1:
        raise ValueError(f"n_estimators must be an integer of at least 1, got {n_estimators!r}")
    if step not in get_args(Step):
        raise ValueError(f"step must be one of {get_args(Step)}, got {step!r}")
    if not is_traced(learning_rate) and not (
        np.ndim(learning_rate) == 0 and 0 < float(learning_rate) < np.inf
    ):
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate!r}")
    return _Choices(int(n_estimators), step, step == "gradient" if line_search is None else bool(line_search))


def _begin(learner: Learner, key: Array, X: Any, weight: Float[Array, " n"]) -> tuple[Any, Any]:
    """Let the learner look at the features of the rows that count: one of weight 0 changes nothing."""
    if is_traced(weight) or is_traced(X) or (there := np.asarray(weight) > 0).all():
        return learner.init(key, X)
    counted = X.iloc[there] if hasattr(X, "iloc") else np.asarray(X)[there]
    known, _ = learner.init(key, counted)
    return learner.init(key, X, known)


def _check_rows(learner: Learner, known: Any, prepared: Any, n: int, k: int, dtype: Any) -> None:
    """Try the learner on abstract targets: it must give a score for each row and output."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    target = jax.ShapeDtypeStruct((n, k), dtype)

    def both(key: Any, known: Any, prepared: Any, target: Any, weight: Any) -> Any:
        return learner.predict(known, learner.fit(key, known, prepared, target, weight), prepared)

    try:
        found = jax.eval_shape(both, key, known, prepared, target, target)
    except (TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"learner failed on targets [{n} {k}], one for each row of y and output (X must have as many rows): {error}"
        ) from error
    if getattr(found, "shape", None) != (n, k) or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(
            f"learner.predict must return floats [{n} {k}], one for each row of y and output, got {found}"
        )


def _check_finite(record: BoostRecord, params: Any) -> None:
    """Raise if a learner gave what is not finite."""
    arrays = [np.asarray(one) for one in jax.tree.leaves(params)]
    floats = [one.reshape(len(one), -1) for one in arrays if np.issubdtype(one.dtype, np.floating)]
    columns = [np.asarray(record.train_loss)[:, None], np.asarray(record.length)[:, None], *floats]
    sound = np.isfinite(np.concatenate(columns, axis=1)).all(axis=1)
    if not sound.all():
        raise ValueError(
            f"the learner or the loss gave what is not finite in round {int(np.argmin(sound))}: a lower learning_rate, "
            "a penalty in the learner or a bounded loss may help"
        )
