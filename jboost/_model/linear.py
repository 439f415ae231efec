"""The model that `fit_linear` makes: a linear function of the columns, and what it was after each round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins import read_matrix
from jboost._runtime.arguments import as_offset
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import as_array, identity, is_traced, pytree, static_field


@pytree
class LinearModel:
    """A linear function of f columns for each of k outputs, after each of t rounds; a pytree.

    A score is `constant + coef @ (x - center)`, in which a missing value stands at the center of its column and so adds
    nothing.

    Attributes
    ----------
    base : float [k]
        Score before the first round.
    center : float [f]
        Weighted mean of the values that the training rows have in each column.
    coef_path : float [t k f]
        Coefficients after each round.
    constant_path : float [t k]
        Score of a row at the center, after each round.
    inverse_link : callable, static
        Turns a score into a prediction.
    scalar_output : bool, static
        Whether scores have shape [n] rather than [n k].
    missing : float or None, static
        A number that stands for a missing value, beside NaN.
    names : tuple of str or None, static
        Of the columns, where they were those of a data frame: another one is read by name, whatever its order.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit_linear(jboost.losses.squared_error, X, 2 * X[:, 0] + 1, reg_lambda=0.0, n_estimators=50)
    >>> bool(abs(model.coef[0, 0] - 2) < 1e-3), bool(abs(model.intercept[0] - 1) < 1e-3)
    (True, True)
    >>> bool(abs(model.predict([[10.0]])[0] - 21) < 1e-3), model.truncate(1).n_rounds
    (True, 1)
    """

    base: Float[Array, " k"]
    center: Float[Array, " f"]
    coef_path: Float[Array, "t k f"]
    constant_path: Float[Array, "t k"]
    inverse_link: Callable[[Array], Array] = static_field(default=identity)
    scalar_output: bool = static_field(default=True)
    missing: float | None = static_field(default=None)
    names: tuple[str, ...] | None = static_field(default=None)

    @property
    def n_rounds(self) -> int:
        """Rounds in the model."""
        return self.constant_path.shape[0]

    @property
    def n_features(self) -> int:
        """Columns that it reads."""
        return self.center.shape[0]

    @property
    def coef(self) -> Float[Array, "k f"]:
        """Coefficients after the last round."""
        zeros = np.zeros(self.coef_path.shape[1:], self.base.dtype)
        return self.coef_path[-1] if self.n_rounds else as_array(zeros)

    @property
    def constant(self) -> Float[Array, " k"]:
        """Score of a row at the center after the last round."""
        return self.constant_path[-1] if self.n_rounds else self.base

    @property
    def intercept(self) -> Float[Array, " k"]:
        """Score of a row of zeros after the last round."""
        numpy, dtype = (jnp, None) if is_traced(self.coef) else (np, np.float64)
        coef, center = (numpy.asarray(one, dtype) for one in (self.coef, self.center))
        return as_array(numpy.asarray(self.constant, dtype) - coef @ center, self.base.dtype)

    def __repr__(self) -> str:
        """Say how large the model is, not what is in it."""
        return (
            f"LinearModel(n_rounds={self.n_rounds}, n_features={self.n_features}, "
            f"n_outputs={self.base.shape[0]})"
        )

    @moves_arrays
    def predict(self, X: Any, offset: Any = None) -> Float[Array, "n *k"]:
        """Return the raw scores of rows [n f]: `model.inverse_link` makes predictions of them.

        Parameters
        ----------
        X : array-like [n f]
            Rows; NaN is missing. May be traced.
        offset : float [n] or [n k], optional
            Added to the scores.
        """
        rows, start = self._read(X, offset)
        return self._shaped(rows, start, self.coef, self.constant)

    @moves_arrays
    def staged_predict(self, X: Any, offset: Any = None) -> Iterator[Float[Array, "n *k"]]:
        """Yield the raw scores after one round, two rounds, and so on."""
        rows, start = self._read(X, offset)
        paths = self.coef_path, self.constant_path
        paths = paths if is_traced(paths) else tuple(map(np.asarray, paths))
        return (self._shaped(rows, start, *after) for after in zip(*paths, strict=True))

    def truncate(self, n_rounds: int) -> LinearModel:
        """Return the model as it was after so many rounds, 0 to `n_rounds`."""
        if not isinstance(n_rounds, int | np.integer) or isinstance(n_rounds, bool):
            raise TypeError(f"n_rounds must be an integer, got {n_rounds!r}")
        if not 0 <= n_rounds <= self.n_rounds:
            raise ValueError(f"n_rounds must be between 0 and {self.n_rounds}, got {n_rounds}")
        paths = {"coef_path": self.coef_path[:n_rounds], "constant_path": self.constant_path[:n_rounds]}
        return dataclasses.replace(self, **paths)

    def _read(self, X: Any, offset: Any) -> tuple[Any, Any]:
        """Return the rows around the center, on the host unless they are traced, and what is added to their scores."""
        matrix = read_matrix(X, self.missing, self.names)
        if matrix.shape[1] != self.n_features:
            raise ValueError(f"X must have the {self.n_features} columns of fit, got {matrix.shape[1]}")
        start = 0 if offset is None else as_offset(offset, len(matrix), self.base.shape[0], "offset")
        return around(matrix, self.center), start

    def _shaped(self, rows: Any, start: Any, coef: Any, constant: Any) -> Float[Array, "n *k"]:
        traced = is_traced(rows, start, coef, constant)
        if not traced:  # in float64 on the host, where a new shape costs no compilation
            start, coef, constant = (np.asarray(one, np.float64) for one in (start, coef, constant))
            rows = np.asarray(rows, np.float64)
        score = start + constant[None] + dot(rows, coef.T)
        score = score[:, 0] if self.scalar_output else score
        return score if traced else as_array(score, self.base.dtype)


def around(matrix: Any, center: Any) -> Any:
    """Return columns less their centers, and 0 for what is missing; on the host in float64 unless one is traced."""
    numpy = jnp if is_traced(matrix, center) else np
    matrix = as_floats(matrix, numpy)
    difference = matrix - numpy.asarray(center, matrix.dtype)[None]
    return numpy.where(numpy.isnan(difference), numpy.zeros_like(difference), difference)


def as_floats(matrix: Any, numpy: Any) -> Any:
    """Return a matrix for NumPy as it is, and for JAX in its precision."""
    return matrix if numpy is np else jnp.asarray(matrix, jnp.result_type(float))


def dot(left: Any, right: Any) -> Any:
    """Multiply matrices in full precision, which accelerators must be asked for."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left @ right
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
