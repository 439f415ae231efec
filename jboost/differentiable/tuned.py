"""What tuning found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble
from jboost._spec import Hyper
from jboost.boosting.stopping import History


@dataclasses.dataclass(frozen=True, eq=False)
class Tuned:
    """The numbers with the least risk, and the way there.

    Attributes
    ----------
    hyper : Hyper
        With the tuned numbers of the best step.
    loss : Loss, GroupLoss or BatchLoss
        With its tuned parameters, if it was to be tuned.
    sample_weight : float [n] or None
        The tuned weights, or those given.
    risk : float [steps]
        Of each step: the metric of the validation rows, the mean over the draws.
    values : dict of float [steps] or [steps p]
        By name, what each step was tried with; the numbers of the loss as "loss.delta", say.
    gradient : dict of float [steps] or [steps p]
        By name, the derivatives by places on the unconstrained scale; of what is maximised, the negative ones.
    best : int
        The step with the best risk.
    name : str
        Of the risk.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> found = jboost.differentiable.tune(
    ...     jboost.losses.squared_error, X[:100], X[:100, 0], valid=(X[100:], X[100:, 0]), steps=3,
    ...     by=("learning_rate",), spec=jboost.Spec(n_estimators=5, max_depth=2))
    >>> found.values["learning_rate"].shape, found.risk.shape
    ((3,), (3,))
    """

    hyper: Hyper
    loss: Any
    sample_weight: Any
    risk: Float[np.ndarray, " steps"]
    values: dict[str, np.ndarray]
    gradient: dict[str, np.ndarray]
    best: int
    name: str
    _fit: Callable[[dict[str, Any]], tuple[Ensemble, History]]

    def fit(self, **changes: Any) -> tuple[Ensemble, History]:
        """Fit the training rows with the tuned numbers.

        Parameters
        ----------
        **changes
            Arguments of `jboost.fit` that are to be others, such as all rows for data and y.

        Returns
        -------
        Ensemble, History
            As `jboost.fit` returns them.
        """
        return self._fit(changes)

    def plot(self, ax: Any = None) -> Any:
        """Draw the risk by step, and the tuned numbers below where there are no axes given.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw the risk alone; new ones by default.

        Returns
        -------
        matplotlib axes, or an array of them
        """
        from jboost.differentiable.plotting import plot_tuned

        return plot_tuned(self, ax)

    def __repr__(self) -> str:
        """Say how far the risk fell, and where to."""
        numbers = {name: values[self.best] for name, values in self.values.items() if values.ndim == 1}
        said = ", ".join(f"{name}={value:.4g}" for name, value in numbers.items())
        steps, risk = len(self.risk), f"{self.name} {self.risk[0]:.5g} to {self.risk[self.best]:.5g}"
        return f"Tuned({steps} steps, {risk} in step {self.best + 1}{' with ' if said else ''}{said})"
