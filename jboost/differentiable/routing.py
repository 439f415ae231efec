"""Rows on their way through soft trees: the shares with which they go right, the shares of the leaves, the scores."""

from __future__ import annotations

from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt32

from jboost._bins import BinEdges, Binned, read_bins, read_values
from jboost._runtime.typing import WORD, as_array, is_traced, pytree
from jboost._tree import category_words

LEFT, SOFT, RIGHT, CATEGORY = range(
    4
)  # where a slot sends what is not missing: all left, by a sigmoid, all right, by set
LARGEST = 1e15  # spreads from the centre; farther off, values and thresholds are taken to be there


@pytree
class SoftRows:
    """Rows as soft trees read them."""

    value: Float[Array, "f n"]  # in spreads of the feature from its centre; NaN where it is missing
    code: Int[Array, "c n"]  # of the categorical columns; 0 where it is missing or unseen


def feature_units(edges: BinEdges) -> Float[np.ndarray, "f 2"]:
    """Return the centre and the spread of each feature, from its edges: the median, and 0.74 interquartile ranges.

    Edges are quantiles, or lie between values, so that this is about a mean and a standard deviation. A single edge has
    its own magnitude for a spread; a feature without one is not looked at.
    """
    found = np.tile([0.0, 1.0], (edges.n_features, 1))
    for unit, row in zip(found, edges.exact, strict=True):
        known = row[np.isfinite(row)]
        if known.size:
            low, unit[0], high = np.quantile(known, [0.25, 0.5, 0.75])
            unit[1] = (high / 1.349 - low / 1.349) if known.size > 1 else abs(known[0]) or 1.0
    with np.errstate(over="ignore", under="ignore"):
        rounded = found.astype(np.float32)
    if not (np.isfinite(rounded).all() and (rounded[:, 1] > 0).all()):
        j = np.argmin(np.isfinite(rounded).all(axis=1) & (rounded[:, 1] > 0))
        raise ValueError(
            f"model must have edges in the range of float32 to be softened, got {edges.exact[j, :1]} in feature {j}"
        )
    return rounded


def in_units(values: Any, units: Any, numpy: Any = np) -> Any:
    """Return values [f n] in spreads from the centre, given `feature_units` [f 2]."""
    return numpy.clip((values - units[:, :1]) / units[:, 1:], -LARGEST, LARGEST)


def read_rows(edges: BinEdges, unit_bits: UInt32[Array, "f 2"], X: Any, dtype: Any) -> SoftRows:
    """Read raw features, concrete or traced."""
    if isinstance(X, Binned):
        raise TypeError(
            "X must be features as they are for soft trees, got a Binned, which knows their bins alone"
        )
    if isinstance(X, jax.core.Tracer):
        return _traced_rows(edges, unit_bits, X, dtype)
    values, codes = read_values(edges, X)
    if is_traced(unit_bits):
        units = jax.lax.bitcast_convert_type(unit_bits, jnp.float32)
        # In two parts, as the digits beyond those of a float32 may be all that differs between values.
        with np.errstate(over="ignore", invalid="ignore"):  # infinity less infinity
            head = values.astype(np.float32)
            tail = np.nan_to_num((values - head).astype(np.float32))
        head, tail = jax.lax.optimization_barrier((head, tail))  # or they would be added beforehand
        from_centre = head - units[:, :1] + tail
        return SoftRows(in_units(from_centre, units.at[:, 0].set(0), jnp).astype(dtype), as_array(codes))
    units = np.asarray(unit_bits).view(np.float32).astype(np.float64)
    return SoftRows(as_array(in_units(values, units).astype(dtype)), as_array(codes))


