"""A model file made by hand with zipfile, NumPy and JSON alone, and the scores that it must give.

Two symmetric trees of depth 2 over a number and a category: the tests of `io` hold the library against it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

NOBODY = 16  # a threshold of n_codes: every value goes left
RECORD: dict[str, Any] = {
    "format": "jboost model",
    "version": 2,
    "jboost": "0.1.0",
    "names": None,
    "categories": [None, {"values": ["a", "b"], "codes": [1, 2]}],
    "n_codes": 16,
    "max_bins": 10,
    "inverse_link": {"name": "sigmoid", "built_in": True},
    "scalar_output": True,
    "symmetric": True,
    "multi_output": "vector",
}
ARRAYS: dict[str, np.ndarray] = {
    "base": np.array([0.25], np.float32),
    "leaf_value": np.array([[[1], [2], [4], [8]], [[16], [99], [32], [99]]], np.float32),
    "leaf_hessian": np.array([[[1], [2], [3], [4]], [[6], [0], [4], [0]]], np.float32),
    "leaf_count": np.array([[[4], [8], [12], [16]], [[24], [0], [16], [0]]], np.float32),
    "tree_weight": np.array([1, 1], np.float32),
    "edges": np.array([[0.5, 1.5] + 12 * [np.inf], 14 * [np.inf]]),
    # tree 0: number > 0.5 or missing, then category "b"; tree 1: number > 1.5, then nothing
    "feature": np.array([[0, 1], [0, 0]], np.int32),
    "threshold": np.array([[1, 1], [2, NOBODY]], np.int32),
    "missing_right": np.array([[True, False], [False, False]]),
    "categories_right": np.array([[[0], [0b100]], [[0], [0]]], np.uint32),
    "gain": np.array([[3, 2], [1, 0]], np.float32),
}
RECORD_1 = {**RECORD, "version": 1}
ARRAYS_1 = {
    name: array for name, array in ARRAYS.items() if name not in ("leaf_hessian", "leaf_count", "tree_weight")
}
_WORKED_OUT: list[tuple[list[Any], float]] = [
    ([0.5, "a"], 0.25 + 1 + 16),
    ([0.6, "b"], 0.25 + 8 + 16),
    ([2.0, "a"], 0.25 + 4 + 32),
    ([np.nan, "b"], 0.25 + 8 + 16),
    ([2.0, "unseen"], 0.25 + 4 + 32),
    ([1.5, None], 0.25 + 4 + 16),
]
ROWS = np.array([row for row, _ in _WORKED_OUT], dtype=object)
SCORES = np.array([score for _, score in _WORKED_OUT], np.float32)


def npy(array: np.ndarray, **options: Any) -> bytes:
    """Return the bytes of a .npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, array, **options)
    return file.getvalue()


def members(
    record: Mapping[str, Any] = RECORD, arrays: Mapping[str, np.ndarray] = ARRAYS
) -> dict[str, bytes]:
    """Return the name and content of each entry."""
    contents = {f"{name}.npy": npy(array) for name, array in arrays.items()}
    return {"model.json": json.dumps(record).encode(), **contents}


def write_zip(path: Path, entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """Write entries to a zip, with right checksums."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def same_bits(first: Any, second: Any) -> bool:
    """Whether two pytrees have equal static fields (names, links) and arrays of equal dtype and bits."""

    def parts(tree: Any) -> list[tuple[Any, ...]]:
        arrays = map(np.asarray, jax.tree.leaves(tree))
        return [(array.dtype, array.shape, array.tobytes()) for array in arrays]

    return jax.tree.structure(first) == jax.tree.structure(second) and parts(first) == parts(second)
