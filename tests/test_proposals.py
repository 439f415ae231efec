"""Candidates proposed for each tree: quantiles of its Hessians, and every code where there are enough candidates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from jboost._fixed_point import find_scale
from jboost._runtime.typing import Layout
from jboost._split import Rules
from jboost._tree import Columns, GradientPairs, choose_engine, leaf_index
from jboost._tree.proposing import in_fine_codes, propose
from tests.twin import problem, same_structure

SPEC = Spec(n_estimators=4, max_depth=3, grow_policy="depthwise")
POLICIES = ("symmetric", "depthwise")


def proposal(
    bins: np.ndarray, h: np.ndarray, n_codes: int, size: int, categorical: tuple[int, ...] = ()
) -> np.ndarray:
    derivatives = GradientPairs(jnp.zeros_like(h), jnp.asarray(h, jnp.float32))
    factor = jnp.stack([find_scale(values).factor for values in derivatives[:2]], axis=-1).reshape(-1)
    rules = Rules(jax.tree.map(jnp.float32, Hyper()), factor, Spec(n_candidates=size))
    layout = Layout(n_codes, True, categorical, n_codes if categorical else 0)
    columns = Columns(jnp.asarray(bins), jnp.ones((1, len(bins)), bool), layout)
    return np.asarray(jax.jit(lambda: propose(columns, derivatives, jnp.ones(h.shape[0], bool), rules))())


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("kind", ["even", "heavy rows", "a heavy value"])
def test_candidates_are_weighted_quantiles(kind, k, rng):
    n, n_codes, size = 4000, 256, 20
    bins = rng.integers(0, n_codes, (2, n)).astype(np.uint8)
    if kind == "a heavy value":
        bins = np.where(rng.random((2, n)) < 0.5, 77, bins).astype(np.uint8)
    h = rng.uniform(0.1, 1.0, (n, k)) * (rng.pareto(1.0, (n, 1)) + 1 if kind == "heavy rows" else 1.0)
    found = proposal(bins, h, n_codes, size)
    assert (found[:, 0] == 0).all()
    assert (np.diff(found[:, 1:], axis=1) >= 0).all()
    assert found[:, 1:].min() >= 1
    assert found.max() <= size
    for codes, coarse in zip(bins, found, strict=True):
        sums = np.bincount(codes, h.sum(axis=1), n_codes)[1:]
        share = sums / sums.sum()
        middle = np.cumsum(share) - share / 2
        for number in np.unique(coarse[1:]):
            inside = coarse[1:] == number
            assert np.ptp(middle[inside]) <= 1 / size + 1e-5  # so no two rows further apart are joined
        if kind == "a heavy value":
            assert (coarse == coarse[77]).sum() == 1


def test_few_codes_and_categories_stay_apart(rng):
    bins = np.stack([rng.choice([1, 7, 9, 30], 500), rng.integers(1, 40, 500)]).astype(np.uint8)
    found = proposal(bins, np.ones((500, 1)), 64, 4, categorical=(1,))
    np.testing.assert_array_equal(found[0, [0, 1, 6, 7, 8, 9, 29, 30, 63]], [0, 1, 1, 2, 2, 3, 3, 4, 4])
    np.testing.assert_array_equal(found[1], np.arange(64))


def test_a_tree_in_fine_codes_has_the_same_leaves(rng):
    """A tree of coarse codes routes coarse rows as the fine one routes fine rows."""
    fine, coarse = Layout(64, True), Layout(16, True)
    coarse_of = np.zeros((3, 64), np.int32)
    coarse_of[:, 1:] = 1 + np.sort(rng.integers(0, 9, (3, 63)), axis=1)
    bins = rng.integers(0, 64, (3, 200)).astype(np.uint8)
    few = np.take_along_axis(coarse_of, bins.astype(int), axis=1).astype(np.uint8)
    slots = 7
    tree = jboost.Tree(
        jnp.asarray(rng.integers(0, 3, slots, np.int32)),
        jnp.asarray(np.append(rng.integers(0, 9, slots - 1), 16).astype(np.int32)),
        jnp.asarray(rng.random(slots) < 0.5).at[-1].set(False),
        jnp.zeros((slots, 0), jnp.uint32),
        jnp.ones(slots),
    )
    again = in_fine_codes(tree, jnp.asarray(coarse_of), coarse, fine)
    assert again.threshold[-1] == 64
    np.testing.assert_array_equal(
        leaf_index(again, jnp.asarray(bins), fine, False), leaf_index(tree, jnp.asarray(few), coarse, False)
    )


@pytest.mark.parametrize("policy", [pytest.param("symmetric", marks=pytest.mark.slow), "depthwise"])
def test_enough_candidates_give_the_same_model(policy):
    rows, spec = problem("mixed"), dataclasses.replace(SPEC, grow_policy=policy)
    y = rows.targets["binary"]
    every, _ = jboost.fit(losses.logistic, rows.data, y, spec=spec)
    n_values = len(np.unique(np.asarray(rows.data.bins)))  # and code 0 among them
    assert n_values - 1 < rows.data.edges.n_codes
    many = dataclasses.replace(spec, n_candidates=10_000)
    jax.tree.map(
        np.testing.assert_array_equal,
        jboost.fit(losses.logistic, rows.data, y, spec=many)[0].trees,
        every.trees,
    )
    edges = rows.data.edges
    wide = dataclasses.replace(
        edges, n_codes=2 * edges.n_codes
    )  # so that there are fewer candidates than codes
    data = dataclasses.replace(rows.data, edges=wide)
    enough = dataclasses.replace(spec, n_candidates=n_values)
    first, _ = jboost.fit(losses.logistic, data, y, spec=enough)
    second, _ = jboost.fit(losses.logistic, data, y, spec=spec)
    jax.tree.map(np.testing.assert_array_equal, first.trees, second.trees)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_engines_agree_under_vmap_and_in_plain_jax(policy):
    rows = problem("mixed")
    y = rows.targets["binary"]
    spec = dataclasses.replace(SPEC, grow_policy=policy, n_candidates=5)
    model, history = jboost.fit(losses.logistic, rows.data, y, spec=spec, sample_weight=rows.weight)
    assert history.train_loss[-1] < history.train_loss[0]
    if policy == "symmetric":
        with jboost.plain_jax():
            plain, _ = jboost.fit(losses.logistic, rows.data, y, spec=spec, sample_weight=rows.weight)
        assert same_structure(model, plain)
        return

    def fit(reg_lambda: Any) -> Any:
        hyper = Hyper(reg_lambda=reg_lambda)
        return jboost.fit(losses.logistic, rows.data, y, spec=spec, hyper=hyper, sample_weight=rows.weight)[0]

    batch = jax.jit(jax.vmap(fit))(jnp.array([1.0, 20.0]))
    assert same_structure(jax.tree.map(lambda array: array[0], batch), model)
    score = jboost.predict(model, rows.X)
    np.testing.assert_allclose(jboost.predict(model, rows.data), score)


def test_candidates_gather_where_the_second_derivatives_are():
    """Rows near the only jump keep a large h, so each tree proposes more there; a global proposal stays as it is."""
    x = np.linspace(-1, 1, 400)[:, None]
    y, hyper = x[:, 0] > 0.3, Hyper(learning_rate=0.5, min_child_weight=0.0, reg_lambda=0.1)
    spec = dataclasses.replace(SPEC, n_candidates=4, n_estimators=20, max_depth=2)
    model, _ = jboost.fit(losses.logistic, x, y, spec=spec, hyper=hyper)
    np.testing.assert_array_equal(jboost.predict(model, x) > 0, y)
    four = jboost.bin_features(x, max_bins=4)
    once = dataclasses.replace(spec, n_candidates=None)
    model, _ = jboost.fit(losses.logistic, four, y, spec=once, hyper=hyper)
    assert ((jboost.predict(model, x) > 0) != y).sum() > 20


@pytest.mark.slow
def test_outputs_share_or_part_and_pruning_comes_after():
    rows = problem("missing")
    y = rows.targets["pair"]
    spec = dataclasses.replace(SPEC, n_candidates=8, post_prune=True)
    vector, _ = jboost.fit(losses.squared_error, rows.data, y, spec=spec, hyper=Hyper(gamma=0.5))
    parted = dataclasses.replace(spec, multi_output="separate")
    separate, _ = jboost.fit(losses.squared_error, rows.data, y, spec=parted, hyper=Hyper(gamma=0.5))
    assert vector.trees.gain.any()
    assert separate.trees.gain.any(axis=(0, 2)).all()


def test_the_number_is_checked():
    for bad, error in ((1, ValueError), (0.1, TypeError), (True, TypeError)):
        with pytest.raises(error, match="n_candidates must be"):
            Spec(n_candidates=bad)  # pyright: ignore[reportArgumentType]
    assert choose_engine(SPEC, layout=Layout(64, True), n_rows=10) == choose_engine(
        dataclasses.replace(SPEC, n_candidates=63), layout=Layout(64, True), n_rows=10
    )
    engines = [
        choose_engine(dataclasses.replace(SPEC, n_candidates=9), layout=Layout(64, True)) for _ in range(2)
    ]
    assert engines[0] == engines[1]
    assert hash(engines[0]) == hash(engines[1])
    assert jboost.JBoostClassifier(n_candidates=4)._spec(False).n_candidates == 4
