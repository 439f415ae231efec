"""Labels as numbers: of one class for each row, or several that each may hold; and their weights."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets, type_of_target


def is_indicator(y: Any) -> bool:
    """Say whether there are several columns: one for each label that may hold."""
    if isinstance(y, Mapping):
        raise TypeError(
            "y must be an array of labels, got a dict; a dict of targets is for jboost.fit, or a JBoostRegressor with "
            "a loss of your own"
        )
    return y.ndim == 2 and y.shape[1] > 1


def check_indicator(y: np.ndarray) -> Int[np.ndarray, "n k"]:
    """Return the columns of 0 and 1 as integers."""
    holds_numbers = y.dtype.kind in "biuf" or all(isinstance(one, Real | np.bool_) for one in y.ravel())
    numbers = y.astype(float) if holds_numbers else y
    if not holds_numbers or not np.isin(numbers, (0, 1)).all():
        raise ValueError(
            f"y must be a 1d array of labels, or hold only 0 and 1 in a column for each of several labels; got "
            f"{type_of_target(y)} of shape {y.shape}"
        )
    return numbers.astype(int)


def labels_of(y: np.ndarray) -> np.ndarray:
    """Return the labels that occur, in order; raise unless they are labels."""
    if y.dtype == object and any(label is None for label in y):
        raise ValueError("y must have a label in every row, got None")
    check_classification_targets(y)
    return np.unique(y)


def number_labels(y: np.ndarray, classes: np.ndarray) -> Int[np.ndarray, " n"]:
    """Number the labels; the only one of a single class is 1, so that its score is the positive one."""
    labels, place = np.unique(y, return_inverse=True)
    number = {label: i for i, label in enumerate(classes.tolist(), len(classes) == 1)}
    unseen = [label for label in labels.tolist() if label not in number]
    if unseen:
        raise ValueError(f"y has labels that fit has not seen: {unseen[:5]}")
    return np.array([number[label] for label in labels.tolist()])[place]


def one_column(y: np.ndarray) -> np.ndarray:
    """Take a single column for a vector, with scikit-learn's warning."""
    return column_or_1d(y, warn=True)


def weights_of_classes(
    class_weight: Any, classes: np.ndarray, number: Int[np.ndarray, " n"]
) -> Float[np.ndarray, " classes"]:
    """Return the weight of each class, of which `number` gives the places that occur in the rows.

    As in scikit-learn, a dict may leave labels out, which then weigh 1, or name more than there are, but not both.
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        count = np.bincount(number, minlength=len(classes))
        return len(number) / (np.count_nonzero(count) * np.maximum(count, 1))
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None, got {class_weight!r}")
    labels = classes.tolist()
    absent = [label for label in labels if label not in class_weight]
    if absent and len(labels) - len(absent) < len(class_weight):
        unknown = [label for label in class_weight if label not in labels]
        raise ValueError(f"class_weight must name labels of y, {labels[:10]}, got {unknown[:5]}")
    weights = np.array([class_weight.get(label, 1.0) for label in labels])
    if weights.dtype.kind not in "iuf" or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"class_weight must hold finite numbers of at least 0, got {weights.tolist()[:10]}")
    return weights.astype(float)
