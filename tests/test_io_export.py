"""Exported models: where jboost cannot be imported they give the scores of predict, on every kind of row."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost import Spec, losses
from tests.model_file import members, write_zip

SMALL = Spec(n_estimators=4, max_depth=3)

WITHOUT_JBOOST = """
import sys
sys.modules["jboost"] = None  # an import of it raises
import jax, numpy as np
with open("model.bin", "rb") as file:
    exported = jax.export.deserialize(bytearray(file.read()))
rows = np.load("rows.npy")
np.savez("scores.npz", all=exported.call(rows), three=exported.call(rows[:3]), one=exported.call(rows[:1]))
"""


def rows_for(edges: jboost.BinEdges) -> np.ndarray:
    """Every edge, its neighbours, what is missing, infinite, zero or no known category; float32 [n, f]."""
    upper = edges.upper
    columns = []
    for j, known in enumerate(edges.features.categories):
        finite = upper[j][np.isfinite(upper[j])]
        near = [finite, np.nextafter(finite, np.float32(-np.inf)), np.nextafter(finite, np.float32(np.inf))]
        ends = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, 2.0**24], np.float32)
        codes = [] if known is None else [np.array([float(v) for v in known.values], np.float32)]
        columns.append(np.concatenate([*near, ends, *codes, [7.5, -3.0]]).astype(np.float32))
    rng = np.random.default_rng(0)
    return np.stack([rng.choice(column, 400) for column in columns], axis=1)


def data(categorical=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    X[:, 1] = rng.integers(0, 9, 300)
    X[::7, 0] = np.nan
    y = np.where(np.isnan(X[:, 0]), 1.5, np.sin(X[:, 0])) + np.isin(X[:, 1], [2, 5, 6]) - X[:, 2]
    return jboost.bin_features(X, max_bins=20, categorical=[1] if categorical else None), y


def fit(kind: str) -> jboost.Ensemble:
    binned, y = data(categorical=kind != "numbers")
    if kind == "batch":
        hyper = jax.vmap(lambda rate: jboost.Hyper(learning_rate=rate))(jnp.array([0.1, 0.5]))
        one = partial(jboost.fit, losses.logistic, binned, y > 0, spec=SMALL)
        return jax.jit(jax.vmap(lambda hyper: one(hyper=hyper)[0]))(hyper)
    if kind == "numbers":
        return jboost.fit(losses.logistic, binned, y > 0, spec=SMALL)[0]
    two = np.column_stack([y, -y])
    policy = "depthwise" if kind == "separate" else "symmetric"
    spec = dataclasses.replace(SMALL, grow_policy=policy, multi_output=kind)
    model, _ = jboost.fit(losses.squared_error, binned, two, spec=spec)
    return dataclasses.replace(model, tree_weight=jnp.array([1, 0.5, 2, 1], model.leaf_value.dtype))


def expected_of(model: jboost.Ensemble, X: np.ndarray) -> np.ndarray:
    if model.base.ndim == 1:
        return np.asarray(jboost.predict(model, X))
    return np.stack(
        [expected_of(jax.tree.map(lambda a, i=i: a[i], model), X) for i in range(len(model.base))]
    )


@pytest.mark.parametrize(
    "kind", ["numbers", "vector", "separate", pytest.param("batch", marks=pytest.mark.slow)]
)
def test_the_function_gives_the_scores_of_predict(kind):
    model = fit(kind)
    X = rows_for(model.edges if kind != "batch" else data()[0].edges)
    exported = jboost.io.export(model)
    expected = expected_of(model, X)
    np.testing.assert_array_equal(exported.call(X), expected)
    assert len(np.unique(expected)) > 10
    assert exported.platforms == ("cpu", "cuda", "tpu")
    called = set(re.findall(r"custom_call @(\w+)", exported.mlir_module()))
    assert called <= {"shape_assertion"}  # of the number of rows: nothing of jboost's


def test_predictions_go_through_the_link():
    model = fit("numbers")
    X = rows_for(model.edges)
    found = jboost.io.export(model, "prediction").call(X)
    np.testing.assert_allclose(found, model.inverse_link(jboost.predict(model, X)), rtol=1e-6)
    assert 0 < np.min(found) < np.max(found) < 1


def test_it_runs_where_jboost_is_not(tmp_path, monkeypatch):
    model = fit("vector")
    X = rows_for(model.edges)
    (tmp_path / "model.bin").write_bytes(jboost.io.export(model).serialize())
    np.save(tmp_path / "rows.npy", X)
    monkeypatch.chdir(tmp_path)
    native_library.run_script(WITHOUT_JBOOST, PYTHONPATH=os.pathsep.join(sys.path))
    expected = jboost.predict(model, X)
    with np.load(tmp_path / "scores.npz") as found:
        np.testing.assert_array_equal(found["all"], expected)
        np.testing.assert_array_equal(found["three"], expected[:3])
        np.testing.assert_array_equal(found["one"], expected[:1])


@pytest.mark.slow
def test_a_model_in_float64(x64):
    model = fit("vector")
    X = rows_for(model.edges)
    exported = jboost.io.export(model)
    assert exported.out_avals[0].dtype == np.float64
    np.testing.assert_array_equal(exported.call(X), jboost.predict(model, X))
    with jax.enable_x64(False), pytest.raises(ValueError, match="float64"):
        jboost.io.export(model)


def test_a_model_without_trees():
    model = jboost.truncate(fit("numbers"), 0)
    np.testing.assert_array_equal(
        jboost.io.export(model).call(np.zeros((5, 3), np.float32)), model.base.repeat(5)
    )


def test_what_cannot_be_exported_says_why(tmp_path):
    words = jboost.load(write_zip(tmp_path / "model", members()))
    with pytest.raises(TypeError, match="numbers as categories to be exported, got 'b' in column 1"):
        jboost.io.export(words)
    model, wrong = fit("numbers"), "probability"
    with pytest.raises(ValueError, match="output must be one of 'score', 'prediction', got 'probability'"):
        jboost.io.export(model, wrong)  # pyright: ignore[reportArgumentType]
    nothing: Any = None
    with pytest.raises(TypeError, match=r"model must be a jboost\.Ensemble, got NoneType"):
        jboost.io.export(nothing)
    with pytest.raises(TypeError, match="got a traced one"):
        jax.jit(lambda model: jboost.io.export(model))(model)
    jboost.save(dataclasses.replace(model, inverse_link=lambda score: -score), tmp_path / "model")
    with pytest.raises(RuntimeError, match=r"give it to jboost\.load"):
        jboost.io.export(jboost.load(tmp_path / "model"), "prediction")
    with pytest.raises(ValueError, match=r"expected \(n, 3\) and called with \(5, 4\)"):
        jboost.io.export(model).call(np.zeros((5, 4), np.float32))
