"""What the estimators share: the steps of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from jboost._bins import BinEdges, bin_features, read_matrix
from jboost._bins.arguments import check_missing
from jboost._model.ensemble import truncate
from jboost._model.linear import LinearModel
from jboost._objective.batch import BatchLoss
from jboost._objective.group import GroupLoss
from jboost._objective.objective import Objective
from jboost._objective.rows import take_rows
from jboost._runtime.arguments import key_of, restated
from jboost._runtime.caller import moves_arrays
from jboost._runtime.library import ask_for_devices, at_most, n_threads
from jboost.boosting import History, fit
from jboost.boosting.callbacks import check_callbacks
from jboost.boosting.preparing import Handed
from jboost.metrics import Metric
from jboost.sklearn.boosters import check_booster, check_for_linear
from jboost.sklearn.history import continued, cut
from jboost.sklearn.models import Model, n_rounds_of
from jboost.sklearn.names import metrics_of
from jboost.sklearn.parameters import Parameters
from jboost.sklearn.reading import ByTarget, Reading
from jboost.sklearn.rows import (
    BinnedRows,
    GivenRows,
    by_feature,
    check_alike,
    check_beside,
    check_domain,
    check_fraction,
    draw_seed,
    hold_out,
    take_data,
)
from jboost.sklearn.samplers import sampler_of
from jboost.sklearn.scorers import RegressorStage, Scored
from jboost.sklearn.starting import (
    Start,
    check_same_encoding,
    check_same_statistics,
    own_start,
    rounds_to_go,
    start_from,
)
from jboost.sklearn.watched import check_eval_set, mean_loss_of, mean_loss_on, metric_curves


@dataclass(eq=False, repr=False, kw_only=True)
class Boosting(Reading, Parameters):
    """Fit of the estimators."""

    @moves_arrays
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_sample_weight: Any = None,
        *,
        offset: Any = None,
        groups: Any = None,
        eval_offset: Any = None,
        eval_groups: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        offset_val: Any = None,
        groups_val: Any = None,
        feature_weights: Any = None,
        init_model: Any = None,
        callbacks: Any = None,
    ) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame [n f]
            Features; NaN, None and NA are missing.
        y : array-like [n] or [n k]
            Targets or labels. A classifier takes k columns of 0 and 1 for k labels, any of which may hold; a regressor
            takes also a dict of arrays, for a loss of your own, and NaN, None and NA where that has `allow_nan=True`.
        sample_weight : array-like [n], optional
            Non-negative. A row of weight 0 is left out: nothing depends on it, not even the set of labels.
        eval_set : list of (X, y), optional
            Rows to score after each round; early stopping watches the last pair, by the last metric.
        eval_sample_weight : list of array-like or None, optional
            Weights for each pair of `eval_set`.
        offset : array-like [n] or [n k], optional
            Added to the score of each row before the first tree, such as the logarithm of an exposure. It is no part
            of the model: give `predict` its own; `score` takes none.
        groups : array-like [n], optional
            The group of each row, a number or a string, for a `jboost.GroupLoss`. With any loss, `subsample` draws
            whole groups, and early stopping holds out whole groups.
        eval_offset, eval_groups : list of array-like or None, optional
            The same for each pair of `eval_set`.
        X_val, y_val, sample_weight_val, offset_val, groups_val : like X, y and so on, optional
            One pair of an `eval_set`, in arguments of their own that a scikit-learn pipeline can transform.
        feature_weights : array-like [f], optional
            How likely each column is drawn next where `colsample_bytree` or `colsample_bylevel` is below 1; one of
            weight 0 is never used.
        init_model : Ensemble, fitted estimator, str or path, optional
            A model, or its file, to which `n_estimators` rounds are added. It settles bins, base score and, being a
            classifier, labels; depth, growth policy and outputs must be the same. `history_` holds NaN for its rounds.
        callbacks : list of functions, optional
            Each is called with a `jboost.Progress` about twice a second, and ends the fit by returning True: see
            `jboost.fit`.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For data or parameters that do not fit.
        """
        check_booster(self)
        if self.booster == "linear":
            check_for_linear(
                init_model=init_model,
                callbacks=check_callbacks(callbacks) or None,
                feature_weights=feature_weights,
            )
        ask_for_devices(self.n_jobs)
        start, is_warm = self._start(init_model)
        val = GivenRows("X_val, y_val", X_val, y_val, sample_weight_val, offset_val, groups_val)
        eval_beside = {"eval_offset": eval_offset, "eval_groups": eval_groups}
        sets = check_eval_set(eval_set, {"eval_sample_weight": eval_sample_weight} | eval_beside, val)
        stops = self._stops_early(bool(sets))
        check_fraction(self.validation_fraction)
        spec, hyper = self._spec(stops), self._hyper()
        if is_warm:
            spec = rounds_to_go(spec, self.model_, self.n_iter_)
        self._encodes_by_target()
        seed = self._seed if is_warm else draw_seed(self.random_state)
        if not is_warm:  # should this fit fail, no model stays behind beside labels that are not its own
            vars(self).pop("model_", None)
        given = GivenRows("", X, y, sample_weight, offset, groups)
        train, held = self._training_rows(given, start, is_warm, seed, holds_out=stops and not sets)
        watched = self._eval_rows(sets, train) if held is None else [held]
        loss = self._loss()
        metrics = self._metrics(loss)
        names = [one.name for one in sets] or ["the rows held out"]
        for name, rows in zip(names, watched, strict=False):
            check_domain(loss.check_target, rows.y, name)
            for metric in metrics:
                if isinstance(metric, Metric):
                    check = metric.of_scores(n_outputs=loss.n_outputs).check_target
                    check_domain(check, rows.y, f"{name}, for eval_metric {metric.name}")
        measured = [self._measured(metrics, loss, rows) for rows in watched]
        metric = None if self._watches_loss(loss) or not watched else measured[-1][-1]
        if self.booster == "linear":
            model, history = self._fit_linear(loss, train, watched, metric, spec.n_iter_no_change, seed)
            self._remember(model, history)
            self._remember_metrics(measured, watched)
            return self
        data, target, weight, offset, groups = train
        sampler = sampler_of(self.sampler, self.subsample, self._strata(target))
        of_columns = by_feature(feature_weights, data.edges.features)
        handed = Handed(data)
        del train, data  # the fit alone has them
        with at_most(n_threads(self.n_jobs)):
            model, history = fit(
                loss,
                handed,
                target,
                spec=spec,
                hyper=hyper,
                sample_weight=weight,
                valid=tuple(watched[-1]) if watched else None,
                metric=metric,
                key=key_of(seed),
                init_model=None if start is None else start.model,
                offset=offset,
                groups=groups,
                sampler=sampler,
                base_score=None if is_warm else self.base_score,
                feature_weights=of_columns,
                callbacks=callbacks,
                verbose=None if self.verbose is None else bool(self.verbose),
            )
        if start is not None:
            before = start.model.n_trees
            history = continued(start.history, history, before)
            if stops:
                best = before - 1
                maximize = measured[-1][-1].maximize
                history = cut(history, self.n_iter_no_change, hyper.tol, maximize, best)
                model = truncate(model, history.best_round + 1)
        self._seed = seed
        self._remember(model, history)
        self._remember_metrics(measured, watched)
        return self

    @property
    def coef_(self) -> Float[np.ndarray, "*k f"]:
        """Coefficients of a linear function, of each output where there are several."""
        model = self._linear("coef_")
        coef = np.asarray(model.coef, np.float64)
        return coef[0] if model.scalar_output else coef

    @property
    def intercept_(self) -> Any:
        """Score of a row of zeros: a float, or float64 [k] where there are several outputs."""
        model = self._linear("intercept_")
        intercept = np.asarray(model.intercept, np.float64)
        return float(intercept[0]) if model.scalar_output else intercept

    # ------------------------------------------------------------ what regressors and classifiers differ in

    def _encode(self, y: Any, reset: bool) -> Any:
        """Return the targets as the loss takes them; learn from them which labels there are if reset."""
        raise NotImplementedError

    def _adopt_labels(self, start: Start) -> bool:
        """Take the labels of a model that is continued, if it has any, and say so."""
        return False

    def _target_numbers(self, target: Any) -> Float[np.ndarray, "n k"]:
        """Return what the statistics of categories are means of."""
        got = f"got {self.categorical_encoding!r}"
        if isinstance(target, Mapping):
            raise ValueError(f"categorical_encoding must be 'subsets' where y is a dict, {got}")
        numbers = np.asarray(target, np.float64).reshape(len(target), -1)
        if np.isnan(numbers).any():
            raise ValueError(f"categorical_encoding must be 'subsets' where targets are missing, {got}")
        return numbers

    def _strata(self, target: Any) -> np.ndarray | None:
        """Return what rows held out should have in the proportions of all."""
        return None

    def _weight_of(self, target: Any) -> Float[np.ndarray, " n"] | float:
        """Return what the weight of each training row is multiplied with."""
        return 1.0

    def _loss(self) -> Objective:
        """Return the loss; the labels are known."""
        raise NotImplementedError

    def _metrics(self, loss: Objective) -> list[Metric | Scored]:
        """Return what is computed for each eval set, the watched one last; the labels are known."""
        return metrics_of(self.eval_metric, loss)

    def _stage(self, score: Float[np.ndarray, "n ..."], loss: Objective) -> RegressorStage:
        """Return what a scorer asks for the predictions that belong to raw scores."""
        raise NotImplementedError

    def _labels(self, target: Any) -> Any:
        """Return targets as they were given."""
        return target

    # ------------------------------------------------------------ what several of them do

    def _mean_loss(self, loss: Objective, X: Any, y: Any, sample_weight: Any) -> float:
        if isinstance(loss, GroupLoss):
            raise ValueError(
                "y must have the shape of the predictions: score is given no groups for the loss"
            )
        score = self._raw_score(X, None, None)
        target, weight, counted = self._check_rows(
            GivenRows("", X, y, sample_weight, None, None), reset=False
        )
        target = self._encode(target, reset=False)
        check_domain(loss.check_target, target, "y")
        return mean_loss_of(loss, score[counted], target, weight)

    # ------------------------------------------------------------ the steps of a fit

    def _start(self, init_model: Any) -> tuple[Start | None, bool]:
        """Return what the fit goes on from, and whether that is the estimator's own model."""
        is_warm = bool(self.warm_start) and hasattr(self, "model_")
        if init_model is None:
            return (own_start(self), True) if is_warm else (None, False)
        if is_warm:
            raise ValueError(
                "init_model must be None where warm_start=True goes on from the estimator's own model"
            )
        return start_from(init_model), False

    def _training_rows(
        self, given: GivenRows, start: Start | None, is_warm: bool, seed: int, holds_out: bool
    ) -> tuple[BinnedRows, BinnedRows | None]:
        """Check, encode and bin the rows, and hold some out if that is asked for.

        Edges are found without the rows that are held out or have no weight, so X is read only once.
        """
        y, weight, counted = self._check_rows(given, reset=not is_warm)
        has_labels = is_warm or (start is not None and self._adopt_labels(start))
        target = self._encode(y, reset=not has_labels)
        weight = weight * self._weight_of(target)
        offset, groups = check_beside(given, self._loss(), target, counted)
        train, held = np.arange(len(weight)), None
        if holds_out:
            train, held = hold_out(len(weight), self.validation_fraction, self._strata(target), groups, seed)
        number = np.flatnonzero(counted)
        edge_weight = np.zeros(counted.size)
        edge_weight[number[train]] = weight[train]
        if is_warm:
            check_same_encoding(self._encodes_by_target(), self.model_.edges.features)
        # A warm start goes on with the same rows, whose statistics are made once more.
        if self._encodes_by_target() and (start is None or is_warm):
            of_target = self._target_numbers(target)
            numbers = np.zeros((counted.size, of_target.shape[1]))
            numbers[number] = of_target
            choices = self.categorical_prior, self.max_cat_to_onehot, seed, self.categorical_encoding
            by_target = ByTarget(numbers, *choices)
            data = self._bin(given.X, edge_weight, None, by_target)
            if is_warm:
                check_same_statistics(data.edges, self.model_.edges)
        else:
            data = self._read(given.X, edge_weight, None if start is None else start.model.edges)

        def rows(chosen: np.ndarray) -> BinnedRows:
            beside = (None if one is None else one[chosen] for one in (offset, groups))
            return BinnedRows(
                take_data(data, number[chosen]), take_rows(target, chosen), weight[chosen], *beside
            )

        return rows(train), None if held is None else rows(held)

    def _eval_rows(self, sets: list[GivenRows], train: BinnedRows) -> list[BinnedRows]:
        """Check, encode and bin the rows to watch."""
        found = []
        for one in sets:
            try:
                y, weight, counted = self._check_rows(one, reset=False)
                target = self._encode(y, reset=False)
                check_alike(target, train.y)
                beside = check_beside(one, self._loss(), target, counted)
                data = take_data(self._read_alike(one.X, train.data), np.flatnonzero(counted))
            except (TypeError, ValueError) as error:
                raise restated(error, f"{one.name}: {error}") from error
            found.append(BinnedRows(data, target, weight, *beside))
        return found

    def _read(self, X: Any, weight: Float[np.ndarray, " n"], edges: BinEdges | None) -> Any:
        """Bin features, or read their numbers for a linear function."""
        return self._bin(X, weight, edges) if self.booster == "tree" else self._numbers(X)

    def _read_alike(self, X: Any, train: Any) -> Any:
        """Read features of rows to watch as those of the training rows were read."""
        return bin_features(X, edges=train.edges) if self.booster == "tree" else self._numbers(X)

    def _numbers(self, X: Any) -> Float[np.ndarray, "n f"]:
        try:
            return np.asarray(read_matrix(X, check_missing(self.missing)))
        except TypeError as error:  # in words that scikit-learn's checks of an estimator look for
            raise TypeError(f"{error} (float: argument must be a string or a number)") from error

    def _fit_linear(
        self,
        loss: Objective,
        train: BinnedRows,
        watched: list[BinnedRows],
        metric: Metric | None,
        patience: int | None,
        seed: int,
    ) -> tuple[LinearModel, History]:
        """Fit a linear function; its rows have been read, so that no number stands for a missing value in them."""
        from jboost.linear import fit_linear  # a first fit of trees does not wait for it

        selector: Any = self.feature_selector
        penalties: Any = self.penalties
        model, history = fit_linear(
            loss,
            train.data,
            train.y,
            n_estimators=self.n_estimators,
            feature_selector=selector,
            top_k=self.top_k,
            learning_rate=self.learning_rate,
            reg_lambda=self.reg_lambda,
            reg_alpha=self.reg_alpha,
            penalties=penalties,
            sample_weight=train.weight,
            valid=tuple(watched[-1]) if watched else None,
            metric=metric,
            n_iter_no_change=patience,
            tol=self.tol,
            offset=train.offset,
            groups=train.groups,
            base_score=self.base_score,
            key=key_of(seed),
        )
        given = getattr(self, "feature_names_in_", None)
        names = None if given is None else tuple(given)
        return dataclasses.replace(model, missing=check_missing(self.missing), names=names), history

    def _remember(self, model: Model, history: History) -> None:
        """Set the fitted attributes."""
        self.model_ = model
        self.n_trees_ = n_rounds_of(model)
        self.n_iter_ = len(history.train_loss)
        self.best_iteration_ = self.n_trees_ - 1
        self.history_ = dataclasses.replace(history, best_round=self.best_iteration_)

    def _watches_loss(self, loss: Objective) -> bool:
        """Say whether a loss is watched that is no metric of scores, targets and weights: it may need the groups."""
        return self.eval_metric is None and isinstance(loss, GroupLoss | BatchLoss)

    def _measured(
        self, metrics: Sequence[Metric | Scored], loss: Objective, rows: BinnedRows
    ) -> list[Metric]:
        """Return the metrics as functions of the raw scores of these rows."""
        if self._watches_loss(loss):
            return [mean_loss_on(loss, rows)]
        return [
            metric.of_rows(lambda score: self._stage(score, loss), self._labels(rows.y), rows.weight)
            if isinstance(metric, Scored)
            else metric.of_scores(loss.inverse_link, loss.n_outputs)
            for metric in metrics
        ]

    def _remember_metrics(self, measured: list[list[Metric]], watched: list[BinnedRows]) -> None:
        """Set the fitted attributes of what was watched, each by the metrics of its rows."""
        last = self.history_.valid_metric[: self.n_trees_]
        is_known = not np.isnan(last).any()  # the history does not know the rounds of a model that was given
        curves = []
        for i, (metrics, rows) in enumerate(zip(measured, watched, strict=True)):
            has_last = is_known and i == len(watched) - 1
            found = metric_curves(self.model_, metrics[:-1] if has_last else metrics, rows)
            curves.append(found + [last.tolist()] * has_last)
        self.evals_result_ = {
            f"validation_{i}": dict(
                zip([metric.name or "metric" for metric in metrics], of_rows, strict=True)
            )
            for i, (metrics, of_rows) in enumerate(zip(measured, curves, strict=True))
        }
        self.best_score_ = curves[-1][-1][-1] if curves and curves[-1][-1] else None
