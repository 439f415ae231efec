"""A model in other people's programs: pickles of any kind, checkpoints, optimisers, rows divided among devices."""

from __future__ import annotations

import copy
import dataclasses
import io
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import joblib
import native_library
import numpy as np
import optax
import pandas as pd
import pytest

import jboost
from jboost import Spec, losses
from tests.model_file import same_bits

SMALL = Spec(n_estimators=3, max_depth=2)


def fit(categorical=None, **choices):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=100), rng.integers(0, 4, 100)])
    data = jboost.bin_features(X, categorical=categorical)
    return jboost.fit(losses.squared_error, data, X[:, 0], spec=dataclasses.replace(SMALL, **choices))[0], X


# ---------------------------------------------------------------- pickles


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


WAYS = {
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "old pickle": lambda model: pickle.loads(pickle.dumps(model, protocol=2)),
    "joblib": through_joblib,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", [*WAYS])
def test_pickles_keep_every_bit_and_are_never_rounded(way, x64):
    model, X = fit([1])
    assert model.leaf_value.dtype == np.float64
    again = WAYS[way](model)
    assert same_bits(again, model)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(again))
    assert same_bits(jboost.predict(again, X), jboost.predict(model, X))
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"float64 \(base, .*leaf_value.*jax_enable_x64"),
    ):
        WAYS[way](model)


def test_a_model_of_float32_goes_anywhere():
    model, _ = fit()
    with jax.enable_x64(True):
        assert same_bits(pickle.loads(pickle.dumps(model)), model)
    batch = jax.tree.map(lambda array: jnp.stack([array, array]), model)
    assert same_bits(pickle.loads(pickle.dumps(batch)), batch)

    def copied(model):
        return copy.copy(model).leaf_value

    assert same_bits(jax.jit(copied)(model), model.leaf_value)


def state_of(value: Any) -> Any:
    """Take an object apart as a serialiser does: what it says is its state, to any depth."""
    if isinstance(value, dict):
        return {key: state_of(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [state_of(one) for one in value]
    if type(value).__module__.startswith("jboost") and not callable(value):
        return type(value), state_of(value.__getstate__())
    return value


def from_state(state: Any) -> Any:
    """Put it together again, without calling a constructor."""
    if isinstance(state, dict):
        return {key: from_state(one) for key, one in state.items()}
    if isinstance(state, tuple):
        made, inside = state[0].__new__(state[0]), from_state(state[1])
        made.__setstate__(inside) if hasattr(made, "__setstate__") else vars(made).update(inside)
        return made
    return tuple(map(from_state, state)) if isinstance(state, list) else state


def test_the_state_of_an_estimator_is_numpy_arrays_and_plain_objects_and_predicts_again():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"a": rng.normal(size=90), "b": pd.Categorical.from_codes(rng.integers(0, 3, 90), list("xyz"))}
    )
    estimator = jboost.JBoostClassifier(n_estimators=3, max_depth=2).fit(X, (X["a"] > 0).to_numpy())
    estimator.predict(X)  # fills whatever is cached
    state = state_of(estimator)
    kinds = {type(leaf) for leaf in jax.tree.leaves(state, is_leaf=lambda x: isinstance(x, type))}
    assert np.ndarray in kinds
    assert not [kind for kind in kinds if issubclass(kind, jax.Array)]
    assert "_hash" not in str(state)  # that of a string is another one in another process
    again = from_state(state)
    np.testing.assert_array_equal(again.predict_proba(X), estimator.predict_proba(X))
    assert again.model_.edges.features == estimator.model_.edges.features


# ---------------------------------------------------------------- checkpoints, optimisers


@pytest.mark.slow
@pytest.mark.parametrize("choices", [{}, {"grow_policy": "depthwise"}, {"multi_output": "separate"}])
@pytest.mark.parametrize("categorical", [None, [1]], ids=["numbers", "categories"])
def test_no_array_of_a_model_is_empty(choices, categorical):
    """Checkpoints such as those of orbax refuse arrays without numbers."""
    model, _ = fit(categorical, **choices)
    assert min(leaf.size for leaf in jax.tree.leaves(model)) > 0
    assert (model.trees.categories_right is None) == (categorical is None)


@pytest.mark.slow
def test_the_floats_of_a_model_have_a_finite_norm_and_none_is_an_edge():
    model, X = fit([1])
    floats = [leaf for leaf in jax.tree.leaves(model) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    assert np.isfinite(optax.tree.norm(floats))
    assert not [leaf for leaf in jax.tree.leaves(model.edges) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    assert np.isinf(model.edges.upper).any()  # which is still how rows are compared

    @jax.jit  # or each operation is a program
    @jax.value_and_grad
    def loss(floats):
        flat, structure = jax.tree.flatten(model)
        places = [i for i, leaf in enumerate(flat) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
        for place, value in zip(places, floats, strict=True):
            flat[place] = value
        return jnp.mean((jboost.predict(jax.tree.unflatten(structure, flat), binned) - X[:, 0]) ** 2)

    binned = jboost.bin_features(X, edges=model.edges)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1))
    value, gradient = loss(floats)
    step, _ = optimiser.update(gradient, optimiser.init(floats), floats)
    assert loss(optax.apply_updates(floats, step))[0] < value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_infinite_and_largest_values_keep_their_codes(dtype):
    info = np.finfo(np.float32)
    column = np.array([-np.inf, info.min, -1.0, 1.0, info.max, np.inf], dtype)
    binned = jboost.bin_features(column[:, None])
    assert binned.bins.tolist() == [[1, 2, 3, 4, 5, 6]]
    traced = jax.jit(lambda X: jboost.bin_features(X, edges=binned.edges).bins)
    assert traced(column[:, None].astype(np.float32)).tolist() == binned.bins.tolist()


# ---------------------------------------------------------------- devices

SHARDED = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import jboost
from jboost._model.scoring import native

mesh = jax.make_mesh((4,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
rows = NamedSharding(mesh, P("rows"))
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3)).astype(np.float32)
X[:, 2], X[::7, 0] = rng.integers(0, 9, 400), np.nan
two = np.stack([X[:, 1], -X[:, 1]], axis=1)
data = jboost.bin_features(X, categorical=[2])
for policy, outputs in (("symmetric", "vector"), ("depthwise", "separate")):
    spec = jboost.Spec(n_estimators=3, max_depth=3, grow_policy=policy, multi_output=outputs)
    model, _ = jboost.fit(jboost.losses.squared_error, data, two, spec=spec)
    compiled = jax.jit(jboost.predict).lower(model, jax.device_put(X, rows)).compile()
    score = compiled(model, jax.device_put(X, rows))
    assert score.sharding.is_equivalent_to(rows, 2), score.sharding
    assert not [word for word in ("all-gather", "all-reduce", "all-to-all") if word in compiled.as_text()]
    np.testing.assert_array_equal(score, jboost.predict(model, X))
print("native" if native.is_available() else "plain")
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "native"])
def test_rows_divided_among_devices_stay_so(kind):
    if kind == "native":
        from jboost._model.scoring import native

        native_library.require(native.is_available)
    assert native_library.run_script(SHARDED, devices=4, JBOOST_NATIVE="01"[kind == "native"]) == kind
