"""The choices and numbers of a fit: defaults, what is refused and how, and what may be traced."""

from __future__ import annotations

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost import Hyper, Spec
from jboost._spec import check_hyper

SHARES = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
FIELDS = tuple(field.name for field in dataclasses.fields(Hyper))
PENALTIES = tuple(name for name in FIELDS if name not in (*SHARES, "learning_rate"))


@pytest.mark.parametrize(
    ("name", "bad", "expected"),
    [
        ("n_estimators", -1, "n_estimators must be at least 0, got -1"),
        ("max_depth", 0, "max_depth must be at least 1, got 0"),
        ("max_depth", 17, "max_depth must be at most 16, got 17"),
        ("min_child_samples", -2, "min_child_samples must be at least 0, got -2"),
        ("max_cat_to_onehot", -1, "max_cat_to_onehot must be at least 0, got -1"),
        ("n_iter_no_change", 0, "n_iter_no_change must be at least 1, got 0"),
        ("grow_policy", "lossguide", "grow_policy must be one of 'symmetric', 'depthwise', got 'lossguide'"),
        ("grow_policy", None, "grow_policy must be one of 'symmetric', 'depthwise', got None"),
        (
            "sketch",
            np.array(["top", "top"]),
            "sketch must be one of 'projection', 'top', got array(['top', 'top'], dtype='<U3')",
        ),
        ("multi_output", "both", "multi_output must be one of 'vector', 'separate', got 'both'"),
        (
            "boosting_type",
            "Ordered",
            "boosting_type must be one of 'plain', 'ordered', 'crossed', got 'Ordered'",
        ),
    ],
)
def test_a_choice_out_of_range_is_refused_by_name(name, bad, expected):
    with pytest.raises(ValueError) as caught:
        Spec(**{name: bad})
    assert str(caught.value) == expected
    with pytest.raises(ValueError):
        dataclasses.replace(Spec(), **{name: bad})


@pytest.mark.parametrize(
    "name", ["n_estimators", "max_depth", "min_child_samples", "max_cat_to_onehot", "n_iter_no_change"]
)
@pytest.mark.parametrize("bad", [3.0, "3", True, [3], np.float32(3)])
def test_a_count_must_be_an_integer(name, bad):
    with pytest.raises(TypeError, match=f"^{name} must be an integer, got "):
        Spec(**{name: bad})


def test_the_limits_themselves_and_numpy_integers_are_allowed():
    spec = Spec(n_estimators=0, max_depth=16, min_child_samples=0, max_cat_to_onehot=0, n_iter_no_change=1)
    assert spec.n_leaves == 65_536
    assert Spec(max_depth=np.int64(3)) == Spec(max_depth=3)  # pyright: ignore[reportArgumentType]
    assert Spec(n_iter_no_change=None).n_iter_no_change is None


@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
@pytest.mark.parametrize("depth", [1, 3])
def test_sizes_of_a_tree_follow_from_its_depth(policy, depth):
    spec = Spec(max_depth=depth, grow_policy=policy)
    assert spec.symmetric == (policy == "symmetric")
    assert spec.n_splits == (depth if spec.symmetric else sum(2**level for level in range(depth)))
    assert spec.n_leaves == 2**depth


@pytest.mark.parametrize(("samples", "counts"), [(0, False), (1, False), (2, True), (20, True)])
def test_rows_are_counted_where_more_than_one_is_asked_for(samples, counts):
    assert Spec(min_child_samples=samples).counts_rows == counts


def test_a_spec_is_a_key_of_the_compilation_cache():
    first, second = Spec(n_estimators=5), dataclasses.replace(Spec(), n_estimators=5)
    assert first == second
    assert hash(first) == hash(second)
    assert first != Spec(n_estimators=6)
    assert pickle.loads(pickle.dumps(first)) == first
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.n_estimators = 7  # pyright: ignore[reportAttributeAccessIssue]
    traces = []

    def count(spec, x):
        traces.append(spec)
        return spec.max_depth * x

    compiled = jax.jit(count, static_argnums=0)
    assert [int(compiled(spec, 2)) for spec in (first, second, Spec(max_depth=2))] == [12, 12, 4]
    assert len(traces) == 2


def test_hyper_is_a_pytree_of_its_fields():
    hyper = Hyper(learning_rate=0.3)
    assert len(jax.tree.leaves(hyper)) == len(FIELDS) == 12
    doubled = jax.tree.map(lambda x: 2 * x, hyper)
    assert isinstance(doubled, Hyper)
    assert doubled.learning_rate == 0.6
    changed = dataclasses.replace(hyper, reg_lambda=5.0)
    assert (changed.learning_rate, changed.reg_lambda, hyper.reg_lambda) == (0.3, 5.0, 1.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        hyper.gamma = 1.0  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="eta"):
        Hyper(eta=0.3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("number", [0.25, 1, np.float64(0.25), np.float32(0.25), np.int64(1), True])
def test_checked_numbers_are_arrays_of_one_dtype(precision, number):
    checked = check_hyper(Hyper(learning_rate=number, subsample=number, gamma=jnp.asarray(number)))
    assert {leaf.dtype for leaf in jax.tree.leaves(checked)} == {np.dtype(precision)}
    assert {leaf.shape for leaf in jax.tree.leaves(checked)} == {()}
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(checked))
    assert checked.learning_rate == checked.subsample == checked.gamma == float(number)
    assert checked.reg_lambda == 1.0


