"""Target statistics: what the rows before it, or those of other folds, say of the category of a row."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._runtime.arguments import first_bad, on_host
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced

FOLDS = 5  # of cross-fitted statistics

Floats = Float[Array | np.ndarray, "n k"]


@moves_arrays
def ordered_statistics(
    category: Any,
    target: Any,
    order: Any,
    *,
    prior: Any,
    sample_weight: Any = None,
    prior_weight: Any = 1.0,
) -> Float[Array | np.ndarray, "n *k"]:
    """Return the smoothed mean target of the rows of the same category that come earlier in an order.

    That of row i is ``(a p + sum w_j y_j) / (a + sum w_j)`` over the rows j of its category before i, where p is the
    prior and a its weight. Neither its own target nor a later one takes part.

    Parameters
    ----------
    category : int [n]
        The number of the category of each row; a negative one is missing, and its row gets the prior.
    target : float [n] or [n k]
        What is averaged: an amount, 0 and 1 for two classes, k columns of 0 and 1 for k classes.
    order : int [n]
        Row numbers, the first row first: a random permutation.
    prior : float or float [k]
        The statistic of a category of which no row came before.
    sample_weight : float [n], optional
        Non-negative weights w; those of rows of weight 0 say nothing.
    prior_weight : float, default 1
        Non-negative: for how many rows of weight 1 the prior counts.

    Returns
    -------
    float [n] or [n k]
        The statistic of each row, in the order of the rows: float64 on the host. Traced arguments give a JAX array of
        the type of `target`, differentiable by targets, weights and priors.

    Raises
    ------
    ValueError
        For arguments of other lengths, and, unless they are traced, an `order` that is none, negative weights or
        numbers that are not finite.
    TypeError
        For what are no real numbers, or no whole ones.

    Notes
    -----
    The sums of a category are made of its own earlier rows alone, so not even their rounding depends on others.

    References
    ----------
    Prokhorenkova et al. (2018), "CatBoost: unbiased boosting with categorical features", section 3.2, equation 5.

    Examples
    --------
    >>> import jboost
    >>> jboost.ordered_statistics([0, 1, 0, 0], [1.0, 1.0, 0.0, 1.0], [0, 1, 2, 3], prior=0.5).tolist()
    [0.5, 0.5, 0.75, 0.5]
    """
    traced = is_traced(category, target, order, prior, sample_weight, prior_weight)
    xp: Any = jnp if traced else np
    target, prior, a = (
        _numbers(one, name)
        for one, name in ((target, "target"), (prior, "prior"), (prior_weight, "prior_weight"))
    )
    category, order = _whole_numbers(category, "category"), _whole_numbers(order, "order")
    if target.ndim not in (1, 2):
        raise ValueError(f"target must have shape [n] or [n k], got {target.shape}")
    shape, n = target.shape, len(target)
    weight = np.ones(n) if sample_weight is None else _numbers(sample_weight, "sample_weight")
    for name, array in (("category", category), ("order", order), ("sample_weight", weight)):
        if array.shape != (n,):
            raise ValueError(f"{name} must have one entry for each of the {n} rows, got shape {array.shape}")
    if prior.shape not in ((), shape[1:]):
        raise ValueError(f"prior must be a number, or one for each column of target, got shape {prior.shape}")
    _check_values(target, order, weight, prior, a)
    dtype = target.dtype if traced and jnp.issubdtype(target.dtype, jnp.floating) else None
    dtype = dtype or (jnp.result_type(float) if traced else np.float64)
    target, weight, prior, a = (xp.asarray(one, dtype) for one in (target, weight, prior, a))
    category, order = xp.asarray(category), xp.asarray(order)
    columns = target[:, None] if len(shape) == 1 else target
    found = _statistics(xp, category, columns, order, weight, xp.broadcast_to(prior, columns.shape[1:]), a)
    return found.reshape(shape)


def _numbers(given: Any, name: str) -> Any:
    """Return an array of real numbers, traced or on the host."""
    array = given if is_traced(given) else on_host(given, name)
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):  # such as bfloat16
        raise TypeError(f"{name} must hold real numbers, got {given!r}")
    return array


def _whole_numbers(given: Any, name: str) -> Any:
    array = _numbers(given, name)
    if not array.size:  # an empty list has floats for a type
        return array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold whole numbers, got dtype {array.dtype}")
    return array


def _check_values(target: Any, order: Any, weight: Any, prior: Any, a: Any) -> None:
    """Look at the values of what is not traced."""
    if not is_traced(prior) and not np.isfinite(prior).all():
        raise ValueError(f"prior must hold finite numbers, got {np.asarray(prior).tolist()}")
    for name, array in (("target", target), ("sample_weight", weight)):
        if not is_traced(array):
            check_finite(array, name)
    if not is_traced(order):
        _check_order(np.asarray(order))
    if not is_traced(weight) and not (good := np.asarray(weight) >= 0).all():
        raise ValueError(
            f"sample_weight must hold numbers of at least 0, got {first_bad(np.asarray(weight), good)}"
        )
    if not is_traced(a):
        check_prior_weight(a)


def check_finite(values: Any, name: str, what: str = "finite numbers") -> None:
    """Raise unless the numbers of a concrete array are finite."""
    values = np.asarray(values, np.float64)
    if not (good := np.isfinite(values)).all():
        raise ValueError(f"{name} must hold {what}, got {first_bad(values, good)}")


def _check_order(order: np.ndarray) -> None:
    """Raise unless each row number is there once."""
    good = (order >= 0) & (order < order.size)
    good &= np.isin(np.arange(order.size), np.unique(order, return_index=True)[1])  # where one comes first
    if not good.all():
        raise ValueError(
            f"order must hold each of the row numbers 0 to {order.size - 1} once, got {first_bad(order, good)}"
        )


def check_prior_weight(a: Any, name: str = "prior_weight") -> None:
    """Raise unless this is a finite number of at least 0."""
    is_number = np.ndim(a) == 0 and getattr(a, "dtype", np.asarray(a).dtype).kind in "iuf"
    if not is_number or not 0 <= float(a) < np.inf:
        raise ValueError(f"{name} must be finite and at least 0, got {a!r}")


def _statistics(
    xp: Any,
    category: Int[Array | np.ndarray, " n"],
    target: Floats,
    order: Int[Array | np.ndarray, " n"],
    weight: Float[Array | np.ndarray, " n"],
    prior: Float[Array | np.ndarray, " k"],
    a: Float[Array | np.ndarray, ""],
) -> Floats:
    """Sort by category and place in the order, add up within each category, and sort back."""
    by_order = category[order]
    rows = order[xp.argsort(by_order, stable=True)]
    place = _places(xp, category[rows])
    terms = xp.concatenate([weight[:, None] * (target - prior[None]), weight[:, None]], axis=1)[rows]
    before = _sums_before(xp, terms, place)
    mass = before[:, -1:] + a
    value = prior[None] + before[:, :-1] / xp.where(mass > 0, mass, 1)
    value = xp.where((category[rows] < 0)[:, None], prior[None], value)
    if xp is np:
        found = np.empty_like(value)
        found[rows] = value
        return found
    return jnp.zeros_like(value).at[rows].set(value)


def _places(xp: Any, category: Int[Array | np.ndarray, " n"]) -> Int[Array | np.ndarray, " n"]:
    """Number the rows of each category from 0, given sorted by it."""
    number = xp.arange(len(category))
    starts = xp.concatenate([xp.ones(min(len(category), 1), bool), category[1:] != category[:-1]])
    return number - xp.maximum.accumulate(xp.where(starts, number, 0))


def _sums_before(xp: Any, terms: Floats, place: Int[Array | np.ndarray, " n"]) -> Floats:
    """Add up the rows of the same category above each row, by doubling: log2 of the longest category passes.

    A cumulative sum over all rows would round by what is in other categories.
    """
    longest = len(terms) if xp is not np else int(place.max(initial=0)) + 1
    sums, shift = terms, 1
    while shift < longest:
        sums = sums + xp.where(place[:, None] >= shift, _down(xp, sums, shift), 0)
        shift *= 2
    return xp.where(place[:, None] >= 1, _down(xp, sums, 1), 0)


def _down(xp: Any, rows: Floats, by: int) -> Floats:
    return xp.concatenate([xp.zeros_like(rows[:by]), rows[: len(rows) - by]])


def in_average_rows(weight: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Make weights those of rows, as penalties read them: if they are below 1 on average, they become about 1.

    The unit is a power of two, which rounds nothing; weights above 1 count rows.
    """
    average = min(float(weight[weight > 0].mean()), 1.0)
    return weight / 2.0 ** np.round(np.log2(average))


