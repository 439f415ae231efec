"""Fits small problems and prints, for each, on how many devices it ran and a digest of its model.

Run by test_determinism.py in processes of its own; arguments name the problems.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
from typing import Any

import jax
import numpy as np

import jboost
from jboost import Hyper, Spec, _devices, losses

N_ROWS, FEW_ROWS = 33_000, 9_000
SPEC = Spec(n_estimators=4, max_depth=2)  # plain JAX compiles every level; test_devices.py has deeper trees


def watch_devices() -> list[int]:
    """Note on how many devices each program is to run."""
    counts: list[int] = []
    choose = _devices.mesh_for

    def noting(*arguments: Any) -> Any:
        mesh = choose(*arguments)
        counts.append(1 if mesh is None else mesh.size)
        return mesh

    _devices.mesh_for = noting
    return counts


def digest(model: jboost.Ensemble) -> str:
    """Hash every array of a model, with its type and shape."""
    found = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(model):
        array = np.asarray(leaf)
        found.update(f"{jax.tree_util.keystr(path)} {array.dtype} {array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Make numbers with missing values, the last column categories, and a noisy signal."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6)).astype(np.float32)
    X[::7, 2] = np.nan
    X[:, 5] = rng.integers(0, 12, n)
    signal = X[:, 0] * X[:, 1] + np.isnan(X[:, 2]) + np.isin(X[:, 5], [1, 4, 9]) + rng.normal(size=n)
    return X, signal.astype(np.float32)


def problems() -> dict[str, tuple[Any, ...]]:
    """Give loss, data, target and the other arguments of each fit."""
    X, signal = draw(N_ROWS)
    few, few_signal = X[:FEW_ROWS], signal[:FEW_ROWS]
    sampled = Hyper(learning_rate=0.9, subsample=0.7, colsample_bytree=0.6, colsample_bylevel=0.7)
    stops = dataclasses.replace(SPEC, n_estimators=40, n_iter_no_change=2, min_child_samples=50)
    noise = np.random.default_rng(1).permutation(signal)
    weight = 1 + np.arange(N_ROWS, dtype=np.float32) % 3
    return {
        "sampled and stopped": (
            losses.squared_error,
            X,
            noise,
            {"sample_weight": weight, "spec": stops, "hyper": sampled, "valid": (few, few_signal)},
        ),
        "classes": (losses.softmax(3), few, np.digitize(few_signal, [-0.5, 1.0]), {}),
        "categories of two bytes": (
            losses.huber(1.0),
            jboost.bin_features(X, max_bins=700, categorical=[5]),
            signal,
            {"spec": dataclasses.replace(SPEC, grow_policy="depthwise")},
        ),
        "quantile": (losses.absolute_error, few, few_signal, {}),
    }


def main(names: list[str]) -> None:
    """Fit and print."""
    devices, found = watch_devices(), {}
    for name in names:
        loss, data, y, options = problems()[name]
        model, _ = jboost.fit(loss, data, y, **{"spec": SPEC, "verbose": False} | options)
        assert np.count_nonzero(np.asarray(model.trees.gain))
        assert (len(model.leaf_value) < 40) == (len(model.leaf_value) > 0)
        found[name] = {"devices": max(devices), "digest": digest(model), "rounds": len(model.leaf_value)}
        devices.clear()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
