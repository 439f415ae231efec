"""What is explained: a model or a fitted estimator, its features, rows and weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, UInt

from jboost._bins import read_bins
from jboost._model.ensemble import Ensemble, check_model, name_kind
from jboost._runtime.arguments import check_weight, is_whole
from jboost._runtime.typing import is_traced

Feature = int | str


@dataclasses.dataclass(frozen=True, eq=False)
class Subject:
    """A model and what its estimator knows besides."""

    model: Ensemble
    labels: np.ndarray | None  # of a classifier, in the order of their codes

    @classmethod
    def of(cls, given: Any) -> Subject:
        """Take a model, or the one of a fitted estimator."""
        labels = None
        if not isinstance(given, Ensemble):
            model = getattr(given, "model_", None)
            if model is None:
                raise TypeError(
                    f"model must be a jboost.Ensemble or a fitted estimator of jboost, got {name_kind(given)}"
                )
            given, labels = model, getattr(given, "classes_", None)
        check_model(given)
        features = given.edges.features
        if len(set(features.columns)) < len(features.columns):
            raise ValueError(
                "model must have one feature a column to be explained; ordered target statistics of several outputs "
                "give a column several"
            )
        return cls(given, labels if isinstance(labels, np.ndarray) and labels.ndim == 1 else None)

    def names(self) -> tuple[Feature, ...]:
        """Name the features, or number them where they have no names."""
        features = self.model.edges.features
        return features.names or tuple(range(self.model.edges.n_features))

    def outputs(self) -> tuple[str, ...] | None:
        """Name the classes that the scores are of: that of the larger label where there is one score for two."""
        if self.labels is None:
            return None
        of_scores = self.labels[1:] if self.model.n_outputs == 1 else self.labels
        return tuple(map(str, of_scores)) if len(of_scores) == self.model.n_outputs else None

    def places(self, features: Any, name: str = "features") -> tuple[int, ...]:
        """Find features, given by name or number, one or several, each once."""
        if isinstance(features, str | int | np.integer):
            features = [features]
        if features is None:
            return tuple(range(self.model.edges.n_features))
        if not isinstance(features, Sequence | np.ndarray):
            raise TypeError(f"{name} must be names or numbers of features, got {features!r}")
        found = tuple(self._place(one, name) for one in features)
        if not found:
            raise ValueError(f"{name} must name at least one feature, got none")
        if len(set(found)) < len(found):
            raise ValueError(f"{name} must name each feature once, got {list(features)}")
        return found

    def _place(self, feature: Any, name: str) -> int:
        known = self.names()
        if isinstance(feature, str):
            if feature not in known:
                raise ValueError(f"{name} must be among {_some(known)}, got {feature!r}")
            return known.index(feature)
        if not is_whole(feature):
            raise TypeError(f"{name} must be names or numbers of features, got {feature!r}")
        if not 0 <= feature < len(known):
            raise ValueError(f"{name} must be below {len(known)}, the number of features, got {feature}")
        return int(feature)

    def read(self, X: Any) -> UInt[Any, "f n"]:
        """Return the bin codes of at least one row."""
        bins = read_bins(self.model.edges, X)
        if bins.shape[1] == 0:
            raise ValueError("X must have at least one row, got none")
        return bins


def read_weight(sample_weight: Any, n_rows: int) -> tuple[Float[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """Return the share of each row in the weight of all, and which rows have any."""
    if is_traced(sample_weight):
        raise TypeError("sample_weight must be concrete, got a traced array")
    weight = check_weight(sample_weight, n_rows, "sample_weight")
    return weight / weight.sum(), weight > 0


def is_split(model: Ensemble) -> Any:
    """Say which slots hold a split: bool, of the shape of `model.trees.feature`."""
    threshold = model.trees.threshold
    return (threshold if is_traced(threshold) else np.asarray(threshold)) < model.edges.n_codes


def rounds_with(model: Ensemble, features: Sequence[int]) -> Bool[np.ndarray, "t f"]:
    """Say which rounds split on each of the features."""
    splits = np.asarray(model.trees.feature)[..., None] == np.asarray(features, np.int32)
    splits &= np.asarray(is_split(model))[..., None]
    return splits.any(axis=tuple(range(1, splits.ndim - 1)))


def take_rounds(model: Ensemble, rounds: Any, base: bool) -> Ensemble:
    """Keep the rounds of a mask [t], with or without the base score."""
    names = ("trees", "leaf_value", "leaf_hessian", "leaf_count", "tree_weight")
    kept = {name: jax.tree.map(lambda a: np.asarray(a)[rounds], getattr(model, name)) for name in names}
    start = np.asarray(model.base)
    return dataclasses.replace(model, base=start if base else np.zeros_like(start), **kept)


def _some(names: Sequence[Feature]) -> str:
    shown = ", ".join(map(repr, names[:8]))
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8} others"
