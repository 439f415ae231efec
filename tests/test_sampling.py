"""Which rows and columns a round draws: how many, which may be drawn, and what must not change them."""

from __future__ import annotations

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import pytest

from jboost._runtime.arguments import as_key, key_of
from jboost._sampling import sample_columns, sample_rows

KEYS = 200
N_LEVELS = 3


@jax.jit
def draw_columns(usable, by_tree, by_level):
    """Draw for many keys: [keys d f]."""
    draw = jax.vmap(sample_columns, (0, None, None, None, None))
    return draw(jax.random.split(jax.random.key(1), KEYS), usable, by_tree, by_level, N_LEVELS)


def wanted(share, m):
    return max(1, round(share * m))


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_rows_are_kept_at_the_rate_asked_for(fraction):
    n = 20_000
    kept = np.asarray(sample_rows(jax.random.key(0), n, jnp.asarray(fraction)))
    assert kept.shape == (n,)
    assert kept.dtype == bool
    assert abs(kept.mean() - fraction) < 5 * np.sqrt(fraction * (1 - fraction) / n)


def test_a_fraction_of_one_keeps_every_row():
    assert np.all(sample_rows(jax.random.key(0), 20_000, jnp.asarray(1.0)))


def test_rows_are_drawn_independently_of_each_other_and_of_the_key():
    n, fraction = 20_000, jnp.asarray(0.3)
    first, second = (np.asarray(sample_rows(jax.random.key(seed), n, fraction)) for seed in (0, 1))
    for a, b in ((first, second), (first[1:], first[:-1])):
        assert abs((a & b).mean() - 0.09) < 5 * np.sqrt(0.09 * 0.91 / n)


@pytest.mark.parametrize("longer", [65, 128, 1000])
def test_padding_does_not_change_the_rows_drawn(longer):
    key, fraction = jax.random.key(3), jnp.asarray(0.4)
    short = np.asarray(sample_rows(key, 64, fraction))
    np.testing.assert_array_equal(sample_rows(key, longer, fraction)[:64], short)


def test_rows_are_drawn_alike_by_either_default_of_threefry():
    drawn = []
    for is_partitionable in (True, False):
        with jax.threefry_partitionable(is_partitionable):
            drawn += [
                jax.jit(sample_rows, static_argnums=1)(jax.random.key(1), n, 0.5)[:300] for n in (300, 512)
            ]
    for other in drawn[1:]:
        np.testing.assert_array_equal(other, drawn[0])


def test_a_larger_fraction_keeps_the_rows_of_a_smaller_one():
    small, large = (np.asarray(sample_rows(jax.random.key(0), 500, jnp.asarray(x))) for x in (0.2, 0.7))
    assert np.all(large[small])
    assert large.sum() > small.sum()


@pytest.mark.parametrize("n_usable", [1, 3, 10])
@pytest.mark.parametrize(
    ("by_tree", "by_level"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.3), (0.7, 0.5), (0.01, 0.01)]
)
def test_columns_are_counted_from_the_usable_ones(n_usable, by_tree, by_level):
    usable = np.zeros(10, bool)
    usable[np.random.default_rng(n_usable).choice(10, n_usable, replace=False)] = True
    drawn = np.asarray(draw_columns(jnp.asarray(usable), by_tree, by_level))
    assert drawn.shape == (KEYS, N_LEVELS, 10)
    assert drawn.dtype == bool
    assert not drawn[..., ~usable].any()
    of_tree = wanted(by_tree, n_usable)
    assert np.all(drawn.sum(axis=2) == wanted(by_level, of_tree))
    assert np.all(drawn.any(axis=1).sum(axis=1) <= of_tree)  # the levels draw from the tree's own columns


def test_a_tree_keeps_its_columns_where_levels_draw_all_of_them():
    drawn = np.asarray(draw_columns(jnp.ones(10, bool), 0.4, 1.0))
    assert np.all(drawn == drawn[:, :1])
    assert len({row.tobytes() for row in drawn[:, 0]}) > KEYS // 2  # but trees differ


