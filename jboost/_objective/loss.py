"""The records that describe a loss: what it is, how its curvature is taken and how a leaf is fitted."""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from jboost._runtime.typing import identity, is_traced

RowLoss = Callable[[Any, Any], Any]  # (score of one row, y of that row) -> scalar
NOT_JAX = (
    "{} must be written in JAX operations: jnp.where instead of if, jnp.abs instead of np.abs; JAX says: {}"
)
HessianKind = Literal["diagonal", "full", "first_order"]


@dataclass(frozen=True)
class Newton:
    """Leaf rule: Newton steps on the loss of the rows in the leaf, each -G / (H + lambda).

    Parameters
    ----------
    steps : int, default 1
        How many steps; g and h are taken anew before each.

    References
    ----------
    Chen and Guestrin (2016), "XGBoost: A Scalable Tree Boosting System", eq. 5.

    Examples
    --------
    >>> from jboost import Loss, Newton, losses
    >>> Loss(losses.logistic.function, leaf=Newton(steps=3)).leaf.steps
    3
    """

    steps: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.steps, bool) or not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps must be an integer of at least 1; got {self.steps!r}")


@dataclass(frozen=True)
class Quantile:
    """Leaf rule: the weighted quantile of the residuals y - score in the leaf.

    Parameters
    ----------
    level : float, default 0.5
        Which quantile, between 0 and 1 exclusive; 0.5 is the median.

    References
    ----------
    Friedman (2001), "Greedy Function Approximation: A Gradient Boosting Machine", Algorithm 3
    (LAD_TreeBoost).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import Loss, Quantile
    >>> median = Loss(lambda score, y: jnp.abs(y - score), hessian="first_order", leaf=Quantile(0.5))
    >>> median.leaf.level
    0.5
    """

    level: float = 0.5

    def __post_init__(self) -> None:
        if not 0.0 < self.level < 1.0:
            raise ValueError(f"level must lie strictly between 0 and 1; got {self.level!r}")


@dataclass(frozen=True)
class Loss:
    """A loss of one row, with what boosting needs to know beside its formula.

    Gradients and Hessians always come from automatic differentiation of `function`. A `Loss` is hashable and
    compares by value, so that equal losses share one compiled program; it pickles when its functions do.

    Parameters
    ----------
    function : callable
        ``function(score, y) -> scalar`` for ONE row: no sum over rows and no weight. `score` is a scalar or,
        with k outputs, a vector [k]; `y` is one row of the target (of each leaf, when the target is a
        pytree).
    n_outputs : int or None, default None
        Length of the score vector. None: a scalar score for a target [n] or a pytree of arrays, a vector [k]
        for a target [n k].
    inverse_link : callable, default identity
        Maps raw scores, [n] or [n k], to predictions of the same shape: a mean or a probability.
    hessian : {"diagonal", "full", "first_order"}, default "diagonal"
        "diagonal" takes the second derivative by each output; "full" the k x k matrix in the leaves;
        "first_order" takes h = 1, for a loss whose second derivative vanishes.
    hessian_floor : float, default 1e-6
        The least diagonal second derivative of a row; smaller ones, also negative ones, are raised to it. The
        default is about eight float32 rounding units of a curvature of one: lost beside ordinary rows, yet
        enough to divide by in a leaf where every row is saturated.
    leaf : Newton or Quantile, default Newton()
        How the value of a leaf is found.
    check_target : callable or None, default None
        ``check_target(y)`` with the concrete target on the host; raises ValueError naming y when the target
        is outside the domain of the loss.
    name : str or None, default None
        Shown in messages.

    Raises
    ------
    TypeError, ValueError
        When a field is not what is listed above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost.losses import Loss
    >>> def log_cosh(score, y):  # without a cosh, which overflows beyond 89
    ...     return jnp.logaddexp(score - y, y - score) - jnp.log(2.0)
    >>> log_cosh = Loss(log_cosh, name="log_cosh")
    >>> round(float(log_cosh(1.0, 3.0)), 4)
    1.325
    """

    function: RowLoss
    n_outputs: int | None = None
    inverse_link: Callable[[jax.Array], jax.Array] = identity
    hessian: HessianKind = "diagonal"
    hessian_floor: float = 1e-6
    leaf: Newton | Quantile = Newton()
    check_target: Callable[[Any], None] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("function", "inverse_link"):
            if not callable(getattr(self, field)):
                raise TypeError(f"{field} must be callable; got {getattr(self, field)!r}")
        if self.check_target is not None and not callable(self.check_target):
            raise TypeError(f"check_target must be callable or None; got {self.check_target!r}")
        if self.n_outputs is not None and (type(self.n_outputs) is not int or self.n_outputs < 1):
            raise ValueError(f"n_outputs must be None or an integer of at least 1; got {self.n_outputs!r}")
        if self.hessian not in get_args(HessianKind):
            raise ValueError(f"hessian must be one of {get_args(HessianKind)}; got {self.hessian!r}")
        if not (math.isfinite(self.hessian_floor) and self.hessian_floor > 0):
            raise ValueError(f"hessian_floor must be positive and finite; got {self.hessian_floor!r}")
        if not isinstance(self.leaf, Newton | Quantile):
            raise TypeError(f"leaf must be Newton(...) or Quantile(...); got {self.leaf!r}")

    def __call__(self, score: Any, y: Any) -> jax.Array:
        """Return the loss of one row."""
        return self.function(score, y)


