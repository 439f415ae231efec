"""Histograms of integer statistics: the innermost loop of boosting, behind one small interface.

`xla.py` is the definition. Its twins: `native.cpp` for the cores of a CPU, used there if it was built; `joined.py`
for a GPU; `matmul.py` for a TPU. Sums are exact integers, so every twin gives the same bits in any order of rows,
threads and devices.
The environment variable JBOOST_NATIVE=0, read when the first histogram is traced, keeps to the definition.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int32, Integer, UInt

from jboost._histogram import joined, matmul, native, xla
from jboost._histogram.native import is_available as native_available
from jboost._runtime.library import by_platform
from jboost._runtime.typing import varying_alike

__all__ = ["build_histogram", "native_available", "with_siblings"]


def build_histogram(
    bins: UInt[Array, "f n"],
    slot: Integer[Array, " n"],
    values: Int32[Array, "n c"],
    n_slots: int,
    n_codes: int,
) -> Int32[Array, "b c l f"]:
    """Sum the statistics of the rows of each bin code, slot and feature.

    The histogram of gradient statistics of [1]_ (Algorithm 1), for several tree nodes ("slots") at once. The
    platform for which the program is compiled decides which twin runs.

    Parameters
    ----------
    bins
        Bin codes below `n_codes`, uint8, uint16 or uint32 [f, n]. A larger one is counted in another cell or nowhere.
    slot
        Where each row is counted, int32 or uint32 [n]. Rows with slot < 0 or slot >= n_slots are ignored.
    values
        Statistics of each row, int32 [n, c], such as g and h from `quantise`. Each sum must fit in an int32.
    n_slots, n_codes
        Sizes l and b of the histogram.

    Returns
    -------
    int32 [b, c, l, f]: entry (i, j, k, m) sums values[:, j] over the rows with bins[m] == i and slot == k.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the histogram has 2**31 cells or more.

    References
    ----------
    .. [1] Ke et al., LightGBM: A Highly Efficient Gradient Boosting Decision Tree, NeurIPS 2017.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost._histogram import build_histogram
    >>> bins = jnp.array([[0, 1, 1]], jnp.uint8)
    >>> values = jnp.array([[5, 1], [-2, 1], [7, 1]], jnp.int32)
    >>> build_histogram(bins, jnp.array([0, 0, 0]), values, n_slots=1, n_codes=2)[:, :, 0, 0].tolist()
    [[5, 1], [5, 2]]
    """
    _check(bins, slot, values, n_slots, n_codes)
    in_cpp = bins.dtype != jnp.uint32 and native_available()
    return _build(bins, slot, values, n_slots, n_codes, in_cpp)


@partial(jax.jit, static_argnames=("n_slots", "n_codes", "in_cpp"))
def _build(bins: Array, slot: Array, values: Array, n_slots: int, n_codes: int, in_cpp: bool) -> Array:
    slot = slot.astype(jnp.uint32)  # a negative slot becomes a huge one
    on_cpu = native.build_histogram if in_cpp else xla.scatter_in_blocks
    sizes = {"n_slots": n_slots, "n_codes": n_codes}
    return by_platform(
        *varying_alike(bins, slot, values),
        cpu=partial(on_cpu, **sizes),
        tpu=partial(matmul.matmul_in_blocks, **sizes),
        default=partial(joined.scatter_joined, **sizes),
    )


def with_siblings(
    parent: Int32[Array, "b c l f"], built: Int32[Array, "b c l f"], built_right: Bool[Array, " l"]
) -> Int32[Array, "b c 2*l f"]:
    """Return the histograms of both children of each node, given one of them: the other by subtraction.

    Exact in integers: no count turns negative, and the children sum to their parent.

    Parameters
    ----------
    parent
        Histograms of l nodes, int32 [b, c, l, f].
    built
        Histogram of one child of each, int32 [b, c, l, f].
    built_right
        Whether that is the right child, bool [l].

    Returns
    -------
    int32 [b, c, 2 l, f]: the left and the right child of each node in turn.

    Examples
    --------
    >>> parent, left = jnp.array([5, 7]), jnp.array([2, 3])
    >>> shape = (2, 1, 1, 1)
    >>> with_siblings(parent.reshape(shape), left.reshape(shape), jnp.array([False]))[:, 0, :, 0].tolist()
    [[2, 3], [3, 4]]
    """
    was_built = (jnp.arange(2) == 1)[None] == built_right[:, None]
    built, parent = built[:, :, :, None], parent[:, :, :, None]
    b, c, n_nodes, _, f = parent.shape
    children = jnp.where(was_built[None, None, ..., None], built, parent - built)
    # Several read it: it is not to be computed anew for each.
    return lax.optimization_barrier(children.reshape(b, c, 2 * n_nodes, f))


def _check(bins, slot, values, n_slots, n_codes):
    for name, array, allowed in (
        ("bins", bins, (jnp.uint8, jnp.uint16, jnp.uint32)),
        ("slot", slot, (jnp.int32, jnp.uint32)),
        ("values", values, (jnp.int32,)),
    ):
        if array.dtype not in allowed:
            names = " or ".join(jnp.dtype(dtype).name for dtype in allowed)
            raise TypeError(f"{name} must have dtype {names}, got {array.dtype.name}")
    check_size(n_codes, values.shape[1], n_slots, bins.shape[0])


def check_size(n_codes: int, n_statistics: int, n_slots: int, n_features: int) -> None:
    """Raise ValueError for a histogram of 2**31 cells or more."""
    if n_codes * n_statistics * n_slots * n_features >= 2**31:
        raise ValueError(
            f"expected a histogram of fewer than 2**31 cells, got {n_codes} bin codes x {n_statistics} "
            f"statistics x {n_slots} nodes x {n_features} features; use fewer bins, features or levels"
        )
