"""`jboost.differentiable.tune` and `influence`: derivatives through whole fits, by differences of plain ones."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.tree_util import Partial
from scipy import stats

import jboost
from jboost import Hyper, Spec, losses
from jboost._runtime import programs
from jboost.differentiable import influence, tune
from jboost.differentiable.risk import fitted_of, posed_for_risk
from tests.twin import problem, same_structure

SPEC = Spec(n_estimators=4, max_depth=2)
HYPER = Hyper(learning_rate=0.3, reg_lambda=1.5, reg_alpha=0.4, max_delta_step=0.9)
BY = ("learning_rate", "reg_lambda", "reg_alpha", "max_delta_step")
EVERY = (*BY, "loss", "sample_weight")
N = 300
x64 = pytest.mark.usefixtures("x64")


def asymmetric(score, y, up):
    residual = y - score
    return jnp.where(residual > 0, up, 1.0) * jnp.logaddexp(residual, -residual)


def tilted(up):
    """Give the loss with a number as `tune` makes it, so that all fits are one program."""
    return Partial(asymmetric, up=jnp.asarray(up, float))


def rows():
    """Training rows of the usual problem, and the others to be watched."""
    every = problem("plain")
    train, valid = every.take(np.arange(N)), every.take(np.arange(N, 400))
    return train, valid, every.targets["real"]


def given(**options):
    train, valid, y = rows()
    arguments: dict[str, Any] = {
        "loss": tilted(2.0),
        "data": train.data,
        "y": y[:N],
        "valid": (valid.data, y[N:]),
    }
    arguments |= {"spec": SPEC, "hyper": HYPER, "sample_weight": train.weight} | options
    return arguments


def run(function, **options):
    arguments = given(**options)
    return function(arguments.pop("loss"), arguments.pop("data"), arguments.pop("y"), **arguments)


def risk_of_a_plain_fit(**options):
    """The mean loss of the validation rows, and the model."""
    model, history = run(jboost.fit, **options)
    return float(history.valid_metric[-1]), model


def slope(change, eps=1e-5):
    """Differences of plain fits along a change of their arguments, the splits being the same."""
    (high, one), (low, other) = (risk_of_a_plain_fit(**change(sign * eps)) for sign in (1, -1))
    assert same_structure(one, other)
    return (high - low) / (2 * eps)


def logit(x):
    return np.log(x / (1 - x))


@functools.cache
def tuned():
    """Tune everything at once, in float64: what tests look at by one program."""
    return run(tune, by=EVERY, optimizer=optax.sgd(0.5, momentum=0.5), steps=4)


@x64
def test_derivatives_are_those_of_differences_of_plain_fits():
    found = tuned()

    def moved(name):
        value = getattr(HYPER, name)
        if name == "learning_rate":
            return lambda eps: {
                "hyper": dataclasses.replace(HYPER, learning_rate=1 / (1 + np.exp(-logit(value) - eps)))
            }
        return lambda eps: {"hyper": dataclasses.replace(HYPER, **{name: value * np.exp(eps)})}

    slopes = {name: slope(moved(name)) for name in BY}
    slopes["loss.up"] = slope(lambda eps: {"loss": tilted(2.0 + eps)})
    for name, expected in slopes.items():
        assert abs(expected) > 1e-6  # there is something to agree on
        np.testing.assert_allclose(found.gradient[name][0], expected, rtol=1e-5, err_msg=name)
    direction, weight = np.random.default_rng(0).normal(size=N), rows()[0].weight

    def reweighted(eps):
        new = weight * np.exp(eps * direction)
        return {"sample_weight": new * weight.sum() / new.sum()}

    derivative = found.gradient["sample_weight"][0][:N] @ direction
    np.testing.assert_allclose(derivative, slope(reweighted), rtol=1e-5)


@x64
def test_influence_is_the_derivative_by_a_weight_times_the_weight():
    found, weight = run(influence), rows()[0].weight
    assert found.shape == (N,)
    for row in (0, 17, N - 1):
        times = (np.arange(N) == row) * weight

        def heavier(eps, times=times):
            return {"sample_weight": weight + eps * times}

        expected = slope(heavier, 1e-4)
        assert abs(expected) > 1e-7
        np.testing.assert_allclose(found[row], expected, rtol=1e-4)
    without = np.where(np.arange(N) < 5, 0.0, weight)
    np.testing.assert_array_equal(run(influence, sample_weight=without)[:5], 0)


def assert_has_derivatives(risk, at):
    """Hold the derivatives of a function of named arrays against differences along one direction each."""
    told = jax.jit(jax.value_and_grad(risk))  # one program for values and slopes
    _, gradient = told(at)
    rng = np.random.default_rng(1)
    for name, value in at.items():
        direction, eps = rng.normal(size=value.shape), 1e-6
        high, low = (told(at | {name: value + sign * eps * direction})[0] for sign in (1, -1))
        derivative = np.sum(gradient[name] * direction)
        np.testing.assert_allclose(derivative, (high - low) / (2 * eps), rtol=1e-5, err_msg=name)


@x64
def test_targets_offsets_and_the_base_score_have_derivatives_through_a_fit():
    train, _, y = rows()

    def risk(at):
        options = {"base_score": at["base"], "offset": at["offset"], "sample_weight": train.weight}
        _, history = jboost.fit(losses.squared_error, train.data, at["y"], spec=SPEC, **options)
        return history.train_loss[-1]

    assert_has_derivatives(risk, {"y": y[:N], "offset": np.zeros(N), "base": np.array(0.1)})


@pytest.mark.slow
@x64
def test_an_initial_model_has_derivatives_through_a_fit():
    train, valid, y = rows()
    first, _ = jboost.fit(losses.squared_error, train.data, y[:N], spec=SPEC)

    def risk(at):
        options = {"spec": SPEC, "valid": (valid.data, y[N:]), "sample_weight": train.weight}
        initial = dataclasses.replace(first, leaf_value=at["leaf_value"])
        _, history = jboost.fit(losses.squared_error, train.data, at["y"], init_model=initial, **options)
        return history.valid_metric[-1]

    assert_has_derivatives(risk, {"y": y[:N], "leaf_value": np.asarray(first.leaf_value)})


@x64
def test_descent_is_that_of_a_loop_by_hand():
    """The places by the derivatives, which the test above knows; the risks of plain fits there."""
    found, (_, valid, y) = tuned(), rows()
    for name in BY:
        place, velocity, scale = getattr(HYPER, name), 0.0, (logit if name == "learning_rate" else np.log)
        place = scale(place)
        for value, gradient in zip(found.values[name], found.gradient[name], strict=True):
            np.testing.assert_allclose(scale(value), place, rtol=1e-7, atol=1e-9)
            velocity = gradient + 0.5 * velocity
            place = place - 0.5 * velocity
    for step, risk in enumerate(found.risk):
        at = {name: values[step] for name, values in found.values.items()}
        hyper = dataclasses.replace(HYPER, **{name: float(at[name]) for name in BY})
        options = {"hyper": hyper, "loss": tilted(at["loss.up"])}
        expected, _ = risk_of_a_plain_fit(sample_weight=at["sample_weight"][:N], **options)
        np.testing.assert_allclose(risk, expected, rtol=1e-7)
    assert found.best == np.argmin(found.risk) > 0
    assert found.hyper.learning_rate == pytest.approx(found.values["learning_rate"][found.best])
    _, history = found.fit(valid=(valid.data, y[N:]))
    np.testing.assert_allclose(history.valid_metric[-1], found.risk[found.best], rtol=1e-7)
    assert "learning_rate=" in repr(found)
    assert len(found.plot()) == 6
    with pytest.raises(TypeError, match="ax must be matplotlib axes or None, got int"):
        found.plot(3)


@x64
def test_another_start_and_other_numbers_compile_nothing():
    tuned()
    before = programs.n_programs()
    hyper = Hyper(learning_rate=0.1, gamma=0.01, reg_alpha=0.1, max_delta_step=2.0)
    run(tune, steps=2, by=EVERY, hyper=hyper, loss=tilted(3.0))
    assert programs.n_programs() == before


@pytest.mark.slow
def test_draws_average_fits_of_weights_drawn_anew():
    """Exponential ones: the mean is that of fits with such weights, one at a time."""
    found = run(influence, draws=3, key=jax.random.key(1))
    arguments = given()
    of_fit: Any = [arguments[name] for name in ("loss", "data", "y", "valid", "spec", "hyper")]
    options = {"sample_weight": rows()[0].weight, "key": jax.random.key(1)}
    loss, data, y, valid, spec, hyper = of_fit
    posed = posed_for_risk(loss, data, y, valid, spec, hyper, None, options)
    drawn = fitted_of(posed, 3).draws
    times, keys = np.asarray(drawn.times)[:, :N], drawn.keys
    assert stats.kstest(times.ravel(), "expon").pvalue > 1e-3
    one_by_one = [run(influence, sample_weight=rows()[0].weight * times[i], key=keys[i]) for i in range(3)]
    np.testing.assert_allclose(found, np.mean(one_by_one, axis=0), rtol=1e-4, atol=1e-8)
    other = run(influence, draws=3, key=jax.random.key(2))
    assert not np.allclose(found, other)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_the_target_do_not_matter(unit):
    _, valid, y = rows()
    found, plain = (
        run(
            tune,
            loss=losses.squared_error,
            y=y[:N] * u,
            valid=(valid.data, y[N:] * u),
            by=("reg_lambda",),
            hyper=Hyper(),
            steps=3,
        )
        for u in (unit, 1.0)
    )
    np.testing.assert_allclose(found.risk / unit**2, plain.risk, rtol=1e-4)
    np.testing.assert_allclose(found.values["reg_lambda"], plain.values["reg_lambda"], rtol=1e-3)


@pytest.mark.slow
def test_a_metric_that_is_maximised_rises():
    def closeness(score, y, weight):
        return -jnp.average(jnp.square(score - y), weights=weight)

    metric = jboost.Metric(closeness, maximize=True)
    found = run(tune, metric=metric, by=("learning_rate",), steps=5, hyper=Hyper(learning_rate=0.05))
    assert found.risk[-1] > found.risk[0]
    assert found.best == np.argmax(found.risk)
    assert np.corrcoef(run(influence, metric=metric), -run(influence))[0, 1] > 0.8


def test_the_memory_of_a_derivative_is_some_numbers_for_each_row_and_round():
    """Scores and leaves: what follows from them is computed again."""
    n, n_rounds = 4096, 64
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    data, y = jboost.bin_features(X), jnp.asarray(X[:, 0] > 0, jnp.float32)
    spec = Spec(n_estimators=n_rounds, max_depth=2)

    @jax.jit
    @jax.grad
    def slope_of(weight):
        model, history = jboost.fit(losses.logistic, data, y, spec=spec, sample_weight=weight)
        return history.train_loss[-1] + model.leaf_value.sum()

    found = slope_of.lower(jnp.ones(n)).compile().memory_analysis()
    assert found is not None
    # 4 for the score, 4 for the leaf, and what one round takes.
    assert found.temp_size_in_bytes < 14 * n * n_rounds


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"by": "learning_rate"}, TypeError, "by must be a tuple"),
        ({"by": ()}, TypeError, "by must be a tuple"),
        ({"by": ("subsample",)}, ValueError, "by must hold names among .*got 'subsample'"),
        ({"by": ("reg_lambda", "reg_lambda")}, ValueError, "by must hold each name once"),
        ({"by": ("reg_alpha",), "hyper": Hyper()}, ValueError, "hyper.reg_alpha must be above 0"),
        (
            {"by": ("learning_rate",), "hyper": Hyper(learning_rate=1.0)},
            ValueError,
            "hyper.learning_rate must be between",
        ),
        ({"by": ("loss",), "loss": losses.squared_error}, ValueError, "loss must hold floats"),
        (
            {"by": ("loss",), "loss": losses.quantile(0.3)},
            ValueError,
            "its leaf rule .* has numbers of its own",
        ),
        ({"steps": 0}, ValueError, "steps must be at least 1"),
        ({"draws": -1}, ValueError, "draws must be at least 0"),
        ({"draws": True}, TypeError, "draws must be an integer"),
        ({"optimizer": 0.1}, TypeError, "optimizer must be an optax.GradientTransformation"),
        ({"valid": None}, ValueError, "valid must be the rows"),
        ({"spec": Spec(n_iter_no_change=5)}, ValueError, "n_iter_no_change must be None"),
        ({"spec": Spec(n_estimators=0)}, ValueError, "n_estimators must be at least 1"),
        ({"spec": {"n_estimators": 5}}, TypeError, "spec must be a jboost.Spec"),
        ({"base_score": np.inf}, ValueError, "base_score must be finite"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_compiled(change, error, words):
    before = programs.n_programs()
    with pytest.raises(error, match=words):
        run(tune, **change)
    assert programs.n_programs() == before


@pytest.mark.slow
def test_what_has_no_derivative_or_runs_off_is_said():
    def rank(score, y, weight):
        return jnp.mean(jnp.argsort(score) * y)

    with pytest.raises(ValueError, match="by: the derivative of the risk by learning_rate is 0"):
        run(tune, metric=rank, by=("learning_rate",))
    with pytest.raises(
        ValueError, match=r"optimizer diverged: in step 2 .*The best so far was reg_lambda=1.5"
    ):
        run(tune, by=("reg_lambda",), optimizer=optax.sgd(jnp.nan))

    def root(score, y, weight):
        return jnp.sqrt(jnp.maximum(score - 1e9, 0.0)).sum()

    with pytest.raises(ValueError, match="loss: its derivative by reg_lambda is not finite"):
        run(tune, by=("reg_lambda",), metric=root)
    with pytest.raises(ValueError, match="loss: its derivative by a weight is not finite"):
        run(influence, metric=root)
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda w: run(influence, sample_weight=w))(jnp.ones(N))


@pytest.mark.slow
def test_a_number_that_several_functions_of_a_loss_hold_is_one():
    """Of the density of the general robust loss, whose curvature has its shape and scale too."""
    loss = losses.general_robust_nll(1.0, 0.5)
    found = run(tune, loss=loss, by=("loss",), optimizer=optax.sgd(0.01), steps=3, hyper=Hyper())
    shape, scale = (found.values[f"loss.{name}"][found.best] for name in ("shape", "scale"))
    made = losses.general_robust_nll(float(shape), float(scale))
    _, history = found.fit()
    _, expected = run(jboost.fit, loss=made, hyper=Hyper())
    np.testing.assert_allclose(history.train_loss, expected.train_loss, rtol=1e-5)
    with pytest.raises(TypeError, match="optimizer must take its steps from the gradient alone"):
        run(tune, by=("reg_lambda",), optimizer=optax.lbfgs())


@x64
def test_ctrl_c_keeps_the_steps_so_far(monkeypatch):
    from jboost.differentiable import tuning

    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return follow(*arguments)

    follow = tuning.follow
    monkeypatch.setattr(tuning, "follow", interrupted)
    with warnings.catch_warnings(), pytest.warns(UserWarning, match="the best of the first 3 steps"):
        found = run(tune, by=EVERY)
    assert len(found.risk) == 3
