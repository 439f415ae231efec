"""Losses and metrics with parameters: operands of one program, through which vmap and grad go."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import jboost
from jboost import Hyper, Loss, Spec, losses, metrics, samplers
from jboost._runtime import programs
from jboost._runtime.parametrised import parametrised
from tests.twin import problem

SMALL = Spec(n_estimators=3, max_depth=2)


def fit(loss: Any, **options: Any) -> Any:
    rows = problem("plain")
    return jboost.fit(loss, rows.data, rows.targets["real"], spec=SMALL, **options)


def asymmetric(score, y, *, up):
    return jnp.where(y > score, up, 1.0) * (y - score) ** 2


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Module:
    """As an Equinox module is one: arrays, a function and a whole number among its fields."""

    weight: Any
    activation: Any
    size: int

    def __call__(self, score, y):
        knots = jnp.arange(self.size, dtype=score.dtype)
        return (score - y) ** 2 + 0.01 * jnp.sum(self.activation(self.weight * (score - knots)))


@pytest.mark.parametrize(
    ("make", "values"),
    [
        pytest.param(losses.huber, (0.5, 2.0), marks=pytest.mark.slow),
        pytest.param(losses.pseudo_huber, (0.5, 2.0), marks=pytest.mark.slow),
        (losses.quantile, (0.1, 0.8)),
        pytest.param(lambda up: Partial(asymmetric, up=up), (2.0, 4.0), marks=pytest.mark.slow),
        (lambda up: Loss(Partial(asymmetric, up=up), name=f"up={up}"), (2.0, 4.0)),
        (lambda w: Module(jnp.full(3, w), jnp.tanh, 3), (1.0, -2.0)),
    ],
    ids=["huber", "pseudo_huber", "quantile", "partial", "loss of a partial", "module"],
)
def test_another_parameter_compiles_nothing_and_counts(own_programs, make, values):
    first, _ = fit(make(values[0]))
    n_programs = programs.n_programs()
    assert n_programs >= 2
    second, _ = fit(make(values[1]))
    assert programs.n_programs() == n_programs
    assert not np.array_equal(first.leaf_value, second.leaf_value)
    again, _ = fit(make(values[0]))
    np.testing.assert_array_equal(again.leaf_value, first.leaf_value)


def test_a_parameter_of_a_metric_compiles_nothing(own_programs):
    rows = problem("plain")
    valid = (rows.X, rows.targets["real"])
    _, first = fit(losses.squared_error, valid=valid, metric=metrics.pinball_loss(0.1))
    n_programs = programs.n_programs()
    model, second = fit(losses.squared_error, valid=valid, metric=metrics.pinball_loss(0.9))
    assert programs.n_programs() <= n_programs + 1  # that of the prediction
    residual = valid[1] - np.asarray(jboost.predict(model, rows.X))
    np.testing.assert_allclose(
        second.valid_metric[-1], np.maximum(0.9 * residual, -0.1 * residual).mean(), rtol=1e-5
    )
    assert not np.allclose(first.valid_metric, second.valid_metric)


@pytest.mark.slow
def test_a_sweep_over_a_parameter_is_one_program(x64):
    deltas = jnp.array([0.2, 1.0, 5.0])
    swept = jax.jit(jax.vmap(lambda delta: fit(losses.huber(delta))[0].leaf_value))(deltas)
    for one, delta in zip(swept, deltas, strict=True):
        np.testing.assert_allclose(one, fit(losses.huber(float(delta)))[0].leaf_value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(losses.pseudo_huber, marks=pytest.mark.slow),
        pytest.param(losses.huber, marks=pytest.mark.slow),
        lambda up: Partial(asymmetric, up=up),
    ],
    ids=["pseudo_huber", "huber", "own"],
)
def test_the_derivative_by_a_parameter_is_that_of_finite_differences(make, x64):
    """Of the sum of the first leaf values: the splits of one tree stay as they are under a small change."""
    rows = problem("plain")

    @jax.jit  # one program for values and slopes
    @jax.value_and_grad
    def total(value):
        model, _ = fit(make(value), hyper=Hyper(learning_rate=0.7))
        return jnp.sum(jnp.sin(jboost.predict(model, rows.data)))

    step = 1e-5
    slope = (total(1.3 + step)[0] - total(1.3 - step)[0]) / (2 * step)
    np.testing.assert_allclose(total(1.3)[1], slope, rtol=1e-5)


@pytest.mark.slow
def test_a_closure_over_traced_values_goes_on_working(x64):
    def total(up):
        return fit(lambda score, y: asymmetric(score, y, up=up))[0].leaf_value.sum()

    explicit = jax.jit(jax.grad(lambda up: fit(Partial(asymmetric, up=up))[0].leaf_value.sum()))(3.0)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(3.0), explicit, rtol=1e-10)


def test_callables_are_taken_apart_and_put_together():
    module = Module(np.ones(3), jnp.tanh, 3)
    parts = parametrised(module)
    assert len(parts.numbers) == 1
    assert parts.code == parametrised(Module(np.zeros(3), jnp.tanh, 3)).code
    assert parts.code != parametrised(Module(np.zeros(3), jnp.sin, 3)).code
    assert parts.code != parametrised(Module(np.zeros(3), jnp.tanh, 2)).code
    axes = jax.tree.map(lambda _: 0, parts)  # as vmap makes them: numbers may be anything then
    assert jax.tree.structure(axes) == jax.tree.structure(parts)
    assert parametrised(partial(asymmetric, up=2.0)).numbers == ()  # all code, as JAX has it
    np.testing.assert_allclose(
        jax.jit(lambda f: f(jnp.asarray(1.0), 2.0))(parts), module(jnp.asarray(1.0), 2.0), rtol=1e-6
    )


def test_losses_compare_and_hash_by_value():
    assert losses.huber(1.0) == losses.huber(1) != losses.huber(2.0)
    assert hash(losses.huber(1.0)) == hash(losses.huber(2.0))
    assert losses.huber(1.0) != losses.pseudo_huber(1.0)
    assert losses.huber(1.0) != "huber"


def test_records_of_two_kinds_have_two_structures():
    """JAX takes those of data classes with as many fields for equal, and may then run the program of the other."""
    alike = [
        jboost.Quantile(0.5),
        jboost.PathSmoothing(0.5),
        samplers.bootstrap(0.5),
        samplers.without_replacement(0.5),
    ]
    structures = [jax.tree.structure(one) for one in alike]
    for i, one in enumerate(structures):
        assert [one == other for other in structures].count(True) == 1, alike[i]
        assert jax.tree.unflatten(one, jax.tree.leaves(alike[i])) == alike[i]
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(samplers.goss())]
    assert paths == [".top", ".other"]
