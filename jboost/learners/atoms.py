"""One atom of a dictionary a round: matching pursuit (Mallat and Zhang 1993)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._runtime.arguments import whole_number
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import as_array, pytree, static_field
from jboost.learners.learner import check_concrete, finite_columns

Dictionary = Callable[[Any, Float[Array, "n f"]], Float[Array, "n a"]]


@pytree
class Chosen:
    """Which atom, and how much of it for each output."""

    atom: Int[Array, ""]
    coefficient: Float[Array, " k"]


@pytree
class Atoms(ByValue):
    r"""Base learner: the atom of a dictionary that takes most off the squares, times its projection.

    .. math:: j = \arg\max_j \sum_k \frac{(\sum_i w_{ik} t_{ik} \phi_{ij})^2}{\sum_i w_{ik} \phi_{ij}^2}, \qquad
        c_k = \frac{\sum_i w_{ik} t_{ik} \phi_{ij}}{\sum_i w_{ik} \phi_{ij}^2}

    Boosting of the squared error with a learning rate of 1 is matching pursuit.

    Parameters
    ----------
    expand : function (known, X [n f]) -> [n a]
        The values of all atoms, in JAX operations. Part of the program: hashable.
    know : function (X [n f]) -> known, optional
        What the atoms are made from, such as knots: a pytree of arrays, found once in the training rows, on the host.

    References
    ----------
    Mallat and Zhang (1993), "Matching pursuits with time-frequency dictionaries". Friedman (2001), section 2.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np, jboost
    >>> waves = jboost.learners.Atoms(lambda known, X: jnp.sin(X * jnp.arange(1, 9, dtype=X.dtype)[None]))
    >>> X = np.linspace(0, 2 * np.pi, 100)[:, None]
    >>> model, _ = jboost.boost(
    ...     jboost.losses.squared_error, waves, X, 3 * np.sin(5 * X[:, 0]), n_estimators=1, learning_rate=1.0)
    >>> int(model.params.atom[0]), round(float(model.params.coefficient[0, 0]), 3)
    (4, 3.0)
    """

    expand: Dictionary = static_field()
    know: Callable[[Any], Any] | None = static_field(default=None)

    def init(self, key: Array, X: Any, known: Any = None) -> tuple[Any, Float[Array, "n a"]]:
        """Evaluate all atoms."""
        values = as_array(finite_columns(X, "Atoms", known is not None), float)
        if known is None and self.know is not None:
            check_concrete(values, "Atoms with `know`")
            known = self.know(np.asarray(values))
        known = () if known is None else known
        return known, self.expand(known, values)

    def fit(
        self, key: Array, known: Any, rows: Array, target: Float[Array, "n k"], weight: Float[Array, "n k"]
    ) -> Chosen:
        """Choose the atom with the largest projections."""
        size = weight.T @ jnp.square(rows)
        along = (weight * target).T @ rows
        usable = size > 0
        coefficient = jnp.where(usable, along / jnp.where(usable, size, 1), 0)
        best = jnp.argmax(jnp.sum(along * coefficient, axis=0)).astype(jnp.int32)
        return Chosen(best, coefficient[:, best])

    def predict(self, known: Any, params: Chosen, rows: Array) -> Float[Array, "n k"]:
        """Return the multiple of the atom."""
        return rows[:, params.atom][:, None] * params.coefficient[None]


def splines(n_knots: int = 10, degree: int = 1) -> Atoms:
    """Return atoms of splines: (x - t)^d and (t - x)^d where they are positive, with knots t at quantiles.

    With a degree of 1 they are the hinges of MARS. Each column is measured in its range.

    Parameters
    ----------
    n_knots : int
        Knots of a column, at least 1.
    degree : int
        At least 0; 0 makes steps, and so stumps.

    References
    ----------
    Friedman (1991), "Multivariate adaptive regression splines".

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 101)[:, None]
    >>> y = np.abs(X[:, 0])
    >>> model, record = jboost.boost(jboost.losses.squared_error, jboost.learners.splines(9), X, y, learning_rate=1.0)
    >>> bool(record.train_loss[-1] < 1e-3)
    True
    """
    whole_number(n_knots, "n_knots", 1)
    whole_number(degree, "degree")
    return Atoms(_Hinges(degree), _Knots(n_knots))


def wavelets(n_levels: int = 4) -> Atoms:
    """Return atoms of Haar wavelets of each column, over the range of its training values.

    Level j has 2^j of them, each 2^(j / 2) on the first half of its interval and -2^(j / 2) on the second. On a grid of
    2^m equal steps, m at least the number of levels, they are orthogonal.

    Parameters
    ----------
    n_levels : int
        At least 1.

    References
    ----------
    Haar (1910), "Zur Theorie der orthogonalen Funktionensysteme".

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(16.0)[:, None]
    >>> model, record = jboost.boost(
    ...     jboost.losses.squared_error, jboost.learners.wavelets(1), X, X[:, 0] > 7, n_estimators=1, learning_rate=1.0)
    >>> round(float(record.train_loss[-1]), 6)
    0.0
    """
    whole_number(n_levels, "n_levels", 1)
    return Atoms(_Haar(n_levels), _ranges)


@dataclass(frozen=True)
class _Hinges:
    degree: int

    def __call__(self, known: Any, X: Float[Array, "n f"]) -> Float[Array, "n a"]:
        knots, width = known  # [f t], [f]
        apart = (X[:, :, None] - knots[None]) / width[None, :, None]
        sides = [jnp.where(side > 0, side**self.degree, 0) for side in (apart, -apart)]
        return jnp.concatenate([side.reshape(len(X), knots.size) for side in sides], axis=1)


@dataclass(frozen=True)
class _Knots:
    n_knots: int

    def __call__(self, X: Any) -> tuple[Float[Array, "f t"], Float[Array, " f"]]:
        levels = np.arange(1, self.n_knots + 1) / (self.n_knots + 1)
        return as_array(np.quantile(X, levels, axis=0).T, float), _ranges(X)[1]


@dataclass(frozen=True)
class _Haar:
    n_levels: int

    def __call__(self, known: Any, X: Float[Array, "n f"]) -> Float[Array, "n a"]:
        lowest, width = known
        place = (X - lowest[None]) / width[None]
        columns = []
        for level in range(self.n_levels):
            scaled = place[:, :, None] * 2**level - jnp.arange(2**level, dtype=X.dtype)[None, None]
            last = jnp.arange(2**level) == 2**level - 1
            inside = (scaled >= 0) & ((scaled < 1) | (last[None, None] & (scaled <= 1)))
            wave = jnp.where(inside, jnp.where(scaled < 0.5, 1.0, -1.0), 0.0) * 2 ** (level / 2)
            columns.append(wave.astype(X.dtype).reshape(len(X), X.shape[1] * 2**level))
        return jnp.concatenate(columns, axis=1)


def _ranges(X: Any) -> tuple[Float[Array, " f"], Float[Array, " f"]]:
    """Return the least value of each column, and how far its largest is from it; 1 for one that is constant."""
    lowest, width = X.min(axis=0), np.ptp(X, axis=0)
    return as_array(lowest, float), as_array(np.where(width > 0, width, 1), float)
