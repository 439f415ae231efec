"""Ordered boosting: the gradient of a row is taken at a score that no tree has learned from that row.

The rows are put in a random order. Supporting model l learns, in each round, leaf values for the tree of that round
from the first 2^(l-1) rows of the order (model 0 from none), and scores the rows up to place 2^l. The row at place p has
its gradient at the score of the model that has seen no row from p on: the last one made of at most p rows before it.

The scores of all models lie in one array, model after model, of n - 1 + 2^ceil(log2 n) entries for n rows: less than 3 n.
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

ORDER = 2**31 - 1  # folded into the key of a fit, for the order of its rows


@pytree
class Prefixes:
    """Which rows the supporting models score and learn from, entry by entry, and where each row's own score lies."""

    row: Int[Array, " e"]
    model: Int[Array, " e"]
    learns: Bool[Array, " e"]  # whether the model learns from the row
    own: Int[Array, " n"]  # the entry at whose score a row has its gradient
    n_models: int = static_field()


class Unseen(NamedTuple):
    """The loss around the scores of the supporting models, and of each row around its own."""

    entries: Rows
    supporting: Float[Array, "e k"]  # the scores of the entries
    before: Expansion  # there
    score: Float[Array, "n k"]  # at which the rows have their gradients
    of_rows: Expansion  # there


def check_ordered(loss: Any, continues: bool, divided: bool) -> None:
    """Raise where a fit cannot be in order."""
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
        raise ValueError(f"boosting_type='ordered' is {reason}")


def prefixes_of(key: Array, n_rows: int, n_padded: int) -> Prefixes:
    """Draw an order of the rows, and lay out what the models learn and score; the padding comes last."""
    bits = jax.random.bits(jax.random.fold_in(key, ORDER), (n_rows,))
    numpy = jnp if is_traced(bits) else np  # on the host, a new shape costs no compilation
    order = numpy.argsort(numpy.asarray(bits), stable=True).astype(np.int32)
    order = numpy.concatenate([order, np.arange(n_rows, n_padded, dtype=np.int32)])
    n_models, n_used = (1 + (n - 1).bit_length() for n in (n_padded, n_rows))
    sizes = np.minimum(2 ** np.arange(n_models), n_padded)
    start = np.cumsum(sizes) - sizes
    model = np.repeat(np.arange(n_models), sizes)
    place = np.arange(sizes.sum()) - start[model]
    learns = (place < 2**model // 2) & (model < n_used)  # nothing depends on how many rows are padding
    every = np.arange(n_padded)
    own_model = np.searchsorted(2 ** np.arange(n_models), every, "right")
    entry = (start[own_model] + every).astype(np.int32)
    if numpy is np:
        own = np.empty(n_padded, np.int32)
        own[order] = entry
    else:
        own = jnp.zeros(n_padded, jnp.int32).at[order].set(entry)
    model = model.astype(np.int32)
    return Prefixes(*map(as_array, (order[place], model, learns, own)), n_models)


def supporting_scores(prefixes: Prefixes | None, score: Float[Array, "n k"]) -> Float[Array, "e k"] | None:
    """Return the scores of the models before the first tree."""
    return None if prefixes is None else take_rows(score, prefixes.row)


def look_ahead(
    prefixes: Prefixes, loss: Any, supporting: Float[Array, "e k"], rows: Rows, units: Units
) -> Unseen:
    """Differentiate the loss at the scores of the supporting models."""
    weight = jnp.where(prefixes.learns, rows.weight[prefixes.row], 0)
    entries = Rows(take_rows(rows.y, prefixes.row), weight)
    before = derivatives_by_row(loss, supporting, entries, units.h)
    of_rows = Expansion(*take_rows(tuple(before), prefixes.own))
    return Unseen(entries, supporting, before, supporting[prefixes.own], of_rows)


def leaves_of_models(prefixes: Prefixes, unseen: Unseen, leaves: Leaves) -> Leaves:
    """Return the entries in the leaves of their models, those of model l after those of l - 1.

    `leaves` are those of the rows, which the entries share, as they share the rows that were drawn.
    """
    row, units = prefixes.row, leaves.units
    weight = jnp.where(prefixes.learns, leaves.weight[row], 0)
    first = leaves.n_leaves * prefixes.model
    leaf = leaves.leaf[row] + (first if leaves.leaf.ndim == 1 else first[:, None])
    return dataclasses.replace(
        leaves,
        score=unseen.supporting,
        rows=unseen.entries,
        weight=weight,
        leaf=leaf,
        n_leaves=leaves.n_leaves * prefixes.n_models,
        derivatives=weighted_derivatives(unseen.before, weight, units),
    )
