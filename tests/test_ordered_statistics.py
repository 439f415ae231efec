"""Ordered target statistics: against a loop, what they know of a row's own target, and the estimators that use them."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.utils import estimator_checks

import jboost
from jboost import JBoostClassifier, JBoostRegressor, OrderedTargetEncoder, Spec, bin_by_target
from jboost._bins.ordered import crossed_statistics
from jboost.io.archive import VERSION
from jboost.io.checks import check_record
from jboost.io.record import to_record

N = 300
SPEC = Spec(n_estimators=20, max_depth=2)
FIT: dict[str, Any] = {
    "n_estimators": 20,
    "max_depth": 2,
    "categorical_encoding": "ordered",
    "random_state": 0,
}


def rows(n: int = N, n_categories: int = 40) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    category = rng.integers(-1, n_categories, n)
    target = np.column_stack([np.sin(category) + rng.normal(size=n), rng.normal(size=n)])
    return category, target, rng.permutation(n), rng.integers(0, 3, n).astype(float)


def by_loop(category, target, order, prior, weight, a):
    found, sums, mass = np.empty_like(target), {}, {}
    for i in order:
        c = category[i]
        before, total = sums.get(c, np.zeros(target.shape[1])), mass.get(c, 0.0)
        found[i] = prior if c < 0 or total + a == 0 else (before + a * prior) / (total + a)
        sums[c], mass[c] = before + weight[i] * target[i], total + weight[i]
    return found


@pytest.mark.parametrize("a", [0.0, 1.0, 10.0])
def test_equals_a_loop_over_rows(a):
    category, target, order, weight = rows()
    prior = np.array([0.3, -1.0])
    given = {"prior": prior, "sample_weight": weight, "prior_weight": a}
    found = jboost.ordered_statistics(category, target, order, **given)
    assert found.dtype == np.float64
    np.testing.assert_allclose(
        found, by_loop(category, target, order, prior, weight, a), rtol=1e-12, atol=1e-12
    )


def test_in_jax_it_is_the_same_function_and_linear_in_the_targets():
    category, target, order, weight = rows(60, 5)

    @jax.jit
    def of(target):
        target = target.astype(jnp.float32)
        weights = jnp.asarray(weight, jnp.float32)
        return jboost.ordered_statistics(category, target, order, prior=0.5, sample_weight=weights)

    expected = jboost.ordered_statistics(category, target, order, prior=0.5, sample_weight=weight)
    np.testing.assert_allclose(of(target), expected, rtol=1e-5, atol=1e-5)
    slope = np.asarray(jax.jit(jax.jacobian(lambda y: of(y[:, None])[:, 0]))(target[:, 0]))
    assert (np.triu(slope[np.ix_(order, order)]) == 0).all()  # of none but earlier rows
    np.testing.assert_allclose(
        jax.jit(jax.vmap(of, 2, 2))(np.stack([target, 2 * target], 2))[..., 0], of(target), rtol=1e-6
    )


@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
def test_its_own_and_later_targets_change_nothing_to_the_last_bit(scale):
    category, target, order, weight = rows()
    target, place = scale * target[:, 0], np.argsort(order)
    given = {"prior": 0.1 * scale, "sample_weight": weight}
    before = jboost.ordered_statistics(category, target, order, **given)
    for row in (order[0], order[N // 2], order[-1]):
        changed = target.copy()
        changed[place >= place[row]] = 1e3 * scale * np.random.default_rng(1).normal(size=N - place[row])
        after = jboost.ordered_statistics(category, changed, order, **given)
        np.testing.assert_array_equal(before[place <= place[row]], after[place <= place[row]])


def with_random_column(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(1000, 2)), rng.integers(0, 250, 1000)])
    return X, (rng.random(1000) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(float)


def test_a_random_column_of_many_categories_gains_nothing():
    """With the statistic of all rows it ruins the loss of others; five draws, of which each must agree."""
    train, test, spec = slice(0, 500), slice(500, None), Spec(n_estimators=30, max_depth=3)
    for seed in range(5):
        X, y = with_random_column(seed)
        ordered = bin_by_target(X[train], y[train], categorical=[2], seed=seed)
        crossed = bin_by_target(X[train], y[train], categorical=[2], seed=seed, encoding="crossed")
        plain = jboost.bin_features(X[train], edges=ordered.edges)  # as rows that come later
        losses = {}
        for name, data in (("ordered", ordered), ("crossed", crossed), ("plain", plain)):
            valid = jboost.bin_features(X[test], edges=data.edges)
            model, history = jboost.fit(
                jboost.losses.logistic, data, y[train], spec=spec, valid=(valid, y[test])
            )
            gain = np.asarray(model.trees.gain).ravel()
            share = np.bincount(np.asarray(model.trees.feature).ravel(), gain, 3) / gain.sum()
            losses[name] = history.valid_metric[-1], share[2]
        without = jboost.bin_features(X[train, :2])
        _, history = jboost.fit(
            jboost.losses.logistic, without, y[train], spec=spec, valid=(X[test, :2], y[test])
        )
        alone = history.valid_metric[-1]
        assert losses["plain"][0] > 1.2 * alone
        assert losses["plain"][1] > 0.25
        for name in ("ordered", "crossed"):
            assert losses[name][0] < 1.03 * alone
            assert losses[name][1] < 0.12


def test_crossed_statistics_are_of_the_rows_of_other_folds_to_the_last_bit():
    category, target, order, weight = rows()
    prior = np.array([0.3, -1.0])
    given = category, 40, target, weight, order, prior, 2.0
    found, fold = crossed_statistics(*given), np.argsort(order) % 5
    for i in range(0, N, 7):
        told = (category == category[i]) & (fold != fold[i])
        mean = (weight[told] @ target[told] + 2 * prior) / (weight[told].sum() + 2)
        np.testing.assert_allclose(found[i], prior if category[i] < 0 else mean, rtol=1e-12)
    changed = np.where((fold == 3)[:, None], 1e3 * target[::-1], target)
    after = crossed_statistics(category, 40, changed, weight, order, prior, 2.0)
    np.testing.assert_array_equal(after[fold == 3], found[fold == 3])


def test_bins_of_training_rows_are_those_of_the_rows_before_and_of_others_those_of_all():
    category, target, _, weight = rows()
    y, X = target[:, 0], np.column_stack([np.arange(N) % 7, category]).astype(float)
    X[category < 0, 1] = np.nan
    data = bin_by_target(X, y, sample_weight=weight, categorical=[1], prior_weight=2.0, seed=3)
    counted = np.flatnonzero(weight)
    order = np.random.default_rng(3).permutation(counted.size)
    prior = np.average(y, weights=weight)
    values = by_loop(category[counted], y[counted, None], order, np.array([prior]), weight[counted], 2.0)[
        :, 0
    ]
    edges = data.edges.exact[1]
    expected = np.where(category[counted] < 0, 0, np.searchsorted(edges, values) + 1)
    np.testing.assert_array_equal(np.asarray(data.bins)[1, counted], expected)
    later = np.array([[0.0, 5.0], [0.0, np.nan], [0.0, 999.0]])
    mine = category == 5
    mean = (weight[mine] @ y[mine] + 2 * prior) / (weight[mine].sum() + 2)
    found = np.asarray(jboost.bin_features(later, edges=data.edges).bins)[1]
    assert found.tolist() == [np.searchsorted(edges, mean) + 1, 0, np.searchsorted(edges, prior) + 1]
    model, _ = jboost.fit(jboost.losses.squared_error, data, y, spec=SPEC, sample_weight=weight)
    in_jax = jax.jit(jboost.predict)(model, later.astype(np.float32))
    np.testing.assert_allclose(in_jax, jboost.predict(model, later), rtol=1e-6)
    np.testing.assert_allclose(jboost.io.export(model).call(later.astype(np.float32)), in_jax, rtol=1e-6)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_units_of_targets_and_small_weights_do_not_matter(factor):
    category, target, _, _ = rows()
    X, y = category[:, None], target[:, 0]
    data = bin_by_target(X, y, categorical=[0], sample_weight=np.full(N, 0.5))
    other = bin_by_target(X, factor * y, categorical=[0], sample_weight=np.full(N, 2.0**-20))
    assert (np.asarray(data.bins) != np.asarray(other.bins)).mean() < 0.01


def frame(n: int = N) -> tuple[pd.DataFrame, Any]:
    rng = np.random.default_rng(0)
    number = rng.integers(0, 60, n)
    X = pd.DataFrame(
        {"a": rng.normal(size=n), "city": [f"c{j}" for j in number], "b": rng.choice(["x", "y"], n)}
    )
    X.loc[::19, "city"] = None
    return X.astype({"city": "category", "b": "category"}), np.sin(number) + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize(
    ("kind", "encoding"),
    [
        ("amount", "ordered"),
        ("amount", "crossed"),
        pytest.param("label", "ordered", marks=pytest.mark.slow),
        ("classes", "ordered"),
    ],
)
def test_an_estimator_reads_categories_as_they_are(kind, encoding, tmp_path):
    X, y = frame()
    y = {"amount": y, "label": y > 0, "classes": np.array(["p", "q", "r"])[np.digitize(y, [-0.5, 0.5])]}[kind]
    estimator = (JBoostRegressor if kind == "amount" else JBoostClassifier)(**FIT)
    estimator.set_params(categorical_encoding=encoding).fit(X, y, eval_set=[(X[:50], y[:50])])
    n_statistics = 3 if kind == "classes" else 1
    assert estimator.model_.edges.n_features == 2 + n_statistics  # the column of two categories has subsets
    assert estimator.model_.edges.features.categorical == (1 + n_statistics,)
    assert estimator.feature_importances_.shape == (3,)
    assert estimator.feature_importances_[1] > 0.5
    predicted = estimator.predict(X)
    assert (pickle.loads(pickle.dumps(estimator)).predict(X) == predicted).all()
    jboost.save(estimator.model_, tmp_path / "model")
    model = jboost.load(tmp_path / "model")
    scores = np.asarray(jboost.predict(model, X[["b", "city", "a"]]))
    np.testing.assert_array_equal(scores, jboost.predict(estimator.model_, X))
    unseen = X.assign(city=pd.Series(["new"] * N, dtype="category"))
    assert np.isfinite(np.asarray(jboost.predict(model, unseen))).all()
    if kind == "amount":
        assert jboost.explain.partial_dependence(estimator, X, "city").average.shape == (60,)
        assert "statistic of city" in jboost.plotting.to_text(model, 0)
        with pytest.raises(ValueError, match="no target statistics of categories to be softened"):
            jboost.differentiable.soften(model, 0.1)
    if kind == "classes":
        few = JBoostClassifier(**{**FIT, "n_estimators": 3}, colsample_bytree=0.5)
        few.fit(X, y, feature_weights=[1.0, 0.0, 1.0])  # of the columns
        assert few.feature_importances_[1] == 0
        with pytest.raises(
            ValueError, match=r"feature_weights must have shape \(3,\), one weight for each column"
        ):
            few.fit(X, y, feature_weights=np.ones(5))
        record, arrays = to_record(model)
        for name, bad in (("source", [1, 1, 1, 1, 2]), ("source", [0, 2, 2, 2, 3]), ("names", list("abcde"))):
            with pytest.raises(ValueError, match=f"{name}: expected"):
                check_record(VERSION, record | {name: bad}, arrays)
        with pytest.raises(ValueError, match="one feature a column to be explained"):
            jboost.explain.importance(estimator)


def test_rows_held_out_are_told_by_the_others_and_a_warm_start_goes_on():
    X, y = frame()
    held = JBoostRegressor(early_stopping=True, **FIT).fit(X, y)
    assert 0 < held.n_trees_ <= 20
    first = JBoostRegressor(**{**FIT, "n_estimators": 10}, warm_start=True).fit(X, y)
    first.set_params(n_estimators=20).fit(X, y)
    whole = JBoostRegressor(**FIT).fit(X, y)
    np.testing.assert_array_equal(first.predict(X), whole.predict(X))
    with pytest.raises(ValueError, match="categorical_encoding must stay as it was"):
        first.set_params(categorical_encoding="subsets", n_estimators=30).fit(X, y)
    with pytest.raises(ValueError, match="categorical_prior and random_state must stay"):
        first.set_params(categorical_encoding="ordered", categorical_prior=3.0).fit(X, y)
    # A fit that leaves a row out, by its weight, is that of the others.
    weight = (np.arange(N) != 7).astype(float)
    without = JBoostRegressor(**FIT).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_array_equal(JBoostRegressor(**FIT).fit(X, y, weight).predict(X), without.predict(X))


def test_the_encoder_gives_the_same_statistics():
    category, target, _, weight = rows()
    X = category.astype(object)[:, None]
    X[category < 0] = None
    encoder = OrderedTargetEncoder(prior_weight=2.0, random_state=0)
    found = encoder.fit_transform(X, target[:, 0], weight)
    order = np.random.RandomState(0).permutation(N)
    expected = by_loop(category, target[:, :1], order, encoder.prior_, weight, 2.0)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert encoder.transform([[None], [777]]).tolist() == [[encoder.prior_[0]]] * 2
    mine = category == 3
    mean = (weight[mine] @ target[mine, 0] + 2 * encoder.prior_[0]) / (weight[mine].sum() + 2)
    np.testing.assert_allclose(encoder.transform([[3]]), [[mean]])
    encoder.set_params(n_permutations=4).set_output(transform="pandas")
    labels = np.array(["p", "q", "r"])[np.digitize(target[:, 0], [-0.5, 0.5])]
    table: Any = encoder.fit_transform(pd.DataFrame({"city": X[:, 0]}), labels)
    assert list(table.columns) == ["city_p", "city_q", "city_r"]
    np.testing.assert_allclose(table.sum(axis=1), 1.0)


# Those that expect what fit_transform gives to be what transform gives, which would be the leak.
INHERENT = {"check_transformer_data_not_an_array": "", "check_transformer_general": ""}


def test_scikit_learn_checks_the_encoder():
    found = estimator_checks.check_estimator(
        OrderedTargetEncoder(random_state=0), expected_failed_checks=INHERENT, on_fail=None, on_skip=None
    )
    assert found is not None
    assert not [one["check_name"] for one in found if one["status"] == "failed"]


def test_what_does_not_fit_is_refused():
    X, y = frame()
    with pytest.raises(ValueError, match=r"categorical_encoding must be .*'crossed', got 'target'"):
        JBoostRegressor(**{**FIT, "categorical_encoding": "target"}).fit(X, y)
    with pytest.raises(ValueError, match="categorical_encoding must be 'subsets' where y is a dict"):
        JBoostRegressor(lambda s, y: (s - y["a"]) ** 2, categorical_encoding="ordered").fit(X, {"a": y})
    search = jboost.JBoostSearchCV(JBoostRegressor(**FIT), param_grid={"reg_lambda": [1.0]}, cv=2)
    with pytest.raises(ValueError, match="statistics would know the rows held out"):
        search.fit(X, y)
    with pytest.raises(ValueError, match="encoding must be one of 'ordered', 'crossed', got 'plain'"):
        bin_by_target(X, y, encoding="plain")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="y must hold finite numbers for statistics, got nan in row 299"):
        bin_by_target(X, np.append(y[1:], np.nan))
    with pytest.raises(ValueError, match=r"y must have shape \[300\] or \[300 k\]"):
        bin_by_target(X, y[1:])
    with pytest.raises(TypeError, match=r"y must be an array .*, got list_iterator; give list\(y\)"):
        OrderedTargetEncoder().fit(X, iter(list(y)))
    with pytest.raises(ValueError, match="y must not be masked, got 1 masked of 300 values"):
        OrderedTargetEncoder().fit(X, np.ma.array(y > 0, mask=np.arange(300) == 7))
    with pytest.raises(ValueError, match="prior_weight must be finite and at least 0"):
        bin_by_target(X, y, prior_weight=-1.0)
    with pytest.raises(ValueError, match="categorical_prior must be finite and at least 0, got '1'"):
        JBoostRegressor(**FIT, categorical_prior="1").fit(X, y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="y must hold real numbers"):
        bin_by_target(X, X["b"])
    with pytest.raises(ValueError, match="prior must be a number, or one for each column"):
        jboost.ordered_statistics([0, 1], [1.0, 2.0], [0, 1], prior=[0.0, 1.0])
    assert jboost.ordered_statistics(*np.zeros((3, 0), int), prior=0.0).shape == (0,)
    with pytest.raises(
        ValueError, match="order must hold each of the row numbers 0 to 2 once, got 0 in row 1"
    ):
        jboost.ordered_statistics([0, 0, 1], [1.0, 2.0, 3.0], [0, 0, 2], prior=0.0)
    with pytest.raises(ValueError, match="prior must hold finite numbers, got nan"):
        jboost.ordered_statistics([0, 1], [1.0, 2.0], [0, 1], prior=np.nan)
    with pytest.raises(ValueError, match="target must hold finite numbers, got inf in row 1"):
        jboost.ordered_statistics([0, 1], [1.0, np.inf], [0, 1], prior=0.0)
    with pytest.raises(
        ValueError, match=r"sample_weight must hold numbers of at least 0, got -2\.0 in row 0"
    ):
        jboost.ordered_statistics([0, 1], [1.0, 1.0], [0, 1], prior=0.0, sample_weight=[-2.0, 1.0])
    with pytest.raises(TypeError, match="category must hold whole numbers"):
        jax.jit(lambda y: jboost.ordered_statistics([0.5, 1.0], y, [0, 1], prior=0.0))(np.ones(2))
    with pytest.raises(
        ValueError, match=r"category must have one entry for each of the 2 rows, got shape \(1,\)"
    ):
        jax.jit(lambda y: jboost.ordered_statistics([0], y, [0, 1], prior=0.0))(np.ones(2))
    with pytest.raises(ValueError, match="prior_weight must be finite and at least 0"):
        jax.jit(lambda y: jboost.ordered_statistics([0, 0], y, [0, 1], prior=0.0, prior_weight=-1.0))(
            np.ones(2)
        )
    with pytest.raises(TypeError, match="max_cat_to_onehot must be an integer"):
        bin_by_target(X, y, max_cat_to_onehot="4")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="seed must be a whole number"):
        bin_by_target(X, y, seed="x")
    with pytest.raises(ValueError, match="n_permutations must be an integer of at least 1"):
        OrderedTargetEncoder(n_permutations=0).fit(X[["city"]], y)
