"""What a search makes of the scores of rows: numbers, by one scorer or several, and the table of all settings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.stats import rankdata
from sklearn.base import is_classifier

from jboost._objective.group import GroupLoss
from jboost._objective.rows import take_rows
from jboost._runtime.arguments import restated
from jboost._runtime.caller import warn
from jboost.sklearn.base import Boosting
from jboost.sklearn.watched import mean_loss_of

ALONE = "score"  # so scikit-learn names what the only scorer gives


def scorers_of(scoring: Any, estimator: Boosting, target: Any) -> Any:
    """Return the scorer or, of several, a dict of them; None for minus the mean loss, where R² has no meaning."""
    from sklearn.metrics import check_scoring, get_scorer

    if isinstance(scoring, list | tuple | set):
        names = list(scoring)
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError(
                f"scoring must be names of scorers that differ, or a dict of scorers, got {scoring!r}"
            )
        return {name: get_scorer(name) for name in names}
    if isinstance(scoring, Mapping):
        if not scoring or not all(isinstance(name, str) for name in scoring):
            raise ValueError(f"scoring must have a scorer for each of its names, got {scoring!r}")
        return {name: check_scoring(estimator, one) for name, one in scoring.items()}
    if scoring is not None:
        return check_scoring(estimator, scoring)
    if is_classifier(estimator):
        return get_scorer("accuracy")
    loss = estimator._loss()
    several = loss.n_outputs is not None and np.shape(target)[1:] != (loss.n_outputs,)
    if not (several or isinstance(target, Mapping)):
        return get_scorer("r2")
    if isinstance(loss, GroupLoss):
        raise ValueError("scoring must be given for a GroupLoss whose scores are no predictions of y")
    return None


@dataclasses.dataclass(frozen=True)
class Judge:
    """Says what scores of rows are worth."""

    estimator: Boosting
    target: Any  # of all rows
    scorers: Any  # of `scorers_of`
    scoring: Any  # as it was given
    error_score: Any  # "raise", or the number where a scorer fails

    def values(self, score: Float[np.ndarray, "m k"], rows: Int[np.ndarray, " m"]) -> dict[str, float]:
        """Return what each scorer says of the raw scores of these rows."""
        loss, y = self.estimator._loss(), take_rows(self.target, rows)
        shaped = score[:, 0] if loss.n_outputs is None and score.shape[1] == 1 else score
        if self.scorers is None:
            return {ALONE: -mean_loss_of(loss, shaped, y, np.ones(len(rows)))}
        several = isinstance(self.scorers, dict)
        by_name = self.scorers if several else {ALONE: self.scorers}
        staged, labels = self.estimator._stage(shaped, loss), self.estimator._labels(y)
        found = {name: self._of_one(name, one, staged, labels) for name, one in by_name.items()}
        alone = found.get(ALONE)
        return dict(alone) if isinstance(alone, Mapping) and not several else found

    def _of_one(self, name: str, scorer: Any, staged: Any, labels: Any) -> Any:
        try:
            value = scorer(staged, None, labels)
            if isinstance(value, Mapping):
                return {key: float(one) for key, one in value.items()}
            return float(value)
        except (AttributeError, TypeError, ValueError) as error:
            scoring = name if isinstance(self.scorers, dict) else self.scoring
            if isinstance(self.scoring, Mapping):
                scoring = self.scoring[name]
            of = f"of a {type(self.estimator).__name__}: {error}"
            message = f"scoring={scoring!r} fails for the rows of a split of cv, {of}"
            if self.error_score == "raise":
                raise restated(error, message) from error
            warn(f"{message}; it counts as error_score={self.error_score}")
            return float(self.error_score)


def judged(
    judge: Judge, scores: list[list[np.ndarray]], rows: list[np.ndarray]
) -> tuple[dict[str, Float[np.ndarray, "s c"]], Float[np.ndarray, "s c"]]:
    """Return what each setting is worth on each split, by scorer, and the seconds that it took to say so."""
    values: list[list[dict[str, float]]] = []
    seconds = np.zeros((len(scores), len(rows)))
    for s, of_setting in enumerate(scores):
        values.append([])
        for c, (score, places) in enumerate(zip(of_setting, rows, strict=True)):
            started = time.perf_counter()
            values[-1].append(judge.values(score, places))
            seconds[s, c] = time.perf_counter() - started
    names = list(values[0][0])
    return {name: np.array([[one[name] for one in row] for row in values]) for name in names}, seconds


def table_of(
    settings: list[dict[str, Any]],
    values: dict[str, Float[np.ndarray, "s c"]],
    seconds: dict[str, Float[np.ndarray, "s c"]],
    trained: dict[str, Float[np.ndarray, "s c"]] | None,
    by: str | None,
) -> dict[str, Any]:
    """Return the table of a search, with the columns of scikit-learn's; `by` is the scorer that has to give numbers."""
    table: dict[str, Any] = {}
    for name, of_splits in seconds.items():
        table |= {f"mean_{name}": of_splits.mean(axis=1), f"std_{name}": of_splits.std(axis=1)}
    for name in sorted({name for setting in settings for name in setting}):
        column = np.ma.MaskedArray(np.empty(len(settings), object), mask=True)
        for i, setting in enumerate(settings):
            if name in setting:
                column[i] = setting[name]
        table[f"param_{name}"] = column
    table["params"] = settings
    for name, of_splits in values.items():
        table |= _columns(f"test_{name}", of_splits)
        mean = table[f"mean_test_{name}"]
        if name == by and np.isnan(mean).all():
            raise ValueError("scoring must give a number, got NaN for every setting")
        if np.isnan(mean).any():
            warn(
                f"{int(np.isnan(mean).sum())} of {len(mean)} settings have no {name}: it is NaN for some split"
            )
        worst_last = np.where(np.isnan(mean), -np.inf, mean)
        table[f"rank_test_{name}"] = rankdata(-worst_last, method="min").astype(np.int32)
    for name, of_splits in (trained or {}).items():
        table |= _columns(f"train_{name}", of_splits)
    return table


def _columns(name: str, of_splits: Float[np.ndarray, "s c"]) -> dict[str, Any]:
    columns: dict[str, Any] = {f"split{c}_{name}": of_splits[:, c] for c in range(of_splits.shape[1])}
    return columns | {f"mean_{name}": of_splits.mean(axis=1), f"std_{name}": of_splits.std(axis=1)}


def decisive(refit: Any, values: dict[str, Any]) -> str | None:
    """Return the name of the scorer by which settings are ranked; None where a function chooses, or nothing does."""
    if set(values) == {ALONE} and not isinstance(refit, str):
        return ALONE
    if refit is False or callable(refit):
        return None
    if not isinstance(refit, str) or refit not in values:
        raise ValueError(
            f"refit must be one of {', '.join(map(repr, values))}, a function of cv_results_ or False with several "
            f"scorers, got {refit!r}"
        )
    return refit
