"""jboost inside other programs: derivatives through a simulator, a posterior, a network in a loss, divided rows."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import Partial
from scipy.linalg import expm

import jboost

STEP, RATE = 0.25, 0.3


def simulate(forcing, start=0.0):
    """Solve dT/dt = forcing - RATE T by Heun's method, the forcing being linear between the steps."""

    def step(room, ends):
        first = ends[0] - RATE * room
        second = ends[1] - RATE * (room + STEP * first)
        room = room + STEP * (first + second) / 2
        return room, room

    room = jnp.full(1, start, forcing.dtype)
    return jnp.concatenate([room, jax.lax.scan(step, room[0], (forcing[:-1], forcing[1:]))[1]])


def misfit(forcing, y, weight):
    return 0.5 * jnp.sum(weight * (simulate(forcing) - y) ** 2)


def row_sums(forcing, y, weight):
    tangent = jax.jvp(simulate, (forcing,), (jnp.ones_like(forcing),))[1]
    return jax.vjp(simulate, forcing)[1](weight * tangent)[0]


def curved(forcing):
    """Solve with a loss of heat that is not linear."""

    def step(room, u):
        room = room + STEP * (u - RATE * room - 0.1 * jnp.abs(room) * room)
        return room, room

    return jax.lax.scan(step, jnp.zeros((), forcing.dtype), forcing)[1]


