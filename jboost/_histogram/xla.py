"""The definition of a histogram in plain JAX: the oracle of every fast twin, and what runs without one.

A scatter-add, arranged for the machine it runs on. On a CPU it is bound by the cache, so rows come in blocks
that stay there while every feature reads them. On a GPU it is bound by atomic additions to the same address,
so each histogram exists in several copies that different rows add to, summed afterwards.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from jboost._runtime.typing import zeros_varying_like

BLOCK_ROWS = 16_384  # slots and values of a block (192 KiB for g and h) stay in the second-level cache
CELLS_FOR_ATOMICS = 256  # copies times slots: enough addresses per bin that atomic additions rarely meet
ROWS_PER_COPY = 256  # fewer rows than this, or than codes, are not worth zeroing and summing one more copy
MAX_COPIED_CELLS = 2**24  # 64 MiB of copies


def scatter_in_blocks(bins, slot, values, n_slots, n_codes):
    """CPU: add one feature of one block of rows at a time, in place."""
    n_features, n = bins.shape
    n_statistics = values.shape[1]
    if n * n_features == 0:
        return jnp.zeros((n_codes, n_statistics, n_slots, n_features), jnp.int32)
    block = min(BLOCK_ROWS, n)
    cells = (
        n_slots + 1
    ) * n_codes  # of a feature; the extra slot swallows what is ignored, cheaper than a branch

    def add_block(number, histogram):
        # The last block ends at the last row; what it shares with the block before is ignored there.
        start = jnp.minimum(number * block, n - block)
        is_new = start + jnp.arange(block, dtype=jnp.int32) >= number * block
        rows_slot = lax.dynamic_slice(slot, (start,), (block,)).astype(jnp.uint32)
        rows_slot = jnp.where(is_new, jnp.minimum(rows_slot, n_slots), n_slots)
        rows_values = lax.dynamic_slice(values, (start, 0), (block, n_statistics))

        def add_feature(feature, histogram):
            code = lax.dynamic_slice(bins, (feature, start), (1, block))[0].astype(jnp.uint32)
            cell = feature.astype(jnp.uint32) * cells + rows_slot * n_codes + code
            return histogram.at[cell].add(rows_values, mode="promise_in_bounds")

        return lax.fori_loop(0, n_features, add_feature, histogram)

    histogram = zeros_varying_like(slot, (n_features * cells, n_statistics), jnp.int32)
    histogram = lax.fori_loop(0, -(-n // block), add_block, histogram)
    histogram = histogram.reshape(n_features, n_slots + 1, n_codes, n_statistics)[:, :n_slots]
    return histogram.transpose(2, 3, 1, 0)


def scatter_into_copies(bins, slot, values, n_slots, n_codes, max_copied_cells=MAX_COPIED_CELLS):
    """GPU: one scatter of everything, row i into copy i mod copies."""
    n_features, n = bins.shape
    n_statistics = values.shape[1]
    cells = n_slots * n_codes * n_statistics * n_features
    rows_per_copy = max(ROWS_PER_COPY, n_codes)
    copies = max(1, min(CELLS_FOR_ATOMICS // n_slots, n // rows_per_copy, max_copied_cells // max(cells, 1)))
    # Row i adds to copy i mod copies; a cell beyond the last is dropped. Rows without a slot are not sorted out first:
    # lighter children are so by the sum of h, which bounds the number of their rows by nothing smaller than n.
    copy = jnp.arange(n, dtype=jnp.uint32) % copies
    feature = jnp.arange(n_features, dtype=jnp.uint32)[:, None]
    table = copy[None] * n_features + feature
    cell = (table * n_slots + slot[None]) * n_codes + bins.astype(jnp.uint32)
    n_cells = copies * n_features * n_slots * n_codes
    cell = jnp.where(slot[None] < n_slots, cell, n_cells)
    histogram = jnp.zeros((n_cells, n_statistics), jnp.int32).at[cell].add(values, mode="drop")
    histogram = histogram.reshape(copies, n_features, n_slots, n_codes, n_statistics)
    return histogram.sum(axis=0, dtype=jnp.int32).transpose(2, 3, 1, 0)
