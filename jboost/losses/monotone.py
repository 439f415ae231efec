"""A monotone function between the score and a loss, with numbers that are learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jboost._objective.domains import real_argument
from jboost._objective.loss import Loss
from jboost._runtime.parametrised import parametrised
from jboost._runtime.typing import is_traced
from jboost.losses.wrapping import check_wrapped, curvature_of


def monotone_link(log_slopes: Any, low: float | Array, high: float | Array) -> Partial:
    """Return a rising function of scores, a quadratic spline that maps `low` to `low` and `high` to `high`.

    Its slope is linear between knots that lie equally far apart from `low` to `high`, and constant beyond.

    Parameters
    ----------
    log_slopes : float [knots]
        Logarithms of the slopes at the knots, at least two; they are scaled for `high` to be mapped to `high`, so that
        equal ones make the identity. Whatever they are, the function rises: they may be learned without constraints.
    low, high : float
        In units of the score: the range of the target under a squared error, -5 and 5 for log odds.

    Returns
    -------
    jax.tree_util.Partial
        The function, a pytree with these numbers: scores of any shape -> scores of that shape.

    References
    ----------
    Ramsay (1988), "Monotone Regression Splines in Action", for splines whose slopes are positive by construction.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import losses
    >>> link = losses.monotone_link(jnp.array([-2.0, 0.0, 2.0]), 0.0, 1.0)
    >>> [round(float(link(score)), 3) for score in (-1.0, 0.0, 0.5, 1.0)]
    [-0.057, 0.0, 0.119, 1.0]
    """
    low, high = (real_argument(one, name, -np.inf, np.inf) for one, name in ((low, "low"), (high, "high")))
    if not is_traced(low, high) and not low < high:
        raise ValueError(f"low must be below high, got {low} and {high}")
    shape = np.shape(log_slopes)
    if len(shape) != 1 or shape[0] < 2:
        raise ValueError(f"log_slopes must have shape [knots], with two knots or more, got shape {shape}")
    if not is_traced(log_slopes):
        log_slopes = jnp.asarray(log_slopes, float)
        if not np.isfinite(np.asarray(log_slopes)).all():
            raise ValueError(f"log_slopes must be finite, got {log_slopes}")
    return Partial(_spline, log_slopes=log_slopes, low=low, high=high)


def with_link(loss: Loss, link: Any) -> Loss:
    """Return the loss of ``link(score)`` in place of the score.

    Trees add up on the scale of the score and errors count on that of the loss. As curvature it takes that of the loss
    times the square of the link's slope (Gauss-Newton), which is positive where the loss is convex.

    Parameters
    ----------
    loss : Loss
        With leaves by Newton steps.
    link : callable
        A rising JAX function of one score, `monotone_link(...)` or your own; with k outputs each goes through it.
        Arrays and floats in it, if it is a callable pytree, are operands of the fit.

    Returns
    -------
    Loss
        Its predictions are ``loss.inverse_link(link(score))``. A model keeps no link with numbers that may be learned:
        ``model.inverse_link`` then raises, and you apply the link to `jboost.predict` yourself.

    References
    ----------
    Weisberg and Welsh (1994), "Adapting for the missing link", for links that are estimated.

    Examples
    --------
    >>> import jax.numpy as jnp, jboost
    >>> loss = jboost.losses.with_link(jboost.losses.squared_error, jnp.exp)
    >>> float(loss(0.0, 3.0))
    2.0
    """
    check_wrapped(loss)
    if not callable(link):
        raise TypeError(f"link must be a function of a score, got {link!r}")
    is_fixed = not parametrised(link).numbers
    return Loss(
        Partial(_through, function=loss.function, link=link),
        n_outputs=loss.n_outputs,
        inverse_link=_Composed(loss.inverse_link, link) if is_fixed else no_link_is_kept,
        hessian="full" if loss.hessian == "full" else "diagonal",
        hessian_floor=loss.hessian_floor,
        leaf=loss.leaf,
        check_target=loss.check_target,
        name=f"{loss.name or 'loss'} with link",
        curvature=Partial(_curvature_through, curvature=curvature_of(loss), link=link),
        allow_nan=loss.allow_nan,
        adapt=loss.adapt and Partial(_adapted_through, adapt=loss.adapt),
    )


@dataclass(frozen=True)
class _Composed:
    outer: Any
    inner: Any

    def __call__(self, score: Array) -> Array:
        return self.outer(self.inner(score))


def no_link_is_kept(score: Array) -> Array:
    """Raise: a model whose link was learned has scores only."""
    raise RuntimeError(
        "the link of this loss has numbers, which a model does not keep: call link(jboost.predict(model, X)), or fit "
        "with dataclasses.replace(loss, inverse_link=...) and a function without arrays"
    )


def _through(score, y, function, link):
    return function(link(score), y)


def _curvature_through(score, y, curvature, link):
    linked, slope = jax.jvp(link, (score,), (jnp.ones_like(score),))
    found = curvature(linked, y)
    if found.ndim > score.ndim:
        return slope[:, None] * found * slope[None]
    return found * jnp.square(slope)


def _adapted_through(function, score, y, weight, adapt):
    link = function.keywords["link"]
    inner = adapt(function.keywords["function"], link(score), y, weight)
    return Partial(function.func, function=inner, link=link)


def _spline(
    score: Float[Array, "*n"], log_slopes: Float[Array, " m"], low: Any, high: Any
) -> Float[Array, "*n"]:
    score = (
        jnp.asarray(score, float)
        if not jnp.issubdtype(jnp.result_type(score), jnp.floating)
        else jnp.asarray(score)
    )
    log_slopes, low, high = (jnp.asarray(one, score.dtype) for one in (log_slopes, low, high))
    width = (high - low) / (log_slopes.size - 1)
    slopes = jnp.exp(log_slopes - jax.lax.stop_gradient(jnp.max(log_slopes)))
    slopes = slopes / jnp.mean((slopes[:-1] + slopes[1:]) / 2)
    value = low + slopes[0] * jnp.minimum(score - low, 0) + slopes[-1] * jnp.maximum(score - high, 0)
    for j in range(log_slopes.size - 1):  # knots are few, and scores many
        part = jnp.minimum(jnp.maximum((score - low) / width - j, 0), 1)
        value = value + width * (slopes[j] * part + (slopes[j + 1] - slopes[j]) * jnp.square(part) / 2)
    return value
