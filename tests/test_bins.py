"""Bin edges and codes, against their definition in plain Python."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jboost._bins import (
    BinEdges,
    Binned,
    Categories,
    bin_features,
    edges_from_exact,
    read_bins,
)
from jboost._bins.host import numeric_codes
from jboost._bins.quantiles import column_edges, quantile_cuts

device_bins = jax.jit(read_bins)
MAX = np.finfo(np.float64).max
TINY = 5e-324
SPECIAL = [0.0, -0.0, TINY, -TINY, 1e-40, -1e-40, MAX, -MAX, np.inf, -np.inf, 3.5e38, np.nan]


def codes(X: Any, **options: Any) -> list[list[int]]:
    return np.asarray(bin_features(X, **options).bins).tolist()


def column_codes(values: list[float], **options: Any) -> list[int]:
    return codes(np.array(values, dtype=np.float64)[:, None], **options)[0]


def naive_codes(edges: BinEdges, X: np.ndarray) -> np.ndarray:
    """Count the edges below each value, one value at a time, in Python's floats."""
    return np.array(
        [
            [0 if v != v else 1 + sum(edge < v for edge in row) for v in X[:, j].tolist()]
            for j, row in enumerate(edges.exact.tolist())
        ]
    )


# ---------------------------------------------------------------- one column: properties


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.floats(), min_size=1, max_size=60)
    | st.lists(st.sampled_from([*SPECIAL, 1.0, 2.0]), min_size=1),
    st.integers(2, 12),
)
@example([-np.inf, np.inf, 0.0], 2)
@example([MAX, np.nextafter(MAX, 0), -MAX], 3)
@example([-0.00112051336219505895, -0.00112051336219505852], 2)
def test_edges_separate_neighbouring_bins_and_no_bin_is_empty(values: list[float], max_bins: int) -> None:
    edges = column_edges(np.array(values), None, max_bins).tolist()
    present = sorted({v for v in values if v == v})
    members = [[v for v in present if sum(e < v for e in edges) == code] for code in range(len(edges) + 1)]
    assert len(members) <= max_bins
    if present:
        assert all(members)
    if len(present) <= max_bins:
        assert all(len(m) <= 1 for m in members)
    for below, edge, above in zip(members, edges, members[1:], strict=False):
        assert below[-1] <= edge < above[0]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([1.0, 1.0, 5.0, 40.0, 300.0]), min_size=13, max_size=80), st.integers(2, 12))
def test_quantile_cuts_fill_the_bins_and_isolate_heavy_values(mass: list[float], max_bins: int) -> None:
    cuts = quantile_cuts(np.array(mass), max_bins).tolist()
    assert cuts == sorted(set(cuts))
    assert min(cuts) > 0
    assert max(cuts) < len(mass)
    assert len(cuts) + 1 <= max_bins
    heavy = [i for i, m in enumerate(mass) if m > sum(mass) / max_bins]
    if 2 * len(heavy) + 1 <= max_bins:  # always room for the runs between them
        assert all((i == 0 or i in cuts) and (i + 1 == len(mass) or i + 1 in cuts) for i in heavy)


