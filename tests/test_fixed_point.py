"""Sums by group in fixed point: exact beyond the floats, and the same bits in any order, in parts and in C++."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jboost._fixed_point import count_by_group, find_scale, moments_by_group, native, sum_by_group, total
from jboost._fixed_point.quantise import find_scale_in_jax
from jboost._fixed_point.sums import counts_in_jax, moments_in_jax, sums_in_jax

GROUPS = 5
PLAIN = partial(sum_by_group, reduce=lambda x: x)  # whoever reduces does so in plain JAX


@functools.cache  # so that the same shapes are the same program
def by_group(function: Callable = sum_by_group) -> Callable:
    return jax.jit(lambda values, group: function(values, group, GROUPS))


def draw_group(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, GROUPS, n).astype(np.int32)


def draw_columns(rng: np.random.Generator, n: int, dtype: type) -> np.ndarray:
    """Columns of every kind, [n 10]."""
    one = np.arange(n) == rng.integers(n)
    normal = rng.normal(size=(10, n))
    columns = [
        normal[0],
        normal[1] * 10.0 ** rng.integers(-30, 20, n),
        np.zeros(n),
        np.where(one, np.nan, normal[2]),
        np.where(one, np.inf, normal[3]),
        np.where(one, -np.inf, normal[4]),
        normal[5] * (1e-38 if dtype is np.float32 else 1e-310),  # some are subnormal
        np.where(rng.random(n) < 0.9, 0, normal[6] * 1e30),
        np.where(one, 1e37 if dtype is np.float32 else 1e306, normal[7]),
        -np.abs(normal[8]),
    ]
    return np.stack(columns, axis=1).astype(dtype)


def error_bound(column: np.ndarray, n_rows: int) -> float:
    """What the sum of some rows of a column may be wrong by, before it becomes a float."""
    bits = min(31 - math.ceil(math.log2(max(np.count_nonzero(column), 1))), 30)
    finer = bits if column.dtype == np.float32 else 2 * bits
    exponent = int(np.finfo(column.dtype).maxexp) - 1
    magnitude = math.fsum(np.abs(column.astype(np.float64)))
    return n_rows * max(magnitude * 2.0**-30, 2.0**-exponent) * 2.0**-finer


def check_sums(found: np.ndarray, values: np.ndarray, group: np.ndarray) -> None:
    """Hold them against exact sums."""
    info = np.finfo(values.dtype)
    for j, column in enumerate(values.T):
        for i in range(GROUPS):
            rows = column[group == i].astype(np.float64)
            exact = math.fsum(rows)
            bound = error_bound(column, rows.size) + 2 * float(info.eps) * abs(exact) + float(info.tiny)
            assert abs(float(found[i, j]) - exact) <= bound, (i, j)


# ------------------------------------------------------------------------------------------------- twins


def twin_sums(twin: Callable, group: Any, n_groups: int, values: Any, factor: Any, count: Any) -> Any:
    return twin(values, group, factor, count, n_groups=n_groups)


@pytest.mark.parametrize(("n", "c"), [(1, 1), (2, 2), (7, 3), (4097, 20), (30_000, 1)])
def test_twins_give_the_same_bits(n, c, precision, rng):
    native_library.require(native.scale_available)
    native_library.require(native.sums_available)
    group = draw_group(rng, n)

    def check(twins: list[Callable], *arguments: Any) -> Any:
        expected, found = (twin(*arguments) for twin in twins)
        for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(other, one)
        return expected

    scales = [jax.jit(twin) for twin in (find_scale_in_jax, native.find_scale)]
    sums = [
        [jax.jit(partial(twin_sums, twin, of, n_groups)) for twin in (sums_in_jax, native.sum_by_group)]
        for of, n_groups in ((group, GROUPS), (None, 1))
    ]
    columns = np.tile(draw_columns(rng, n, precision), (1, 2))
    for first in range(0, 10, c):
        values = columns[:, first : first + c]
        if values.shape[1] < c:
            break
        factor, count = check(scales, values)
        for twins in sums:
            check(twins, values, factor, count)


def test_a_scale_that_is_known_changes_nothing(precision, rng):
    values, group = draw_columns(rng, 300, precision), draw_group(rng, 300)
    for function in (sum_by_group, PLAIN):
        found = jax.jit(lambda v, g, function=function: function(v, g, GROUPS, scale=find_scale(v)))(
            values, group
        )
        np.testing.assert_array_equal(found, by_group(function)(values, group))


@pytest.mark.parametrize("factor", [1e-300, 1e-60, 1e60, 1e300])
@pytest.mark.usefixtures("x64")
def test_float64_keeps_its_whole_range(factor, rng):
    values, group = rng.normal(size=(50, 2)) * factor, draw_group(rng, 50)
    exact = [[math.fsum(values[group == i, j]) for j in range(2)] for i in range(GROUPS)]
    for function in (sum_by_group, PLAIN):
        np.testing.assert_allclose(by_group(function)(values, group), exact, rtol=1e-12)


# ------------------------------------------------------------------------------------------------- exactness


def finite_columns(dtype: type) -> st.SearchStrategy[np.ndarray]:
    elements = st.floats(-(2.0**99), 2.0**99, width=32 if dtype is np.float32 else 64, allow_subnormal=False)
    return hnp.arrays(dtype, (40, 2), elements=elements)


@pytest.mark.parametrize("function", [sum_by_group, PLAIN], ids=["public", "plain"])
def test_any_order_gives_the_same_and_nearly_exact_sums(function, precision):
    sums = by_group(function)

    @settings(max_examples=60, deadline=None, database=None)
    @given(finite_columns(precision), st.integers(0, 2**32 - 1))
    def check(values, seed):
        rng = np.random.default_rng(seed)
        group, order = draw_group(rng, 40), rng.permutation(40)
        found = np.asarray(sums(values, group))
        assert found.dtype == precision
        check_sums(found, values, group)
        np.testing.assert_array_equal(sums(values[order], group[order]), found)

    check()


@pytest.mark.parametrize("function", [sum_by_group, PLAIN], ids=["public", "plain"])
def test_many_rows(function, precision, rng):
    """Enough for several blocks and threads; a sum of floats would depend on the order."""
    n = 60_001
    values = (rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-6, 6, (n, 3))).astype(precision)
    group, order, sums = draw_group(rng, n), rng.permutation(n), by_group(function)
    found = np.asarray(sums(values, group))
    check_sums(found, values, group)
    np.testing.assert_array_equal(sums(values[order], group[order]), found)


def test_small_terms_survive_large_ones_that_cancel(precision):
    """Integers below 2**30 sum exactly: 2**20 is far too large for a float32 to keep the rest beside it."""
    values = np.array([2.0**20, 2.0**-12, -(2.0**20), 2.0**-13], precision)
    assert float(total(jnp.asarray(values))) == 2.0**-12 + 2.0**-13


@pytest.mark.parametrize("shape", [(300,), (300, 2), (300, 2, 3)])
def test_total_is_the_sum_over_the_first_axis(shape, precision, rng):
    values = rng.standard_cauchy(shape).astype(precision)
    found = np.asarray(jax.jit(total)(values))
    flat = values.reshape(300, -1)
    exact = np.array([math.fsum(column.astype(np.float64)) for column in flat.T]).reshape(shape[1:])
    bound = max(error_bound(column, 300) for column in flat.T)
    assert found.shape == shape[1:]
    np.testing.assert_allclose(found, exact, rtol=2 * float(np.finfo(precision).eps), atol=bound)
    np.testing.assert_array_equal(jax.jit(total)(values[rng.permutation(300)]), found)


def test_a_column_that_is_not_finite_shows_it_and_spares_the_others(rng):
    for bad in (np.nan, np.inf, -np.inf):
        values = rng.normal(size=(20, 3)).astype(np.float32)
        group = np.arange(20, dtype=np.int32) % GROUPS
        whole = np.asarray(by_group()(values, group))
        values[3, 1] = bad
        for function in (sum_by_group, PLAIN):
            found = np.asarray(by_group(function)(values, group))
            assert np.isnan(found[:, 1]).all()
            np.testing.assert_array_equal(found[:, [0, 2]], whole[:, [0, 2]])


# ------------------------------------------------------------------------------------------------- transformations


def plain_sum(values: jax.Array, group: np.ndarray) -> jax.Array:
    return jax.ops.segment_sum(values, group, GROUPS)


@pytest.mark.parametrize("n_batch", [1, 3, 9])
def test_vmap_equals_a_loop(n_batch, rng):
    values = rng.normal(size=(n_batch, 30, 2)).astype(np.float32)
    groups = np.stack([draw_group(rng, 30) for _ in range(n_batch)])
    for axes in ((0, 0), (0, None), (None, 0)):
        arguments = tuple(a if axis == 0 else a[0] for a, axis in zip((values, groups), axes, strict=True))
        found = jax.jit(jax.vmap(lambda v, g: sum_by_group(v, g, GROUPS), in_axes=axes))(*arguments)
        for i in range(n_batch):
            own = [a[i] if axis == 0 else a for a, axis in zip(arguments, axes, strict=True)]
            np.testing.assert_array_equal(found[i], by_group()(*own))


@pytest.mark.parametrize("function", [sum_by_group, PLAIN], ids=["public", "plain"])
def test_derivatives_are_those_of_a_plain_sum(function, precision, rng):
    """Forwards, backwards and both under vmap."""
    group = draw_group(rng, 30)
    values, tangents = rng.normal(size=(2, 3, 30, 2)).astype(precision)
    weights = rng.normal(size=(3, GROUPS, 2)).astype(precision)

    def exact(values):
        return function(values, group, GROUPS)

    def forwards(sums, values, tangents):
        return jax.jvp(sums, (values,), (tangents,))[1]

    def backwards(sums, values, weights):
        return jax.vjp(sums, values)[1](weights)[0]

    plain = partial(plain_sum, group=group)
    for derivative, seeds in ((forwards, tangents), (backwards, weights)):
        expected = jax.jit(jax.vmap(partial(derivative, plain)))(values, seeds)
        found = jax.jit(jax.vmap(partial(derivative, exact)))(values, seeds)
        single = jax.jit(partial(derivative, exact))(values[1], seeds[1])
        atol = 1e-5 if precision is np.float32 else 1e-13
        np.testing.assert_allclose(found, expected, atol=atol)
        np.testing.assert_allclose(single, expected[1], atol=atol)
    np.testing.assert_array_equal(found, weights[:, group])  # backwards, each row gets its group's weight


def test_derivatives_of_a_total(rng):
    values, tangents = rng.normal(size=(2, 30, 2)).astype(np.float32)
    slope = jax.jit(jax.grad(lambda v: total(v)[0] ** 2))(values)
    np.testing.assert_allclose(slope[:, 0], np.full(30, 2 * values[:, 0].sum()), rtol=1e-5)
    np.testing.assert_array_equal(slope[:, 1], 0)
    pushed = jax.jit(lambda v, t: jax.jvp(total, (v,), (t,))[1])(values, tangents)
    np.testing.assert_allclose(pushed, tangents.sum(axis=0), rtol=1e-4)


def test_no_derivative_of_a_derivative(rng):
    """The sum is linear."""
    values = rng.normal(size=(10, 1)).astype(np.float32)
    group = draw_group(rng, 10)
    hessian = jax.jit(jax.hessian(lambda v: sum_by_group(v, group, GROUPS).sum()))(values)
    np.testing.assert_array_equal(hessian, 0)


def test_parts_give_the_same_bits_as_the_whole(precision, rng):
    """The rows of four devices: their magnitudes differ, and on one of them all are 0."""
    n, parts = 4 * 9_000, 4
    values = rng.standard_cauchy((n, 2)).reshape(parts, -1, 2) * np.array([1, 0, 1e-6, 1e4])[:, None, None]
    values, group = values.astype(precision), draw_group(rng, n).reshape(parts, -1)

    def reduce(x):
        return jax.lax.psum(x, "part")

    def over_parts(function):
        return jax.jit(jax.vmap(function, axis_name="part"))

    found = over_parts(lambda v, g: sum_by_group(v, g, GROUPS, reduce))(values, group)
    whole = by_group()(values.reshape(n, 2), group.reshape(n))
    np.testing.assert_array_equal(found, np.broadcast_to(whole[None], found.shape))
    found = over_parts(partial(total, reduce=reduce))(values)
    whole = jax.jit(total)(values.reshape(n, 2))
    np.testing.assert_array_equal(found, np.broadcast_to(whole[None], found.shape))


@pytest.mark.parametrize("n_groups", [1, 64, 5000])
@pytest.mark.parametrize("n", [0, 1, 100_003])
def test_counts_are_those_of_numpy(n, n_groups, rng):
    """Few groups have several counters each, many have one; so many rows are shared out among threads."""
    native_library.require(native.counts_available)
    counted, group = rng.random(n) < 0.7, rng.integers(0, n_groups, n).astype(np.int32)
    group[:: n // 2 + 1] = 0
    expected = np.bincount(group[counted], minlength=n_groups)
    for twin in (native.count_by_group, counts_in_jax, count_by_group):
        np.testing.assert_array_equal(jax.jit(twin, static_argnums=2)(counted, group, n_groups), expected)
    batch = np.stack([counted, ~counted])
    found = jax.jit(jax.vmap(lambda counted: count_by_group(counted, jnp.asarray(group), n_groups)))(batch)
    np.testing.assert_array_equal(found.sum(axis=0), np.bincount(group, minlength=n_groups))


@pytest.mark.parametrize(("n", "n_groups"), [(1, 1), (700, 64), (30_000, 5000)])
def test_moments_are_the_sums_and_the_counts(n, n_groups, precision, rng):
    """Of columns of every kind, alone and under vmap; the last shape has one counter a group and several threads."""
    native_library.require(native.moments_available)
    columns, counted = jnp.asarray(draw_columns(rng, n, precision)), jnp.asarray(rng.random(n) < 0.7)
    group = rng.integers(0, n_groups, n).astype(np.int32)
    scales = find_scale(columns)
    sums = jax.jit(partial(sums_in_jax, n_groups=n_groups))(columns, group, *scales)
    counts = np.bincount(group[np.asarray(counted)], minlength=n_groups)
    twins = [jax.jit(partial(twin, n_groups=n_groups)) for twin in (moments_in_jax, native.moments_by_group)]
    for pair in np.arange(10).reshape(5, 2):
        g, h = columns[:, pair[:1]], columns[:, pair[1:]]
        for twin in twins:
            found = twin(g, h, counted, group, *(part[pair] for part in scales))
            for one, expected in zip(found, (sums[:, pair[:1]], sums[:, pair[1:]], counts), strict=True):
                np.testing.assert_array_equal(one, expected)

    def of_pair(g, h):
        return moments_by_group(g[:, None], h[:, None], counted, jnp.asarray(group), n_groups)

    found = jax.jit(jax.vmap(of_pair, 1, 1))(columns[:, ::2], columns[:, 1::2])
    expected = sums[:, ::2], sums[:, 1::2], np.broadcast_to(counts[:, None], (n_groups, 5))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one[..., 0], other)


def test_derivatives_of_moments_are_those_of_plain_sums(rng):
    (g, h), group = rng.normal(size=(2, 30, 1)).astype(np.float32), draw_group(rng, 30)

    def leaves(g, h, sums):
        of_g, of_h, count = sums(g, h)
        return (of_g / (1 + of_h**2) + count).sum()

    def exact(g, h):
        return moments_by_group(g, h, jnp.ones(30, bool), jnp.asarray(group), GROUPS)

    def plain(g, h):
        return (*(plain_sum(one, group) for one in (g, h)), 0.0)

    for order in (
        jax.grad,
        lambda f, at: jax.grad(lambda *x: jnp.sum(jnp.square(jax.grad(f, at)(*x)[0])), at),
    ):
        found, expected = (
            jax.jit(order(partial(leaves, sums=sums), (0, 1)))(g, h) for sums in (exact, plain)
        )
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
