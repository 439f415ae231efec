"""Run by tests/test_devices.py in a process of its own: fits that need all rows at once, on one device and several."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import jboost
from jboost import (
    BatchLoss,
    Exact,
    GroupLoss,
    Hyper,
    LineSearch,
    Loss,
    Newton,
    OneStep,
    PathSmoothing,
    Quantile,
    Spec,
    _devices,
    losses,
)
from jboost._runtime import programs
from jboost.boosting import chunks, preparing

N = 1920  # of which a fit makes 2112 rows: a number that 2 and 4 divide
rng = np.random.default_rng(0)
X = rng.normal(size=(2 * N, 5)).astype(np.float32)
Y = np.round(np.sin(2 * X[:, 1]) * X[:, 2] + X[:, 0] + 0.3 * rng.normal(size=2 * N), 1).astype(np.float32)
WEIGHT = (np.arange(2 * N) % 4).astype(np.float32)
GROUPS = np.repeat(np.arange(N), rng.choice([9, 40], N))[
    : 2 * N
]  # the diagonal is exact for 9 rows, not for 40
GROUPS[:N] = rng.permutation(GROUPS[:N])  # which do not lie side by side
PRESENT = np.where(WEIGHT > 0, WEIGHT, 1)
DATA = jboost.bin_features(X[:N], max_bins=31)
VALID = jboost.bin_features(X[N:], edges=DATA.edges)
sizes: list[int] = []


def use_devices(count):
    """Divide rows among so many, however few rows there are."""

    def mesh_for(n_rows):
        size = max(c for c in range(1, count + 1) if n_rows % c == 0)
        sizes.append(size)
        return Mesh(np.array(jax.devices()[:size]), (_devices.AXIS,)) if size > 1 else None

    _devices.mesh_for = preparing.mesh_for = mesh_for
    for key in programs_of_rounds():
        del programs._kept[key]


def programs_of_rounds():
    return [key for key in programs._kept if key[0] is chunks.run_chunk.__wrapped__]


def pairwise(score, y, mask):
    pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
    return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))


def likelihood(score, y, weight):
    """Breslow's partial likelihood, its sums made by a loop that starts from a constant."""
    order = jnp.argsort(-y, stable=True)

    def at_risk(total, row):
        total = total + weight[row] * jnp.exp(score[row])
        return total, total

    _, sums = jax.lax.scan(at_risk, 0.0, order)
    return jnp.sum(weight[order] * (jnp.log(sums) - score[order]))


def looped(score, y):
    return jax.lax.scan(lambda total, _: (total + (score - y) ** 2, None), 0.0, None, length=2)[0]


def tail(score, y):
    return jnp.exp(score) - jnp.abs(y) * score


M_TREEBOOST = dataclasses.replace(
    losses.huber(centred=False), leaf=OneStep(Quantile(0.5), hessian="first_order")
)


def steepest(key, g, h, weight):
    size = jnp.abs(g).sum(axis=1) * weight
    return weight * ((size >= jnp.quantile(size, 0.7)) | (jax.random.uniform(key, size.shape) < 0.2))


def fit(loss, *, policy: Any = "symmetric", hyper=Hyper(), groups=True, weight=WEIGHT, **options):
    # Each level is compiled; test_devices.py has deeper trees.
    spec = Spec(n_estimators=4, max_depth=1 if policy == "symmetric" else 2, grow_policy=policy)
    valid = (VALID, Y[N:], weight[N:], None, GROUPS[N:] if groups else None)
    model, history = jboost.fit(
        loss, DATA, Y[:N], spec=spec, hyper=hyper, sample_weight=weight[:N], key=jax.random.key(3), valid=valid,
        groups=GROUPS[:N] if groups else None, **options,
    )  # fmt: skip
    return model, history


def held_out():
    estimator = jboost.JBoostRegressor(
        GroupLoss(pairwise, leaf=Newton(2)),
        n_estimators=3,
        max_depth=2,
        grow_policy="depthwise",
        subsample=0.5,
        min_child_weight=0.01,
        early_stopping=True,
        validation_fraction=0.33,
        random_state=0,
    ).fit(X[:N], Y[:N], groups=GROUPS[:N])
    return estimator.model_, estimator.history_


half = Hyper(subsample=0.5, min_child_weight=0.01)
CASES = {
    "group": lambda: fit(GroupLoss(pairwise), hyper=half),
    "held out": held_out,
    "batch, sampler": lambda: fit(
        BatchLoss(likelihood), groups=False, weight=PRESENT, sampler=steepest, policy="depthwise"
    ),
    "rows in groups, leaf rule": lambda: fit(Loss(looped, leaf=Quantile(0.3)), hyper=half),
    "newton search": lambda: fit(Loss(tail, leaf=Exact()), groups=False),
    "golden section": lambda: fit(Loss(tail, hessian="first_order", leaf=Exact()), groups=False),
    "line search": lambda: fit(GroupLoss(pairwise, hessian="first_order", leaf=LineSearch("newton"))),
    "median and a step": lambda: fit(M_TREEBOOST, groups=False, hyper=half),
    "smoothed path": lambda: fit(Loss(tail, leaf=PathSmoothing(9.0)), groups=False, policy="depthwise"),
}


def main(names):
    for name in names:
        found = {}
        for count in (1, 2 if name == "group" else 4):
            use_devices(count)
            found[count] = CASES[name]()
            assert sizes[-1] == count, (name, count, sizes)
            # The second chunk takes what the first returns.
            assert len(programs_of_rounds()) == 1, (name, count)
        (alone, history), (model, other) = found.values()
        assert len(np.unique(alone.leaf_value)) > 6, name
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(model), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        np.testing.assert_array_equal(history.valid_metric, other.valid_metric, err_msg=name)
        train = history.train_loss, other.train_loss  # a plain sum
        np.testing.assert_allclose(*train, rtol=1e-5, err_msg=name)
        sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