def test_distinct_values_fall_into_bins_of_equal_size(rng: np.random.Generator) -> None:
    X = rng.permutation(1000).astype(np.float64)[:, None]
    bins = np.asarray(bin_features(X, max_bins=10).bins)[0]
    assert np.array_equal(bins, 1 + X[:, 0].astype(int) // 100)


def test_rare_values_beside_a_common_one_are_still_cut(rng: np.random.Generator) -> None:
    values = np.zeros(100_000)
    values[:1000] = rng.normal(size=1000)
    bins = np.asarray(bin_features(values[:, None]).bins)[0]
    of_zero = np.unique(bins[values == 0])
    counts = np.bincount(bins[:1000])[1:]
    assert of_zero.size == 1
    assert counts[of_zero[0] - 1] == 0  # zero is alone
    assert bins.max() >= 254
    assert counts.max() <= 5  # 1000 others in 254 bins


def test_many_heavy_values_still_leave_bins_for_light_ones() -> None:
    mass = np.tile([1.0, 50.0], 200)
    cuts = quantile_cuts(mass, 255)
    assert 200 <= cuts.size <= 254
    assert np.diff(cuts).max() <= 3


@pytest.mark.parametrize("max_bins", [2, 3, 255, 256, 1024])
def test_every_legal_number_of_bins_is_used_in_full(max_bins: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(3000, 1))
    X[0] = np.nan
    data = bin_features(X, max_bins=max_bins)
    bins = np.asarray(data.bins)
    assert bins.dtype == (np.uint8 if max_bins <= 255 else np.uint16)
    assert np.array_equal(np.unique(bins), np.arange(max_bins + 1))
    assert np.array_equal(bins, naive_codes(data.edges, X))
    assert data.edges.n_codes == {2: 16, 3: 16, 255: 256, 256: 288, 1024: 1056}[max_bins]
    assert data.edges.max_bins == max_bins


# ---------------------------------------------------------------- hard values


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([MAX, np.nextafter(MAX, 0), -MAX], [3, 2, 1]),
        ([-0.00112051336219505895, -0.00112051336219505852], [1, 2]),
        ([np.inf, np.inf], [1, 1]),
        ([-np.inf, 1.0, np.inf, 2.0], [1, 2, 4, 3]),
        ([20180130, 20180131], [1, 2]),
        ([3e10, 3e10 + 1, 3e10 + 2], [1, 2, 3]),
        ([2.0**53, 2.0**53 - 1], [2, 1]),
        ([0.0, -0.0], [1, 1]),
        ([-TINY, 0.0, TINY], [1, 2, 3]),
        ([np.nan, np.nan], [0, 0]),
        ([1, 1, 1, 1], [1, 1, 1, 1]),
    ],
)
def test_hard_values(values: list[float], expected: list[int]) -> None:
    assert column_codes(values) == expected


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, object])
def test_large_integers_stay_apart(dtype: Any) -> None:
    X = np.array([[20180130], [20180131], [30_000_000_001], [2**53 - 1], [2**53]], dtype=dtype)
    assert codes(X) == [[1, 2, 3, 4, 5]]


def test_value_equal_to_an_edge_goes_left_of_it() -> None:
    data = bin_features([[1.0], [2.0]])
    assert data.edges.exact[0, 0] == 1.5
    after = np.nextafter(1.5, 2)
    assert codes([[1.5], [after]], edges=data.edges) == [[1, 2]]


def test_edges_are_midpoints_also_where_the_sum_overflows() -> None:
    X = np.array([[1.0, MAX / 2, -np.inf], [4.0, MAX, 0.0]])
    assert bin_features(X).edges.exact[:, 0].tolist() == [2.5, 0.75 * MAX, -np.inf]


def test_unseen_values_go_to_the_bin_between_the_edges_around_them() -> None:
    data = bin_features([[1.0], [2.0], [4.0]])
    assert codes([[-np.inf], [1.6], [2.9], [3.1], [np.inf], [np.nan]], edges=data.edges) == [
        [1, 2, 2, 3, 3, 0]
    ]


def test_columns_of_missing_values_have_only_code_zero() -> None:
    data = bin_features(np.full((2, 2), np.nan))
    assert np.asarray(data.bins).tolist() == [[0, 0], [0, 0]]
    assert data.has_missing
    assert np.isinf(data.edges.exact).all()
    assert not bin_features([[1.0], [2.0]]).has_missing


def test_no_rows_can_be_binned_by_given_edges() -> None:
    data = bin_features(np.eye(3))
    assert bin_features(np.empty((0, 3)), edges=data.edges).bins.shape == (3, 0)
    assert read_bins(data.edges, np.empty((0, 3))).shape == (3, 0)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_table_of_leading_bits_agrees_with_the_search(
    dtype: Any, zero: float, rng: np.random.Generator
) -> None:
    exact = np.sort(
        np.append(rng.normal(size=200) * 10.0 ** rng.integers(-5, 5, 200), [zero, -MAX, 1e-41, -np.inf])
    )
    upper = np.asarray(edges_from_exact(exact[None], 256, 255, bin_features([[0]]).edges.features).upper)[0]
    with np.errstate(over="ignore"):
        values = np.concatenate(
            [rng.normal(size=110_000) * 10.0 ** rng.integers(-6, 6, 110_000), SPECIAL, exact]
        )
        values = values.astype(dtype)
    expected = np.where(np.isnan(values), 0, 1 + (exact[:, None] < values.astype(np.float64)).sum(axis=0))
    assert np.array_equal(numeric_codes(values, exact, upper), expected)


