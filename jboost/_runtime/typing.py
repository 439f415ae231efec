"""Dtypes, reserved codes and shape letters that every room shares.

Shape letters mean the same everywhere: n rows, f features, b bin codes, k outputs, c statistics
(g and h of each output), l nodes of a level, d depth, s splits of a level or a tree, t rounds, m validation rows.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import jax
import jax.core
import jax.numpy
import numpy as np

MISSING_BIN = 0  # the bin code of a missing or unseen value; values have the codes 1, 2, ...
FIXED_POINT_BITS = 30  # a whole histogram column fits in an int32, rounding included
WORD = 32  # bits of a word in a category set

_ALIGNMENT = 64  # bytes; what XLA asks of the memory that it shares

_T = TypeVar("_T")


def static_field(**options: Any) -> Any:
    """Mark a field of a `pytree` class as part of its structure (hashable, never traced)."""
    return field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(field, static_field))
def pytree(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass that JAX flattens: its fields are children unless they are static.

    JAX rebuilds such objects with arbitrary leaves, without calling `__init__`.
    """
    return as_node(dataclass(frozen=True, eq=False)(cls))


def as_node(cls: type[_T]) -> type[_T]:
    """Let JAX flatten a dataclass: its fields are children unless they are static.

    It is not registered as a data class: JAX (up to 0.12) takes the structures of two such classes with as many fields
    for equal, and may run the program of the one for the other.
    """
    every = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = tuple(one.name for one in every if one.metadata.get("static"))
    children = tuple(one.name for one in every if one.name not in static)
    keys = tuple(map(jax.tree_util.GetAttrKey, children))

    def flatten(one: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        held = one.__dict__
        return tuple([held[name] for name in children]), tuple([held[name] for name in static])

    def flatten_with_keys(one: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values, fixed = flatten(one)
        return tuple(zip(keys, values, strict=True)), fixed

    def unflatten(fixed: tuple[Any, ...], values: Any) -> _T:
        one = object.__new__(cls)
        one.__dict__.update(zip(children, values, strict=True))
        one.__dict__.update(zip(static, fixed, strict=True))
        return one

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


class Layout(NamedTuple):
    """Static facts about binned columns, all that a compiled fit knows of them besides their shape."""

    n_codes: int
    has_missing: bool
    categorical: tuple[int, ...] = ()  # columns
    n_category_codes: int = 0  # codes of a categorical column are below this

    @property
    def n_words(self) -> int:
        """Words of a category set: none without categorical columns."""
        return -(-self.n_codes // WORD) if self.categorical else 0


def is_traced(*trees: Any) -> bool:
    """Say whether any leaf is an abstract value inside a JAX transformation."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def kept_concrete() -> AbstractContextManager[Any]:
    """Make a context in which concrete values stay so while a caller's jit is being traced.

    Only there: elsewhere it would evaluate the constants of our own programs one by one as they are traced.
    """
    inside_a_trace = is_traced(jax.device_put(np.zeros(())))  # which, unlike an operation, is not compiled
    return jax.ensure_compile_time_eval() if inside_a_trace else nullcontext()


def as_array(value: Any, dtype: Any = None) -> jax.Array:
    """Convert to a JAX array; a concrete value stays concrete while a caller's jit is being traced.

    What lies on the host goes to the device without a compilation, which `jnp.asarray` costs for each new shape.
    """
    if is_traced(value):
        return jax.numpy.asarray(value, dtype)
    with kept_concrete():
        if isinstance(value, jax.Array):
            return jax.numpy.asarray(value, dtype)
        host = np.asarray(value)
        dtype = jax.dtypes.canonicalize_dtype(dtype or host.dtype)
        if host.dtype != dtype:
            converted = empty_for_device(host.shape, dtype)
            np.copyto(converted, host, casting="unsafe")
            host = converted
        return jax.device_put(host)


def empty_for_device(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Make an array that a CPU device can take over from the host without a copy: it must not be changed after that."""
    size, dtype = math.prod(shape), np.dtype(dtype)
    memory = np.empty(size * dtype.itemsize + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size * dtype.itemsize].view(dtype).reshape(shape)


def of_floats(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Make whole numbers in y floats for a loss or a metric, as JAX does unless its promotion of dtypes is strict."""

    @functools.wraps(function)
    def with_float_y(score: Any, y: Any, *more: Any, **named: Any) -> jax.Array:
        types = [jax.numpy.result_type(array) for array in (score, y)]
        score_is_float, y_is_float = (jax.numpy.issubdtype(one, jax.numpy.floating) for one in types)
        if not y_is_float:
            y = jax.numpy.asarray(y, types[0] if score_is_float else float)
        return function(score, y, *more, **named)

    return with_float_y


Reduce = Callable[[jax.Array], jax.Array]  # sums a partial result over devices


def over_devices(reduce: Reduce | None, partial_sum: jax.Array) -> jax.Array:
    """Sum over the devices among which the rows are divided; None: there is but one."""
    return partial_sum if reduce is None else reduce(partial_sum)


def identity(x: jax.Array) -> jax.Array:
    """Return x: the inverse link of an untransformed score."""
    return x


def zeros_varying_like(array: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Make zeros that may differ on each device of a shard_map, as the array does."""
    zeros = jax.numpy.zeros(shape, dtype)
    return jax.lax.pcast(zeros, tuple(jax.typeof(array).manual_axis_type.varying), to="varying")


def type_varying_like(array: jax.Array, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return the type of such zeros, which are never made: that of the result of a call of the C++ library."""
    return jax.typeof(zeros_varying_like(array, shape, dtype))


def varying_alike(*arrays: Any) -> list[jax.Array]:
    """Inside shard_map, mark all arrays as different on each device if one is."""
    varying = [jax.typeof(array).manual_axis_type.varying for array in arrays]
    axes = frozenset().union(*varying)
    return [
        jax.lax.pcast(array, tuple(axes - own), to="varying")
        for array, own in zip(arrays, varying, strict=True)
    ]
