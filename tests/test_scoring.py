"""Scores of binned rows: the C++ twin has the bits of the definition, which walks down as documented."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from scoring_cases import Case, Shape, make_case, walk

from jboost._model.scoring import native, sum_rounds, xla

SHAPES = {
    "usual": Shape(),
    "one row": Shape(rows=1),
    "63 rows": Shape(rows=63),
    "64 rows": Shape(rows=64),
    "65 rows": Shape(rows=65),
    "129 rows": Shape(rows=129),
    "several blocks": Shape(rows=2501, rounds=2),
    "many trees": Shape(rows=40, rounds=60),
    "no rounds": Shape(rounds=0),
    "no rows": Shape(rows=0),
    "two codes": Shape(codes=2),
    "256 codes": Shape(codes=256),
    "300 codes": Shape(codes=300),
    "65535 codes": Shape(codes=65535),
    "few codes in 16 bits": Shape(wide=True),
    "one feature": Shape(features=1),
    "many features": Shape(features=700, rounds=30, depth=4),
    "nothing missing": Shape(has_missing=False),
    "categories": Shape(categorical=(0, 3), rounds=6),
    "categories, nothing missing": Shape(categorical=(0, 3), has_missing=False),
    "categories only": Shape(categorical=(0, 1, 2, 3, 4), codes=256, rounds=6),
    "categories in 16 bits": Shape(categorical=(1, 2), codes=400, rounds=6),
    "three outputs": Shape(outputs=3),
    "three outputs, a tree each": Shape(outputs=3, separate=True),
    "a tree each, categories": Shape(outputs=2, separate=True, categorical=(1,), rounds=6),
    "one output, its own tree": Shape(separate=True),
    **{f"depth {depth}": Shape(depth=depth, rows=150) for depth in (1, 2, 4, 5, 6, 7, 8, 9)},
    "depth 7 in 16 bits": Shape(depth=7, wide=True),
    "depth 9, categories": Shape(depth=9, categorical=(2,)),
    "depth 6, three outputs": Shape(depth=6, outputs=3, separate=True),
}
BOTH_WAYS = {
    f"{name}, {growth}": dataclasses.replace(shape, symmetric=symmetric)
    for name, shape in SHAPES.items()
    for growth, symmetric in (("symmetric", True), ("depthwise", False))
}
TABLE = [pytest.param(shape, id=name) for name, shape in BOTH_WAYS.items()]


@partial(jax.jit, static_argnums=(0, 1, 2))
def run(function: Any, layout: Any, symmetric: bool, *arrays: Any) -> jax.Array:
    return function(layout, symmetric, *arrays)


def definition(case: Case) -> np.ndarray:
    return np.asarray(run(xla.sum_all_rounds, case.layout, case.symmetric, *case.arrays))


def in_cpp(case: Case, n_rounds: int | None = None) -> np.ndarray:
    n_rounds = len(case.leaf_value) if n_rounds is None else n_rounds
    return np.asarray(run(native.sum_rounds, case.layout, case.symmetric, *case.arrays, n_rounds))


def assert_same_bits(found: Any, expected: np.ndarray) -> None:
    found = np.asarray(found)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    bits = f"u{expected.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(bits), expected.view(bits))


# Either way of growth of every shape, each in one precision: the next shape has them the other way round.
# Of the four ways there are each shape is quick in one, in turn.
IN_PRECISIONS = [
    pytest.param(
        dataclasses.replace(shape, dtype=np.float64 if i % 4 in (1, 2) else np.float32),
        id=one.id,
        marks=() if i % 8 in (0, 3, 5, 6) else pytest.mark.slow,
    )
    for i, (one, shape) in enumerate((one, cast(Any, one.values[0])) for one in TABLE)
]


@pytest.mark.parametrize("shape", IN_PRECISIONS)
def test_same_bits_as_the_definition(shape, rng):
    native_library.require(native.is_available)
    with jax.enable_x64(shape.dtype is np.float64):
        case = make_case(shape, rng)
        expected = definition(case)
        assert_same_bits(in_cpp(case), expected)
    if expected.size and shape.rounds:
        assert (expected != case.score).any()


@pytest.mark.parametrize("shape", TABLE[:: 5 if len(TABLE) % 5 else 7])
@pytest.mark.parametrize("twin", ["definition", "C++"])
def test_rows_go_where_the_arrays_say(twin, shape, rng):
    if twin == "C++":
        native_library.require(native.is_available)
    case = make_case(dataclasses.replace(shape, rows=min(shape.rows, 70)), rng)
    assert_same_bits(definition(case) if twin == "definition" else in_cpp(case), walk(case))


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("n_rounds", [0, 1, 4, 5])
def test_adds_the_first_rounds_only(symmetric, n_rounds, rng):
    case = make_case(Shape(rounds=5, rows=30, symmetric=symmetric), rng)
    expected = walk(case, n_rounds)
    for function in (sum_rounds, xla.sum_first_rounds):
        assert_same_bits(run(function, case.layout, symmetric, *case.arrays, n_rounds), expected)


def test_thresholds_at_the_ends(rng):
    """Below every code, at the last one, beyond it; each with missing values on either side."""
    native_library.require(native.is_available)
    for wide, has_missing in ((False, True), (True, True), (False, False)):
        case = make_case(Shape(rounds=40, codes=256, wide=wide, has_missing=has_missing), rng)
        ends = np.array([-5, -1, 0, 1, 254, 255, 256, 65535, 70000])
        threshold = rng.choice(ends, case.trees.threshold.shape).astype(np.int32)
        case = dataclasses.replace(case, trees=dataclasses.replace(case.trees, threshold=threshold))
        assert_same_bits(in_cpp(case), definition(case))


def test_several_threads_give_the_same(rng):
    """Enough work for every thread, in blocks of which the last is not full."""
    native_library.require(native.is_available)
    case = make_case(Shape(rows=50_003, rounds=20, depth=6, features=10, codes=256), rng)
    assert_same_bits(in_cpp(case), definition(case))


@pytest.mark.parametrize("batched", ["all", "rows", "model", "rounds"])
def test_vmap_equals_a_loop(batched, rng):
    cases = [make_case(Shape(rows=70, outputs=2, symmetric=False, categorical=(1,)), rng) for _ in range(3)]
    layout, symmetric = cases[0].layout, False
    n_rounds = np.array([1, 3, 2], np.int32)
    in_batch = {"all": (0, 0, 0, 0), "rows": (None, None, 0, 0), "model": (0, 0, None, None)}.get(batched)
    axes = (*(in_batch or (None,) * 4), 0 if batched == "rounds" else None)
    stacked = jax.tree.map(lambda *fields: np.stack(fields), *(case.arrays for case in cases))
    alone = [
        (*(cases[i if axis == 0 else 0].arrays[j] for j, axis in enumerate(axes[:4])),) for i in range(3)
    ]
    arrays = [stacked[j] if axes[j] == 0 else cases[0].arrays[j] for j in range(4)]
    rounds: Any = n_rounds if batched == "rounds" else np.int32(3)
    mapped = jax.vmap(partial(sum_rounds, layout, symmetric), in_axes=axes)
    found = jax.jit(mapped)(*arrays, rounds)
    for i in range(3):
        one = rounds[i] if batched == "rounds" else rounds
        expected = run(xla.sum_first_rounds, layout, symmetric, *alone[i], one)
        assert_same_bits(found[i], np.asarray(expected))


@pytest.mark.parametrize("shape", [Shape(rows=40), Shape(rows=40, outputs=2, separate=True, symmetric=False)])
def test_derivatives_are_those_of_the_definition(shape, rng, x64):
    case = make_case(dataclasses.replace(shape, dtype=np.float64), rng)
    trees, leaf_value, bins, score = jax.tree.map(jnp.asarray, case.arrays)
    weight = rng.normal(size=score.shape)

    def loss(function, leaf_value, score):
        out = function(case.layout, case.symmetric, trees, leaf_value, bins, score)
        return jnp.sum(weight * out**2)

    for derivative in (partial(jax.grad, argnums=(1, 2)), partial(jax.jacfwd, argnums=(1, 2))):
        found, expected = (
            jax.jit(derivative(loss), static_argnums=0)(f, leaf_value, score)
            for f in (sum_rounds, xla.sum_all_rounds)
        )
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    change, step = rng.normal(size=leaf_value.shape), 1e-6
    both = jax.jit(jax.value_and_grad(partial(loss, sum_rounds)))
    ahead, behind = (both(leaf_value + sign * step * change, score)[0] for sign in (1, -1))
    slope = np.sum(both(leaf_value, score)[1] * change)
    np.testing.assert_allclose((ahead - behind) / (2 * step), slope, rtol=1e-6)


def test_derivative_by_a_batch_of_leaf_values(rng):
    case = make_case(Shape(rows=40), rng)
    trees, leaf_value, bins, score = jax.tree.map(jnp.asarray, case.arrays)
    batch = np.stack([leaf_value, 2 * leaf_value, -leaf_value])

    def total(function, leaf_value):
        return jnp.sum(jnp.sin(function(case.layout, True, trees, leaf_value, bins, score)))

    found, expected = (
        jax.jit(jax.vmap(jax.grad(partial(total, f))))(batch) for f in (sum_rounds, xla.sum_all_rounds)
    )
    np.testing.assert_array_equal(found, expected)
    assert np.abs(expected).max() > 0.1


def test_rounds_that_are_left_out_have_no_derivative(rng):
    case = make_case(Shape(rows=40, rounds=3), rng)
    trees, leaf_value, bins, score = jax.tree.map(jnp.asarray, case.arrays)
    by_leaf = jax.jacfwd(lambda value, n: sum_rounds(case.layout, True, trees, value, bins, score, n).sum())
    slope = np.asarray(jax.jit(by_leaf)(leaf_value, 2))
    np.testing.assert_array_equal(slope[2], 0)
    np.testing.assert_array_equal(slope[:2].sum(axis=1), 40)  # every row has one leaf a round


@pytest.mark.parametrize("dtype", [np.int32, np.float16])
def test_other_types_go_through_plain_jax(dtype, rng):
    case = make_case(Shape(rows=20), rng)
    trees, leaf_value, bins, score = jax.tree.map(jnp.asarray, case.arrays)
    if dtype == np.int32:
        bins = bins.astype(dtype)
    else:
        leaf_value, score = leaf_value.astype(dtype), score.astype(dtype)
    arrays = (trees, leaf_value, bins, score)
    found = run(sum_rounds, case.layout, True, *arrays)
    np.testing.assert_array_equal(found, run(xla.sum_all_rounds, case.layout, True, *arrays))


SEVERAL_DEVICES = """
import sys; sys.path.insert(0, "tests")
import jax, numpy as np
from functools import partial
from jax.sharding import PartitionSpec as P
from jboost._model.scoring import native, sum_rounds, xla
from scoring_cases import Shape, make_case

