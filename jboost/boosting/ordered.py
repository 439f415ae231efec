"""Gradients at scores that no tree has learned from the row: ordered and cross-fitted boosting.

Beside the model there are supporting models. They share the tree of each round, and have leaf values of their own,
which each learns from some of the rows; a row has its gradient at the score of one that does not learn from it.

Ordered: the rows are put in a random order. Model l learns from the first 2^(l-1) rows (model 0 from none) and scores
the rows up to place 2^l; a row is told by the last model that knows none but rows before it. That makes n - 1 +
2^ceil(log2 n) scores for n rows, less than 3 n.

Crossed: the rows are dealt to `FOLDS` folds. Each model learns from the rows outside of its fold and scores all rows.

With several permutations of the rows there are as many times the models and scores. Each round moves all of them, and
takes its gradients by the next permutation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jboost._objective.derivatives import Expansion, derivatives_by_row
from jboost._objective.leaf_rules import Newton
from jboost._objective.leaves import Leaves, weighted_derivatives
from jboost._objective.rows import Rows, take_rows
from jboost._objective.units import Units
from jboost._runtime.typing import as_array, is_traced, pytree, static_field
from jboost._spec import LARGEST

FOLDS = 5
ORDER = 2**31 - 1  # folded into the key of a fit, for the order of its rows


@pytree
class Supporting:
    """Which rows the supporting models score and learn from, entry by entry, and where each row's own score lies."""

    row: Int[Array, " e"]
    model: Int[Array, " e"]
    learns: Bool[Array, " e"]  # whether the model learns from the row
    own: Int[Array, "p n"]  # by permutation, the entry at whose score a row has its gradient
    n_models: int = static_field()  # of all permutations


class Unseen(NamedTuple):
    """The loss around the scores of the supporting models, and of each row around its own."""

    models: Supporting
    entries: Rows
    supporting: Float[Array, "e k"]  # the scores of the entries
    before: Expansion  # there
    score: Float[Array, "n k"]  # at which the rows have their gradients
    of_rows: Expansion  # there


def check_supported(boosting_type: str, loss: Any, continues: bool, divided: bool) -> None:
    """Raise where a fit can have no supporting models."""
    reason = None
    if loss.needs_all_rows:
        reason = f"for a loss of one row, got a {type(loss).__name__}"
    elif type(loss.leaf) is not Newton:
        reason = f"for leaves of Newton steps, got {type(loss.leaf).__name__}"
    elif continues:
        reason = "without init_model and warm_start, whose trees have learned from all rows"
    elif divided:
        reason = "for rows on one device: build the C++ library, or use one CPU device"
    if reason is not None:
        raise ValueError(f"boosting_type={boosting_type!r} is {reason}")


def supporting_models(
    boosting_type: str, key: Array, n_rows: int, n_padded: int, n_permutations: int = 1
) -> Supporting:
    """Draw orders of the rows, and lay out what the models learn and score; the padding comes last."""
    lay_out = _prefixes if boosting_type == "ordered" else _folds
    place, model, learns, entry, n_models = lay_out(n_rows, n_padded)
    if len(place) * n_permutations > LARGEST:
        most = LARGEST // len(place)
        raise ValueError(
            f"n_permutations must be at most {most} for {n_rows:,} rows, whose scores have numbers of 32 bits, got "
            f"{n_permutations}"
        )
    orders = [_order(key, permutation, n_rows, n_padded) for permutation in range(n_permutations)]
    numpy = jnp if is_traced(orders) else np
    row = numpy.concatenate([order[place] for order in orders])
    entry = numpy.asarray(entry, np.int32)
    own = numpy.stack([entry[numpy.argsort(order)] + i * len(place) for i, order in enumerate(orders)])
    model = np.concatenate([model + i * n_models for i in range(n_permutations)]).astype(np.int32)
    row, model, learns, own = map(as_array, (row, model, np.tile(learns, n_permutations), own))
    return Supporting(row, model, learns, own, n_models * n_permutations)


def _order(key: Array, permutation: int, n_rows: int, n_padded: int) -> Any:
    """Return the rows in a random order, the padding last."""
    key = jax.random.fold_in(key, ORDER)
    bits = jax.random.bits(jax.random.fold_in(key, permutation) if permutation else key, (n_rows,))
    numpy = jnp if is_traced(bits) else np  # on the host, a new shape costs no compilation
    order = numpy.argsort(numpy.asarray(bits), stable=True).astype(np.int32)
    return numpy.concatenate([order, np.arange(n_rows, n_padded, dtype=np.int32)])


def _prefixes(n_rows: int, n_padded: int) -> tuple[Any, ...]:
    """Return place in the order and model of each entry, whether it learns, the entry of each place, and the number."""
    n_models, n_used = (1 + (n - 1).bit_length() for n in (n_padded, n_rows))
    sizes = np.minimum(2 ** np.arange(n_models), n_padded)
    start = np.cumsum(sizes) - sizes
    model = np.repeat(np.arange(n_models), sizes)
    place = np.arange(sizes.sum()) - start[model]
    learns = (place < 2**model // 2) & (model < n_used)  # nothing depends on how many rows are padding
    every = np.arange(n_padded)
    own_model = np.searchsorted(2 ** np.arange(n_models), every, "right")
    return place, model, learns, start[own_model] + every, n_models


def _folds(n_rows: int, n_padded: int) -> tuple[Any, ...]:
    """Return the same where every model scores every row."""
    every = np.arange(n_padded)
    place, model = np.tile(every, FOLDS), np.repeat(np.arange(FOLDS), n_padded)
    learns = (place % FOLDS != model) & (place < n_rows)
    return place, model, learns, every % FOLDS * n_padded + every, FOLDS


def supporting_scores(models: Supporting | None, score: Float[Array, "n k"]) -> Float[Array, "e k"] | None:
    """Return the scores of the models before the first tree."""
    if models is None:
        return None
    if is_traced(models, score):
        return score[models.row]
    return as_array(np.asarray(score)[np.asarray(models.row)])  # an operation of JAX would be compiled


def look_ahead(
    models: Supporting, loss: Any, supporting: Float[Array, "e k"], rows: Rows, units: Units, n_rounds: Array
) -> Unseen:
    """Differentiate the loss at the scores of the supporting models; rows by the permutation whose turn it is."""
    turn = n_rounds % len(models.own) if len(models.own) > 1 else 0
    own = models.own[turn]
    weight = jnp.where(models.learns, rows.weight[models.row], 0)
    entries = Rows(take_rows(rows.y, models.row), weight)
    before = derivatives_by_row(loss, supporting, entries, units.h)
    of_rows = Expansion(*take_rows(tuple(before), own))
    return Unseen(models, entries, supporting, before, supporting[own], of_rows)


def leaves_of_models(unseen: Unseen, leaves: Leaves) -> Leaves:
    """Return the entries in the leaves of their models, those of model l after those of l - 1.

    `leaves` are those of the rows, which the entries share, as they share the rows that were drawn.
    """
    models, units = unseen.models, leaves.units
    row = models.row
    weight = jnp.where(models.learns, leaves.weight[row], 0)
    first = leaves.n_leaves * models.model
    leaf = leaves.leaf[row] + (first if leaves.leaf.ndim == 1 else first[:, None])
    return dataclasses.replace(
        leaves,
        score=unseen.supporting,
        rows=unseen.entries,
        weight=weight,
        leaf=leaf,
        n_leaves=leaves.n_leaves * models.n_models,
        derivatives=weighted_derivatives(unseen.before, weight, units),
    ).summed()