def crossed_statistics(
    category: Int[np.ndarray, " n"],
    n_categories: int,
    target: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    order: Int[np.ndarray, " n"],
    prior: Float[np.ndarray, " k"],
    prior_weight: float,
) -> Float[np.ndarray, "n k"]:
    """Return the smoothed mean target of the rows of the same category in other folds; rows are dealt in order.

    A row whose category is negative, which is missing, is given the prior.
    """
    fold = np.empty(len(order), int)
    fold[order] = np.arange(len(order)) % FOLDS
    known = category >= 0
    cell = category[known] * FOLDS + fold[known]
    terms = np.column_stack([weight[:, None] * (target - prior), weight])[known]
    sums = np.stack([np.bincount(cell, column, n_categories * FOLDS) for column in terms.T], axis=1)
    # Added up without the row's own fold, not taken from a total, which its rounding would know.
    others = np.einsum("ej,cjk->cek", 1 - np.eye(FOLDS), sums.reshape(n_categories, FOLDS, -1))
    total = others[..., -1:] + prior_weight
    means = prior + others[..., :-1] / np.where(total > 0, total, 1)
    found = np.tile(prior, (len(category), 1))
    found[known] = means[category[known], fold[known]]
    return found


def category_statistics(
    category: Int[np.ndarray, " n"],
    n_categories: int,
    target: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    prior: Float[np.ndarray, " k"],
    prior_weight: float,
) -> Float[np.ndarray, "c k"]:
    """Return the smoothed mean target of all rows of each category: what rows that come later are given."""
    known = category >= 0
    index, mass = category[known], weight[known]
    terms = mass[:, None] * (target[known] - prior)
    sums = np.stack([np.bincount(index, column, n_categories) for column in terms.T], axis=1)
    total = np.bincount(index, mass, n_categories)[:, None] + prior_weight
    return prior + sums / np.where(total > 0, total, 1)