def test_a_solution_is_that_of_the_matrix_exponential():
    # With z = (T, u, u'), a forcing that is linear in time is a linear equation.
    matrix = np.array([[-RATE, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    times = STEP * np.arange(20)
    exact = [(expm(matrix * t) @ [0.0, 1.0, 0.5])[0] for t in times]
    found = simulate(jnp.asarray(1.0 + 0.5 * times, jnp.float32))
    np.testing.assert_allclose(found, exact, rtol=5e-3, atol=1e-6)


def test_derivatives_through_a_simulator_are_differences_and_row_sums_bound_the_hessian():
    rng = np.random.default_rng(0)
    n = 24
    with jax.enable_x64(True):
        forcing, y, weight = (jnp.asarray(rng.uniform(0.5, 2, n)) for _ in range(3))

        def nonlinear(forcing):
            return 0.5 * jnp.sum(weight * (curved(forcing) - y) ** 2)

        g, value = jax.jit(jax.grad(nonlinear))(forcing), jax.jit(nonlinear)
        eps = 1e-5
        for i in (0, 7, n - 1):
            move = eps * np.eye(n)[i]
            slope = (value(forcing + move) - value(forcing - move)) / (2 * eps)
            np.testing.assert_allclose(g[i], slope, rtol=1e-6, atol=1e-9)

        hessian = np.asarray(jax.jit(jax.hessian(misfit))(forcing, y, weight))
        sums = np.asarray(jax.jit(row_sums)(forcing, y, weight))
        assert (hessian >= 0).all()
        np.testing.assert_allclose(sums, hessian.sum(axis=1), rtol=1e-10, atol=1e-12)
        assert np.linalg.eigvalsh(np.diag(sums) - hessian).min() > -1e-10


def test_a_step_that_is_the_same_for_all_rows_is_exact():
    """One leaf, the learning rate 1 and no penalty: the best constant forcing, by least squares."""
    rng = np.random.default_rng(1)
    n = 40
    y = np.asarray(simulate(jnp.asarray(rng.uniform(0, 2, n), jnp.float32)))
    loss = jboost.BatchLoss(misfit, curvature=row_sums)
    hyper = jboost.Hyper(learning_rate=1.0, reg_lambda=0.0)
    model, _ = jboost.fit(
        loss, np.zeros((n, 1)), y, spec=jboost.Spec(n_estimators=1, max_depth=1), hyper=hyper, base_score=0.0
    )
    response = np.asarray(simulate(jnp.ones(n)))
    np.testing.assert_allclose(
        jboost.predict(model, np.zeros((1, 1)))[0], response @ y / (response @ response), rtol=1e-4
    )


@pytest.mark.slow
def test_a_posterior_over_the_weight_of_trees_is_the_conjugate_one():
    """A normal prior of a factor, a known noise: the posterior is normal, with a mean and deviation in closed form."""
    import numpyro  # takes a second, for one test

    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (80, 2))
    y, noise = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=80), 0.5
    model, _ = jboost.fit(
        jboost.losses.squared_error, X[:40], y[:40], spec=jboost.Spec(n_estimators=10, max_depth=2)
    )
    data = jboost.bin_features(X[40:], edges=model.edges)

    def program(data, y):
        factor = numpyro.sample("factor", numpyro.distributions.Normal(1.0, 2.0))
        weighted = dataclasses.replace(model, tree_weight=factor * model.tree_weight)
        numpyro.sample("y", numpyro.distributions.Normal(jboost.predict(weighted, data), noise), obs=y)

    kernel = numpyro.infer.NUTS(program)
    chain = numpyro.infer.MCMC(kernel, num_warmup=200, num_samples=1000, progress_bar=False)
    chain.run(jax.random.key(0), data, jnp.asarray(y[40:], jnp.float32))
    found = np.asarray(chain.get_samples()["factor"])
    f = np.asarray(jboost.predict(model, X[40:])) - float(model.base[0])
    precision = f @ f / noise**2 + 1 / 2.0**2
    mean = (f @ (y[40:] - float(model.base[0])) / noise**2 + 1.0 / 2.0**2) / precision
    deviation = precision**-0.5
    assert abs(found.mean() - mean) < 0.2 * deviation  # five errors of 600 independent draws
    assert abs(found.std() / deviation - 1) < 0.15


def linear(image, matrix):
    return matrix @ image


def with_network(score, y, *, network):
    logits = score + network(y["image"])
    return jax.nn.logsumexp(logits) - logits[y["digit"]]


@pytest.mark.slow
def test_a_network_in_the_loss_is_an_offset_of_the_scores():
    """A round at the logits of a network is a round of the softmax loss from these logits."""
    rng = np.random.default_rng(0)
    X, digit = rng.normal(size=(120, 4)).astype(np.float32), rng.integers(0, 3, 120)
    matrix = rng.normal(size=(3, 4)).astype(np.float32)
    options = {"spec": jboost.Spec(n_estimators=2, max_depth=2), "base_score": np.zeros(3)}
    loss = jboost.Loss(Partial(with_network, network=Partial(linear, matrix=matrix)), n_outputs=3)
    model, _ = jboost.fit(loss, X, {"image": X, "digit": digit}, **options)
    other, _ = jboost.fit(jboost.losses.softmax(3), X, digit, offset=X @ matrix.T, **options)
    np.testing.assert_array_equal(model.trees.feature, other.trees.feature)
    np.testing.assert_allclose(model.leaf_value, other.leaf_value, rtol=1e-3, atol=1e-5)


def test_rows_along_an_explicit_axis_are_refused_by_name():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(AxisType.Explicit,))
    X = np.arange(32.0, dtype=np.float32).reshape(16, 2)
    rows, y = (jax.device_put(array, NamedSharding(mesh, P("rows"))) for array in (X, X[:, 0]))
    spec = jboost.Spec(n_estimators=2, max_depth=2)
    model, _ = jboost.fit(jboost.losses.squared_error, rows, y, spec=spec)  # outside of jit any will do
    data = jboost.bin_features(X)

    def fit(y, weight):
        return jboost.fit(jboost.losses.squared_error, data, y, sample_weight=weight, spec=spec)

    whole = jax.device_put(y, NamedSharding(mesh, P()))
    for name, function, arguments in (
        ("y", fit, (y, whole)),
        ("sample_weight", fit, (whole, y)),
        ("X", jboost.predict, (model, rows)),
    ):
        with pytest.raises(
            ValueError, match=f"^{name} must not be divided over an explicit axis .*AxisType.Auto"
        ):
            jax.jit(function)(*arguments)


def scaled(score, y, *, factor):
    return factor * (score - y) ** 2


def test_what_stands_in_for_a_part_without_arrays_stays_a_leaf():
    """Checkpoints give names to leaves and to nodes without any, and look at the names by their paths."""
    loss = jboost.Loss(Partial(scaled, factor=2.0))
    problem, _ = jboost.boosting.init(loss, np.arange(8.0)[:, None], np.arange(8.0))

    def is_leaf(node):
        return not jax.tree.leaves(node)

    named = jax.tree.map(lambda _: "name", problem, is_leaf=is_leaf)
    assert len(jax.tree.leaves(named)) > len(jax.tree.leaves(problem))
    assert set(jax.tree.leaves(jax.tree.map(str.upper, named))) == {"NAME"}
    assert named.loss.leaf == "name"
    assert jax.tree.map(lambda part, _: part, problem, problem).loss.leaf == problem.loss.leaf


@pytest.mark.slow
def test_a_jitted_fit_of_rows_on_eight_devices_is_that_of_one():
    script = Path(__file__).with_name("sharding_script.py").read_text()
    assert native_library.run_script(script, devices=8) == "done"