# ---------------------------------------------------------------- weights


def test_integer_weights_equal_repeated_rows(rng: np.random.Generator) -> None:
    X = np.round(rng.normal(size=(400, 2)), 2)
    weight = rng.integers(0, 5, 400)
    weighted = bin_features(X, max_bins=20, sample_weight=weight)
    repeated = bin_features(np.repeat(X, weight, axis=0), max_bins=20)
    assert np.array_equal(weighted.edges.exact, repeated.edges.exact)


def test_rows_of_weight_zero_do_not_count() -> None:
    X = np.array([[0, 7.0], [1, 7.0], [2, 9.0], [3, 5.0]])
    weight = [1.0, 2.0, 0.0, 1.0]
    with_zero = bin_features(X, sample_weight=weight, categorical=[1])
    dropped = bin_features(X[[0, 1, 3]], sample_weight=[1.0, 2.0, 1.0], categorical=[1])
    assert np.array_equal(with_zero.edges.exact, dropped.edges.exact)
    assert with_zero.edges.features == dropped.edges.features
    assert np.asarray(with_zero.bins)[1].tolist() == [2, 2, 0, 1]


def test_equal_weights_change_nothing_nor_does_the_order_of_rows(rng: np.random.Generator) -> None:
    X = rng.normal(size=(500, 2)).astype(np.float32)
    plain = bin_features(X, max_bins=16).edges.exact
    assert np.array_equal(bin_features(X, max_bins=16, sample_weight=np.full(500, 0.1)).edges.exact, plain)
    assert np.array_equal(bin_features(rng.permutation(X), max_bins=16).edges.exact, plain)


VALUES = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, 1e-300, -5e-324, np.inf, -np.inf, np.nan]
NUMBERS = {
    "float64": VALUES,
    "float32": VALUES,
    "int8": [-3, -1, 0, 1, 2],
    "uint16": [0, 1, 2, 3],
    "bool": [0, 1],
}
OBJECTS = {"numbers": [0, 0.0, -0.0, False, 1, True, 1.0, None, 2.5], "strings": ["a", "b", "", None]}
WEIGHTS = st.sampled_from([0.0, 0.1, 1.0, 0.3, 7.0, 1e-9])


@st.composite
def weighted_rows(draw: Any) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
    """Columns of one dtype, the second a category; weights, some 0; the categorical columns; another order."""
    kind = draw(st.sampled_from([*NUMBERS, *OBJECTS]))
    dtype, cells = (kind, NUMBERS[kind]) if kind in NUMBERS else (object, OBJECTS[kind])
    rows = draw(st.lists(st.tuples(st.sampled_from(cells), st.sampled_from(cells)), min_size=2, max_size=40))
    weight = draw(st.lists(WEIGHTS | st.just(0.3), min_size=len(rows), max_size=len(rows)))
    weight[draw(st.integers(0, len(rows) - 1))] = 0.3
    X = np.empty((len(rows), 2), object)
    X[:] = rows
    with np.errstate(over="ignore", under="ignore"):
        X = X.astype(dtype)
    order = draw(st.permutations(range(len(rows))))
    return X, np.array(weight), [0, 1] if kind == "strings" else [1], order


def exact_bits(edges: BinEdges) -> list[int]:
    return edges.exact.view(np.uint64).ravel().tolist()


@settings(deadline=None, max_examples=300)
@given(weighted_rows(), st.integers(2, 6))
def test_neither_weightless_rows_nor_their_order_change_anything(rows: Any, max_bins: int) -> None:
    X, weight, categorical, order = rows
    data = bin_features(X, max_bins, weight, categorical)
    kept = weight > 0
    dropped = bin_features(X[kept], max_bins, weight[kept], categorical)
    permuted = bin_features(X[order], max_bins, weight[order], categorical)
    for other in (dropped, permuted):
        assert exact_bits(other.edges) == exact_bits(data.edges)
        assert other.edges.features == data.edges.features
        assert other.edges.n_codes == data.edges.n_codes
    assert np.array_equal(dropped.bins, np.asarray(data.bins)[:, kept])
    assert np.array_equal(permuted.bins, np.asarray(data.bins)[:, order])
    assert not np.signbit(data.edges.exact[data.edges.exact == 0]).any()
    equal = bin_features(X, max_bins, np.where(kept, 0.1, 0.0), categorical)
    plain = bin_features(X[kept], max_bins, None, categorical)
    assert exact_bits(equal.edges) == exact_bits(plain.edges)
    assert equal.edges.features == plain.edges.features


