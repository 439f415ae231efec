"""Differentiable base learners, trained for some steps in each round by an optimizer of optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._runtime import extras
from jboost._runtime.arguments import whole_number
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import pytree, static_field
from jboost.learners.learner import standard_columns


@pytree
class Network(ByValue):
    """Base learner: any function with parameters, such as a small network of Flax or Equinox.

    In each round it starts anew and is trained on the weighted squared error of the targets, in units in which their
    mean square is 1. Columns have a mean of 0 and a deviation of 1.

    Parameters
    ----------
    start : function (key, X [n f]) -> params
        A pytree of arrays, such as `module.init` of Flax.
    apply : function (params, X [n f]) -> [n] or [n k]
        Such as `module.apply`.
    optimizer : optax.GradientTransformation, optional
        `optax.adam(0.03, eps=1e-4)` by default, which needs the extra `jboost[differentiable]`.
    n_steps : int
        Steps on all rows in each round, at least 1.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, jboost
    >>> def start(key, X):
    ...     return {"w": jax.random.normal(key, (X.shape[1], 8)), "v": jnp.zeros((8, 1))}
    >>> def apply(params, X):
    ...     return jnp.tanh(X @ params["w"]) @ params["v"]
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> learner = jboost.learners.Network(start, apply)
    >>> model, record = jboost.boost(jboost.losses.squared_error, learner, X, np.sin(3 * X[:, 0]), n_estimators=30)
    >>> bool(record.train_loss[-1] < 0.5 * record.train_loss[0])
    True
    """

    start: Callable[..., Any] = static_field()
    apply: Callable[..., Any] = static_field()
    optimizer: Any = static_field(default=None)
    n_steps: int = static_field(default=100)

    def init(self, key: Array, X: Any, known: Any = None) -> tuple[Any, Float[Array, "n f"]]:
        """Give the columns a mean of 0 and a deviation of 1."""
        if known is None:
            whole_number(self.n_steps, "n_steps", 1)
            if self.optimizer is not None:
                extras.check_optimizer(self.optimizer)
        return standard_columns(X, "Network", known)

    def fit(
        self, key: Array, known: Any, rows: Array, target: Float[Array, "n k"], weight: Float[Array, "n k"]
    ) -> Any:
        """Train it; what it gives is in units of the targets, the second of the two that are returned."""
        optimizer = _adam() if self.optimizer is None else self.optimizer
        share = weight / jnp.where(weight.sum() > 0, weight.sum(), 1)
        unit = jnp.sqrt(jnp.sum(share * jnp.square(target)))
        scaled = target / jnp.where(unit > 0, unit, 1)

        def risk(params: Any) -> Float[Array, ""]:
            return jnp.sum(share * jnp.square(self._values(params, rows, target.shape) - scaled))

        def advance(state: tuple[Any, Any], _: None) -> tuple[tuple[Any, Any], None]:
            params, memory = state
            updates, memory = optimizer.update(jax.grad(risk)(params), memory, params)
            return (jax.tree.map(lambda one, change: one + change, params, updates), memory), None

        params = self.start(key, rows)
        (params, _), _ = jax.lax.scan(advance, (params, optimizer.init(params)), length=self.n_steps)
        return params, unit

    def predict(self, known: Any, params: Any, rows: Array) -> Float[Array, "n k"]:
        """Evaluate it."""
        trained, unit = params
        values = self.apply(trained, rows)
        return unit * values.reshape(len(rows), -1)

    def _values(self, params: Any, rows: Array, shape: tuple[int, ...]) -> Float[Array, "n k"]:
        values = self.apply(params, rows)
        if values.shape not in (shape, shape[:1]) or (values.ndim == 1 and shape[1] > 1):
            raise ValueError(f"apply must return an array of shape {shape}, got {values.shape}")
        return values.reshape(shape)


@pytree
class SquashedLinear(ByValue):
    """Base learner: one unit a + b tanh(c + d^T z) of standard columns z for each output.

    Parameters
    ----------
    n_steps, optimizer
        As in `Network`.
    squash : function
        What bends the line: `jnp.tanh` or `jax.nn.sigmoid`, say.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> learner = jboost.learners.SquashedLinear()
    >>> model, record = jboost.boost(jboost.losses.logistic, learner, X, X[:, 0] > X[:, 1], n_estimators=10)
    >>> bool(record.train_loss[-1] < 0.4)
    True
    """

    n_steps: int = static_field(default=100)
    optimizer: Any = static_field(default=None)
    squash: Callable[[Array], Array] = static_field(default=jnp.tanh)

    def init(self, key: Array, X: Any, known: Any = None) -> tuple[Any, Float[Array, "n f"]]:
        """Give the columns a mean of 0 and a deviation of 1."""
        return self._network(1).init(key, X, known)

    def fit(
        self, key: Array, known: Any, rows: Array, target: Float[Array, "n k"], weight: Float[Array, "n k"]
    ) -> Any:
        """Train it from a random direction."""
        return self._network(target.shape[1]).fit(key, known, rows, target, weight)

    def predict(self, known: Any, params: Any, rows: Array) -> Float[Array, "n k"]:
        """Evaluate it."""
        return self._network(1).predict(known, params, rows)

    def _network(self, n_outputs: int) -> Network:
        def start(key: Array, z: Float[Array, "n f"]) -> dict[str, Array]:
            direction = jax.random.normal(key, (z.shape[1], n_outputs), z.dtype) / z.shape[1] ** 0.5
            zeros = jnp.zeros(n_outputs, z.dtype)
            return {"direction": direction, "shift": zeros, "height": zeros, "constant": zeros}

        def apply(unit: dict[str, Array], z: Float[Array, "n f"]) -> Float[Array, "n k"]:
            bent = self.squash(z @ unit["direction"] + unit["shift"][None])
            return unit["constant"][None] + unit["height"][None] * bent

        return Network(start, apply, self.optimizer, self.n_steps)


def _adam() -> Any:
    optax = extras.optax("a Network without an optimizer")
    return optax.adam(0.03, eps=1e-4)  # of gradients in units of 1: what is but rounding moves nothing
