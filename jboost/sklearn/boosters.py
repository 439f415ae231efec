"""What is boosted, `booster="tree"` or `"linear"`, and which parameters each of them reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jboost._runtime.arguments import check_choice
from jboost._spec import Hyper, Spec

BOOSTERS = ("tree", "linear")
_OF_LINEAR = ("feature_selector", "top_k")
_OF_BOTH = (
    "n_estimators",
    "n_iter_no_change",
    "penalties",
    "learning_rate",
    "reg_lambda",
    "reg_alpha",
    "tol",
)
_OF_TREES = (
    *(one.name for record in (Spec, Hyper) for one in dataclasses.fields(record) if one.name not in _OF_BOTH),
    *(
        "sampler",
        "max_bins",
        "categorical_features",
        "categorical_encoding",
        "categorical_prior",
        "warm_start",
    ),
)


def check_booster(estimator: Any) -> None:
    """Raise unless the booster is known and reads all parameters that differ from their defaults."""
    booster = estimator.booster
    check_choice("booster", booster, BOOSTERS)
    foreign, other = (_OF_LINEAR, "linear") if booster == "tree" else (_OF_TREES, "tree")
    defaults = {one.name: one.default for one in dataclasses.fields(estimator)}
    for name in foreign:
        value = getattr(estimator, name)
        is_default = value is defaults[name] or (np.ndim(value) == 0 and value == defaults[name])
        if not is_default:
            raise ValueError(
                f"{name} is a parameter of booster={other!r}; with booster={booster!r} it must be left at its default, "
                f"{defaults[name]!r}, got {value!r}"
            )


def check_for_linear(**arguments: Any) -> None:
    """Raise where `fit` is given what a linear booster knows nothing of."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(f"{name} must be None with booster='linear', got {value!r}")
