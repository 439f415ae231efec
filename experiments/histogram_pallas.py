"""A candidate for a GPU that fit does not use: the histogram as products on tensor cores, in Pallas.

With code = 16 * high + low, the histogram of a feature is, for each digit of each statistic,
one-hot(slot, high) [m, n] x (one-hot(low) * digit) [n, 16]: exact products of 8-bit integers, and no atomic additions.
The work grows with the number of slots, so it can pay in the upper levels of a tree only.
`experiments/histogram_gpu.py` measures it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from jboost._histogram.matmul import DIGITS, from_digits, signed_digits

LOW_BITS = 4
LOW = 1 << LOW_BITS  # codes told apart by the low digit: the narrowest product
MAX_KEYS = 128  # pairs of slot and high digit of one program: its sums stay in registers
BLOCK_ROWS = 128
PROGRAMS = 2048  # enough to fill the largest GPUs several times over
MAX_PART_ROWS = 2**23  # of one program: tensor cores saturate, and so many digits of 128 stay within an int32


def build_histogram(bins, slot, values, n_slots, n_codes, interpret=False):
    """Do what `xla.scatter_in_blocks` does; with `interpret`, on any platform and slowly."""
    n_features, n = bins.shape
    n_statistics = values.shape[1]
    if n * n_features == 0:
        return jnp.zeros((n_codes, n_statistics, n_slots, n_features), jnp.int32)
    high = -(-n_codes // LOW)
    keys = min(MAX_KEYS, pl.next_power_of_2(max(LOW, n_slots * high)))
    groups = -(-n_slots * high // keys)
    blocks = -(-n // BLOCK_ROWS)
    fill = min(blocks, PROGRAMS // (n_features * groups * n_statistics))
    parts = max(-(-n // MAX_PART_ROWS), fill)
    kernel = partial(
        _add_rows, n_rows=n, n_codes=n_codes, ignored=n_slots, groups=groups, blocks=-(-blocks // parts)
    )
    parts_of_sums = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((n_features, parts, n_statistics * groups, keys, LOW), jnp.int32),
        grid=(n_features, parts, n_statistics * groups),
        out_specs=pl.BlockSpec((None, None, None, keys, LOW), lambda i, j, k: (i, j, k, 0, 0)),
        compiler_params=triton.CompilerParams(num_warps=4),
        interpret=interpret,
    )(bins, jnp.minimum(slot, n_slots).astype(jnp.int32), signed_digits(values.T).reshape(-1, n))
    sums = parts_of_sums.sum(axis=1, dtype=jnp.int32).reshape(n_features, n_statistics, groups * keys * LOW)
    sums = sums[..., : n_slots * high * LOW].reshape(n_features, n_statistics, n_slots, high * LOW)
    return sums[..., :n_codes].transpose(3, 1, 2, 0)


def _add_rows(
    bins: Any,
    slot: Any,
    digits: Any,
    out: Any,
    *,
    n_rows: int,
    n_codes: int,
    ignored: int,
    groups: int,
    blocks: int,
) -> None:
    """Sum one statistic of one feature over one part of the rows, for the keys of one group."""
    feature, part, column = pl.program_id(0), pl.program_id(1), pl.program_id(2)
    statistic, group = column // groups, column % groups
    n_keys, n_low = out.shape
    n_statistics = digits.shape[0] // DIGITS
    high = -(-n_codes // n_low)
    keys = group * n_keys + jnp.arange(n_keys, dtype=jnp.int32)
    lows = jnp.arange(n_low, dtype=jnp.int32)

    def add_block(number: Any, sums: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = pl.ds((part * blocks + number) * BLOCK_ROWS, BLOCK_ROWS)
        exists = rows.start + jnp.arange(BLOCK_ROWS, dtype=jnp.int32) < n_rows
        load = partial(triton.load, mask=exists)
        code = jnp.minimum(load(bins.at[feature, rows], other=0).astype(jnp.int32), n_codes - 1)
        key = load(slot.at[rows], other=ignored) * high + (code >> LOW_BITS)
        by_key = (keys[:, None] == key[None, :]).astype(jnp.int8)
        is_low = (code & LOW - 1)[:, None] == lows[None, :]
        spread = (
            jnp.where(is_low, load(digits.at[row, rows], other=0).astype(jnp.int32)[:, None], 0)
            for row in (k * n_statistics + statistic for k in range(DIGITS))
        )
        return tuple(
            own + jnp.dot(by_key, digit.astype(jnp.int8), preferred_element_type=jnp.int32)
            for own, digit in zip(sums, spread, strict=True)
        )

    zeros = tuple(jnp.zeros((n_keys, n_low), jnp.int32) for _ in range(DIGITS))
    out[...] = from_digits(lax.fori_loop(0, blocks, add_block, zeros))
