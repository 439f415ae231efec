"""`JBoostRegressor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from jboost._objective.objective import Objective
from jboost._runtime.arguments import check_weight, on_host
from jboost.sklearn.base import Boosting
from jboost.sklearn.labels import one_column
from jboost.sklearn.names import regression_loss
from jboost.sklearn.rows import apply_link, mean_r2_of_known
from jboost.sklearn.scorers import RegressorStage


@dataclass(eq=False, repr=False, kw_only=True)
class JBoostRegressor(RegressorMixin, Boosting):
    """Gradient-boosted trees, or a linear function, for regression, with any JAX loss.

    Parameters
    ----------
    loss : str, callable, Loss, GroupLoss or BatchLoss, default "squared_error"
        "squared_error", "absolute_error", "quantile", "poisson", "gamma", "tweedie" (power 1.5), "huber" or
        "pseudo_huber" (delta is the 0.9 quantile of the residuals around their median before each round; for another,
        or a number, give `jboost.losses.huber(...)`); a function
        `loss(score, y) -> scalar` of one row in JAX operations; or a `jboost.Loss`, a `jboost.GroupLoss` (give
        `fit` the groups) or a `jboost.BatchLoss`. A name stands for the loss in `jboost.losses`.
    quantile : float, optional
        The level for `loss="quantile"`; no other loss reads it. Quantiles of separate fits may cross.
    booster : {"tree", "linear"}, default "tree"
        What is boosted. "linear" makes a linear function of the columns: see `jboost.fit_linear` for what it does with
        missing values, and for `feature_selector`, `top_k`, `learning_rate`, `reg_lambda`, `reg_alpha` and `penalties`.
        Parameters of trees must then be at their defaults, and X must hold numbers.
    feature_selector : str, default "cyclic"
    top_k : int, optional
        With ``booster="linear"``: which coefficients a round changes.
    n_estimators, max_depth, grow_policy, multi_output, min_child_samples, max_cat_to_onehot, penalties, split_hessian,
    sketch_size, sketch, post_prune, max_leaves, n_candidates, boosting_type, n_permutations
        Shapes and choices of the fit: see `jboost.Spec`.
    learning_rate, reg_lambda, reg_alpha, gamma, min_child_weight, max_delta_step
        Numbers of the fit: see `jboost.Hyper`.
    subsample, colsample_bytree, colsample_bylevel, colsample_bynode, cat_smooth
        More of them.
    sampler : str or callable, optional
        "goss", "mvs", "bootstrap", "bayesian_bootstrap", "without_replacement" or, for a classifier, "stratified", all
        in `jboost.samplers`; `subsample` is then the share of the rows that is drawn (with "goss" and
        "bayesian_bootstrap" it must be 1). Or `sampler(key, g, h, weight) -> weight`, in JAX operations: with which
        weight each row takes part in a round, given the derivatives [n k] of a unit of weight, which may be a callable
        pytree; `subsample` must then be 1.
    base_score : float or float [k], optional
        The score that a fit starts from, before the inverse link: log odds, or the logarithm of a mean. The best
        constant under the loss by default.
    max_bins : int or "exact", default 255
        The most bins of a feature, 2 to 65534, missing values apart; "exact" tries a split between any two values.
    categorical_features : list of str, list of int or mask, optional
        Features to treat as categories, beside the data frame columns of a category, enum or string dtype. A
        category that `fit` has not seen goes where missing values go.
    categorical_encoding : {"subsets", "ordered", "crossed"}, default "subsets"
        How more than `max_cat_to_onehot` categories are told apart: by subsets that each split finds, or by target
        statistics of other rows, those before a row in a random order, as CatBoost does, or those of other folds: see
        `jboost.bin_by_target`. A category that `fit` has not seen then has the prior. There is a statistic for each
        class of several, and for each column of y. They help where there are many categories with few rows each.
    categorical_prior : float, default 1
        For how many rows the prior of a target statistic, the mean target, counts.
    missing : float, default NaN
        A number in X that stands for a missing value, such as -999, beside NaN; `model_` remembers it.
    early_stopping : bool or "auto", default "auto"
        Whether to end after `n_iter_no_change` rounds without a better metric, and to keep the rounds up to
        the best one. "auto" does so if there is an `eval_set`. True holds out `validation_fraction` of the
        rows if there is none. False uses all rounds; an `eval_set` is then only scored.
    validation_fraction : float or int, default 0.1
        Share, or number, of the rows to hold out; of the groups where `fit` is given some.
    n_iter_no_change : int, default 10
        Patience of early stopping, in rounds.
    tol : float, default 0
        How much better the metric must be than at the best round before for a round to count as better.
    eval_metric : str, callable, Metric or list of these, optional
        What is computed for each eval set; of several the last is watched by early stopping, as in XGBoost. The mean
        loss by default. Each is

        - a name in `jboost.metrics` such as "mae", or what XGBoost or LightGBM call the same ("auc", "l1", "l2",
          "binary_logloss", "mlogloss", "merror"): of predictions, compiled with the fit;
        - a function `metric(score, y, weight)` of raw scores in JAX operations, less being better, or a
          `jboost.Metric`, which may say otherwise and take predictions;
        - a scorer of scikit-learn or its name, such as "neg_mean_absolute_error", or a function
          `metric(y_true, y_pred)`, such as `sklearn.metrics.mean_absolute_error`: of predictions, on the host between
          chunks of rounds, with `sample_weight=` where the rows have weights. X is not known there. More is better for
          a scorer; for a function scikit-learn knows, and of any other if its name ends in "_score".
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
    model_ : Ensemble or LinearModel
        The model, a pytree for `jboost.predict` (a LinearModel has a `predict` of its own), `jboost.save` and your own
        JAX programs.
    coef_ : float64 [f], or [k f] for k outputs
    intercept_ : float, or float64 [k]
        With ``booster="linear"``: the score is ``intercept_ + X @ coef_.T``, a missing value being the mean.
    n_trees_ : int
        Rounds in the model, all of which predictions use.
    best_iteration_ : int
        The last of them: the best round if early stopping was on, else the last; counted from 0.
    best_score_ : float or None
        The watched metric of the last eval set, or of the rows held out, after that round.
    n_iter_ : int
        Rounds run, those after the best included, and those of an `init_model`.
    history_ : History
        Training loss and watched metric after each round run.
    evals_result_ : dict
        For "validation_0" and so on, in the order of `eval_set`, a dict of the metrics' names, as they were given, and
        their values after each round in the model.
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

    loss: Any = field(default="squared_error", kw_only=False)
    quantile: float | None = None

    def predict(
        self, X: Any, n_trees: int | None = None, *, offset: Any = None
    ) -> Float[np.ndarray, "n ..."]:
        """Predict the target: the scores through the inverse link of the loss.

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
        float64 [n] or [n k]
            As many columns as the score has; the mean for losses of counts and amounts.
        """
        score = self._raw_score(X, n_trees, offset)
        return apply_link(self.model_.inverse_link, score)

    def staged_predict(self, X: Any, *, offset: Any = None) -> Iterator[Float[np.ndarray, "n ..."]]:
        """Yield the prediction after one round, two rounds, and so on.

        Parameters
        ----------
        X, offset
            As in `predict`.

        Yields
        ------
        float64 [n] or [n k]
            Predictions; the last equals `predict(X)`.
        """
        for score in self._staged_raw_score(X, offset):
            yield apply_link(self.model_.inverse_link, score)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², the coefficient of determination of the predictions, or minus the mean loss.

        The latter where R² has no meaning: for a loss of your own with another number of outputs than y has columns,
        such as a mean and a scale, and for a dict of targets. More is better in either case.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Rows with the features of `fit`.
        y : array-like [n] or [n k], or dict of arrays
            Targets. Where the loss has `allow_nan=True` they may be missing: R² of a target is then that of the rows in
            which it is known, and a target that is known in none is left out.
        sample_weight : array-like [n], optional
            Weights of the rows.

        Returns
        -------
        float
            R² is at most 1; with k targets it is the mean of theirs.

        Raises
        ------
        ValueError
            For targets that `fit` would refuse, or that are not of the shape of the predictions.
        """
        loss = self._loss()
        if isinstance(y, Mapping) or self._has_other_outputs(loss, y):
            return -self._mean_loss(loss, X, y, sample_weight)
        if not loss.allow_nan:
            return RegressorMixin.score(self, X, y, sample_weight)
        target = on_host(y, "y").astype(float)
        weight = check_weight(sample_weight, len(target), "sample_weight")
        return mean_r2_of_known(target, self.predict(X), weight)

    def _has_other_outputs(self, loss: Objective, y: Any) -> bool:
        """Say whether the loss has outputs that are no predictions of one column of y each."""
        form = np.shape(on_host(y, "y"))
        return loss.n_outputs is not None and (form[1] if len(form) == 2 else 1) != loss.n_outputs

    def _stage(self, score: Float[np.ndarray, "n ..."], loss: Objective) -> RegressorStage:
        return RegressorStage(self.__sklearn_tags__(), apply_link(loss.inverse_link, score))

    def _encode(self, y: Any, reset: bool) -> Any:
        """Take one column, as of a data frame, for a vector; several are as many outputs."""
        return y if isinstance(y, Mapping) or y.ndim != 2 or y.shape[1] != 1 else one_column(y)

    def _takes_gaps(self) -> bool:
        return self._loss().allow_nan

    def _loss(self) -> Objective:
        return regression_loss(self.loss, self.quantile)

    def __sklearn_tags__(self) -> Tags:
        """Say what targets are taken."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
