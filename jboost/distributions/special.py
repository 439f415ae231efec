"""Special functions that keep their digits in float32, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

LARGE = 8.0  # from here on a series has more digits than the difference of large numbers


def stirling_gap(a: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`a \log a - a - \log \Gamma(a)`, which is :math:`\log(a / 2 \pi) / 2` for large a.

    References
    ----------
    Abramowitz and Stegun (1964), "Handbook of Mathematical Functions", eq. 6.1.41.
    """
    is_large = a > LARGE
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, LARGE)
    square = 1 / jnp.square(large)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / large
    return jnp.where(
        is_large,
        0.5 * jnp.log(large / (2 * jnp.pi)) - series,
        small * jnp.log(small) - small - gammaln(small),
    )


def curvature_of_gamma(a: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`a^2 \psi'(a) - a`, the information on the logarithm of a shape: from 1 down to 1/2.

    It is :math:`-a^2` times the second derivative of `stirling_gap`.
    """
    is_large = a > LARGE
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, LARGE)
    square = 1 / jnp.square(large)
    series = 0.5 + (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30))) / large
    return jnp.where(is_large, series, jnp.square(small) * jax.scipy.special.polygamma(1, small) - small)
