"""Where boosting starts if the loss has several minima: from a place that the distribution knows."""

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
    """The leaf rule `Newton`, whose base score is searched for from a given place."""

    start: Any  # of rows and reduce
    needs_all_rows: ClassVar[bool] = False
    descends: ClassVar[bool] = True

    def leaf_values(self, leaves: Leaves) -> Float[Array, "leaves k"]:
        """Take a Newton step in each leaf."""
        return Newton().leaf_values(leaves)

    def base_score(self, loss: Any, rows: Rows, reduce: Reduce | None) -> Float[Array, " k"]:
        """Return the minimum near the start."""
        start = jax.lax.stop_gradient(self.start(rows, reduce))
        curvature = None if loss.curvature is None else Partial(_moved, function=loss.curvature, by=start)
        moved = dataclasses.replace(
            loss, function=Partial(_moved, function=loss.function, by=start), curvature=curvature
        )
        return start + best_constant(moved, rows, reduce)


def _moved(score: Any, y: Any, function: Any, by: Any) -> Any:
    return function(score + by, y)