def test_a_row_without_weight_leaves_equal_weights_equal() -> None:
    X = np.append(np.arange(9.0), 0)[:, None]
    with_zero = bin_features(X, max_bins=6, sample_weight=[0.1] * 9 + [0]).edges.exact
    assert np.array_equal(with_zero, bin_features(X[:9], max_bins=6, sample_weight=[0.1] * 9).edges.exact)
    assert np.array_equal(with_zero, bin_features(X[:9], max_bins=6).edges.exact)


def test_an_edge_at_zero_has_no_sign() -> None:
    for zeros in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        data = bin_features(np.array([*zeros, TINY])[:, None])  # no number lies between 0 and the tiny one
        for edges in (data.edges.exact, np.asarray(data.edges.upper)):
            assert edges[0, 0] == 0
            assert not np.signbit(edges[0, 0])
        assert np.asarray(data.bins).tolist() == [[1, 1, 2]]
    given = edges_from_exact(np.array([[-0.0, np.inf]]), 16, 15, bin_features([[0.0]]).edges.features)
    assert not np.signbit(given.exact[0, 0])


@pytest.mark.parametrize("light", [1e-12, 1e-16, 1e-60, 1e-300])
def test_light_rows_beside_heavy_ones_have_bins_of_their_own(light: float, rng: np.random.Generator) -> None:
    """Ten heavy values take a bin each; the light ones share the rest by their own weight, whatever it is."""
    X = rng.permutation(500).astype(float)[:, None]
    heavy = X[:, 0] % 50 == 25
    edges = bin_features(X, max_bins=60, sample_weight=np.where(heavy, 1.0, light)).edges
    codes = np.asarray(bin_features(X, edges=edges).bins)[0]
    sizes = np.bincount(codes)[1:]
    assert sizes.size == 60
    np.testing.assert_array_equal(sizes[codes[heavy] - 1], 1)
    assert np.delete(sizes, codes[heavy] - 1).max() <= 12  # 490 values in 50 bins, and 49 in a run


# ---------------------------------------------------------------- categories


def test_codes_of_categories_follow_their_values() -> None:
    X = np.array([["b", 10.0], ["a", 9.5], [None, np.nan], ["c", 2], ["a", True]], dtype=object)
    data = bin_features(X, categorical=[0, 1])
    assert np.asarray(data.bins).tolist() == [[2, 1, 0, 3, 1], [4, 3, 0, 2, 1]]
    assert data.edges.features.categories[0] == Categories(("a", "b", "c"), (1, 2, 3))
    assert data.edges.features.categories[1] == Categories((True, 2, 9.5, 10.0), (1, 2, 3, 4))
    assert data.edges.features.categorical == (0, 1)


@pytest.mark.parametrize(("n", "n_codes"), [(15, 16), (16, 32), (255, 256), (300, 320)])
def test_histograms_have_room_for_every_category(n: int, n_codes: int) -> None:
    data = bin_features(np.arange(n)[:, None], max_bins=1000, categorical=[0])
    assert np.asarray(data.bins)[0].tolist() == list(range(1, n + 1))
    assert data.edges.n_codes == n_codes


def test_rarest_categories_share_the_last_bin() -> None:
    X = np.array(list("aaabbcdddde"), dtype=object)[:, None]
    data = bin_features(X, max_bins=3, categorical=[0])
    assert data.edges.features.categories[0] == Categories(tuple("abcde"), (1, 3, 3, 2, 3))
    heavy_c = np.where(X[:, 0] == "c", 9.0, 1.0)
    weighted = bin_features(X, max_bins=3, categorical=[0], sample_weight=heavy_c)
    assert weighted.edges.features.categories[0] == Categories(tuple("abcde"), (3, 3, 1, 2, 3))


def test_unseen_category_has_the_missing_code_alone_or_in_a_batch() -> None:
    data = bin_features(np.array([["a"], ["b"]], dtype=object), categorical=[0])
    assert codes(np.array([["z"], ["b"], [None]], dtype=object), edges=data.edges) == [[0, 2, 0]]
    assert codes(np.array([["z"]], dtype=object), edges=data.edges) == [[0]]


