"""Samplers that prefer rows with large derivatives, and make up for the others by weight."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._fixed_point import total
from jboost._objective.domains import real_argument
from jboost._random import random_bits
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import is_traced, pytree
from jboost._sampling import Sampler
from jboost.samplers.drawing import count_all, draw, share_argument, share_of


def goss(top: float | Array = 0.2, other: float | Array = 0.1) -> Sampler:
    r"""Gradient-based one-side sampling: all rows with large gradients, and a share of the others by chance.

    Exactly the share `top` with the largest sum of \|g\| over the outputs, times the weight, takes part in a round as
    it is. Of the rest, so many rows are drawn as the share `other` of all is, each with so much more weight that they
    stand for the rest: sums over the rows drawn are right on average. LightGBM also multiplies by h and draws
    from round 1 / learning_rate on; this is the published method, from the first round on.

    Parameters
    ----------
    top, other : float
        Shares of the rows with weight, in (0, 1), together at most 1. May be traced.

    References
    ----------
    Ke et al. (2017), "LightGBM: a highly efficient gradient boosting decision tree", algorithm 2.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> g, ones = jnp.arange(10.0), jnp.ones(10)
    >>> jboost.samplers.goss(0.2, 0.4)(jax.random.key(0), g[:, None], ones[:, None], ones)[-2:].tolist()
    [1.0, 1.0]
    """
    top, other = real_argument(top, "top", 0, 1), real_argument(other, "other", 0, 1)
    if not is_traced(top, other) and top + other > 1:
        raise ValueError(f"top + other must be at most 1, got {top:g} + {other:g}")
    return Goss(top, other)


def mvs(share: float | Array = 0.8, hessian_weight: float | Array = 0.1) -> Sampler:
    r"""Minimal variance sampling: rows drawn by the size of their derivatives, each with the inverse weight.

    Row i is drawn with probability

    .. math:: p_i = \min(1, s_i / \mu), \qquad s_i = w_i \sqrt{\sum_k g_{ik}^2 + \lambda h_{ik}^2}

    and then has the weight :math:`w_i / p_i`; :math:`\mu` is such that the share of all rows is drawn on average. Among
    all such ways, the gains of splits then vary least. :math:`\lambda` is a squared step, here of the size
    :math:`c (\sum w |g| / \sum w h)^2` with c the `hessian_weight`, so that the unit of the scores does not matter.

    Parameters
    ----------
    share : float
        Of the rows with weight, on average, in (0, 1]. May be traced.
    hessian_weight : float
        Non-negative; what h counts beside g. May be traced.

    References
    ----------
    Ibragimov and Gusev (2019), "Minimal variance sampling in stochastic gradient boosting", theorem 1.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, jboost
    >>> g, ones = jnp.array([100.0] + [1.0] * 99), jnp.ones(100)
    >>> weight = jboost.samplers.mvs(0.3, 0.0)(jax.random.key(0), g[:, None], ones[:, None], ones)
    >>> float(weight[0]), round(float(weight.max()), 3)  # 1 + 29 / 99 of the rest
    (1.0, 3.414)
    """
    return Mvs(
        share_argument(share, "share"), real_argument(hessian_weight, "hessian_weight", 0, np.inf, ends=(0,))
    )


@pytree
class Goss(ByValue):
    """See `goss`."""

    top: Any
    other: Any

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights of the rows with large gradients, and larger ones of the others drawn."""
        there = weight > 0
        by_size, by_chance = jax.random.split(key)
        counted = count_all(there)
        n_top = share_of(self.top, counted)
        is_top = draw(by_size, there, n_top, size=jnp.abs(g).sum(axis=1) * weight)
        rest = counted - n_top
        n_other = jnp.minimum(share_of(self.other, counted), rest)
        drawn = draw(by_chance, there & ~is_top, n_other)
        more = rest.astype(weight.dtype) / jnp.maximum(n_other, 1).astype(weight.dtype)
        return jnp.where(is_top, weight, jnp.where(drawn, more * weight, 0))


@pytree
class Mvs(ByValue):
    """See `mvs`."""

    share: Any
    hessian_weight: Any

    def __call__(
        self, key: Array, g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Return the weights of the rows drawn, each over its probability."""
        share, hessian_weight = (jnp.asarray(one, g.dtype) for one in (self.share, self.hessian_weight))
        size = jax.lax.stop_gradient(_size(g, h, weight, hessian_weight))
        there = (weight > 0).astype(size.dtype)
        wanted = jax.lax.stop_gradient(share) * total(there)
        # Where no row has a derivative, all are alike.
        size = jnp.where((size.max() > 0), size, there)
        p = jnp.minimum(1, size / threshold(size, wanted))
        uniform = random_bits(key, weight.size).astype(size.dtype) / 2.0**32
        return jnp.where(uniform < p, weight / jnp.where(p > 0, p, 1).astype(weight.dtype), 0)


def _size(
    g: Float[Array, "n k"], h: Float[Array, "n k"], weight: Float[Array, " n"], hessian_weight: Array
) -> Float[Array, " n"]:
    """Return w sqrt(g^2 + lambda h^2), relative to the largest |g|: squares of what is small would be 0."""
    there = (weight > 0)[:, None]
    largest = jnp.where(there, jnp.abs(g), 0).max()
    g = jnp.where(there, g, 0) / jnp.where(largest > 0, largest, 1)
    steepness = total(weight * jnp.abs(g).sum(axis=1)), total(weight * jnp.where(there, h, 0).sum(axis=1))
    step = steepness[0] / jnp.where(steepness[1] > 0, steepness[1], 1)
    bend = jnp.where(there, h, 0) * step
    return weight * jnp.sqrt(jnp.sum(jnp.square(g) + hessian_weight * jnp.square(bend), axis=1))


def threshold(size: Float[Array, " n"], wanted: Float[Array, ""]) -> Float[Array, ""]:
    """Return mu such that sum(min(1, size / mu)) is as wanted: rows above it are capped until none is above.

    It falls from round to round: a row that is capped takes at least mu from the sum and 1 from the number wanted.
    """

    def again(state: tuple[Array, Array]) -> Array:
        return state[0] < state[1]

    def cap(state: tuple[Array, Array]) -> tuple[Array, Array]:
        now, _ = state
        capped = size >= now
        left = wanted - capped.sum(dtype=jnp.int32).astype(size.dtype)
        of_rest = total(jnp.where(capped, 0, size))
        lower = jnp.where((left > 0) & (of_rest > 0), of_rest / jnp.where(left > 0, left, 1), now)
        return jnp.minimum(lower, now), now

    first = total(size) / wanted
    return jax.lax.while_loop(again, cap, (first, jnp.asarray(np.inf, size.dtype)))[0]
