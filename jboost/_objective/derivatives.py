"""Value, gradient and Hessian of a loss for every row, by automatic differentiation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jboost._fixed_point import totals
from jboost._objective.rows import Rows, gathered, per_row
from jboost._runtime.dividing import all_rows, own_rows

ROUNDING = 16  # units of rounding of a loss that are no rise
NUDGE = 8  # units of rounding of a score: so small a move shows how a loss is rounded
NOISE = 4  # times what rounding was seen to do to a loss, which is no rise either

Scores = Float[Array, " n"] | Float[Array, "n k"]
# Words of JAX's for it.
_NO_DERIVATIVE = ("differentiation", "support JVP", "differentiat", "JVP rule", "transpose")


class Expansion(NamedTuple):
    """The loss of each row around its score, of a unit of weight, to the second order."""

    value: Float[Array, " n"]
    g: Float[Array, "n k"]
    h: Float[Array, "n k"]


def derivatives_by_row(
    loss: Any, score: Float[Array, "n k"], rows: Rows, unit_of_h: Float[Array, " k"] | float = 1.0
) -> Expansion:
    """Return the loss, gradient g and floored diagonal Hessian h of each row, all of a unit of weight.

    Parameters
    ----------
    loss : Loss, GroupLoss or BatchLoss
        With its outputs resolved: `n_outputs` of None means a scalar score.
    score : [n k]
        Raw scores; their dtype is the dtype of all results.
    rows : Rows
        Targets, weights and groups of the n rows.
    unit_of_h : [k], default 1
        Of the floor.

    Returns
    -------
    value : [n]
        Loss of each row.
    g, h : [n k]
        First derivative; second derivative by each output, at least `loss.hessian_floor` units, or 1 for
        ``hessian="first_order"``.
    """
    value, g, h = raw_derivatives(loss, score[:, 0] if loss.n_outputs is None else score, rows)
    g, h = jnp.reshape(g, score.shape), jnp.reshape(h, score.shape)
    if loss.hessian != "first_order":
        h = jnp.maximum(h, loss.hessian_floor * jnp.broadcast_to(unit_of_h, (1, h.shape[1])))
    return Expansion(value, g, h)


def value_by_row(loss: Any, score: Float[Array, "n k"], rows: Rows) -> Float[Array, " n"]:
    """Return the loss of each row, of a unit of weight."""
    if rows.axis is not None and loss.needs_all_rows:
        return own_rows(value_by_row(loss, all_rows(score, rows.axis), gathered(rows)), rows.axis)
    return loss.value(score[:, 0] if loss.n_outputs is None else score, rows).astype(score.dtype)


def raw_derivatives(loss: Any, score: Scores, rows: Rows) -> tuple[Float[Array, " n"], Scores, Scores]:
    """Return what `derivatives_by_row` does, of scores [n] or [n k], with h as it comes, before the floor.

    Where the rows depend on each other and are divided, each device differentiates the loss of all: the same numbers as
    on one.
    """
    if rows.axis is not None and loss.needs_all_rows:
        every = raw_derivatives(loss, all_rows(score, rows.axis), gathered(rows))
        return own_rows(every, rows.axis)
    if loss.hessian == "first_order":
        value, g = loss.value_and_grad(score, rows)
        h = jnp.ones_like(score)
    elif loss.curvature is not None:
        value, g = loss.value_and_grad(score, rows)
        h = loss.curvature_of(score, rows)
        if h.ndim == 3:  # the leaves take all of it, the splits its diagonal
            whole = jnp.isfinite(h).all(axis=(1, 2))[:, None]
            h = jnp.where(whole, jnp.diagonal(h, axis1=1, axis2=2), jnp.nan)
    else:
        value, g, h = loss.hessian_diagonal(score, rows)
    return value.astype(score.dtype), g, h


@contextlib.contextmanager
def explained(loss: Any) -> Iterator[None]:
    """Say what to do where JAX has no derivative of the loss."""
    try:
        yield
    except (TypeError, ValueError, NotImplementedError) as error:
        if not lacks_derivative(error):
            raise
        name = loss.name or "the loss"
        way_out = (
            "first derivatives in reverse mode are needed: use lax.scan, or fori_loop with a number of steps that is "
            "known, instead of while_loop, and give a jax.custom_vjp to what has no derivative"
        )
        if loss.hessian != "first_order":
            way_out = (
                'use hessian="first_order", which does with the first derivative, or give a curvature; '
                + way_out
            )
        raise TypeError(f"loss: JAX cannot differentiate {name} as needed ({error}); {way_out}") from error


def lacks_derivative(error: Exception) -> bool:
    """Say whether JAX means by an error that a function has no derivative of the kind that was asked for."""
    return any(words in str(error) for words in _NO_DERIVATIVE)


def check_derivatives(
    loss: Any,
    value: Any,
    g: Any,
    h_raw: Any,
    weight: Any,
    base: Any = None,
    given: bool = False,
    y: Any = None,
) -> None:
    """Raise ValueError when a loss cannot be boosted with the Hessian it asks for.

    Parameters
    ----------
    loss : Loss, GroupLoss or BatchLoss
    value, g, h_raw : concrete arrays [n], [n] or [n k], like g
        Result of `raw_derivatives` at the base score.
    weight : concrete array [n]
        Rows of weight 0 are not looked at.
    base : concrete array [k], optional
        The base score, for the message.
    given : bool
        Whether the user chose it.
    y : concrete array or pytree of them, optional
        The targets, for the message.
    """
    name, at = loss.name or "the loss", _described(base, given)
    used = np.asarray(weight) > 0
    for label, array in (("value", value), ("first derivative", g), ("second derivative", h_raw)):
        array = np.asarray(array)
        bad = ~np.isfinite(array) & per_row(used, array)
        if bad.any():
            row, *output = (int(place) for place in np.argwhere(bad)[0])
            where = f"row {row}, output {output[0]}" if output else f"row {row}"
            of_base = _advice_on_base(base, given)
            of_loss = (
                f"; {_advice_on_size(y, used)}write the loss without overflow (exp or cosh of y), 0/0, inf - inf or a "
                "root or logarithm at 0, and check that y lies in its domain"
                + _advice(loss, label == "second derivative")
            )
            raise ValueError(
                f"loss: the {label} of {name} is not finite at the base score{at} ({where}: {array[row]})"
                + (of_loss if given or not of_base else "")
                + of_base
            )
    if loss.hessian == "first_order":
        return
    steep = np.abs(np.asarray(g))[used].max(axis=0, initial=0.0) > loss.hessian_floor
    flat = np.asarray(h_raw)[used].max(axis=0, initial=-np.inf) <= 0
    if np.any(steep & flat):
        output = f" by output {int(np.argmax(steep & flat))}" if np.ndim(flat) else ""
        raise ValueError(
            f"loss: the second derivative of {name}{output} is nowhere positive at the base score{at}, so Newton steps "
            "are undefined" + _advice(loss, True) + _advice_on_base(base, given)
        )


def _described(base: Any, given: bool) -> str:
    if base is None:
        return ""
    numbers = ", ".join(f"{number:.6g}" for number in np.ravel(base))
    return f" {'that was given' if given else 'that was found'}, [{numbers}]"


def _advice_on_size(y: Any, used: Any) -> str:
    """Say by what to divide a target whose squares are no floats."""
    if not (hasattr(y, "dtype") and np.issubdtype(y.dtype, np.floating)):
        return "scale y where it is large, "
    largest = float(np.abs(np.asarray(y)[used]).max())
    if not largest > np.finfo(y.dtype).max ** 0.5 / 16:
        return ""
    unit = 10.0 ** np.round(np.log10(largest))
    return (
        f"y reaches {largest:.3g}, and {y.dtype} holds no such square: divide y by {unit:.0e} and multiply predictions "
        "by it; "
    )


def _advice_on_base(base: Any, given: bool) -> str:
    if base is None:
        return ""
    if given:
        return "; give a base_score nearer to the target"
    for output, score in _run_off(base):
        return (
            f"; output {output} has run off to {score:.4g}, as the loss falls without end there (the scale or shape of "
            "a constant y does): give base_score, or bound that output in the loss"
        )
    return ""


def _run_off(base: Any) -> Iterator[tuple[int, float]]:
    """Find outputs that the search for the best constant took to the last place that floats, or squares, reach.

    There they are logarithms.
    """
    base = np.ravel(np.asarray(base))
    edge = np.log(np.finfo(base.dtype).max)
    for output, score in enumerate(base.tolist()):
        of_edge = abs(score) / edge
        if base.size > 1 and (0.9 < of_edge < 1.2 or 0.45 < of_edge < 0.6):
            yield output, score


def check_range(g: Any, h: Any, weight: Any, base: Any = None, given: bool = False) -> None:
    """Refuse derivatives whose sums are not finite; `base` and `given` are for the message, as above."""
    for label, values in (("gradients", g), ("second derivatives", h)):
        values, weight = np.asarray(values), np.asarray(weight)
        total, largest = (
            np.abs(values.astype(np.float64) * per_row(weight, values)).sum(),
            _largest_sum(values.dtype),
        )
        if total > largest:
            least = 10.0 ** np.ceil(np.log10(total / largest))
            of_base = _advice_on_base(base, given)
            of_size = f"; divide the loss, or y if they grow with it, by {least:.0e} or more"
            raise ValueError(
                f"y is out of the range of {values.dtype}: the {label} of the loss sum to {total:.3g}, above "
                f"{largest:.3g}" + (of_size if given or not of_base else "") + of_base
            )


def may_fail(loss: Any, value: Array, g: Array, h_raw: Array, weight: Float[Array, " n"]) -> Bool[Array, ""]:
    """Say whether the two checks above are worth making: always where one fails, seldom elsewhere.

    It runs where the rows are, in floats of their precision; the limits here are nearer by a half.
    """
    n = weight.size
    value, g, h_raw = value.reshape(n, 1), g.reshape(n, -1), h_raw.reshape(n, -1)
    most = _largest_sum(g.dtype) / 2 / g.size  # the largest times their number is no less than the sum
    small = jnp.maximum(jnp.abs(g), jnp.abs(h_raw)) * weight[:, None] <= most  # false for NaN too
    unsound = ~(jnp.isfinite(value) & small.all(axis=1, keepdims=True))
    steep, curved = jnp.abs(g) > loss.hessian_floor / 2, h_raw > loss.hessian_floor
    there = (weight > 0)[:, None]
    found = totals([(there & flags).astype(g.dtype) for flags in (unsound, steep, curved)]) > 0
    fails, (steep, curved) = found[0], found[1:].reshape(2, -1)
    return fails if loss.hessian == "first_order" else fails | jnp.any(steep & ~curved)


def any_of(flags: Bool[Array, "..."], axis: int | None = None) -> Bool[Array, "..."]:
    """Do what `jnp.any` does in a sum of floats: XLA compiles it several times faster for a CPU."""
    return jnp.sum(flags.astype(jnp.float32), axis=axis) > 0


def _largest_sum(dtype: Any) -> float:
    return float(np.finfo(dtype).max) / 100


def _advice(loss: Any, about_hessian: bool) -> str:
    if not about_hessian or loss.hessian == "first_order":
        return ""
    if loss.curvature is not None:
        return "; here it is the curvature that the loss brings: mend that, or leave it out"
    if loss.needs_all_rows:
        return f'; use {type(loss).__name__}(..., hessian="first_order"), or give a curvature'
    return '; use Loss(..., hessian="first_order"), with leaf=Quantile(level) for an absolute or pinball loss'
