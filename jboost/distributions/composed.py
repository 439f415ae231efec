"""Distributions made of others: mixtures, zeros of their own, targets of which only a bound is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._fixed_point.quantile import weighted_quantile
from jboost._objective.base_score import best_constant
from jboost._objective.domains import check_binary, check_non_negative
from jboost._objective.rows import Rows
from jboost._runtime.typing import over_devices
from jboost.distributions.beginning import best_constant_near
from jboost.distributions.distribution import Distribution
from jboost.distributions.fisher import fisher_matrix
from jboost.distributions.inverting import bisect, inverse, smallest_count
from jboost.distributions.sampling import can_sample, sample_of_row


def check_base(base: Any, name: str, *needed: str) -> None:
    """Raise unless the distribution to build on is one, and has these functions."""
    if not isinstance(base, Distribution):
        raise TypeError(f"{name} needs a Distribution, such as jboost.distributions.normal, got {base!r}")
    for one in needed:
        if getattr(base, one) is None:
            raise ValueError(f"{name} needs a distribution with a {one} function, got {base.name}")


def given(base: Distribution, function: Any, *needed: str) -> Any:
    """Return a function with the base in it, or None where the base lacks what it needs."""
    lacks = [one for one in needed if getattr(base, one) is None]
    return None if lacks else Partial(function, base=base)


# --- Mixtures: scores [k log weights, k scores of the base one after the other] --------------------------------


def mixture(base: Distribution, n_components: int) -> Distribution:
    """Return a mixture of distributions of one family.

    A score holds a logarithm of a weight for each component, up to a constant, and the scores of the components. A fit
    starts from components that share the targets out by their quantiles.

    Parameters
    ----------
    base : Distribution
        Of scalar targets.
    n_components : int
        At least 2.

    Returns
    -------
    Distribution
        Its Fisher matrix is that of targets whose component is seen: no less than that of targets alone.

    References
    ----------
    Bishop (1994), "Mixture Density Networks". Dempster, Laird and Rubin (1977), "Maximum Likelihood from Incomplete
    Data via the EM Algorithm", for steps by what is known of complete data.

    Examples
    --------
    >>> import numpy as np
    >>> from jboost import distributions
    >>> two = distributions.mixture(distributions.normal, 2)
    >>> two(np.array([[0.0, 0.0, -3.0, 0.0, 3.0, 0.0]])).quantile([0.25, 0.75]).round(2).tolist()
    [[-3.0, 3.0]]
    """
    check_base(base, "mixture")
    if type(n_components) is not int or n_components < 2:
        raise ValueError(f"n_components must be an integer of at least 2, got {n_components!r}")
    return Distribution(
        f"mixture({base.name}, {n_components})",
        n_components * (1 + base.n_parameters),
        log_prob=Partial(_mixture_log_prob, base=base),
        parameters=Partial(_mixture_parameters, base=base),
        mean=given(base, _mixture_mean, "mean"),
        variance=given(base, _mixture_variance, "mean", "variance"),
        cdf=given(base, _mixture_cdf, "cdf"),
        log_sf=given(base, _mixture_log_sf, "log_sf"),
        quantile=given(base, _mixture_quantile, "quantile", "cdf"),
        sample=Partial(_mixture_sample, base=base) if can_sample(base) else None,
        fisher=Partial(_mixture_fisher, base=base),
        start=Partial(_shared_out, base=base, n=n_components),
        check_target=base.check_target,
        is_discrete=base.is_discrete,
    )


def _components(score: Any, base: Distribution) -> tuple[Any, Any]:
    """Return the logarithms of the weights [m] and the scores of the components [m k]."""
    n = score.size // (1 + base.n_parameters)
    return jax.nn.log_softmax(score[:n]), score[n:].reshape(n, base.n_parameters)


def _mixture_log_prob(score: Any, y: Any, base: Distribution) -> Any:
    log_weight, scores = _components(score, base)
    return jax.nn.logsumexp(log_weight + jax.vmap(base.log_prob, (0, None))(scores, y))


def _mixture_parameters(score: Any, base: Distribution) -> Any:
    log_weight, scores = _components(score, base)
    return {"probs": jnp.exp(log_weight)} | jax.vmap(base.parameters)(scores)


def _mixture_mean(score: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    return jnp.sum(jnp.exp(log_weight) * jax.vmap(base.mean)(scores))


def _mixture_variance(score: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    off = jax.vmap(base.mean)(scores) - _mixture_mean(score, base)
    return jnp.sum(jnp.exp(log_weight) * (jax.vmap(base.variance)(scores) + jnp.square(off)))


def _mixture_cdf(score: Any, y: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    return jnp.sum(jnp.exp(log_weight) * jax.vmap(base.cdf, (0, None))(scores, y))


def _mixture_log_sf(score: Any, y: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    return jax.nn.logsumexp(log_weight + jax.vmap(base.log_sf, (0, None))(scores, y))


def _mixture_quantile(score: Any, q: Any, base: Any) -> Any:
    cdf = Partial(_mixture_cdf, base=base)
    if base.is_discrete:
        return smallest_count(score, q, cdf)
    return inverse(score, q, cdf, Partial(_between_components, base=base))


def _between_components(cdf: Any, score: Any, q: Any, base: Any) -> Any:
    _, scores = _components(score, base)
    ends = jax.vmap(base.quantile, (0, None))(scores, q)
    return bisect(lambda y: cdf(score, y) < q, ends.min(), ends.max())


def _mixture_sample(score: Any, key: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    of_component, of_target = jax.random.split(key)
    chosen = jax.random.categorical(of_component, log_weight)
    return sample_of_row(base, scores[chosen], of_target)


def _mixture_fisher(score: Any, base: Any) -> Any:
    log_weight, scores = _components(score, base)
    weight = jnp.exp(log_weight)
    of_weights = jnp.diag(weight) - weight[:, None] * weight[None]
    of_components = jax.vmap(lambda one: fisher_matrix(base, one))(scores) * weight[:, None, None]
    return jax.scipy.linalg.block_diag(of_weights, *of_components)


def _shared_out(rows: Rows, reduce: Any, base: Any, n: int) -> Any:
    """Return the best constant near that of components which have the rows between two quantiles of the target each."""
    y = jnp.asarray(rows.y, rows.weight.dtype)
    inner = [weighted_quantile(y, rows.weight, one / n, reduce) for one in range(1, n)]
    band = sum((y > edge).astype(jnp.int32) for edge in inner)
    loss = base.loss()

    def of_band(number: Any) -> Any:
        inside = jnp.where(band == number, rows.weight, 0)
        holds_rows = over_devices(reduce, jnp.sum(inside)) > 0
        return best_constant(loss, Rows(rows.y, jnp.where(holds_rows, inside, rows.weight)), reduce)

    scores = jax.lax.map(of_band, jnp.arange(n, dtype=jnp.int32))
    start = jnp.concatenate([jnp.zeros(n, scores.dtype), scores.ravel()])
    return best_constant_near(start, mixture(base, n).loss(), rows, reduce)


# --- Zeros of their own: scores [log odds of a zero, scores of the base] ---------------------------------------


def zero_inflated(base: Distribution) -> Distribution:
    """Return a distribution of counts with more zeros: with some probability 0, else a count of the base.

    Parameters
    ----------
    base : Distribution
        Of counts.

    References
    ----------
    Lambert (1992), "Zero-Inflated Poisson Regression".

    Examples
    --------
    >>> import numpy as np
    >>> from jboost import distributions
    >>> count = distributions.zero_inflated(distributions.poisson)(np.array([[0.0, np.log(4.0)]]))
    >>> float(count.mean()[0]), round(float(count.cdf(np.zeros(1))[0]), 3)
    (2.0, 0.509)
    """
    check_base(base, "zero_inflated", "cdf")
    if not base.is_discrete:
        raise ValueError(f"zero_inflated needs a distribution of counts, got {base.name}: use hurdle")
    return _with_zeros("zero_inflated", base, _inflated_log_prob, _no_zero_mass)


def hurdle(base: Distribution) -> Distribution:
    """Return a distribution with zeros of their own: 0 with some probability, else positive as the base.

    Parameters
    ----------
    base : Distribution
        Of positive targets, or of counts, whose zeros are then left out.

    References
    ----------
    Mullahy (1986), "Specification and Testing of Some Modified Count Data Models".

    Examples
    --------
    >>> import numpy as np
    >>> from jboost import distributions
    >>> claims = distributions.hurdle(distributions.gamma)(np.array([[np.log(3.0), 0.0, 0.0]]))
    >>> float(claims.mean()[0]), claims.quantile(0.5).tolist()
    (0.25, [0.0])
    """
    check_base(base, "hurdle", "cdf")
    mass = _zero_mass if base.is_discrete else _no_zero_mass
    return _with_zeros("hurdle", base, _hurdle_log_prob, mass)


def _with_zeros(name: str, base: Distribution, log_prob: Any, left_out: Any) -> Distribution:
    """Make either: of the base the mass at 0 that `left_out` gives is left out."""
    parts = {"base": base, "left_out": left_out}

    def has(*needed: str) -> bool:
        return all(getattr(base, one) is not None for one in needed)

    return Distribution(
        f"{name}({base.name})",
        1 + base.n_parameters,
        log_prob=Partial(log_prob, **parts),
        parameters=Partial(_zeros_parameters, base=base),
        mean=Partial(_zeros_mean, **parts) if has("mean") else None,
        variance=Partial(_zeros_variance, **parts) if has("mean", "variance") else None,
        cdf=Partial(_zeros_cdf, **parts),
        quantile=Partial(_zeros_quantile, **parts) if has("quantile") else None,
        fisher=Partial(_zeros_fisher, base=base),
        check_target=Partial(_check_with_zeros, check=base.check_target, is_count=base.is_discrete),
        is_discrete=base.is_discrete,
    )


def _check_with_zeros(y: Any, check: Any, is_count: bool) -> None:
    check_non_negative(y)
    y = np.asarray(y)
    if check is not None and (is_count or (y > 0).any()):
        check(y if is_count else y[y > 0])


def _no_zero_mass(base: Any, score: Any) -> Any:
    return jnp.zeros_like(score[0])


def _zero_mass(base: Any, score: Any) -> Any:
    return jnp.exp(base.log_prob(score, jnp.zeros_like(score[0])))


def _inflated_log_prob(score: Any, y: Any, base: Any, left_out: Any) -> Any:
    log_zero, log_rest = jax.nn.log_sigmoid(score[0]), jax.nn.log_sigmoid(-score[0])
    of_base = log_rest + base.log_prob(score[1:], y)
    return jnp.where(y == 0, jnp.logaddexp(log_zero, of_base), of_base)


def _hurdle_log_prob(score: Any, y: Any, base: Any, left_out: Any) -> Any:
    log_zero, log_rest = jax.nn.log_sigmoid(score[0]), jax.nn.log_sigmoid(-score[0])
    positive = jnp.where(y > 0, y, 1)
    rest = base.log_prob(score[1:], positive)
    if base.is_discrete:  # log(1 - p0) from log p0
        rest = rest - jnp.log(-jnp.expm1(base.log_prob(score[1:], jnp.zeros_like(score[0]))))
    return jnp.where(y == 0, log_zero, log_rest + rest)


def _zeros_parameters(score: Any, base: Any) -> Any:
    return {"zero": jax.nn.sigmoid(score[0])} | base.parameters(score[1:])


def _zeros_mean(score: Any, base: Any, left_out: Any) -> Any:
    return jax.nn.sigmoid(-score[0]) * base.mean(score[1:]) / (1 - left_out(base, score[1:]))


def _zeros_variance(score: Any, base: Any, left_out: Any) -> Any:
    of_base = base.mean(score[1:])
    square = base.variance(score[1:]) + jnp.square(of_base)
    share = jax.nn.sigmoid(-score[0]) / (1 - left_out(base, score[1:]))
    return share * square - jnp.square(share * of_base)


def _zeros_cdf(score: Any, y: Any, base: Any, left_out: Any) -> Any:
    mass = left_out(base, score[1:])
    of_base = jnp.maximum(base.cdf(score[1:], jnp.maximum(y, 0)) - mass, 0) / (1 - mass)
    return jnp.where(y < 0, 0, jax.nn.sigmoid(score[0]) + jax.nn.sigmoid(-score[0]) * of_base)


def _zeros_quantile(score: Any, q: Any, base: Any, left_out: Any) -> Any:
    zero, mass = jax.nn.sigmoid(score[0]), left_out(base, score[1:])
    beyond = (q - zero) / (1 - zero)
    level = jnp.where(beyond > 0, mass + beyond * (1 - mass), 0.5)
    return jnp.where(beyond > 0, base.quantile(score[1:], level), 0)


def _zeros_fisher(score: Any, base: Any) -> Any:
    zero, rest = jax.nn.sigmoid(score[0]), jax.nn.sigmoid(-score[0])
    return jax.scipy.linalg.block_diag((zero * rest)[None, None], rest * fisher_matrix(base, score[1:]))


# --- Bounds: y holds a time and whether it is the target or less than it ---------------------------------------


def censored(base: Distribution) -> Distribution:
    """Return the distribution for targets of which some are known to be larger than what was seen.

    A target is a dict of "time" and "event", 1 where the time is the target itself and 0 where it was only followed up
    to then. What a `Predictive` says is about the target: `cdf`, `crps` and `pit` take times.

    Parameters
    ----------
    base : Distribution
        With a `log_sf` or a `cdf`: `weibull`, `loglogistic` and `lognormal` are accelerated failure time models.

    Returns
    -------
    Distribution
        Its Fisher matrix is that of targets that are seen.

    References
    ----------
    Kalbfleisch and Prentice (2002), "The Statistical Analysis of Failure Time Data", section 3.2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import distributions
    >>> time = distributions.censored(distributions.weibull)
    >>> y = {"time": jnp.array([2.0, 2.0]), "event": jnp.array([1.0, 0.0])}
    >>> time(jnp.zeros((2, 2))).log_prob(y).tolist()
    [-2.0, -2.0]
    """
    check_base(base, "censored")
    if base.log_sf is None:
        check_base(base, "censored", "cdf")
    return dataclasses.replace(
        base,
        name=f"censored({base.name})",
        log_prob=Partial(_censored_log_prob, base=base),
        fisher=Partial(fisher_matrix, base),
        constant=None,
        check_target=Partial(_check_censored, check=base.check_target),
    )


def _check_censored(y: Any, check: Any) -> None:
    _check_parts(y)
    for name, check_part in (("time", check), ("event", check_binary)):
        try:
            if check_part is not None:
                check_part(y[name])
        except ValueError as error:
            raise ValueError(f'y["{name}"]: {error}') from error


def _check_parts(y: Any) -> None:
    if not isinstance(y, Mapping) or set(y) != {"time", "event"}:
        keys = list(y) if isinstance(y, Mapping) else f"an array of shape {np.shape(y)}"
        raise ValueError(
            f'y must be a dict of the arrays "time" and "event", got {keys}; of a data frame with these columns: '
            '{name: y[name] for name in ("time", "event")}'
        )


def _censored_log_prob(score: Any, y: Any, base: Any) -> Any:
    _check_parts(y)
    time = y["time"]
    larger = jnp.log1p(-base.cdf(score, time)) if base.log_sf is None else base.log_sf(score, time)
    return jnp.where(y["event"] > 0, base.log_prob(score, time), larger)
