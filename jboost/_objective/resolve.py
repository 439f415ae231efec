"""Trying a loss on abstract rows: how many outputs it has, whether it is one at all, and what it is made of."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jboost._objective.batch import BatchLoss
from jboost._objective.group import GroupLoss
from jboost._objective.loss import NOT_JAX
from jboost._runtime.typing import is_traced

_SIGNATURES = {
    BatchLoss: "loss(score [n], y, weight) -> scalar of all rows",
    GroupLoss: "loss(score [m], y, mask) -> scalar of the rows of a group",
}
_OF_ONE_ROW = "loss(score, y) -> scalar of one row"


class Resolved(NamedTuple):
    """A loss whose number of outputs is known, and what was seen when it was tried."""

    loss: Any
    traced: bool  # whether it refers to traced values, as one with learned parameters does
    numbers_per_row: int  # in the largest array that it makes of one row: 1 for scalars


def resolve(loss: Any, y: Any) -> Resolved:
    """Find the number of outputs, and try the loss, so that one of another form fails here with a clear message.

    Raises
    ------
    ValueError, TypeError
        When y has no leading axis of rows, its leaves disagree on it, or the loss is not a real scalar.
    """
    n_outputs = _n_outputs(loss, y)
    program = _try(loss, n_outputs, y)
    traced = is_traced(loss, program.consts)
    return Resolved(dataclasses.replace(loss, n_outputs=n_outputs), traced, _largest_array(program.jaxpr))


def _n_outputs(loss: Any, y: Any) -> int | None:
    """Return the length of the score vector of one row, or None when the score is a scalar."""
    leaves = jax.tree.leaves(y)
    shapes = [jnp.shape(leaf) for leaf in leaves]
    if not shapes or any(len(shape) == 0 for shape in shapes) or len({shape[0] for shape in shapes}) != 1:
        raise ValueError(
            f"y must be an array, or a pytree of arrays, with one entry per row; got shapes {shapes}"
        )
    if loss.n_outputs is None and len(leaves) == 1 and leaves[0] is y and len(shapes[0]) > 1:
        if len(shapes[0]) > 2 or shapes[0][1] == 0:
            raise ValueError(f"y must have shape [n] or [n k] with k of at least 1; got {shapes[0]}")
        return shapes[0][1]
    return loss.n_outputs


def _try(loss: Any, n_outputs: int | None, y: Any) -> Any:
    """Trace the loss on abstract arguments; return its program."""
    arguments = abstract_arguments(loss, n_outputs, y)
    score, row = arguments[:2]
    try:
        program, value = jax.make_jaxpr(loss.function, return_shape=True)(*arguments)
    except jax.errors.JAXTypeError as error:
        raise TypeError(NOT_JAX.format("loss", error)) from error
    except TypeError as error:
        form = "" if hasattr(y, "dtype") else _who_reads(y)
        raise TypeError(
            f"loss must be a function {_SIGNATURES.get(type(loss), _OF_ONE_ROW)}{form}: {error}"
        ) from error
    except (ValueError, IndexError) as error:
        hint = "; a vector of k scores takes jboost.Loss(loss, n_outputs=k)" if n_outputs is None else ""
        shapes = jax.tree.map(lambda leaf: leaf.shape, row)
        what = "y" if type(loss) in _SIGNATURES else "a row of y"
        raise ValueError(
            f"loss failed on a score of shape {score.shape} and {what} of shape {shapes}: {error}{hint}"
        ) from error
    if not (hasattr(value, "shape") and value.shape == () and jnp.issubdtype(value.dtype, jnp.floating)):
        scope = "" if type(loss) in _SIGNATURES else " for one row"
        of_row = "y" if type(loss) in _SIGNATURES else "one row of y"
        raise ValueError(
            f"loss must return a real scalar{scope} (a score of shape {score.shape} and {of_row}); "
            f"{loss.name or loss.function!r} returned {value}" + _way_to_a_scalar(value, scope)
        )
    return program


def _way_to_a_scalar(value: Any, scope: str) -> str:
    if getattr(value, "shape", ()) == ():
        return ""
    if not scope:
        return "; return a sum over the rows (jnp.sum)"
    return "; return a sum over the outputs (jnp.sum), and for classes let y hold their numbers, not a column of each"


def _who_reads(y: Any) -> str:
    return f" that reads y as it is, a {type(y).__name__} of arrays; or give y as an array [n] or [n k]"


def abstract_arguments(loss: Any, n_outputs: int | None, y: Any) -> tuple[Any, ...]:
    """Return what a loss of this kind is called with, and its curvature too; the scores come first."""
    dtype, outputs = jnp.result_type(float), () if n_outputs is None else (n_outputs,)
    if type(loss) not in _SIGNATURES:
        row = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf)[1:], jnp.result_type(leaf)), y)
        return jax.ShapeDtypeStruct(outputs, dtype), row
    n_rows = jnp.shape(jax.tree.leaves(y)[0])[0] if isinstance(loss, BatchLoss) else 4
    rows = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((n_rows, *jnp.shape(leaf)[1:]), jnp.result_type(leaf)), y
    )
    third = jax.ShapeDtypeStruct((n_rows,), dtype if isinstance(loss, BatchLoss) else bool)
    return jax.ShapeDtypeStruct((n_rows, *outputs), dtype), rows, third


def _largest_array(program: Any) -> int:
    """Return the number of numbers in the largest array of a traced program, and of those inside it."""
    inner = [
        getattr(part, "jaxpr", part)
        for equation in program.eqns
        for value in equation.params.values()
        for part in (value if isinstance(value, (tuple, list)) else [value])
    ]
    variables = [*program.invars, *program.constvars, *(v for eqn in program.eqns for v in eqn.outvars)]
    sizes = [getattr(variable.aval, "size", 1) for variable in variables]
    return max([1, *sizes, *(_largest_array(part) for part in inner if hasattr(part, "eqns"))])
