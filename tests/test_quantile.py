"""Weighted quantiles against NumPy's, by groups, over devices, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost._fixed_point import native
from jboost._fixed_point.quantile import grouped_quantile, select_in_jax, weighted_quantile

LEVELS = (0.01, 0.1, 0.25, 0.5, 0.7, 0.9, 0.99)
quantile = jax.jit(weighted_quantile)
by_group = jax.jit(grouped_quantile, static_argnums=3)


def numpy_quantile(values, repeats, level):
    """Repeat each value as often as its whole weight says; NumPy's definition 2."""
    return np.quantile(np.repeat(values, repeats), level, method="averaged_inverted_cdf")


def test_the_stated_example():
    assert quantile(jnp.array([4.0, 2, 3, 1]), jnp.ones(4), 0.5) == 2.5
    assert quantile(jnp.arange(10.0), jnp.ones(10), 0.9) == 8.5
    assert quantile(jnp.arange(10.0), jnp.ones(10), 0.85) == 8.0


@pytest.mark.parametrize("n", [1, 2, 5, 10, 100, 1000])
def test_unit_weights_match_numpy(n, rng, precision):
    values = rng.normal(size=n).astype(precision)
    for level in LEVELS:
        expected = numpy_quantile(values, 1, level)
        np.testing.assert_allclose(
            quantile(jnp.asarray(values), jnp.ones(n), level), expected, rtol=1e-6, atol=1e-7
        )


def test_whole_weights_and_ties_match_numpy(rng, precision):
    for _ in range(30):
        values = rng.integers(-3, 4, 20).astype(precision)
        weight = rng.integers(0, 4, 20)
        weight[0] += 1
        for level in LEVELS:
            ours = quantile(jnp.asarray(values), jnp.asarray(weight, precision), level)
            assert ours == numpy_quantile(values, weight, level)


def test_real_weights_match_a_naive_sum(rng, x64):
    values, weight = rng.normal(size=200), rng.exponential(size=200)
    order = np.argsort(values)
    cumulative = np.cumsum(weight[order])
    for level in LEVELS:
        expected = values[order][np.searchsorted(cumulative, level * cumulative[-1])]
        assert quantile(jnp.asarray(values), jnp.asarray(weight), level) == expected


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 3e9, 1e30])
def test_the_scale_of_the_weights_does_not_matter(scale):
    assert quantile(jnp.array([4.0, 2, 3, 1]), jnp.full(4, scale), 0.5) == 2.5


def test_extreme_values_keep_their_order():
    values = jnp.array([3e38, -3e38, 1e-30, -1e-30, 0.0, -0.0, 7.0], jnp.float32)
    for i, expected in enumerate([-3e38, -1e-30, 0.0, 0.0, 1e-30, 7.0, 3e38]):
        assert quantile(values, jnp.ones(7), (i + 0.5) / 7) == np.float32(expected)


@pytest.mark.parametrize("padding", [0.0, np.nan, np.inf, -np.inf])
def test_rows_without_weight_do_not_count(padding):
    values = jnp.array([padding, 1.0, 2.0, padding, 3.0, 4.0])
    assert quantile(values, jnp.array([0.0, 1, 1, 0, 1, 1]), 0.5) == 2.5
    assert quantile(values, jnp.zeros(6), 0.5) == 0.0


def test_groups_match_each_group_alone(rng):
    n, n_groups = 500, 7
    values, weight = rng.normal(size=n).astype("f4"), rng.integers(0, 3, n).astype("f4")
    group = rng.integers(-1, n_groups + 1, n)
    group[group == 4] = 5  # an empty group
    found = by_group(values, weight, group, n_groups, 0.3)
    for j in range(n_groups):
        rows = group == j
        expected = numpy_quantile(values[rows], weight[rows].astype(int), 0.3) if j != 4 else 0.0
        np.testing.assert_allclose(found[j], expected, rtol=1e-6)