@pytest.mark.parametrize("wanted", [1, "1"])
def test_numbers_and_strings_are_not_mistaken_for_each_other(wanted: Any) -> None:
    data = bin_features(np.array([[wanted]], dtype=object), categorical=[0])
    other = str(wanted) if wanted == 1 else 1
    with pytest.raises(TypeError, match=r"X must hold (numbers|strings) as categories in column 0"):
        bin_features(np.array([[other]], dtype=object), edges=data.edges)


def test_integer_categories_match_the_same_numbers_as_floats() -> None:
    data = bin_features(np.array([[3], [1], [2]]), categorical=[0])
    assert codes([[1.0], [2.5], [3.0], [np.nan]], edges=data.edges) == [[1, 0, 3, 0]]


def test_identifiers_of_64_bits_stay_apart() -> None:
    X = np.array([[2**60], [2**60 + 1]])
    data = bin_features(X, categorical=[0])
    assert np.asarray(data.bins).tolist() == [[1, 2]]
    assert np.asarray(device_bins(data.edges, np.array([[2.0**60]], np.float32))).tolist() == [[1]]


def test_categories_are_cheap_and_safe_to_use_as_a_key() -> None:
    known = Categories(tuple(f"c{i}" for i in range(5000)), tuple(range(1, 5001)))
    same = Categories(tuple(f"c{i}" for i in range(5000)), tuple(range(1, 5001)))
    assert hash(known) == hash(same)
    assert known == same
    assert known != Categories(known.values, known.codes[::-1])
    assert Categories((1,), (1,)) != Categories((True,), (1,))
    assert "_hash" in vars(known)
    copy = pickle.loads(pickle.dumps(known))
    assert copy == known
    assert "_hash" not in vars(pickle.loads(pickle.dumps(Categories(("a",), (1,)))))


# ---------------------------------------------------------------- the records


def test_edges_are_a_pytree_that_keeps_the_exact_values(rng: np.random.Generator) -> None:
    data = bin_features(rng.normal(size=(300, 2)), max_bins=40)
    again = jax.jit(lambda d: d)(data)
    assert np.array_equal(again.edges.exact, data.edges.exact)
    assert again.edges.features == data.edges.features
    rebuilt = edges_from_exact(data.edges.exact, data.edges.n_codes, 40, data.edges.features)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(data.edges)
    assert np.array_equal(rebuilt.upper, data.edges.upper)
    loaded = pickle.loads(pickle.dumps(data))
    assert np.array_equal(loaded.edges.exact, data.edges.exact)


def test_upper_edges_are_the_exact_ones_rounded_down() -> None:
    exact = np.array([[-MAX, -1e-300, 0.1, 1.0, 1e39, np.inf]])
    upper = np.asarray(edges_from_exact(exact, 16, 15, bin_features([[0.0]]).edges.features).upper)[0]
    assert (upper <= exact[0]).all()
    with np.errstate(over="ignore"):
        assert (np.nextafter(upper[:-1], np.float32(np.inf)) > exact[0, :-1]).all()
    assert upper[-1] == np.inf


def test_binned_rows_are_read_if_their_edges_are_the_same() -> None:
    data = bin_features([[1.0], [2.0]])
    assert read_bins(data.edges, data) is data.bins
    equal = bin_features([[1.0], [2.0], [2.0]])
    assert read_bins(data.edges, equal) is equal.bins
    for other in ([[1.0], [3.0]], [[1.0, 2.0], [2.0, 1.0]]):
        with pytest.raises(ValueError, match="X must be binned by the edges of the model"):
            read_bins(data.edges, bin_features(other))
    many = bin_features(np.arange(40.0)[:, None])
    with pytest.raises(ValueError, match="X must be binned by the edges"):
        device_bins(data.edges, many)
    assert np.array_equal(device_bins(data.edges, equal), equal.bins)


def test_binning_inside_jit_gives_concrete_edges() -> None:
    @jax.jit
    def inside(x: jax.Array) -> jax.Array:
        data = bin_features(np.array([[1.0], [2.0]]))
        assert isinstance(data, Binned)
        return x + read_bins(data.edges, np.array([[5.0]]))[0, 0]

    assert inside(jnp.float32(1)) == 3
