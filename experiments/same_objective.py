"""The same objective in jboost, XGBoost and LightGBM: the raw scores of the training rows, round by round."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

import jboost

LIBRARIES = ("jboost", "xgboost", "lightgbm")
Derivatives = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True)
class Case:
    """Rows, a loss, and what the peers call it."""

    name: str
    loss: Any
    X: Any
    y: Any
    xgboost: str | Derivatives | None = None  # an objective, or (score, y) -> (g, h); None: it has none
    lightgbm: str | Derivatives | None = None
    weight: Any = None
    rounds: int = 100
    learning_rate: float = 0.1
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the peers


def normal(score: Any, y: Any) -> Any:
    """Mean and log standard deviation."""
    return 0.5 * jnp.square((y - score[0]) * jnp.exp(-score[1])) + score[1]


def available() -> list[str]:
    """Return the libraries that are installed."""
    return [name for name in LIBRARIES if importlib.util.find_spec(name)]


def scores(library: str, case: Case) -> Any:
    """Return the raw scores [rounds + 1, n] or [rounds + 1, n k]; those before the first round come first.

    None where the library has no such objective; fewer rounds where it ended sooner.
    """
    if library == "jboost":
        return _of_jboost(case)
    if getattr(case, library) is None:
        return None
    return {"xgboost": _of_xgboost, "lightgbm": _of_lightgbm}[library](case)


def _of_jboost(case: Case) -> Any:
    spec = jboost.Spec(n_estimators=case.rounds, grow_policy="depthwise")
    hyper = jboost.Hyper(learning_rate=case.learning_rate)
    data = jboost.bin_features(case.X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table shows it
        model, _ = jboost.fit(case.loss, data, case.y, spec=spec, hyper=hyper, sample_weight=case.weight)
    before = np.broadcast_to(model.base, (len(case.y), model.n_outputs))
    before = before[:, 0] if model.scalar_output else before
    return np.stack([before, *jboost.staged_predict(model, data)]).astype(np.float64)


def _weighted(function: Any, weight: Any) -> Callable[..., Any]:
    """Return the objective (score, rows) -> (g, h) of a peer."""

    def objective(score: Any, rows: Any) -> tuple[Any, Any]:
        g, h = function(score, rows.get_label())
        return (g, h) if weight is None else (g * weight, h * weight)

    return objective


def _of_xgboost(case: Case) -> Any:
    import xgboost

    rows = xgboost.DMatrix(case.X, case.y, weight=case.weight)
    given: dict[str, Any] = {"max_depth": 6, "eta": case.learning_rate, "max_bin": 255, "verbosity": 0}
    given |= case.options.get("xgboost", {})
    if isinstance(case.xgboost, str):
        given["objective"] = case.xgboost
    else:
        given |= {"base_score": 0.0, "disable_default_eval_metric": 1}
    objective = _weighted(case.xgboost, case.weight) if callable(case.xgboost) else None
    booster = xgboost.train(given, rows, case.rounds, obj=objective)
    ranges = [(0, n) for n in range(1, booster.num_boosted_rounds() + 1)]
    each = [booster.predict(rows, output_margin=True, iteration_range=one) for one in ranges]
    return np.stack([np.full_like(each[0], _xgboost_start(booster, case)), *each]).astype(np.float64)


def _xgboost_start(booster: Any, case: Case) -> float:
    import json

    given = float(
        json.loads(booster.save_config())["learner"]["learner_model_param"]["base_score"].strip("[]")
    )
    link = {"count:poisson": np.log, "binary:logistic": lambda p: np.log(p / (1 - p))}
    return float(link.get(case.xgboost, lambda p: p)(given))  # pyright: ignore[reportCallIssue, reportArgumentType]


def _of_lightgbm(case: Case) -> Any:
    import lightgbm  # pyright: ignore[reportMissingImports]

    given: dict[str, Any] = {
        "max_depth": 6,
        "num_leaves": 64,
        "learning_rate": case.learning_rate,
        "verbosity": -1,
    }
    given |= {"max_bin": 255} | case.options.get("lightgbm", {})
    own = callable(case.lightgbm)
    given["objective"] = _weighted(case.lightgbm, case.weight) if own else case.lightgbm
    rows = lightgbm.Dataset(case.X, case.y, weight=case.weight, free_raw_data=False)
    booster = lightgbm.train(given, rows, case.rounds)
    rounds = range(1, booster.num_trees() + 1)
    each = [np.asarray(booster.predict(case.X, raw_score=True, num_iteration=n)) for n in rounds]
    start = np.full_like(each[0], _lightgbm_start(case))
    return np.stack([start, *each])


def _lightgbm_start(case: Case) -> float:
    mean = float(np.average(case.y, weights=case.weight))
    known = {"poisson": np.log, "binary": lambda p: np.log(p / (1 - p)), "regression": lambda m: m}
    if callable(case.lightgbm):
        return 0.0
    return float(known[case.lightgbm](mean)) if case.lightgbm in known else float(np.median(case.y))
