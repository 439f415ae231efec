"""Every twin of the histogram against a naive loop, under every transformation that a fit uses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost._fixed_point import find_scale, quantise
from jboost._histogram import build_histogram, joined, matmul, native, xla

INT32_MAX = 2**31 - 1


def naive_histogram(bins, slot, values, n_slots, n_codes):
    out = np.zeros((n_codes, values.shape[1], n_slots, len(bins)), np.int64)
    for i in np.flatnonzero((slot >= 0) & (slot < n_slots)):
        for feature, codes in enumerate(bins):
            for statistic in range(values.shape[1]):
                out[codes[i], statistic, slot[i], feature] += values[i, statistic]
    assert np.abs(out).max(initial=0) <= INT32_MAX  # else the case itself is wrong
    return out.astype(np.int32)


def fast_naive_histogram(bins, slot, values, n_slots, n_codes):
    """The same, for more rows."""
    out = np.zeros((n_codes, values.shape[1], n_slots, len(bins)), np.int64)
    kept = (slot >= 0) & (slot < n_slots)
    for feature, codes in enumerate(bins):
        for statistic in range(values.shape[1]):
            cells = (codes[kept], statistic, slot[kept], feature)
            np.add.at(out, cells, values[kept, statistic])
    return out.astype(np.int32)


TWINS = ["xla-blocks", "xla-copies", "joined", "in-pairs", "matmul", "native"]


@pytest.fixture(params=[*TWINS, pytest.param("public", marks=pytest.mark.slow)])  # here one of the others
def twin(request):
    if request.param == "native":
        native_library.require(native.is_available)
    functions = {
        "xla-blocks": xla.scatter_in_blocks,
        "xla-copies": xla.scatter_into_copies,
        "joined": joined.scatter_joined,
        "in-pairs": partial(joined.scatter_tables, 2),
        "matmul": matmul.matmul_in_blocks,
        "native": native.build_histogram,
        "public": build_histogram,
    }
    return jax.jit(functions[request.param], static_argnums=(3, 4))


def make_case(rng, n, f, n_slots, n_codes, c, dtype=np.uint8) -> Any:
    bins = rng.integers(0, n_codes, (f, n)).astype(dtype)
    slot = rng.integers(0, 2 * n_slots, n).astype(np.uint32)
    values = rng.integers(-INT32_MAX // n, INT32_MAX // n, (n, c), endpoint=True).astype(np.int32)
    return bins, slot, values


# n, f, n_slots, n_codes, c, dtype
SHAPES = {
    "one of each": (1, 1, 1, 16, 1, np.uint8),
    "odd sizes": (301, 3, 5, 77, 2, np.uint8),
    "all codes of a byte": (500, 4, 2, 256, 2, np.uint8),
    "counts": (200, 5, 4, 32, 3, np.uint8),
    "many outputs": (150, 2, 3, 16, 8, np.uint8),
    "odd many outputs": (90, 2, 2, 16, 13, np.uint8),
    "two bytes": (300, 3, 2, 700, 2, np.uint16),
    "two bytes, few codes": (100, 2, 1, 20, 3, np.uint16),
    "no rows": (0, 2, 2, 16, 2, np.uint8),
    "no features": (5, 0, 2, 16, 2, np.uint8),
}


ALIKE = ("counts", "many outputs", "two bytes, few codes")  # others have more of the same


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, marks=pytest.mark.slow if name in ALIKE else ()) for name, shape in SHAPES.items()],
    ids=SHAPES,
)
def test_equals_naive_loop(twin, shape, rng):
    check_against_naive_loop(twin, shape, rng)


@pytest.mark.usefixtures("x64")
def test_equals_naive_loop_with_64_bits(twin, rng):
    check_against_naive_loop(twin, SHAPES["odd sizes"], rng)


def check_against_naive_loop(twin, shape, rng):
    n, f, n_slots, n_codes, c, dtype = shape
    case = make_case(rng, max(n, 1), f, n_slots, n_codes, c, dtype)
    bins, slot, values = case[0][:, :n], case[1][:n], case[2][:n]
    found = twin(bins, slot, values, n_slots, n_codes)
    assert found.dtype == jnp.int32
    np.testing.assert_array_equal(found, naive_histogram(bins, slot, values, n_slots, n_codes))


def test_is_right_for_several_blocks_and_threads(twin, rng):
    # Two million additions: enough for threads. Not a multiple of any block.
    for n, f in ((70_001, 28), (400_003, 1)):
        bins, slot, values = make_case(rng, n, f, 3, 40, 2)
        found = twin(bins, slot, values, 3, 40)
        np.testing.assert_array_equal(found, fast_naive_histogram(bins, slot, values, 3, 40))


@pytest.mark.parametrize("dtype", [np.int32, pytest.param(np.uint32, marks=pytest.mark.slow)])
def test_ignores_rows_without_a_slot(twin, dtype, rng):
    bins, _, values = make_case(rng, 8, 2, 3, 16, 2)
    signed = np.array([0, 3, 4, -1, 2, INT32_MAX, -(2**31), -2], np.int32)
    slot: Any = signed.view(dtype)
    expected = naive_histogram(bins, slot, values, 3, 16)
    assert np.abs(expected).sum() > 0
    np.testing.assert_array_equal(twin(bins, slot.view(np.uint32), values, 3, 16), expected)
    np.testing.assert_array_equal(build_histogram(bins, slot, values, 3, 16), expected)
    np.testing.assert_array_equal(twin(bins, np.full(8, 3, np.uint32), values, 3, 16), 0)


def test_holds_sums_at_the_limits_of_int32(twin):
    """A sum of negative g borrows from no neighbour, whatever the sign of h."""
    least = -INT32_MAX - 1
    for g, h in ((least, INT32_MAX), (INT32_MAX, least), (least, least), (-1, INT32_MAX), (INT32_MAX, -1)):
        steps = np.array([g // 2, h // 2])
        values = np.array([steps, [g, h] - steps, [7, 7]], np.int32)
        bins, slot = np.zeros((1, 3), np.uint8), np.array([0, 0, 1], np.uint32)
        found = twin(bins, slot, values, 2, 16)
        np.testing.assert_array_equal(found[0, :, :, 0], [[g, 7], [h, 7]])
        np.testing.assert_array_equal(found[1:], 0)


def test_a_code_beyond_the_last_does_no_harm(twin, rng):
    """It may be counted anywhere in the histogram of its own feature (the fuzzer watches the memory)."""
    bins, slot, values = make_case(rng, 50, 2, 2, 16, 2)
    expected = naive_histogram(bins, slot, values, 2, 16)
    broken = np.stack([bins[0], np.full(50, 255, np.uint8)])
    np.testing.assert_array_equal(twin(broken, slot, values, 2, 16)[..., 0], expected[..., 0])


@pytest.mark.parametrize(
    "batched",
    [(1, 1), (0, 1), pytest.param((1, 0), marks=pytest.mark.slow)],
    ids=["both", "values", "slot"],
)
def test_vmap_equals_a_loop(twin, batched, rng):
    cases = [make_case(rng, 60, 3, 2, 16, 2) for _ in range(3)]
    slot_is_batched, values_are_batched = batched
    bins = cases[0][0]
    slot = np.stack([case[1] for case in cases]) if slot_is_batched else cases[0][1]
    values = np.stack([case[2] for case in cases]) if values_are_batched else cases[0][2]
    axes = (None, 0 if slot_is_batched else None, 0 if values_are_batched else None)
    found = jax.jit(jax.vmap(lambda *arrays: twin(*arrays, 2, 16), in_axes=axes))(bins, slot, values)
    for i in range(3):
        own = (bins, slot[i] if slot_is_batched else slot, values[i] if values_are_batched else values)
        np.testing.assert_array_equal(found[i], naive_histogram(*own, 2, 16))


def test_nested_vmap_and_batched_bins(twin, rng):
    """Folds (bins) by seeds (slot), values of each pair; a batch that is shared out among threads."""
    bins = rng.integers(0, 16, (4, 2, 40)).astype(np.uint8)
    slot = rng.integers(0, 4, (5, 40)).astype(np.uint32)
    values = rng.integers(-99, 99, (4, 40, 5, 3)).astype(np.int32)
    over_seeds = jax.vmap(lambda *arrays: twin(*arrays, 2, 16), in_axes=(None, 0, 1))
    found = jax.jit(jax.vmap(over_seeds, in_axes=(0, None, 0)))(bins, slot, values)
    for i in range(4):
        for j in range(5):
            np.testing.assert_array_equal(
                found[i, j], naive_histogram(bins[i], slot[j], values[i, :, j], 2, 16)
            )


def test_inside_grad_and_scan(twin, rng):
    """The choice made from a histogram has no derivative; what is computed from the choice has."""
    bins, slot, _ = make_case(rng, 50, 2, 1, 16, 2)
    g = rng.normal(size=(50, 2)).astype(np.float32)

    def loss(rate):
        def step(total, sign):
            integers = quantise(sign * rate * g, find_scale(sign * rate * g).factor)
            sums = twin(bins, slot, integers, 1, 16)[:, 0, 0, 0]
            chosen = bins[0] == jnp.argmax(sums)  # a split, of the sort that a fit makes
            return total + rate**2 * jnp.sum(jnp.where(chosen, g[:, 0], 0.0)), jnp.argmax(sums)

        return jax.lax.scan(step, jnp.float32(0), jnp.array([1.0, -1.0], jnp.float32))

    (value, chosen), slope = jax.jit(jax.value_and_grad(loss, has_aux=True))(jnp.float32(0.5))
    rows = [np.where(slot == 0, g[:, 0] * sign, 0.0) for sign in (1, -1)]
    sums = [np.bincount(bins[0], row, 16) for row in rows]
    np.testing.assert_array_equal(chosen, [np.argmax(s) for s in sums])
    expected = sum(g[bins[0] == np.argmax(s), 0].sum(dtype=np.float64) for s in sums)
    np.testing.assert_allclose([value, slope], [0.25 * expected, expected], rtol=1e-5, atol=1e-6)


def test_gives_the_same_to_several_python_threads(rng):
    native_library.require(native.is_available)
    cases = [make_case(rng, n, 28, 3, 64, 2) for n in (20_000, 30_000, 501, 40_000)]
    expected = [fast_naive_histogram(bins, slot, values, 3, 64) for bins, slot, values in cases]

    def repeat(i):
        bins, slot, values = cases[i]
        return [np.asarray(build_histogram(bins, slot, values, 3, 64)) for _ in range(10)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(repeat, [0, 1, 2, 3] * 2))
    for i, found in enumerate(results):
        for histogram in found:
            np.testing.assert_array_equal(histogram, expected[i % 4])


SEVERAL_DEVICES = """
import jax, numpy as np
from jax.sharding import PartitionSpec as P
from jboost._fixed_point import find_scale, quantise
from jboost._histogram import build_histogram, native_available
assert len(jax.devices()) == 4
rng = np.random.default_rng(0)
bins = rng.integers(0, 64, (7, 4000)).astype(np.uint8)
slot = rng.integers(0, 4, 4000).astype(np.int32)
g = (rng.normal(size=(4000, 2)) ** 5).astype(np.float32)

