"""Samplers by name: what an estimator's `sampler` and `subsample` ask of a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jboost import samplers

OF_A_SHARE: dict[str, Callable[[float], samplers.Sampler]] = {
    "bootstrap": samplers.bootstrap,
    "mvs": samplers.mvs,
    "without_replacement": samplers.without_replacement,
}
OF_ALL: dict[str, Callable[[], samplers.Sampler]] = {
    "bayesian_bootstrap": samplers.bayesian_bootstrap,
    "goss": samplers.goss,
}


def sampler_of(sampler: Any, subsample: float, strata: Any) -> Any:
    """Return the sampler of that name for a share of the rows, or the user's own.

    `strata` are the classes of the training rows, None where there are none.
    """
    if not isinstance(sampler, str):
        return sampler
    if sampler in OF_A_SHARE:
        return OF_A_SHARE[sampler](subsample)
    if sampler in OF_ALL:
        if subsample != 1:
            raise ValueError(f"subsample must be 1 with sampler={sampler!r}, got {subsample!r}")
        return OF_ALL[sampler]()
    if sampler == "stratified":
        if strata is None:
            raise ValueError(
                "sampler='stratified' needs a classifier with one label a row, whose classes it keeps"
            )
        return samplers.stratified(strata, subsample)
    names = ", ".join(map(repr, sorted([*OF_A_SHARE, *OF_ALL, "stratified"])))
    raise ValueError(f"sampler must be a function, or one of {names}, got {sampler!r}")
