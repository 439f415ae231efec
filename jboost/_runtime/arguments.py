"""Targets, weights, keys and whole numbers as they come from a user, checked and made into arrays."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from numbers import Integral
from types import FunctionType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._runtime.caller import warn
from jboost._runtime.containers import is_missing_type, no_array, refuse_masked
from jboost._runtime.typing import as_array, is_traced, kept_concrete

EXTREME_WEIGHT = 1e12
BLOCK_ROWS = 2**14  # of y at a time, so that what is computed of them stays in the cache
LOST_SHARE = 1e-3  # of the spread of y; rounding to float32 that loses more than this deserves a warning
GAPS = "; leave out rows without a target, or give a jboost.Loss(..., allow_nan=True) whose function passes over gaps"


def as_target(y: Any, name: str, allow_nan: bool = False) -> Any:
    """Return y with every leaf an array: floats in JAX's default precision, integers in int32 where they fit.

    A data frame is its columns in order, without their names: [n k], or [n] if there is one column only.

    Parameters
    ----------
    y : array-like, data frame, or pytree of these
        Leading axis n; may be traced.
    name : str
        What messages call it.
    allow_nan : bool
        Whether NaN, None and NA may occur, for a loss that knows what to do with them.

    Raises
    ------
    TypeError
        If a leaf does not hold numbers.
    ValueError
        If a leaf has no axis of rows, no rows, another number of rows, masked entries, or a value that is not finite.
    """

    def is_list(node: Any) -> bool:  # of numbers: one array, not a pytree of scalars
        return isinstance(node, list | Iterator)

    def checked_leaf(path: Any, leaf: Any) -> Array:
        return _as_leaf(leaf, name + jax.tree_util.keystr(path), allow_nan)

    if not jax.tree.leaves(y, is_leaf=is_list):
        raise no_array(y, name, "an array or a pytree of arrays")
    checked = jax.tree_util.tree_map_with_path(checked_leaf, y, is_leaf=is_list)
    lengths = {leaf.shape[0] for leaf in jax.tree.leaves(checked)}
    if len(lengths) > 1:
        raise ValueError(f"{name} must have the same number of rows in every array, got {sorted(lengths)}")
    return checked


def as_weight(weight: Any, n_rows: int, name: str, of_each: str = "row") -> Float[Array, " n"]:
    """Return weights as JAX's floats, ones by default: checked by `check_weight`, or in their form where traced."""
    if _holds_traced(weight):
        weight = jnp.asarray(weight)
        _check_form_of_weight(weight, n_rows, name, of_each)
        return as_array(weight, float)
    checked = check_weight(weight, n_rows, name, of_each)
    return as_array(weight if isinstance(weight, jax.Array) else checked, float)


def check_weight(weight: Any, n_rows: int, name: str, of_each: str = "row") -> Float[np.ndarray, " n"]:
    """Return concrete weights in float64, ones by default; raise unless they are finite, non-negative and not all 0."""
    if weight is None:
        return np.ones(n_rows)
    refuse_masked(weight, name, f"fill it with 0 where a {of_each} is to be left out")
    given = on_host(weight, name)
    _check_form_of_weight(given, n_rows, name, of_each)
    values = given.astype(np.float64)
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(
            f"{name} must be finite and non-negative, got {first_bad(values, values >= 0, of_each)}"
        )
    if not values.any():
        raise ValueError(f"{name} must hold a weight above zero, got zero for every {of_each}")
    if not 0.999 / EXTREME_WEIGHT < values.max() < 1.001 * EXTREME_WEIGHT:  # as float32 has them
        raise ValueError(
            f"{name} must have its largest weight between {1 / EXTREME_WEIGHT:g} and {EXTREME_WEIGHT:g}, where "
            f"squares of sums stay in range, got {values.max():g}; scale the weights"
        )
    return values


def as_offset(offset: Any, n_rows: int, n_outputs: int, name: str) -> Float[Array, "n k"]:
    """Return what is added to the scores, [n] or [n k], as floats [n k]; raise unless it is finite."""
    traced = _holds_traced(offset)
    array = jnp.asarray(offset) if traced else on_host(offset, name)
    _check_real(array, name)
    shapes = [(n_rows, n_outputs)] + ([(n_rows,)] if n_outputs == 1 else [])
    if array.shape not in shapes:
        raise ValueError(f"{name} must have shape {' or '.join(map(str, shapes[::-1]))}, got {array.shape}")
    if isinstance(array, np.ndarray):
        dtype = jnp.result_type(float)
        with np.errstate(over="ignore"):
            good = np.isfinite(array.astype(dtype))
        if not good.all():
            raise ValueError(f"{name} must be finite in {dtype}, got {first_bad(array, good)}")
    return as_array(array.reshape(n_rows, n_outputs), float)