def _traced_rows(edges: BinEdges, unit_bits: UInt32[Array, "f 2"], X: Array, dtype: Any) -> SoftRows:
    categorical = np.array(edges.features.categorical, int)
    if categorical.size:
        codes = jnp.asarray(read_bins(edges, X), jnp.int32)[categorical]
    else:
        jax.eval_shape(lambda rows: read_bins(edges, rows), X)  # which checks them
        codes = jnp.zeros((0, X.shape[0]), jnp.int32)
    values = X.T.astype(jnp.promote_types(X.dtype, jnp.float32))
    missing = edges.features.missing
    if missing is not None:
        values = jnp.where(values == np.asarray(missing, values.dtype), jnp.nan, values)
    units = jax.lax.bitcast_convert_type(jnp.asarray(unit_bits), jnp.float32).astype(values.dtype)
    return SoftRows(in_units(values, units, jnp).astype(dtype), codes)


def score_of_rows(soft: Any, rows: SoftRows) -> Float[Array, "n k"]:
    """Sum what the leaves add to each row, each times the row's share of it."""
    columns = soft.edges.features.categorical

    @jax.checkpoint  # or the shares of all trees would be kept for the derivative
    def add(score: Array, one: Any) -> tuple[Array, None]:
        splits, value, weight = one
        shares = shares_of_leaves(splits, rows, soft.temperature, soft.symmetric, columns)
        form = "ln,lk->nk" if shares.ndim == 2 else "kln,lk->nk"
        added = jnp.einsum(form, shares, value * weight, precision=jax.lax.Precision.HIGHEST)
        return score + added, None

    trees = soft.trees
    splits = trees.feature, soft.threshold, soft.kind, trees.missing_right, category_words(trees)
    start = jnp.broadcast_to(soft.base[None], (rows.value.shape[1], soft.n_outputs))
    weight = soft.tree_weight.astype(soft.leaf_value.dtype)
    return jax.lax.scan(add, start, (splits, soft.leaf_value, weight))[0]


def shares_of_leaves(
    splits: tuple[Array, ...],
    rows: SoftRows,
    temperature: Float[Array, ""],
    symmetric: bool,
    columns: tuple[int, ...],
) -> Float[Array, "*k leaves n"]:
    """Return the share of each leaf of a tree in each row; of one tree for each output, if it has an axis of them."""
    if splits[0].ndim == 2:
        return jax.vmap(lambda *one: shares_of_leaves(one, rows, temperature, symmetric, columns))(*splits)
    right = shares_of_right(splits, rows, temperature, columns)
    shares = jnp.ones((1, right.shape[1]), right.dtype)
    depth = right.shape[0] if symmetric else right.shape[0].bit_length()
    for level in range(depth):
        first = level if symmetric else 2**level - 1
        of_level = right[first : first + (1 if symmetric else 2**level)]
        if symmetric:
            of_level = jnp.broadcast_to(of_level, shares.shape)
        both = jnp.stack([shares * (1 - of_level), shares * of_level], axis=1)  # node 2 l and node 2 l + 1
        shares = both.reshape(-1, right.shape[1])
    return shares


def shares_of_right(
    splits: tuple[Array, ...], rows: SoftRows, temperature: Float[Array, ""], columns: tuple[int, ...]
) -> Float[Array, "s n"]:
    """Return the share of each row that goes right at each split."""
    feature, threshold, kind, missing_right, words = splits
    value, kind, missing_right = rows.value[feature], kind[:, None], missing_right[:, None]
    missing = jnp.isnan(value)
    share = jax.nn.sigmoid((jnp.where(missing, 0, value) - threshold[:, None]) / temperature)
    share = jnp.where(kind == SOFT, share, (kind == RIGHT).astype(share.dtype))
    share = jnp.where(missing, missing_right.astype(share.dtype), share)
    if not columns:
        return share
    place = np.zeros(rows.value.shape[0], np.int32)
    place[list(columns)] = np.arange(len(columns))
    code = rows.code[jnp.asarray(place)[feature]]
    word = jnp.take_along_axis(words, code // WORD, axis=1)
    in_set = (word >> (code % WORD).astype(jnp.uint32) & 1).astype(bool)
    return jnp.where(kind == CATEGORY, jnp.where(code == 0, missing_right, in_set).astype(share.dtype), share)
