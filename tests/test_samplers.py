"""Samplers of the user's: GOSS and MVS in a few lines each, held against their definitions."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Spec, losses
from tests.twin import assert_same_models, problem

SMALL = Spec(n_estimators=3, max_depth=2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Goss:
    """Gradient-based one-side sampling: Ke et al. (2017), algorithm 2. All rows with large gradients, some others."""

    top: Any = 0.2
    other: Any = 0.1

    def __call__(self, key, g, h, weight):
        size = jnp.abs(g).sum(axis=1) * weight
        is_top = size >= jnp.quantile(size, 1 - self.top)
        drawn = jax.random.uniform(key, weight.shape) < self.other / (1 - self.top)
        return weight * jnp.where(is_top, 1.0, jnp.where(drawn, (1 - self.top) / self.other, 0.0))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Mvs:
    """Minimal variance sampling: Ibragimov and Gusev (2019), theorem 1: weight 1 / p, p = min(1, size / threshold)."""

    share: Any = 0.3
    penalty: Any = 1.0

    def __call__(self, key, g, h, weight):
        size = jnp.sqrt(jnp.sum(g**2 + self.penalty * h**2, axis=1)) * (weight > 0)

        def halve(_, bounds):
            middle = bounds.mean()
            too_many = jnp.minimum(1.0, size / middle).sum() > self.share * (weight > 0).sum()
            return jnp.where(too_many, bounds.at[0].set(middle), bounds.at[1].set(middle))

        threshold = jax.lax.fori_loop(0, 40, halve, jnp.array([0.0, size.sum()], size.dtype))[1]
        p = jnp.minimum(1.0, size / threshold)
        return jnp.where(jax.random.uniform(key, p.shape) < p, weight / jnp.maximum(p, 1e-12), 0.0)


def fit(sampler: Any = None, **options: Any) -> Any:
    rows = problem("plain")
    return jboost.fit(
        losses.logistic, rows.data, rows.targets["binary"], spec=SMALL, sampler=sampler, **options
    )


def drawn(sampler, g, h, weight, times=400):
    keys = jax.random.split(jax.random.key(0), times)
    return np.asarray(jax.jit(jax.vmap(sampler, (0, None, None, None)))(keys, g, h, weight))


def test_goss_and_mvs_estimate_the_sums_of_all_rows(rng):
    g = jnp.asarray(rng.standard_t(3, (500, 1)), jnp.float32)
    h, weight = jnp.ones_like(g), jnp.asarray(rng.uniform(0.5, 2, 500), jnp.float32)
    everyone = float((g[:, 0] * weight).sum())
    for sampler, share in ((Goss(), 0.3), (Mvs(), 0.3)):
        weights = drawn(sampler, g, h, weight)
        np.testing.assert_allclose((weights > 0).mean(), share, atol=0.01)
        sums = weights @ np.asarray(g[:, 0])
        assert abs(sums.mean() - everyone) < 4 * sums.std() / np.sqrt(len(sums))  # unbiased
        uniform = np.asarray(rng.random(weights.shape) < share) * np.asarray(weight) / share
        assert sums.std() < (uniform @ np.asarray(g[:, 0])).std()  # and better than rows drawn alike
    is_top = np.abs(g[:, 0]) * weight >= np.quantile(np.abs(g[:, 0]) * weight, 0.8)
    assert (drawn(Goss(), g, h, weight, 3)[:, is_top] == np.asarray(weight)[is_top]).all()


@pytest.mark.parametrize(
    "sampler", [Goss(), pytest.param(Mvs(), marks=pytest.mark.slow)], ids=["goss", "mvs"]
)
def test_a_fit_draws_its_rows_by_it(sampler):
    model, history = fit(sampler)
    everyone, _ = fit()
    assert not np.array_equal(model.leaf_value, everyone.leaf_value)
    assert history.train_loss[-1] < history.train_loss[0]
    np.testing.assert_array_equal(fit(sampler)[0].leaf_value, model.leaf_value)  # by the key, nothing else


def test_a_sampler_sees_unweighted_derivatives_and_its_weights_are_used(x64):
    """Doubling by the sampler is doubling the weights."""
    rows = problem("plain")
    base = jnp.asarray(rows.weight)

    def twice(key, g, h, weight):
        return jnp.where(h[:, 0] > 0, 2.0, 0.0) * weight

    expected, _ = fit(sample_weight=2 * base)
    assert_same_models(fit(twice, sample_weight=base)[0], expected, rtol=1e-9)

    def odd(key, g, h, weight):
        return jnp.where(jnp.arange(weight.size) % 2 == 1, weight, 0.0)

    given = jnp.where(jnp.arange(400) % 2 == 1, base, 0.0)
    data, y = rows.data, rows.targets["binary"]
    model = jboost.fit(losses.squared_error, data, y, spec=SMALL, sampler=odd, sample_weight=base)[0]
    half = jboost.fit(losses.squared_error, data, y, spec=SMALL, sample_weight=given)[0]
    np.testing.assert_array_equal(model.trees.feature[0], half.trees.feature[0])
    assert model.base != half.base  # the base score is that of all rows


@pytest.mark.slow
def test_parameters_of_a_sampler_are_operands(x64):
    shares = jnp.array([0.1, 0.5])
    sweep = jax.jit(jax.vmap(lambda share: fit(Mvs(share))[0].leaf_value))  # or each operation is a program
    swept = sweep(shares)
    for one, share in zip(swept, shares, strict=True):
        np.testing.assert_allclose(one, fit(Mvs(float(share)))[0].leaf_value, rtol=1e-9, atol=1e-12)


def test_wrong_samplers_are_refused():
    with pytest.raises(TypeError, match=r"got 'goss': give jboost.samplers.goss\(...\)$"):
        fit("goss")
    with pytest.raises(ValueError, match=r"hyper.subsample must be 1 beside a sampler"):
        fit(Goss(), hyper=Hyper(subsample=0.5))
