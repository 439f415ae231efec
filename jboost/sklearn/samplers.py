"""Samplers by name: what an estimator's `sampler` and `subsample` ask of a fit."""

from __future__ import annotations

import importlib
from typing import Any

OF_A_SHARE = ("bootstrap", "mvs", "without_replacement")
OF_ALL = ("bayesian_bootstrap", "goss")


def sampler_of(sampler: Any, subsample: float, strata: Any) -> Any:
    """Return the sampler of that name for a share of the rows, or the user's own.

    `strata` are the classes of the training rows, None where there are none.
    """
    if not isinstance(sampler, str):
        return sampler
    samplers = importlib.import_module("jboost.samplers")  # most fits need none
    if sampler in OF_A_SHARE:
        return getattr(samplers, sampler)(subsample)
    if sampler in OF_ALL:
        if subsample != 1:
            raise ValueError(f"subsample must be 1 with sampler={sampler!r}, got {subsample!r}")
        return getattr(samplers, sampler)()
    if sampler == "stratified":
        if strata is None:
            raise ValueError(
                "sampler='stratified' needs a classifier with one label a row, whose classes it keeps"
            )
        return samplers.stratified(strata, subsample)
    names = ", ".join(map(repr, sorted([*OF_A_SHARE, *OF_ALL, "stratified"])))
    raise ValueError(f"sampler must be a function, or one of {names}, got {sampler!r}")
