"""The same model, bit for bit: with and without the C++ library, and for rows divided among CPU devices."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import native_library
import numpy as np
import pytest

import jboost
from jboost._tree import native

SCRIPT = (Path(__file__).parent / "determinism_script.py").read_text()
NAMES = ["sampled and stopped", "classes", "categories of two bytes", "quantile"]
DIVIDED = NAMES[:2]  # test_devices.py divides the rows of more


def fit_on(n_devices: int, names: list[str]) -> dict[str, Any]:
    """Fit in plain JAX with this many CPU devices, with all of XLA's optimisation."""
    printed = native_library.run_script(SCRIPT, *names, devices=n_devices, JBOOST_NATIVE="0", XLA_FLAGS="")
    return json.loads(printed)


@functools.cache
def plain_models() -> dict[str, Any]:
    return fit_on(1, NAMES)


def digests(models: dict[str, Any]) -> dict[str, str]:
    return {name: model["digest"] for name, model in models.items()}


@pytest.mark.slow
def test_cpp_gives_the_model_of_plain_jax():
    native_library.require(native.is_available)
    found = json.loads(
        native_library.run_script(SCRIPT, *NAMES, JBOOST_NATIVE="1", XLA_FLAGS="")
    )  # as `fit_on` has it
    assert digests(found) == digests(plain_models())
    assert len(set(digests(found).values())) == len(NAMES)


@pytest.mark.slow
def test_several_devices_give_the_model_of_one():
    found, alone = fit_on(2, DIVIDED), {name: plain_models()[name] for name in DIVIDED}
    assert {model["devices"] for model in found.values()} == {2}  # rows are really divided
    assert {model["devices"] for model in alone.values()} == {1}
    assert digests(found) == digests(alone)


# ------------------------------------------------------------------------------------------------- n_jobs

JOBS = """
import sys, warnings
import jax, numpy as np
from jboost import JBoostRegressor
if sys.argv[1] == "late":
    jax.devices()
X = np.random.default_rng(0).normal(size=(9000, 3)).astype(np.float32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(2):
        model = JBoostRegressor(n_estimators=2, max_depth=1, n_jobs=2).fit(X, X[:, 0])
messages = [str(one.message) for one in caught if "n_jobs" in str(one.message)]
print(len(jax.devices()), len(messages), float(model.predict(X).sum()))
"""


@pytest.mark.slow
def test_n_jobs_makes_devices_or_says_once_how_to():
    fresh = native_library.run_script(JOBS, "fresh", JBOOST_NATIVE="0", XLA_FLAGS="").split()
    late = native_library.run_script(JOBS, "late", JBOOST_NATIVE="0", XLA_FLAGS="").split()
    assert fresh[:2] == ["2", "0"]
    assert late[:2] == ["1", "1"]
    assert fresh[2] == late[2]


@pytest.mark.parametrize(("n_jobs", "error"), [(0, ValueError), (1.5, TypeError), (True, TypeError)])
def test_refuses_other_n_jobs(n_jobs, error):
    X = np.arange(8.0)[:, None]
    with pytest.raises(error, match="n_jobs must"):
        jboost.JBoostRegressor(n_estimators=1, n_jobs=n_jobs).fit(X, X[:, 0])
