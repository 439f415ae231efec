"""What the estimators share: parameters, the steps of a fit, and the scores of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import jax
import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data

from jboost._bins import BinEdges, Binned, bin_features
from jboost._model.ensemble import Ensemble, predict, staged_predict, truncate
from jboost._objective.loss import Loss
from jboost._runtime.caller import moves_arrays
from jboost._runtime.library import ask_for_devices, at_most, n_threads
from jboost._spec import Hyper, Spec, check_hyper
from jboost.boosting import History, fit
from jboost.metrics import Metric
from jboost.sklearn.history import continued, cut
from jboost.sklearn.names import metric_of
from jboost.sklearn.rows import (
    Rows,
    check_domain,
    check_eval_set,
    check_fraction,
    check_weights,
    draw_seed,
    hold_out,
    metric_curve,
    take_rows,
)

_ANY_DTYPE: Any = None  # what check_array understands, whatever its annotation says


@dataclass(eq=False, repr=False, kw_only=True)
class Boosting(BaseEstimator):
    """Parameters and fit of the estimators: a dataclass, as scikit-learn reads them off a constructor."""

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

    @moves_arrays
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
    ) -> Self:
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
        ask_for_devices(self.n_jobs)
        previous = self.model_ if self.warm_start and hasattr(self, "model_") else None
        pairs = check_eval_set(eval_set, eval_sample_weight)
        stops = self._stops_early(bool(pairs))
        check_fraction(self.validation_fraction)
        spec, hyper = self._spec(previous, stops), self._hyper()
        seed = self._seed if previous is not None else draw_seed(self.random_state)
        if previous is None:  # should this fit fail, no model stays behind beside labels that are not its own
            vars(self).pop("model_", None)
        split_seed = seed if stops and not pairs else None
        train, held = self._training_rows(X, y, sample_weight, previous, split_seed)
        watched = self._eval_rows(pairs, train) if held is None else [held]
        loss = self._loss()
        metric = metric_of(self.eval_metric, loss)
        for i, rows in enumerate(watched if pairs else []):
            for check in (loss.check_target, metric.check_target):
                check_domain(check, rows.y, f"eval_set[{i}]")
        with at_most(n_threads(self.n_jobs)):
            model, history = fit(
                loss,
                train.data,
                train.y,
                spec=spec,
                hyper=hyper,
                sample_weight=train.weight,
                valid=tuple(watched[-1]) if watched else None,
                metric=metric,
                key=jax.random.key(seed),
                init_model=previous,
                verbose=None if self.verbose is None else bool(self.verbose),
            )
        if previous is not None:
            history = continued(self.history_, history, previous.n_trees)
            if stops:
                history = cut(history, self.n_iter_no_change, metric.maximize, previous.n_trees - 1)
                model = truncate(model, history.best_round + 1)
        self._seed = seed
        self._remember(model, history, metric, watched)
        return self

    # ------------------------------------------------------------ what regressors and classifiers differ in

    def _encode(self, y: np.ndarray, reset: bool) -> np.ndarray:
        """Return the targets as the loss takes them; learn from them which labels there are if reset."""
        raise NotImplementedError

    def _strata(self, target: np.ndarray) -> np.ndarray | None:
        """Return what rows held out should have in the proportions of all."""
        return None

    def _weight_of(self, target: np.ndarray) -> Float[np.ndarray, " n"] | float:
        """Return what the weight of each training row is multiplied with."""
        return 1.0

    def _loss(self) -> Loss:
        """Return the loss; the labels are known."""
        raise NotImplementedError

    # ------------------------------------------------------------ the steps of a fit

    def _stops_early(self, has_eval_set: bool) -> bool:
        if isinstance(self.early_stopping, bool | np.bool_):
            return bool(self.early_stopping)
        if not isinstance(self.early_stopping, str) or self.early_stopping != "auto":
            raise ValueError(f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}")
        return has_eval_set

    def _spec(self, previous: Ensemble | None, stops: bool) -> Spec:
        """Return the choices, with the rounds that are still to go."""
        named: dict[str, Any] = {one.name: getattr(self, one.name) for one in dataclasses.fields(Spec)}
        spec = Spec(**named)
        if not stops:
            spec = dataclasses.replace(spec, n_iter_no_change=None)
        if previous is None:
            return spec
        if spec.n_estimators < self.n_iter_:
            raise ValueError(
                f"n_estimators must be at least the {self.n_iter_} rounds run before, as warm_start is True, "
                f"got {spec.n_estimators}"
            )
        return dataclasses.replace(spec, n_estimators=spec.n_estimators - previous.n_trees)

    def _hyper(self) -> Hyper:
        return check_hyper(Hyper(**{one.name: getattr(self, one.name) for one in dataclasses.fields(Hyper)}))

    def _training_rows(
        self, X: Any, y: Any, sample_weight: Any, previous: Ensemble | None, seed: int | None
    ) -> tuple[Rows, Rows | None]:
        """Check, encode and bin the rows, and hold some out if there is a seed.

        Edges are found without the rows that are held out or have no weight, so X is read only once.
        """
        y, weight, counted = self._check_rows(X, y, sample_weight, reset=previous is None)
        target = self._encode(y, previous is None)
        weight = weight * self._weight_of(target)
        train, held = np.arange(len(y)), None
        if seed is not None:
            train, held = hold_out(len(y), self.validation_fraction, self._strata(target), seed)
        number = np.flatnonzero(counted)
        edge_weight = np.zeros(counted.size)
        edge_weight[number[train]] = weight[train]
        data = self._bin(X, edge_weight, None if previous is None else previous.edges)

        def rows(chosen: np.ndarray) -> Rows:
            return Rows(take_rows(data, number[chosen]), target[chosen], weight[chosen])

        return rows(train), None if held is None else rows(held)

    def _check_rows(
        self, X: Any, y: Any, sample_weight: Any, reset: bool
    ) -> tuple[np.ndarray, Float[np.ndarray, " m"], Bool[np.ndarray, " n"]]:
        """Return targets and weights of the m rows with weight, and which of all rows these are."""
        self._check_features(X, y, reset)
        y = check_array(y, ensure_2d=False, dtype=_ANY_DTYPE, input_name="y", estimator=self)
        check_consistent_length(X, y)
        weight = check_weights(sample_weight, y)
        counted = weight > 0
        return y[counted], weight[counted], counted

    def _check_features(self, X: Any, y: Any = "no_validation", reset: bool = False) -> None:
        """Compare names and number of the features with those of `fit`, or take them down."""
        if len(getattr(X, "shape", "nf")) == 2:  # binning says how to reshape any other
            validate_data(self, X, y, reset=reset, skip_check_array=True)

    def _bin(self, X: Any, weight: Float[np.ndarray, " n"], edges: BinEdges | None) -> Binned:
        if edges is not None:
            return bin_features(X, edges=edges)
        try:
            return bin_features(X, self.max_bins, weight, self.categorical_features)
        except (TypeError, ValueError) as error:
            message = str(error).replace("categorical: ", "categorical_features: ")
            if "`categorical`" in message:  # in words that scikit-learn's checks of an estimator look for
                message = message.replace("`categorical`", "`categorical_features`")
                message += " (float: argument must be a string or a number)"
            raise type(error)(message) from error

    def _eval_rows(self, pairs: list[tuple[Any, Any, Any]], train: Rows) -> list[Rows]:
        """Check, encode and bin the pairs (X, y) of eval_set with their weights."""
        found = []
        for i, (X, y, sample_weight) in enumerate(pairs):
            try:
                y, weight, counted = self._check_rows(X, y, sample_weight, reset=False)
                target = self._encode(y, reset=False)
                if target.shape[1:] != train.y.shape[1:]:
                    raise ValueError(f"y must have rows of shape {train.y.shape[1:]}, got {target.shape[1:]}")
                data = take_rows(bin_features(X, edges=train.data.edges), np.flatnonzero(counted))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"eval_set[{i}]: {error}") from error
            found.append(Rows(data, target, weight))
        return found

    def _remember(self, model: Ensemble, history: History, metric: Metric, watched: list[Rows]) -> None:
        """Set the fitted attributes."""
        self.model_ = model
        self.n_trees_ = model.n_trees
        self.n_iter_ = len(history.train_loss)
        self.best_iteration_ = self.n_trees_ - 1
        self.history_ = dataclasses.replace(history, best_round=self.best_iteration_)
        curves = [metric_curve(model, metric, rows) for rows in watched[:-1]]
        if watched:
            curves.append(history.valid_metric[: self.n_trees_].tolist())
        name = metric.name or "metric"
        self.evals_result_ = {f"validation_{i}": {name: curve} for i, curve in enumerate(curves)}
        self.best_score_ = curves[-1][-1] if curves and curves[-1] else None

    # ------------------------------------------------------------ the fitted model

    def _raw_score(self, X: Any) -> Float[np.ndarray, "n ..."]:
        check_is_fitted(self)
        self._check_features(X)
        with at_most(n_threads(self.n_jobs)):
            return np.asarray(predict(self.model_, X), dtype=np.float64)

    def _staged_raw_score(self, X: Any) -> Iterator[Float[np.ndarray, "n ..."]]:
        check_is_fitted(self)
        self._check_features(X)
        return (np.asarray(score, dtype=np.float64) for score in staged_predict(self.model_, X))

    @property
    def feature_importances_(self) -> Float[np.ndarray, " f"]:
        """Share of each feature in the gain of all splits; all 0 if there is no split."""
        gain = self._sum_over_splits(lambda gain: gain)
        return gain / gain.sum() if gain.any() else gain

    @property
    def split_counts_(self) -> np.ndarray:
        """How often each feature is split on."""
        return self._sum_over_splits(lambda gain: gain > 0).astype(int)

    def _sum_over_splits(self, worth: Any) -> Float[np.ndarray, " f"]:
        check_is_fitted(self)
        trees = self.model_.trees  # a slot without a split has no gain
        gain = np.asarray(trees.gain, dtype=np.float64).ravel()
        return np.bincount(np.asarray(trees.feature).ravel(), worth(gain), self.model_.edges.n_features)

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether there is a model."""
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Tags:
        """Say what input is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        return tags
