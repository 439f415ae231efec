"""`JBoostRegressor` and `JBoostClassifier`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import Tags, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from jboost._loss import Loss
from jboost.sklearn.base import Boosting
from jboost.sklearn.names import classification_loss, regression_loss
from jboost.sklearn.rows import apply_link


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostRegressor(RegressorMixin, Boosting):
    """TODO"""

    quantile: float | None = None

    def predict(self, X: Any) -> Float[np.ndarray, "n *k"]:
        """Predict the target: the scores through the inverse link of the loss.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Returns
        -------
        float64 [n] or [n k]
            As many columns as the score has; the mean for losses of counts and amounts.
        """
        score = self._score(X)
        return apply_link(self.model_.inverse_link, score)

    def staged_predict(self, X: Any) -> Iterator[Float[np.ndarray, "n *k"]]:
        """Yield the prediction after one round, two rounds, and so on.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Yields
        ------
        float64 [n] or [n k]
            Predictions; the last equals `predict(X)`.
        """
        for score in self._staged_score(X):
            yield apply_link(self.model_.inverse_link, score)

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        return y.astype(np.float64) if y.dtype.kind == "O" else y

    def _loss(self) -> Loss:
        return regression_loss(self.loss, self.quantile)

    def __sklearn_tags__(self) -> Tags:
        """Say what targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostClassifier(ClassifierMixin, Boosting):
    """TODO"""

    loss: Any = field(default="log_loss", kw_only=False)
    class_weight: Any = None

    def predict(self, X: Any) -> np.ndarray:
        """Predict the most probable label, the first of equals.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Returns
        -------
        array [n]
            Labels, in the dtype of `classes_`.
        """
        return self._label(self.predict_proba(X))

    def predict_proba(self, X: Any) -> Float[np.ndarray, "n classes"]:
        """Predict the probability of each label.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Returns
        -------
        float64 [n classes]
            In the order of `classes_`.
        """
        return self._probability(self._score(X))

    def decision_function(self, X: Any) -> Float[np.ndarray, "n *classes"]:
        """Return the raw scores, before the link.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Returns
        -------
        float64 [n] or [n classes]
            For up to two classes the score of the last, for more the score of each.
        """
        return self._decision(self._score(X))

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the most probable label after one round, two rounds, and so on.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Yields
        ------
        array [n]
            Labels; the last equals `predict(X)`.
        """
        for probability in self.staged_predict_proba(X):
            yield self._label(probability)

    def staged_predict_proba(self, X: Any) -> Iterator[Float[np.ndarray, "n classes"]]:
        """Yield the probability of each label after one round, two rounds, and so on.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Yields
        ------
        float64 [n classes]
            Probabilities; the last equals `predict_proba(X)`.
        """
        for score in self._staged_score(X):
            yield self._probability(score)

    def staged_decision_function(self, X: Any) -> Iterator[Float[np.ndarray, "n *classes"]]:
        """Yield the raw scores after one round, two rounds, and so on.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Yields
        ------
        float64 [n] or [n classes]
            Scores; the last equals `decision_function(X)`.
        """
        for score in self._staged_score(X):
            yield self._decision(score)

    def _label(self, probability: Float[np.ndarray, "n classes"]) -> np.ndarray:
        return self.classes_[probability.argmax(axis=1)]

    def _probability(self, score: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, "n classes"]:
        if len(self.classes_) == 1:
            return np.ones((len(score), 1))
        linked = apply_link(self.model_.inverse_link, score).reshape(len(score), -1)
        return linked if linked.shape[1] > 1 else np.hstack([1 - linked, linked])

    def _decision(self, score: Float[np.ndarray, "n *k"]) -> Float[np.ndarray, "n *classes"]:
        if score.ndim == 1 or len(self.classes_) > 2:
            return score
        return score[:, 0] if score.shape[1] == 1 else score[:, 1] - score[:, 0]

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        """Number the labels; the only one of a single class is 1, so that its score is the positive one."""
        y = column_or_1d(y, warn=True)
        if reset:
            check_classification_targets(y)
            self._encoder = LabelEncoder().fit(y)
            self.classes_ = self._encoder.classes_
        return self._encoder.transform(y) + (len(self.classes_) == 1)

    def _strata(self, target: np.ndarray) -> np.ndarray:
        return target

    def _weight_of(self, target: np.ndarray) -> Float[np.ndarray, " n"] | float:
        if self.class_weight is None:
            return 1.0
        number = target - (len(self.classes_) == 1)
        weights = compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_[number])
        return weights[number]

    def _loss(self) -> Loss:
        return classification_loss(self.loss, len(self.classes_))
