"""What a base learner is."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float

from jboost._bins import read_matrix
from jboost._bins.table import check_not_empty
from jboost._runtime.typing import as_array, is_traced


@runtime_checkable
class Learner(Protocol):
    """A base learner: three functions; `fit` and `predict` are pure and in JAX operations.

    It is a pytree, whose arrays and floats are operands, or any hashable object.

    Examples
    --------
    A multiple of the column that suits best:

    >>> import jax.numpy as jnp, numpy as np, jboost
    >>> class Column:
    ...     def init(self, key, X, known=None):
    ...         return None, jnp.asarray(X)
    ...     def fit(self, key, known, rows, target, weight):
    ...         size = weight.T @ rows**2
    ...         slope = (weight * target).T @ rows / size
    ...         best = jnp.argmax(jnp.sum(size * slope**2, axis=0))
    ...         return best, slope[:, best]
    ...     def predict(self, known, params, rows):
    ...         return rows[:, params[0], None] * params[1][None]
    >>> X = np.random.default_rng(0).normal(size=(100, 3)).astype("float32")
    >>> y = X @ [1.0, 2.0, 3.0]
    >>> model, record = jboost.boost(jboost.losses.squared_error, Column(), X, y - y.mean(), learning_rate=1.0)
    >>> bool(record.train_loss[-1] < 1e-2)
    True
    """

    def init(self, key: Array, X: Any, known: Any = None) -> tuple[Any, Any]:
        """Look at features [n f] once: return what is known from then on, and the rows as the others read them.

        Both are pytrees of arrays. What is known, such as edges of bins, becomes part of the model, and is given back
        for other features, to make rows of them by it.
        """
        ...

    def fit(
        self, key: Array, known: Any, rows: Any, target: Float[Array, "n k"], weight: Float[Array, "n k"]
    ) -> Any:
        """Fit the targets by weighted least squares: return parameters, a pytree of arrays."""
        ...

    def predict(self, known: Any, params: Any, rows: Any) -> Float[Array, "n k"]:
        """Return what such parameters give for rows."""
        ...


def finite_columns(X: Any, learner: str, is_known: bool) -> Float[np.ndarray | Array, "n f"]:
    """Return features as numbers without gaps, as learners that are no trees need them.

    They are float64 on the host, or a traced array. Of training rows, where nothing is known yet, there must be some.
    """
    values = read_matrix(X)
    if is_traced(values):
        return values
    if not is_known:
        check_not_empty(values.shape)
    gaps = np.isnan(values)
    if gaps.any():
        row, column = np.argwhere(gaps)[0]
        raise ValueError(
            f"X must be finite for learners.{learner}, got nan in row {row}, column {column}; "
            "learners.Tree takes missing values"
        )
    return values


def check_concrete(X: Any, learner: str) -> None:
    """Raise where a learner that looks at the training rows on the host is given traced ones."""
    if is_traced(X):
        raise TypeError(
            f"X must be concrete for learners.{learner}, which looks at it on the host, got a traced array"
        )


def standard_columns(X: Any, learner: str, known: Any) -> tuple[Any, Float[Array, "n f"]]:
    """Return the mean and the deviation of each column, unless they are known, and the columns by them.

    Differences are taken in float64, where X is no traced array: a column far from zero would lose its digits.
    """
    values = finite_columns(X, learner, known is not None)
    if known is None:
        check_concrete(values, learner)
        host = np.asarray(values, np.float64)
        deviation = host.std(axis=0)
        known = as_array(host.mean(axis=0), float), as_array(np.where(deviation > 0, deviation, 1), float)
    mean, deviation = known if is_traced(values, known) else (np.asarray(one, np.float64) for one in known)
    return known, as_array((values - mean[None]) / deviation[None], float)


def each_output(function: Any, target: Float[Array, "n k"], weight: Float[Array, "n k"]) -> Any:
    """Call a function of the targets and weights of one output for each; parameters come back stacked."""
    return jax.vmap(function, in_axes=(1, 1))(target, weight)
