"""Distributions of labels: of classes without an order, and with one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost import losses
from jboost.distributions.distribution import Distribution
from jboost.distributions.inverting import smallest_count


def categorical(n_classes: int) -> Distribution:
    """Return the distribution of labels 0 to `n_classes` - 1: scores [log probabilities up to a constant].

    Its loss is `jboost.losses.softmax`. The mean of a `Predictive` holds the probabilities.

    Parameters
    ----------
    n_classes : int
        At least 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import distributions
    >>> distributions.categorical(4)(jnp.zeros((1, 4))).mean().tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    loss = losses.softmax(n_classes)
    return Distribution(
        f"categorical({n_classes})",
        n_classes,
        log_prob=Partial(_categorical_log_prob, loss=loss.function),
        parameters=_categorical_parameters,
        mean=jax.nn.softmax,
        sample=_categorical_sample,
        fisher=_categorical_fisher,
        constant=loss.constant,
        check_target=loss.check_target,
        is_discrete=True,
    )


def _categorical_log_prob(score: Any, y: Any, loss: Any) -> Any:
    return -loss(score, y)


def _categorical_parameters(score: Any) -> Any:
    return {"probs": jax.nn.softmax(score)}


def _categorical_sample(score: Any, key: Any) -> Any:
    return jnp.asarray(jax.random.categorical(key, score), score.dtype)


def _categorical_fisher(score: Any) -> Any:
    p = jax.nn.softmax(score)
    return jnp.diag(p) - p[:, None] * p[None]


def ordinal(n_classes: int) -> Distribution:
    """Return the distribution of ordered labels 0 to `n_classes` - 1 by thresholds.

    A score holds the log odds of label 0, and the logarithms of how much those of "at most j" grow from label to label:
    each row has thresholds of its own, and they stay in order.

    Parameters
    ----------
    n_classes : int
        At least 2.

    References
    ----------
    McCullagh (1980), "Regression Models for Ordinal Data".

    Examples
    --------
    >>> import numpy as np
    >>> from jboost import distributions
    >>> three = distributions.ordinal(3)(np.array([[-1.0, np.log(2.0)]]))
    >>> three.parameters()["probs"].round(3).tolist()
    [[0.269, 0.462, 0.269]]
    """
    check = losses.softmax(n_classes).check_target
    support = np.arange(float(n_classes))
    return Distribution(
        f"ordinal({n_classes})",
        n_classes - 1,
        log_prob=_ordinal_log_prob,
        parameters=_ordinal_parameters,
        mean=_ordinal_mean,
        variance=_ordinal_variance,
        cdf=_ordinal_cdf,
        quantile=Partial(smallest_count, cdf=_ordinal_cdf),
        fisher=Partial(_fisher_over, support=support),
        check_target=check,
        is_discrete=True,
    )


def _thresholds(score: Any) -> Any:
    return jnp.cumsum(jnp.concatenate([score[:1], jnp.exp(score[1:])]))


# With sigma(a) - sigma(b) = sigma(a) sigma(-b) (1 - exp(b - a))
def _log_probs(score: Any) -> Any:
    threshold = _thresholds(score)
    of_upper = jnp.append(jax.nn.log_sigmoid(threshold), 0.0)
    of_lower = jnp.append(jnp.zeros_like(threshold[:1]), jax.nn.log_sigmoid(-threshold))
    between = jnp.log(-jnp.expm1(-jnp.exp(score[1:])))
    none = jnp.zeros_like(threshold[:1])
    return of_upper + of_lower + jnp.concatenate([none, between, none])


def _ordinal_log_prob(score: Any, y: Any) -> Any:
    is_y = jnp.arange(score.size + 1, dtype=score.dtype) == y
    return jnp.sum(jnp.where(is_y, _log_probs(score), 0))


def _ordinal_parameters(score: Any) -> Any:
    return {"probs": jnp.exp(_log_probs(score)), "thresholds": _thresholds(score)}


def _ordinal_mean(score: Any) -> Any:
    return jnp.sum(jnp.exp(_log_probs(score)) * jnp.arange(score.size + 1, dtype=score.dtype))


def _ordinal_variance(score: Any) -> Any:
    off = jnp.arange(score.size + 1, dtype=score.dtype) - _ordinal_mean(score)
    return jnp.sum(jnp.exp(_log_probs(score)) * jnp.square(off))


def _ordinal_cdf(score: Any, y: Any) -> Any:
    number = jnp.floor(y)
    below = jnp.arange(score.size + 1, dtype=score.dtype) <= number
    return jnp.where(number >= score.size, 1, jnp.sum(jnp.where(below, jnp.exp(_log_probs(score)), 0)))


def _fisher_over(score: Any, support: Any) -> Any:
    y = jnp.asarray(support, score.dtype)
    slope = jax.vmap(jax.grad(_ordinal_log_prob), (None, 0))(score, y)
    p = jnp.exp(_log_probs(score))
    return jnp.einsum("y,yj,yl->jl", p, slope, slope)
