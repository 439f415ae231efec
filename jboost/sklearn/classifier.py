"""`JBoostClassifier`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags

from jboost._objective.objective import Objective
from jboost.metrics import Metric
from jboost.sklearn.base import Boosting
from jboost.sklearn.labels import (
    check_indicator,
    is_indicator,
    labels_of,
    number_labels,
    one_column,
    weights_of_classes,
)
from jboost.sklearn.names import classification_loss, metrics_of, multilabel_loss
from jboost.sklearn.rows import apply_link, class_probability
from jboost.sklearn.scorers import ClassifierStage, Scored
from jboost.sklearn.starting import Start


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostClassifier(ClassifierMixin, Boosting):
    """Gradient-boosted trees, or a linear function, for classification, with any JAX loss.

    Parameters
    ----------
    loss : str, callable or Loss, default "log_loss"
        "log_loss" is `jboost.losses.logistic` for two classes and `jboost.losses.softmax` for more;
        "exponential" is for two classes. Or a function `loss(score, y) -> scalar` of one row in JAX
        operations, or a `jboost.Loss`. There y is the number of the class, from 0, and score a scalar for two
        classes, and for more a vector with an entry for each. Scores are taken as log odds, for the sigmoid
        or the softmax, unless a `Loss` has an `inverse_link` of its own.
    class_weight : dict, "balanced" or None
        Weight of each label, by which the weights of the rows of `fit` are multiplied; "balanced" gives all
        labels the same weight in all. Eval sets are weighted by `eval_sample_weight` only.

    eval_metric : str, callable, Metric or list of these, optional
        As in `JBoostRegressor`. A scorer is asked for labels, probabilities or raw scores as scikit-learn says; so is a
        function of scikit-learn's. Of any other function the second parameter tells: y_proba, y_score, else labels.

    The other parameters are those of `JBoostRegressor`. Rows are held out in the proportions of the labels, unless
    `fit` is given groups.

    Attributes
    ----------
    classes_ : array [classes]
        The labels that occur, in order. Labels may be numbers, strings or bools. With several at once, the numbers
        of the columns of y.
    multilabel_ : bool
        Whether several labels may hold at once: y was 0 and 1 in k columns. Each has a score and a probability of its
        own, as in scikit-learn's `MLPClassifier`.

    The other attributes are those of `JBoostRegressor`; for two classes `coef_` is [1 f] and `intercept_` [1], as in
    scikit-learn.

    Notes
    -----
    A single class is learned too: its probability is 1.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> y = np.where(X[:, 0] > 0.3, "high", "low")
    >>> estimator = jboost.JBoostClassifier(n_estimators=20).fit(X, y)
    >>> estimator.predict([[0.9], [-0.9]]).tolist()
    ['high', 'low']
    """

    loss: Any = field(default="log_loss", kw_only=False)
    class_weight: Any = None

    def predict(self, X: Any, n_trees: int | None = None, *, offset: Any = None) -> np.ndarray:
        """Predict the most probable label, the first of equals.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.
        n_trees : int, optional
            Use the first of the rounds only, 0 to `n_trees_`.
        offset : array-like [n] or [n k], optional
            Added to the scores, as in `fit`.

        Returns
        -------
        array [n]
            Labels, in the dtype of `classes_`. With several labels at once, integers [n k]: 1 where the label is more
            probable than not.
        """
        return self._label(self.predict_proba(X, n_trees, offset=offset))

    def predict_proba(
        self, X: Any, n_trees: int | None = None, *, offset: Any = None
    ) -> Float[np.ndarray, "n classes"]:
        """Predict the probability of each label.

        Parameters
        ----------
        X, n_trees, offset
            As in `predict`.

        Returns
        -------
        float64 [n classes]
            In the order of `classes_`. They sum to 1, unless several labels may hold at once.
        """
        return self._probability(self._raw_score(X, n_trees, offset), self.model_.inverse_link)

    def decision_function(
        self, X: Any, n_trees: int | None = None, *, offset: Any = None
    ) -> Float[np.ndarray, "n ..."]:
        """Return the raw scores, before the link.

        Parameters
        ----------
        X, n_trees, offset
            As in `predict`.

        Returns
        -------
        float64 [n] or [n classes]
            For up to two classes the score of the last, for more the score of each. Of each label where several may
            hold.
        """
        return self._decision(self._raw_score(X, n_trees, offset))

    def staged_predict(self, X: Any, *, offset: Any = None) -> Iterator[np.ndarray]:
        """Yield the most probable label after one round, two rounds, and so on.

        Parameters
        ----------
        X, offset
            As in `predict`.

        Yields
        ------
        array [n]
            Labels; the last equals `predict(X)`.
        """
        for probability in self.staged_predict_proba(X, offset=offset):
            yield self._label(probability)

    def staged_predict_proba(self, X: Any, *, offset: Any = None) -> Iterator[Float[np.ndarray, "n classes"]]:
        """Yield the probability of each label after one round, two rounds, and so on.

        Parameters
        ----------
        X, offset
            As in `predict`.

        Yields
        ------
        float64 [n classes]
            Probabilities; the last equals `predict_proba(X)`.
        """
        for score in self._staged_raw_score(X, offset):
            yield self._probability(score, self.model_.inverse_link)

    def staged_decision_function(self, X: Any, *, offset: Any = None) -> Iterator[Float[np.ndarray, "n ..."]]:
        """Yield the raw scores after one round, two rounds, and so on.

        Parameters
        ----------
        X, offset
            As in `predict`.

        Yields
        ------
        float64 [n] or [n classes]
            Scores; the last equals `decision_function(X)`.
        """
        for score in self._staged_raw_score(X, offset):
            yield self._decision(score)

    @property
    def coef_(self) -> Float[np.ndarray, "k f"]:
        """Coefficients of a linear function: one row of them for two classes, as in scikit-learn."""
        return np.asarray(self._linear("coef_").coef, np.float64)

    @property
    def intercept_(self) -> Float[np.ndarray, " k"]:
        """Score of a row of zeros."""
        return np.asarray(self._linear("intercept_").intercept, np.float64)

    def _label(self, probability: Float[np.ndarray, "n classes"]) -> np.ndarray:
        if self.multilabel_:
            return (probability > 0.5).astype(int)
        return self.classes_[probability.argmax(axis=1)]

    def _probability(
        self, score: Float[np.ndarray, "n ..."], link: Callable[..., Any]
    ) -> Float[np.ndarray, "n classes"]:
        if self.multilabel_:
            return apply_link(link, score)
        return class_probability(link, score, len(self.classes_))

    def _decision(self, score: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
        if score.ndim == 1 or len(self.classes_) > 2 or self.multilabel_:
            return score
        return score[:, 0] if score.shape[1] == 1 else score[:, 1] - score[:, 0]

    def _encode(self, y: Any, reset: bool) -> np.ndarray:
        several = is_indicator(y)
        if reset:
            self.multilabel_ = several
            y = check_indicator(y) if several else one_column(y)
            self.classes_ = np.arange(y.shape[1]) if several else labels_of(y)
        if several != self.multilabel_:
            form = f"[n {len(self.classes_)}]" if self.multilabel_ else "[n]"
            raise ValueError(f"y must have shape {form} as it had in fit, got {y.shape}")
        return check_indicator(y) if several else number_labels(one_column(y), self.classes_)

    def _adopt_labels(self, start: Start) -> bool:
        if not isinstance(start.estimator, JBoostClassifier):
            return False
        self.classes_, self.multilabel_ = start.estimator.classes_, start.estimator.multilabel_
        return True

    def _target_numbers(self, target: np.ndarray) -> Float[np.ndarray, "n k"]:
        if self.multilabel_ or len(self.classes_) <= 2:
            return np.asarray(target, np.float64).reshape(len(target), -1)
        return np.eye(len(self.classes_))[target]

    def _strata(self, target: np.ndarray) -> np.ndarray | None:
        return None if self.multilabel_ else target

    def _weight_of(self, target: np.ndarray) -> Float[np.ndarray, " n"] | float:
        if self.class_weight is None:
            return 1.0
        if self.multilabel_:
            raise ValueError(
                "class_weight must be None where several labels may hold at once; weigh the loss instead"
            )
        number = target - (len(self.classes_) == 1)
        return weights_of_classes(self.class_weight, self.classes_, number)[number]

    def _loss(self) -> Objective:
        if self.multilabel_:
            return multilabel_loss(self.loss, len(self.classes_))
        return classification_loss(self.loss, len(self.classes_))

    def _metrics(self, loss: Objective) -> list[Metric | Scored]:
        return metrics_of(self.eval_metric, loss, self.multilabel_)

    def _stage(self, score: Float[np.ndarray, "n ..."], loss: Objective) -> ClassifierStage:
        probability = self._probability(score, loss.inverse_link)
        label, decision = self._label(probability), self._decision(score)
        return ClassifierStage(self.__sklearn_tags__(), label, self.classes_, probability, decision)

    def _labels(self, target: np.ndarray) -> np.ndarray:
        if self.multilabel_:
            return target
        return self.classes_[target - (len(self.classes_) == 1)]

    def __sklearn_tags__(self) -> Tags:
        """Say what targets are taken."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
