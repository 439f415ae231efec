"""`JBoostDistribution`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.tree_util import Partial
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from jboost import distributions
from jboost._fixed_point import mean
from jboost._objective.loss import Loss
from jboost._objective.objective import Objective
from jboost.distributions import Distribution, Predictive
from jboost.metrics import Metric
from jboost.sklearn.base import Boosting
from jboost.sklearn.labels import one_column
from jboost.sklearn.names import metrics_of
from jboost.sklearn.rows import GivenRows, check_domain
from jboost.sklearn.scorers import RegressorStage, Scored

_BY_NAME = {name: one for name, one in vars(distributions).items() if isinstance(one, Distribution)}


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostDistribution(RegressorMixin, Boosting):
    """Gradient-boosted trees for the parameters of a distribution of the target.

    Parameters
    ----------
    dist : str or Distribution, default "normal"
        The name of one in `jboost.distributions`, or one of these or your own: `distributions.student_t(5.0)`.
    hessian : {"diagonal", "full"}, optional
    curvature : {"fisher", "observed"}, optional
        What leaves are made of: see `jboost.distributions.Distribution.loss`. The defaults of the distribution if None.
    min_child_samples : int, default 20
        Rows that each child of a split must hold: of few rows a deviation cannot be told.
    eval_metric : str, callable, Metric or list of these, optional
        As in `JBoostRegressor`, and "crps". Metrics of predictions are given means. Minus the mean log likelihood by
        default.

    The other parameters, attributes and methods are those of `JBoostRegressor`; `fit` takes a dict of arrays as y
    where the distribution does, as a time and whether it was seen.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (500, 1))
    >>> y = X[:, 0] + np.exp(X[:, 0]) * rng.normal(size=500)
    >>> estimator = jboost.JBoostDistribution("normal", n_estimators=30).fit(X, y)
    >>> predicted = estimator.predict_dist([[-0.9], [0.9]])
    >>> low, high = predicted.interval(0.8)
    >>> bool(high[1] - low[1] > 2 * (high[0] - low[0]))
    True
    >>> estimator.score(X, y) > jboost.JBoostDistribution("normal", n_estimators=0).fit(X, y).score(X, y)
    True

    References
    ----------
    Duan et al. (2020), "NGBoost: Natural Gradient Boosting for Probabilistic Prediction". März (2019), "XGBoostLSS".
    Stasinopoulos and Rigby (2007), "Generalized Additive Models for Location Scale and Shape (GAMLSS) in R".
    """

    dist: Any = field(default="normal", kw_only=False)
    min_child_samples: int = 20
    hessian: str | None = None
    curvature: str | None = None

    def predict(
        self, X: Any, n_trees: int | None = None, *, offset: Any = None
    ) -> Float[np.ndarray, "n ..."]:
        """Predict the mean of the target.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.
        n_trees : int, optional
            Use the first of the rounds only, 0 to `n_trees_`.
        offset : array-like [n k], optional
            Added to the scores, as in `fit`.

        Returns
        -------
        float64 [n], or of the shape of the targets; probabilities [n k] of classes
        """
        return self.predict_dist(X, n_trees, offset=offset).mean()

    def predict_dist(self, X: Any, n_trees: int | None = None, *, offset: Any = None) -> Predictive:
        """Predict the distribution of the target.

        Parameters
        ----------
        X, n_trees, offset
            As in `predict`.

        Returns
        -------
        jboost.distributions.Predictive
            With `mean`, `quantile`, `interval`, `log_prob`, `cdf`, `sample`, `crps` and others, all in float64.
        """
        return self._distribution()(self._raw_score(X, n_trees, offset))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean log likelihood of targets: more is better.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.
        y : array-like [n] or [n d], or dict of arrays
            Targets.
        sample_weight : array-like [n], optional
            Weights of the rows.

        Raises
        ------
        ValueError
            For targets that `fit` would refuse.
        """
        return -self._mean_loss(self._loss(), X, y, sample_weight)

    def crps(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the mean continuous ranked probability score of targets, in their units: less is better.

        Parameters
        ----------
        X, y, sample_weight
            As in `score`.

        Raises
        ------
        ValueError
            For targets that `fit` would refuse.
        """
        predicted = self.predict_dist(X)
        target, weight, counted = self._check_rows(
            GivenRows("", X, y, sample_weight, None, None), reset=False
        )
        target = self._encode(target, reset=False)
        check_domain(self._loss().check_target, target, "y")
        return float(np.average(predicted[counted].crps(target), weights=weight))

    def _distribution(self) -> Distribution:
        if isinstance(self.dist, Distribution):
            return self.dist
        if self.dist == "student_t":
            return distributions.student_t()
        if isinstance(self.dist, str) and self.dist in _BY_NAME:
            return _BY_NAME[self.dist]
        raise (ValueError if isinstance(self.dist, str) else TypeError)(
            f"dist must be a Distribution, or one of {', '.join(map(repr, sorted([*_BY_NAME, 'student_t'])))}, got "
            f"{self.dist!r}"
        )

    def _loss(self) -> Loss:
        hessian: Any = self.hessian
        curvature: Any = self.curvature
        return self._distribution().loss(hessian, curvature)

    def _metrics(self, loss: Objective) -> list[Metric | Scored]:
        distribution, given = self._distribution(), self.eval_metric
        several = list(given) if isinstance(given, list | tuple) else [given]
        if "crps" in [one for one in several if isinstance(one, str)]:
            several = [crps_metric(distribution) if one == "crps" else one for one in several]
            given = several
        found = metrics_of(given, loss)
        link = Partial(_means, distribution=distribution)
        return [
            one.of_scores(link) if isinstance(one, Metric) and one.of == "prediction" else one
            for one in found
        ]

    def _stage(self, score: Float[np.ndarray, "n ..."], loss: Objective) -> RegressorStage:
        return RegressorStage(self.__sklearn_tags__(), self._distribution()(score).mean())

    def _encode(self, y: Any, reset: bool) -> Any:
        """Take one column, as of a data frame, for a vector."""
        if isinstance(y, Mapping):
            return y
        return one_column(y) if np.ndim(y) == 2 and np.shape(y)[1] == 1 else y

    def __sklearn_tags__(self) -> Tags:
        """Say that `score` is no R²."""
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


def crps_metric(distribution: Distribution) -> Metric:
    """Return the mean continuous ranked probability score as a metric of raw scores."""
    return Metric(Partial(_mean_crps, distribution=distribution), pads=True, name="crps")


def _mean_crps(score: Any, y: Any, weight: Any, distribution: Distribution) -> Any:
    return mean(distribution(score).crps(y), weight)


def _means(score: Any, distribution: Distribution) -> Any:
    return distribution(score).mean()
