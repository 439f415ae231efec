"""A user's functions tried on abstract arguments, so that one of another form fails before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from jboost._objective.derivatives import derivatives_by_row
from jboost._objective.leaves import Derivatives, Leaves
from jboost._objective.loss import NOT_JAX
from jboost._objective.resolve import abstract_arguments
from jboost._objective.rows import Rows
from jboost._runtime.parametrised import Parametrised, parametrised
from jboost._runtime.programs import program
from jboost.boosting.rounds import Problem, State
from jboost.metrics import Metric


def try_functions(problem: Problem) -> None:
    """Try the metric, the sampler, the functions of a loss beside itself, and a leaf rule that the user brings."""
    n, k = problem.train.weight.size, problem.loss.n_outputs or 1
    dtype = problem.train.weight.dtype
    score = jax.ShapeDtypeStruct((n, k), dtype)
    if problem.metric is not None and problem.valid is not None:
        try_metric(problem.metric, problem.valid, problem.loss.n_outputs)
    if problem.sampler is not None:
        key = jax.eval_shape(lambda: jax.random.key(0))
        form = "sampler(key, g [n k], h [n k], weight [n]) -> weight [n]"
        found = _form_of("sampler", form, problem.sampler, key, score, score, problem.train.weight)
        _expect("sampler", form, found, (n,), "biuf")
    for name in ("curvature", "diagonal"):
        if _is_brought(getattr(problem.loss, name)):
            _try_second_derivative(problem, name)
    if _is_brought(problem.loss.majorant):
        form = "majorant(a) -> scalar"
        largest = jax.ShapeDtypeStruct((), dtype)
        _expect("majorant", form, _form_of("majorant", form, problem.loss.majorant, largest), (), "f")
    if _is_brought(problem.loss.constant):
        _try_constant(problem)
    if _is_brought(problem.loss.adapt):
        _try_adapt(problem, score)
    if _is_brought(type(problem.loss.leaf)):
        _try_rule(problem, score)


def _is_brought(part: Any) -> bool:
    """Say whether a function or class is the user's: those of jboost need no trial in every fit."""
    part = part.whole if isinstance(part, Parametrised) else part
    defined = getattr(part, "func", part)  # of a Partial
    return part is not None and (getattr(defined, "__module__", None) or "").partition(".")[0] != "jboost"


def check_sampler(problem: Problem, state: State) -> None:
    """Call the sampler once on the derivatives of the first round, and refuse weights that nothing is learned by."""
    if problem.sampler is None:
        return
    low, total = (np.asarray(one) for one in _sampled(problem, state))
    if not (low >= 0 and 0 < total < np.sqrt(np.finfo(total.dtype).max)):  # false for NaN too
        raise ValueError(
            "sampler must return finite weights of at least 0, not all 0 and in the range of those that it was given, "
            f"got weights from {low:g} that sum to {total:g} in the first round"
        )


@program
def _sampled(problem: Problem, state: State) -> tuple[Array, Array]:
    _, g, h = derivatives_by_row(problem.loss, state.score, problem.train)
    assert problem.sampler is not None  # who asks has one
    dtype = problem.train.weight.dtype
    weight = jnp.asarray(problem.sampler(state.key, g, h, problem.train.weight), dtype)
    return weight.min(), weight.sum()


def try_metric(metric: Metric, rows: Rows, n_outputs: int | None) -> None:
    """Raise unless a metric makes a number of the scores of such rows."""
    n = rows.weight.size
    score = jax.ShapeDtypeStruct((n,) if n_outputs is None else (n, n_outputs), rows.weight.dtype)
    form = "metric(score, y, weight) -> scalar"
    found = _form_of("metric", form, metric.function, score, rows.y, rows.weight)
    _expect("metric", form, found, (), "biuf")


