"""Rows as scikit-learn's users give them: checked, weighted, held out, binned, and their scores scored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import _check_sample_weight, check_random_state

from jboost._bins import Binned
from jboost._model.ensemble import Ensemble, staged_predict
from jboost._runtime.arguments import as_target, as_weight
from jboost._runtime.caller import moves_arrays
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.typing import MISSING_BIN, identity
from jboost.metrics import Metric


class Rows(NamedTuple):
    """Binned rows, their encoded targets and their positive weights."""

    data: Binned
    y: np.ndarray
    weight: Float[np.ndarray, " n"]


def check_weights(sample_weight: Any, y: np.ndarray) -> Float[np.ndarray, " n"]:
    """Return the weights, ones by default; raise unless they are non-negative and not all zero."""
    if sample_weight is None:
        return np.ones(len(y))
    weight = _check_sample_weight(sample_weight, y, dtype=np.float64)
    if (weight < 0).any():
        raise ValueError(f"sample_weight must be non-negative, got {weight.min()}")
    if not weight.any():  # in scikit-learn's words, for its versions that let it pass
        raise ValueError("sample_weight must contain at least one non-zero number")
    return weight


def check_eval_set(eval_set: Any, eval_sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """Return triples (X, y, weight) of a list of pairs, or of one pair, and a list of as many weights."""
    one_pair = isinstance(eval_set, tuple) and len(eval_set) == 2 and not isinstance(eval_set[0], tuple)
    pairs = [] if eval_set is None else [eval_set] if one_pair else list(eval_set)
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        raise ValueError("eval_set must be a list of pairs (X, y)")
    weights = [None] * len(pairs) if eval_sample_weight is None else list(eval_sample_weight)
    if len(weights) != len(pairs):
        raise ValueError(
            f"eval_sample_weight must have an array or None for each of the {len(pairs)} pairs of eval_set, "
            f"got {len(weights)}"
        )
    return [(X, y, weight) for (X, y), weight in zip(pairs, weights, strict=True)]


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
    n_rows: int, fraction: Any, classes: np.ndarray | None, seed: int
) -> tuple[Int[np.ndarray, " train"], Int[np.ndarray, " held"]]:
    """Split row numbers at random; with classes, each is split in the same proportion."""
    if isinstance(fraction, Integral) and int(fraction) >= n_rows:
        raise ValueError(
            f"validation_fraction must leave some of the {n_rows} rows to train on, got {fraction!r}"
        )
    train, held = train_test_split(np.arange(n_rows), test_size=fraction, stratify=classes, random_state=seed)
    return np.sort(train), np.sort(held)


def take_rows(data: Binned, rows: Int[np.ndarray, " m"]) -> Binned:
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


@partial(jax.jit, static_argnums=0)
def _apply(function: Callable[..., Array], *arguments: Any) -> Array:
    return function(*arguments)


def check_domain(check: Callable[[np.ndarray], None] | None, y: np.ndarray, name: str) -> None:
    """Run the check of a loss or metric on a target, and name the target where it fails."""
    try:
        if check is not None:
            check(y)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def metric_curve(model: Ensemble, metric: Metric, rows: Rows) -> list[float]:
    """Score the rows after each round."""
    y = as_target(rows.y, "y")
    weight = as_weight(rows.weight, len(rows.weight), "weight")
    return [float(_apply(metric.function, score, y, weight)) for score in staged_predict(model, rows.data)]
