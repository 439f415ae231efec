"""What the estimators share: parameters, the steps of a fit, and scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from jboost._bins import Binned, bin_features
from jboost._ensemble import Ensemble, predict, staged_predict, truncate
from jboost._loss import Loss
from jboost._spec import Hyper, Spec
from jboost._training import History, fit
from jboost.metrics import Metric
from jboost.sklearn.history import continued, cut
from jboost.sklearn.names import metric_of
from jboost.sklearn.rows import Rows, check_weights, draw_seed, hold_out, metric_curve, take_rows


@dataclass(eq=False, repr=False, kw_only=True)
class Boosting(BaseEstimator):
    """Parameters and fit of the estimators; a dataclass only to spare the constructor that scikit-learn wants."""

    loss: Any = field(default="squared_error", kw_only=False)
    n_estimators: int = Spec.n_estimators
    max_depth: int = Spec.max_depth
    grow_policy: str = Spec.grow_policy
    multi_output: str = Spec.multi_output
    min_child_samples: int = Spec.min_child_samples
    max_cat_to_onehot: int = Spec.max_cat_to_onehot
    learning_rate: float = Hyper.learning_rate
    reg_lambda: float = Hyper.reg_lambda
    reg_alpha: float = Hyper.reg_alpha
    gamma: float = Hyper.gamma
    min_child_weight: float = Hyper.min_child_weight
    max_delta_step: float = Hyper.max_delta_step
    subsample: float = Hyper.subsample
    colsample_bytree: float = Hyper.colsample_bytree
    colsample_bylevel: float = Hyper.colsample_bylevel
    cat_smooth: float = Hyper.cat_smooth
    max_bins: int = 255
    categorical_features: Any = None
    early_stopping: bool | str = "auto"
    validation_fraction: float | int = 0.1
    n_iter_no_change: int = 10
    eval_metric: Any = None
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int | bool | None = 0

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
    ) -> Any:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Features; NaN, None and NA are missing.
        y : array-like [n], or [n k] for a regressor
            Targets or labels.
        sample_weight : array-like [n], optional
            Non-negative. A row of weight 0 is left out: nothing depends on it, not even the set of labels.
        eval_set : list of (X, y), optional
            Rows to score after each round; early stopping watches the last pair.
        eval_sample_weight : list of array-like or None, optional
            Weights for each pair of `eval_set`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For data or parameters that do not fit.
        """
        previous = self.model_ if self.warm_start and hasattr(self, "model_") else None
        stops = self._stops_early(eval_set)
        seed = draw_seed(self.random_state) if previous is None else self._seed
        n_rounds = self._rounds_to_go(previous)
        train, held = self._training_rows(X, y, sample_weight, previous, seed, stops and not eval_set)
        others = self._eval_rows(eval_set, eval_sample_weight, train.data) if held is None else [held]
        loss = self._loss()
        metric = metric_of(self.eval_metric, loss)
        model, history = fit(
            loss,
            train.data,
            train.y,
            spec=dataclasses.replace(
                self._spec(), n_estimators=n_rounds, n_iter_no_change=self.n_iter_no_change if stops else None
            ),
            hyper=Hyper(**{one.name: getattr(self, one.name) for one in dataclasses.fields(Hyper)}),
            sample_weight=train.weight,
            valid=tuple(others[-1]) if others else None,
            metric=metric,
            key=jax.random.key(seed),
            init_model=previous,
            verbose=None if self.verbose is None else bool(self.verbose),
        )
        self._seed = seed
        self._remember(previous, model, history, stops, metric, others)
        return self

    # ------------------------------------------------------------ the steps of a fit

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        """Return the targets as the loss takes them; learn from them what labels there are if reset."""
        raise NotImplementedError

    def _strata(self, target: np.ndarray) -> np.ndarray | None:
        """Return what a held-out part should have the same shares of."""
        return None

    def _weight_of(self, target: np.ndarray) -> Float[np.ndarray, " n"] | float:
        """Return what the weight of each training row is multiplied with."""
        return 1.0

    def _loss(self) -> Loss:
        """Return the loss, once the targets are known."""
        raise NotImplementedError

    def _stops_early(self, eval_set: Any) -> bool:
        if isinstance(self.early_stopping, bool | np.bool_):
            return bool(self.early_stopping)
        if not isinstance(self.early_stopping, str) or self.early_stopping != "auto":
            raise ValueError(f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}")
        return bool(eval_set)

    def _spec(self) -> Spec:
        names = [one.name for one in dataclasses.fields(Spec) if one.name != "n_iter_no_change"]
        return Spec(**{name: getattr(self, name) for name in names})

    def _rounds_to_go(self, previous: Ensemble | None) -> int:
        if previous is None:
            return self._spec().n_estimators
        if self.n_estimators < self.n_iter_:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be at least the {self.n_iter_} rounds run before "
                "when warm_start=True"
            )
        return self._spec().n_estimators - previous.n_trees

    def _training_rows(
        self, X: Any, y: Any, sample_weight: Any, previous: Ensemble | None, seed: int, holds_out: bool
    ) -> tuple[Rows, Rows | None]:
        """Check and bin the rows; find the edges without those that have no weight or are held out."""
        y, weight, counted = self._check_rows(X, y, sample_weight, reset=previous is None)
        target = self._encode(y, previous is None)
        weight = weight * self._weight_of(target)
        train, held = np.arange(len(y)), None
        if holds_out:
            train, held = hold_out(len(y), self.validation_fraction, self._strata(target), seed)
        edge_weight = np.zeros(counted.size)
        edge_weight[np.flatnonzero(counted)[train]] = weight[train]
        data = self._bin(X, edge_weight, previous)

        def rows(chosen: np.ndarray) -> Rows:
            return Rows(
                take_rows(data, np.flatnonzero(counted)[chosen]), target[chosen], weight[chosen]
            )

        return rows(train), None if held is None else rows(held)

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return targets and weights of the rows that have any, and which rows these are."""
        self._check_features(X, y, reset)
        y = check_array(y, ensure_2d=False, dtype=None, input_name="y", estimator=self)
        check_consistent_length(X, y)
        weight = check_weights(sample_weight, y)
        counted = weight > 0
        return y[counted], weight[counted], counted

    def _check_features(self, X: Any, y: Any = "no_validation", reset: bool = False) -> None:
        """Compare names and number of the features with those of `fit`, or take them."""
        if len(getattr(X, "shape", "nf")) == 2:  # what is not, is told how to be reshaped when it is binned
            validate_data(self, X, y, reset=reset, skip_check_array=True)

    def _bin(self, X: Any, weight: np.ndarray, previous: Ensemble | None) -> Binned:
        try:
            if previous is not None:
                return bin_features(X, edges=previous.edges)
            return bin_features(X, self.max_bins, weight, self.categorical_features)
        except TypeError as error:  # scikit-learn's checks look for these words
            raise TypeError(
                f"{error} (each argument must be a string in one of categorical_features, or a number)"
            ) from error

    def _eval_rows(self, eval_set: Any, eval_sample_weight: Any, data: Binned) -> list[Rows]:
        pairs, weights = _check_eval_arguments(eval_set, eval_sample_weight)
        rows = []
        for i, ((X, y), sample_weight) in enumerate(zip(pairs, weights, strict=True)):
            try:
                y, weight, counted = self._check_rows(X, y, sample_weight, reset=False)
                part = take_rows(bin_features(X, edges=data.edges), np.flatnonzero(counted))
                rows.append(Rows(part, self._encode(y, False), weight))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"eval_set[{i}]: {error}") from error
        return rows

    def _remember(
        self,
        previous: Ensemble | None,
        model: Ensemble,
        history: History,
        stops: bool,
        metric: Metric,
        others: list[Rows],
    ) -> None:
        """Set the fitted attributes."""
        if previous is not None:
            history = continued(self.history_, history, previous.n_trees)
            if stops:
                history = cut(history, self.n_iter_no_change, metric.maximize, previous.n_trees - 1)
                model = truncate(model, history.best_round + 1)
        self.model_ = model
        self.n_trees_ = model.n_trees
        self.n_iter_ = len(history.train_loss)
        self.best_iteration_ = self.n_trees_ - 1
        self.history_ = dataclasses.replace(history, best_round=self.best_iteration_)
        watched = history.valid_metric[: self.n_trees_].tolist()
        curves = [metric_curve(model, metric, rows) for rows in others[:-1]] + [watched] * bool(others)
        name = metric.name or "metric"
        self.evals_result_ = {f"validation_{i}": {name: curve} for i, curve in enumerate(curves)}
        self.best_score_ = watched[-1] if others and watched else None

    # ------------------------------------------------------------ the fitted model

    def _score(self, X: Any) -> Float[np.ndarray, "n *k"]:
        check_is_fitted(self)
        self._check_features(X)
        return np.asarray(predict(self.model_, X), dtype=np.float64)

    def _staged_score(self, X: Any) -> Iterator[Float[np.ndarray, "n *k"]]:
        check_is_fitted(self)
        self._check_features(X)
        for score in staged_predict(self.model_, X):
            yield np.asarray(score, dtype=np.float64)

    @property
    def feature_importances_(self) -> Float[np.ndarray, " f"]:
        """Share of each feature in the gain of all splits: sums to 1, or 0 without a split."""
        check_is_fitted(self)
        trees = self.model_.trees
        gain = np.asarray(trees.gain, dtype=np.float64).ravel()
        total = np.bincount(np.asarray(trees.feature).ravel(), gain, self.n_features_in_)
        return total / total.sum() if total.any() else total

    @property
    def split_counts_(self) -> np.ndarray:
        """How often each feature is split on."""
        check_is_fitted(self)
        trees = self.model_.trees
        used = np.asarray(trees.gain).ravel() > 0
        return np.bincount(np.asarray(trees.feature).ravel(), used, self.n_features_in_).astype(int)

    def __sklearn_tags__(self) -> Tags:
        """Say what input is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        return tags


def _check_eval_arguments(eval_set: Any, eval_sample_weight: Any) -> tuple[list[Any], list[Any]]:
    """Return pairs (X, y) and as many weights."""
    if eval_set is None:
        eval_set = []
    elif isinstance(eval_set, tuple) and len(eval_set) == 2 and not isinstance(eval_set[0], tuple):
        eval_set = [eval_set]
    pairs = list(eval_set)
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        raise ValueError("eval_set must be a list of pairs (X, y)")
    if eval_sample_weight is None:
        return pairs, [None] * len(pairs)
    weights = list(eval_sample_weight)
    if len(weights) != len(pairs):
        raise ValueError(
            f"eval_sample_weight must have an array, or None, for each of the {len(pairs)} pairs of eval_set, "
            f"got {len(weights)}"
        )
    return pairs, weights
