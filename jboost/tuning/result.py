"""What a sweep found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from jboost._model.ensemble import Ensemble
from jboost._runtime.caller import warn
from jboost._spec import Hyper, Spec
from jboost.boosting.stopping import History
from jboost.metrics import Metric
from jboost.tuning.batches import Done

MOST_CURVES = 8  # of settings that a plot shows by round


@dataclasses.dataclass(frozen=True, eq=False)
class Sweep:
    """Histories of s settings on c folds, of up to t rounds, and the best of the settings.

    Attributes
    ----------
    metric : float [s c t]
        Of the rows held out, after each round; NaN after a member has stopped, and without folds.
    train_loss : float [s c t]
        Of the other rows, after each round.
    best_round_of_fold : int [s c]
        Round with the best metric, counted from 0; the last one without folds.
    best_round : int [s]
        The round with the best mean metric over the folds, among those that all of them made.
    score, standard_error : float [s]
        The mean of the metric over the folds in that round, and its standard error: NaN for a single fold. Without
        folds the training loss.
    hyper : Hyper
        Of arrays [s]: the settings.
    best : int
        The setting with the best score.
    maximize : bool
        Whether more is better.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(100, 2))
    >>> found = jboost.sweep(jboost.losses.squared_error, X, X[:, 0], folds=2,
    ...                      hyper=jboost.Hyper(reg_lambda=np.array([0.1, 1e6])), spec=jboost.Spec(n_estimators=5))
    >>> found.best, found.score.shape
    (0, (2,))
    """

    metric: Float[np.ndarray, "s c t"]
    train_loss: Float[np.ndarray, "s c t"]
    best_round_of_fold: Int[np.ndarray, "s c"]
    best_round: Int[np.ndarray, " s"]
    score: Float[np.ndarray, " s"]
    standard_error: Float[np.ndarray, " s"]
    hyper: Hyper
    best: int
    maximize: bool
    name: str
    _fit: Callable[[int, int, dict[str, Any]], tuple[Ensemble, History]]

    @classmethod
    def of(
        cls,
        done: Sequence[Sequence[Done]],
        settings: list[Hyper],
        spec: Spec,
        metric: Metric | None,
        holds_out: bool,
        fit: Any,
    ) -> Sweep:
        """Put together what the members left."""
        train, held = (_table(done, spec.n_estimators, name) for name in ("train_loss", "metric"))
        maximize = metric is not None and metric.maximize
        judged = held if holds_out else train
        rounds, scores, errors = zip(*(_judge(of_folds, maximize) for of_folds in judged), strict=True)
        scores = np.array(scores)
        if spec.n_estimators and np.isnan(scores).any():
            n_unknown = int(np.isnan(scores).sum())
            of_all = f"{n_unknown} of {len(scores)} settings have no score"
            warn(f"{of_all}: in some fold the metric is NaN, or there is no round")
        signed = np.where(np.isnan(scores), np.inf, -scores if maximize else scores)
        return cls(
            metric=held,
            train_loss=train,
            best_round_of_fold=np.array([[one.best_round for one in of_folds] for of_folds in done]),
            best_round=np.array(rounds),
            score=scores,
            standard_error=np.array(errors),
            hyper=jax.tree.map(lambda *numbers: np.array(numbers), *settings),
            best=int(np.argmin(signed)),
            maximize=maximize,
            name="mean loss" if metric is None else metric.name or "metric",
            _fit=fit,
        )

    @property
    def best_hyper(self) -> Hyper:
        """The numbers of the best setting."""
        return self.hyper_of(self.best)

    def hyper_of(self, setting: int) -> Hyper:
        """Return the numbers of a setting."""
        setting = self._known(setting)
        return jax.tree.map(lambda numbers: numbers[setting], self.hyper)

    def fit(self, setting: int | None = None, **changes: Any) -> tuple[Ensemble, History]:
        """Fit a setting, the best one by default, on all rows, for as many rounds as its folds found best.

        Parameters
        ----------
        setting : int, optional
            Which one.
        **changes
            Arguments of `jboost.fit` that are to be others.

        Returns
        -------
        Ensemble, History
            As `jboost.fit` returns them.
        """
        chosen = self.best if setting is None else self._known(setting)
        if np.isnan(self.score[chosen]) and self.metric.shape[2]:
            raise ValueError(
                f"setting {chosen} has no score, and so no best number of rounds: see Sweep.metric"
            )
        return self._fit(chosen, int(self.best_round[chosen]) + 1, changes)

    def _known(self, setting: int) -> int:
        n_settings = len(self.score)
        if not -n_settings <= setting < n_settings:
            raise ValueError(f"setting must be below {n_settings}, the number of settings, got {setting}")
        return setting % n_settings

    def varied(self) -> list[str]:
        """Name the numbers that differ between settings."""
        return [name for name, values in vars(self.hyper).items() if (values != values[0]).any()]

    def plot(self, ax: Any = None) -> Any:
        """Draw the metric by round, the mean of the folds and their standard error, of the best settings.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where; new ones by default.

        Returns
        -------
        matplotlib axes
        """
        from jboost.tuning.plotting import plot_sweep

        return plot_sweep(self, ax, MOST_CURVES)

    def __repr__(self) -> str:
        """Say how many fits there were and how well the best did."""
        s, c, t = self.metric.shape
        varied = ", ".join(f"{name}={getattr(self.best_hyper, name):.4g}" for name in self.varied())
        found = f"{self.name} {self.score[self.best]:.5g} after {self.best_round[self.best] + 1} rounds"
        return (
            f"Sweep({s} settings, {c} folds, {t} rounds; best: {found}{' with ' if varied else ''}{varied})"
        )


def _table(done: Sequence[Sequence[Done]], n_rounds: int, name: str) -> Float[np.ndarray, "s c t"]:
    dtype = done[0][0].train_loss.dtype
    found = np.full((len(done), len(done[0]), n_rounds), np.nan, dtype)
    for s, of_folds in enumerate(done):
        for c, one in enumerate(of_folds):
            values = getattr(one, name)
            found[s, c, : len(values)] = values
    return found


def _judge(metric: Float[np.ndarray, "c t"], maximize: bool) -> tuple[int, float, float]:
    """Return the best round of a setting, and mean and standard error of the metric there."""
    made = ~np.isnan(metric).any(axis=0)
    if not made.any():
        return -1, np.nan, np.nan
    mean = np.where(made, np.nan_to_num(metric).mean(axis=0), -np.inf if maximize else np.inf)
    best = int(np.argmax(mean) if maximize else np.argmin(mean))
    n_folds = len(metric)
    error = metric[:, best].std(ddof=1, dtype=np.float64) / np.sqrt(n_folds) if n_folds > 1 else np.nan
    return best, mean[best], error
