"""A whole tree in one call of the C++ library, on a CPU; absent where it was not built."""

from __future__ import annotations

import ctypes

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jboost._runtime import library
from jboost._runtime.typing import Layout, empty_for_device, type_varying_like
from jboost._spec import Hyper, Spec
from jboost._split import Rules, Tree
from jboost._tree.columns import Bins, Columns, GradientPairs, Grouped

TARGET = "jboost_grow_tree"
GROUPING = "jboost_group_columns"
GROUP = 8  # most columns of a group
MAX_DEPTH = 24  # of the kernel
MAX_CODES = 2**16  # of two bytes
NO_BUNDLES = [np.zeros((0, 256), np.uint8) if two else np.zeros(0, np.int32) for two in (0, 1, 0, 1, 0)]
NUMBERS = ("reg_lambda", "reg_alpha", "gamma", "min_child_weight", "cat_smooth")  # in the order of the kernel


def is_available() -> bool:
    """Say whether the C++ growth can be used in this process."""
    return library.is_available(GROUPING, _groups_are_right) and library.is_available(TARGET, _is_right)


def _groups_are_right() -> bool:
    """Lay nine columns of two rows out in groups of five and four."""
    bins = np.arange(18, dtype=np.uint8).reshape(9, 2)
    expected = np.append(bins, [[0, 0]], axis=0).reshape(2, 5, 2).transpose(0, 2, 1)
    return np.array_equal(jax.jit(group_columns)(bins), expected)


def _is_right() -> bool:
    """Split four rows with gradients -1, -1, 1, 1 and Hessians 1: the gain is 2."""
    bins, active = jnp.array([[1, 1, 2, 2]], jnp.uint8), jnp.ones(4, bool)
    hyper = jax.tree.map(jnp.float32, Hyper(reg_lambda=0.0))
    rules = Rules(hyper, jnp.ones(2, jnp.float32), Spec(max_depth=1))
    derivatives = GradientPairs(jnp.array([[-1], [-1], [1], [1]], jnp.float32), jnp.ones((4, 1), jnp.float32))
    columns = Columns(group_columns(bins), jnp.ones((1, 1), bool), Layout(4, False))
    split, leaf = jax.jit(lambda: grow_tree(columns, derivatives, active, rules))()
    return [*map(float, (split.gain[0], split.threshold[0], *leaf))] == [2, 1, 0, 0, 1, 1]


def group_columns(bins: Bins) -> Grouped:
    """Lay the codes of up to eight columns side by side for each row."""
    n_features, n = bins.shape
    result = type_varying_like(bins, _grouped_shape(n_features, n), bins.dtype)
    return jax.ffi.ffi_call(GROUPING, result, vmap_method="expand_dims")(bins)


def group_on_host(bins: np.ndarray, n_rows: int, width: int | None = None) -> np.ndarray:
    """Do so on the host, without a compilation for each new shape, and add rows of zeros up to `n_rows`."""
    bins = np.ascontiguousarray(bins)
    n_features, n = bins.shape
    shape = _grouped_shape(n_features, n_rows) if width is None else (-(-n_features // width), n_rows, width)
    grouped = empty_for_device(shape, bins.dtype)
    function = library.load().jboost_group_on_host  # pyright: ignore[reportAttributeAccessIssue]
    sizes = (ctypes.c_int64(size) for size in (n_features, n, n_rows, grouped.shape[2]))
    start, target = (ctypes.c_void_p(array.ctypes.data) for array in (bins, grouped))
    if function(start, bins.itemsize == 2, *sizes, target):
        raise MemoryError("not enough memory to lay out the bins")
    return grouped


def _grouped_shape(n_features: int, n: int) -> tuple[int, int, int]:
    n_groups = max(1, -(-n_features // GROUP))
    return n_groups, n, max(1, -(-n_features // n_groups))


def grow_tree(
    columns: Columns, derivatives: GradientPairs, active: Bool[Array, " n"], rules: Rules
) -> tuple[Tree, Int[Array, " n"]]:
    """Do what `grow_by_level` does, from grouped bins. Under vmap a call takes the batch, unbatched arguments once."""
    spec, hyper, layout = rules.spec, rules.hyper, columns.layout
    numbers = [getattr(hyper, name) for name in NUMBERS]
    slots, dtype = (spec.n_splits,), rules.factor.dtype
    shapes = [
        (slots, jnp.int32),
        (slots, jnp.int32),
        (slots, jnp.bool_),
        ((*slots, layout.n_words), jnp.uint32),
        (slots, dtype),
        (active.shape, jnp.int32),
    ]
    # The zeros themselves are never made.
    results = [type_varying_like(active, shape, dtype) for shape, dtype in shapes]
    *splits, leaf = jax.ffi.ffi_call(TARGET, results, vmap_method="expand_dims")(
        columns.bins,
        derivatives.g,
        derivatives.h,
        active,
        columns.allowed,
        rules.unit,
        jnp.stack([jnp.asarray(number, dtype) for number in numbers]),
        jnp.asarray(layout.categorical, jnp.int32),
        *(columns.bundling or NO_BUNDLES),
        n_codes=np.int32(layout.n_codes),
        n_category_codes=np.int32(layout.n_category_codes),
        max_cat_to_onehot=np.int32(spec.max_cat_to_onehot),
        min_child_samples=np.int32(spec.min_child_samples if spec.counts_rows else 0),
        symmetric=np.bool_(spec.symmetric),
        has_missing=np.bool_(layout.has_missing),
    )
    return Tree(*splits), leaf
