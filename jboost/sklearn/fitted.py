"""What the estimators tell of their model: scores, leaves, importances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from sklearn.utils.validation import check_is_fitted, validate_data

from jboost._model.ensemble import Ensemble
from jboost._model.leaves import leaf_numbers
from jboost._model.linear import LinearModel
from jboost._runtime.containers import refuse_no_array
from jboost._runtime.library import at_most, n_threads
from jboost.sklearn.models import first_rounds, scores, staged_scores


class Fitted:
    """The part of an estimator that reads `model_`."""

    model_: Any  # an Ensemble, or a LinearModel
    n_jobs: int | None

    def apply(self, X: Any) -> Int[np.ndarray, "n t ..."]:
        """Number the leaf in which each row ends, in each round.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.

        Returns
        -------
        int32 [n t], or [n t k] where each of k outputs has trees of its own
            From 0 to 2**max_depth - 1: places in the second axis of `model_.leaf_value`.
        """
        check_is_fitted(self)
        self._check_features(X)
        return leaf_numbers(self._trees("apply"), X)

    @property
    def feature_importances_(self) -> Float[np.ndarray, " f"]:
        """Share of each feature in the gain of all splits; all 0 if there is no split."""
        gain = self._sum_over_splits("feature_importances_", lambda gain: gain)
        return gain / gain.sum() if gain.any() else gain

    @property
    def split_counts_(self) -> np.ndarray:
        """How often each feature is split on."""
        return self._sum_over_splits("split_counts_", lambda gain: gain > 0).astype(int)

    def _check_features(self, X: Any, y: Any = "no_validation", reset: bool = False) -> None:
        """Compare names and number of the features with those of `fit`, or take them down."""
        refuse_no_array(X, "X", "an array or an eager data frame [n_rows, n_features]")
        if len(getattr(X, "shape", "nf")) == 2:  # binning says how to reshape any other
            validate_data(self, X, y, reset=reset, skip_check_array=True)

    def _raw_score(self, X: Any, n_trees: int | None, offset: Any) -> Float[np.ndarray, "n ..."]:
        check_is_fitted(self)
        self._check_features(X)
        model = self.model_ if n_trees is None else first_rounds(self.model_, n_trees)
        with at_most(n_threads(self.n_jobs)):
            return np.asarray(scores(model, X, offset), dtype=np.float64)

    def _staged_raw_score(self, X: Any, offset: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
        check_is_fitted(self)
        self._check_features(X)
        every = staged_scores(self.model_, X, offset)
        return (np.asarray(score, dtype=np.float64) for score in every)

    def _trees(self, name: str) -> Ensemble:
        """Return the model; say that the attribute of this name is one of trees where it is linear."""
        check_is_fitted(self)
        if isinstance(self.model_, LinearModel):
            raise AttributeError(
                f"{name} tells of trees, of which booster='linear' has none; coef_ tells of columns"
            )
        return self.model_

    def _linear(self, name: str) -> LinearModel:
        """Return the model; say that the attribute of this name is one of a linear function where it is none."""
        check_is_fitted(self)
        if not isinstance(self.model_, LinearModel):
            raise AttributeError(f"{name} tells of a linear function: booster='linear' makes one")
        return self.model_

    def _sum_over_splits(self, name: str, worth: Any) -> Float[np.ndarray, " f"]:
        model = self._trees(name)
        trees, features = model.trees, model.edges.features  # a slot without a split has no gain
        gain = np.asarray(trees.gain, dtype=np.float64).ravel()
        column = np.array(features.columns)[np.asarray(trees.feature).ravel()]
        return np.bincount(column, worth(gain), features.n_columns)

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether there is a model."""
        return hasattr(self, "model_")