def as_group_ids(groups: Any, n_rows: int, name: str) -> np.ndarray:
    """Return the group of each row, numbers or strings [n]; they decide on shapes, so they must be concrete."""
    if _holds_traced(groups):
        raise TypeError(f"{name} must be concrete, got a traced array; close over a NumPy array instead")
    refuse_masked(groups, name)
    ids = np.asarray(groups)
    if ids.shape != (n_rows,):
        raise ValueError(f"{name} must have shape ({n_rows},), the group of each row, got {ids.shape}")
    if ids.dtype == object:
        for row, one in enumerate(ids):
            if is_missing_type(type(one)) or (isinstance(one, float) and np.isnan(one)):
                raise ValueError(f"{name} must hold a group for each row, got {one} in row {row}")
        ids = np.unique([str(one) for one in ids], return_inverse=True)[1]
    if ids.dtype.kind not in "biuSU" and not (ids.dtype.kind == "f" and np.isfinite(ids).all()):
        raise TypeError(f"{name} must hold numbers or strings, one for each row, got dtype {ids.dtype}")
    return ids


def is_whole(value: Any) -> bool:
    """Say whether it is an integer of Python's or NumPy's; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def whole_number(value: Any, name: str, least: int = 0, most: int | None = None, or_else: str = "") -> int:
    """Return an integer as Python's; raise unless it is one, from `least` to `most`.

    `or_else` says in messages what else there might be, such as " or None".
    """
    if not is_whole(value):
        raise TypeError(f"{name} must be an integer{or_else}, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}{or_else}, got {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}{or_else}, got {value}")
    return int(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...], or_else: str = "") -> None:
    """Raise unless it is one of the words; `or_else` says in messages what else there might be."""
    if not (isinstance(value, str) and value in choices):  # == of an array is no bool
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}{or_else}, got {value!r}")


def restated(error: Exception, message: str) -> Exception:
    """Return a TypeError or a ValueError, as the error is one, that says more.

    Errors of kinds below these may be made of more than a message.
    """
    return TypeError(message) if isinstance(error, TypeError) else ValueError(message)


def one_by_name(given: Any, module: str) -> str:
    """Say, for the end of a message, where an object of that name is, if a word was given instead of one."""
    if not isinstance(given, str):
        return ""

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    found = importlib.import_module(module)
    for name in found.__all__:
        if plain(name) == plain(given):
            makes_one = isinstance(getattr(found, name), type | FunctionType)
            return f": give {module}.{name}{'(...)' if makes_one else ''}"
    return f": {module} holds some"


def as_key(key: Any) -> Array:
    """Return a JAX key: that of a whole number, the one of 0 by default."""
    if key is None or is_whole(key):
        return key_of(0 if key is None else whole_number(key, "key", -(2**63), 2**63 - 1))
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return key
        if key.dtype == jnp.uint32 and key.shape == jax.eval_shape(jax.random.PRNGKey, 0).shape:
            return key
    raise TypeError(f"key must be a JAX key, such as jax.random.key(0), or an integer, got {key!r}")


def key_of(seed: int) -> Array:
    """Return `jax.random.key(seed)`, for most seeds without compiling anything."""
    usual = jax.config.values["jax_default_prng_impl"] == "threefry2x32"
    usual = usual and 0 <= seed < 2**31 and not jax.config.values.get("jax_random_seed_offset")
    with kept_concrete():
        if not usual:
            return jax.random.key(seed)
        return jax.random.wrap_key_data(as_array(np.array([0, seed], np.uint32)), impl="threefry2x32")


def _as_leaf(leaf: Any, name: str, allow_nan: bool) -> Array:
    array = jnp.asarray(leaf) if _holds_traced(leaf) else on_host(leaf, name)
    if array.ndim == 0:
        raise ValueError(f"{name} must have one value for each row, got a scalar")
    if array.shape[0] == 0:
        raise ValueError(f"{name} must have at least one row, got shape {array.shape}")
    if hasattr(leaf, "columns") and array.ndim == 2 and array.shape[1] == 1:  # a data frame of one column
        leaf = array = array[:, 0]
    _check_real(array, name)
    given = leaf if isinstance(leaf, jax.Array) else array  # stays on its devices
    if array.dtype == bool:
        return as_array(given, jnp.int32)
    if jnp.issubdtype(array.dtype, jnp.integer):
        return _as_integers(given, name)
    if isinstance(array, np.ndarray):
        good = np.isfinite(array) | np.isnan(array) if allow_nan else np.isfinite(array)
        if not good.all():
            cure = "" if allow_nan or not np.isnan(array[~good]).any() else GAPS
            raise ValueError(f"{name} must be finite, got {first_bad(array, good)}{cure}")
        _warn_of_lost_digits(array, name)
    return as_array(given, float)


def _holds_traced(value: Any) -> bool:
    return isinstance(value, jax.Array | list | tuple) and is_traced(value)


def on_host(value: Any, name: str) -> np.ndarray:
    """Return a concrete array in NumPy; objects become floats."""
    refuse_masked(value, name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be an array with rows of equal length: {error}") from None
    if array.ndim == 0 and array.dtype.kind in "OUS":
        raise no_array(value, name, "an array with one value for each row")
    return _from_objects(array, name) if array.dtype == object else array


def _from_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Read Python numbers; None and NA become NaN."""
    cells = array.ravel()
    if any(isinstance(cell, (str, bytes)) for cell in cells):
        raise TypeError(f"{name} must hold real numbers, got an array of objects with text")
    try:
        floats = [np.nan if is_missing_type(type(cell)) else float(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{name} must hold real numbers, got an array of objects: {error}") from None
    return np.array(floats, np.float64).reshape(array.shape)


def _check_real(array: Any, name: str) -> None:
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == bool) or jnp.iscomplexobj(array):
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")


def _check_form_of_weight(array: Any, n_rows: int, name: str, of_each: str) -> None:
    _check_real(array, name)
    if array.shape != (n_rows,):
        raise ValueError(
            f"{name} must have shape ({n_rows},), one weight for each {of_each}, got {array.shape}"
        )


def _as_integers(array: Any, name: str) -> Array:
    limit = np.iinfo(np.int32)
    if is_traced(array):
        if not jnp.can_cast(array.dtype, jnp.int32):
            raise TypeError(f"{name} must not be traced as {array.dtype}, which may not fit int32; cast it")
        return jnp.asarray(array, dtype=jnp.int32)
    host = np.asarray(array)  # as inside a trace, JAX would trace what is asked of an array of its own
    values = host.astype(np.float64)
    _warn_of_lost_digits(values, name)  # scores are floats, also where y stays in integers
    if host.min() >= limit.min and host.max() <= limit.max:
        return as_array(array, jnp.int32)
    return as_array(values, float)


def _warn_of_lost_digits(values: np.ndarray, name: str) -> None:
    if values.dtype != np.float64 or jnp.result_type(float) == jnp.float64:
        return
    blocks = np.split(values, range(BLOCK_ROWS, len(values), BLOCK_ROWS))
    with np.errstate(over="ignore"):
        largest = [np.fmax.reduce(np.abs(block.astype(np.float32) - block)) for block in blocks]
    lost = np.fmax.reduce(largest)  # passes over NaN, which is left where a column has no number
    if np.isinf(lost).any():
        raise ValueError(f"{name} has values beyond the range of float32; scale it, or enable jax_enable_x64")
    if not (lost > 0).any():
        return
    known = ~np.isnan(values)
    known |= ~known.any(axis=0)
    spread = values.std(axis=0) if known.all() else values.std(axis=0, where=known)
    varies = np.fmax.reduce(values) > np.fmin.reduce(values)
    if ((lost > LOST_SHARE * spread) & varies).any():
        most = np.fmax.reduce(lost, None)
        warn(
            f"{name} varies so little around a large value that float32 loses up to {most:.3g} of it; "
            "subtract an offset, or enable jax_enable_x64"
        )


def first_bad(values: np.ndarray, good: np.ndarray, of_each: str = "row") -> str:
    """Say, for the end of a message, what the first value that is infinite or not good is, and where."""
    where = np.argwhere(~(good & ~np.isinf(values)))[0]
    return f"{values[tuple(where)]} in {of_each} {where[0]}"