case = make_case(Shape(rows=400, outputs=2, symmetric=False), np.random.default_rng(0))
mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
for function in (sum_rounds, xla.sum_all_rounds):
    expected = jax.jit(partial(function, case.layout, False))(*case.arrays)
for spec in (P("rows"), P()):  # scores of each device, or scores that all share beside rows of their own
    score = case.score if spec == P("rows") else case.score[:100] * 0
    start = case.score if spec == P("rows") else case.score * 0
    expected = jax.jit(partial(xla.sum_all_rounds, case.layout, False))(*case.arrays[:3], start)
    by_rows = jax.shard_map(partial(sum_rounds, case.layout, False), mesh=mesh,
        in_specs=(P(), P(), P(None, "rows"), spec), out_specs=P("rows"))
    np.testing.assert_array_equal(jax.jit(by_rows)(*case.arrays[:3], score), expected)
print("native" if native.is_available() else "plain")
"""


@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.slow), "native"])
def test_several_devices(kind):
    """Sharded over four CPU devices: the same bits as on one."""
    if kind == "native":
        native_library.require(native.is_available)
    found = native_library.run_script(SEVERAL_DEVICES, devices=4, JBOOST_NATIVE="01"[kind == "native"])
    assert found == kind


def test_refuses_shapes_that_disagree(rng):
    native_library.require(native.is_available)
    case = make_case(Shape(), rng)
    trees, leaf_value, bins, score = jax.tree.map(jnp.asarray, case.arrays)
    for arrays in (
        (trees, leaf_value[:, :4], bins, score),
        (trees, leaf_value, bins[:, 1:], score),
        (trees, leaf_value[:2], bins, score),
        (trees, leaf_value[:, :, [0, 0]], bins, score),
        (dataclasses.replace(trees, threshold=trees.threshold[:, :1]), leaf_value, bins, score),
    ):
        with pytest.raises(jax.errors.JaxRuntimeError, match="jboost scoring: shapes disagree"):
            jax.block_until_ready(run(native.sum_rounds, case.layout, True, *arrays, 3))
