"""The comparison on other shapes: every kind of data is made and fitted by every library, and the table is right."""

from __future__ import annotations

import numpy as np
import pytest

from experiments import shapes
from experiments.benchmark import machine

KINDS = [
    "wide",
    "5 classes",
    "quantile",
    "squared error",
    "missing values",
    "half the rows and columns",
    "categories",
]


# The way of growth has nothing to do with the kind of data.
PAIRS = [(name, library) for name in KINDS for library in shapes.LIBRARIES if library != "jboost-depthwise"]
PAIRS += [(name, "jboost-depthwise") for name in ("5 classes", "categories")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "library"), PAIRS)
def test_every_kind_is_fitted(name, library, monkeypatch):
    if not machine.is_installed(library):
        pytest.skip(f"{library} is not installed")
    small = shapes.SHAPES[name]._replace(rows=300, features=6, depth=2, bins=15, trees=2)
    monkeypatch.setitem(shapes.SHAPES, name, small)
    found = shapes.measure(name, library)
    assert found["ms_per_tree"] > 0
    assert found["first_seconds"] >= 0


def test_data_are_as_the_shape_says():
    for name, shape in shapes.SHAPES.items():
        X, y = shapes.make_data(shape._replace(rows=500, features=10))
        assert np.isnan(X).any() == (shape.special == "missing"), name
        assert len(np.unique(y)) == {"binary": 2, "real": 500, "quantile": 500}.get(
            shape.target, 10 if "10" in name else 5
        )
        assert (np.mean(X == 0) > 0.9) == (shape.special == "zeros")
        for j in shapes.categorical(shape._replace(features=10)):
            assert (X[:, j] == np.floor(X[:, j])).all()


def test_a_line_has_the_ratio_to_the_faster_peer():
    times = {"jboost": 2.0, "jboost-depthwise": 3.0, "xgboost": 8.0, "lightgbm": 4.0}
    figures = {library: {"ms_per_tree": ms} for library, ms in times.items()}
    assert shapes.line("wide", figures) == "| wide | 2.00 | 3.00 | 8.00 | 4.00 | 0.50 |"
    del figures["xgboost"], figures["lightgbm"]
    assert shapes.line("wide", figures) == "| wide | 2.00 | 3.00 | - | - | - |"
