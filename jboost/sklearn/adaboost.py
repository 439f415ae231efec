"""`AdaBoostClassifier`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted

from jboost._runtime.arguments import key_of, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.containers import refuse_no_array
from jboost._runtime.library import ask_for_devices, at_most, n_threads
from jboost._spec import Hyper, Spec
from jboost.sklearn.labels import labels_of, number_labels, one_column
from jboost.sklearn.reading import Reading
from jboost.sklearn.rows import GivenRows, class_probability, draw_seed, take_binned
from jboost.textbook import adaboost


@dataclass(eq=False, repr=False, kw_only=True)
class AdaBoostClassifier(ClassifierMixin, Reading, BaseEstimator):
    """AdaBoost: trees that vote, each fitted to the rows that those before it got wrong.

    For two classes it is AdaBoost.M1, for more SAMME; see `jboost.textbook.adaboost` for the algorithm. On rows whose
    features have no more than `max_bins` values each, it finds what scikit-learn's `AdaBoostClassifier` does.

    Parameters
    ----------
    n_estimators : int, default 50
        Trees, at most: a tree without an error, or one no better than chance, ends the fit.
    max_depth : int, default 1
        Of each tree; 1 makes stumps.
    learning_rate : float, default 1
        What the say of each tree is multiplied by.
    grow_policy : {"depthwise", "symmetric"}, default "depthwise"
        One split per node, or one per level.
    min_child_samples : int, default 1
        Rows that each child of a split must hold.
    min_child_weight : float, default 0
        Weight that it must hold, in those of an average row.
    colsample_bytree, colsample_bylevel, colsample_bynode : float, default 1
        Shares of the columns drawn for each tree, level and node: see `jboost.Hyper`.
    max_cat_to_onehot : int, default 4
        See `jboost.Spec`.
    cat_smooth : float, default 10
        See `jboost.Hyper`.
    max_bins : int, default 255
        The most bins of a feature, 2 to 65534, missing values apart; or "exact", one for each value.
    categorical_features : list of str, list of int or mask, optional
        Features to treat as categories, beside the data frame columns of a category, enum or string dtype.
    missing : float, default NaN
        A number in X that stands for a missing value, such as -999, beside NaN.
    random_state : int, RandomState or None
        For the columns that are drawn.
    n_jobs : int, optional
        Threads of the C++ library; None and -1 mean all.

    Attributes
    ----------
    classes_ : array [classes]
        The labels that occur, in order. Labels may be numbers, strings or bools.
    n_classes_ : int
        Their number.
    model_ : Ensemble
        The votes of all leaves, and in `tree_weight` the say of each tree: a pytree for `jboost.predict`,
        `jboost.save` and `jboost.truncate`.
    n_trees_ : int
        Trees that have a say.
    estimator_weights_ : float64 [t]
        Their say alpha.
    estimator_errors_ : float64 [t]
        The weighted share of the training rows that each got wrong.
    feature_importances_ : float64 [f]
        Share of each feature in the impurity that a tree takes away, averaged by the say of the trees.
    n_features_in_, feature_names_in_
        Features of `fit`; the names only if X had string names.

    References
    ----------
    Hastie, Tibshirani and Friedman (2009), "The Elements of Statistical Learning", Algorithm 10.1. Zhu, Zou, Rosset and
    Hastie (2009), "Multi-class AdaBoost", Algorithm 2.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] > 0, "above", "below")
    >>> estimator = jboost.AdaBoostClassifier(n_estimators=20).fit(X, y)
    >>> estimator.predict([[1.0, 1.0], [-1.0, -1.0]]).tolist()
    ['above', 'below']
    >>> len(list(estimator.staged_score(X, y)))
    20
    """

    n_estimators: int = field(default=50, kw_only=False)
    max_depth: int = 1
    learning_rate: float = 1.0
    grow_policy: str = "depthwise"
    min_child_samples: int = Spec.min_child_samples
    min_child_weight: float = 0.0
    colsample_bytree: float = Hyper.colsample_bytree
    colsample_bylevel: float = Hyper.colsample_bylevel
    colsample_bynode: float = Hyper.colsample_bynode
    max_cat_to_onehot: int = Spec.max_cat_to_onehot
    cat_smooth: float = Hyper.cat_smooth
    max_bins: int = 255
    categorical_features: Any = None
    missing: float | None = np.nan
    random_state: Any = None
    n_jobs: int | None = None

    @moves_arrays
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Features; NaN, None and NA are missing.
        y : array-like [n]
            Labels.
        sample_weight : array-like [n], optional
            Non-negative: the weights of the first round. A row of weight 0 is left out.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For data or parameters that do not fit, and if the first tree is no better than chance.
        """
        ask_for_devices(self.n_jobs)
        spec, hyper = self._spec(), self._hyper()
        vars(self).pop(
            "model_", None
        )  # should this fit fail, none stays behind beside labels that are not its own
        given, weight, counted = self._check_rows(GivenRows("", X, y, sample_weight, None, None), reset=True)
        refuse_no_array(given, "y", "an array with one label for each row")
        labels = one_column(given)
        self.classes_ = labels_of(labels)
        self.n_classes_ = len(self.classes_)
        number = number_labels(labels, self.classes_)
        edge_weight = np.zeros(counted.size)
        edge_weight[counted] = weight
        data = take_binned(self._bin(X, edge_weight), np.flatnonzero(counted))
        key = key_of(draw_seed(self.random_state))
        with at_most(n_threads(self.n_jobs)):
            self.model_, record = adaboost(
                data,
                number,
                n_classes=max(self.n_classes_, 2),
                spec=spec,
                hyper=hyper,
                sample_weight=weight,
                key=key,
            )
        self.n_trees_ = self.model_.n_trees
        self.estimator_weights_ = np.asarray(self.model_.tree_weight, np.float64)
        self.estimator_errors_ = np.asarray(record.error, np.float64)
        return self

    def predict(self, X: Any, n_trees: int | None = None) -> np.ndarray:
        """Predict the label with most votes, the first of equals.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.
        n_trees : int, optional
            Use the first of the trees only, 0 to `n_trees_`.

        Returns
        -------
        array [n]
            Labels, in the dtype of `classes_`.
        """
        return self._label(self._raw_score(X, n_trees, None))

    def predict_proba(self, X: Any, n_trees: int | None = None) -> Float[np.ndarray, "n classes"]:
        """Predict the probability of each label: the votes are its logarithm, up to a constant.

        Parameters
        ----------
        X, n_trees
            As in `predict`.

        Returns
        -------
        float64 [n classes]
            In the order of `classes_`. scikit-learn divides the votes by the say of all trees first, which leaves their
            order as it is.
        """
        return self._probability(self._raw_score(X, n_trees, None))

    def decision_function(self, X: Any, n_trees: int | None = None) -> Float[np.ndarray, "n ..."]:
        """Return the votes, each times the say of its tree.

        Parameters
        ----------
        X, n_trees
            As in `predict`.

        Returns
        -------
        float64 [n] or [n classes]
            For up to two classes those for the last less those for the first, for more those for each.
        """
        return self._raw_score(X, n_trees, None)

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Yield the label with most votes after one tree, two trees, and so on.

        Parameters
        ----------
        X
            As in `predict`.

        Yields
        ------
        array [n]
            Labels; the last equals `predict(X)`.
        """
        return map(self._label, self._staged_raw_score(X, None))

    def staged_predict_proba(self, X: Any) -> Iterator[Float[np.ndarray, "n classes"]]:
        """Yield the probability of each label after one tree, two trees, and so on.

        Parameters
        ----------
        X
            As in `predict`.

        Yields
        ------
        float64 [n classes]
            Probabilities; the last equals `predict_proba(X)`.
        """
        return map(self._probability, self._staged_raw_score(X, None))

    def staged_decision_function(self, X: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
        """Yield the votes after one tree, two trees, and so on.

        Parameters
        ----------
        X
            As in `predict`.

        Yields
        ------
        float64 [n] or [n classes]
            Votes; the last equals `decision_function(X)`.
        """
        return self._staged_raw_score(X, None)

    def staged_score(self, X: Any, y: Any, sample_weight: Any = None) -> Iterator[float]:
        """Yield the share of rows whose label is right after one tree, two trees, and so on.

        Parameters
        ----------
        X
            As in `predict`.
        y : array-like [n]
            Labels.
        sample_weight : array-like [n], optional
            Weights of the rows.

        Yields
        ------
        float
            Accuracy; the last equals `score(X, y, sample_weight)`.
        """
        return (
            float(accuracy_score(y, label, sample_weight=sample_weight)) for label in self.staged_predict(X)
        )

    @property
    def feature_importances_(self) -> Float[np.ndarray, " f"]:
        """Share of each feature in the impurity that a tree takes away, averaged by the say of the trees."""
        check_is_fitted(self)
        trees = self.model_.trees  # a slot without a split has no gain
        gain = np.asarray(trees.gain, np.float64)
        of_tree = gain.sum(axis=1, keepdims=True)
        share = gain / np.where(of_tree > 0, of_tree, 1) * self.estimator_weights_[:, None]
        found = np.bincount(np.asarray(trees.feature).ravel(), share.ravel(), self.model_.edges.n_features)
        return found / found.sum() if found.any() else found

    def _label(self, score: Float[np.ndarray, "n ..."]) -> np.ndarray:
        if score.ndim == 2:
            return self.classes_[score.argmax(axis=1)]
        return self.classes_[(score > 0).astype(int) if self.n_classes_ > 1 else np.zeros(len(score), int)]

    def _probability(self, score: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, "n classes"]:
        return class_probability(self.model_.inverse_link, score, self.n_classes_)

    def _spec(self) -> Spec:
        whole_number(self.n_estimators, "n_estimators", 1)
        names = ("n_estimators", "max_depth", "grow_policy", "min_child_samples", "max_cat_to_onehot")
        return Spec(**{name: getattr(self, name) for name in names})

    def _hyper(self) -> Hyper:
        drawn = ("colsample_bytree", "colsample_bylevel", "colsample_bynode")
        names = ("learning_rate", "min_child_weight", "cat_smooth", *drawn)
        return Hyper(reg_lambda=0.0, **{name: getattr(self, name) for name in names})
