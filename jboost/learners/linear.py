"""A linear function of all columns."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._objective.domains import real_argument
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import pytree
from jboost.learners.learner import each_output, standard_columns


@pytree
class Line:
    """Parameters of a linear function of standard columns."""

    constant: Float[Array, " k"]
    slope: Float[Array, "k f"]


@pytree
class Linear(ByValue):
    r"""Base learner: a linear function, fitted by weighted least squares with a ridge.

    .. math:: \min_{a, b} \sum_i w_i (t_i - a - b^T z_i)^2 + \lambda \bar w \|b\|^2

    of columns z of mean 0 and deviation 1. One round without shrinkage and penalty is least squares.

    Parameters
    ----------
    reg_lambda : float
        Non-negative; in rows of mean weight. May be traced.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> learner, y = jboost.learners.Linear(), X @ [1.0, -2.0]
    >>> model, _ = jboost.boost(jboost.losses.squared_error, learner, X, y, n_estimators=1, learning_rate=1.0)
    >>> model.predict([[1.0, 1.0]]).round(3).tolist()
    [-1.0]
    """

    reg_lambda: Any = 0.0

    def init(self, key: Array, X: Any, known: Any = None) -> tuple[Any, Float[Array, "n f"]]:
        """Give the columns a mean of 0 and a deviation of 1."""
        if known is None:
            real_argument(self.reg_lambda, "reg_lambda", 0, np.inf, ends=(0,))
        return standard_columns(X, "Linear", known)

    def fit(
        self, key: Array, known: Any, rows: Array, target: Float[Array, "n k"], weight: Float[Array, "n k"]
    ) -> Line:
        """Solve the normal equations of each output."""

        def solve(target: Float[Array, " n"], weight: Float[Array, " n"]) -> tuple[Array, Array]:
            share = weight / jnp.where(weight.sum() > 0, weight.sum(), 1)
            centre, middle = share @ rows, share @ target
            z, t = rows - centre[None], target - middle
            counted = jnp.maximum((weight > 0).sum(), 1).astype(rows.dtype)
            penalty = self.reg_lambda / counted * jnp.eye(rows.shape[1], dtype=rows.dtype)
            slope = _least_squares((share[:, None] * z).T @ z + penalty, (share * t) @ z)
            return middle - slope @ centre, slope

        return Line(*each_output(solve, target, weight))

    def predict(self, known: Any, params: Line, rows: Array) -> Float[Array, "n k"]:
        """Evaluate it."""
        return rows @ params.slope.T + params.constant[None]


def _least_squares(normal: Float[Array, "f f"], right: Float[Array, " f"]) -> Float[Array, " f"]:
    """Solve, with nothing along directions in which the columns do not differ."""
    values, vectors = jnp.linalg.eigh(normal)
    flat = values <= 10 * values.size * jnp.finfo(values.dtype).eps * values.max()
    along = jnp.where(flat, 0, (vectors.T @ right) / jnp.where(flat, 1, values))
    return vectors @ along
