"""The loop by hand: equal to `fit`, under jit, scan, vmap and grad, and beside steps of an optimiser."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial

import jboost
from jboost import Hyper, Spec, losses
from jboost.boosting import finish, init, step
from tests.twin import assert_same_models, problem

SMALL = Spec(n_estimators=3, max_depth=2)


def arguments():
    rows = problem("plain")
    return losses.logistic, rows.data, rows.targets["binary"]


def same_bits(one, other):
    jax.tree.map(
        np.testing.assert_array_equal,
        (one.base, one.trees, one.leaf_value),
        (other.base, other.trees, other.leaf_value),
    )


def test_rounds_by_hand_are_those_of_fit():
    rows = problem("plain")
    options = {"spec": SMALL, "hyper": Hyper(subsample=0.7, colsample_bylevel=0.6), "key": jax.random.key(4)}
    valid = (rows.X[:100], rows.targets["binary"][:100])
    expected, history = jboost.fit(*arguments(), valid=valid, **options)
    data, state = init(*arguments(), valid=valid, **options)
    compiled, rounds = jax.jit(step), []
    for _ in range(3):
        state, one = compiled(data, state)
        rounds.append(one)
    same_bits(finish(data, rounds), expected)
    assert int(state.round) == 3
    np.testing.assert_array_equal([one.valid_metric for one in rounds], history.valid_metric)
    np.testing.assert_allclose([one.train_loss for one in rounds][1:], history.train_loss[:-1], rtol=1e-6)


def test_a_scan_of_rounds_and_more_after_it():
    data, state = init(*arguments(), spec=SMALL)
    run = jax.jit(lambda data, state: jax.lax.scan(lambda s, _: step(data, s), state, length=2))
    middle, first = run(data, state)
    _, second = run(data, middle)
    both = jax.tree.map(lambda *parts: jnp.concatenate(parts), first, second)
    expected, _ = jboost.fit(*arguments(), spec=dataclasses.replace(SMALL, n_estimators=4))
    same_bits(finish(data, both), expected)


def test_inside_a_transformation(x64):
    def risk(learning_rate):
        data, state = init(*arguments(), spec=SMALL, hyper=Hyper(learning_rate=learning_rate))
        rounds = []
        for _ in range(2):
            state, one = step(data, state)
            rounds.append(one)
        return jboost.predict(finish(data, rounds), problem("plain").data).sum()

    alone = jax.jit(jax.value_and_grad(risk))  # operation by operation it would be 500 programs
    small = 1e-6
    slope = (alone(0.3 + small)[0] - alone(0.3 - small)[0]) / (2 * small)
    np.testing.assert_allclose(alone(0.3)[1], slope, rtol=1e-5)
    together = jax.jit(jax.vmap(risk))(jnp.array([0.1, 0.3]))
    np.testing.assert_allclose(together, [alone(0.1)[0], alone(0.3)[0]], rtol=1e-9)


@pytest.mark.slow
def test_rounds_alternate_with_optax_steps_on_the_loss(x64):
    """The log scale of a normal distribution beside its mean: found by gradient steps between the rounds."""
    rows = problem("plain")
    y = jnp.asarray(rows.targets["real"])

    def normal(score, y, *, log_scale):  # its negative log-likelihood, but for a constant
        return 0.5 * ((y - score) * jnp.exp(-log_scale)) ** 2 + log_scale

    data, state = init(Partial(normal, log_scale=0.0), rows.data, y, spec=SMALL)
    optimizer = optax.adam(0.1)

    @jax.jit
    def alternate(data, state, log_scale, memory):
        loss = dataclasses.replace(data.loss, function=Partial(normal, log_scale=log_scale))
        data = dataclasses.replace(data, loss=loss)
        state, one = step(data, state)

        def risk(log_scale):
            return jnp.mean(normal(state.score[: y.size, 0], y, log_scale=log_scale))

        updates, memory = optimizer.update(jax.grad(risk)(log_scale), memory)
        return state, one, optax.apply_updates(log_scale, updates), memory

    log_scale, rounds = jnp.zeros(()), []
    memory = optimizer.init(log_scale)
    for _ in range(60):
        state, one, log_scale, memory = alternate(data, state, log_scale, memory)
        rounds.append(one)
    residual = np.asarray(y - jboost.predict(finish(data, rounds), rows.data))
    np.testing.assert_allclose(np.exp(log_scale), residual.std(), rtol=0.1)
    assert residual.std() < 0.8 * np.asarray(y).std()


def test_a_model_is_continued_by_hand():
    first, _ = jboost.fit(*arguments(), spec=SMALL)
    data, state = init(*arguments(), spec=SMALL, init_model=first)
    _, one = jax.jit(step)(data, state)
    longer, _ = jboost.fit(*arguments(), spec=dataclasses.replace(SMALL, n_estimators=4))
    same_bits(jboost.concatenate(first, finish(data, [one])), longer)


def test_an_offset_is_where_the_scores_start(x64):
    """Poisson counts with an exposure: rates with the exposures as weights, to the last digits."""
    rows = problem("plain")
    count, exposure = rows.targets["count"], rows.weight
    offset = np.log(exposure)
    valid = (rows.X[:90], count[:90], None, offset[:90])
    spec = dataclasses.replace(SMALL, penalties="absolute")  # an average row is not the same in both
    model, history = jboost.fit(losses.poisson, rows.data, count, spec=spec, offset=offset, valid=valid)
    rates, _ = jboost.fit(losses.poisson, rows.data, count / exposure, spec=spec, sample_weight=exposure)
    assert_same_models(model, rates, rtol=1e-8)
    score = np.asarray(jboost.predict(model, rows.X)) + offset
    np.testing.assert_allclose(history.train_loss[-1], np.mean(np.exp(score) - count * score), rtol=1e-6)
    early = score[:90]
    np.testing.assert_allclose(
        history.valid_metric[-1], np.mean(np.exp(early) - count[:90] * early), rtol=1e-6
    )
    np.testing.assert_allclose(jboost.predict(model, rows.X, offset=offset), score, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [losses.squared_error, losses.absolute_error], ids=lambda loss: loss.name)
def test_an_offset_moves_the_target(loss, x64):
    rows = problem("plain")
    y, offset = rows.targets["real"], np.sin(np.arange(400.0))
    moved, _ = jboost.fit(loss, rows.data, y - offset, spec=SMALL)
    model, _ = jboost.fit(loss, rows.data, y, spec=SMALL, offset=offset)
    assert_same_models(model, moved, rtol=1e-8)


@pytest.mark.slow
def test_offsets_of_several_outputs_and_of_a_continued_model(x64):
    rows = problem("plain")
    y, offset = rows.targets["pair"], np.random.default_rng(0).normal(size=(400, 2))
    moved, _ = jboost.fit(losses.squared_error, rows.data, y - offset, spec=SMALL)
    half = dataclasses.replace(SMALL, n_estimators=1)
    first, _ = jboost.fit(losses.squared_error, rows.data, y, spec=half, offset=offset)
    rest = dataclasses.replace(SMALL, n_estimators=2)
    model, _ = jboost.fit(losses.squared_error, rows.data, y, spec=rest, offset=offset, init_model=first)
    assert_same_models(model, moved, rtol=1e-8)


def test_a_continued_fit_with_an_offset_is_the_longer_one_bit_for_bit():
    offset = np.random.default_rng(1).normal(size=400).astype(np.float32)
    longer, _ = jboost.fit(*arguments(), spec=SMALL, offset=offset)
    first, _ = jboost.fit(*arguments(), spec=dataclasses.replace(SMALL, n_estimators=1), offset=offset)
    rest = dataclasses.replace(SMALL, n_estimators=2)
    model, _ = jboost.fit(*arguments(), spec=rest, offset=offset, init_model=first)
    same_bits(model, longer)


@pytest.mark.parametrize(
    ("offset", "error", "message"),
    [
        (np.zeros(399), ValueError, r"offset must have shape \(400,\) or \(400, 1\), got \(399,\)"),
        (np.full(400, np.inf), ValueError, "offset must be finite in float32, got inf in row 0"),
        (np.array(["a"] * 400), TypeError, "offset must hold real numbers"),
    ],
)
def test_wrong_offsets_are_named(offset, error, message):
    with pytest.raises(error, match=message):
        jboost.fit(*arguments(), spec=SMALL, offset=offset)


def test_step_and_finish_take_what_init_and_step_give():
    given: Any = init(*arguments(), spec=SMALL)
    data, state = given
    with pytest.raises(ValueError, match="rounds must hold at least one round"):
        finish(data, [])
    with pytest.raises(
        TypeError, match="rounds must be a Round, or a sequence of them as step returns them, got State"
    ):
        finish(data, state)
    with pytest.raises(
        TypeError, match="must be a Problem and a State, as init returns them, got State and Problem"
    ):
        step(state, data)
