"""Rounds on two and eight CPU devices, with and without the C++ library: the same trees, leaves and scores."""

from __future__ import annotations

from pathlib import Path

import native_library
import pytest

from jboost._tree import native

ROUNDS = """
import hashlib, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh
import jboost
from jboost import Hyper, Spec, losses
from jboost.boosting.chunks import _blank, _rounds, _unpacked
from jboost import _devices
from jboost._runtime import library
from jboost._tree.engines import PLAIN
import dataclasses

# XLA adds the classes of an array of about 4096 numbers or fewer in another order than those of a larger one: each
# device has more.
N, ROUNDS = 8 * 1408, 3
rng = np.random.default_rng(0)
X = rng.normal(size=(N, 9)).astype(np.float32)
X[::5, 0], X[:, 8] = np.nan, rng.integers(0, 9, N)
signal = np.sin(2 * X[:, 1]) * X[:, 2] + np.isnan(X[:, 0]) + np.isin(X[:, 8], [1, 4, 6]) + 0.3 * rng.normal(size=N)
targets = {"logistic": (signal > 0.5).astype(np.float32), "softmax": np.digitize(signal, [0.0, 1.0])}
data = jboost.bin_features(X, max_bins=63, categorical=[8])

def arrays(result):
    after, rounds, *_ = result
    rounds = _unpacked(rounds, ROUNDS, _blank(problem, state, 1))
    return [np.asarray(a) for a in (*jax.tree.leaves(rounds.tree), rounds.leaf_value, after.score)]

drawn = {"subsample": 0.7, "colsample_bylevel": 0.6}
cases = [("logistic", "symmetric", 2, drawn, 8), ("softmax", "depthwise", 3, {}, 2)]
for name, policy, depth, hyper, count in cases:
    loss = losses.logistic if name == "logistic" else losses.softmax(3)
    y = jnp.asarray(targets[name])
    spec = Spec(max_depth=depth, grow_policy=policy, min_child_samples=5 if hyper else 1)
    weight = 1.0 + np.arange(N) % 3
    problem, state = jboost.boosting.init(
        loss, data, y, spec=spec, hyper=Hyper(**hyper), sample_weight=weight, key=jax.random.key(3))
    assert problem.train.weight.size % 8 == 0
    bins = jnp.pad(data.bins, ((0, 0), (0, problem.train.weight.size - N)))
    problem = dataclasses.replace(problem, engine=PLAIN, bins=bins)
    state = dataclasses.replace(state, score=jnp.full_like(state.score, 0.25))
    problem = dataclasses.replace(problem, edges=None, base=None)
    alone = arrays(jax.jit(_rounds)(problem, state, ROUNDS))
    assert np.count_nonzero(alone[4]) > ROUNDS and np.ptp(alone[-1]) > 0.1
    print(hashlib.sha256(b"".join(a.tobytes() for a in alone)).hexdigest())
    if library.in_use() and name == "softmax":
        continue  # with the library a fit divides no rows: that it could is shown once
    mesh = Mesh(np.array(jax.devices()[:count]), (_devices.AXIS,))
    shared = jax.jit(_devices.divided(mesh, _rounds, problem, state))(problem, state, jnp.asarray(ROUNDS))
    for one, other in zip(alone, arrays(shared), strict=True):
        np.testing.assert_array_equal(other, one, err_msg=f"{name} {policy} {hyper} on {count} devices")
"""


@pytest.mark.slow
def test_rounds_do_not_depend_on_devices_nor_on_the_library():
    """One output and three, both policies, with and without sampling; the start scores are given."""
    plain = native_library.run_script(ROUNDS, devices=8, JBOOST_NATIVE="0").split()
    assert len(set(plain)) == 2
    native_library.require(native.is_available)
    assert native_library.run_script(ROUNDS, devices=8, JBOOST_NATIVE="1").split() == plain


@pytest.mark.slow
def test_what_needs_all_rows_does_not_depend_on_devices():
    """Losses of groups and of all rows, groups drawn together, leaf rules and a sampler: the same models."""
    script = Path(__file__).with_name("devices_script.py").read_text()
    printed = native_library.run_script(script, devices=4, JBOOST_NATIVE="0")
    assert len(printed.splitlines()) == 9


OWN_TREES = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import PartitionSpec as P
from jboost import Hyper, Spec
from jboost._fixed_point import find_scale
from jboost._split import Rules
from jboost._tree import Columns, GradientPairs, arrange, choose_engine
from jboost._runtime.typing import Layout

rng = np.random.default_rng(0)
n, f, depth = 2000, 9, 2
bins = jnp.asarray(rng.integers(0, 32, (f, n)).astype(np.uint8))
pairs = np.stack([rng.normal(size=(8, n)) + (bins[2] > 9), rng.uniform(0.1, 1, (8, n))], axis=-1)
pairs = jnp.asarray(pairs, jnp.float32)
active, allowed = jnp.asarray(rng.random(n) < 0.8), jnp.ones((depth, f), bool)
mesh = jax.make_mesh((8,), ("trees",), axis_types=(jax.sharding.AxisType.Auto,))

for policy in ("symmetric", "depthwise"):
    spec = Spec(max_depth=depth, grow_policy=policy)

    def grow(pairs, bins, active, allowed):
        pairs = jnp.where(active[:, None], pairs, 0)
        scale, derivatives = find_scale(pairs).factor, GradientPairs(pairs[:, :1], pairs[:, 1:])
        rules = Rules(jax.tree.map(jnp.float32, Hyper()), scale, spec)
        engine = choose_engine(spec)
        columns = Columns(arrange(engine, bins), allowed, Layout(32, True, (5,), 32))
        return engine.grow(columns, derivatives, active, rules)

    def on_a_device(pairs, *shared):  # its own gradients; bins and rows are those of all
        return jax.tree.map(lambda x: x[None], grow(pairs[0], *shared))

    every = jax.jit(jax.shard_map(on_a_device, mesh=mesh, in_specs=(P("trees"), P(), P(), P()), out_specs=P("trees")))
    found = every(pairs, bins, active, allowed)
    grow = jax.jit(grow)
    for i in range(8):
        expected = grow(pairs[i], bins, active, allowed)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[i], b), found, expected)
    assert len(np.unique(np.asarray(found[0].gain), axis=0)) == 8
print("same")
"""


@pytest.mark.parametrize(
    "with_library", [pytest.param("0", marks=pytest.mark.slow), "1"], ids=["plain", "native"]
)
def test_each_device_grows_its_own_tree(with_library):
    if with_library == "1":
        native_library.require(native.is_available)
    assert native_library.run_script(OWN_TREES, devices=8, JBOOST_NATIVE=with_library) == "same"
