"""Fits in other processes: what a fork would hang in is refused at once, what can run runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRELUDE = """
import multiprocessing, sys, warnings
import numpy as np
import jax, jboost
warnings.simplefilter("ignore")  # JAX itself warns of forks
X = np.random.default_rng(0).normal(size=(60, 3))

def fit(seed=0):
    spec = jboost.Spec(n_estimators=3, max_depth=2)
    return float(jboost.fit(jboost.losses.squared_error, X, X[:, 0] + seed, spec=spec)[0].base[0])

def try_to_fit(results):
    try:
        results.put(fit())
    except RuntimeError as error:
        results.put(str(error))

def in_child():
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=try_to_fit, args=(results,))
    child.start()
    child.join(60)
    if child.is_alive():
        child.kill()
        return "hangs"
    return results.get()
"""


def run(script):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[0]


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")


ALSO = [
    pytest.param(used, marks=pytest.mark.slow)
    for used in ("jboost.bin_features(X)", "jax.numpy.zeros(3) + 1")
]


@pytest.mark.parametrize("used", ["fit()", *ALSO])
def test_a_child_that_was_forked_after_jax_was_used_says_so(used):
    assert "get_context('spawn')" in run(f"{used}\nprint(in_child())")


def test_a_child_that_was_forked_before_jax_was_used_works():
    assert run("print(in_child() == fit())") == "True"


@pytest.mark.slow  # each process imports JAX
def test_processes_of_joblib_work():
    script = """
from sklearn.model_selection import cross_val_score
score = cross_val_score(jboost.JBoostRegressor(n_estimators=3, max_depth=2), X, X[:, 0], cv=2, n_jobs=1)
both = cross_val_score(jboost.JBoostRegressor(n_estimators=3, max_depth=2), X, X[:, 0], cv=2, n_jobs=2)
print(np.array_equal(score, both))
"""
    assert run(script) == "True"