def one_device(bins, slot, g, reduce=lambda x: x):
    scale = find_scale(g, reduce).factor
    return reduce(build_histogram(bins, slot, quantise(g, scale), 2, 64)), scale

mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
sharded = lambda weight_spec: jax.jit(jax.shard_map(
    lambda *a: one_device(*a, lambda x: jax.lax.psum(x, "rows")), mesh=mesh,
    in_specs=(P(None, "rows"), P("rows"), P("rows")), out_specs=P()))
expected, found = jax.jit(one_device)(bins, slot, g), sharded(P("rows"))(bins, slot, g)
for a, b in zip(expected, found):
    np.testing.assert_array_equal(a, b)

# Arguments that are the same on every device beside some that are not.
by_feature = jax.jit(jax.shard_map(lambda b: build_histogram(b, slot, g.astype(np.int32), 2, 64), mesh=mesh,
    in_specs=P("rows"), out_specs=P(None, None, None, "rows")))
np.testing.assert_array_equal(by_feature(np.tile(bins, (4, 1))),
    np.tile(build_histogram(bins, slot, g.astype(np.int32), 2, 64), (1, 1, 1, 4)))
print("native" if native_available() else "plain")
"""


@pytest.mark.parametrize("kind", ["plain", pytest.param("native", marks=pytest.mark.slow)])
def test_several_devices(kind):
    """Sharded over four CPU devices: the same bits as on one, and JBOOST_NATIVE=0 is obeyed."""
    if kind == "native":
        native_library.require(native.is_available)
    found = native_library.run_script(
        SEVERAL_DEVICES,
        devices=4,
        JBOOST_NATIVE="0" if kind == "plain" else "1",
    )
    assert found == kind


def test_refuses_what_int32_cannot_count():
    bins = jax.ShapeDtypeStruct((1000, 10), jnp.uint16)
    slot, values = jax.ShapeDtypeStruct((10,), jnp.int32), jax.ShapeDtypeStruct((10, 2), jnp.int32)
    with pytest.raises(
        ValueError,
        match=r"fewer than 2\*\*31 cells, got 65535 bin codes x 2 statistics x 32 nodes x 1000 features",
    ):
        jax.eval_shape(partial(build_histogram, n_slots=32, n_codes=65535), bins, slot, values)


@pytest.mark.parametrize(
    ("name", "dtype"), [("bins", np.int32), ("slot", np.float32), ("slot", np.int8), ("values", np.float32)]
)
def test_refuses_other_types(name, dtype):
    arrays = {
        "bins": np.zeros((1, 2), np.uint8),
        "slot": np.zeros(2, np.int32),
        "values": np.zeros((2, 2), np.int32),
    }
    arrays[name] = arrays[name].astype(dtype)
    with pytest.raises(TypeError, match=f"{name} must have dtype .*, got {np.dtype(dtype).name}"):
        build_histogram(**arrays, n_slots=1, n_codes=16)
