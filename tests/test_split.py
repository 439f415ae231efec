"""Splits against a brute-force loop in float64, closed forms, and both ways to search against each other."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from split_oracle import N_CODES, N_FEATURES, N_NODES, make_rules, naive_gain, naive_split, random_histogram

from jboost._runtime.typing import WORD, Layout
from jboost._split import Rules, Tree, best_split, leaf_value, routing_table
from jboost._split.formulas import sum_in_pairs
from jboost._split.thresholds import Best, search, search_in_turn, totals

CATEGORICAL = Layout(N_CODES, True, (1, 3), 7)
SETTINGS = {
    "plain": {},
    "weight": {"min_child_weight": 30.0},
    "samples": {"min_child_samples": 6},
    "penalties": {"reg_alpha": 8.0, "gamma": 2.0, "reg_lambda": 0.0, "min_child_weight": 0.0},
    "one hot": {"max_cat_to_onehot": 7, "gamma": 1.0},
}
choose = jax.jit(best_split, static_argnames="layout")


KINDS = [(1, "diagonal"), (3, "diagonal"), (3, "full")]
# The other settings share a program for each kind.
BRUTE = [
    pytest.param(
        name,
        policy,
        *kind,
        marks=pytest.mark.slow if name in ("samples", "one hot") and kind != KINDS[2] else (),
    )
    for name in SETTINGS
    for policy in ("symmetric", "depthwise")
    for kind in KINDS
]


@pytest.mark.parametrize(("name", "policy", "k", "hessian"), BRUTE)
@pytest.mark.usefixtures("x64")
def test_best_split_is_that_of_brute_force(name, policy, k, hessian):
    n_split = 0
    counts = "min_child_samples" in SETTINGS[name]
    for seed in range(4):
        histogram, scale = random_histogram(seed, k, counts, missing=seed != 1, crosses=hessian == "full")
        rules = make_rules(scale, grow_policy=policy, split_hessian=hessian, **SETTINGS[name])
        allowed = np.ones(N_FEATURES, bool) if seed < 2 else np.array([True, False, False, seed == 2])
        split, lighter = choose(jnp.asarray(histogram), rules, CATEGORICAL, jnp.asarray(allowed))
        table = np.asarray(routing_table(split, CATEGORICAL))
        values = histogram * scale[:, None, None]
        groups = [slice(None)] if policy == "symmetric" else [slice(i, i + 1) for i in range(N_NODES)]
        for i, group in enumerate(groups):
            gain, feature, right = naive_split(values[:, :, group], rules, CATEGORICAL, allowed)
            np.testing.assert_allclose(split.gain[i], gain, rtol=1e-12)
            np.testing.assert_array_equal(table[i], right, f"seed {seed}, split {i}")
            if feature is None:
                assert split.threshold[i] == N_CODES
                continue
            n_split += 1
            assert split.feature[i] == feature
            h = values[:, 1 : 2 * k : 2, group, feature].sum(axis=1)
            expected = h[right].sum(axis=0) < h[~right].sum(axis=0)
            np.testing.assert_array_equal(np.asarray(lighter)[group], expected)
    assert n_split >= 3


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("missing", [False, True])
def test_a_sorted_cut_is_the_best_of_all_subsets(missing):
    layout = Layout(N_CODES, missing, (0,), 7)
    for seed in range(8):
        histogram, scale = random_histogram(seed, 1, False, missing, f=1)
        rules = make_rules(
            scale,
            grow_policy="depthwise",
            reg_lambda=0.0,
            cat_smooth=0.0,
            min_child_weight=0.0,
            max_cat_to_onehot=0,
        )
        split, _ = choose(jnp.asarray(histogram), rules, layout, jnp.ones(1, bool))
        for node, values in enumerate((histogram * scale[:, None, None])[..., 0].transpose(2, 0, 1)):
            subsets = [np.array([bits >> code & 1 for code in range(N_CODES)], bool) for bits in range(2**7)]
            best = max(naive_gain(values[~right].sum(0), values[right].sum(0), rules) for right in subsets)
            np.testing.assert_allclose(split.gain[node], best, rtol=1e-12)


@partial(jax.jit, static_argnames="missing")
@partial(jax.vmap, in_axes=(0, 0, None))
def both_searches(histogram: Any, rules: Rules, missing: bool) -> tuple[Best, Best]:
    absent = histogram[0] if missing else None
    lefts = jnp.cumsum(histogram[:-1], axis=0, dtype=histogram.dtype)
    total = totals(histogram)
    columns = jnp.arange(histogram.shape[3], dtype=jnp.int32)
    at_once = search(lefts, absent, total, columns, rules)
    return at_once, search_in_turn(histogram, absent, total, columns, rules)


@pytest.mark.parametrize(
    "precision", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["x32", "x64"], indirect=True
)
@pytest.mark.parametrize(("k", "missing"), [(1, True), (3, True), (1, False)])
@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_all_at_once_and_one_after_the_other_find_the_same(precision, policy, k, missing):
    counts = k == 3
    made = [random_histogram(seed, k, counts, missing, f=37) for seed in range(5)]
    samples = {"min_child_samples": 5} if counts else {}
    batch = [
        make_rules(scale, grow_policy=policy, reg_lambda=float(i), gamma=0.3 * i, reg_alpha=i / 2, **samples)
        for i, (_, scale) in enumerate(made)
    ]
    rules = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batch)
    at_once, in_turn = both_searches(jnp.stack([h for h, _ in made]), rules, missing)
    assert in_turn.gain.dtype == precision
    assert in_turn.gain.shape == (5, 1 if policy == "symmetric" else N_NODES, 37)
    gains = np.asarray(in_turn.gain) > 0  # elsewhere the candidate means nothing
    assert gains.mean() > 0.5
    np.testing.assert_array_equal(at_once.gain, in_turn.gain)
    np.testing.assert_array_equal(np.asarray(at_once.candidate)[gains], np.asarray(in_turn.candidate)[gains])


@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 64, 100])
def test_sums_in_pairs_add_neighbours_first(n, rng):
    def by_halves(values: np.ndarray) -> np.ndarray:
        if len(values) == 1:
            return values[0]
        left = 1 << (len(values) - 1).bit_length() - 1  # the largest power of two below
        return by_halves(values[:left]) + by_halves(values[left:])

    values = rng.normal(size=(n, 3)).astype(np.float32)
    np.testing.assert_array_equal(jax.jit(sum_in_pairs)(values), by_halves(values))


def one_node(codes: Any, g: Any, h: Any) -> jax.Array:
    """Make the histogram [b c 1 f] of rows with codes [f n], gradients and Hessians [n]."""
    codes = np.asarray(codes)
    histogram = np.zeros((codes.max() + 2, 2, 1, len(codes)), np.int32)
    for feature, row in enumerate(codes):
        np.add.at(histogram[..., 0, feature], row, np.column_stack([g, h]))
    return jnp.asarray(histogram)


def split_one(histogram: jax.Array, has_missing: bool = True, categorical: Any = (), **choices: Any) -> Tree:
    n_codes = histogram.shape[0]
    layout = Layout(n_codes, has_missing, categorical, n_codes if categorical else 0)
    rules = make_rules([1.0, 1.0], grow_policy="depthwise", **choices)
    return choose(histogram, rules, layout, jnp.ones(histogram.shape[3], bool))[0]


def test_a_known_decision_function_is_recovered():
    codes = np.array([[1, 2, 3, 4, 5, 6] * 2, [1] * 6 + [2] * 6, [1, 2, 3, 4, 5, 6] * 2])
    split = split_one(one_node(codes, np.where(codes[0] > 2, 3, -1), np.ones(12, int)), reg_lambda=0.0)
    # Two leaves with means -1 (4 rows) and 3 (8 rows) around 5/3; column 2 is equal to column 0 and loses the tie.
    assert (int(split.feature[0]), int(split.threshold[0])) == (0, 2)
    np.testing.assert_allclose(split.gain, [0.5 * (4 * 1 + 8 * 9 - 20**2 / 12)], rtol=1e-6)


@pytest.mark.parametrize("onehot", [0, 99])
def test_a_known_set_of_categories_beyond_one_word_is_recovered(onehot):
    codes = np.arange(1, 70)
    chosen = np.array([40]) if onehot else np.array([3, 31, 32, 33, 69])
    split = split_one(
        one_node(codes[None], np.where(np.isin(codes, chosen), 5, -5), np.ones(69, int)),
        categorical=(0,),
        max_cat_to_onehot=onehot,
    )
    right = np.asarray(routing_table(split, Layout(71, True, (0,), 71)))[0]
    np.testing.assert_array_equal(np.flatnonzero(right), chosen)


def test_categories_of_three_classes_are_told_apart_where_gradients_sum_to_nothing():
    # G of a category is -2 for its class and 1 for the others. The first class alone has (36 + 9 + 9) / 3, the rest
    # half as much; every cut of the order of the sums, which are all 0, mixes the classes.
    histogram = np.zeros((11, 6, 1, 1), np.int32)
    histogram[1:10, 1::2] = 1
    histogram[1:10, ::2, 0, 0] = 1 - 3 * np.eye(3, dtype=np.int32)[np.arange(9) % 3]
    layout = Layout(11, True, (0,), 11)
    rules = make_rules(np.ones(6), grow_policy="depthwise", reg_lambda=0.0)
    split, _ = choose(jnp.asarray(histogram), rules, layout, jnp.ones(1, bool))
    np.testing.assert_allclose(split.gain, [0.5 * (54 / 3 + 54 / 6)], rtol=1e-6)
    right = np.asarray(routing_table(split, layout))[0, 1:10]
    np.testing.assert_array_equal(right, np.arange(9) % 3 > 0)


def test_smoothing_orders_the_categories():
    # G/H is -4, -1, 5/9 and the rare category comes first; G / (H + 10) is -4/11, -1/2, 5/19 and it comes second.
    # Only then is there a cut with a Hessian of 10 on both sides.
    histogram = one_node([[1, 2, 3]], [-4, -10, 5], [1, 10, 9])
    for smooth, expected in ((0.0, []), (10.0, [1, 3])):
        choices: Any = {"cat_smooth": smooth, "min_child_weight": 10.0, "max_cat_to_onehot": 0}
        split = split_one(histogram, categorical=(0,), **choices)
        right = np.asarray(routing_table(split, Layout(5, True, (0,), 5)))[0]
        np.testing.assert_array_equal(np.flatnonzero(right), expected)


def test_ties_go_to_the_lowest_threshold_and_to_missing_on_the_left():
    # Code 2 is empty, so thresholds 1 and 2 are the same cut; the missing rows add nothing on either side.
    split = split_one(
        one_node([[1, 1, 3, 3, 0, 0]], [-4, -4, 4, 4, 3, -3], [1, 1, 1, 1, 0, 0]), reg_lambda=0.0
    )
    assert (int(split.threshold[0]), float(split.gain[0])) == (1, 32.0)
    missing = one_node([[0, 0, 1, 1, 3, 3]], [0, 0, -4, -4, 4, 4], [1, 1, 1, 1, 1, 1])
    assert not split_one(missing).missing_right[0]  # by symmetry both sides gain the same
    heavier = one_node([[1, 3, 3]], [-4, 4, 4], [1, 1, 1])
    assert split_one(heavier).missing_right[0]  # nobody is missing: with the heavier child


def test_missing_values_go_where_they_belong():
    codes = [[0, 0, 1, 1, 2, 2]]
    assert split_one(one_node(codes, [5, 5, -5, -5, 5, 5], [1] * 6)).missing_right[0]
    assert not split_one(one_node(codes, [-5, -5, -5, -5, 5, 5], [1] * 6)).missing_right[0]
    alone = split_one(one_node(codes, [5, 5, -5, -5, -5, -5], [1] * 6))
    np.testing.assert_array_equal(routing_table(alone, Layout(4, True)), [[False, True, True, True]])


def test_where_nothing_is_gained_nothing_is_split(precision):
    flat = one_node([[1, 2, 3, 0]], [2, 2, 2, 2], [1, 1, 1, 1])
    for split in (split_one(flat, reg_lambda=0.0), split_one(flat, reg_lambda=0.0, categorical=(0,))):
        assert (int(split.threshold[0]), float(split.gain[0])) == (5, 0.0)
        assert not np.any(
            routing_table(
                split, Layout(5, True, (0,) if np.size(np.asarray(split.categories_right)) else (), 5)
            )
        )
    steep = one_node([[1, 2]], [-4, 4], [1, 1])  # the gain is 16
    assert split_one(steep, reg_lambda=0.0, gamma=16.0).threshold[0] == 4
    assert split_one(steep, reg_lambda=0.0, gamma=15.0).gain[0] == precision(1.0)
    assert split_one(steep, reg_lambda=0.0, min_child_weight=1.0).threshold[0] == 1
    assert split_one(steep, reg_lambda=0.0, min_child_weight=1.1).threshold[0] == 4


@pytest.mark.parametrize("categorical", [(), (0,)])
def test_no_hessian_and_no_penalty_give_no_nan(categorical):
    free: Any = {"reg_lambda": 0.0, "min_child_weight": 0.0}
    for h in ([0, 0, 0], [0, 1, 0], [0, 1, 1]):
        split = split_one(one_node([[1, 2, 3]], [-7, 3, 4], h), categorical=categorical, **free)
        assert np.isfinite(split.gain[0])
        assert (split.threshold[0] == 5) == (sum(h) < 2)  # a child without Hessian is no child
    assert leaf_value(jnp.float32(3.0), jnp.float32(0.0), make_rules([1.0], **free).hyper) == 0.0


@pytest.mark.parametrize(
    ("g", "h", "choices", "expected"),
    [
        (6.0, 2.0, {}, -2.0),
        (-6.0, 2.0, {"reg_lambda": 0.0}, 3.0),
        (6.0, 2.0, {"reg_alpha": 1.5}, -1.5),
        (-6.0, 2.0, {"reg_alpha": 1.5}, 1.5),
        (6.0, 2.0, {"reg_alpha": 7.0}, 0.0),
        (6.0, 2.0, {"max_delta_step": 0.5}, -0.5),
        (-6.0, 2.0, {"max_delta_step": 0.5}, 0.5),
        (6.0, 2.0, {"max_delta_step": 2.5}, -2.0),
        (0.0, 0.0, {"reg_lambda": 0.0}, 0.0),
    ],
)
def test_leaf_values_are_the_closed_form(precision, g, h, choices, expected):
    value = leaf_value(jnp.asarray(g), jnp.asarray(h), make_rules([1.0], **choices).hyper)
    assert value.dtype == precision
    assert value == expected


def test_routing_table_unpacks_every_code(rng):
    layout = Layout(3 * WORD, True, (2,), 3 * WORD)
    right = rng.random((4, layout.n_codes)) < 0.5
    powers = 2 ** np.arange(WORD, dtype=np.uint64)
    words = (right.reshape(4, 3, WORD) * powers).sum(axis=2).astype(np.uint32)
    split = Tree(
        feature=jnp.array([2, 2, 0, 2]),
        threshold=jnp.array([5, 1, 70, 0]),
        missing_right=jnp.asarray(right[:, 0]),
        categories_right=jnp.asarray(words),
        gain=jnp.ones(4),
    )
    right[2, 1:] = np.arange(1, layout.n_codes) > 70  # a number goes by its threshold
    np.testing.assert_array_equal(routing_table(split, layout), right)
