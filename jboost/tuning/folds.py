"""Which rows each fold of a sweep holds out."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
from jaxtyping import Bool

from jboost._runtime.arguments import is_whole

SEED = 0  # of the draw of the folds: the same rows in every call


def held_out(folds: Any, weight: np.ndarray, groups: np.ndarray | None) -> Bool[np.ndarray, "c n"]:
    """Return the rows that each fold holds out; none in a single fold of None.

    Parameters
    ----------
    folds : int, bool [c n] or None
        So many folds of rows, or of whole groups, drawn at random and as equal as can be; or a mask, of whole groups.
    weight : float [n]
        Of the rows.
    groups : int [n] or None
        The group of each row.

    Raises
    ------
    ValueError, TypeError
        Where a fold would hold out nothing, leave nothing, or a row that another has.
    """
    n = weight.size
    if folds is None:
        return np.zeros((1, n), bool)
    if is_whole(folds):
        return _drawn(
            int(folds), np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1]
        )
    mask: Any = None
    with contextlib.suppress(ValueError):  # of lists of several lengths
        mask = np.asarray(folds)
    if mask is None or mask.dtype != bool or not mask.ndim:
        raise TypeError(
            "folds must be an integer or a mask of bool [c n], True where a fold holds a row out, got "
            f"{type(folds).__name__}; of a split (train, test) np.isin(np.arange(n), test) makes a row of a mask"
        )
    if mask.ndim != 2 or mask.shape[1] != n or not len(mask):
        raise ValueError(f"folds must have shape (c, {n}), a row of the mask for each fold, got {mask.shape}")
    counted = weight > 0
    for fold, held in enumerate(mask):
        if not (held & counted).any() or not (~held & counted).any():
            what = "hold out" if not (held & counted).any() else "leave"
            raise ValueError(f"folds must {what} a row with a weight above 0 each, fold {fold} does not")
    often = mask.sum(axis=0)
    if (often > 1).any():
        raise ValueError(
            f"folds must hold out each row once at most, row {int(np.argmax(often))} is held out {often.max()} times: "
            "for repeated cross-validation sweep once for each repetition"
        )
    if groups is not None:
        check_whole_groups("folds", mask, groups)
    return mask


def check_whole_groups(name: str, mask: Bool[np.ndarray, "c n"], groups: np.ndarray) -> None:
    """Raise unless each fold holds out all rows of a group or none."""
    number = np.unique(groups, return_inverse=True)[1]
    n_held = np.array([np.bincount(number, fold) for fold in mask])
    cut = (n_held > 0) & (n_held < np.bincount(number))
    if cut.any():
        raise ValueError(f"{name} must hold out whole groups, fold {int(np.argwhere(cut)[0, 0])} cuts one")


def _drawn(n_folds: int, unit: np.ndarray) -> Bool[np.ndarray, "c n"]:
    n_units = int(unit.max()) + 1
    if n_units < 2:
        raise ValueError(f"folds must be None for a single row or group, got {n_folds}")
    if not 2 <= n_folds <= n_units:
        raise ValueError(
            f"folds must be between 2 and {n_units}, the number of rows or groups, got {n_folds}"
        )
    fold_of_unit = np.empty(n_units, int)
    fold_of_unit[np.random.default_rng(SEED).permutation(n_units)] = np.arange(n_units) % n_folds
    return fold_of_unit[unit] == np.arange(n_folds)[:, None]
