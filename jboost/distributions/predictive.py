"""`Predictive`: the distribution of each row, by its scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._runtime.arguments import as_key, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.padding import bucket
from jboost._runtime.parametrised import parametrised
from jboost._runtime.programs import program
from jboost._runtime.typing import is_traced, pytree
from jboost.distributions.fisher import check_has_fisher, fisher_matrix
from jboost.distributions.plotting import plot_pit
from jboost.distributions.sampling import can_sample, sample_of_row
from jboost.distributions.scoring import crps_of_row


@pytree
class Predictive:
    """The distributions of n rows: a `Distribution` called with their scores.

    Results are NumPy arrays in float64 where the scores are a NumPy array, as those of an estimator, and JAX arrays
    otherwise: then methods may run under ``jit``, ``vmap`` and ``grad``. It is a pytree.

    Attributes
    ----------
    distribution : Distribution
    score : float [n k]
        Raw scores.

    Examples
    --------
    >>> import numpy as np
    >>> from jboost import distributions
    >>> predicted = distributions.normal(np.array([[0.0, 0.0], [10.0, np.log(2.0)]]))
    >>> predicted.mean().tolist()
    [0.0, 10.0]
    >>> low, high = predicted.interval(0.9)
    >>> high.round(2).tolist()
    [1.64, 13.29]
    >>> predicted.parameters()["scale"].round(2).tolist()
    [1.0, 2.0]
    """

    distribution: Any
    score: Any

    @staticmethod
    def of(distribution: Any, score: Any) -> Predictive:
        """Return the distributions of rows by their scores; raise where these are of another form."""
        k = distribution.n_parameters
        array = score if isinstance(score, np.ndarray | jax.Array) or is_traced(score) else jnp.asarray(score)
        if array.ndim == 1 and k == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != k:
            raise ValueError(
                f"score must have shape [n {k}], the {k} parameters of {distribution.name}, got {array.shape}"
            )
        if not jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(float)
        return Predictive(distribution, array)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.score)

    def __getitem__(self, rows: Any) -> Predictive:
        """Return the distributions of some rows, a slice, a mask or an array of numbers."""
        return Predictive.of(self.distribution, self.score[rows])

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, arrays [n] or [n ...]."""
        return self._by_row(self.distribution.parameters)

    def mean(self) -> Any:
        """Return the mean of each row, [n] or of the shape of a target; probabilities [n k] of classes."""
        return self._by_row(self._known("mean"))

    def variance(self) -> Any:
        """Return the variance of each row, [n]; infinite where there is none."""
        return self._by_row(self._known("variance"))

    def std(self) -> Any:
        """Return the standard deviation of each row, [n]."""
        return self.variance() ** 0.5

    def log_prob(self, y: Any) -> Any:
        """Return the logarithm of the density, or of the probability, of a target for each row, [n]."""
        return self._by_row(Partial(_log_prob, distribution=self.distribution), y)

    def cdf(self, y: Any) -> Any:
        """Return the probability of a target of at most y for each row, [n]."""
        return self._by_row(self._known("cdf"), y)

    def quantile(self, q: Any) -> Any:
        """Return the quantiles of each row.

        Parameters
        ----------
        q : float or float [m]
            Levels strictly between 0 and 1.

        Returns
        -------
        [n], or [n m] for m levels
        """
        levels = q if is_traced(q) else np.asarray(q, float)
        if not is_traced(q) and not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"q must lie strictly between 0 and 1, got {q!r}")
        if levels.ndim > 1:
            raise ValueError(f"q must be a number or an array [m], got shape {levels.shape}")
        function = self._known("quantile")
        if levels.ndim == 0:
            return self._by_row(Partial(_one_level, quantile=function), shared=levels)
        return self._by_row(Partial(_levels, quantile=function), shared=levels)

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return the ends [n] of the central interval that holds a target with probability `level`."""
        if not is_traced(level) and not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        of = jnp if is_traced(level) else np
        both = self.quantile(of.stack([0.5 - level / 2, 0.5 + level / 2]))
        return both[:, 0], both[:, 1]

    def sample(self, key: Any = 0, n_samples: int | None = None) -> Any:
        """Draw targets for each row.

        Parameters
        ----------
        key : JAX key or int, default 0
            The same key gives the same numbers.
        n_samples : int, optional
            How many for each row. One, without an axis of its own, if None.

        Returns
        -------
        [n ...], or [s n ...] for s samples
        """
        key = as_key(key)
        if not can_sample(self.distribution):
            self._known("sample")
        function = Partial(sample_of_row, self.distribution)
        count = 1 if n_samples is None else whole_number(n_samples, "n_samples", 1, or_else=" or None")
        keys = jax.random.key_data(jax.random.split(key, len(self)))
        drawn = self._by_row(Partial(_samples, sample=function), keys, shared=np.zeros(count))
        moved = jax.tree.map(lambda array: array.swapaxes(0, 1), drawn)
        return moved if n_samples is not None else jax.tree.map(lambda array: array[0], moved)

    def crps(self, y: Any) -> Any:
        """Return the continuous ranked probability score of a target for each row, [n], in units of y: less is better.

        By a formula where there is one, else by integration over quantiles or over counts.

        References
        ----------
        Gneiting and Raftery (2007), "Strictly Proper Scoring Rules, Prediction, and Estimation", eq. 20.
        """
        for name in () if self.distribution.crps is not None else ("cdf", "quantile"):
            self._known(name)
        return self._by_row(Partial(_crps, distribution=self.distribution), y)

    def pit(self, y: Any, key: Any = 0) -> Any:
        """Return the probability integral transform of a target for each row, [n]: uniform if all is right.

        Where a target has a probability of its own, as a count, a number between the distribution function below it and
        at it is drawn.

        References
        ----------
        Czado, Gneiting and Held (2009), "Predictive Model Assessment for Count Data", eq. 1, for counts.
        """
        y = _as_array(y)
        at = self.cdf(y)
        key = as_key(key)
        share = jax.random.uniform(key, at.shape, jnp.result_type(float))
        below = self.cdf(self._just_below(y))
        return below + (share if isinstance(at, jax.Array) else np.asarray(share)) * (at - below)

    def plot_calibration(self, y: Any, ax: Any = None, *, n_bins: int = 20, key: Any = 0) -> Any:
        """Draw a histogram of `pit`, which is flat if the distributions are right; matplotlib must be installed.

        Bars that are high at both ends say that the distributions are too narrow, and high in the middle too wide. Of
        right ones, nineteen of twenty bars end in the grey band.

        Parameters
        ----------
        y : array [n]
            Targets.
        ax : matplotlib Axes, optional
            Drawn anew by default.
        n_bins : int, default 20
            Bars.
        key : JAX key or int, default 0
            As for `pit`.

        Returns
        -------
        matplotlib Axes
        """
        return plot_pit(np.asarray(self.pit(y, key)), ax, n_bins, self.distribution.name)

    def fisher(self) -> Any:
        """Return the Fisher matrix of each row by its score, [n k k]."""
        check_has_fisher(self.distribution)
        return self._by_row(Partial(fisher_matrix, self.distribution))

    def _just_below(self, y: Any) -> Any:
        """Return the next smaller target: a whole number, or a float that is not flushed to 0."""
        if self.distribution.is_discrete:
            return y - 1
        of = np if isinstance(self.score, np.ndarray) else jnp
        y = of.asarray(y, float)
        least = of.finfo(y.dtype).tiny
        return of.where(of.abs(y) < 2 * least, y - 2 * least, of.nextafter(y, of.full_like(y, -of.inf)))

    def _known(self, name: str) -> Callable[..., Any]:
        function = getattr(self.distribution, name)
        if function is None:
            raise ValueError(
                f"{self.distribution.name} has no {name} function; dataclasses.replace(distribution, {name}=...) "
                "adds one"
            )
        return function

    @moves_arrays
    def _by_row(self, function: Any, *of_rows: Any, shared: Any = None) -> Any:
        """Apply a function of one row to all, in one program for similar numbers of rows."""
        n = len(self.score)
        of_rows = jax.tree.map(_as_array, of_rows, is_leaf=lambda one: isinstance(one, list))
        for leaf in jax.tree.leaves(of_rows):
            if np.ndim(leaf) == 0 or np.shape(leaf)[0] != n:
                raise ValueError(
                    f"y must have one entry for each of the {n} rows, got shape {np.shape(leaf)}"
                )
        function = parametrised(function)
        arguments = (self.score, *of_rows)
        if is_traced(arguments, shared, function) or not isinstance(self.score, np.ndarray):
            return _map_rows(function, shared, *arguments)
        size = bucket(n)
        with jax.enable_x64(True):
            padded = jax.tree.map(lambda leaf: _lengthened(_host(leaf), size), arguments)
            found = _map_rows(function, shared, *padded)
            return jax.tree.map(lambda leaf: np.asarray(leaf)[:n], found)


def _as_array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array | np.ndarray) else np.asarray(leaf)


def _host(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array if array.dtype == np.uint32 else array.astype(np.float64)


def _lengthened(leaf: np.ndarray, size: int) -> np.ndarray:
    """Repeat the last row: zeros may lie outside the domain, which alarms `jax_debug_nans`."""
    widths = [(0, size - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)
    return np.pad(leaf, widths, mode="edge" if len(leaf) else "constant")


@program
def _map_rows(function: Any, shared: Any, score: Any, *of_rows: Any) -> Any:
    floats = jax.tree.map(
        lambda leaf: leaf if leaf.dtype == jnp.uint32 else jnp.asarray(leaf, score.dtype), of_rows
    )
    more = () if shared is None else (jnp.asarray(shared, score.dtype),)
    return jax.vmap(lambda score, *row: function(score, *row, *more))(score, *floats)


def one_number(value: Any) -> Any:
    """Return what a function told of the target of one row; raise where it took it for several."""
    if jnp.shape(value):
        raise ValueError(f"y must hold one target of the distribution for each row, got {value.size} of them")
    return value


def _log_prob(score: Any, y: Any, distribution: Any) -> Any:
    return one_number(distribution.log_prob(score, y))


def _crps(score: Any, y: Any, distribution: Any) -> Any:
    return one_number(crps_of_row(distribution, score, y))


def _one_level(score: Any, level: Any, quantile: Any) -> Any:
    return quantile(score, level)


def _levels(score: Any, levels: Any, quantile: Any) -> Any:
    return jax.vmap(quantile, (None, 0))(score, levels)


def _samples(score: Any, key: Any, count: Any, sample: Any) -> Any:
    keys = jax.random.split(jax.random.wrap_key_data(key), count.size)
    return jax.vmap(sample, (None, 0))(score, keys)
