"""The losses that peers have too: of numbers, counts and amounts, and classes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._fixed_point.quantile import weighted_quantile
from jboost._objective.domains import (
    check_binary,
    check_label,
    check_non_negative,
    check_positive,
    check_probability,
    check_real,
    real_argument,
    with_number,
)
from jboost._objective.leaf_rules import Quantile
from jboost._objective.links import exp, sigmoid, sigmoid_of_double, softmax_of_scores
from jboost._objective.loss import Loss
from jboost._runtime.arguments import whole_number
from jboost._runtime.typing import of_floats
from jboost.losses.special import softplus
from jboost.losses.wrapping import ones

FEW = 6  # classes up to which sums over them are spelled out: a program grows with it, and so does its compilation


# --- Best constants: the formulas for them, constant(y, mean) -----------------------------------------------


def _mean(y, mean):
    return mean(y)


def _log_of_mean(y, mean):
    return _log(mean(y))


def _log_odds(y, mean):
    y = jnp.asarray(y, float)
    of_0, of_1 = mean(jnp.stack([1 - y, y], axis=1))  # 1 - mean(y) would cancel where nearly all are 1
    return _log(of_1) - _log(of_0)


def _half_log_odds(y, mean):  # of y 0 or 1; between them there is no formula
    return _log_odds(y, mean) / 2


def _log_shares(y, mean, n_classes):
    share = mean(jnp.asarray(y, float)[:, None] == jnp.arange(n_classes, dtype=float)[None])
    score, occurs = _log(share), share > 0
    # Which number is added to all scores does not matter: small ones are the most precise.
    return score - jnp.sum(jnp.where(occurs, score, 0)) / jnp.sum(occurs, dtype=score.dtype)


def _log(mean):
    """Return log(mean), and of 0, where the best constant lies at infinity, one whose gradient is lost in rounding.

    The derivative is that by the mean also there, 1 / exp(log).
    """
    least = jnp.finfo(mean.dtype).eps ** 2
    return jnp.log(mean + jnp.where(mean > 0, 0, least))


# --- Majorants: c(a) with L(s + u) - L(s) <= g u + c h u^2 wherever |u| <= a ---------------------------------


def _of_quadratic(a):
    return jnp.full_like(a, 0.5)


# Where the third derivative is nowhere larger than the second, h grows at most by exp(|u|): c = (exp(a) - a - 1) / a^2.
# Bach (2010), "Self-concordant analysis for logistic regression", proposition 1
def of_exponential(a):
    """Return c(a) of a loss whose third derivative is nowhere larger than the second."""
    a = jnp.maximum(a, 1e-2)
    return (jnp.expm1(a) - a) / jnp.square(a)


# Scores move apart by up to 2 a, and u' H u, the variance of u under p, is at most 2 sum_j p_j (1 - p_j) u_j^2
def _of_softmax(a):
    return 2 * of_exponential(2 * a)


# --- Regression ---------------------------------------------------------------------------------------------


# L = 1/2 (score - y)^2;  g = score - y,  h = 1
@of_floats
def _squared_error(score, y):
    return 0.5 * jnp.sum(jnp.square(score - y))


squared_error = Loss(
    _squared_error,
    check_target=check_real,
    name="squared_error",
    constant=_mean,
    diagonal=ones,
    majorant=_of_quadratic,
    homogeneous=True,
)


def _absolute(residual):
    return residual * jnp.sign(residual)  # the derivative at 0 is 0, between both sides; that of jnp.abs is 1


# L = |score - y|;  g = sign(score - y), 0 at 0;  leaves hold medians (Friedman 2001, Algorithm 3)
@of_floats
def _absolute_error(score, y):
    return jnp.sum(_absolute(score - y))


absolute_error = Loss(
    _absolute_error,
    hessian="first_order",
    leaf=Quantile(0.5),
    check_target=check_real,
    name="absolute_error",
)


# L = level r if r > 0, (level - 1) r if r < 0, r = y - score;  g = -level or 1 - level, their mean at r = 0
@of_floats
def _quantile(score, y, tilt):  # level - 1/2
    residual = y - score
    return jnp.sum(0.5 * _absolute(residual) + tilt * residual)


def quantile(level: float) -> Loss:
    """Return the pinball loss, minimised by the `level` quantile of y; twice it at 0.5 is the absolute error.

    Parameters
    ----------
    level : float
        Between 0 and 1 exclusive.

    References
    ----------
    Koenker and Bassett (1978), "Regression Quantiles", eq. 3.1.

    Examples
    --------
    >>> from jboost import losses
    >>> round(float(losses.quantile(0.9)(0.0, 1.0)), 3)
    0.9
    """
    level = real_argument(level, "level", 0, 1)
    return Loss(
        Partial(_quantile, tilt=level - 0.5),
        hessian="first_order",
        leaf=Quantile(level),
        check_target=check_real,
        name=with_number("quantile", level),
    )


# L = r^2 / 2 if |r| <= delta, delta (|r| - delta / 2) beyond, with r = score - y;  g = r clipped to +-delta
@of_floats
def _huber(score, y, delta):
    return jnp.sum(linear_beyond(delta, jnp.abs(score - y)))


def linear_beyond(delta, size):
    """Return the Huber loss of the size of a residual."""
    return jnp.where(size <= delta, 0.5 * jnp.square(size), delta * (size - 0.5 * delta))


def huber(delta: float | None = None, level: float = 0.9, centred: bool = True) -> Loss:
    """Return the Huber loss: the halved square of residuals up to `delta`, linear beyond.

    h = 1, the second derivative of the square, for the true one is 0 beyond `delta` and a leaf of outliers
    would divide by nothing. With h = 1 the quadratic model lies nowhere below the loss: no step raises it.

    Parameters
    ----------
    delta : float, optional
        Positive, in units of y. Without it, each round takes a quantile, output by output, of how far the residuals
        before it lie from their median: whatever the units of y, those beyond are taken for outliers.
    level : float, default 0.9
        Of that quantile, between 0 and 1 exclusive.
    centred : bool, default True
        Whether distances are those from the median of the residuals, or, as in M_TreeBoost, the sizes of the residuals.

    References
    ----------
    Huber (1964), "Robust Estimation of a Location Parameter". Boehning and Lindsay (1988), "Monotonicity of
    quadratic-approximation algorithms", for the bound on h. Friedman (2001), "Greedy Function Approximation", Algorithm
    4 (M_TreeBoost), for `level`.

    Examples
    --------
    >>> from jboost import losses
    >>> float(losses.huber(1.0)(0.0, 3.0))
    2.5
    """
    return _robust(_huber, "huber", delta, level, centred)


# L = delta^2 (q - 1) = r^2 / (1 + q), q = sqrt(1 + (r / delta)^2), r = score - y;  g = r / q
@of_floats
def _pseudo_huber(score, y, delta):
    residual = score - y
    return jnp.sum(jnp.square(residual) / (1 + jnp.sqrt(1 + jnp.square(residual / delta))))


def pseudo_huber(delta: float | None = None, level: float = 0.9) -> Loss:
    """Return the pseudo-Huber loss: a Huber loss with all derivatives; h = 1 as there, for the same reason.

    Parameters
    ----------
    delta : float, optional
        Positive, in units of y; the slope for large residuals. Without it as for `huber`.
    level : float, default 0.9
        As there.

    References
    ----------
    Charbonnier et al. (1997), "Deterministic Edge-Preserving Regularization in Computed Imaging", section V.
    Hartley and Zisserman (2003), "Multiple View Geometry in Computer Vision", appendix 6.8.

    Examples
    --------
    >>> from jboost import losses
    >>> round(float(losses.pseudo_huber(1.0)(0.0, 3.0)), 4)
    2.1623
    """
    return _robust(_pseudo_huber, "pseudo_huber", delta, level, centred=True)


def _robust(
    function: Callable[..., jax.Array], name: str, delta: float | None, level: float, centred: bool
) -> Loss:
    level = real_argument(level, "level", 0, 1)
    if not isinstance(centred, bool):
        raise TypeError(f"centred must be True or False, got {centred!r}")
    adapt = with_delta_of_residuals if centred else with_delta_of_sizes
    follows = delta is None
    delta = 1.0 if delta is None else real_argument(delta, "delta", 0, np.inf)
    return Loss(
        Partial(function, delta=delta),
        hessian="first_order",
        check_target=check_real,
        name=name if follows else with_number(name, delta),
        adapt=Partial(adapt, level=level) if follows else None,
        homogeneous=follows,
    )


def with_delta_of_residuals(function, score, y, weight, level):
    """Return the loss with the delta that the residuals ask for, output by output."""
    return _with_delta(function, score, y, weight, lambda residual: spread(residual, weight, level))


def with_delta_of_sizes(function, score, y, weight, level):
    """Return the loss with the quantile of the sizes of the residuals for its delta (M_TreeBoost)."""
    return _with_delta(
        function, score, y, weight, lambda residual: _quantile_of_sizes(jnp.abs(residual), weight, level)
    )


def _with_delta(function, score, y, weight, of_column):
    residual = (y - score).reshape(weight.size, -1)
    delta = [of_column(column) for column in residual.T]
    return Partial(function.func, **function.keywords | {"delta": jnp.stack(delta).reshape(score.shape[1:])})


def spread(residual, weight, level):
    """Return the quantile of the distances of residuals from their median."""
    return _quantile_of_sizes(jnp.abs(residual - weighted_quantile(residual, weight, 0.5)), weight, level)


def _quantile_of_sizes(size, weight, level):
    delta = weighted_quantile(size, weight, level)
    delta = jnp.where(delta > 0, delta, jnp.max(jnp.where(weight > 0, size, 0)))  # where most fit exactly
    return jnp.where(delta > 0, delta, 1)


# --- Counts and amounts: score = log mean -------------------------------------------------------------------


# L = exp(score) - y score;  g = mean - y,  h = mean.  Half the unit deviance, less terms of y alone
@of_floats
def _poisson(score, y):
    return jnp.sum(jnp.exp(score) - y * score)


def _mean_of_counts(score, y):
    return jnp.exp(score)


poisson = Loss(
    _poisson,
    inverse_link=exp,
    check_target=check_non_negative,
    name="poisson",
    constant=_log_of_mean,
    diagonal=_mean_of_counts,
    majorant=of_exponential,
)


# L = score + y exp(-score);  g = 1 - y / mean,  h = y / mean.  Half the unit deviance, less terms of y alone
@of_floats
def _gamma(score, y):
    return jnp.sum(score + y * jnp.exp(-score))


@of_floats
def _share_of_mean(score, y):
    return y * jnp.exp(-score)


gamma = Loss(
    _gamma,
    inverse_link=exp,
    check_target=check_positive,
    name="gamma",
    constant=_log_of_mean,
    diagonal=_share_of_mean,
    majorant=of_exponential,
)


# L = mean^(2 - p) / (2 - p) - y mean^(1 - p) / (1 - p);  g = mean^(2 - p) - y mean^(1 - p), p the power
@of_floats
def _tweedie(score, y, power):
    zero = y == 0  # the second term vanishes; as 0 * inf it would be NaN
    second = jnp.where(zero, 0, y * jnp.exp((1 - power) * jnp.where(zero, 0, score)) / (1 - power))
    return jnp.sum(jnp.exp((2 - power) * score) / (2 - power) - second)


@of_floats
def _tweedie_diagonal(score, y, power):
    zero = y == 0
    second = jnp.where(zero, 0, y * jnp.exp((1 - power) * jnp.where(zero, 0, score)) * (1 - power))
    return jnp.exp((2 - power) * score) * (2 - power) - second


def tweedie(power: float) -> Loss:
    """Return half the Tweedie deviance, without terms of y alone, for non-negative y with a mass at zero.

    Parameters
    ----------
    power : float
        Variance = mean^power; between 1 and 2 exclusive, where the distribution is a Poisson sum of gammas.

    References
    ----------
    Jorgensen (1987), "Exponential Dispersion Models". Yang, Qian and Zou (2018), "Insurance Premium
    Prediction via Gradient Tree-Boosted Tweedie Compound Poisson Models", eq. 5.

    Examples
    --------
    >>> from jboost import losses
    >>> float(losses.tweedie(1.5)(0.0, 1.0))
    4.0
    """
    advice = " (use squared_error for 0, poisson for 1, gamma for 2)"
    power = real_argument(power, "power", 1, 2, advice)
    return Loss(
        Partial(_tweedie, power=power),
        inverse_link=exp,
        check_target=check_non_negative,
        name=with_number("tweedie", power),
        constant=_log_of_mean,
        diagonal=Partial(_tweedie_diagonal, power=power),
        majorant=of_exponential,
    )


# --- Classes ------------------------------------------------------------------------------------------------


# L = log(1 + exp(score)) - y score, score the log odds of y = 1;  g = p - y,  h = p (1 - p)
@of_floats
def _logistic(score, y):
    return jnp.sum(softplus(score) - y * score)


def _logistic_diagonal(score, y):
    p = jax.nn.sigmoid(score)
    return p * (1 - p)


logistic = Loss(
    _logistic,
    inverse_link=sigmoid,
    check_target=check_probability,
    name="logistic",
    constant=_log_odds,
    diagonal=_logistic_diagonal,
    majorant=of_exponential,
)


# L = exp(-z score), z = 2 y - 1, score half the log odds;  g = -z L,  h = L.  Overflows beyond |score| = 88
# in float32. AdaBoost: Friedman, Hastie and Tibshirani (2000), "Additive Logistic Regression", eq. 9
@of_floats
def _exponential(score, y):
    return jnp.sum(jnp.exp((1 - 2 * y) * score))


@of_floats
def _exponential_diagonal(score, y):
    return jnp.square(1 - 2 * y) * jnp.exp((1 - 2 * y) * score)


exponential = Loss(
    _exponential,
    inverse_link=sigmoid_of_double,
    check_target=check_binary,
    name="exponential",
    constant=_half_log_odds,
    diagonal=_exponential_diagonal,
    majorant=of_exponential,
)


# L = log sum_j exp(score_j) - score_y;  g_j = p_j - [j = y],  H_jl = p_j ([j = l] - p_l)
def _softmax(score, y):
    label = jnp.asarray(y, float)  # whatever its type: one that is narrow might not hold every class
    if score.size > FEW:
        is_y = jnp.arange(score.size, dtype=float) == label
        return jax.nn.logsumexp(score) - jnp.sum(jnp.where(is_y, score, 0))
    # One by one: XLA leaves sums of short rows to a library for CPUs, which takes several times as long.
    classes = list(score)
    top = jax.lax.stop_gradient(functools.reduce(jnp.maximum, classes))
    # Not score[y]: its derivative is a slow scatter.
    of_y = functools.reduce(jnp.add, [jnp.where(label == j, one, 0) for j, one in enumerate(classes)])
    return jnp.log(functools.reduce(jnp.add, [jnp.exp(one - top) for one in classes])) + top - of_y


def _softmax_diagonal(score, y):
    p = jax.nn.softmax(score)
    return p * (1 - p)


def softmax(n_classes: int) -> Loss:
    """Return the multiclass log loss (cross entropy) of `n_classes` scores; y [n] holds class numbers from 0.

    Parameters
    ----------
    n_classes : int
        At least 2.

    References
    ----------
    Friedman, Hastie and Tibshirani (2000), "Additive Logistic Regression", section 5.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import losses
    >>> round(float(losses.softmax(4)(jnp.zeros(4), 2)), 4)
    1.3863
    """
    n_classes = whole_number(n_classes, "n_classes", 2)
    return Loss(
        _softmax,
        n_outputs=n_classes,
        inverse_link=softmax_of_scores,
        check_target=functools.partial(check_label, n_classes=n_classes),
        name=f"softmax({n_classes})",
        constant=Partial(_log_shares, n_classes=n_classes),
        diagonal=_softmax_diagonal if n_classes > FEW else None,
        majorant=_of_softmax,
    )
