"""The model that `boost` makes: a sum of base learners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._bins.order import in_order
from jboost._runtime.arguments import as_offset
from jboost._runtime.parametrised import Parametrised
from jboost._runtime.typing import identity, pytree, static_field


@pytree
class Additive:
    """A constant and a sum of learners, each times its length; a pytree.

    Attributes
    ----------
    base : float [k]
        Score before the first learner.
    known : pytree
        What the learner knows of the training rows.
    params : pytree
        Parameters of each learner, stacked over the t rounds.
    length : float [t]
        What each is multiplied by, the learning rate included.
    learner : Parametrised
        The learner itself, taken apart.
    inverse_link : callable, static
        Turns a score into a prediction.
    scalar_output : bool, static
        Whether scores have shape [n] rather than [n k].
    names : tuple of str or None, static
        Of the columns, where they were those of a data frame: another one is read by name, whatever its order.
    width : int or None, static
        Number of the columns.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.boost(jboost.losses.squared_error, jboost.learners.Linear(), X, X[:, 0], n_estimators=3)
    >>> model.n_rounds, model.predict(X).shape, len(list(model.staged_predict(X)))
    (3, (8,), 3)
    """

    base: Float[Array, " k"]
    known: Any
    params: Any
    length: Float[Array, " t"]
    learner: Parametrised
    inverse_link: Callable[[Array], Array] = static_field(default=identity)
    scalar_output: bool = static_field(default=True)
    names: tuple[str, ...] | None = static_field(default=None)
    width: int | None = static_field(default=None)

    @property
    def n_rounds(self) -> int:
        """Learners in the model."""
        return self.length.shape[0]

    def __repr__(self) -> str:
        """Say how large the model is, not what is in it."""
        learner = type(self.learner.whole).__name__
        return f"Additive(n_rounds={self.n_rounds}, learner={learner}, n_outputs={self.base.shape[0]})"

    def predict(self, X: Any, offset: Any = None) -> Float[Array, "n *k"]:
        """Return the raw scores of rows [n f], in JAX operations: `model.inverse_link` makes predictions of them."""
        rows = self._rows(X)
        return self._shaped(_last(self, rows, self._start(rows, offset)))

    def staged_predict(self, X: Any, offset: Any = None) -> Iterator[Float[Array, "n *k"]]:
        """Yield the raw scores after one round, two rounds, and so on."""
        rows = self._rows(X)
        for score in _every(self, rows, self._start(rows, offset)):
            yield self._shaped(score)

    def _rows(self, X: Any) -> Any:
        X = in_order(X, self.names, self.width)
        return self.learner.whole.init(jax.random.key(0), X, self.known)[1]

    def _start(self, rows: Any, offset: Any) -> Array:
        if offset is None:
            return self.base[None]
        n, k = _shape_of(self, rows).shape
        return self.base[None] + as_offset(offset, n, k, "offset")

    def _shaped(self, score: Float[Array, "n k"]) -> Float[Array, "n *k"]:
        return score[:, 0] if self.scalar_output else score


@jax.jit
def _last(model: Additive, rows: Any, start: Array) -> Float[Array, "n k"]:
    """Sum all learners."""
    learner, like = model.learner.whole, _shape_of(model, rows)

    def add(score: Array, one: tuple[Any, Array]) -> tuple[Array, None]:
        return score + one[1] * learner.predict(model.known, one[0], rows), None

    return jax.lax.scan(add, start + jnp.zeros(like.shape, like.dtype), (model.params, model.length))[0]


def _shape_of(model: Additive, rows: Any) -> jax.ShapeDtypeStruct:
    """Return shape and dtype of what one learner gives for rows."""
    first = jax.tree.map(lambda array: jax.ShapeDtypeStruct(array.shape[1:], array.dtype), model.params)
    return jax.eval_shape(model.learner.whole.predict, model.known, first, rows)


@jax.jit
def _every(model: Additive, rows: Any, start: Array) -> Float[Array, "t n k"]:
    """Return the sums after each learner."""
    learner = model.learner.whole
    given = jax.lax.map(
        lambda one: one[1] * learner.predict(model.known, one[0], rows), (model.params, model.length)
    )
    return start[None] + jnp.cumsum(given, axis=0)
