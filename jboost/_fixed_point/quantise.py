"""Floats as integers with a common power-of-two scale, so that their sums do not depend on any order."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int32

from jboost._fixed_point import native
from jboost._runtime.library import by_platform
from jboost._runtime.typing import FIXED_POINT_BITS, Reduce, over_devices

_LIMB = 15  # bits of a limb: 2**15 rows of them sum in 30 bits
_LIMB_MASK = 2**_LIMB - 1


class Scale(NamedTuple):
    """What a column is multiplied by before it is rounded, and how many of its values are not 0."""

    factor: Float[Array, " c"]  # a power of two; NaN for a column that is not finite
    count: Int32[Array, " c"]


def find_scale(values: Float[Array, "n c"], reduce: Reduce | None = None) -> Scale:
    r"""Find the scale at which the magnitudes of each column, rounded to integers, sum to an int32.

    The factor of column c is :math:`2^{\lfloor \log_2(2^{30} / \sum_i |v_{ic}|) \rfloor}`. Every partial sum
    of the integers, over any rows in any order, then stays within :math:`2^{30} + n/2`. In the formula each
    magnitude is first rounded to :math:`2^{-30}` of the power of two above the largest.

    Parameters
    ----------
    values
        Floats, shape [n, c], n at most 2**30 over all devices. Carries no derivative.
    reduce
        Sums an integer array over the devices that hold the other rows. The scale is computed in integers, so
        it is the same for every way of dividing the rows among devices.

    Returns
    -------
    Scale
        Factors [c] in the dtype of values, exact powers of two between 2**-126 and 2**126 (1022 for float64); 1 where
        all values are 0; NaN where a value is NaN or infinite. Counts int32 [c].

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost._fixed_point import find_scale, quantise
    >>> values = jnp.array([[0.25], [-0.5]])
    >>> scale = find_scale(values)
    >>> (quantise(values, scale.factor) / scale.factor[None]).tolist()
    [[0.25], [-0.5]]
    """
    values = lax.stop_gradient(values)
    if reduce is not None:
        return find_scale_in_jax(values, reduce)
    on_cpu = native.find_scale if native.scale_available() else find_scale_in_jax
    return Scale(*by_platform(values, cpu=on_cpu, default=find_scale_in_jax))


def find_scale_in_jax(values: Float[Array, "n c"], reduce: Reduce | None = None) -> Scale:
    """Do so in plain JAX."""
    exponent, is_finite = _largest_exponent(values, reduce)
    limit = _max_exponent(values.dtype)
    values = jnp.where(is_finite[None], values, 0)
    # First in units of 2**-30 of the largest value, to sum the magnitudes without rounding to floats.
    shift = jnp.minimum(FIXED_POINT_BITS - exponent, limit)
    magnitude = jnp.abs(values) * power_of_two(shift, values.dtype)[None]
    log2_of_sum = _ceil_log2_of_sum(jnp.round(magnitude).astype(jnp.uint32), reduce)
    exponent = jnp.clip(FIXED_POINT_BITS - log2_of_sum + shift, -limit, limit)
    factor = power_of_two(jnp.where(log2_of_sum < 0, 0, exponent), values.dtype)
    count = over_devices(reduce, jnp.sum(values != 0, axis=0, dtype=jnp.int32))
    return Scale(jnp.where(is_finite, factor, jnp.nan), count)


def quantise(values: Float[Array, "n c"], factor: Float[Array, " c"]) -> Int32[Array, "n c"]:
    """Return the integers nearest to values * factor, without a derivative; 0 in a column that is not finite."""
    values, factor = lax.stop_gradient((values, factor))
    known = ~jnp.isnan(factor)[None]
    return jnp.round(jnp.where(known, values * factor[None], 0)).astype(jnp.int32)


def ceil_log2(count: Int32[Array, "..."]) -> Int32[Array, "..."]:
    """Return the smallest b with count <= 2**b, and 0 for a count of 0."""
    return 32 - lax.clz(jnp.maximum(count - 1, 0))


def power_of_two(exponent, dtype):
    """Return 2**exponent, a normal number, from its bits: `ldexp` would be many operations to compile."""
    info = jnp.finfo(dtype)
    biased = exponent.astype(f"int{info.bits}") + (info.maxexp - 1)
    return lax.bitcast_convert_type(biased << info.nmant, dtype)


def _max_exponent(dtype):
    """Return the largest e for which 2**e and 2**-e are both normal: 126, or 1022 for float64."""
    return int(jnp.finfo(dtype).maxexp) - 2


def _largest_exponent(values, reduce):
    """Return e with every |value| < 2**e, and whether all are finite, per column over all devices.

    It is no less than -126, or -1022 for float64. A sum is the only reduction across devices, so each device
    raises a hand at its own exponent.
    """
    info = jnp.finfo(values.dtype)
    # Bits of non-negative floats are ordered like the floats, NaN last; integers are faster to compare.
    bits = lax.bitcast_convert_type(jnp.abs(values), jnp.dtype(f"int{info.bits}"))
    biased = (jnp.max(bits, axis=0, initial=0) >> info.nmant).astype(jnp.int32)
    lowest, not_finite = -_max_exponent(values.dtype), info.maxexp + 1
    exponent = jnp.maximum(biased - (info.maxexp - 2), lowest)
    hands = over_devices(reduce, jax.nn.one_hot(exponent - lowest, not_finite - lowest + 1, dtype=jnp.int32))
    exponent = not_finite - jnp.argmax(hands[:, ::-1] > 0, axis=1).astype(jnp.int32)
    return exponent, exponent < not_finite


def _ceil_log2_of_sum(units, reduce):
    """Return ceil(log2(sum)) of the columns of uint32 [n, c] up to 2**30, and -1 where the sum is 0.

    The sum needs 60 bits, so it is carried in limbs of 15: exact, hence the same in any order.
    """
    n, n_columns = units.shape
    block = 2**_LIMB
    units = jnp.pad(units, ((0, -n % block), (0, 0))).reshape(-1, block, n_columns)
    low = jnp.sum(units & _LIMB_MASK, axis=1, dtype=jnp.uint32)
    high = jnp.sum(units >> _LIMB, axis=1, dtype=jnp.uint32)
    limbs = jnp.stack([low & _LIMB_MASK, (low >> _LIMB) + (high & _LIMB_MASK), high >> _LIMB])
    limb0, limb1, limb2 = over_devices(reduce, jnp.sum(limbs, axis=1, dtype=jnp.uint32))
    # Carry, then take the length in bits of sum - 1.
    limb1 = limb1 + (limb0 >> _LIMB)
    limb2 = limb2 + (limb1 >> _LIMB)
    low, high = (limb0 & _LIMB_MASK) | (limb1 & _LIMB_MASK) << _LIMB, limb2
    is_zero = (low | high) == 0
    high = jnp.where(low == 0, high - 1, high)
    low = (low - 1) & (2 ** (2 * _LIMB) - 1)
    bits = jnp.where(high > 0, 2 * _LIMB + 32 - lax.clz(high), 32 - lax.clz(low)).astype(jnp.int32)
    return jnp.where(is_zero, -1, bits)
