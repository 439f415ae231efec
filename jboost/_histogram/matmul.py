"""The histogram of `xla.py` as products of matrices, for a TPU, where scattered additions are slow.

With rows in the columns, a feature's histogram is (one-hot codes [b, n]) x (statistics spread over slots [l c, n])^T. A
matrix unit multiplies 8-bit integers exactly, so each statistic is split into four signed digits of base 256 first.
Everything is integer arithmetic modulo 2**32, and a sum that fits in an int32 comes out exactly.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int8, Int32

from jboost._runtime.typing import zeros_varying_like

DIGITS = 4  # of base 256 in an int32
BLOCK_ROWS = 8192  # long enough to keep the matrix unit busy, short enough for the on-chip memory
MAX_BLOCK_CELLS = (
    2**26
)  # bytes of a block's one-hot codes, where a compiler does not fuse them into the product


def signed_digits(values: Int32[Array, "*shape"]) -> Int8[Array, "4 *shape"]:
    """Split integers into digits from -128 to 127, the lowest first: value = sum of digit[k] * 256**k mod 2**32."""
    shifted = values + 0x808080  # 128 in each of the lower three bytes, to be taken off their digits again
    low = [((shifted >> bits) & 255) - 128 for bits in (0, 8, 16)]
    return jnp.stack([*low, shifted >> 24]).astype(jnp.int8)


def from_digits(
    sums: Int32[Array, "4 *shape"] | tuple[Int32[Array, "*shape"], ...],
) -> Int32[Array, "*shape"]:
    """Add up what sums of each digit stand for, modulo 2**32."""
    return sums[0] + (sums[1] << 8) + (sums[2] << 16) + (sums[3] << 24)


def matmul_in_blocks(bins, slot, values, n_slots, n_codes):
    """TPU: one product for all features of a block of rows; the one-hot codes are made on the fly."""
    n_features, n = bins.shape
    n_statistics = values.shape[1]
    if n * n_features == 0:
        return jnp.zeros((n_codes, n_statistics, n_slots, n_features), jnp.int32)
    n_columns = DIGITS * n_statistics * n_slots
    block = min(n, block_rows(max(n_features * n_codes, n_columns)))
    by_statistic = values.T  # rows go last, along the lanes of vector registers
    codes = jnp.arange(n_codes, dtype=jnp.int32)[None, :, None]

    def add_block(number, sums):
        # The last block ends at the last row; what it shares with the block before is ignored there.
        start = jnp.minimum(number * block, n - block)
        is_new = start + jnp.arange(block, dtype=jnp.int32) >= number * block
        rows_slot = jnp.where(is_new, lax.dynamic_slice(slot, (start,), (block,)), n_slots)
        rows_values = lax.dynamic_slice(by_statistic, (0, start), (n_statistics, block))
        rows_bins = lax.dynamic_slice(bins, (0, start), (n_features, block))
        one_hot = (rows_bins[:, None].astype(jnp.int32) == codes).astype(jnp.int8)
        return sums + lax.dot_general(
            one_hot,
            _spread_over_slots(signed_digits(rows_values), rows_slot, n_slots),
            (((2,), (1,)), ((), ())),
            preferred_element_type=jnp.int32,
        )

    sums = zeros_varying_like(slot, (n_features, n_codes, n_columns), jnp.int32)
    sums = lax.fori_loop(0, -(-n // block), add_block, sums)
    sums = sums.reshape(n_features, n_codes, DIGITS, n_statistics, n_slots)
    return from_digits(sums.transpose(2, 1, 3, 4, 0))


def block_rows(width: int) -> int:
    """Rows of a block whose widest matrix has so many entries a row: a power of two that bounds the memory."""
    return min(BLOCK_ROWS, 1 << max(7, (MAX_BLOCK_CELLS // width).bit_length() - 1))


def _spread_over_slots(digits, slot, n_slots):
    """Give each slot its own copy of the digits [d, c, n], zero in the rows of other slots: [d c l, n]."""
    in_slot = slot[None] == jnp.arange(n_slots, dtype=jnp.uint32)[:, None]
    spread = jnp.where(in_slot[None, None], digits[:, :, None], 0)
    return spread.reshape(-1, slot.shape[0])
