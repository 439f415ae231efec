"""Bin traced values on the device, exactly as the host does, whether or not JAX has float64.

Floats are compared through the order of their bits, held as uint32 words, low word first (one word for a
float32, two for a float64): that needs no float64, and no compiler flushes a subnormal to zero on the way.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

_SIGN = np.uint32(0x80000000)


def float_words(x: Float[Array, "*shape"]) -> UInt32[Array, "*shape w"]:
    """Return the bits of float32 or float64 values as one or two words."""
    words = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return words if x.dtype.itemsize == 8 else words[..., None]


def host_words(x: Float[np.ndarray, "*shape"]) -> UInt32[np.ndarray, "*shape w"]:
    """Return the bits of NumPy float32 or float64 values as one or two words."""
    little_endian = np.ascontiguousarray(x, dtype=x.dtype.newbyteorder("<"))
    return little_endian.view("<u4").reshape(*x.shape, x.dtype.itemsize // 4)


def traced_words(X: Array) -> UInt32[Array, "f n w"]:
    """Return the words of a traced X [n f], feature by feature."""
    if X.ndim != 2:
        raise ValueError(f"X must be a 2-D array [n_rows, n_features], got shape {X.shape}")
    if X.dtype == jnp.float64:
        return float_words(X.T)
    exact_in_float32 = (
        X.dtype == jnp.bool_
        or jnp.issubdtype(X.dtype, jnp.floating)
        or (jnp.issubdtype(X.dtype, jnp.integer) and jnp.iinfo(X.dtype).bits <= 16)
    )
    if not exact_in_float32:
        raise TypeError(
            f"X must hold floats where it is traced, got {X.dtype}; cast to float32 or, with x64 on, float64"
        )
    return float_words(X.T.astype(jnp.float32))


@jax.jit  # compiled also where a vmap outside of jit would run it step by step
def count_below(
    table: UInt32[Array | np.ndarray, "f m w"], values: UInt32[Array | np.ndarray, "f n w"]
) -> Int[Array, "f n"]:
    """Count the entries of each sorted row of the table that are less than each value, by binary search."""
    keys, wanted = _sort_key(table), _sort_key(values)
    m = table.shape[1]
    count = jnp.zeros(values.shape[:2], jnp.int32)
    for step in [1 << power for power in reversed(range(m.bit_length()))]:
        probe = count + (step - 1)
        inside = jnp.minimum(probe, m - 1)
        entry = [_take(key, inside) for key in keys]
        count = jnp.where((probe < m) & _less(entry, wanted), count + step, count)
    return count


@jax.jit
def look_up(
    table: UInt32[np.ndarray, "f m w"],
    codes: Int[np.ndarray, "f m"],
    values: UInt32[Array | np.ndarray, "f n w"],
) -> Int[Array, "f n"]:
    """Return the code of the entry of a sorted table row that equals each value, 0 where none does."""
    place = jnp.minimum(count_below(table, values), table.shape[1] - 1)
    wanted = _sort_key(values)
    found = [_take(key, place) for key in _sort_key(table)]
    equal = jnp.stack([a == b for a, b in zip(found, wanted, strict=True)]).all(axis=0)
    return jnp.where(equal, _take(jnp.asarray(codes), place), 0)


def _take(table: Shaped[Array, "f m"], place: Int[Array, "f n"]) -> Shaped[Array, "f n"]:
    """Gather within each row, by one flat index: with two, XLA folds the row numbers for seconds."""
    f, m = table.shape
    if f * m >= 2**32:
        raise ValueError(f"X must have fewer than 2^32 edges to bin a traced array by, got {f} times {m}")
    row_starts = jnp.arange(f, dtype=jnp.uint32)[:, None] * np.uint32(m)
    flat = row_starts + place.astype(jnp.uint32)
    return table.reshape(-1).at[flat].get(mode="promise_in_bounds")


def is_nan(words: UInt32[Array | np.ndarray, "f n w"]) -> Bool[Array, "f n"]:
    """Find NaN by its bits: an exponent of ones and a fraction other than zero."""
    words = jnp.asarray(words)
    magnitude = words[..., -1] & ~_SIGN
    if words.shape[-1] == 1:
        return magnitude > np.uint32(0x7F800000)
    infinity = np.uint32(0x7FF00000)
    return (magnitude > infinity) | ((magnitude == infinity) & (words[..., 0] != 0))


def are_equal(
    words: UInt32[Array | np.ndarray, "f n w"], value: UInt32[np.ndarray, " w"]
) -> Bool[Array, "f n"]:
    """Find the values equal to one that is no NaN."""
    keys = zip(_sort_key(words), _sort_key(value), strict=True)
    return jnp.stack([ours == wanted for ours, wanted in keys]).all(axis=0)


def _sort_key(words: UInt32[Array | np.ndarray, "*shape w"]) -> list[Array]:
    """Return integers, most significant first, that are ordered as the floats are; -0.0 and 0.0 are equal.

    A float is a sign and a magnitude; its key is the same number in two's complement.
    """
    words = jnp.asarray(words)
    negative = words[..., -1] >= _SIGN
    high = (words[..., -1] & ~_SIGN).astype(jnp.int32)
    if words.shape[-1] == 1:
        return [jnp.where(negative, -high, high)]
    low = words[..., 0]
    borrow = (low != 0).astype(jnp.int32)
    return [jnp.where(negative, -high - borrow, high), jnp.where(negative, ~low + np.uint32(1), low)]


def _less(a: list[Array], b: list[Array]) -> Bool[Array, "f n"]:
    if len(a) == 1:
        return a[0] < b[0]
    return (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
