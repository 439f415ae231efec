"""What an import of the library leaves for later, and that all of it is found then."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jboost
import jboost.sklearn

SCRIPT = """
import sys
import numpy as np
from jboost import JBoostClassifier

X = np.arange(40.0)[:, None]
JBoostClassifier(n_estimators=1, max_depth=1).fit(X, X[:, 0] > 20)
print(*(name for name in sys.modules if name.partition(".")[0] in ("jboost", "optax", "matplotlib")))
import jboost
jboost.io.export, jboost.linear.fit_linear, jboost.tuning.sweep, jboost.sklearn.JBoostRegressor
"""
LATER = [
    "differentiable",
    "distributions",
    "explain",
    "io",
    "learners",
    "plotting",
    "samplers",
    "textbook",
    "tuning",
]
LATER += ["linear", "sklearn.adaboost", "sklearn.encoder", "sklearn.search", "_objective.exact"]


def test_a_fit_imports_only_what_it_needs():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert "jboost.sklearn.classifier" in imported
    assert not imported & {"optax", "matplotlib", *(f"jboost.{name}" for name in LATER)}


@pytest.mark.parametrize("package", [jboost, jboost.sklearn])
def test_every_public_name_is_found_and_others_are_not(package):
    for name in package.__all__:
        assert getattr(package, name) is vars(package)[name]  # found once, it stays
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        package.nothing  # noqa: B018
