"""What a fit goes on from: a model that it is given, or the estimator's own in a warm start."""

from __future__ import annotations

import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from jboost._bins import BinEdges, Features, check_same_edges
from jboost._bins.arguments import check_missing
from jboost._model.ensemble import Ensemble, name_kind
from jboost._model.linear import LinearModel
from jboost._spec import Spec
from jboost.boosting import History
from jboost.boosting.preparing import form_of_trees


class Start(NamedTuple):
    """A model, what is known of its rounds, and the estimator that it comes from, if any."""

    model: Ensemble
    history: History
    estimator: Any


def own_start(estimator: Any) -> Start:
    """Go on from the estimator's own model, on the same data."""
    if isinstance(estimator.model_, LinearModel):
        raise ValueError(
            f"booster must be 'linear', as in the fit before, got {estimator.booster!r}: trees do not go on from a "
            "linear model; fit anew with warm_start=False"
        )
    return Start(estimator.model_, estimator.history_, estimator)


def start_from(init_model: Any) -> Start:
    """Read `init_model`: an Ensemble, an estimator that was fitted or the path of a file.

    Of its rounds nothing is known here: they may have been scored on other rows.
    """
    model = getattr(init_model, "model_", init_model)
    if isinstance(model, str | os.PathLike):
        from jboost.io import load  # only where a file is read

        model = load(model)
    if isinstance(model, LinearModel):
        raise TypeError("init_model must be a model of trees, got one that was fitted with booster='linear'")
    if not isinstance(model, Ensemble):
        raise TypeError(
            "init_model must be a jboost.Ensemble, a fitted estimator of jboost or the path of a saved model, got "
            f"{name_kind(init_model)}"
        )
    unknown = np.full(model.n_trees, np.nan, model.base.dtype)
    return Start(model, History(unknown, unknown, model.n_trees - 1), init_model)


def rounds_to_go(spec: Spec, model: Ensemble, n_run: int) -> Spec:
    """Leave those of a warm start out; raise where it cannot go on."""
    form = form_of_trees(model)
    if form != spec.form:
        raise ValueError(
            "max_depth, grow_policy and multi_output must stay {}, {!r} and {!r} in a warm start, since all trees of a "
            "model lie in one array, got {}, {!r} and {!r}; fit anew with warm_start=False".format(
                *form, *spec.form
            )
        )
    if spec.n_estimators < n_run:
        raise ValueError(
            f"n_estimators must be at least the {n_run} rounds run before, as warm_start is True, "
            f"got {spec.n_estimators}"
        )
    return dataclasses.replace(spec, n_estimators=spec.n_estimators - model.n_trees)


def check_same_missing(missing: Any, of_model: float | None) -> None:
    """Raise unless the number that stands for missing values is NaN, the default, or that of the model."""
    number = check_missing(missing)
    if number is not None and number != of_model:
        expected = "NaN" if of_model is None else f"{of_model} or NaN"
        raise ValueError(f"missing must be {expected}, as in the model that is continued, got {missing!r}")


def check_same_encoding(encodes_by_target: bool, features: Features) -> None:
    """Raise where a warm start would bin the rows that a model's statistics know as if it did not know them."""
    has_statistics = any(known is not None and known.is_statistic for known in features.categories)
    if has_statistics and not encodes_by_target:
        raise ValueError(
            "categorical_encoding must stay as it was in a warm start from a model with target statistics, got "
            "'subsets'"
        )


def check_same_statistics(edges: BinEdges, of_model: BinEdges) -> None:
    """Raise where statistics that were made once more are others."""
    try:
        check_same_edges(edges, of_model)
    except ValueError:
        raise ValueError(
            "X, y, sample_weight, categorical_encoding, categorical_prior and random_state must stay as they were in a "
            "warm start with target statistics, which are made once more; fit anew with warm_start=False"
        ) from None
