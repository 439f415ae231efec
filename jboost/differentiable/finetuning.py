"""`finetune`: train the numbers of a fitted model further, by any optimizer, on any loss."""

from __future__ import annotations

import dataclasses
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float

from jboost._bins import Binned, read_bins
from jboost._model.ensemble import Ensemble, check_model
from jboost._objective.group import GroupLoss
from jboost._objective.loss import as_loss
from jboost._objective.resolve import resolve
from jboost._objective.rows import Rows
from jboost._runtime.arguments import as_key, as_target, whole_number
from jboost._runtime.caller import moves_arrays, warn
from jboost._runtime.extras import check_optimizer
from jboost._runtime.typing import as_array, identity, is_traced, kept_concrete
from jboost._spec import Hyper, Spec
from jboost.boosting.on_host import check_not_traced
from jboost.boosting.preparing import RowArguments, make_problem
from jboost.boosting.rounds import Problem
from jboost.boosting.trials import try_metric
from jboost.differentiable.batches import GroupBatches, RowBatches
from jboost.differentiable.descent import Task, descend, first_state
from jboost.differentiable.optimizers import adam_without_rate, import_optax
from jboost.differentiable.parameters import chosen, rates
from jboost.differentiable.soft import SoftEnsemble, check_soft
from jboost.differentiable.tasks import adapted_loss, make_task, stiffness_of

OF_ROWS = ("X", "y", "sample_weight", "offset", "groups")
OF_HARD = ("leaf_value", "tree_weight", "base")
OF_SOFT = (*OF_HARD, "threshold")
LARGEST = 2**31 - 2
ROSE = 1e-4  # of the loss; less is rounding
NOISE = 4  # standard errors of the mean loss of a pass of mini-batches

Model = TypeVar("Model", Ensemble, SoftEnsemble)


class FinetuneHistory(NamedTuple):
    """What happened in s steps: entry i is after i of them, so that entry 0 is the model as it was given.

    Attributes
    ----------
    train_loss : float [s + 1]
        Mean loss of the rows of the next step, without the decay.
    valid_metric : float [s + 1]
        Metric of the validation rows; NaN without them, and within a pass of mini-batches.
    best_step : int
        The step whose numbers the model has.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> loss = jboost.losses.squared_error
    >>> model, history = jboost.differentiable.finetune(model, loss, X, X[:, 0] + 1, steps=5)
    >>> history.train_loss.shape, history.best_step
    ((6,), 5)
    """

    train_loss: Float[np.ndarray, " steps"]
    valid_metric: Float[np.ndarray, " steps"]
    best_step: int


