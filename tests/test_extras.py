"""What is said where a package that only some features need is not installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jboost
from jboost import losses, plotting
from jboost.differentiable.optimizers import import_optax
from jboost.differentiable.plotting import plot_tuned
from jboost.distributions.plotting import plot_pit
from jboost.tuning.plotting import plot_sweep

X = np.arange(12.0)[:, None]


NOTHING: Any = SimpleNamespace(name="risk", risk=np.ones(2), values={}, best=0)


def boost_networks() -> None:
    jboost.boost(losses.squared_error, jboost.learners.SquashedLinear(), X, X[:, 0])


FEATURES: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "a network": ("optax", "differentiable", boost_networks),
    "fine-tuning": ("optax", "differentiable", import_optax),
    "a sweep": ("matplotlib.pyplot", "plot", lambda: plot_sweep(NOTHING, None, 3)),
    "tuning": ("matplotlib.pyplot", "plot", lambda: plot_tuned(NOTHING, None)),
    "calibration": ("matplotlib.pyplot", "plot", lambda: plot_pit(X[:, 0] / 12, None, 3, "normal")),
    "a history": ("matplotlib.pyplot", "plot", lambda: plotting.plot_history({"rows": {"rmse": [2.0, 1.0]}})),
}


@pytest.mark.parametrize("feature", FEATURES)
def test_it_says_what_to_install(feature, monkeypatch):
    module, extra, use = FEATURES[feature]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape(f'pip install "jboost[{extra}]"')):
        use()
