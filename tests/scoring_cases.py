"""Random models and rows to score, and a walk down each tree in plain Python as the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from jboost._runtime.typing import Layout
from jboost._tree import Tree


@dataclass(frozen=True)
class Case:
    """The arguments of `sum_rounds`."""

    layout: Layout
    symmetric: bool
    trees: Tree
    leaf_value: np.ndarray
    bins: np.ndarray
    score: np.ndarray

    @property
    def arrays(self) -> tuple[Any, ...]:
        """The arguments that are arrays."""
        return self.trees, self.leaf_value, self.bins, self.score


@dataclass(frozen=True)
class Shape:
    """What distinguishes one case from another."""

    rows: int = 100
    rounds: int = 3
    depth: int = 3
    features: int = 5
    codes: int = 32
    outputs: int = 1
    separate: bool = False  # one tree for each output
    symmetric: bool = True
    has_missing: bool = True
    categorical: tuple[int, ...] = ()
    wide: bool = False  # uint16 although uint8 would do
    dtype: type = np.float32


def make_case(shape: Shape, rng: np.random.Generator) -> Case:
    """Draw splits anywhere, also beyond the last code, and codes that include 0 only if it means missing."""
    layout = Layout(
        shape.codes, shape.has_missing, shape.categorical, shape.codes if shape.categorical else 0
    )
    slots = shape.depth if shape.symmetric else 2**shape.depth - 1
    trees_shape = (shape.rounds, shape.outputs, slots) if shape.separate else (shape.rounds, slots)
    split = rng.integers(0, shape.codes + 1, trees_shape)
    trees = _tree(
        feature=rng.integers(0, shape.features, trees_shape).astype(np.int32),
        threshold=np.where(rng.random(trees_shape) < 0.1, shape.codes, split).astype(np.int32),
        missing_right=rng.random(trees_shape) < 0.5,
        categories_right=rng.integers(0, 2**32, (*trees_shape, layout.n_words), np.uint32),
        gain=np.zeros(trees_shape, shape.dtype),
    )
    dtype = np.uint16 if shape.wide or shape.codes > 256 else np.uint8
    bins = rng.integers(0 if shape.has_missing else 1, shape.codes, (shape.features, shape.rows)).astype(
        dtype
    )
    leaf_value = rng.normal(size=(shape.rounds, 2**shape.depth, shape.outputs)).astype(shape.dtype)
    score = rng.normal(size=(shape.rows, shape.outputs)).astype(shape.dtype)
    return Case(layout, shape.symmetric, trees, leaf_value, bins, score)


def _tree(**fields: Any) -> Tree:
    return Tree(**fields)


def walk(case: Case, n_rounds: int | None = None) -> np.ndarray:
    """Lead every row down every tree by the documented meaning of its arrays."""
    score = case.score.copy()
    together = case.trees.feature.ndim == 2
    for t in range(len(case.leaf_value) if n_rounds is None else n_rounds):
        for i, codes in enumerate(case.bins.T.astype(int)):
            for k in range(score.shape[1]):
                at = (t,) if together else (t, k)
                score[i, k] += case.leaf_value[t, _leaf(case, at, codes), k]
    return score


def _leaf(case: Case, at: tuple[int, ...], codes: np.ndarray) -> int:
    feature, threshold, missing_right, sets = (
        getattr(case.trees, name)[at]
        for name in ("feature", "threshold", "missing_right", "categories_right")
    )
    depth = case.leaf_value.shape[1].bit_length() - 1
    node = 0
    for level in range(depth):
        slot = level if case.symmetric else 2**level - 1 + node
        code = codes[feature[slot]]
        if code == 0:
            right = bool(missing_right[slot])
        elif feature[slot] in case.layout.categorical:
            right = bool(int(sets[slot, code // 32]) >> (code % 32) & 1)
        else:
            right = bool(code > threshold[slot])
        node = 2 * node + right
    return node
