"""Samplers that know nothing of the derivatives: with and without replacement, by strata, and random weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._fixed_point import count_by_group
from jboost._objective.domains import real_argument
from jboost._random import random_bits
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import pytree, static_field
from jboost._sampling import Sampler
from jboost.samplers.drawing import (
    count_all,
    draw,
    share_argument,
    share_of,
    whole_numbers,
)


def without_replacement(share: float | Array = 0.5) -> Sampler:
    """Draw exactly this share of the rows in each round, no row twice.

    As `Hyper.subsample`, which draws each row by itself, so that their number varies; the weights stay as they are.

    Parameters
    ----------
    share : float
        In (0, 1]: the nearest whole number of rows, at least 1, of those with weight. May be traced.

    References
    ----------
    Friedman (2002), "Stochastic gradient boosting".

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> ones = jnp.ones(10)
    >>> float(jboost.samplers.without_replacement(0.3)(jax.random.key(0), ones[:, None], ones[:, None], ones).sum())
    3.0
    """
    return WithoutReplacement(share_argument(share, "share"))


def stratified(strata: Any, share: float | Array = 0.5) -> Sampler:
    """Draw exactly this share of the rows of each stratum in each round, no row twice.

    So a rare class has its rows in every round. The weights stay as they are.

    Parameters
    ----------
    strata : array-like [n]
        What each training row belongs to, such as its class: numbers or strings.
    share : float
        In (0, 1]: the nearest whole number of rows of each stratum, at least 1, of those with weight. May be traced.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> sampler = jboost.samplers.stratified([0, 0, 0, 0, 0, 0, 1, 1], share=0.5)
    >>> ones = jnp.ones(8)
    >>> weight = sampler(jax.random.key(0), ones[:, None], ones[:, None], ones)
    >>> float(weight[:6].sum()), float(weight[6:].sum())
    (3.0, 1.0)
    """
    numbers = whole_numbers(strata, "strata")
    return Stratified(numbers, share_argument(share, "share"), int(numbers.max()) + 1)


def bootstrap(share: float | Array = 1.0) -> Sampler:
    """Draw rows with replacement: a row drawn twice has twice its weight.

    Parameters
    ----------
    share : float
        In (0, 1]: how many rows are drawn, of as many as have weight. May be traced.

    References
    ----------
    Breiman (1996), "Bagging predictors".

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> ones = jnp.ones(10)
    >>> float(jboost.samplers.bootstrap()(jax.random.key(0), ones[:, None], ones[:, None], ones).sum())
    10.0
    """
    return Bootstrap(share_argument(share, "share"))


def bayesian_bootstrap(temperature: float | Array = 1.0) -> Sampler:
    """Multiply the weight of each row by (-log u)^temperature in each round, u uniform: all rows take part.

    A temperature of 1 gives the exponential weights of the Bayesian bootstrap, of 0 all rows as they are. CatBoost
    calls it `bagging_temperature`.

    Parameters
    ----------
    temperature : float
        Non-negative. May be traced.

    References
    ----------
    Rubin (1981), "The Bayesian bootstrap".

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> ones = jnp.ones(1000)
    >>> weight = jboost.samplers.bayesian_bootstrap()(jax.random.key(0), ones[:, None], ones[:, None], ones)
    >>> bool(weight.min() > 0), bool(0.9 < weight.mean() < 1.1)
    (True, True)
    """
    return BayesianBootstrap(real_argument(temperature, "temperature", 0, np.inf, ends=(0,)))


@pytree
class WithoutReplacement(ByValue):
    """See `without_replacement`."""

    share: Any

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights of the rows drawn."""
        there = weight > 0
        return jnp.where(draw(key, there, share_of(self.share, count_all(there))), weight, 0)


@pytree
class Stratified(ByValue):
    """See `stratified`."""

    strata: Any
    share: Any
    n_strata: int = static_field()

    @property
    def n_rows(self) -> int:
        """Training rows that there must be."""
        return len(self.strata)

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights of the rows drawn."""
        there, stratum = weight > 0, _with_padding(self.strata, weight.size)
        counted = count_by_group(there, stratum, self.n_strata)
        return jnp.where(draw(key, there, share_of(self.share, counted), stratum), weight, 0)


def _with_padding(strata: Any, n: int) -> Int[Array, " n"]:
    """Give the weightless rows that a fit may add a stratum."""
    return jnp.pad(jnp.asarray(strata), (0, n - len(strata)))


@pytree
class Bootstrap(ByValue):
    """See `bootstrap`."""

    share: Any

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights times how often each row was drawn."""
        there, n = weight > 0, weight.size
        counted = count_all(there)
        with jax.threefry_partitionable(True):
            drawn = jax.random.randint(key, (n,), 0, counted).astype(jnp.int32)
        counts = jnp.arange(n, dtype=jnp.int32) < share_of(self.share, counted)
        times = count_by_group(counts, drawn, n)  # of the first row with weight, the second, ...
        place = jnp.maximum(jnp.cumsum(there.astype(jnp.int32)) - 1, 0)
        return jnp.where(there, times[place].astype(weight.dtype) * weight, 0)


@pytree
class BayesianBootstrap(ByValue):
    """See `bayesian_bootstrap`."""

    temperature: Any

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights times those drawn."""
        uniform = (random_bits(key, weight.size).astype(weight.dtype) + 1) / 2.0**32  # in (0, 1]
        size = jnp.maximum(-jnp.log(uniform), jnp.finfo(weight.dtype).eps)  # 0 would leave a row out
        return weight * size ** jnp.asarray(self.temperature, weight.dtype)
