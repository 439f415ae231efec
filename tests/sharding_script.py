"""Run by tests/test_inside.py on eight CPU devices: a fit under jit of rows that are divided among them."""

from __future__ import annotations

import dataclasses
import re
import sys

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jboost

N = 8 * 1408
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 6)).astype(np.float32)
X[::5, 0] = np.nan
SIGNAL = np.sin(2 * X[:, 1]) * X[:, 2] + np.isnan(X[:, 0]) + X[:, 3]
Y = (SIGNAL + 0.3 * rng.normal(size=N)).astype(np.float32)
DATA = jboost.bin_features(X, max_bins=63)


def divided(mesh):
    """Lay out rows over the devices of a mesh: columns of codes [f n], targets [n]."""
    bins = jax.device_put(DATA.bins, NamedSharding(mesh, P(None, "rows")))
    return dataclasses.replace(DATA, bins=bins), jax.device_put(Y, NamedSharding(mesh, P("rows")))


def fit(data, y):
    spec = jboost.Spec(n_estimators=3, max_depth=2, grow_policy="depthwise")
    return jboost.fit(jboost.losses.squared_error, data, y, spec=spec, hyper=jboost.Hyper(subsample=0.7))


def same(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def sent(program):
    """Name the ways in which devices send each other arrays."""
    return set(re.findall(r" (all-\w+|collective-\w+|reduce-scatter)\(", program.as_text()))


def refused(name, function, *arguments):
    with pytest.raises(ValueError, match=f"^{name} must not be divided over an explicit axis"):
        jax.jit(function)(*arguments)


def main():
    assert len(jax.devices()) == 8
    mesh = jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Auto,))
    alone, history = jax.jit(fit)(DATA, Y)
    assert len(np.unique(np.asarray(alone.trees.feature))) > 1
    for plain in (True, False):
        with jboost.plain_jax(plain):  # holds for what is traced in here
            program = jax.jit(lambda data, y: fit(data, y)).lower(*divided(mesh)).compile()
        model, other = program(*divided(mesh))
        same(alone, model)
        np.testing.assert_allclose(history.train_loss, other.train_loss, rtol=1e-5)  # a plain sum
        if plain:
            assert "all-reduce" in sent(program)
            assert "all-gather" not in sent(program)  # sums alone

    def score(rows):
        return jboost.predict(alone, rows)

    rows = jax.device_put(X, NamedSharding(mesh, P("rows")))
    program = jax.jit(score).lower(rows).compile()
    assert not sent(program)  # each device scores its own
    np.testing.assert_array_equal(program(rows), jboost.predict(alone, X))

    explicit = jax.make_mesh((8,), ("rows",), axis_types=(AxisType.Explicit,))
    rows = jax.device_put(X, NamedSharding(explicit, P("rows")))
    refused("data", fit, *divided(explicit))
    refused("X", score, rows)
    whole = NamedSharding(explicit, P())
    same(alone, jax.jit(jax.sharding.auto_axes(fit, out_sharding=whole))(*divided(explicit))[0])
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
