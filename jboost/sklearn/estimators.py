"""`JBoostRegressor` and `JBoostClassifier`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import Tags, column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets

from jboost._objective.loss import Loss
from jboost.sklearn.base import Boosting
from jboost.sklearn.names import classification_loss, regression_loss
from jboost.sklearn.rows import apply_link


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostRegressor(RegressorMixin, Boosting):
    """Gradient-boosted trees for regression, with any JAX loss.

    Parameters
    ----------
    loss : str, callable or Loss, default "squared_error"
        "squared_error", "absolute_error", "quantile", "poisson", "gamma", "tweedie" (power 1.5), "huber" or
        "pseudo_huber" (delta 1 in units of y: scale y, or give `jboost.losses.huber(delta)`); a function
        `loss(score, y) -> scalar` of one row in JAX operations; or a `jboost.Loss`. A name stands for
        the loss in `jboost.losses`.
    quantile : float, optional
        The level for `loss="quantile"`; no other loss reads it. Quantiles of separate fits may cross.
    n_estimators, max_depth, grow_policy, multi_output, min_child_samples, max_cat_to_onehot
        Shapes and choices of the fit: see `jboost.Spec`.
    learning_rate, reg_lambda, reg_alpha, gamma, min_child_weight, max_delta_step
        Numbers of the fit: see `jboost.Hyper`.
    subsample, colsample_bytree, colsample_bylevel, cat_smooth
        More of them.
    max_bins : int, default 255
        The most bins of a feature, 2 to 65534, missing values apart.
    categorical_features : list of str, list of int or mask, optional
        Features to treat as categories, beside the data frame columns of a category, enum or string dtype. A
        category that `fit` has not seen goes where missing values go.
    early_stopping : bool or "auto", default "auto"
        Whether to end after `n_iter_no_change` rounds without a better metric, and to keep the rounds up to
        the best one. "auto" does so if there is an `eval_set`. True holds out `validation_fraction` of the
        rows if there is none. False uses all rounds; an `eval_set` is then only scored.
    validation_fraction : float or int, default 0.1
        Share, or number, of the rows to hold out.
    n_iter_no_change : int, default 10
        Patience of early stopping, in rounds.
    eval_metric : str, callable or Metric, optional
        What is computed for each eval set and watched: a name in `jboost.metrics` such as "mae", a function
        `metric(score, y, weight)` of raw scores, less being better, or a `jboost.Metric`. The mean loss by
        default.
    warm_start : bool, default False
        Whether `fit` goes on where it ended, up to `n_estimators` rounds in all. With the same data and other
        parameters, that equals one longer fit, early stopping included; bins are those of the first fit.
    random_state : int, RandomState or None
        For sampling and for holding out rows. An int gives the same model each time.
    n_jobs : int, optional
        Threads of the C++ library; None and -1 mean all that the processor, its affinity and the quota of a container
        allow, -2 all but one. What XLA does itself has threads of its own. Where the library was not built, a number
        asks JAX for as many CPU devices, among which rows are divided, unless JAX has been used before.
    verbose : int, bool or None, default 0
        Whether to show a progress bar; None shows one on a terminal if the fit takes more than two seconds.

    Attributes
    ----------
    model_ : Ensemble
        The model, a pytree for `jboost.predict`, `jboost.save` and your own JAX programs.
    n_trees_ : int
        Rounds in the model, all of which predictions use.
    best_iteration_ : int
        The last of them: the best round if early stopping was on, else the last; counted from 0.
    best_score_ : float or None
        The metric of the last eval set, or of the rows held out, after that round.
    n_iter_ : int
        Rounds run, those after the best included.
    history_ : History
        Training loss and watched metric after each round run.
    evals_result_ : dict
        For "validation_0" and so on, in the order of `eval_set`, a dict of the metric's name and its values
        after each round in the model.
    feature_importances_ : float [f]
        Share of each feature in the gain of all splits.
    split_counts_ : int [f]
        How often each feature is split on.
    n_features_in_, feature_names_in_
        Features of `fit`; the names only if X had string names. X must have the same in every call.

    Notes
    -----
    `pickle` stores a loss by name, like any function: it refuses a lambda or a nested function, which
    cloudpickle takes. `jboost.save(estimator.model_, path)` keeps all that predictions need, and no loss.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 64)[:, None]
    >>> estimator = jboost.JBoostRegressor(n_estimators=50).fit(X, X[:, 0] ** 2)
    >>> estimator.predict(X).shape
    (64,)
    >>> import jax.numpy as jnp
    >>> def log_cosh(score, y):
    ...     return jnp.logaddexp(score - y, y - score) - jnp.log(2.0)
    >>> jboost.JBoostRegressor(log_cosh, n_estimators=50).fit(X, X[:, 0] ** 2).score(X, X[:, 0] ** 2) > 0.9
    True
    """

    quantile: float | None = None

    def predict(self, X: Any) -> Float[np.ndarray, "n ..."]:
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
        score = self._raw_score(X)
        return apply_link(self.model_.inverse_link, score)

    def staged_predict(self, X: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
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
        for score in self._staged_raw_score(X):
            yield apply_link(self.model_.inverse_link, score)

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        """Take one column, as of a data frame, for a vector; several are as many outputs."""
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

    def _loss(self) -> Loss:
        return regression_loss(self.loss, self.quantile)

    def __sklearn_tags__(self) -> Tags:
        """Say what targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostClassifier(ClassifierMixin, Boosting):
    """Gradient-boosted trees for classification, with any JAX loss.

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

    The other parameters are those of `JBoostRegressor`. Rows are held out in the proportions of the labels.

    Attributes
    ----------
    classes_ : array [classes]
        The labels that occur, in order. Labels may be numbers, strings or bools.

    The other attributes are those of `JBoostRegressor`.

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
        return self._probability(self._raw_score(X))

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
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
        return self._decision(self._raw_score(X))

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
        for score in self._staged_raw_score(X):
            yield self._probability(score)

    def staged_decision_function(self, X: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
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
        for score in self._staged_raw_score(X):
            yield self._decision(score)

    def _label(self, probability: Float[np.ndarray, "n classes"]) -> np.ndarray:
        return self.classes_[probability.argmax(axis=1)]

    def _probability(self, score: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n classes"]:
        if len(self.classes_) == 1:
            return np.ones((len(score), 1))
        linked = apply_link(self.model_.inverse_link, score)
        linked = linked[:, None] if linked.ndim == 1 else linked
        return linked if linked.shape[1] > 1 else np.hstack([1 - linked, linked])

    def _decision(self, score: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n ..."]:
        if score.ndim == 1 or len(self.classes_) > 2:
            return score
        return score[:, 0] if score.shape[1] == 1 else score[:, 1] - score[:, 0]

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        """Number the labels; the only one of a single class is 1, so that its score is the positive one."""
        y = column_or_1d(y, warn=True)
        if reset:
            if y.dtype == object and any(label is None for label in y):
                raise ValueError("y must have a label in every row, got None")
            check_classification_targets(y)
        labels, place = np.unique(y, return_inverse=True)
        if reset:
            self.classes_ = labels
        number = {label: i for i, label in enumerate(self.classes_.tolist(), len(self.classes_) == 1)}
        unseen = [label for label in labels.tolist() if label not in number]
        if unseen:
            raise ValueError(f"y has labels that fit has not seen: {unseen[:5]}")
        return np.array([number[label] for label in labels.tolist()])[place]

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
