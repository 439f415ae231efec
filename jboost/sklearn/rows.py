"""Rows as scikit-learn's users give them: checked, weighted, held out, binned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from sklearn.utils import check_array
from sklearn.utils.validation import check_random_state

from jboost._bins import Binned, Features
from jboost._objective.group import GroupLoss
from jboost._objective.objective import Objective
from jboost._runtime.arguments import as_group_ids, as_offset
from jboost._runtime.caller import moves_arrays
from jboost._runtime.containers import refuse_no_array
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.programs import program
from jboost._runtime.typing import MISSING_BIN, identity

_ANY_DTYPE: Any = None  # what check_array understands, whatever its annotation says


class BinnedRows(NamedTuple):
    """Rows, binned or as numbers, encoded targets, positive weights and what else is known: the `valid` of a fit."""

    data: Any  # Binned, or float64 [n f] for a linear function
    y: Any
    weight: Float[np.ndarray, " n"]
    offset: Float[np.ndarray, "n k"] | None
    groups: np.ndarray | None


class GivenRows(NamedTuple):
    """Rows as they were given, and what messages call them."""

    name: str
    X: Any
    y: Any
    weight: Any
    offset: Any
    groups: Any


def check_targets(y: Any, estimator: Any, name: str = "y", *, allow_nan: bool = False) -> Any:
    """Return an array of any dtype, or a dict of such, without missing values unless they are allowed."""
    if not isinstance(y, Mapping):
        refuse_no_array(y, name, "an array with one value for each row")
        y = _without_nullable(y)
        finite: Any = "allow-nan" if allow_nan else True
        return check_array(
            y,
            ensure_2d=False,
            dtype=_ANY_DTYPE,
            ensure_all_finite=finite,
            input_name=name,
            estimator=estimator,
        )
    if not y:
        raise ValueError(f"{name} must hold an array, got an empty dict")
    return {
        key: check_targets(part, estimator, f"{name}[{key!r}]", allow_nan=allow_nan)
        for key, part in y.items()
    }


def _without_nullable(y: Any) -> Any:
    """Read whole numbers and bools of pandas that could be missing, but are not, as what they are and not as floats."""
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if dtype is None or not hasattr(y, "isna") or dtype.kind not in "biu" or y.isna().any():
        return y
    return y.to_numpy(dtype=dtype)


def mean_r2_of_known(
    y: Float[np.ndarray, "n *k"], predicted: Float[np.ndarray, "n *k"], weight: Float[np.ndarray, " n"]
) -> float:
    """Return the mean R² of the targets, each over the rows in which it is known; NaN stands for no value."""
    from sklearn.metrics import r2_score  # a tenth of the time to import scikit-learn

    y, predicted = y.reshape(len(y), -1), predicted.reshape(len(predicted), -1)
    if y.shape != predicted.shape:
        raise ValueError(f"y must have the shape of the predictions, {predicted.shape}, got {y.shape}")
    columns = [(*pair, ~np.isnan(pair[0])) for pair in zip(y.T, predicted.T, strict=True)]
    found = [
        r2_score(target[known], score[known], sample_weight=weight[known])
        for target, score, known in columns
        if known.any()
    ]
    if not found:
        raise ValueError("y must hold a number, got missing values only")
    return float(np.mean(found))


def check_beside(
    given: GivenRows, loss: Objective, target: Any, counted: Bool[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "m k"] | None, np.ndarray | None]:
    """Return offsets and groups of the m rows that count; `target` is theirs."""
    if given.groups is None and isinstance(loss, GroupLoss):
        raise ValueError("groups must be given for a GroupLoss: the group of each row, a number or a string")
    offset = groups = None
    if given.offset is not None:
        form = () if isinstance(target, Mapping) else target.shape[1:]
        n_outputs = loss.n_outputs or (form[0] if form else 1)
        offset = np.asarray(as_offset(given.offset, counted.size, n_outputs, "offset"))[counted]
    if given.groups is not None:
        groups = as_group_ids(given.groups, counted.size, "groups")[counted]
    return offset, groups


def check_alike(y: Any, other: Any) -> None:
    """Raise unless the rows of two targets have the same form."""
    forms = [jax.tree.map(lambda array: array.shape[1:], one) for one in (y, other)]
    if forms[0] != forms[1]:
        raise ValueError(f"y must have rows of shape {forms[1]}, got {forms[0]}")


def draw_seed(random_state: Any) -> int:
    """Return an integer as it is, and a random one from a generator or from NumPy's global state."""
    try:
        generator = check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state: {error}") from error
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(generator.randint(np.iinfo(np.int32).max))


