"""Every kind of input is read as the plain array it stands for, and bad input is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import jboost
from jboost._bins import Categories, bin_features, read_bins

NAN = float("nan")
DENSE = np.array([[0.0, 2.0, NAN], [3.0, 0.0, 1.0], [0.0, -2.0, 0.0], [7.0, 0.0, 1.0]])
WHOLE = np.array([[0, 2], [3, 0], [0, 1], [7, 0]])


def codes(X: Any, **options: Any) -> list[list[int]]:
    return np.asarray(bin_features(X, **options).bins).tolist()


def strided(X: np.ndarray) -> np.ndarray:
    return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]


def with_none(X: np.ndarray) -> list[list[float | None]]:
    return [[None if v != v else v for v in row] for row in X.tolist()]


SAME_AS_DENSE: dict[str, Callable[[np.ndarray], Any]] = {
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "long double": lambda X: X.astype(np.longdouble),
    "big endian": lambda X: X.astype(">f8"),
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda X: np.frombuffer(X.tobytes()).reshape(X.shape),
    "list": lambda X: X.tolist(),
    "list with None": with_none,
    "objects": lambda X: X.astype(object),
    "masked": lambda X: np.ma.masked_invalid(X),
    "jax": jnp.asarray,
    "jax bfloat16": lambda X: jnp.asarray(X, jnp.bfloat16),
    "csr": scipy.sparse.csr_matrix,
    "csc array": scipy.sparse.csc_array,
    "coo": scipy.sparse.coo_matrix,
    "dok": scipy.sparse.dok_array,
    "pandas": pd.DataFrame,
    "pandas nullable": lambda X: pd.DataFrame(X).astype("Float64"),
    "pandas float32 nullable": lambda X: pd.DataFrame(X).astype("Float32"),
    "pandas sparse": lambda X: pd.DataFrame(X).astype(pd.SparseDtype("float64", 0.0)),
    "pandas objects": lambda X: pd.DataFrame(with_none(X)).astype(object),
    "pandas named": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
    "polars": lambda X: pl.DataFrame(X),
    "polars with null": lambda X: pl.DataFrame(with_none(X), orient="row"),
}


@pytest.mark.parametrize("kind", SAME_AS_DENSE)
def test_containers_of_floats(kind: str) -> None:
    data, expected = bin_features(SAME_AS_DENSE[kind](DENSE)), bin_features(DENSE)
    assert np.asarray(expected.bins).tolist() == [[1, 2, 1, 3], [3, 2, 1, 2], [0, 2, 1, 2]]
    assert np.array_equal(data.bins, expected.bins)
    assert np.array_equal(data.edges.exact, expected.edges.exact)
    assert np.array_equal(bin_features(SAME_AS_DENSE[kind](DENSE), edges=expected.edges).bins, expected.bins)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda X, d=dtype: X.astype(d) for dtype in ("int8", "uint16", "int32", "uint64", ">i4", object)),
        jnp.asarray,
        lambda X: scipy.sparse.coo_array(([2, 1, 2, 7, 1], ([0, 1, 1, 3, 2], [1, 0, 0, 0, 1])), shape=(4, 2)),
        lambda X: scipy.sparse.csc_array(([4, 3, 2, 1, 2, 1], [3, 1, 3, 3, 0, 2], [0, 4, 6]), shape=(4, 2)),
        lambda X: pd.DataFrame(X).astype("Int64"),
        lambda X: pl.DataFrame(X).cast(pl.Decimal(10, 2)),
    ],
)
def test_containers_of_integers(make: Callable[[np.ndarray], Any]) -> None:
    assert codes(make(WHOLE)) == [[1, 2, 1, 3], [3, 1, 2, 1]]


def test_booleans_are_numbers() -> None:
    X = np.array([[True], [False]])
    for given in (X, pd.DataFrame(X), pd.DataFrame(X).astype("boolean"), pl.DataFrame(X), X.tolist()):
        assert codes(given) == [[2, 1]]


def test_pandas_na_is_missing() -> None:
    X = pd.DataFrame(
        {"i": pd.array([5, pd.NA, 4], dtype="Int64"), "b": pd.array([True, pd.NA, False], dtype="boolean")}
    )
    X["o"] = np.array([pd.NA, 1, None], dtype=object)
    assert codes(X) == [[2, 0, 1], [2, 0, 1], [0, 1, 0]]
    assert codes(X, categorical=["i", "b", "o"]) == [[2, 0, 1], [2, 0, 1], [0, 1, 0]]


def test_arrow_tables_are_read() -> None:
    X = pa.table({"a": [1.5, None, 0.5], "s": ["x", None, "y"]})
    assert codes(X) == [[2, 0, 1], [1, 0, 2]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.int64, bool, object])
def test_masked_cells_are_missing(dtype: Any) -> None:
    X = np.ma.masked_array(
        np.array([[1, 0], [0, 1], [1, 1]]).astype(dtype), [[False, False], [True, False], [False, True]]
    )
    assert codes(X) == [[1, 0, 1], [1, 2, 0]]
    assert codes(X, edges=bin_features([[0.0, 0.0], [1.0, 1.0]]).edges) == [[2, 0, 2], [1, 2, 0]]


def test_masked_strings_are_missing_categories() -> None:
    X = np.ma.masked_array([["b"], ["a"], ["c"]], [[False], [False], [True]])
    assert codes(X, categorical=[0]) == [[2, 1, 0]]


# ---------------------------------------------------------------- categories by dtype


def arrow_dictionary(values: list[Any], kind: Any) -> pd.DataFrame:
    column = pd.array(
        pa.array(values, kind).dictionary_encode(), dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), kind))
    )
    return pd.DataFrame({"c": column})


CATEGORY_COLUMNS: dict[str, Callable[[list[Any]], Any]] = {
    "pandas arrow dictionary": lambda v: arrow_dictionary(v, pa.string()),
    "arrow dictionary": lambda v: pa.table({"c": pa.array(v).dictionary_encode()}),
    "pandas category": lambda v: pd.DataFrame({"c": pd.Categorical(v)}),
    "pandas ordered": lambda v: pd.DataFrame(
        {"c": pd.Categorical(v, categories=["q", "c", "b", "a"], ordered=True)}
    ),
    "pandas string": lambda v: pd.DataFrame({"c": pd.array(v, dtype="string")}),
    "pandas objects": lambda v: pd.DataFrame({"c": np.array(v, dtype=object)}),
    "polars string": lambda v: pl.DataFrame({"c": v}),
    "polars categorical": lambda v: pl.DataFrame({"c": v}, schema={"c": pl.Categorical}),
    "polars enum": lambda v: pl.DataFrame({"c": v}, schema={"c": pl.Enum(["c", "q", "a", "b"])}),
}


@pytest.mark.parametrize("kind", CATEGORY_COLUMNS)
@pytest.mark.parametrize("other", CATEGORY_COLUMNS)
def test_category_columns_match_by_value(kind: str, other: str) -> None:
    data = bin_features(CATEGORY_COLUMNS[kind](["b", None, "a", "b", "c"]))
    assert data.edges.features.categories == (Categories(("a", "b", "c"), (1, 2, 3)),)
    assert np.asarray(data.bins).tolist() == [[2, 0, 1, 2, 3]]
    assert codes(CATEGORY_COLUMNS[other](["c", "q", None, "a"]), edges=data.edges) == [[3, 0, 0, 1]]


def test_pandas_categories_may_be_numbers() -> None:
    X = pd.DataFrame({"c": pd.Categorical([30, 10, None], categories=[30, 20, 10])})
    data = bin_features(X)
    assert data.edges.features.categories == (Categories((10, 30), (1, 2)),)
    assert codes(np.array([[10.0], [20.0], [30.0]]), edges=data.edges) == [[1, 0, 2]]


def test_arrow_dictionaries_may_hold_numbers() -> None:
    data = bin_features(arrow_dictionary([30, 10, None], pa.int64()))
    assert data.edges.features.categories == (Categories((10, 30), (1, 2)),)
    assert np.asarray(data.bins).tolist() == [[2, 1, 0]]


@pytest.mark.parametrize(
    "categorical", [["b"], [1], [False, True], np.array([1]), np.array([False, True]), ("b",)]
)
def test_categorical_columns_are_chosen_by_name_index_or_mask(categorical: Any) -> None:
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [7, 5]})
    features = bin_features(X, categorical=categorical).edges.features
    assert features.names == ("a", "b")
    assert features.categories == (None, Categories((5, 7), (1, 2)))
    assert bin_features(X, categorical=[]).edges.features.categories == (None, None)


# ---------------------------------------------------------------- a number for missing values


@pytest.mark.parametrize("missing", [-999.0, 0.0, -0.0, 0.1, 7])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_number_may_stand_for_missing_values(missing: float, dtype: Any, rng: np.random.Generator) -> None:
    X = rng.normal(size=(50, 2)).astype(dtype)
    X[rng.uniform(size=(50, 2)) < 0.2] = np.nan
    with_number = np.where(np.isnan(X), dtype(missing), X)
    with_number[0], X[0] = np.nan, np.nan
    plain, data = bin_features(X, max_bins=9), bin_features(with_number, max_bins=9, missing=missing)
    assert np.array_equal(data.edges.exact, plain.edges.exact)
    assert np.array_equal(data.bins, plain.bins)
    read = jax.jit(lambda edges, X: read_bins(edges, X))
    for found in (
        bin_features(with_number, edges=data.edges).bins,  # the edges remember it
        bin_features(scipy.sparse.csr_array(with_number), edges=data.edges).bins,
        read(data.edges, with_number),
        jax.jit(lambda edges: read_bins(edges, with_number))(data.edges),
    ):
        assert np.array_equal(found, plain.bins)
    with pytest.raises(ValueError, match="X must be binned by the edges of the model"):
        read_bins(plain.edges, data)


def test_a_number_for_missing_values_is_no_category() -> None:
    X = pd.DataFrame({"a": [5, -1, 3], "b": ["-1", "x", "y"]})
    data = bin_features(X, categorical=["a"], missing=-1)
    assert data.edges.features.categories == (
        Categories((3, 5), (1, 2)),
        Categories(("-1", "x", "y"), (1, 2, 3)),
    )
    assert np.asarray(data.bins).tolist() == [[2, 0, 1], [1, 2, 3]]


def test_what_a_column_cannot_hold_stands_for_nothing() -> None:
    X = np.array([[np.inf], [1.0]], np.float32)
    data = bin_features(X, missing=1e300)
    assert np.asarray(data.bins).tolist() == [[2, 1]]
    assert np.asarray(jax.jit(read_bins)(data.edges, X)).tolist() == [[2, 1]]
    assert bin_features(X, missing=NAN).edges.features.missing is None


# ---------------------------------------------------------------- names


def test_columns_are_matched_by_name() -> None:
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [3.0, 1.0, 2.0]})
    data = bin_features(X)
    assert codes(X[["b", "a"]], edges=data.edges) == [[1, 2, 3], [3, 1, 2]]
    assert codes(pl.from_dict({"b": [3.0], "a": [1.0]}), edges=data.edges) == [[1], [3]]
    assert codes(X.to_numpy(), edges=data.edges) == [[1, 2, 3], [3, 1, 2]]
    assert codes(X.rename(columns={"a": 0, "b": 1}), edges=data.edges) == [[1, 2, 3], [3, 1, 2]]
    unnamed = bin_features(X.to_numpy())
    assert codes(X[["b", "a"]], edges=unnamed.edges) == [[3, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("columns", [["a"], ["a", "c"], ["a", "b", "c"]])
def test_missing_and_extra_names_are_named(columns: list[str]) -> None:
    data = bin_features(pd.DataFrame({"a": [1.0], "b": [2.0]}))
    with pytest.raises(ValueError, match=r"X must have the column names .* missing .* unexpected"):
        bin_features(pd.DataFrame(np.ones((1, len(columns))), columns=columns), edges=data.edges)


@pytest.mark.parametrize(
    "given", [np.ones((2, 3)), pd.DataFrame(np.ones((2, 1))), scipy.sparse.csr_matrix((2, 3))]
)
def test_another_number_of_columns_is_refused(given: Any) -> None:
    data = bin_features(pd.DataFrame({"a": [1.0], "b": [2.0]}))
    with pytest.raises(ValueError, match=r"X has [13] features, but BinEdges is expecting 2 features"):
        bin_features(given, edges=data.edges)


# ---------------------------------------------------------------- bad input


class ToBeComputed:
    """As a lazy array of dask: no array until it is asked."""

    def compute(self) -> np.ndarray:
        return np.ones((1, 1))


BAD_X = [
    (np.ones(3), ValueError, "2-D .* got 1-D .* Reshape your data"),
    (pd.Series([1.0]), ValueError, "2-D"),
    (np.ones((2, 2, 2)), ValueError, "got 3-D"),
    (np.ones((0, 3)), ValueError, r"0 sample\(s\) \(shape=\(0, 3\)\)"),
    (np.ones((3, 0)), ValueError, r"0 feature\(s\) \(shape=\(3, 0\)\)"),
    (pd.DataFrame(), ValueError, "Found array with 0"),
    ([[1, 2], [3]], ValueError, "rows of equal length"),
    (np.array([[1j]]), ValueError, "Complex data not supported"),
    (np.array([[1j]], dtype=object), ValueError, "Complex data not supported"),
    (scipy.sparse.csr_matrix(np.array([[1j]])), ValueError, "Complex data not supported"),
    (np.array([["1.5"]]), TypeError, "numbers in column 0, got strings"),
    ([[1, "a"]], TypeError, "numbers in column 1, got str"),
    (np.array([[1, {}]], dtype=object), TypeError, "numbers in column 1, got dict"),
    (np.array([[10**400]], dtype=object), ValueError, "fit a float64 in column 0"),
    (np.array([["2020-01-01"]], dtype="M8[D]"), TypeError, r"got dtype datetime64\[D\]"),
    (np.zeros(2, dtype=[("a", int), ("b", int)])[:, None], TypeError, "hold numbers, got dtype"),
    (
        pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}),
        TypeError,
        "numbers in column 'when', got dtype Datetime",
    ),
    (pl.DataFrame({"many": [[1, 2]]}), TypeError, "numbers in column 'many', got dtype List"),
    (
        pd.DataFrame({"c": pd.Categorical(pd.to_datetime(["2020-01-01"]))}),
        TypeError,
        "column 'c', got Timestamp",
    ),
    (pd.DataFrame(np.ones((1, 2)), columns=["a", "a"]), ValueError, "column names that differ"),
    (pd.DataFrame(np.ones((1, 2)), columns=["a", 1]), TypeError, "names that are all strings or all not"),
    (pl.LazyFrame({"a": [1]}), TypeError, r"eager data frame .* got LazyFrame, .*; give X\.collect\(\)"),
    (ToBeComputed(), TypeError, r"got ToBeComputed, which is lazy; give X\.compute\(\)"),
    ({"a": [1.0], "b": [2.0]}, TypeError, r"got dict; give a data frame, such as pandas\.DataFrame\(X\)"),
    ("rows.csv", TypeError, "got str 'rows.csv'; read the data first"),
    (Path("rows.csv"), TypeError, "got PosixPath .*; read the data first"),
    (([1.0] for _ in range(2)), TypeError, r"got generator; give list\(X\)"),
    (None, TypeError, "got NoneType$"),
    (pl.Series([1.0]), ValueError, "2-D .* got 1-D .* Reshape your data"),
    (3.0, ValueError, r"2-D .* got 0-D with shape \(\)"),
]


@pytest.mark.parametrize(("X", "error", "message"), BAD_X)
def test_bad_features_are_named(X: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^X must .*{message}"):
        bin_features(X)


BAD_OPTIONS = [
    ({"max_bins": 1}, ValueError, "max_bins must be at least 2 or 'exact', got 1"),
    ({"max_bins": 65535}, ValueError, "max_bins must be at most 65534 or 'exact'"),
    ({"max_bins": 16.0}, TypeError, "max_bins must be an integer or 'exact', got 16.0"),
    ({"max_bins": True}, TypeError, "max_bins must be an integer"),
    ({"sample_weight": [1.0, -1.0]}, ValueError, "sample_weight must .* got -1.0"),
    ({"sample_weight": [1.0, NAN]}, ValueError, "sample_weight must .* got nan"),
    ({"sample_weight": [1.0, np.inf]}, ValueError, "sample_weight must .* got inf"),
    ({"sample_weight": [1.0]}, ValueError, r"sample_weight must have shape \(2,\).* got \(1,\)"),
    ({"sample_weight": np.ones((2, 1))}, ValueError, r"sample_weight must .* got \(2, 1\)"),
    ({"sample_weight": [0.0, 0.0]}, ValueError, "sample_weight must hold .* zero for every row"),
    ({"sample_weight": ["1", "2"]}, TypeError, "sample_weight must hold real numbers"),
    ({"sample_weight": [1j, 1]}, TypeError, "sample_weight must hold real numbers"),
    ({"categorical": ["z"]}, ValueError, "categorical must .* got 'z'"),
    ({"categorical": "a"}, TypeError, "categorical must be a list"),
    ({"categorical": [2]}, ValueError, "categorical must hold indices from 0 to 1, got 2"),
    ({"categorical": [-1]}, ValueError, "categorical must hold indices from 0 to 1, got -1"),
    ({"categorical": [True]}, ValueError, "categorical must be a mask of 2 booleans"),
    ({"categorical": ["a", 1]}, TypeError, "categorical must hold only names"),
    ({"categorical": [1.0]}, TypeError, "categorical must hold only names"),
    ({"missing": "?"}, TypeError, "missing must be a number, got '\\?'"),
    ({"missing": True}, TypeError, "missing must be a number, got True"),
    ({"missing": np.inf}, ValueError, "missing must be finite or NaN, got inf"),
    ({"edges": "a"}, TypeError, "edges must be BinEdges, got str"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD_OPTIONS)
def test_bad_options_are_named(options: dict[str, Any], error: type[Exception], message: str) -> None:
    X = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4]})
    with pytest.raises(error, match=message):
        bin_features(X, **options)


def test_names_cannot_choose_columns_that_have_none() -> None:
    with pytest.raises(ValueError, match="categorical must hold indices, as X has no column names"):
        bin_features(np.eye(2), categorical=["a"])


@pytest.mark.parametrize("cell", [b"bytes", (1, 2), [1], pd.Timestamp(0)])
def test_other_categories_are_refused(cell: Any) -> None:
    X = np.empty((1, 1), dtype=object)
    X[0, 0] = cell
    with pytest.raises(TypeError, match=r"X must hold .* as categories in column 0"):
        bin_features(X, categorical=[0])


@pytest.mark.parametrize(
    "option", [{"max_bins": 16}, {"sample_weight": [1.0]}, {"categorical": [0]}, {"missing": 0}]
)
def test_edges_leave_no_room_for_other_options(option: dict[str, Any]) -> None:
    data = bin_features([[1.0]], max_bins=32)
    with pytest.raises(
        ValueError, match="edges must come without max_bins, sample_weight, categorical and missing"
    ):
        bin_features([[1.0]], edges=data.edges, **option)
    assert codes([[1.0]], edges=data.edges, max_bins=32) == [[1]]


def test_binned_and_traced_input_is_refused_where_edges_are_to_be_found() -> None:
    with pytest.raises(TypeError, match="X must be features that are not binned"):
        bin_features(bin_features([[1.0]]))
    with pytest.raises(TypeError, match="X must be concrete"):
        jax.jit(bin_features)(np.eye(2))
    with pytest.raises(TypeError, match="sample_weight must be concrete"):
        jax.jit(lambda w: bin_features(np.eye(2), sample_weight=w).bins)(np.ones(2))


def test_string_column_where_numbers_were_binned_is_refused() -> None:
    data = bin_features(pd.DataFrame({"a": [1.0, 2.0]}))
    with pytest.raises(TypeError, match=r"X must hold numbers in column 'a', got dtype (String|Categorical)"):
        bin_features(pd.DataFrame({"a": pd.Categorical(["1", "2"])}), edges=data.edges)


def test_lazy_frames_and_no_arrays_are_refused_where_a_model_predicts() -> None:
    model, _ = jboost.fit(
        jboost.losses.squared_error, [[1.0], [2.0]], [1.0, 2.0], spec=jboost.Spec(n_estimators=1)
    )
    for given, words in (
        (None, "NoneType"),
        (pl.LazyFrame({"a": [1]}), "collect"),
        ({"a": [1]}, "DataFrame"),
    ):
        with pytest.raises(TypeError, match=rf"^X must be an array or an eager data frame .*got .*{words}"):
            jboost.predict(model, given)


def test_narwhals_frames_are_read() -> None:
    assert codes(nw.from_native(pl.DataFrame({"a": [2.0, 1.0]}))) == [[2, 1]]