@moves_arrays
def finetune(
    model: Model,
    loss: Any,
    X: Any,
    y: Any,
    *,
    optimizer: Any = None,
    steps: int = 500,
    by: tuple[str, ...] = ("leaf_value",),
    valid: tuple[Any, ...] | None = None,
    metric: Any = None,
    decay: float = 0.0,
    sample_weight: Any = None,
    offset: Any = None,
    groups: Any = None,
    batch_size: int | None = None,
    key: Any = None,
    n_iter_no_change: int | None = None,
    verbose: bool | None = None,
) -> tuple[Model, FinetuneHistory]:
    """Train the numbers of a fitted model further, by gradient steps on any loss.

    What is minimised is the sum of the losses of the rows, each times its weight, plus a penalty on the distance from
    the model that was given: for t trees, base score b and what the leaves add, v,
    ``decay / 2 * (sum((b - b_0)**2) + t * sum((v - v_0)**2))``.

    Parameters
    ----------
    model : Ensemble or SoftEnsemble
        A fitted model, whose splits stay as they are; or one of soft trees, whose thresholds may be trained too.
    loss : callable, Loss, GroupLoss or BatchLoss
        As in `jboost.fit`; it need not be that of the model, but its scores must mean the same. Its link is not used:
        the model keeps its own.
    X : array-like [n f], data frame, sparse matrix or Binned
        Features; not binned for soft trees.
    y : array [n] or [n k], data frame, or pytree of these with leading axis n
        Targets.
    optimizer : optax.GradientTransformation, optional
        It sees the gradient of the mean loss. Optimizers that take ``value``, ``grad`` and ``value_fn``, such as
        `optax.lbfgs`, are given them. By default Adam, whose rate is 0.02 of the size of what is trained (of a typical
        leaf value, output by output; of the temperature, for thresholds) and falls to 0 as a cosine: the units of
        target and loss do not matter. So 500 steps move a score by up to five times what the trees add to it; for more,
        give another optimizer.
    steps : int
        Steps, at most.
    by : tuple of "leaf_value", "tree_weight", "base", and "threshold" of soft trees
        What is trained. The optimizer sees a dictionary with these names.
    valid : (X, y), optionally with more: (X, y, weight, offset, groups)
        Rows to judge by: the result has the numbers with which their metric is best, those of the start included.
    metric : callable or Metric, optional
        As in `jboost.fit`: the mean loss of the validation rows by default.
    decay : float, default 0
        Read in average rows, as `Hyper.reg_lambda` is: about so many in each leaf want their scores to stay. It does
        not depend on the number of trees. A threshold that has moved by the spread of its feature counts as if all
        leaves of its tree had moved by their values.
    sample_weight, offset, groups
        As in `jboost.fit`.
    batch_size : int, optional
        Rows of a step, drawn anew in each pass over the rows; all rows unless it is given, and for losses of all rows.
        For a `GroupLoss` whole groups are drawn, some of each class of sizes, so that a step has about so many rows.
        Validation rows are then judged once a pass.
    key : JAX key or int, optional
        For the order of the rows; `jax.random.key(0)` by default.
    n_iter_no_change : int, optional
        Judgements of the validation rows without a better one, after which to stop.
    verbose : bool, optional
        Show a progress bar: always, never, or (None) after two seconds on a terminal.

    Returns
    -------
    Ensemble or SoftEnsemble
        The model with the best numbers: by the metric of the validation rows, or else by what is minimised, or those of
        the last step where mini-batches are all that is known.
    FinetuneHistory
        Loss and metric by step.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled, and where the loss of the model as it is given is
        not finite.
    ImportError
        If optax is not installed.

    Notes
    -----
    A loss that is no longer finite, or Ctrl-C, ends the steps with a warning and returns the best numbers so far. A
    loss that no step changes, as squares of targets below 1e-19 are 0 in float32, gives a warning too. Where
    the leaves of all rows in all trees take up to 1 GiB (a byte each up to depth 8) they are found once. The same
    optimizer, loss and about the same number of rows compile nothing anew, whatever `steps` and the numbers of model
    and loss. An optimizer that is made anew, as by calling `optax.adam` again, does.

    Inside `jit` or `grad` take `jax.grad` of a loss of `jboost.predict`: it is differentiable by the same numbers.

    References
    ----------
    Kingma and Ba (2015), "Adam". Li, Grandvalet and Davoine (2018), "Explicit Inductive Bias for Transfer Learning with
    Convolutional Networks", for the penalty on the distance from the start.

    Examples
    --------
    Eleven rows of another domain, in which everything is higher by 0.5:

    >>> import numpy as np, jboost
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=20))
    >>> loss = jboost.losses.squared_error
    >>> model, _ = jboost.differentiable.finetune(model, loss, X[::6], X[::6, 0] + 0.5, by=("base",))
    >>> round(float((jboost.predict(model, X) - X[:, 0]).mean()), 1)
    0.5
    """
    import_optax()
    is_soft = isinstance(model, SoftEnsemble)
    check_soft(model) if is_soft else check_model(model)
    loss = _with_link_of(model, as_loss(loss))
    if optimizer is not None:
        check_optimizer(optimizer)
    numbers = chosen(model, by, OF_SOFT if is_soft else OF_HARD)
    steps = whole_number(steps, "steps", 0, LARGEST)
    patience = (
        LARGEST
        if n_iter_no_change is None
        else whole_number(n_iter_no_change, "n_iter_no_change", 1, LARGEST)
    )
    if n_iter_no_change is not None and valid is None:
        raise ValueError("valid must be given when n_iter_no_change asks for early stopping")
    check_not_traced(metric)
    if groups is not None and not isinstance(loss, GroupLoss):
        raise ValueError(
            f"groups must be None for a {type(loss).__name__}, which knows none: nothing is drawn by group"
        )
    decay = _non_negative("decay", decay)
    key = as_key(key)
    y = as_target(y, "y", loss.allow_nan)
    resolved = resolve(loss, y)
    if resolved.traced or is_traced(model, X, y, sample_weight, valid, offset, key, metric):
        raise TypeError(
            "finetune must be called outside of jit, vmap and grad: inside take jax.grad of a loss of "
            "jboost.predict(model, X), by dataclasses.replace(model, leaf_value=...)"
        )
    with kept_concrete():
        bins = as_array(read_bins(model.edges, X))
        given = RowArguments(Binned(bins, model.edges, True), y, sample_weight, offset, groups, OF_ROWS)
        problem = make_problem(resolved, given, Spec(), Hyper(), valid, metric)
        _check_outputs(model, problem)
        size = _batch_size(batch_size, problem)
        if problem.metric is not None and problem.valid is not None:
            try_metric(problem.metric, problem.valid, problem.loss.n_outputs)
        of_valid = None if valid is None else valid[0]
        task = make_task(model, problem, X, of_valid, resolved.numbers_per_row)
        task = dataclasses.replace(
            task,
            loss=adapted_loss(task),
            stiffness=None if decay == 0 else stiffness_of(task, np.asarray(decay, model.base.dtype)),
            rates=rates(model, tuple(numbers)) if optimizer is None else None,
            optimizer=adam_without_rate() if optimizer is None else optimizer,
            n_steps=as_array(np.int32(steps)),
            patience=as_array(np.int32(patience)),
            batches=_batches(task.rows, size),
        )
        start = first_state(task, numbers, key)
        state, losses, metrics = descend(task, start, verbose)
        _warn(task, state, losses, metrics)
        history = FinetuneHistory(losses, metrics, int(state.best_step))
        return dataclasses.replace(model, **state.kept), history


