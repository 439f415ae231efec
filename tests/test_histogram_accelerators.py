"""What is particular to the histograms for GPUs and TPUs; that they equal the definition is in test_histogram.py."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.extend.backend
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from experiments import histogram_pallas
from jboost._histogram import build_histogram, joined, matmul, xla

ROOT = Path(__file__).parent.parent


def make_case(rng, n, f, n_slots, n_codes, dtype=np.uint8):
    bins = rng.integers(0, n_codes, (f, n)).astype(dtype)
    slot = rng.integers(0, 2 * n_slots, n).astype(np.uint32)
    values = rng.integers(-(2**31) // n, 2**31 // n, (n, 2)).astype(np.int32)
    return bins, slot, values


def bincounts(bins, slot, values, n_slots, n_codes):
    """One bincount of each feature and statistic, in floats that hold these integers exactly."""
    kept = slot < n_slots
    cell = bins[:, kept].astype(np.int64) * n_slots + slot[kept].astype(np.int64)[None]
    sums = [[np.bincount(row, column, n_codes * n_slots) for row in cell] for column in values[kept].T]
    table = np.array(sums).reshape(values.shape[1], len(bins), n_codes, n_slots)
    return table.transpose(2, 0, 3, 1).astype(np.int32)


# ------------------------------------------------------------------------------------------------ digits


def test_digits_of_every_size_stand_for_their_integer():
    """Compared in Python integers: below 2**31 the sum of digits is the integer modulo 2**32."""
    edges = [0, 1, 127, 128, 129, 255, 256, 2**15, 2**23 - 1, 2**23, 2**30, 2**31 - 129, 2**31 - 1]
    integers = np.array([*edges, *(-x for x in edges), -(2**31)], np.int32)
    digits = np.asarray(matmul.signed_digits(jnp.asarray(integers)))
    assert digits.dtype == np.int8
    for integer, own in zip(integers.tolist(), digits.T.tolist(), strict=True):
        assert (sum(digit * 256**k for k, digit in enumerate(own)) - integer) % 2**32 == 0
    np.testing.assert_array_equal(matmul.from_digits(jnp.asarray(digits, jnp.int32)), integers)


def test_sums_of_digits_may_wrap_around(rng):
    """Sums that need 45 bits, of which an int32 keeps the lowest 32, give the total if that fits."""
    for total in (0, -1, 2**31 - 1, -(2**31), *rng.integers(-(2**31), 2**31, 20).tolist()):
        high = [int(x) for x in rng.integers(-(2**44), 2**44, 3)]
        sums = [total - sum(part * 256**k for k, part in enumerate(high, 1)), *high]
        wrapped = np.array([(part + 2**31) % 2**32 - 2**31 for part in sums], np.int32)
        assert int(matmul.from_digits(jnp.asarray(wrapped))) == total


def test_large_values_cancel_across_blocks():
    n = 300_001
    values = np.where(np.arange(n) % 2 == 0, 2**30 + 127, -(2**30) - 126).astype(np.int32)[:, None]
    bins, slot = np.zeros((1, n), np.uint8), np.zeros(n, np.uint32)
    found = jax.jit(matmul.matmul_in_blocks, static_argnums=(3, 4))(bins, slot, values, 1, 16)
    assert found[0, 0, 0, 0] == int(values.sum(dtype=np.int64)) == 150_000 + 2**30 + 127


def test_blocks_of_a_product_are_bounded():
    """The widest matrix stays within the bound, until a block of 128 rows alone exceeds it."""
    assert matmul.block_rows(1) == matmul.BLOCK_ROWS == matmul.block_rows(28 * 256)
    for width in (2**14, 2**16 + 1, 2**19):
        rows = matmul.block_rows(width)
        assert matmul.MAX_BLOCK_CELLS / 2 < rows * width <= matmul.MAX_BLOCK_CELLS
    assert matmul.block_rows(2**30) == 128


def test_products_over_many_slots_and_short_blocks(rng):
    """2,500 features make the shortest blocks, of 128 rows; 200 slots make the matrix of values the wider one."""
    for n, f, n_slots in ((1000, 2500, 1), (9001, 2, 200)):
        case = make_case(rng, n, f, n_slots, 256)
        found = jax.jit(matmul.matmul_in_blocks, static_argnums=(3, 4))(*case, n_slots, 256)
        np.testing.assert_array_equal(found, bincounts(*case, n_slots, 256))


# ------------------------------------------------------------------------------------------------ joined


@pytest.mark.parametrize(
    ("n_features", "k"), [(7, 2), (8, 2), (7, 3), (8, 3), (9, 3), (1, 2)], ids=lambda x: str(x)
)
def test_joined_features_whatever_is_left_over(n_features, k, rng):
    case = make_case(rng, 3000, n_features, 3, 16)
    found = jax.jit(partial(joined.scatter_tables, k), static_argnums=(3, 4))(*case, 3, 16)
    np.testing.assert_array_equal(found, bincounts(*case, 3, 16))


def test_joining_follows_from_the_shapes():
    million = partial(joined.features_per_table, 2**20, 28, 2)
    assert [million(16, n_codes) for n_codes in (16, 32, 64, 96, 256)] == [3, 2, 2, 1, 1]
    assert million(512, 64) == 1  # the tables would not stay in the cache
    assert joined.features_per_table(10_000, 28, 2, 1, 64) == 2
    assert joined.features_per_table(10_000, 28, 2, 16, 64) == 1  # more cells than additions saved
    assert joined.features_per_table(2**20, 1, 2, 1, 16) == 1
    assert joined.features_per_table(0, 28, 2, 1, 16) == joined.features_per_table(9, 0, 2, 1, 16) == 1


def test_joined_features_leave_bad_codes_to_their_own_feature(rng):
    bins, slot, values = make_case(rng, 200, 4, 2, 16)
    expected = bincounts(bins, slot, values, 2, 16)
    for broken in range(4):
        damaged = bins.copy()
        damaged[broken, ::3] = 255
        found = jax.jit(partial(joined.scatter_tables, 2), static_argnums=(3, 4))(
            damaged, slot, values, 2, 16
        )
        others = [feature for feature in range(4) if feature != broken]
        np.testing.assert_array_equal(found[..., others], expected[..., others])


def test_skewed_codes(rng):
    """Nearly all rows in one cell, as with a mostly empty column."""
    bins, slot, values = make_case(rng, 20_000, 5, 2, 32)
    bins[:, rng.random(20_000) < 0.99] = 1
    assert joined.features_per_table(20_000, 5, 2, 2, 32) == 2
    found = jax.jit(joined.scatter_joined, static_argnums=(3, 4))(bins, slot, values, 2, 32)
    np.testing.assert_array_equal(found, bincounts(bins, slot, values, 2, 32))


# ------------------------------------------------------------------------------------------------ Pallas


@pytest.mark.parametrize(
    ("n", "f", "n_slots", "n_codes", "dtype"),
    [
        (1, 1, 1, 16, np.uint8),
        (301, 3, 5, 77, np.uint8),
        (1000, 4, 16, 256, np.uint8),  # more keys than one program holds
        (300, 3, 2, 700, np.uint16),
    ],
)
def test_pallas_interpreted(n, f, n_slots, n_codes, dtype, rng):
    case = make_case(rng, n, f, n_slots, n_codes, dtype)
    build = partial(histogram_pallas.build_histogram, interpret=True)
    found = jax.jit(build, static_argnums=(3, 4))(*case, n_slots, n_codes)
    np.testing.assert_array_equal(found, bincounts(*case, n_slots, n_codes))


def test_pallas_is_imported_by_those_who_ask():
    """A fit does not use it."""
    code = "import sys, jboost; print(*(name for name in sys.modules if 'pallas' in name))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"jax.experimental.pallas"} & set(done.stdout.split())


# ---------------------------------------------------------------------------------------------- platforms


@pytest.fixture
def every_platform(monkeypatch):
    """Make JAX believe that this process has all three platforms: enough to lower a program, not to run it."""
    monkeypatch.setattr(jax.extend.backend, "backends", lambda: {"cpu": None, "tpu": None, "cuda": None})


@pytest.mark.usefixtures("every_platform")
@pytest.mark.parametrize(("platform", "operation"), [("tpu", "dot_general"), ("cuda", "scatter")])
def test_each_platform_gets_its_own(platform, operation):
    shapes = (
        jax.ShapeDtypeStruct((4, 3000), jnp.uint8),
        jax.ShapeDtypeStruct((3000,), jnp.uint32),
        jax.ShapeDtypeStruct((3000, 2), jnp.int32),
    )
    # Wrapped anew, so that no trace for the CPU alone is found in a cache.
    build = partial(inspect.unwrap(build_histogram), n_slots=2, n_codes=48)
    program = jax.jit(build).trace(*shapes).lower(lowering_platforms=(platform,)).as_text()
    found = [name for name in ("dot_general", "scatter") if f"stablehlo.{name}" in program]
    assert found == [operation]


SEVERAL_DEVICES = """
import sys
from functools import partial
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from jboost._histogram import joined, matmul, xla
assert len(jax.devices()) == 4
rng = np.random.default_rng(0)
bins = rng.integers(0, 32, (7, 4000)).astype(np.uint8)
slot = rng.integers(0, 4, 4000).astype(np.uint32)
values = rng.integers(-99, 99, (4000, 2)).astype(np.int32)
expected = xla.scatter_in_blocks(bins, slot, values, 2, 32)
mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
for build in (joined.scatter_joined, partial(joined.scatter_tables, 2), matmul.matmul_in_blocks):
    found = jax.jit(jax.shard_map(lambda *a: jax.lax.psum(build(*a, 2, 32), "rows"), mesh=mesh,
        in_specs=(P(None, "rows"), P("rows"), P("rows")), out_specs=P()))(bins, slot, values)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(expected).sum() > 0
print("same")
"""


def test_several_devices():
    assert native_library.run_script(SEVERAL_DEVICES, devices=4) == "same"


def test_the_oracle_of_this_file_agrees_with_the_definition(rng):
    case = make_case(rng, 400, 3, 2, 20)
    np.testing.assert_array_equal(xla.scatter_in_blocks(*case, 2, 20), bincounts(*case, 2, 20))
