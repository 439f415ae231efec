"""Save and load, pickle and copy: every bit comes back, in another process too."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import jboost
from jboost import Hyper, Spec, losses
from jboost._bins import Categories, Features, edges_from_exact
from tests.model_file import ARRAYS, ARRAYS_1, RECORD, RECORD_1, ROWS, SCORES, members, same_bits, write_zip
from tests.twin import problem

SMALL = Spec(n_estimators=3, max_depth=3)
FAST = Hyper(learning_rate=0.3)


def round_trip(model, path):
    jboost.save(model, path)
    again = jboost.load(path)
    assert same_bits(again, model)
    return again


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory):
    return jboost.load(write_zip(tmp_path_factory.mktemp("io") / "hand.jboost", members()))


@pytest.fixture(scope="module")
def frame():
    """Columns of every kind, with missing cells and names and categories beyond ASCII."""
    rng = np.random.default_rng(0)
    pick = rng.integers(0, 3, (200, 4))
    table = pd.DataFrame({"größe 📏": rng.normal(size=200)})
    kinds = {"色": ["赤", "été", "\U0001f600"], "int": [7, -2, 2**60], "float": [0.1, 1e300, -0.5]}
    for column, (name, values) in enumerate(kinds.items()):
        table[name] = pd.Categorical.from_codes(pick[:, column], categories=values)
    table["bool"] = pd.Categorical.from_codes(pick[:, 3] % 2, categories=[False, True])
    return table.mask(rng.random(table.shape) < 0.1)


@pytest.fixture(scope="module")
def frame_model(frame):
    y = frame["größe 📏"].fillna(2.0).to_numpy() + (frame["色"] == "赤") - (frame["int"] == 7)
    return jboost.fit(losses.squared_error, frame, np.asarray(y, float), spec=SMALL, hyper=FAST)[0]


# ---------------------------------------------------------------- the format


def test_a_file_made_by_hand_gives_the_scores_worked_out_by_hand(hand_made):
    np.testing.assert_array_equal(jboost.predict(hand_made, ROWS), SCORES)
    assert hand_made.inverse_link is losses.sigmoid


def test_a_file_of_version_1_has_covers_that_nobody_knows_and_weights_of_1(hand_made, tmp_path):
    old = jboost.load(write_zip(tmp_path / "old", members(RECORD_1, ARRAYS_1)))
    assert same_bits(jboost.predict(old, ROWS), jboost.predict(hand_made, ROWS))
    for name in ("leaf_hessian", "leaf_count"):
        assert getattr(old, name).shape == (2, 4, 1)
        assert np.isnan(getattr(old, name)).all()
    assert old.tree_weight.tolist() == [1, 1]
    round_trip(old, tmp_path / "new")  # of version 2: it still does not know


def test_numpy_and_json_read_what_save_writes(hand_made, tmp_path):
    jboost.save(hand_made, tmp_path / "model.jboost")
    with np.load(tmp_path / "model.jboost", allow_pickle=False) as found:
        assert {*found.files} == {"model.json", *ARRAYS}
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype
    with zipfile.ZipFile(tmp_path / "model.jboost") as archive:
        record = json.loads(archive.read("model.json"))
    assert list(record)[:3] == ["format", "version", "jboost"]
    assert {**record, "jboost": ""} == {**RECORD, "jboost": ""}


def test_equal_models_give_equal_files(hand_made, tmp_path):
    jboost.save(hand_made, tmp_path / "a")
    jboost.save(jboost.load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


# ---------------------------------------------------------------- round trips


def random_model(symmetric, separate, k):
    """A model over numbers with missing values and categories, whose trees are drawn by lot."""
    rng, edges, depth, t = np.random.default_rng(0), problem().data.edges, 3, 5
    splits = (t, k, depth if symmetric else 2**depth - 1)
    splits = splits if separate else (splits[0], splits[2])
    trees = jboost.Tree(
        jnp.asarray(rng.integers(0, 5, splits, np.int32)),
        jnp.asarray(rng.integers(0, edges.n_codes + 1, splits, np.int32)),
        jnp.asarray(rng.random(splits) < 0.5),
        jnp.asarray(rng.integers(0, 2**32, (*splits, edges.n_codes // 32), np.uint32)),
        jnp.asarray(rng.random(splits), float),
    )
    base, leaf_value = jnp.asarray(rng.normal(size=k), float), rng.normal(size=(t, 2**depth, k))
    leaves = jnp.asarray(leaf_value, float)
    return jboost.Ensemble(
        base=base,
        trees=trees,
        leaf_value=leaves,
        leaf_hessian=abs(leaves),
        leaf_count=2 * abs(leaves[..., : k if separate else 1]),
        tree_weight=jnp.linspace(0.5, 2.0, t, dtype=float),
        edges=edges,
        inverse_link=losses.exp,
        scalar_output=k == 1,
        symmetric=symmetric,
    )


@pytest.mark.parametrize("separate", [False, True], ids=["vector", "separate"])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "depthwise"])
@pytest.mark.parametrize(
    "precision", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["x32", "x64"], indirect=True
)
def test_every_kind_of_tree_comes_back_bit_for_bit(symmetric, separate, precision, tmp_path):
    model, rows = random_model(symmetric, separate, 2), problem()
    assert model.leaf_value.dtype == precision
    again = round_trip(model, tmp_path / "model")
    for X in (rows.X, rows.data, rows.X.astype(np.float32)):
        score = jboost.predict(model, X)
        assert same_bits(jboost.predict(again, X), score)
        assert len(np.unique(score)) > 10  # the trees do something


def test_rounds_one_by_one_and_under_jit(tmp_path):
    model, rows = random_model(True, False, 1), problem()
    again = round_trip(model, tmp_path / "model")
    staged = [list(jboost.staged_predict(m, rows.data)) for m in (model, again)]
    assert same_bits(staged[0], staged[1])
    traces = []

    @jax.jit
    def predict(model):
        traces.append(model)
        return jboost.predict(model, rows.data)

    assert same_bits(predict(again), predict(model))
    assert len(traces) == 1  # for JAX, the two are the same kind of model


def test_names_and_categories_of_a_data_frame_come_back(frame, frame_model, tmp_path):
    again = round_trip(frame_model, tmp_path / "model")
    assert again.edges.features.names == tuple(frame.columns)
    kinds = [None if c is None else [*map(type, c.values)] for c in again.edges.features.categories]
    assert kinds == [None, [str] * 3, [int] * 3, [float] * 3, [bool] * 2]
    shuffled = frame[frame.columns[::-1]]
    assert same_bits(jboost.predict(again, shuffled), jboost.predict(frame_model, frame))


def test_training_goes_on_from_a_loaded_model(frame, frame_model, tmp_path):
    again = round_trip(frame_model, tmp_path / "model")
    y = np.arange(200.0)
    longer, expected = (
        jboost.fit(losses.squared_error, frame, y, spec=SMALL, hyper=FAST, init_model=model)[0]
        for model in (again, frame_model)
    )
    assert longer.n_trees == 6
    assert same_bits(longer, expected)


def test_models_without_trees(hand_made, tmp_path):
    empty = jboost.truncate(hand_made, 0)
    again = round_trip(empty, tmp_path / "model")
    np.testing.assert_array_equal(jboost.predict(again, ROWS), np.full(len(ROWS), 0.25, np.float32))
    X = np.arange(6.0).reshape(3, 2)
    fitted, _ = jboost.fit(losses.squared_error, X, X, spec=dataclasses.replace(SMALL, n_estimators=0))
    again = round_trip(fitted, tmp_path / "model")
    np.testing.assert_array_equal(
        jboost.predict(again, X), np.tile(X.mean(axis=0).astype(np.float32), (3, 1))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_next_to_a_threshold_are_routed_as_before(dtype, tmp_path):
    near, info = dtype(0.671), np.finfo(dtype)
    neighbours = [np.nextafter(near, dtype(0)), near, np.nextafter(near, dtype(1))]
    extremes = [info.smallest_subnormal, info.max, info.min, -np.inf, np.inf, 0.0]
    large = [20180130, 20180131, 3e10, 3e10 + 1]  # one value each in float32
    column = np.array([*neighbours, *extremes, *large], dtype)
    edges = jboost.bin_features(column[:, None]).edges
    t = edges.exact[edges.exact < np.inf]
    with np.errstate(over="ignore"):
        probes = np.concatenate([column, t, np.nextafter(t, -np.inf), np.nextafter(t, np.inf)])[:, None]
    codes = jboost.bin_features(probes, edges=edges).bins
    trees = jboost.Tree(
        jnp.zeros((t.size, 1), jnp.int32),
        jnp.arange(1, t.size + 1, dtype=jnp.int32)[:, None],  # one tree for each threshold
        jnp.zeros((t.size, 1), bool),
        None,
        jnp.ones((t.size, 1)),
    )
    leaves, weight = jnp.tile(jnp.array([[[0.0], [1.0]]]), (t.size, 1, 1)), jnp.ones(t.size)
    model = jboost.Ensemble(jnp.zeros(1), trees, leaves, leaves, leaves, weight, edges)
    again = round_trip(model, tmp_path / "model")
    np.testing.assert_array_equal(jboost.predict(again, probes), codes[0] - 1.0)
    assert len(np.unique(jboost.predict(again, column[:, None]))) == len(np.unique(column))


def test_numbers_at_the_ends_of_their_range_come_back(hand_made, tmp_path):
    extreme = np.array([-0.0, 1e-45, np.finfo(np.float32).max, -np.finfo(np.float32).tiny], np.float32)
    leaf_value = jnp.asarray(np.stack([extreme, extreme[::-1]])[..., None])
    again = round_trip(dataclasses.replace(hand_made, leaf_value=leaf_value), tmp_path / "model")
    assert np.asarray(again.leaf_value)[0].tobytes() == extreme.tobytes()


def test_the_number_for_missing_values_comes_back(tmp_path):
    X, y = np.array([[-1.0], [0.0], [1.0], [2.0]] * 8), np.array([5.0, 0.0, 0.0, 1.0] * 8)
    data = jboost.bin_features(X, missing=-1)
    model = jboost.fit(losses.squared_error, data, y, spec=SMALL, hyper=FAST)[0]
    again = round_trip(model, tmp_path / "model")
    assert again.edges.features.missing == -1.0
    np.testing.assert_array_equal(jboost.predict(again, [[-1.0]]), jboost.predict(again, [[np.nan]]))
    np.testing.assert_array_equal(jboost.predict(again, X), jboost.predict(model, data))


TEXT = st.text(st.characters(), max_size=5)  # of any characters, halves of surrogate pairs too
VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT)


@hypothesis_settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(values=st.lists(VALUES, unique=True, max_size=9), name=TEXT)
def test_any_category_and_name_come_back_in_their_type(values, name, hand_made, tmp_path):
    values.sort(key=lambda value: (isinstance(value, str), value))
    known = Categories(tuple(values), tuple(range(1, len(values) + 1)))
    features = Features((name, name + "2"), (None, known))
    edges = edges_from_exact(hand_made.edges.exact, 16, 10, features)
    again = round_trip(dataclasses.replace(hand_made, edges=edges), tmp_path / "model")
    found = again.edges.features.categories[1]
    assert found is not None
    assert [(type(v), repr(v)) for v in found.values] == [(type(v), repr(v)) for v in values]


IN_ANOTHER_PROCESS = """
import pickle, sys
import numpy as np
import jboost
with open("rows.pkl", "rb") as file:
    frame, binned = pickle.load(file)
