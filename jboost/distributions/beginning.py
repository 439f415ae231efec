"""Where boosting starts if that is not the best constant, or only one of several."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jboost._objective.base_score import best_constant
from jboost._objective.leaf_rules import Newton
from jboost._objective.leaves import Leaves
from jboost._objective.rows import Rows
from jboost._runtime.typing import Reduce, pytree


@pytree
class NewtonFrom:
    """The leaf rule `Newton`, with a base score of its own."""

    start: Any  # of rows and reduce
    needs_all_rows: ClassVar[bool] = False
    descends: ClassVar[bool] = True

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Take a Newton step in each leaf."""
        return Newton().leaf_values(leaves)

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Return the start."""
        return self.start(rows, reduce)


def best_constant_near(
    start: Float[Array, " k"], loss: Any, rows: Rows, reduce: Reduce | None
) -> Float[Array, " k"]:
    """Return the minimum that the search of `jboost.best_constant` finds from a given place."""
    start = jax.lax.stop_gradient(start)
    curvature = None if loss.curvature is None else Partial(_moved, function=loss.curvature, by=start)
    moved = dataclasses.replace(
        loss, function=Partial(_moved, function=loss.function, by=start), curvature=curvature
    )
    hidden = dataclasses.replace(rows, y=(rows.y,))  # or the target would tell another place to start from
    return start + best_constant(moved, hidden, reduce)


def _moved(score: Any, y: Any, function: Any, by: Any) -> Any:
    return function(score + by, y[0])