def check_fraction(fraction: Any) -> None:
    """Raise unless this is a share of the rows, or a number of them."""
    number = float(fraction) if isinstance(fraction, Real) and not isinstance(fraction, bool) else 0.0
    if not (0 < number < 1 or (number >= 1 and isinstance(fraction, Integral))):
        raise ValueError(
            f"validation_fraction must lie between 0 and 1, or be a positive number of rows, got {fraction!r}"
        )


def hold_out(
    n_rows: int, fraction: Any, classes: np.ndarray | None, groups: np.ndarray | None, seed: int
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " held"]]:
    """Split row numbers at random; with classes, each is split in the same proportion, with groups, none is."""
    from sklearn import model_selection  # a tenth of the time to import scikit-learn

    n, what = (n_rows, "rows") if groups is None else (np.unique(groups).size, "groups")
    if isinstance(fraction, Integral) and int(fraction) >= n:
        raise ValueError(
            f"validation_fraction must leave some of the {n} {what} to train on, got {fraction!r}"
        )
    rows, of_split = np.arange(n_rows), {"test_size": fraction, "random_state": seed}
    try:
        if groups is None:
            train, held = model_selection.train_test_split(rows, stratify=classes, **of_split)
        else:
            splitter = model_selection.GroupShuffleSplit(n_splits=1, **of_split)
            train, held = next(splitter.split(rows, groups=groups))
    except ValueError as error:
        raise ValueError(
            f"validation_fraction={fraction} of {n} {what} cannot be held out: {error}"
        ) from error
    return np.sort(train), np.sort(held)


def take_data(data: Any, rows: Int[np.ndarray, " m"]) -> Any:
    """Keep some rows of a matrix or of what is binned, given by increasing number."""
    return take_binned(data, rows) if isinstance(data, Binned) else data[rows]


def take_binned(data: Binned, rows: Int[np.ndarray, " m"]) -> Binned:
    """Keep some rows, given by increasing number."""
    if len(rows) == data.bins.shape[1]:
        return data
    bins = np.asarray(data.bins)[:, rows]
    return Binned(jax.numpy.asarray(bins), data.edges, bool((bins == MISSING_BIN).any()))


@moves_arrays
def apply_link(
    link: Callable[[Array], Array], score: Float[np.ndarray, "n ..."]
) -> Float[np.ndarray, "n ..."]:
    """Turn scores into predictions in float64: probabilities sum to 1, and none near 1 is rounded to it.

    The 64-bit mode holds for this call and thread only. Rows are padded, so that few counts compile anew.
    """
    if link is identity:
        return score
    with jax.enable_x64(True):
        linked = _apply(link, pad_axis(score, bucket(len(score))))
        return np.asarray(linked, dtype=np.float64)[: len(score)]


def class_probability(
    link: Callable[[Array], Array], score: Float[np.ndarray, "n ..."], n_classes: int
) -> Float[np.ndarray, "n classes"]:
    """Turn scores into the probability of each class, of which one alone is certain."""
    if n_classes == 1:
        return np.ones((len(score), 1))
    linked = apply_link(link, score)
    linked = linked[:, None] if linked.ndim == 1 else linked
    return linked if linked.shape[1] > 1 else np.hstack([1 - linked, linked])


@program(static_argnums=0)
def _apply(function: Callable[..., Array], *arguments: Any) -> Array:
    return function(*arguments)


def check_domain(check: Callable[[np.ndarray], None] | None, y: np.ndarray, name: str) -> None:
    """Run the check of a loss or metric on a target, and name the target where it fails."""
    try:
        if check is not None:
            check(y)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def by_feature(feature_weights: Any, features: Features) -> Any:
    """Give weights of columns to the features that read them, where several read one."""
    if feature_weights is None or features.source is None:
        return feature_weights
    weights = np.asarray(feature_weights)
    if weights.shape != (features.n_columns,):
        raise ValueError(
            f"feature_weights must have shape ({features.n_columns},), one weight for each column of X, "
            f"got {weights.shape}"
        )
    return weights[list(features.columns)]
