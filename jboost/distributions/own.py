"""Distributions from elsewhere: a function of one's own, or the classes of another library."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from jboost.distributions.distribution import Distribution


def from_log_prob(
    log_prob: Callable[..., Any], n_parameters: int, *, name: str | None = None, **more: Any
) -> Distribution:
    """Return a distribution of a density alone.

    Parameters
    ----------
    log_prob : callable
        ``log_prob(score, y) -> scalar`` of one row, a score [k] and a target.
    n_parameters : int
        k.
    name : str, optional
        That of the function by default.
    **more
        Other fields of `Distribution`: `mean`, `cdf`, `quantile` and so on, for what a `Predictive` is to tell.

    Returns
    -------
    Distribution

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost import distributions
    >>> def cauchy(score, y):
    ...     z = (y - score[0]) * jnp.exp(-score[1])
    ...     return -jnp.log(jnp.pi) - score[1] - jnp.log1p(z**2)
    >>> round(float(distributions.from_log_prob(cauchy, 2)(jnp.zeros((1, 2))).log_prob(jnp.ones(1))[0]), 3)
    -1.838
    """
    if not callable(log_prob):
        raise TypeError(f"log_prob must be a function of (score, y), got {log_prob!r}")
    known = name or getattr(log_prob, "__name__", type(log_prob).__name__)
    return Distribution(known, n_parameters, **({"log_prob": log_prob, "parameters": _scores} | more))


def from_object(
    make: Callable[[Any], Any], n_parameters: int, *, name: str | None = None, **more: Any
) -> Distribution:
    """Return the distribution of an object with a `log_prob`, as those of numpyro, distrax and TensorFlow Probability.

    Parameters
    ----------
    make : callable
        ``make(score)`` returns the object for a score [k] of one row: it maps real numbers to parameters. Its `mean`
        and `variance`, attributes or methods, its `cdf`, its `icdf` or `quantile` and its `sample(key)` or
        `sample(seed=key)` are used where they are.
    n_parameters : int
        k.
    name : str, optional
        That of the object's class by default.
    **more
        Other fields of `Distribution`, which go before.

    Returns
    -------
    Distribution

    Raises
    ------
    TypeError
        Where the object has no `log_prob`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from jboost import distributions
    >>> class Exponential:  # as numpyro.distributions.Exponential
    ...     def __init__(self, rate):
    ...         self.rate, self.mean = rate, 1 / rate
    ...     def log_prob(self, y):
    ...         return jnp.log(self.rate) - self.rate * y
    >>> waiting = distributions.from_object(lambda score: Exponential(jnp.exp(-score[0])), 1)
    >>> round(float(waiting(jnp.ones((1, 1))).mean()[0]), 3)
    2.718
    """
    if type(n_parameters) is not int or n_parameters < 1:
        raise ValueError(f"n_parameters must be an integer of at least 1, got {n_parameters!r}")
    one = make(jnp.zeros(n_parameters))
    if not callable(getattr(one, "log_prob", None)):
        raise TypeError(f"make must return an object with a log_prob, got {type(one).__name__}")
    found: dict[str, Any] = {"log_prob": Partial(_log_prob, make=make), "parameters": _scores}
    score = jax.ShapeDtypeStruct((n_parameters,), jnp.result_type(float))
    for field, function, *arguments in _MEMBERS:
        try:
            jax.eval_shape(Partial(function, make=make), score, *arguments)
        except (AttributeError, ImportError, NotImplementedError):  # it has no such thing
            continue
        found[field] = Partial(function, make=make)
    return Distribution(name or type(one).__name__, n_parameters, **(found | more))


def _log_prob(score: Any, y: Any, make: Any) -> Any:
    return make(score).log_prob(y)


def _mean(score: Any, make: Any) -> Any:
    return _attribute_or_method(make(score).mean)


def _variance(score: Any, make: Any) -> Any:
    return _attribute_or_method(make(score).variance)


def _attribute_or_method(member: Any) -> Any:
    return member() if callable(member) else member


def _cdf(score: Any, y: Any, make: Any) -> Any:
    return make(score).cdf(y)


def _quantile(score: Any, q: Any, make: Any) -> Any:
    one = make(score)
    return one.quantile(q) if getattr(one, "icdf", None) is None else one.icdf(q)


def _sample(score: Any, key: Any, make: Any) -> Any:
    sample = make(score).sample
    return sample(seed=key) if "seed" in inspect.signature(sample).parameters else sample(key)


_MEMBERS: tuple[Any, ...] = (
    ("mean", _mean),
    ("variance", _variance),
    ("cdf", _cdf, 0.5),
    ("quantile", _quantile, 0.5),
    ("sample", _sample, jax.eval_shape(jax.random.key, 0)),
)


def _scores(score: Any) -> Any:
    return {"score": score}