def test_a_light_group_beside_a_heavy_one_is_exact():
    values = jnp.concatenate([jnp.linspace(0, 1, 1000), jnp.array([4.0, 2, 3, 1])])
    weight = jnp.concatenate([jnp.full(1000, 1000.0), jnp.full(4, 0.125)])
    group = jnp.repeat(jnp.arange(2), np.array([1000, 4]), total_repeat_length=1004)
    np.testing.assert_allclose(by_group(values, weight, group, 2, 0.5), [0.5, 2.5], rtol=1e-6)


def test_rows_spread_over_devices_give_the_same_bits(rng):
    values, weight = rng.normal(size=96).astype("f4"), rng.uniform(size=96).astype("f4")
    group = rng.integers(0, 3, 96)
    whole = by_group(values, weight, group, 3, 0.4)

    def part(values, weight, group):
        return grouped_quantile(values, weight, group, 3, 0.4, lambda x: jax.lax.psum(x, "device"))

    split = (jnp.asarray(a).reshape(4, 24) for a in (values, weight, group))
    parts = jax.jit(jax.vmap(part, axis_name="device"))(*split)
    np.testing.assert_array_equal(parts, np.tile(whole, (4, 1)))


def test_derivative_is_that_of_the_selected_values(x64):
    gradient = jax.jit(jax.grad(weighted_quantile, argnums=(0, 1)))
    values, weight = jnp.array([4.0, 2, 3, 1, 3]), jnp.array([1.0, 1, 1, 1, 0])
    by_values, by_weight = gradient(values, weight, 0.5)
    np.testing.assert_allclose(by_values, [0, 0.5, 0.5, 0, 0])
    np.testing.assert_array_equal(by_weight, 0)
    np.testing.assert_allclose(gradient(values, weight, 0.9)[0], [1, 0, 0, 0, 0])
    # Tied rows share the derivative by their weight.
    ties, weight = jnp.array([2.0, 2, 5, 2, 6]), jnp.array([3.0, 1, 1, 0, 1])
    np.testing.assert_allclose(gradient(ties, weight, 0.5)[0], [0.75, 0.25, 0, 0, 0])


def test_vmap_equals_a_loop(rng):
    values, weight = rng.normal(size=(3, 40)), rng.uniform(size=(3, 40))
    loop = [quantile(jnp.asarray(v), jnp.asarray(w), 0.3) for v, w in zip(values, weight, strict=True)]
    mapped = jax.jit(jax.vmap(lambda v, w: weighted_quantile(v, w, 0.3)))(values, weight)
    np.testing.assert_array_equal(mapped, loop)


@pytest.mark.parametrize("n_groups", [None, 3, 2000])
def test_keys_selected_in_cpp_are_those_of_the_definition(n_groups, rng):
    """Of the kinds that occur: masks and masses, one group of all and many, ties, no mass, ranks beyond it."""
    native_library.require(native.select_available)
    n, g = 50_000, n_groups or 1
    key = rng.integers(0, 2**32, n).astype(np.uint32) >> rng.integers(0, 32, n).astype(np.uint32)
    group = None if n_groups is None else rng.integers(0, g, n).astype(np.int32)
    batch = jnp.stack([jnp.asarray(key), jnp.full(n, 7, jnp.uint32)])
    twins = [jax.jit(jax.vmap(twin, (0, None, None, 0))) for twin in (native.select, select_in_jax)]
    for mass in (rng.random(n) < 0.3, rng.integers(0, 5, n).astype(np.int32)):
        each = np.bincount(np.zeros(n, int) if group is None else group, mass, g)
        rank = np.stack([np.maximum(1, each * rng.random(g)), each + rng.integers(-1, 2, g)]).astype(np.int32)
        found, expected = (twin(batch, mass, group, rank) for twin in twins)
        np.testing.assert_array_equal(found, expected)


def test_keys_of_eight_bytes_are_selected_alike(x64, rng):
    native_library.require(native.select_available)
    values, weight = jnp.asarray(rng.normal(size=300)), jnp.asarray(rng.random(300))
    group = jnp.asarray(rng.integers(0, 5, 300), jnp.int32)
    with jboost.plain_jax():
        expected = jax.jit(lambda *given: grouped_quantile(*given, 5, 0.3))(values, weight, group)
    np.testing.assert_array_equal(by_group(values, weight, group, 5, 0.3), expected)