def _try_second_derivative(problem: Problem, name: str) -> None:
    loss = problem.loss
    arguments = abstract_arguments(loss, loss.n_outputs, problem.train.y)
    of_scores = arguments[0].shape
    expected = (*of_scores, *of_scores) if name == "curvature" and loss.hessian == "full" else of_scores
    form = f"{name}(score, y{', ...' * (len(arguments) > 2)}), in the shape of the scores"
    form += " or, if it is full, a matrix" * (name == "curvature")
    found = _form_of(name, form, getattr(loss, name), *arguments)
    _expect(name, form, found, expected, "f")


def _try_constant(problem: Problem) -> None:
    loss, weight = problem.loss, problem.train.weight

    def mean(values: Any) -> Array:
        if jnp.shape(values)[:1] != weight.shape:
            raise ValueError(f"mean takes an array with one entry per row, got shape {jnp.shape(values)}")
        return jnp.zeros(jnp.shape(values)[1:], weight.dtype)

    form = "constant(y, mean) -> scalar or [k]"
    found = _form_of("constant", form, lambda y: loss.constant(y, mean), problem.train.y)
    shape = () if getattr(found, "shape", None) == () else (loss.n_outputs or 1,)
    _expect("constant", form, found, shape, "f")


def _try_adapt(problem: Problem, score: Any) -> None:
    loss, form = problem.loss, "adapt(function, score, y, weight) -> function"

    def adapted(score: Array) -> Any:
        return parametrised(loss.adapted(score, problem.train).function)

    found, own = _form_of("adapt", form, adapted, score), parametrised(loss.function)
    forms = [[(jnp.shape(number), jnp.result_type(number)) for number in one.numbers] for one in (found, own)]
    if found.code != own.code or forms[0] != forms[1]:
        raise ValueError(
            f"adapt must be a function {form}, that returns what it was given with other numbers of the same form, got "
            f"{found.whole!r} for {own.whole!r}"
        )


def _try_rule(problem: Problem, score: Any) -> None:
    loss, spec = problem.loss, problem.spec
    k = score.shape[1]
    leaf = jax.ShapeDtypeStruct(score.shape if spec.separate else score.shape[:1], jnp.int32)

    def of_leaves(score: Array, leaf: Array) -> Any:
        derivatives = Derivatives(score, score)
        rows, hyper = problem.train, problem.hyper
        leaves = Leaves(loss, score, rows, rows.weight, leaf, spec.n_leaves, hyper, derivatives)
        return loss.leaf.leaf_values(leaves)

    form = "leaf.leaf_values(leaves) -> [leaves k]"
    found = _form_of("leaf", form, of_leaves, score, leaf)
    _expect("leaf", form, found, (spec.n_leaves, k), "f")
    form = "leaf.base_score(loss, rows, reduce) -> [k]"
    found = _form_of("leaf", form, lambda rows: loss.leaf.base_score(loss, rows, None), problem.train)
    _expect("leaf", form, found, (k,), "f")


def _form_of(name: str, form: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    except jax.errors.JAXTypeError as error:
        raise TypeError(NOT_JAX.format(name, error)) from error
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise TypeError(f"{name} must be a function {form}: {error}{_of_a_maker(function)}") from error


def _of_a_maker(function: Any) -> str:
    """Say what to do where a function of `jboost.samplers` was given that makes a sampler."""
    function = function.whole if isinstance(function, Parametrised) else function
    if not (isinstance(function, FunctionType) and function.__module__.startswith("jboost.samplers")):
        return ""
    return f"; {function.__name__} makes one where it is called: give samplers.{function.__name__}()"


def _expect(name: str, form: str, found: Any, shape: tuple[int, ...], kinds: str) -> None:
    dtype = getattr(found, "dtype", None)
    is_real = dtype is not None and (dtype.kind in kinds or jnp.issubdtype(dtype, jnp.floating))
    if getattr(found, "shape", None) != shape or not is_real:
        numbers = "floats" if kinds == "f" else "real numbers"
        raise ValueError(f"{name} must be a function {form}, of {numbers} of shape {shape}, got {found}")
