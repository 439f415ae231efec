"""What the estimators make of data: containers, layouts, names, weights, missing values, edge cases."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import sklearn.exceptions

from jboost import AdaBoostClassifier
from tests.sklearn_data import POSITIVE, THREE, WEIGHT, X, Y, assert_same_model, classifier, regressor

NAMES = ["a", "b", "c"]


def frame(data=X, names=NAMES):
    return pd.DataFrame(np.array(data), columns=names)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(X, Y)


@pytest.fixture(scope="module")
def fitted_frame():
    return regressor().fit(frame(), Y)


# ---------------------------------------------------------------- containers and layouts


def spread(array):
    """Return a strided view with the same content."""
    wide = np.zeros((2 * array.shape[0], *array.shape[1:]), array.dtype)
    wide[::2] = array
    return wide[::2]


@pytest.mark.parametrize(
    "make",
    [
        np.asfortranarray,
        spread,
        lambda data: np.ascontiguousarray(data[:, ::-1])[:, ::-1],
        lambda data: data.tolist(),
        lambda data: data.astype(object),
        frame,
        lambda data: pl.DataFrame(data, schema=NAMES),
        scipy.sparse.csr_array,
        scipy.sparse.csc_matrix,
        scipy.sparse.coo_array,
        scipy.sparse.dok_array,
    ],
)
def test_containers_and_layouts_give_one_model(make, fitted):
    estimator = regressor().fit(make(X), Y)
    assert_same_model(estimator, fitted)
    np.testing.assert_array_equal(estimator.predict(make(X)), fitted.predict(X))


def test_jax_arrays():
    data = jnp.asarray(X, jnp.float32)
    estimator = regressor().fit(data, jnp.asarray(Y), jnp.ones(60))
    same = regressor().fit(np.asarray(data), Y)
    assert_same_model(estimator, same)
    np.testing.assert_array_equal(estimator.predict(data), same.predict(np.asarray(data)))


@pytest.mark.parametrize(
    "make", [pd.Series, pl.Series, list, spread, lambda y: pd.Series(y, dtype="Float64")]
)
def test_targets_and_weights_in_any_container(make):
    plain = regressor().fit(X, Y, WEIGHT)
    assert_same_model(regressor().fit(X, make(Y), make(WEIGHT)), plain)


def test_a_strided_target_is_read_as_it_is():
    y = np.array([12, 34, 56])[::2]
    estimator = regressor(reg_lambda=0.0, learning_rate=1.0).fit([[0.0], [1.0]], y)
    np.testing.assert_allclose(estimator.predict([[0.0], [1.0]]), [12, 56], rtol=1e-6)


def test_input_is_left_alone():
    data, y, weight = X.copy(), THREE.copy(), WEIGHT.copy()
    classifier(early_stopping=True, random_state=0).fit(data, y, weight)
    np.testing.assert_array_equal(data, X)
    np.testing.assert_array_equal(y, THREE)
    np.testing.assert_array_equal(weight, WEIGHT)


def test_integers_beyond_float32_stay_apart():
    for base in (20180130, 30_000_000_000):
        data = np.array([[base], [base + 1]])
        estimator = regressor(min_child_weight=0.0, learning_rate=1.0, reg_lambda=0.0).fit(data, [0.0, 1.0])
        np.testing.assert_allclose(estimator.predict(data), [0, 1], atol=1e-6)


# ---------------------------------------------------------------- names and numbers of features


def test_names_are_remembered_and_checked(fitted_frame):
    np.testing.assert_array_equal(fitted_frame.feature_names_in_, NAMES)
    assert fitted_frame.n_features_in_ == 3
    with pytest.raises(ValueError, match="must be in the same order"):
        fitted_frame.predict(frame()[["b", "a", "c"]])
    with pytest.raises(ValueError, match="unseen at fit time:\n- d"):
        fitted_frame.predict(frame(names=["a", "b", "d"]))
    with pytest.raises(ValueError, match="now missing:\n- c"):
        fitted_frame.predict(frame()[["a", "b"]])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted_frame.predict(X)


def test_names_of_polars_are_checked():
    estimator = regressor().fit(pl.DataFrame(X, schema=NAMES), Y)
    np.testing.assert_array_equal(estimator.feature_names_in_, NAMES)
    with pytest.raises(ValueError, match="must be in the same order"):
        estimator.predict(pl.DataFrame(X, schema=NAMES)[["b", "a", "c"]])


def test_names_of_an_eval_set_are_checked():
    with pytest.raises(ValueError, match=r"(?s)eval_set\[0\].*same order"):
        regressor().fit(frame(), Y, eval_set=[(frame()[["b", "a", "c"]], Y)])


def test_an_array_of_another_width_is_refused(fitted):
    for width in (2, 4):
        with pytest.raises(ValueError, match=f"X has {width} features, but JBoostRegressor is expecting 3"):
            fitted.predict(np.zeros((5, width)))
    with pytest.raises(ValueError, match="Reshape your data"):
        fitted.predict(X[0])
    with pytest.raises(ValueError, match=r"eval_set\[0\].*X has 2 features"):
        regressor().fit(X, Y, eval_set=[(X[:, :2], Y)])


# ---------------------------------------------------------------- weights


def test_a_row_without_weight_is_not_there():
    estimator = regressor(min_child_weight=0.0).fit([[0], [1], [2]], [0, 0, 100], [1, 1, 0])
    np.testing.assert_array_equal(estimator.predict([[0], [1], [2]]), 0)


@pytest.mark.parametrize("parameters", [{}, {"early_stopping": True, "random_state": 0, "subsample": 0.8}])
def test_rows_without_weight_are_the_same_as_rows_left_out(parameters):
    kept = np.arange(60) % 4 != 0
    weight = np.where(kept, WEIGHT, 0.0)
    estimator = regressor(**parameters).fit(X, Y, weight)
    left_out = regressor(**parameters).fit(X[kept], Y[kept], WEIGHT[kept])
    assert_same_model(estimator, left_out)
    assert estimator.evals_result_ == left_out.evals_result_
    assert estimator.best_iteration_ == left_out.best_iteration_


def test_a_label_without_weight_is_not_there():
    estimator = classifier().fit(X, THREE, (THREE < 2).astype(float))
    np.testing.assert_array_equal(estimator.classes_, [0, 1])
    assert_same_model(estimator, classifier().fit(X[THREE < 2], THREE[THREE < 2]))


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.zeros(60), "weight.*zero"),
        (-WEIGHT, "sample_weight must be finite and non-negative"),
        (np.where(WEIGHT > 1, np.nan, 1.0), "sample_weight must be finite .* got nan"),
        (WEIGHT[:-1], r"sample_weight must have shape \(60,\)"),
        (np.ones((60, 1)), r"sample_weight must have shape \(60,\)"),
    ],
)
def test_weights_that_are_none_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        regressor().fit(X, Y, weight)
    with pytest.raises(ValueError, match=rf"eval_set\[0\].*{message}"):
        regressor().fit(X, Y, eval_set=[(X, Y)], eval_sample_weight=[weight])


def test_masks_are_not_forgotten():
    some = np.arange(60) % 3 == 0
    with pytest.raises(ValueError, match=r"^y must not be masked, got 20 masked of 60"):
        regressor().fit(X, np.ma.masked_array(Y, some))
    with pytest.raises(ValueError, match=r"^sample_weight must not be masked"):
        regressor().fit(X, Y, np.ma.masked_array(WEIGHT, some))
    with pytest.raises(ValueError, match=r"^eval_set\[0\]: y must not be masked"):
        classifier().fit(X, THREE, eval_set=[(X, np.ma.masked_array(THREE, some))])
    cells = np.arange(180).reshape(60, 3) % 7 == 0
    masked, missing = np.ma.masked_array(X, cells), np.where(cells, np.nan, X)
    estimator = regressor().fit(masked, Y)
    assert_same_model(estimator, regressor().fit(missing, Y))
    np.testing.assert_array_equal(estimator.predict(masked), estimator.predict(missing))


def test_class_weights_are_sample_weights():
    share = np.bincount(THREE) / 60
    by_hand = classifier().fit(X, THREE, WEIGHT * (1 / (3 * share))[THREE])
    assert_same_model(classifier(class_weight="balanced").fit(X, THREE, WEIGHT), by_hand)
    labels = np.array(["x", "y", "z"])[THREE]
    by_hand = classifier().fit(X, labels, np.array([2.0, 1.0, 0.5])[THREE])
    assert_same_model(classifier(class_weight={"x": 2.0, "y": 1.0, "z": 0.5}).fit(X, labels), by_hand)
    with pytest.raises(ValueError, match="class_weight"):
        classifier(class_weight={"x": 2.0, "w": 1.0}).fit(X, labels)


# ---------------------------------------------------------------- missing values, infinities, constants


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, "Float64"])
def test_missing_values_of_frames_are_nan(make):
    data = np.where(np.arange(180).reshape(60, 3) % 7 == 0, np.nan, X)
    plain = regressor().fit(data, Y)
    if make == "Float64":
        other = pd.DataFrame(data, columns=NAMES).astype("Float64")
        assert other.isna().to_numpy().any()
    else:
        other = make(dict(zip(NAMES, data.T, strict=True)))
    estimator = regressor().fit(other, Y)
    assert_same_model(estimator, plain)
    np.testing.assert_array_equal(estimator.predict(other), plain.predict(data))


def test_nullable_integers_and_booleans():
    whole = np.round(X)
    data = pd.DataFrame({"a": whole[:, 0], "b": whole[:, 1], "c": whole[:, 2] > 0})
    data = data.astype({"a": "Int64", "b": "Int32", "c": "boolean"})
    data.loc[::7, :] = pd.NA
    plain = np.column_stack([whole[:, :2], whole[:, 2] > 0])
    plain[::7] = np.nan
    assert_same_model(regressor().fit(data, Y), regressor().fit(plain, Y))


def test_nothing_but_missing_values():
    estimator = regressor().fit(np.full((2, 2), np.nan), [1.0, 3.0])
    np.testing.assert_allclose(estimator.predict([[np.nan, 0.0], [1.0, 2.0]]), 2.0)


def test_infinities_are_the_extreme_values():
    data = X.copy()
    data[X[:, 0] == X[:, 0].max(), 0] = np.inf
    data[X[:, 0] == X[:, 0].min(), 0] = -np.inf
    estimator = regressor().fit(data, Y)
    np.testing.assert_allclose(estimator.predict(data), regressor().fit(X, Y).predict(X))
    assert np.isfinite(regressor().fit(np.full((2, 1), np.inf), [0.0, 1.0]).predict([[np.inf]])).all()


def test_constants():
    np.testing.assert_allclose(regressor().fit([[1]] * 4, [0, 10, 0, 10]).predict([[1], [7]]), 5, rtol=1e-6)
    np.testing.assert_allclose(regressor().fit(X, np.full(60, 3.0)).predict(X), 3, rtol=1e-6)
    with_constant = regressor().fit(np.column_stack([X, np.ones(60)]), Y)
    np.testing.assert_array_equal(
        with_constant.predict(np.column_stack([X, np.zeros(60)])), regressor().fit(X, Y).predict(X)
    )
    assert with_constant.feature_importances_[3] == 0


@pytest.mark.parametrize("max_bins", [2, pytest.param(256, marks=pytest.mark.slow), 1024])
def test_any_number_of_bins(max_bins):
    rng = np.random.default_rng(1)
    data = rng.normal(size=(1100, 1))
    data[::50] = np.nan
    y = np.where(np.isnan(data[:, 0]), 5.0, np.sign(data[:, 0] - np.nanmedian(data)))
    estimator = regressor(max_bins=max_bins).fit(data, y)
    used = np.isfinite(estimator.model_.edges.exact).sum() + 1
    assert used == max_bins
    assert estimator.score(data, y) > 0.9


def test_adjacent_floats_and_the_largest_ones():
    a = -0.00112051336219505895
    data = np.array([[a], [np.nextafter(a, 0)], [-1.7e308], [1.7e308]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = regressor(
            min_child_weight=0.0, reg_lambda=0.0, learning_rate=1.0, grow_policy="depthwise"
        )
        estimator.fit(data, [0.0, 1.0, 2.0, 3.0])
    np.testing.assert_allclose(estimator.predict(data), [0, 1, 2, 3], atol=1e-5)


# ---------------------------------------------------------------- categories

TOWN = np.array(["ulm", "bonn", "kiel"])[np.arange(60) % 3]
EFFECT = np.array([0.0, 10.0, 0.0])[np.arange(60) % 3]


@pytest.mark.parametrize(
    "make",
    [
        lambda town: pd.DataFrame({"n": X[: len(town), 0], "town": pd.Categorical(town)}),
        lambda town: pd.DataFrame({"n": X[: len(town), 0], "town": town}),
        lambda town: pl.DataFrame({"n": X[: len(town), 0], "town": pl.Series(town, dtype=pl.Categorical)}),
    ],
)
def test_categories_of_frames(make):
    estimator = regressor().fit(make(TOWN), EFFECT)
    assert estimator.split_counts_[1] > 0
    assert estimator.score(make(TOWN), EFFECT) > 0.9
    known = estimator.predict(make(np.array(["bonn", "kiel", "ulm"])))
    np.testing.assert_allclose(known - known[1], [known[0] - known[1], 0, 0], atol=1e-6)
    assert known[0] > 8


@pytest.mark.parametrize("chosen", [[1], [False, True]])
def test_categories_by_number_or_mask(chosen):
    codes = np.array([7, 3, 5])[np.arange(60) % 3]
    data = np.column_stack([X[:, 0], codes])
    estimator = regressor(max_depth=1, categorical_features=chosen).fit(data, EFFECT)  # 3 against 5 and 7
    assert estimator.model_.edges.features.categories[1].values == (3.0, 5.0, 7.0)
    assert estimator.score(data, EFFECT) > 0.9
    named = regressor(max_depth=1, categorical_features=["town"])
    assert_same_model(named.fit(frame(data, ["n", "town"]), EFFECT), estimator)


def test_an_unseen_category_goes_one_way_alone_or_in_a_batch():
    def make(towns):
        return pd.DataFrame({"n": X[: len(towns), 0] * 0, "town": pd.Series(towns, dtype="category")})

    estimator = regressor().fit(make(TOWN), EFFECT)
    alone = estimator.predict(make(["rome"]))
    batch = estimator.predict(make(["bonn", "rome", "ulm", None]))
    assert batch[1] == alone[0] == batch[3]
    again = estimator.predict(pd.DataFrame({"n": [0.0], "town": pd.Categorical(["ulm"], categories=["ulm"])}))
    assert again[0] == batch[2]


def test_text_that_is_no_category_is_refused():
    with pytest.raises(TypeError, match="categorical_features"):
        regressor().fit(np.column_stack([TOWN, TOWN]).astype(object), EFFECT)


def test_labels_need_not_be_balanced_to_be_held_out():
    estimator = classifier(early_stopping=True, validation_fraction=0.2, random_state=0).fit(X, POSITIVE)
    assert estimator.n_iter_ > 0
    with pytest.raises(ValueError, match="least populated class"):
        classifier(early_stopping=True).fit(X, np.where(np.arange(60) == 0, 2, POSITIVE))


def test_a_missing_label_is_refused_by_name():
    labels = np.array(["a", None] * 4, dtype=object)
    with pytest.raises(ValueError, match="y must have a label"):
        classifier().fit(np.arange(8.0)[:, None], labels)


def test_a_single_column_of_targets_is_a_vector():
    with pytest.warns(sklearn.exceptions.DataConversionWarning, match="1d array was expected"):
        estimator = regressor().fit(X, Y[:, None])
    assert_same_model(estimator, regressor().fit(X, Y))
    assert estimator.predict(X).shape == Y.shape


def test_dates_are_to_be_converted():
    days = pd.DataFrame({"when": pd.date_range("2026-01-01", periods=len(Y))})
    with pytest.raises(TypeError, match=r"column 'when', got dtype Datetime.*convert it to numbers"):
        regressor().fit(days, Y)


def test_text_in_a_column_of_numbers_is_no_matter_of_arguments_once_fitted():
    estimator = regressor().fit(pd.DataFrame({"n": X[:, 0]}), Y)
    with pytest.raises(TypeError, match="got dtype String, as it had when the edges were found"):
        estimator.predict(pd.DataFrame({"n": ["a", "b"]}))


def test_a_wrong_choice_of_categorical_features_is_named():
    with pytest.raises(TypeError, match=r"^categorical_features must be a list"):
        regressor(categorical_features="a").fit(frame(), Y)


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        (dict(zip(NAMES, X.T, strict=True)), r"dict; give a data frame, such as pandas.DataFrame\(X\)"),
        (pl.LazyFrame(X), r"LazyFrame, which is lazy; give X.collect\(\)"),
        ("rows.csv", "str 'rows.csv'; read the data first"),
        (iter(X), r".*; give list\(X\)"),
        (None, "NoneType"),
    ],
)
def test_what_holds_no_rows_is_refused_with_advice(given, advice, fitted):
    for call in (lambda: regressor().fit(given, Y), lambda: fitted.predict(given)):
        with pytest.raises(TypeError, match=rf"^X must be an array or an eager data frame .*, got {advice}"):
            call()
    if isinstance(given, dict):
        with pytest.raises(TypeError, match=r"^y must be an array .* label for each row, got dict"):
            AdaBoostClassifier().fit(X, given)
    if given is not None and not isinstance(given, dict):  # scikit-learn has words of its own for None
        with pytest.raises(TypeError, match=rf"^y must be an array .*, got {advice}".replace("X", "y")):
            regressor().fit(X, given)


def test_too_few_rows_to_hold_some_out():
    with pytest.raises(
        ValueError, match=r"validation_fraction=0.1 of 4 rows cannot be held out: The test_size = 1"
    ):
        classifier(early_stopping=True).fit(X[:4], [0, 1, 0, 1])
    with pytest.raises(ValueError, match=r"validation_fraction=0.1 of 1 rows cannot be held out"):
        regressor(early_stopping=True).fit(X[:1], Y[:1])
