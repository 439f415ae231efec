"""Special functions that keep their digits in float32, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

LARGE = 8.0  # from here on a series has more digits than the difference of large numbers
LARGEST_LOG = 80.0  # of a number that may run off; the largest of float32 has 88.7
N_TERMS = 12  # of a series in squares of at most 1/9, for the digits of float64


def stirling_gap(a: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`a \log a - a - \log \Gamma(a)`, which is :math:`\log(a / 2 \pi) / 2` for large a.

    References
    ----------
    Abramowitz and Stegun (1964), "Handbook of Mathematical Functions", eq. 6.1.41.
    """
    is_large = a > LARGE
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, LARGE)
    return jnp.where(
        is_large,
        0.5 * jnp.log(large / (2 * jnp.pi)) - _stirling_series(large),
        small * jnp.log(small) - small - gammaln(small),
    )


def stirling_step(a: Float[Array, "..."], more: Float[Array, "..."] | float) -> Float[Array, "..."]:
    """Return `stirling_gap` of a less that of a + more, where more is not negative: about -more / 2a for a large a."""
    is_large = a > LARGE
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, LARGE)
    series = _stirling_series(large) - _stirling_series(large + more)
    return jnp.where(
        is_large, -0.5 * jnp.log1p(more / large) - series, stirling_gap(small) - stirling_gap(small + more)
    )


def _stirling_series(a: Float[Array, "..."]) -> Float[Array, "..."]:
    square = 1 / jnp.square(a)
    return (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / a


def times_log1p(
    a: Float[Array, "..."],
    x: Float[Array, "..."],
    product: Float[Array, "..."],
    logarithm: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Return a log(1 + x), given a x and the logarithm as it is known for an x that is not small.

    So its derivatives keep their digits where a is large and a x is not.
    """
    is_near = jnp.abs(x) < 0.5
    return jnp.where(is_near, product + a * _log1p_rest(jnp.where(is_near, x, 0)), a * logarithm)


def _log1p_rest(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`\log(1 + x) - x` for x of -1/2 to 1/2: about :math:`-x^2 / 2`, with all digits for a small x.

    With :math:`s = x / (2 + x)` the logarithm is :math:`2 (s + s^3 / 3 + s^5 / 5 + ...)`.

    References
    ----------
    Abramowitz and Stegun (1964), "Handbook of Mathematical Functions", eq. 4.1.27.
    """
    s = x / (2 + x)
    square, series = jnp.square(s), jnp.zeros_like(s)
    for n in reversed(range(N_TERMS)):
        series = 1 / (2 * n + 3) + square * series
    return s * (2 * square * series - x)


def curvature_of_gamma(a: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""Return :math:`a^2 \psi'(a) - a`, the information on the logarithm of a shape: from 1 down to 1/2.

    It is :math:`-a^2` times the second derivative of `stirling_gap`.
    """
    is_large = a > LARGE
    small, large = jnp.where(is_large, 1.0, a), jnp.where(is_large, a, LARGE)
    square = 1 / jnp.square(large)
    series = 0.5 + (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30))) / large
    return jnp.where(is_large, series, jnp.square(small) * jax.scipy.special.polygamma(1, small) - small)
