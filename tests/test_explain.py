"""Partial dependence, importances, permutations, interactions and components, against NumPy and the peers."""

from __future__ import annotations

import dataclasses
import functools
import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn import inspection
from sklearn.metrics import mean_squared_error, roc_auc_score

import jboost
from jboost import Hyper, Spec, explain, losses
from jboost.explain.permuting import permutations
from tests.test_cover import leaves_of
from tests.twin import problem, route_table

SMALL = Spec(n_estimators=4, max_depth=2)
HYPER = Hyper(learning_rate=0.5, min_child_weight=0.0)
POLICIES = ("symmetric", "depthwise")
EITHER = ("symmetric", pytest.param("depthwise", marks=pytest.mark.slow))
PEER = Spec(max_depth=2, grow_policy="depthwise", penalties="absolute")
CLASSES: Any = {"policy": "depthwise", "kind": "classes", "separate": True}  # the one model of classes


@functools.cache
def fitted(policy="symmetric", kind="two", separate=False, depth=2) -> jboost.Ensemble:
    """A model of a number, of two numbers, or of three classes."""
    rows = problem("mixed")
    loss, y = {
        "one": (losses.squared_error, rows.targets["real"]),
        "two": (losses.squared_error, np.column_stack([rows.targets["real"], rows.targets["binary"]])),
        "classes": (losses.softmax(3), rows.targets["class"]),
    }[kind]
    form = "separate" if separate else "vector"
    spec = dataclasses.replace(SMALL, grow_policy=policy, multi_output=form, max_depth=depth)
    # Longer steps of classes might climb, and then there is another program.
    hyper = dataclasses.replace(HYPER, learning_rate=0.1) if kind == "classes" else HYPER
    return jboost.fit(loss, rows.data, y, spec=spec, hyper=hyper, sample_weight=rows.weight)[0]


def by_hand(model, X, features, grid, respond=lambda score: score):
    """Every row with the features held at every point: [n, *grid, ...]."""
    found = []
    for point in np.stack([one.ravel() for one in np.meshgrid(*grid, indexing="ij")], axis=1):
        held = X.copy()
        held[:, list(features)] = point
        found.append(np.asarray(respond(jboost.predict(model, held)), np.float64))
    found = np.stack(found, axis=1)
    return found.reshape(len(X), *map(len, grid), *found.shape[2:])


# ---------------------------------------------------------------- partial dependence


FORMS: dict[str, Any] = {"symmetric": {}, "depthwise": {"policy": "depthwise"}, "separate": CLASSES}
HELD = [(form, features) for form in FORMS for features in ((0,), (4,), (1, 3), (0, 1))]


