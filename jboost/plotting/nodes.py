"""A tree of a model as nested nodes, in words."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._model.cover import node_cover
from jboost._model.ensemble import Ensemble, check_model, name_kind
from jboost._runtime.arguments import is_whole
from jboost._runtime.typing import WORD, is_traced

MOST_CATEGORIES = 4  # that a question lists


@dataclasses.dataclass(frozen=True)
class Node:
    """A split with two children, or a leaf.

    Attributes
    ----------
    question : str or None
        What is asked of a row; None at a leaf. Rows for which it holds go left.
    missing_right : bool
        Whether missing and unseen values go right.
    gain : float
        What the split gained; of a symmetric tree, that of its whole level.
    cover : float
        Sum of h of the training rows that came here, over the outputs; NaN where it is not known.
    value : float [k]
        What a leaf adds to the scores, or to that of one output.
    left, right : Node or None
        The children.
    """

    question: str | None
    missing_right: bool
    gain: float
    cover: float
    value: Float[np.ndarray, " k"]
    left: Node | None = None
    right: Node | None = None

    @property
    def children(self) -> tuple[Node, ...]:
        """Both children of a split, none of a leaf."""
        return () if self.left is None or self.right is None else (self.left, self.right)

    @property
    def depth(self) -> int:
        """Splits on the longest way to a leaf."""
        return 1 + max(child.depth for child in self.children) if self.children else 0

    @property
    def n_leaves(self) -> int:
        """Leaves below."""
        return sum(child.n_leaves for child in self.children) if self.children else 1


def read_tree(model: Any, number: Any, output: Any = None) -> Node:
    """Return the root of a tree; a node without a split passes its rows on, and so is left out.

    Raises
    ------
    ValueError, TypeError
        If the model has no such tree, or a tree for each output and none is named.
    """
    model = _model_of(model)
    round_ = _index(number, model.n_trees, "number", "rounds")
    tree = {
        name: np.asarray(getattr(model.trees, name))[round_]
        for name in ("feature", "threshold", "missing_right", "gain")
    }
    sets = None if model.trees.categories_right is None else np.asarray(model.trees.categories_right)[round_]
    value = np.asarray(model.leaf_value)[round_] * np.asarray(model.tree_weight)[round_]
    hessian = np.asarray(model.leaf_hessian)[round_]
    if model.trees.feature.ndim == 3:
        if output is None:
            raise ValueError(
                f"output must say which of {model.n_outputs} trees of a round is meant, got None"
            )
        k = _index(output, model.n_outputs, "output", "outputs")
        tree, sets = {name: array[k] for name, array in tree.items()}, None if sets is None else sets[k]
        value, hessian = value[:, k : k + 1], hessian[:, k : k + 1]
    elif output is not None:
        k = _index(output, model.n_outputs, "output", "outputs")
        value = value[:, k : k + 1]
    cover = np.asarray(node_cover(hessian.sum(axis=1, keepdims=True)))[:, 0]
    return _Reader(model, tree, sets, value, cover).node(0, 0)


def _model_of(given: Any) -> Ensemble:
    model = given if isinstance(given, Ensemble) else getattr(given, "model_", None)
    if model is None:
        raise TypeError(
            f"model must be a jboost.Ensemble or a fitted estimator of jboost, got {name_kind(given)}"
        )
    check_model(model)
    if is_traced(model):
        raise TypeError("model must be concrete, got a traced one")
    return model


def _index(value: Any, n: int, name: str, what: str) -> int:
    if not is_whole(value):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if not -n <= value < n:
        raise ValueError(f"{name} must be below {n}, the number of {what}, got {value}")
    return int(value) % n


@dataclasses.dataclass(frozen=True)
class _Reader:
    model: Ensemble
    tree: dict[str, np.ndarray]
    sets: np.ndarray | None
    value: np.ndarray
    cover: np.ndarray

    def node(self, level: int, place: int) -> Node:
        """Read a node and all below it."""
        depth = len(self.value).bit_length() - 1
        own = float(self.cover[2**level - 1 + place])
        if level == depth:
            return Node(None, False, 0.0, own, self.value[place])
        slot = level if self.model.symmetric else 2**level - 1 + place
        if self.tree["threshold"][slot] >= self.model.edges.n_codes:  # no split: all rows go left
            return self.node(level + 1, 2 * place)
        children = self.node(level + 1, 2 * place), self.node(level + 1, 2 * place + 1)
        gain, missing = float(self.tree["gain"][slot]), bool(self.tree["missing_right"][slot])
        return Node(self._question(slot), missing, gain, own, self.value[:0], *children)

    def _question(self, slot: int) -> str:
        feature, threshold = int(self.tree["feature"][slot]), int(self.tree["threshold"][slot])
        edges = self.model.edges
        names = edges.features.names
        name = f"f{feature}" if names is None else names[feature]
        known = edges.features.categories[feature]
        if known is not None and not known.is_statistic and self.sets is not None:
            codes = np.array(known.codes, int)
            words = self.sets[slot][codes // WORD] if codes.size else np.zeros(0, np.uint32)
            goes_right = (words >> (codes % WORD).astype(np.uint32) & 1).astype(bool)
            return _membership(name, known.values, goes_right)
        ends = edges.exact[feature]
        ends = ends[np.isfinite(ends)]
        if threshold == 0:
            return f"{name} is missing"
        if threshold > len(ends):
            return f"{name} is known"
        number = name if known is None else f"statistic of {name}"
        return f"{number} ≤ {ends[threshold - 1]:.5g}"


def _membership(name: str, values: Any, goes_right: np.ndarray) -> str:
    """List the fewer of the categories on both sides."""
    n_left = int((~goes_right).sum())
    left_is_shorter = 0 < n_left <= len(goes_right) - n_left
    side = ~goes_right if left_is_shorter else goes_right
    listed = [str(value) for value, on_it in zip(values, side, strict=True) if on_it]
    if len(listed) == 1:
        return f"{name} {'=' if left_is_shorter else '≠'} {listed[0]}"
    more = f", {len(listed) - MOST_CATEGORIES} more" if len(listed) > MOST_CATEGORIES else ""
    return f"{name} {'in' if left_is_shorter else 'not in'} {{{', '.join(listed[:MOST_CATEGORIES])}{more}}}"


def value_text(value: Float[np.ndarray, " k"]) -> str:
    """Write what a leaf adds: the first three of several numbers."""
    shown = ", ".join(f"{one + 0.0:.3g}" for one in value[:3])
    return f"{shown}, …" if len(value) > 3 else shown


def number_text(value: float) -> str:
    """Write a gain or a cover."""
    if np.isnan(value):
        return "unknown"
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.2e}"
