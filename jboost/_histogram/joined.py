"""Histograms of joined features, for a GPU: several features with few codes share one addition per row.

A GPU's histogram is bound by the number of atomic additions. Two features of 64 codes are one feature of 4096 codes:
half as many additions, after which each feature's histogram is a sum over the codes of the other.
"""

from __future__ import annotations

import jax.numpy as jnp

from jboost._histogram.xla import scatter_into_copies

MAX_JOINED_CODES = 4096  # two features of 64 codes, three of 16
MAX_COPIED_CELLS = 2**22  # 16 MiB: tables and copies together stay in the cache that does the additions


def scatter_joined(bins, slot, values, n_slots, n_codes):
    """GPU: join as many features as pays."""
    n_features, n = bins.shape
    k = features_per_table(n, n_features, values.shape[1], n_slots, n_codes)
    if k == 1:
        return scatter_into_copies(bins, slot, values, n_slots, n_codes)
    return scatter_tables(k, bins, slot, values, n_slots, n_codes)


def scatter_tables(k, bins, slot, values, n_slots, n_codes, max_copied_cells=MAX_COPIED_CELLS):
    """Build the histograms of the joint codes of each k features, then sum out the other features of each table."""
    joint = _join(bins, k, n_codes)
    tables = scatter_into_copies(joint, slot, values, n_slots, n_codes**k, max_copied_cells)
    tables = tables.reshape(*[n_codes] * k, values.shape[1], n_slots, len(joint))
    positions = range(k)
    marginals = [
        tables.sum(axis=tuple(other for other in positions if other != own), dtype=jnp.int32)
        for own in positions
    ]
    histogram = jnp.stack(marginals, axis=-1).reshape(n_codes, values.shape[1], n_slots, len(joint) * k)
    return histogram[..., : len(bins)]


def features_per_table(n: int, n_features: int, n_statistics: int, n_slots: int, n_codes: int) -> int:
    """Say how many features to join, from the shapes alone.

    `n_codes` bounds the codes of every feature, so that the program depends on no data. A joined table is zeroed
    and summed, which must cost less than the additions that it saves: it may have no more cells than those.
    """

    def pays(k: int) -> bool:
        n_tables = -(-n_features // k)
        cells = n_tables * n_codes**k * n_slots * n_statistics
        return n_codes**k <= MAX_JOINED_CODES and cells <= min(MAX_COPIED_CELLS, n * (n_features - n_tables))

    k = 1
    while k < n_features and pays(k + 1):
        k += 1
    return k


def _join(bins, k, n_codes):
    """Make one joint code [f / k, n] of each k features; the last table is filled up with code 0."""
    n_features, n = bins.shape
    codes = jnp.minimum(bins, n_codes - 1)  # one beyond the last must not move its neighbours
    codes = (
        jnp.pad(codes, ((0, -n_features % k), (0, 0))).reshape(-(-n_features // k), k, n).astype(jnp.uint32)
    )
    joint = codes[:, 0]
    for position in range(1, k):
        joint = joint * n_codes + codes[:, position]
    return joint