def test_levels_and_keys_draw_anew_and_every_column_equally_often():
    drawn = np.asarray(draw_columns(jnp.ones(10, bool), 0.8, 0.5))  # 4 of 8 of 10
    assert (drawn[:, 0] != drawn[:, 1]).any(axis=1).mean() > 0.9
    assert (drawn[1:] != drawn[:-1]).any(axis=2).mean() > 0.9
    share = drawn.mean(axis=(0, 1))
    assert np.abs(share - 0.4).max() < 5 * np.sqrt(0.4 * 0.6 / KEYS)


def test_nothing_usable_draws_nothing():
    assert not np.any(draw_columns(jnp.zeros(10, bool), 0.5, 0.5))


def test_shares_may_be_traced_and_draws_repeat():
    usable = jnp.ones(10, bool)
    shares = jnp.array([0.2, 0.6])
    drawn = jax.vmap(lambda share: draw_columns(usable, share, 1.0))(shares)
    assert [set(np.unique(batch.sum(axis=2)).tolist()) for batch in np.asarray(drawn)] == [{2}, {6}]
    np.testing.assert_array_equal(drawn[0], draw_columns(usable, 0.2, 1.0))


@jax.jit
def draw_weighted(usable, by_tree, by_level, weight):
    draw = jax.vmap(sample_columns, (0, None, None, None, None, None))
    return draw(jax.random.split(jax.random.key(2), 20 * KEYS), usable, by_tree, by_level, 1, weight)


def test_columns_are_drawn_one_by_one_in_proportion_to_their_weights():
    weight = np.array([1.0, 2.0, 3.0, 0.0, 4.0, 5.0])
    usable = np.array([True, True, True, True, True, False])  # 1, 2, 3 and 4 are left
    share = {i: w / 10 for i, w in enumerate(weight) if usable[i] and w > 0}
    both = {  # of two: either the first or the second
        i: p + sum(q * p / (1 - q) for j, q in share.items() if j != i) for i, p in share.items()
    }
    for by_tree, expected in ((0.25, share), (0.5, both)):
        drawn = np.asarray(draw_weighted(usable, by_tree, 1.0, jnp.asarray(weight)))[:, 0]
        assert np.all(drawn.sum(axis=1) == round(4 * by_tree))
        assert not drawn[:, [3, 5]].any()
        for i, p in expected.items():
            assert abs(drawn[:, i].mean() - p) < 5 * np.sqrt(p * (1 - p) / len(drawn))


def test_levels_draw_by_weight_among_the_columns_of_the_tree():
    drawn = np.asarray(draw_weighted(np.ones(4, bool), 1.0, 0.25, jnp.array([1.0, 1.0, 1.0, 5.0])))[:, 0]
    assert np.all(drawn.sum(axis=1) == 1)
    assert abs(drawn[:, 3].mean() - 5 / 8) < 5 * np.sqrt(15 / 64 / len(drawn))


def test_shares_of_one_take_every_column_that_has_a_weight():
    drawn = np.asarray(draw_weighted(np.ones(3, bool), 1.0, 1.0, jnp.array([0.1, 0.0, 7.0])))
    assert np.all(drawn == np.array([True, False, True]))


def test_equal_weights_draw_what_no_weights_draw():
    keys, usable = jax.random.split(jax.random.key(1), KEYS), jnp.ones(10, bool)
    draw = jax.vmap(sample_columns, (0, None, None, None, None, None))
    weighted = jax.jit(draw, static_argnums=4)(keys, usable, 0.6, 0.5, N_LEVELS, jnp.full(10, 3.0))
    np.testing.assert_array_equal(weighted, draw_columns(usable, 0.6, 0.5))


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31 - 1, 2**31, 2**40, -1, -(2**31)])
def test_the_key_of_a_seed_is_that_of_jax(seed, precision):
    expected = jax.random.key(seed)
    for found in (key_of(seed), as_key(np.int64(seed))):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_the_key_of_a_seed_for_another_generator():
    with jax.default_prng_impl("rbg"):
        found, expected = key_of(3), jax.random.key(3)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))


def test_the_key_of_a_seed_is_concrete_inside_a_trace():
    seen = []
    jax.jit(lambda x: seen.append(key_of(3)) or x)(0.0)
    assert not isinstance(seen[0], jax.core.Tracer)
    np.testing.assert_array_equal(jax.random.key_data(seen[0]), [0, 3])