model = jboost.load("model.jboost")
np.savez("scores.npz", frame=jboost.predict(model, frame), binned=jboost.predict(model, binned))
jboost.save(model, "again.jboost")
"""


def test_another_process_predicts_the_same_bits(frame, frame_model, tmp_path):
    jboost.save(frame_model, tmp_path / "model.jboost")
    binned = jboost.bin_features(frame, edges=frame_model.edges)
    (tmp_path / "rows.pkl").write_bytes(pickle.dumps((frame, binned)))
    path = os.pathsep.join([str(Path(jboost.__file__).parents[1]), *sys.path])
    env = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "1234"}
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], cwd=tmp_path, env=env, check=True)
    with np.load(tmp_path / "scores.npz") as scores:
        for name in ("frame", "binned"):
            assert scores[name].tobytes() == np.asarray(jboost.predict(frame_model, frame)).tobytes()
    assert (tmp_path / "again.jboost").read_bytes() == (tmp_path / "model.jboost").read_bytes()


@pytest.mark.parametrize(
    "clone",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy, copy.copy],
    ids=["pickle", "deep", "copy"],
)
def test_models_and_binned_rows_pickle_and_copy(clone, frame, frame_model):
    binned = jboost.bin_features(frame, edges=frame_model.edges)
    model, rows = clone(frame_model), clone(binned)
    assert same_bits(model, frame_model)
    assert same_bits(rows, binned)
    assert same_bits(jboost.predict(model, rows), jboost.predict(frame_model, frame))


# ---------------------------------------------------------------- precision


def test_a_model_in_float64_is_not_rounded_silently(hand_made, tmp_path):
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda a: a.astype(float) if a.dtype == jnp.float32 else a, hand_made.leaf_value)
        model = dataclasses.replace(hand_made, base=jnp.array([0.1]), leaf_value=wide)
        jboost.save(model, tmp_path / "model")
    with jax.enable_x64(False):
        jboost.save(model, tmp_path / "saved_without")  # loses nothing
        with pytest.raises(ValueError, match=r"model.*float64 \(base, leaf_value\).*jax_enable_x64"):
            jboost.load(tmp_path / "model")
    assert (tmp_path / "saved_without").read_bytes() == (tmp_path / "model").read_bytes()
    with jax.enable_x64(True):
        assert same_bits(jboost.load(tmp_path / "model"), model)
        loaded = jboost.load(tmp_path / "model")  # the way to round on purpose that `load` describes
        narrow = jax.tree.map(lambda a: a.astype("float32") if a.dtype == "float64" else a, loaded)
    with jax.enable_x64(False):
        assert same_bits(round_trip(narrow, tmp_path / "narrow").base, jnp.float32([0.1]))


def test_a_model_in_float32_stays_so_with_x64_on(hand_made, tmp_path, x64):
    assert round_trip(hand_made, tmp_path / "model").leaf_value.dtype == np.float32


# ---------------------------------------------------------------- inverse links


@pytest.mark.parametrize("name", ["identity", "sigmoid", "sigmoid_of_double", "softmax_of_scores", "exp"])
def test_inverse_links_of_jboost_are_stored_under_these_names(name, hand_made, tmp_path):
    link = losses.INVERSE_LINKS[name]
    path = write_zip(
        tmp_path / "model", members({**RECORD, "inverse_link": {"name": name, "built_in": True}})
    )
    assert jboost.load(path).inverse_link is link
    round_trip(dataclasses.replace(hand_made, inverse_link=link), path)


def squeeze(score):
    return jnp.tanh(score)


def test_an_inverse_link_of_ones_own_is_given_to_load(hand_made, tmp_path):
    jboost.save(dataclasses.replace(hand_made, inverse_link=squeeze), tmp_path / "model")
    assert jboost.load(tmp_path / "model", inverse_link=squeeze).inverse_link is squeeze
    without = jboost.load(tmp_path / "model")
    np.testing.assert_array_equal(jboost.predict(without, ROWS), SCORES)
    with pytest.raises(RuntimeError, match=r"test_io\.squeeze.*inverse_link="):
        without.inverse_link(jboost.predict(without, ROWS))
    assert same_bits(pickle.loads(pickle.dumps(without)), without)
    jboost.save(without, tmp_path / "again")  # still remembers the name
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_the_link_given_to_load_stands_above_the_stored_one(hand_made, tmp_path):
    jboost.save(hand_made, tmp_path / "model")
    assert jboost.load(tmp_path / "model", inverse_link=squeeze).inverse_link is squeeze


@pytest.mark.parametrize(
    "link", [lambda score: score, jnp.tanh, jax.jit(jnp.tanh)], ids=["lambda", "ufunc", "jit"]
)
def test_any_callable_can_be_a_link(link, hand_made, tmp_path):
    jboost.save(dataclasses.replace(hand_made, inverse_link=link), tmp_path / "model")
    assert jboost.load(tmp_path / "model", inverse_link=link).inverse_link is link


def test_an_estimator_is_told_what_to_save(tmp_path):
    estimator: Any = jboost.JBoostRegressor(n_estimators=1).fit(np.arange(8.0)[:, None], np.arange(8.0))
    with pytest.raises(TypeError, match="got JBoostRegressor: pass its attribute model_"):
        jboost.save(estimator, tmp_path / "model")
    learned: Any = SimpleNamespace(predict=len)
    with pytest.raises(TypeError, match="Ensemble or LinearModel, got SimpleNamespace: pickle it instead"):
        jboost.save(learned, tmp_path / "model")


def test_the_package_knows_its_version():
    assert re.fullmatch(r"\d+\.\d+\.\d+.*|unknown", jboost.__version__)