@pytest.mark.parametrize(
    ("names", "bad", "expected"),
    [
        (SHARES, (0.0, -0.5, 1.01, np.nan, np.inf), r"in \(0, 1\]"),
        (("learning_rate",), (0.0, -0.1, np.nan, np.inf), "positive and finite"),
        (PENALTIES, (-1.0, np.nan, np.inf, jnp.float32(-1.0)), "non-negative and finite"),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(names, bad, expected):
    for name in names:
        for value in bad:
            with pytest.raises(ValueError, match=f"^{name} must be {expected}, got {float(value)}"):
                check_hyper(Hyper(**{name: value}))


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_no_scalar_number_is_refused_by_name(name):
    for bad in ("0.1", None, [0.1], 1j):
        with pytest.raises(TypeError, match=f"^{name} must be a number, got {type(bad).__name__}$"):
            check_hyper(Hyper(**{name: bad}))
    with pytest.raises(
        ValueError, match=rf"^{name} must be a scalar, got shape \(2,\); use jboost.sweep or jax.vmap"
    ):
        check_hyper(Hyper(**{name: np.array([0.5, 0.5])}))


def test_the_limits_themselves_are_allowed():
    zeros = dict.fromkeys(PENALTIES, 0.0)
    checked = check_hyper(Hyper(**zeros, **dict.fromkeys(SHARES, 1.0)))
    assert not any(getattr(checked, name) for name in PENALTIES)


def test_another_object_is_no_hyper():
    for bad in ({"learning_rate": 0.1}, None, Spec()):
        with pytest.raises(TypeError, match=f"^hyper must be a jboost.Hyper, got {type(bad).__name__}$"):
            check_hyper(bad)  # pyright: ignore[reportArgumentType]


def test_traced_numbers_pass_and_keep_their_derivative(precision):
    def product(rate, penalty):
        checked = check_hyper(Hyper(learning_rate=rate, reg_lambda=penalty))
        assert checked.learning_rate.dtype == precision
        return checked.learning_rate * checked.reg_lambda

    assert jax.grad(product)(0.5, 3.0) == 3.0
    np.testing.assert_array_equal(jax.vmap(product, (0, None))(jnp.array([1.0, 2.0]), 3.0), [3.0, 6.0])
    assert jax.jit(product)(-1.0, 3.0) == -3.0  # a traced number cannot be looked at, but its shape can
    with pytest.raises(ValueError, match="learning_rate must be a scalar"):
        jax.jit(product)(jnp.ones(2), 3.0)


def test_concrete_numbers_are_checked_inside_a_trace_as_well():
    with pytest.raises(ValueError, match=r"^reg_lambda must be non-negative and finite, got -3\.0"):
        jax.jit(lambda rate: check_hyper(Hyper(learning_rate=rate, reg_lambda=-3.0)))(0.5)


def test_axes_of_a_vmap_over_some_numbers():
    hyper = Hyper(learning_rate=jnp.array([0.1, 0.2, 0.3]), gamma=jnp.array([1.0, 2.0, 3.0]), reg_lambda=10.0)

    def total(hyper):
        return sum(getattr(hyper, name) for name in FIELDS)

    found = jax.vmap(total, in_axes=(Hyper.in_axes("learning_rate", "gamma"),))(hyper)
    shared = sum(getattr(hyper, name) for name in FIELDS if name not in ("learning_rate", "gamma"))
    np.testing.assert_allclose(found, shared + np.array([1.1, 2.2, 3.3]), rtol=1e-6)
    axes = Hyper.in_axes("subsample")
    assert [name for name in FIELDS if getattr(axes, name) == 0] == ["subsample"]
    assert [name for name in FIELDS if getattr(axes, name) is None] == [n for n in FIELDS if n != "subsample"]


def test_axes_of_unknown_numbers_are_refused():
    with pytest.raises(ValueError, match=r"names among learning_rate, .*, got 'eta'"):
        Hyper.in_axes("gamma", "eta")
    with pytest.raises(ValueError, match="must name at least one of learning_rate"):
        Hyper.in_axes()
    with pytest.raises(TypeError, match="names of numbers of Hyper, got 0"):
        Hyper.in_axes(0)  # pyright: ignore[reportArgumentType]