def as_loss(loss: Any) -> Loss:
    """Return `loss` as a `Loss`; a plain function of one row is wrapped with the default choices."""
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        raise TypeError(
            f"loss must be a function or a Loss, such as jboost.losses.squared_error; got {loss!r}"
        )
    if getattr(loss, "__module__", None) == "jboost.losses":
        name = f"jboost.losses.{getattr(loss, '__name__', '')}"
        raise TypeError(f"loss must be a Loss, and {name} makes one: call it, as in {name}(...)")
    if not callable(loss) or isinstance(loss, type):
        raise TypeError(f"loss must be a Loss or a function loss(score, y) of one row; got {loss!r}")
    try:
        hash(loss)
    except TypeError as error:
        raise TypeError(f"loss must be hashable, for a compiled fit is kept by it; got {loss!r}") from error
    return Loss(loss, name=getattr(loss, "__name__", None))


def resolve_outputs(loss: Loss, y: Any) -> int | None:
    """Return the length of the score vector of one row, or None when the score is a scalar.

    Also tries the loss on abstract values of one row, so that a loss of another form fails here with a clear
    message.

    Raises
    ------
    ValueError
        When y has no leading axis of rows, its leaves disagree on it, or the loss of a row is not a real
        scalar.
    """
    leaves = jax.tree.leaves(y)
    shapes = [jnp.shape(leaf) for leaf in leaves]
    if not shapes or any(len(shape) == 0 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(
            f"y must be an array, or a pytree of arrays, with one entry per row; got shapes {shapes}"
        )
    n_outputs = loss.n_outputs
    if n_outputs is None and len(leaves) == 1 and leaves[0] is y and len(shapes[0]) > 1:
        if len(shapes[0]) > 2 or shapes[0][1] == 0:
            raise ValueError(f"y must have shape [n] or [n k] with k of at least 1; got {shapes[0]}")
        n_outputs = shapes[0][1]
    _check_row_loss(loss, n_outputs, y)
    return n_outputs


def holds_traced(value: Any, depth: int = 4) -> bool:
    """Say whether a function refers to traced values, as a loss with learned parameters does.

    Looks into closures, partial arguments, attributes and containers, a few levels deep.
    """
    if is_traced(value):
        return True
    if depth == 0 or isinstance(value, (type, types.ModuleType)):
        return False
    parts: list[Any] = [leaf for leaf in jax.tree.leaves(value) if leaf is not value]
    if inspect.isfunction(value):
        cells = value.__closure__ or ()
        parts += [cell.cell_contents for cell in cells if not _is_empty(cell)] + list(
            value.__defaults__ or ()
        )
    elif isinstance(value, functools.partial):
        parts += [value.func, *value.args, *value.keywords.values()]
    elif inspect.ismethod(value):
        parts += [value.__self__]
    else:
        parts += list(getattr(value, "__dict__", {}).values())
    return any(holds_traced(part, depth - 1) for part in parts)


def _is_empty(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is cell  # False: reading it is what matters
    except ValueError:
        return True


def widest_array(loss: Loss, y: Any) -> int:
    """Count the numbers of the largest array that the loss, its outputs resolved, makes of one row: 1 for scalars."""

    def widest(program: Any) -> int:
        inner = [
            getattr(part, "jaxpr", part)
            for equation in program.eqns
            for value in equation.params.values()
            for part in (value if isinstance(value, (tuple, list)) else [value])
        ]
        variables = [*program.invars, *program.constvars, *(v for eqn in program.eqns for v in eqn.outvars)]
        sizes = [getattr(variable.aval, "size", 1) for variable in variables]
        return max([1, *sizes, *(widest(part) for part in inner if hasattr(part, "eqns"))])

    return widest(jax.make_jaxpr(loss.function)(*_abstract_row(loss.n_outputs, y)).jaxpr)


def _abstract_row(n_outputs: int | None, y: Any) -> tuple[Any, Any]:
    score = jax.ShapeDtypeStruct(() if n_outputs is None else (n_outputs,), jnp.result_type(float))
    row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf)[1:], jnp.result_type(leaf)), y)
    return score, row


def _check_row_loss(loss: Loss, n_outputs: int | None, y: Any) -> None:
    score, row = _abstract_row(n_outputs, y)
    try:
        value = jax.eval_shape(loss, score, row)
    except jax.errors.JAXTypeError as error:
        raise TypeError(NOT_JAX.format("loss", error)) from error
    except TypeError as error:
        raise TypeError(f"loss must be a function loss(score, y) -> scalar of one row: {error}") from error
    except (ValueError, IndexError) as error:
        hint = "; a vector of k scores takes jboost.Loss(loss, n_outputs=k)" if n_outputs is None else ""
        shapes = jax.tree.map(lambda leaf: leaf.shape, row)
        raise ValueError(
            f"loss failed on a score of shape {score.shape} and a row of y of shape {shapes}: {error}{hint}"
        ) from error
    if not (hasattr(value, "shape") and value.shape == () and jnp.issubdtype(value.dtype, jnp.floating)):
        raise ValueError(
            f"loss must return a real scalar for one row (a score of shape {score.shape} and one row of y); "
            f"{loss.name or loss.function!r} returned {value}"
        )