def _with_link_of(model: Any, loss: Any) -> Any:
    """Return the loss with what the steps need of it: no Hessian of several outputs."""
    link = loss.inverse_link
    if link is not identity and link != model.inverse_link:
        raise ValueError(
            f"loss must be of the scores that model has: its inverse_link is {link!r}, that of the model "
            f"{model.inverse_link!r}; a jboost.Loss without a link takes any scores"
        )
    known = {"inverse_link": model.inverse_link}
    if loss.hessian == "full":
        known |= {"hessian": "diagonal", "curvature": None}
    return dataclasses.replace(loss, **known)


def _non_negative(name: str, value: Any) -> float:
    is_number = not np.ndim(value) and isinstance(value, Real | np.ndarray | jax.Array)
    if not is_number or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if is_traced(value) or not 0 <= float(value) < np.inf:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    return float(value)


def _batch_size(batch_size: Any, problem: Problem) -> int | None:
    if batch_size is None:
        return None
    if problem.loss.needs_all_rows and problem.train.groups is None:
        raise ValueError(
            f"batch_size must be None for a {type(problem.loss).__name__}, whose rows depend on each other"
        )
    size = whole_number(batch_size, "batch_size", 1, LARGEST)
    n_rows = int((np.asarray(problem.train.weight) > 0).sum())
    if size > n_rows:
        raise ValueError(f"batch_size must be at most the number of rows with weight, {n_rows}, got {size}")
    return size


def _batches(rows: Rows, size: int | None) -> RowBatches | GroupBatches | None:
    if size is None:
        return None
    return RowBatches.of(rows, size) if rows.groups is None else GroupBatches.of(rows, size)


def _check_outputs(model: Any, problem: Problem) -> None:
    k = problem.loss.n_outputs
    if (model.n_outputs, model.scalar_output) != (k or 1, k is None):
        raise ValueError(
            f"model has {model.n_outputs} output(s){' in a vector' * (not model.scalar_output)}, but the loss and y "
            f"ask for {'a scalar' if k is None else k}"
        )
    if model.base.dtype != problem.train.weight.dtype:
        raise ValueError(
            f"model holds {model.base.dtype}, but JAX computes in {problem.train.weight.dtype} now"
        )


def _warn(task: Task, state: Any, losses: np.ndarray, metrics: np.ndarray) -> None:
    """Say so where the steps went wrong, and raise where the model as it was given is no start."""
    if not losses.size:  # interrupted before the first
        return
    of_loss, of_gradient = np.asarray(state.sound)
    what = "loss" if not of_loss else "gradient of the loss"
    way_out = (
        "lower the learning rate of optimizer, or bound its steps: "
        "optax.chain(optax.clip_by_global_norm(1.0), optimizer)"
    )
    if task.optimizer is adam_without_rate() and task.rates is not None:
        way_out = "give an optimizer with a lower learning rate, such as optax.adam of a hundredth of the leaf values"
    if not (of_loss and of_gradient):
        last = int(state.step) - 1
        if last == 0:
            found = losses[0] if not of_loss else f"one that is not, where the loss is {losses[0]}"
            raise ValueError(
                f"loss: the {what} must be finite at the scores of model, got {found}; write the loss without "
                "overflow, 0/0 or a root or logarithm at 0 (also on the side of jnp.where that is not taken), and "
                "check that y lies in its domain"
            )
        warn(
            f"the {what} was no longer finite after step {last}: the model has the numbers of step "
            f"{int(state.best_step)}; {way_out}",
            RuntimeWarning,
        )
        return
    if task.valid is not None and np.isnan(metrics).all():
        raise ValueError("metric must return a number, got NaN in every step")
    if losses.size > 1 and (losses == losses[0]).all() and _has_moved(task, state):
        warn(
            f"the loss was {losses[0]:.6g} in every step, though its gradient is not 0: the model has the numbers of "
            f"step {int(state.best_step)}; scale y and the scores of model, if such losses are too small for "
            f"{losses.dtype} or differ by too little",
            RuntimeWarning,
        )
    of_pass = 1 if task.batches is None else int(task.batches.n)
    first, end = losses[:of_pass], losses[-of_pass:].mean()
    noise = NOISE * first.std() / np.sqrt(of_pass)
    if end > first.mean() + ROSE * max(abs(first.mean()), abs(losses.min())) + noise:
        warn(
            f"the loss rose from {first.mean():.6g} to {end:.6g}: the model has the numbers of step "
            f"{int(state.best_step)}; {way_out}",
            RuntimeWarning,
        )


def _has_moved(task: Task, state: Any) -> bool:
    return any(
        (np.asarray(one) != np.asarray(getattr(task.model, name))).any()
        for name, one in state.parameters.items()
    )
