"""Targets, weights and keys as they come from a user, checked and made into arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._runtime.caller import warn
from jboost._runtime.typing import as_array, is_traced, kept_concrete

EXTREME_WEIGHT = 1e12
BLOCK_ROWS = 2**14  # of y at a time, so that what is computed of them stays in the cache
LOST_SHARE = 1e-3  # of the spread of y; rounding to float32 that loses more than this deserves a warning


def as_target(y: Any, name: str) -> Any:
    """Return y with every leaf an array: floats in JAX's default precision, integers in int32 where they fit.

    Raises
    ------
    TypeError
        If a leaf does not hold numbers.
    ValueError
        If a leaf has no axis of rows, no rows, another number of rows, or a value that is not finite.
    """

    def is_list(node: Any) -> bool:  # of numbers: one array, not a pytree of scalars
        return isinstance(node, list)

    if not jax.tree.leaves(y, is_leaf=is_list):
        raise TypeError(f"{name} must be an array or a pytree of arrays, got {type(y).__name__}")
    checked = jax.tree.map(lambda leaf: _as_leaf(leaf, name), y, is_leaf=is_list)
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(checked)}
    if len(lengths) > 1:
        raise ValueError(f"{name} must have the same number of rows in every array, got {sorted(lengths)}")
    return checked


def as_weight(weight: Any, n_rows: int, name: str) -> Float[Array, " n"]:
    """Return weights as floats, ones by default; raise unless they are finite, non-negative and not all 0."""
    if weight is None:
        return as_array(np.broadcast_to(1.0, n_rows), float)
    array = weight if isinstance(weight, jax.Array) else np.asarray(weight)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool) or jnp.iscomplexobj(array):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.shape != (n_rows,):
        raise ValueError(f"{name} must have shape ({n_rows},), one weight for each row, got {array.shape}")
    if not is_traced(array):
        values = np.asarray(array, dtype=np.float64)
        if not np.isfinite(values).all() or (values < 0).any():
            raise ValueError(f"{name} must be finite and non-negative, got {_first_bad(values, values >= 0)}")
        if not values.any():
            raise ValueError(f"{name} must not be 0 for every row")
        if not EXTREME_WEIGHT**-1 < values.max() < EXTREME_WEIGHT:
            raise ValueError(
                f"{name} must have its largest weight between {1 / EXTREME_WEIGHT:g} and {EXTREME_WEIGHT:g}, where "
                f"squares of sums stay in range, got {values.max():g}; scale the weights"
            )
    return as_array(array, float)


def as_key(key: Any) -> Array:
    """Return a JAX key, the first by default."""
    if key is None:
        with kept_concrete():
            return jax.random.key(0)
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return key
        if key.dtype == jnp.uint32 and key.shape == jax.eval_shape(jax.random.PRNGKey, 0).shape:
            return key
    raise TypeError(f"key must be a JAX key such as jax.random.key(0), got {key!r}")


def _as_leaf(leaf: Any, name: str) -> Array:
    try:
        array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    except ValueError as error:
        raise ValueError(f"{name} must be an array with rows of equal length: {error}") from None
    if array.ndim == 0:
        raise ValueError(f"{name} must have one value for each row, got a scalar")
    if array.shape[0] == 0:
        raise ValueError(f"{name} must have at least one row, got shape {array.shape}")
    if array.dtype == object:
        array = _from_objects(np.asarray(array), name)
    if array.dtype == bool:
        array = array.astype(np.int32)
    if jnp.iscomplexobj(array) or not jnp.issubdtype(array.dtype, jnp.number):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if jnp.issubdtype(array.dtype, jnp.integer):
        return _as_integers(array, name)
    if not is_traced(array):
        values = np.asarray(array)
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got {_first_bad(values, np.isfinite(values))}")
        _warn_of_lost_digits(values, name)
    return as_array(array, float)


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Read Python numbers; None and NA become NaN, which is refused later."""
    cells = array.ravel()
    if any(isinstance(cell, (str, bytes)) for cell in cells):
        raise TypeError(f"{name} must hold real numbers, got an array of objects with text")
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells]).reshape(array.shape)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must hold real numbers, got an array of objects: {error}") from None


def _as_integers(array: Any, name: str) -> Array:
    limit = np.iinfo(np.int32)
    if is_traced(array):
        if not jnp.can_cast(array.dtype, jnp.int32):
            raise TypeError(f"{name} must not be traced as {array.dtype}, which may not fit int32; cast it")
        return jnp.asarray(array, dtype=jnp.int32)
    values = np.asarray(array, dtype=np.float64)
    _warn_of_lost_digits(values, name)  # scores are floats, also where y stays in integers
    if array.min() >= limit.min and array.max() <= limit.max:
        return as_array(array, jnp.int32)
    return as_array(values, float)


def _warn_of_lost_digits(values: np.ndarray, name: str) -> None:
    if values.dtype != np.float64 or jnp.result_type(float) == jnp.float64:
        return
    blocks = np.split(values, range(BLOCK_ROWS, len(values), BLOCK_ROWS))
    with np.errstate(over="ignore"):
        lost = np.max([np.abs(block.astype(np.float32) - block).max(axis=0) for block in blocks], axis=0)
    if not np.isfinite(lost).all():
        raise ValueError(f"{name} has values beyond the range of float32; scale it, or enable jax_enable_x64")
    if not lost.any():
        return
    spread, varies = values.std(axis=0), values.max(axis=0) > values.min(axis=0)
    if ((lost > LOST_SHARE * spread) & varies).any():
        warn(
            f"{name} varies so little around a large value that float32 loses up to {lost.max():.3g} of it; "
            "subtract an offset, or enable jax_enable_x64"
        )


def _first_bad(values: np.ndarray, good: np.ndarray) -> str:
    where = np.argwhere(~(good & np.isfinite(values)))[0]
    return f"{values[tuple(where)]} in row {where[0]}"
