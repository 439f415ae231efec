"""`JBoostSearchCV`: a search over the numbers of an estimator, all folds and settings in one compiled program."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import numpy as np
from jaxtyping import Bool, Float
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from jboost._objective.group import GroupLoss
from jboost._objective.rows import take_rows
from jboost._runtime.arguments import check_weight, key_of, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.library import at_most, n_threads
from jboost._spec import Hyper, Spec
from jboost.sklearn.base import Boosting
from jboost.sklearn.boosters import check_booster
from jboost.sklearn.judging import ALONE, Judge, decisive, judged, scorers_of, table_of
from jboost.sklearn.rows import BinnedRows, GivenRows, draw_seed
from jboost.sklearn.samplers import sampler_of
from jboost.tuning.averaging import averaged, chosen_greedily
from jboost.tuning.batches import Done
from jboost.tuning.folds import check_whole_groups
from jboost.tuning.sweeping import MEMORY, Members, Plan, members_of, run_members

NUMBERS = [one.name for one in dataclasses.fields(Hyper) if one.name != "tol"]
CHOICES = [one.name for one in dataclasses.fields(Spec) if one.name != "n_iter_no_change"]
MOST_IN_ENSEMBLE = 25  # settings among which the members of one are chosen


class Held(NamedTuple):
    """The scores that each setting gives to the rows held out, by fold, and what is known of these rows."""

    scores: list[list[np.ndarray]]
    rows: list[np.ndarray]
    seconds: Float[np.ndarray, "s c"]  # of each fit: its part of those of a program
    trained: tuple[list[list[np.ndarray]], list[np.ndarray]] | None = None  # the same of the rows trained on


def _refits(search: JBoostSearchCV) -> bool:
    return bool(search.refit)


def _has(name: str) -> Any:
    """Say whether the estimator can do so, as scikit-learn asks of a method."""
    return available_if(lambda search: _refits(search) and hasattr(search.estimator, name))


class JBoostSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Choose the numbers of a jboost estimator by cross-validation.

    The rows are checked, encoded and binned once. All settings that differ in numbers, on all folds, are one compiled
    program, and those that differ in choices, such as `max_depth`, are one for each choice. A setting scores as the
    estimator with these parameters does after `n_estimators` rounds on the rows of a fold, but that the edges of the
    bins are those of all rows, and that `subsample` draws other rows.

    Parameters
    ----------
    estimator : JBoostClassifier or JBoostRegressor
        Whose other parameters stay as they are.
    param_distributions : dict or list of dicts, optional
        Lists to draw from, or distributions with a method `rvs`: `n_iter` settings are drawn.
    param_grid : dict or list of dicts, optional
        Lists, of which every combination is a setting; instead of `param_distributions`. Parameters may be numbers (see
        `jboost.Hyper`) and choices (see `jboost.Spec`).
    n_iter : int, default 10
        Settings to draw.
    scoring : str, callable, list, dict or None, default None
        A scorer of scikit-learn, its name, or `scorer(estimator, X, y)`, where X is None and the estimator knows its
        predictions of the rows held out; `estimator.score` by default. Several: a list of names, a dict of scorers, or
        a function that returns a dict of numbers.
    cv : int, splitter or iterable of (train, test), optional
        As in scikit-learn's searches; 5 folds by default, stratified for a classifier.
    refit : bool, str or callable, default True
        Whether to fit the best setting on all rows. With several scorers the name of the one that says which is best;
        or a function of `cv_results_` that returns its index.
    ensemble : int, default 1
        Above 1, `best_estimator_` is a weighted mean of models of up to so many settings, as one model: they are added
        one by one, each the one with which the mean of the scores of the rows held out scores best.
    error_score : "raise" or float, default "raise"
        What a score is where its scorer fails; a warning says so.
    return_train_score : bool, default False
        Whether `cv_results_` tells of the rows trained on too.
    random_state : int, RandomState or None, default None
        For the settings that are drawn.
    memory : int, default 2**30
        Bytes that fits may take at a time, about.
    verbose : int, bool or None, default 0
        Whether to show progress; None shows it on a terminal after two seconds.

    Attributes
    ----------
    cv_results_ : dict
        As scikit-learn's. The time of a program is divided evenly among its fits, so that `std_fit_time` is 0.
    best_index_, best_params_, best_score_
        Of the setting with the best mean score, as `refit` says; a function chooses without `best_score_`.
    best_estimator_ : estimator
        Fitted on all rows. With `ensemble` its `model_` holds the trees of several settings.
    ensemble_weights_ : float [s]
        The part of each setting in it.
    n_splits_, scorer_, multimetric_, refit_time_
        As scikit-learn's.

    References
    ----------
    Caruana et al. (2004), "Ensemble Selection from Libraries of Models".

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from jboost import JBoostClassifier, JBoostSearchCV
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> search = JBoostSearchCV(JBoostClassifier(n_estimators=20), param_grid={"learning_rate": [0.01, 0.3]}, cv=3)
    >>> search.fit(X, y).best_params_
    {'learning_rate': 0.3}
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any = None,
        *,
        param_grid: Any = None,
        n_iter: int = 10,
        scoring: Any = None,
        cv: Any = None,
        refit: Any = True,
        ensemble: int = 1,
        error_score: Any = "raise",
        return_train_score: bool = False,
        random_state: Any = None,
        memory: int = MEMORY,
        verbose: int | bool | None = 0,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.param_grid = param_grid
        self.n_iter = n_iter
        self.scoring = scoring
        self.cv = cv
        self.refit = refit
        self.ensemble = ensemble
        self.error_score = error_score
        self.return_train_score = return_train_score
        self.random_state = random_state
        self.memory = memory
        self.verbose = verbose

    @moves_arrays
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, groups: Any = None, offset: Any = None
    ) -> Self:
        """Try the settings, and fit the best one.

        Parameters
        ----------
        X, y, sample_weight, offset
            As for the estimator. Rows of weight 0 are left out; scores are not weighted.
        groups : array-like [n], optional
            For a splitter of groups, and for a `jboost.GroupLoss`.

        Returns
        -------
        self
        """
        settings, estimator, memory = (
            self._settings(),
            self._estimator(),
            whole_number(self.memory, "memory", 1),
        )
        asked = [_with(estimator, setting) for setting in settings]
        for one in asked:
            check_booster(one)
            if one.booster != "tree":
                raise ValueError(
                    f"booster must be 'tree' in every setting, got {one.booster!r}; use GridSearchCV"
                )
        specs, hypers = [one._spec(False) for one in asked], [one._hyper() for one in asked]
        if isinstance(estimator.sampler, str) and any(one.subsample != estimator.subsample for one in asked):
            raise ValueError(
                f"subsample must be {estimator.subsample} in all settings, which share sampler={estimator.sampler!r}"
            )
        given = GivenRows("", X, y, sample_weight, offset, groups)
        with at_most(n_threads(estimator.n_jobs)):
            rows, _ = estimator._training_rows(given, None, False, seed=0, holds_out=False)
            plans = self._plans(estimator, rows, given)
            self.scorer_ = scorers_of(self.scoring, estimator, rows.y)
            if isinstance(self.scorer_, dict):  # else a scorer may return several numbers
                self._check_ensemble(decisive(self.refit, self.scorer_))
            held = self._scores(estimator, rows, specs, hypers, plans, memory)
        judge = Judge(estimator, rows.y, self.scorer_, self.scoring, self.error_score)
        values, to_score = judged(judge, held.scores, held.rows)
        trained = None if held.trained is None else judged(judge, *held.trained)[0]
        by = decisive(self.refit, values)
        self._check_ensemble(by)
        self.multimetric_ = isinstance(self.scorer_, dict) or set(values) != {ALONE}
        times = {"fit_time": held.seconds, "score_time": to_score}
        self._choose(table_of(settings, values, times, trained, by), by)
        if self.ensemble > 1 and by is not None:
            self.ensemble_weights_ = self._weights(judge, specs, held, by)
        if self.refit:
            started = time.perf_counter()
            self._refit(given)
            self.refit_time_ = time.perf_counter() - started
        return self

    # ------------------------------------------------------------ what is tried

    def _settings(self) -> list[dict[str, Any]]:
        from sklearn.model_selection import ParameterGrid, ParameterSampler  # as long as half of scikit-learn

        if (self.param_grid is None) == (self.param_distributions is None):
            raise ValueError("param_distributions or param_grid must be given, and not both")
        for name in ("ensemble", "n_iter"):
            whole_number(getattr(self, name), name, 1)
        several = isinstance(self.scoring, list | tuple | set | dict) or callable(self.scoring)
        if not (isinstance(self.refit, bool | np.bool_) or callable(self.refit) or several):
            raise ValueError(f"refit must be True, False or a function of cv_results_, got {self.refit!r}")
        if self.error_score != "raise" and not isinstance(self.error_score, int | float | np.number):
            raise ValueError(f"error_score must be 'raise' or a number, got {self.error_score!r}")
        if self.param_grid is not None:
            found = list(ParameterGrid(self.param_grid))
        else:
            given = self.param_distributions
            sampler = ParameterSampler(given, self.n_iter, random_state=self.random_state)
            spaces = [given] if isinstance(given, Mapping) else given
            if not any(hasattr(values, "rvs") for space in spaces for values in space.values()):
                # Or it warns that there are no more.
                sampler.n_iter = min(sampler.n_iter, len(ParameterGrid(given)))
            found = list(sampler)
        name = "param_distributions" if self.param_grid is None else "param_grid"
        for unknown in sorted({one for setting in found for one in setting} - {*NUMBERS, *CHOICES}):
            raise ValueError(
                f"{name} must name numbers ({', '.join(NUMBERS)}) or choices ({', '.join(CHOICES)}), got {unknown!r}: "
                "set it in the estimator, or use scikit-learn's search"
            )
        return found

    def _check_ensemble(self, by: str | None) -> None:
        if self.ensemble > 1 and (by is None or callable(self.refit)):
            raise ValueError(
                f"ensemble must be 1 where no scorer ranks the settings, got refit={self.refit!r}"
            )

    def _estimator(self) -> Boosting:
        if not isinstance(self.estimator, Boosting):
            raise TypeError(
                "estimator must be a JBoostClassifier, a JBoostRegressor or a JBoostDistribution, got "
                f"{type(self.estimator).__name__}"
            )
        if self.estimator.early_stopping is True:
            raise ValueError(
                "estimator must not have early_stopping=True, which holds out rows of each fit: search n_estimators, "
                "or use jboost.sweep, which stops by the rows held out"
            )
        if self.estimator._encodes_by_target():
            raise ValueError(
                "estimator must have categorical_encoding='subsets': the splits share their bins, and statistics would "
                "know the rows held out; use scikit-learn's search"
            )
        return _with(self.estimator, {})

    def _plans(self, estimator: Boosting, rows: BinnedRows, given: GivenRows) -> list[Plan]:
        """Return what each split trains on and holds out, of the rows that have a weight."""
        from sklearn.model_selection import check_cv

        target = None if isinstance(given.y, Mapping) else np.asarray(given.y)
        n = len(jax.tree.leaves(given.y)[0] if target is None else target)
        counted = check_weight(given.weight, n, "sample_weight") > 0
        splitter: Any = check_cv(
            5 if self.cv is None else self.cv, target, classifier=is_classifier(estimator)
        )
        splits = list(splitter.split(np.zeros((n, 1)), target, given.groups))
        if not splits:
            raise ValueError(
                "cv must give a split, got none: a generator is used up by the first fit, a list is not"
            )
        plans = [self._plan(n, counted, *split) for split in splits]
        if isinstance(estimator._loss(), GroupLoss):
            check_whole_groups("cv", np.stack([plan.held for plan in plans]), np.asarray(rows.groups))
        self.n_splits_ = len(plans)
        return plans

    def _plan(self, n: int, counted: Bool[np.ndarray, " n"], train: Any, test: Any) -> Plan:
        try:
            trained, tested = (np.arange(n)[one] for one in (train, test))
        except IndexError as error:
            raise ValueError(f"cv must give places of the {n} rows: {error}") from None
        times, held = np.bincount(trained, minlength=n).astype(float), np.zeros(n, bool)
        held[tested] = True
        if (held & (times > 0)).any():
            raise ValueError(
                f"cv must not train on rows that it holds out, row {int(np.argmax(held & (times > 0)))}"
            )
        times, held = times[counted], held[counted]
        if not times.any() or not held.any():
            raise ValueError("cv must train on rows with a weight above 0 and hold out others")
        return Plan(times, held)

    def _scores(
        self,
        estimator: Boosting,
        rows: BinnedRows,
        specs: list[Spec],
        hypers: list[Hyper],
        plans: list[Plan],
        memory: int,
    ) -> Held:
        """Run the settings, one program for each choice among them."""
        verbose = None if self.verbose is None else bool(self.verbose)
        places = [np.repeat(np.arange(plan.times.size), plan.times.astype(int)) for plan in plans]
        plans = [plan._replace(times=plan.times * _balanced(estimator, rows, plan.times)) for plan in plans]
        found: dict[int, list[Done]] = {}
        seconds = np.zeros((len(specs), len(plans)))
        for spec in dict.fromkeys(specs):
            numbers = [i for i, one in enumerate(specs) if one == spec]
            started = time.perf_counter()
            members = self._members(estimator, rows, spec, [hypers[i] for i in numbers], plans)
            done = run_members(members, memory, verbose, keeps="all" if self.return_train_score else "held")
            found |= dict(zip(numbers, done, strict=True))
            seconds[numbers] = (time.perf_counter() - started) / (len(numbers) * len(plans))
        held = [np.flatnonzero(plan.held) for plan in plans]

        def scores(name: str, places: list[Any]) -> list[list[np.ndarray]]:
            of_all = [
                [np.asarray(getattr(one, name), np.float64) for one in found[i]] for i in range(len(specs))
            ]
            return [[one[place] for one, place in zip(row, places, strict=True)] for row in of_all]

        of_held = scores("held_score", [slice(rows.size) for rows in held])
        trained = (scores("score", places), places) if self.return_train_score else None
        return Held(of_held, held, seconds, trained)

    def _members(
        self, estimator: Boosting, rows: BinnedRows, spec: Spec, settings: list[Hyper], plans: list[Plan]
    ) -> Members:
        keys = [key_of(draw_seed(estimator.random_state))] * len(settings)
        sampler = sampler_of(estimator.sampler, estimator.subsample, estimator._strata(rows.y))
        return members_of(
            estimator._loss(), rows.data, rows.y, plans, spec, settings, keys, sample_weight=rows.weight,
            groups=rows.groups, offset=rows.offset, sampler=sampler, base_score=estimator.base_score,
        )  # fmt: skip

    # ------------------------------------------------------------ how good it is

    def _choose(self, table: dict[str, Any], by: str | None) -> None:
        """Set the best setting: by the scorer of this name, or by the function `refit`."""
        self.cv_results_ = table
        settings = table["params"]
        if callable(self.refit):
            self.best_index_ = whole_number(self.refit(table), "refit(cv_results_)", 0)
            if self.best_index_ >= len(settings):
                raise ValueError(
                    f"refit(cv_results_) must be below {len(settings)}, the number of settings, got {self.best_index_}"
                )
        elif by is None:
            return
        else:
            mean = table[f"mean_test_{by}"]
            self.best_index_ = int(np.nanargmax(mean))
            self.best_score_ = float(mean[self.best_index_])
        self.best_params_ = settings[self.best_index_]
        self.ensemble_weights_ = np.zeros(len(settings))
        self.ensemble_weights_[self.best_index_] = 1.0

    def _weights(self, judge: Judge, specs: list[Spec], held: Held, by: str) -> Float[np.ndarray, " s"]:
        """Choose the parts of the settings whose models can be one: those with trees like the best one's."""
        order = np.argsort(-self.cv_results_[f"mean_test_{by}"], kind="stable")
        alike = [i for i in order if specs[i].form == specs[self.best_index_].form][:MOST_IN_ENSEMBLE]

        def value(parts: Float[np.ndarray, " m"]) -> float:
            used = [(held.scores[alike[j]], part) for j, part in enumerate(parts) if part]
            means = [
                np.sum([part * scores[c] for scores, part in used], axis=0) for c in range(len(held.rows))
            ]
            return float(np.mean(judged(judge, [means], held.rows)[0][by]))

        weights = np.zeros(len(specs))
        weights[alike] = chosen_greedily(len(alike), self.ensemble, value)
        return weights

    # ------------------------------------------------------------ the fitted estimator

    def _refit(self, given: GivenRows) -> None:
        more = {"offset": given.offset, "groups": given.groups}
        chosen = np.flatnonzero(self.ensemble_weights_)
        settings = [self.cv_results_["params"][i] for i in chosen]
        fitted = [_with(self.estimator, one).fit(given.X, given.y, given.weight, **more) for one in settings]
        best = fitted[int(np.argmax(self.ensemble_weights_[chosen]))]
        if len(fitted) > 1:
            best.model_ = averaged([one.model_ for one in fitted], self.ensemble_weights_[chosen])
            best.n_trees_ = best.model_.n_trees
        self.best_estimator_ = best
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(best, name):
                setattr(self, name, getattr(best, name))

    @property
    def classes_(self) -> np.ndarray:
        """The labels of a classifier."""
        return self._fitted().classes_

    def _fitted(self) -> Any:
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    @available_if(_refits)
    def predict(self, X: Any, **more: Any) -> np.ndarray:
        """Predict with the best estimator."""
        return self._fitted().predict(X, **more)

    @_has("predict_proba")
    def predict_proba(self, X: Any, **more: Any) -> np.ndarray:
        """Predict probabilities with the best estimator."""
        return self._fitted().predict_proba(X, **more)

    @_has("decision_function")
    def decision_function(self, X: Any, **more: Any) -> np.ndarray:
        """Return the raw scores of the best estimator."""
        return self._fitted().decision_function(X, **more)

    @available_if(_refits)
    def score(self, X: Any, y: Any) -> float:
        """Score the best estimator by `scoring`; as `estimator.score` it knows no offset."""
        fitted = self._fitted()
        if self.scorer_ is None:
            return fitted.score(X, y)
        if not self.multimetric_:
            return float(self.scorer_(fitted, X, y))
        if not isinstance(self.refit, str):
            raise ValueError(f"refit must name a scorer for score to use it, got {self.refit!r}")
        if isinstance(self.scorer_, dict):
            return float(self.scorer_[self.refit](fitted, X, y))
        return float(self.scorer_(fitted, X, y)[self.refit])

    def __sklearn_tags__(self) -> Any:
        """Say what targets are taken: as the estimator does."""
        from sklearn.utils import get_tags

        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type, tags.target_tags = inner.estimator_type, inner.target_tags
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags = inner.input_tags
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        """Say whether a search was made."""
        return hasattr(self, "cv_results_")


def _balanced(
    estimator: Boosting, rows: BinnedRows, times: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"] | float:
    """Return by what the weights of a class in the rows of a fold differ from those in all rows."""
    of_all = np.asarray(estimator._weight_of(rows.y))
    if not of_all.ndim:
        return 1.0
    places = np.repeat(np.arange(len(times)), times.astype(int))
    ratio = np.ones(len(times))
    of_fold = np.asarray(estimator._weight_of(take_rows(rows.y, places)))
    known = of_all[places] > 0
    ratio[places[known]] = of_fold[known] / of_all[places][known]
    return ratio


def _with(estimator: Any, setting: dict[str, Any]) -> Any:
    """Return an unfitted copy of an estimator with these parameters."""
    copy: Any = clone(estimator)
    return copy.set_params(**setting)
