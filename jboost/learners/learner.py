"""What a base learner is."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

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


def finite_columns(X: Any, learner: str) -> Float[Array, "n f"]:
    """Return features as floats without gaps, as learners that are no trees need them."""
    if is_traced(X):
        return jnp.asarray(X, jnp.result_type(float))
    try:
        values = np.asarray(X, np.float64)
    except (TypeError, ValueError) as error:
        raise TypeError(f"X must hold numbers for learners.{learner}: {error}") from error
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(f"X must have shape [n f], got {values.shape}")
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise ValueError(
            f"X must be finite for learners.{learner}, got {values[row, column]} in row {row}, column {column}; "
            "learners.Tree takes missing values"
        )
    return as_array(values, float)


def standard_columns(X: Any, learner: str, known: Any) -> tuple[Any, Float[Array, "n f"]]:
    """Return the mean and the deviation of each column, unless they are known, and the columns by them."""
    values = finite_columns(X, learner)
    if known is None:
        host = np.asarray(values, np.float64)
        deviation = host.std(axis=0)
        known = as_array(host.mean(axis=0), float), as_array(np.where(deviation > 0, deviation, 1), float)
    mean, deviation = known
    return known, (values - mean[None]) / deviation[None]


def each_output(function: Any, target: Float[Array, "n k"], weight: Float[Array, "n k"]) -> Any:
    """Call a function of the targets and weights of one output for each; parameters come back stacked."""
    return jax.vmap(function, in_axes=(1, 1))(target, weight)