@pytest.mark.parametrize(
    ("form", "features"),
    [
        # of the other forms a number and a category together say enough
        pytest.param(*one, marks=() if one[0] == "symmetric" or one[1] == (1, 3) else pytest.mark.slow)
        for one in HELD
    ],
    ids=str,
)
def test_dependence_is_the_mean_of_rows_held_at_the_grid(form, features):
    rows, model = problem("mixed"), fitted(**FORMS[form])
    found = explain.partial_dependence(model, rows.X, features, grid=6, sample_weight=rows.weight)
    expected = by_hand(model, rows.X, features, found.grid)
    shape = tuple(map(len, found.grid))
    assert found.average.shape == (*shape, model.n_outputs)
    assert found.individual is None
    assert found.is_category == tuple(j in (3, 4) for j in features)
    mean = np.average(expected, axis=0, weights=rows.weight)
    np.testing.assert_allclose(found.average, mean, rtol=1e-5, atol=1e-6)
    both = explain.partial_dependence(model, rows.X, features, grid=6, sample_weight=rows.weight, kind="both")
    np.testing.assert_allclose(both.individual, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(both.average, mean, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_dependence_equals_scikit_learns(policy):
    rows = problem("plain")
    X, y = rows.X, rows.targets["real"]
    estimator = jboost.JBoostRegressor(n_estimators=10, max_depth=2, grow_policy=policy).fit(X, y)
    weight = np.random.default_rng(0).uniform(size=len(X))
    for features in (2, 3, (1, 4)):  # 3 has three values
        columns = [features] if isinstance(features, int) else list(features)
        with_curves = isinstance(features, int)
        peer = inspection.partial_dependence(
            estimator,
            X,
            columns,
            grid_resolution=10,
            sample_weight=weight,
            kind="both" if with_curves else "average",
        )
        found = explain.partial_dependence(estimator, X, features, grid=10, sample_weight=weight, kind="both")
        for mine, theirs in zip(found.grid, peer["grid_values"], strict=True):
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(found.average, peer["average"][0], rtol=1e-6)
        if with_curves:
            np.testing.assert_allclose(found.individual, peer["individual"][0], rtol=1e-6)


def test_responses_are_averaged_after_the_link():
    rows, model = problem("mixed"), fitted(**CLASSES)
    grid = ([-1.0, 0.2, 1.0],)
    found = {
        r: explain.partial_dependence(model, rows.X, 0, grid=grid[0], response=r)
        for r in ("score", "prediction", "log_odds")
    }
    probability = by_hand(model, rows.X, (0,), grid, model.inverse_link)
    np.testing.assert_allclose(found["prediction"].average, probability.mean(axis=0), rtol=1e-5)
    odds = np.log(probability)
    odds -= odds.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(found["log_odds"].average, odds.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["log_odds"].average.sum(axis=-1), 0, atol=1e-6)
    high = explain.partial_dependence(model, rows.X, 0, grid=grid[0], response=lambda score: score[:, 0] > 0)
    np.testing.assert_allclose(
        high.average, (by_hand(model, rows.X, (0,), grid)[..., 0] > 0).mean(axis=0), rtol=1e-6
    )
    own = explain.partial_dependence(model, rows.X, 0, grid=grid[0], response=lambda score: score[:, 0] ** 2)
    expected = np.square(by_hand(model, rows.X, (0,), grid)[..., 0]).mean(axis=0)
    np.testing.assert_allclose(own.average, expected, rtol=1e-5)


def test_curves_are_centred_at_their_mean_or_their_start():
    rows, model = problem("mixed"), fitted(kind="one")
    plain, mean, first = (
        explain.partial_dependence(model, rows.X, 0, grid=5, kind="both", centre=c)
        for c in ("none", "mean", "first")
    )
    np.testing.assert_allclose(
        mean.individual, plain.individual - plain.individual.mean(axis=1, keepdims=True), atol=1e-6
    )
    np.testing.assert_allclose(mean.average, plain.average - plain.average.mean(), atol=1e-6)
    np.testing.assert_allclose(first.individual, plain.individual - plain.individual[:, :1], atol=1e-6)
    assert not first.individual[:, 0].any()


def traversed(model, t, feature, value_code, node=0, level=0, place=0):
    """Friedman's weighted traversal of one tree, node by node: the expectation given one feature's code."""
    count = np.asarray(model.leaf_count)[t, :, 0]
    depth = len(count).bit_length() - 1
    if level == depth:
        return np.asarray(model.leaf_value)[t, place]
    slot = level if model.symmetric else 2**level - 1 + place
    tree = jax.tree.map(lambda a: np.asarray(a)[t], model.trees)

    def below(right):
        return traversed(model, t, feature, value_code, node, level + 1, 2 * place + right)

    if tree.threshold[slot] >= model.edges.n_codes:
        return below(0)
    if tree.feature[slot] == feature:
        return below(int(route_table(model, tree, slot)[value_code]))
    width = 2 ** (depth - level - 1)
    sides = [count[(2 * place + right) * width : (2 * place + right + 1) * width].sum() for right in (0, 1)]
    share = np.array(sides) / sum(sides) if sum(sides) else np.array([0.5, 0.5])
    return share[0] * below(0) + share[1] * below(1)


@pytest.mark.parametrize("policy", POLICIES)
def test_recursion_follows_the_covers(policy):
    rows, model = problem("mixed"), fitted(policy)
    for feature in (0, 3):
        found = explain.partial_dependence(model, rows.X, feature, grid=5, method="recursion")
        codes = np.asarray(
            jboost.bin_features(_rows_at(rows.X, feature, found.grid[0]), edges=model.edges).bins
        )
        expected = [
            np.asarray(model.base) + sum(traversed(model, t, feature, code) for t in range(4))
            for code in codes[feature]
        ]
        np.testing.assert_allclose(found.average, expected, rtol=1e-5, atol=1e-6)
        without_rows = explain.partial_dependence(
            model, None, feature, grid=found.grid[0], method="recursion"
        )
        np.testing.assert_array_equal(without_rows.average, found.average)


def _rows_at(X, feature, values):
    held = np.repeat(X[:1], len(values), axis=0)
    held[:, feature] = values
    return held


@pytest.mark.parametrize("policy", EITHER)
def test_stumps_need_no_averaging(policy):
    """With one split a tree the rows of the training set and the covers say the same."""
    rows, model = problem("mixed"), fitted(policy, kind="one", depth=1)
    for feature in (0, 4):
        brute, recursion = (
            explain.partial_dependence(model, rows.X, feature, grid=8, centre="first", method=method).average
            for method in ("brute", "recursion")
        )
        np.testing.assert_allclose(brute, recursion, atol=1e-6)
    assert explain.interaction_order(model) == 1
    strength = explain.interaction(model, rows.X[:50])
    assert not strength.pairs.any()
    assert not strength.overall.any()


def test_named_columns_categories_and_bins():
    rows = problem("mixed")
    names = ["a", "b", "c", "kind", "place"]
    frame = pd.DataFrame(rows.X, columns=names)
    frame["kind"] = pd.Categorical([{0.0: "x", 1.0: "y", 2.0: "z"}.get(value) for value in rows.X[:, 3]])
    estimator = jboost.JBoostRegressor(n_estimators=4, max_depth=2).fit(frame, rows.targets["real"])
    found = explain.partial_dependence(
        estimator, frame[names[::-1]], ["kind", "a"], grid=[["z", "x"], [0.0, 1.0]]
    )
    assert found.features == ("kind", "a")
    assert found.grid[0].tolist() == ["z", "x"]
    held = frame.assign(kind=pd.Categorical(["z"] * len(frame), categories=["x", "y", "z"]), a=1.0)
    np.testing.assert_allclose(found.average[0, 1], estimator.predict(held).mean(), rtol=1e-5)
    assert explain.partial_dependence(estimator, frame, "kind").grid[0].tolist() == ["x", "y", "z"]
    assert explain.importance(estimator).features == tuple(names)
    binned = jboost.bin_features(frame, edges=estimator.model_.edges)
    of_bins = explain.partial_dependence(estimator, binned, "a")
    again = explain.partial_dependence(estimator, frame, "a", grid=of_bins.grid[0])
    np.testing.assert_array_equal(of_bins.average, again.average)
    assert explain.partial_dependence(estimator, binned, "kind").grid[0].tolist() == ["x", "y", "z"]


def test_dependence_has_a_derivative_by_leaf_values(x64):
    rows = problem("mixed")
    model, _ = jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=SMALL, hyper=HYPER)

    def wiggle(leaf_value, kind):
        changed = dataclasses.replace(model, leaf_value=leaf_value)
        X = rows.X if kind == "average" else rows.data
        found = explain.partial_dependence(changed, X, 0, grid=[-1.0, 0.0, 1.0], kind=kind)
        values = found.average if kind == "average" else found.individual.mean(axis=0)
        return jnp.sum(jnp.square(jnp.diff(values)))

    leaves = np.asarray(model.leaf_value)
    told = jax.value_and_grad(jax.jit(wiggle, static_argnums=1))
    _, slope = told(leaves, "average")
    np.testing.assert_allclose(slope, told(leaves, "individual")[1], atol=1e-12)
    step = 1e-6 * np.random.default_rng(0).normal(size=leaves.shape)
    difference = (told(leaves + step, "average")[0] - told(leaves - step, "average")[0]) / 2
    np.testing.assert_allclose(jnp.vdot(slope, step), difference, rtol=1e-6)
    assert abs(float(difference)) > 1e-12


@pytest.mark.parametrize("policy", EITHER)
def test_many_rows_lose_no_digits(policy):
    """Equal shares of 10,000 rows, added one after the other in float32, would be off by 1e-4."""
    rows, model = problem("mixed"), fitted(policy, kind="one")
    many = explain.partial_dependence(model, np.tile(rows.X[:100], (100, 1)), (0, 1), grid=6)
    few = explain.partial_dependence(
        model, rows.X[:100], (0, 1), grid=[values.tolist() for values in many.grid]
    )
    np.testing.assert_allclose(many.average, few.average, rtol=2e-6)


def test_rows_of_no_weight_change_nothing():
    rows, model = problem("mixed"), fitted(kind="one")
    more = np.vstack([rows.X, np.full((3, 5), 100.0)])
    more[-3:, 3:] = 0
    weight = np.append(np.ones(400), np.zeros(3))
    for features in (0, (1, 2)):
        found = explain.partial_dependence(model, more, features, grid=5, sample_weight=weight)
        plain = explain.partial_dependence(model, rows.X, features, grid=5)
        np.testing.assert_array_equal(found.grid[0], plain.grid[0])
        np.testing.assert_allclose(found.average, plain.average, rtol=1e-6)


def test_a_model_without_trees_is_flat():
    rows = problem("plain")
    model, _ = jboost.fit(
        losses.squared_error, rows.X, rows.targets["real"], spec=Spec(n_estimators=0, max_depth=2)
    )
    for method in ("brute", "recursion"):
        found = explain.partial_dependence(model, rows.X, 0, grid=3, method=method)
        np.testing.assert_allclose(found.average, np.full(3, float(model.base[0])), rtol=1e-6)
    assert not explain.importance(model, "relevance").value.any()
    assert explain.interaction_order(model) == 0
    assert explain.components(model, rows.X).terms == ()


# ---------------------------------------------------------------- importances


def test_importances_are_those_of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (300, 4)).astype(float)
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1] + (X[:, 2] > 7) * X[:, 0] / 10 + 0.1 * rng.normal(size=300)
    spec = dataclasses.replace(PEER, n_estimators=8)
    model, _ = jboost.fit(losses.squared_error, X, y, spec=spec, hyper=Hyper(learning_rate=0.3))
    options = {
        "max_depth": 2,
        "eta": 0.3,
        "lambda": 1.0,
        "tree_method": "exact",
        "base_score": float(y.mean()),
    }
    peer = xgboost.train(options, xgboost.DMatrix(X, y), 8)
    names = {"count": "weight"}
    for kind in ("count", "gain", "total_gain", "cover", "total_cover"):
        theirs = peer.get_score(importance_type=names.get(kind, kind))
        expected = np.array([theirs.get(f"f{j}", 0.0) for j in range(4)])
        factor = 2 if "gain" in kind else 1  # the half of equation 7
        np.testing.assert_allclose(factor * explain.importance(model, kind).value, expected, rtol=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_covers_are_sums_over_the_rows_of_a_split(policy):
    rows, model = problem("mixed"), fitted(policy)
    expected = np.zeros(5)
    leaves = leaves_of(model, rows)[:, :, 0]
    for t in range(4):
        tree = jax.tree.map(lambda a, t=t: np.asarray(a)[t], model.trees)
        for slot in range(tree.feature.size):
            if tree.gain[slot] > 0:
                within = {0: leaves[t] >= 0, 1: leaves[t] < 2, 2: leaves[t] >= 2}[
                    0 if policy == "symmetric" else slot
                ]
                expected[tree.feature[slot]] += 2 * rows.weight[within].sum()  # h = 1 for each of two outputs
    np.testing.assert_allclose(explain.importance(model, "total_cover").value, expected, rtol=1e-5)
    relevance = explain.importance(model, "relevance").value
    np.testing.assert_allclose(relevance**2 * 4, explain.importance(model, "total_gain").value, rtol=1e-6)


def test_relevance_is_the_improvement_in_squared_error():
    """ESL 10.42 on one tree of depth 1, whose loss is half the squared residual."""
    x, y = np.arange(6.0)[:, None], np.array([0.0, 1.0, 0.5, 7.0, 8.0, 6.0])
    spec = Spec(n_estimators=1, max_depth=1)
    model, _ = jboost.fit(
        losses.squared_error, x, y, spec=spec, hyper=Hyper(reg_lambda=0.0, min_child_weight=0.0)
    )
    improvement = np.var(y) * 6 - np.var(y[:3]) * 3 - np.var(y[3:]) * 3
    np.testing.assert_allclose(
        explain.importance(model, "squared_relevance").value, [improvement / 2], rtol=1e-5
    )


def test_importances_of_each_class():
    model = fitted(**CLASSES)
    of_class = explain.importance(model, "total_gain", per_class=True).value
    gain, feature = np.asarray(model.trees.gain, float), np.asarray(model.trees.feature)
    expected = [[gain[:, k][feature[:, k] == j].sum() for k in range(3)] for j in range(5)]
    np.testing.assert_allclose(of_class, expected)
    np.testing.assert_allclose(explain.importance(model, "total_gain").value, of_class.sum(axis=1))
    squared = explain.importance(model, "squared_relevance", per_class=True).value  # ESL 10.45 and 10.46
    np.testing.assert_allclose(explain.importance(model, "squared_relevance").value, squared.mean(axis=1))
    np.testing.assert_allclose(explain.importance(model).share().sum(), 1)


def test_permutations_of_rows_make_a_metric_worse():
    rows, model = problem("mixed"), fitted(kind="one")
    y, weight, key = rows.targets["real"], rows.weight, jax.random.key(3)
    groups: list[Any] = [0, [1, 4]]
    found = explain.permutation_importance(
        model, rows.X, y, jboost.metrics.mse, features=groups, n_repeats=3, key=key, sample_weight=weight
    )
    assert found.features == (0, (1, 4))

    def risk(X):
        return mean_squared_error(y, np.asarray(jboost.predict(model, X)), sample_weight=weight)

    for i, group in enumerate(groups):
        for j, order in enumerate(permutations(key, 2, 3, len(y))[i]):
            shuffled = rows.X.copy()
            columns = np.atleast_1d(group)
            shuffled[:, columns] = rows.X[order][:, columns]
            np.testing.assert_allclose(
                found.repeats[i, j], risk(shuffled) - risk(rows.X), rtol=1e-3, atol=1e-6
            )
    np.testing.assert_allclose(found.value, found.repeats.mean(axis=1))
    nearness = jboost.Metric(lambda score, y, w: -jnp.mean(jnp.abs(score - y)), maximize=True)
    own = explain.permutation_importance(model, rows.X, y, nearness, n_repeats=1)
    assert own.value.shape == (5,)
    assert own.value[0] > 0.01  # less of it is worse


@pytest.mark.slow
def test_permutation_importance_of_a_classifier_is_scikit_learns(binary_data):
    X, y = binary_data.X[:, :5], np.where(binary_data.y > 0, "yes", "no")
    estimator = jboost.JBoostClassifier(n_estimators=10, max_depth=2).fit(X, y)
    peer = inspection.permutation_importance(estimator, X, y, scoring="roc_auc", n_repeats=8, random_state=0)
    on_host = jboost.Metric(
        lambda p, y, w: roc_auc_score(y, p, sample_weight=w), maximize=True, of="prediction", on_host=True
    )
    found = explain.permutation_importance(estimator, X, y, jboost.metrics.roc_auc, n_repeats=8)
    same = explain.permutation_importance(estimator, X, y, on_host, n_repeats=8)
    np.testing.assert_allclose(found.repeats, same.repeats, atol=1e-5)
    spread = np.sqrt((found.repeats.var(axis=1) + peer["importances"].var(axis=1)) / 8)
    assert (np.abs(found.value - peer["importances_mean"]) <= 5 * spread + 1e-6).all()
    assert found.value.max() > 1e-3


# ---------------------------------------------------------------- interactions and components


def h_by_hand(model, X, j, other):
    """Friedman and Popescu (2008), equation 44, from partial dependences row by row."""

    def at_rows(features):
        held = np.broadcast_to(X, (len(X), *X.shape)).copy()  # [point, row, feature]
        held[:, :, features] = X[:, None, features]
        score = np.asarray(jboost.predict(model, held.reshape(-1, X.shape[1])), np.float64)
        mean = score.reshape(len(X), len(X)).mean(axis=1)
        return mean - mean.mean()

    both = at_rows([j, other])
    rest = at_rows([f for f in range(X.shape[1]) if f != j])
    whole = np.asarray(jboost.predict(model, X), np.float64)
    whole -= whole.mean()
    pair = np.sum((both - at_rows([j]) - at_rows([other])) ** 2) / np.sum(both**2)
    return np.sqrt(pair), np.sqrt(np.sum((whole - at_rows([j]) - rest) ** 2) / np.sum(whole**2))


@pytest.mark.parametrize("policy", EITHER)
def test_interaction_is_friedmans_h(policy):
    rows, model = problem("mixed"), fitted(policy, kind="one")
    X = rows.X[:60]
    found = explain.interaction(model, X, [0, 1, 4])
    pair, overall = h_by_hand(model, X, 0, 4)
    np.testing.assert_allclose(found.pairs[0, 2], pair, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.overall[0], overall, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(found.pairs, found.pairs.T)
    assert found.pairs.max() > 0.01


@pytest.mark.parametrize(
    ("kind", "policy"),
    [("one", "symmetric"), ("two", "depthwise")]
    + [pytest.param(*one, marks=pytest.mark.slow) for one in (("one", "depthwise"), ("two", "symmetric"))],
)
def test_components_add_up_and_have_no_means(policy, kind):
    rows, model = problem("mixed"), fitted(policy, kind=kind)
    parts = explain.components(model, rows.X, sample_weight=rows.weight)
    each = parts.contributions(rows.X)
    np.testing.assert_allclose(
        parts.intercept + each.sum(axis=1), jboost.predict(model, rows.X), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(np.average(each, axis=0, weights=rows.weight), 0, atol=1e-9)
    np.testing.assert_allclose(
        np.average(each**2, axis=0, weights=rows.weight), parts.variance, rtol=1e-6, atol=1e-12
    )
    assert max(map(len, parts.terms)) == explain.interaction_order(model) == 2
    for c, term in enumerate(parts.terms):
        if len(term) == 2:
            for axis, j in enumerate(term):
                slices = np.moveaxis(parts.tables[c], axis, 0).reshape(
                    len(parts.tables[c].swapaxes(0, axis)), -1
                )
                alike = np.unique(slices, axis=0, return_inverse=True)[1].ravel()[rows.codes[j]]
                for one in np.unique(alike):
                    mine = alike == one
                    np.testing.assert_allclose(
                        np.average(each[mine, c], axis=0, weights=rows.weight[mine]), 0, atol=1e-6
                    )


def test_in_float64_nothing_is_rounded_away(x64):
    rows = problem("mixed")
    model, _ = jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=SMALL, hyper=HYPER)
    parts = explain.components(model, rows.X)
    total = parts.intercept + parts.contributions(rows.X).sum(axis=1)
    np.testing.assert_allclose(total, jboost.predict(model, rows.X), rtol=1e-12, atol=1e-13)
    found = explain.partial_dependence(model, rows.X, 0, grid=5, kind="both")
    plain = explain.partial_dependence(model, rows.X, 0, grid=5)
    np.testing.assert_allclose(plain.average, found.individual.mean(axis=0), rtol=1e-12, atol=1e-13)


def test_components_of_stumps_are_their_dependence():
    rows, model = problem("mixed"), fitted(kind="one", depth=1)
    parts = explain.components(model, rows.X)
    assert {len(term) for term in parts.terms} == {1}
    with pytest.raises(ValueError, match=r"feature must be one feature, got \(0, 1\)"):
        parts.curve((0, 1))  # pyright: ignore[reportArgumentType]
    for (j,) in parts.terms:
        values, effect = parts.curve(j)
        found = explain.partial_dependence(model, rows.X, j, grid=values)
        np.testing.assert_allclose(effect + parts.intercept, found.average, rtol=1e-4, atol=1e-5)


def test_an_additive_target_has_no_interaction_and_a_product_has():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, (300, 4)) / 9.5 - 1  # shapes of the test of xgboost
    spec, hyper = dataclasses.replace(PEER, n_estimators=40), Hyper(learning_rate=0.3)
    mixed, _ = jboost.fit(losses.squared_error, X, X[:, 0] * X[:, 1] + X[:, 2], spec=spec, hyper=hyper)
    strength = explain.interaction(mixed, X[:100])
    assert strength.pairs[0, 1] > 0.8
    assert max(strength.pairs[0, 2], strength.pairs[1, 2]) < 0.3
    parts = explain.components(mixed, X)
    share = dict(zip(parts.terms, parts.variance / parts.variance.sum(), strict=True))
    assert share[(2,)] + share[(0, 1)] > 0.95


# ---------------------------------------------------------------- bad input


def test_bad_arguments_are_named():
    rows, model = problem("mixed"), fitted(kind="one")
    X, y = rows.X, rows.targets["real"]
    dependence: Any = functools.partial(explain.partial_dependence, model, X)
    importance: Any = explain.importance
    cases: list[tuple[Any, str]] = [
        (lambda: dependence("age"), "features must be among 0, 1"),
        (lambda: dependence([0, 0]), "features must name each feature once"),
        (lambda: dependence([]), "features must name at least one"),
        (lambda: dependence(5), "features must be below 5"),
        (lambda: dependence(0, grid=[0.0, np.nan]), "grid must hold no missing value"),
        (lambda: dependence(0, grid=1), "grid must be at least 2"),
        (lambda: dependence(0, grid=[]), "grid must hold a vector"),
        (lambda: dependence((0, 1), grid=[[1.0]]), "grid must have an entry for each of 2"),
        (lambda: dependence(3, grid=[0.0, 7.0]), "grid must hold categories"),
        (lambda: dependence(0, percentiles=(0.9, 0.1)), "percentiles must be increasing"),
        (lambda: dependence(0, kind="mean"), "kind must be one of"),
        (lambda: dependence(0, method="recursion", kind="both"), "method='recursion' must come with"),
        (lambda: dependence(0, response="odds"), "response must be"),
        (lambda: dependence(0, response="log_odds"), "response='log_odds' must come with"),
        (lambda: dependence(0, response=lambda score: 1.0), "response must return an array with"),
        (lambda: dependence(0, sample_weight=np.ones(3)), "sample_weight must have shape"),
        (lambda: explain.partial_dependence(model, X[:0], 0), "X must have at least one row"),
        (lambda: explain.partial_dependence(model, X[:, :3], 0), "X has 3 features"),
        (lambda: importance(model, "weight"), "kind must be one of"),
        (lambda: explain.importance(model, per_class=True), "per_class must come with a tree for each"),
        (
            lambda: explain.permutation_importance(model, X, y[:9], jboost.metrics.mse),
            "y must have a value for each",
        ),
        (
            lambda: explain.permutation_importance(model, X, y, jboost.metrics.mse, n_repeats=0),
            "n_repeats must be",
        ),
        (lambda: explain.permutation_importance(model, X, y, jboost.metrics.mse, features=[0, 0]), "once"),
        (lambda: explain.interaction(model, X, [1, 1]), "features must name each feature once"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    for call, message in [
        (lambda: explain.importance("model"), "model must be a jboost.Ensemble or a fitted"),
        (lambda: importance(jboost.JBoostRegressor()), "got JBoostRegressor that was not fitted"),
        (lambda: importance(SimpleNamespace(predict=len)), "got SimpleNamespace, a model of another kind"),
        (lambda: explain.partial_dependence(model, None, 0), "X must be given unless"),
        (
            lambda: explain.partial_dependence(model, None, 0, method="recursion"),
            "X must be given unless .* the grid holds values",
        ),
        (lambda: dependence(None), "features must be names or numbers"),
        (lambda: dependence(1.5), "features must be names or numbers"),
        (lambda: dependence(0, grid="all"), "grid must be a number of points"),
        (lambda: dependence(0, grid=["a"]), "grid must hold numbers"),
    ]:
        with pytest.raises(TypeError, match=message):
            call()
    unknown = dataclasses.replace(
        model,
        leaf_count=jnp.full_like(model.leaf_count, jnp.nan),
        leaf_hessian=jnp.full_like(model.leaf_hessian, jnp.nan),
    )
    with pytest.raises(ValueError, match="method must be 'brute'"):
        explain.partial_dependence(unknown, X, 0, method="recursion")
    with pytest.raises(ValueError, match="kind must need no cover"):
        explain.importance(unknown, "cover")


def test_components_of_three_features_are_those_of_a_factorial_design(monkeypatch):
    levels = np.arange(4.0)
    X = np.stack([one.ravel() for one in np.meshgrid(levels, levels, levels, indexing="ij")], axis=1)
    spec = Spec(n_estimators=4, max_depth=3, grow_policy="depthwise")
    model, _ = jboost.fit(losses.squared_error, X, np.sin(X @ [1.0, 2.0, 3.0]), spec=spec, hyper=HYPER)
    assert explain.interaction_order(model) == 3
    parts = explain.components(model, X)
    left, expected = np.asarray(jboost.predict(model, X), np.float64).reshape(4, 4, 4), []
    for kept in [
        (),
        (0,),
        (1,),
        (2,),
        (0, 1),
        (0, 2),
        (1, 2),
    ]:  # as every cell has one row, effects are plain means
        expected.append(left.mean(axis=tuple({0, 1, 2} - set(kept)), keepdims=True))
        left = left - expected[-1]
    intercept, *expected = [*expected, left]
    assert parts.terms == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    np.testing.assert_allclose(parts.intercept, intercept.item(), rtol=1e-5)
    for table, effect in zip(parts.tables, expected, strict=True):
        np.testing.assert_allclose(table[(slice(1, None),) * table.ndim], effect.squeeze(), atol=1e-6)
    np.testing.assert_allclose(parts.variance, [np.mean(effect**2) for effect in expected], atol=1e-6)
    module = sys.modules["jboost.explain.components"]  # whose name in the package is that of the function
    monkeypatch.setattr(module, "MOST_COMPONENTS", 6)
    with pytest.raises(ValueError, match="at most 6 components, got more: a path of 3 features alone has 7"):
        explain.components(model, X)
    monkeypatch.setattr(module, "MOST_COMPONENTS", 7)
    monkeypatch.setattr(module, "MOST_CELLS", 6)
    with pytest.raises(ValueError, match=r"at most 6 cells in all, got [0-9]+, [0-9]+ of them in one"):
        explain.components(model, X)
