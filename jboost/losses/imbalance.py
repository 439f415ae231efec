"""Losses of classes of which some are rare or easy: focal losses and weights by the effective number of rows."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._objective.domains import check_binary, check_label, real_argument, with_number
from jboost._objective.links import sigmoid, softmax_of_scores
from jboost._objective.loss import Loss
from jboost._runtime.arguments import whole_number
from jboost._runtime.typing import is_traced, of_floats
from jboost.losses.special import moment
from jboost.losses.wrapping import check_wrapped, curvature_of

LARGEST_RATE = 100.0  # -log(beta), from which on one row is as good as many


def focal(gamma: float | jax.Array = 2.0) -> Loss:
    """Return the focal loss of log odds: the log loss times (1 - p)^gamma, p the probability of what y is, 0 or 1.

    Rows that are predicted well count less, the more so the larger gamma is; at 0 it is the log loss. As curvature it
    takes |g| p (1 + gamma), which is positive where the loss is not convex, and of the log loss the second derivative.
    The loss is not proper: for gamma above 0 its probabilities lie too near 1/2.

    Parameters
    ----------
    gamma : float, default 2.0
        At least 0.

    References
    ----------
    Lin et al. (2017), "Focal Loss for Dense Object Detection", eq. 4. Charoenphakdee et al. (2021), "On Focal Loss for
    Class-Posterior Probability Estimation", for what its probabilities are.

    Examples
    --------
    >>> from jboost import losses
    >>> [round(float(losses.focal(gamma)(0.0, 1)), 4) for gamma in (0.0, 2.0)]
    [0.6931, 0.1733]
    """
    gamma = real_argument(gamma, "gamma", 0, np.inf, ends=(0,))
    return Loss(
        Partial(_focal, gamma=gamma),
        inverse_link=sigmoid,
        check_target=check_binary,
        name=with_number("focal", gamma),
        curvature=Partial(_focal_curvature, gamma=gamma),
    )


def softmax_focal(n_classes: int, gamma: float | jax.Array = 2.0) -> Loss:
    """Return the focal loss of `n_classes` scores; y [n] holds class numbers from 0.

    Parameters
    ----------
    n_classes : int
        At least 2.
    gamma : float, default 2.0
        As for `focal`.

    References
    ----------
    As for `focal`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import losses
    >>> round(float(losses.softmax_focal(4, 1.0)(jnp.zeros(4), 2)), 4)
    1.0397
    """
    n_classes, gamma = (
        whole_number(n_classes, "n_classes", 2),
        real_argument(gamma, "gamma", 0, np.inf, ends=(0,)),
    )
    return Loss(
        Partial(_softmax_focal, gamma=gamma),
        n_outputs=n_classes,
        inverse_link=softmax_of_scores,
        check_target=functools.partial(check_label, n_classes=n_classes),
        name=with_number(f"softmax_focal({n_classes})", gamma),
        curvature=Partial(_softmax_focal_curvature, gamma=gamma),
    )


def class_balanced(loss: Loss, counts: Any, beta: float | jax.Array = 0.999) -> Loss:
    r"""Return a loss of classes times a weight for each, one over the effective number of its rows.

    That is :math:`(1 - \beta^n) / (1 - \beta)` of n rows: each new one tells less than the one before. The weights are
    divided by their mean over the classes. 0 weighs all classes alike, and 1 by one over the number of their rows.

    Parameters
    ----------
    loss : Loss
        Of one label a row: `logistic`, `focal`, `softmax(k)`, `softmax_focal(k)` or your own.
    counts : int or float [classes]
        Rows of each class in training, at least 1: ``numpy.bincount(y)``.
    beta : float, default 0.999
        0 to 1.

    References
    ----------
    Cui et al. (2019), "Class-Balanced Loss Based on Effective Number of Samples", eq. 6 and 10.

    Examples
    --------
    >>> from jboost import losses
    >>> loss = losses.class_balanced(losses.logistic, counts=[900, 100], beta=1.0)
    >>> [round(float(loss(0.0, y) / losses.logistic(0.0, y)), 2) for y in (0, 1)]
    [0.2, 1.8]
    """
    check_wrapped(loss)
    counts, rate = _counts_argument(counts, loss.n_outputs), _rate_argument(beta)
    weigh = {"counts": counts, "rate": rate}
    if loss.adapt is not None:
        raise ValueError(f"loss must not adapt, for its numbers would not be weighted, got {loss.name}")
    plain = loss.curvature is None and loss.hessian != "first_order"
    return Loss(
        Partial(_balanced, function=loss.function, **weigh),
        n_outputs=loss.n_outputs,
        inverse_link=loss.inverse_link,
        hessian="diagonal" if loss.hessian == "first_order" else loss.hessian,
        hessian_floor=loss.hessian_floor,
        leaf=loss.leaf,
        check_target=Partial(_check_classes, n_classes=int(np.shape(counts)[0]), inner=loss.check_target),
        name=with_number(f"class_balanced {loss.name or 'loss'}", beta),
        curvature=None if plain else Partial(_balanced, function=curvature_of(loss), **weigh),
        constant=loss.constant and Partial(_constant_of_balanced, constant=loss.constant, **weigh),
        diagonal=loss.diagonal and Partial(_balanced, function=loss.diagonal, **weigh),
        majorant=loss.majorant,
    )


def _check_classes(y: Any, *, n_classes: int, inner: Any) -> None:
    """Raise unless y holds numbers of classes, or probabilities of class 1 of two."""
    if inner is not None:
        inner(y)
    known = np.asarray(y)
    whole = n_classes == 2 or not (known != np.round(known)).any()
    if known.ndim != 1 or not whole or known.min() < 0 or known.max() > n_classes - 1:
        raise ValueError(
            f"y must hold the numbers of {n_classes} classes, for which class_balanced has counts, got values from "
            f"{known.min():g} to {known.max():g}"
        )


def _rate_argument(beta: Any) -> Any:
    """Return -log(beta), in which nothing is lost near 1."""
    if is_traced(beta):
        return jnp.minimum(-jnp.log(jnp.maximum(beta, jnp.finfo(jnp.result_type(beta)).tiny)), LARGEST_RATE)
    beta = real_argument(beta, "beta", 0, 1, ends=(0, 1))
    return float(-np.log(max(beta, np.exp(-LARGEST_RATE))))


def _counts_argument(counts: Any, n_outputs: int | None) -> Any:
    if is_traced(counts):
        return counts
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.dtype.kind not in "iuf" or counts.size < 2:
        raise ValueError(
            f"counts must hold the rows of each class, [classes], got shape {counts.shape} of {counts.dtype}"
        )
    if n_outputs not in (None, counts.size):
        raise ValueError(f"counts must have one entry for each of {n_outputs} classes, got {counts.size}")
    if not (np.isfinite(counts) & (counts >= 1)).all():
        raise ValueError(f"counts must be at least 1, as a class without rows has no weight, got {counts}")
    return counts.astype(float)


# L = -(1 - p)^gamma log(p), p = sigmoid(z), z = score if y = 1, -score if y = 0
@of_floats
def _focal(score, y, gamma):
    z = (2 * y - 1) * score
    return jnp.sum(jnp.exp(-gamma * jax.nn.softplus(z)) * jax.nn.softplus(-z))


@of_floats
def _focal_curvature(score, y, gamma):
    return (1 + gamma) * jnp.abs(jax.grad(_focal)(score, y, gamma)) * jax.nn.sigmoid((2 * y - 1) * score)


# L = -(1 - p)^gamma log(p), p = softmax(score)_y
def _softmax_focal(score, y, gamma):
    is_y = _is_label(score.size, y)
    total = jax.nn.logsumexp(score)
    others = jax.nn.logsumexp(jnp.where(is_y, -jnp.inf, score))
    return jnp.exp(gamma * (others - total)) * (total - jnp.sum(jnp.where(is_y, score, 0)))


def _softmax_focal_curvature(score, y, gamma):
    p = jax.nn.softmax(score)
    sure = jnp.where(_is_label(score.size, y), p, 1 - p)
    return (1 + gamma) * jnp.abs(jax.grad(_softmax_focal)(score, y, gamma)) * sure


def _is_label(n_classes: int, y: Any) -> jax.Array:
    return jnp.arange(n_classes, dtype=float) == jnp.asarray(y, float)


def _balanced(score, y, function, counts, rate):
    return _weight_of_label(y, counts, rate) * function(score, y)


def _constant_of_balanced(y, mean, constant, counts, rate):
    weight = jax.vmap(_weight_of_label, (0, None, None))(y, counts, rate)
    of_all = mean(weight)

    def balanced_mean(values):
        values = jnp.asarray(values, weight.dtype)
        return mean(weight.reshape(weight.shape + (1,) * (values.ndim - 1)) * values) / of_all

    return constant(y, balanced_mean)


def _weight_of_label(y, counts, rate):
    """Return the weight of a class; of a probability of class 1 of two, that of both classes together."""
    counts, rate = (jnp.asarray(one, jnp.result_type(float)) for one in (counts, rate))
    # (1 - beta) / (1 - beta^n) with exp(-rate) for beta, which has a limit at a rate of 0
    weights = moment(0, -rate) / (counts * moment(0, -rate * counts))
    y, weights = jnp.asarray(y, weights.dtype), weights / jnp.mean(weights)
    if counts.size == 2:
        return weights[0] + y * (weights[1] - weights[0])
    return jnp.sum(jnp.where(_is_label(counts.size, y), weights, 0))
