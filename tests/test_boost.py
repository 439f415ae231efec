"""Any base learner, boosted: against projections, least squares, logistic regression and `jboost.fit`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize_scalar
from scipy.sparse import csc_matrix, csr_matrix
from sklearn.linear_model import LogisticRegression

import jboost
from jboost import Hyper, Spec, boost, learners, losses
from jboost._bins.order import take_rows
from jboost.textbook import stages

N = 120
RNG = np.random.default_rng(5)
X = RNG.normal(size=(N, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * RNG.normal(size=N)
LABEL = (Y > 0.2).astype(float)
WEIGHT = RNG.uniform(0.5, 2, N)
PLAIN = Hyper(learning_rate=0.5, reg_lambda=0.0, min_child_weight=0.0)


class InitOfRows(learners.Linear):
    def init(self, key, X, known=None):
        return jnp.asarray(X)


def waves(known, X):
    return jnp.cos(X[:, :1] * jnp.arange(1, 13, dtype=X.dtype)[None])


@pytest.mark.parametrize("policy", ["symmetric", "depthwise"])
def test_trees_give_the_model_of_fit(policy, x64):
    """With the squared error each round fits the residuals."""
    learner = learners.Tree(2, policy)
    model, record = boost(
        losses.squared_error, learner, X, Y, n_estimators=5, learning_rate=0.5, sample_weight=WEIGHT
    )
    spec = Spec(n_estimators=5, max_depth=2, grow_policy=policy, penalties="absolute")
    fitted, history = jboost.fit(losses.squared_error, X, Y, spec=spec, hyper=PLAIN, sample_weight=WEIGHT)
    np.testing.assert_allclose(model.predict(X), jboost.predict(fitted, X), rtol=1e-9)
    np.testing.assert_allclose(record.train_loss, history.train_loss, rtol=1e-9)
    stages = [list(one) for one in (model.staged_predict(X[:7]), jboost.staged_predict(fitted, X[:7]))]
    np.testing.assert_allclose(*stages, rtol=1e-8)


def test_a_linear_learner_is_weighted_least_squares(x64):
    y = np.stack([Y, X[:, 0] - Y], axis=1)
    model, _ = boost(
        losses.squared_error, learners.Linear(), X, y, n_estimators=1, learning_rate=1.0, sample_weight=WEIGHT
    )
    root, design = np.sqrt(WEIGHT)[:, None], np.column_stack([np.ones(N), X])
    expected = design @ np.linalg.lstsq(root * design, root * y, rcond=None)[0]
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-8, atol=1e-10)
    ridge, _ = boost(losses.squared_error, learners.Linear(9.0), X, Y, n_estimators=1, learning_rate=1.0)
    z = (X - X.mean(axis=0)) / X.std(axis=0)
    slope = np.linalg.solve(z.T @ z + 9 * np.eye(3), z.T @ (Y - Y.mean()))
    np.testing.assert_allclose(ridge.predict(X), Y.mean() + z @ slope, rtol=1e-8, atol=1e-10)


def test_columns_that_do_not_differ_have_no_slope(x64):
    twice = np.column_stack([X[:, 0], X[:, 0], np.ones(N)])
    fit = partial(boost, losses.squared_error, learners.Linear(), n_estimators=1, learning_rate=1.0)
    once = fit(X[:, :1], Y)[0].predict(X[:, :1])
    np.testing.assert_allclose(fit(twice, Y)[0].predict(twice), once, rtol=1e-8, atol=1e-10)


def test_newton_steps_of_a_linear_learner_are_logistic_regression(x64):
    model, _ = boost(
        losses.logistic, learners.Linear(), X, LABEL, n_estimators=12, learning_rate=1.0, sample_weight=WEIGHT
    )
    expected = LogisticRegression(C=1e12, tol=1e-12, max_iter=1000).fit(X, LABEL, WEIGHT)
    np.testing.assert_allclose(model.predict(X), expected.decision_function(X), rtol=1e-4, atol=1e-5)
    probability = model.inverse_link(model.predict(X))
    np.testing.assert_allclose(probability, expected.predict_proba(X)[:, 1], atol=1e-5)


def test_orthogonal_atoms_have_the_coefficients_of_projections(x64):
    grid = np.arange(16.0)[:, None]
    y = RNG.normal(size=16)
    learner = learners.wavelets(4)
    model, record = boost(losses.squared_error, learner, grid, y, n_estimators=15, learning_rate=1.0)
    _, atoms = learner.init(jax.random.key(0), grid)
    gram = np.asarray(atoms.T @ atoms)
    np.testing.assert_allclose(gram, 16 * np.eye(15), atol=1e-9)
    chosen = np.asarray(model.params.atom)
    assert sorted(chosen) == list(range(15))  # each once, the largest first
    np.testing.assert_allclose(
        model.params.coefficient[:, 0], np.asarray(atoms).T[chosen] @ y / 16, atol=1e-9
    )
    assert (np.diff(np.abs(model.params.coefficient[:, 0])) <= 1e-9).all()
    assert record.train_loss[-1] < 1e-18
    np.testing.assert_allclose(model.predict(grid), y, atol=1e-8)


def test_atoms_are_matching_pursuit(x64):
    model, _ = boost(
        losses.squared_error, learners.Atoms(waves), X, Y, n_estimators=8, learning_rate=1.0, base_score=0.0
    )
    atoms, residual = np.cos(X[:, :1] * np.arange(1, 13)), Y.copy()
    for t in range(8):
        along, size = atoms.T @ residual, np.sum(atoms**2, axis=0)
        best = np.argmax(along**2 / size)
        assert model.params.atom[t] == best
        residual -= along[best] / size[best] * atoms[:, best]
    np.testing.assert_allclose(Y - model.predict(X), residual, atol=1e-9)


def test_splines_bend_at_quantiles():
    learner = learners.splines(3, degree=2)
    (knots, _), atoms = learner.init(jax.random.key(0), X)
    np.testing.assert_allclose(knots, np.quantile(X, [0.25, 0.5, 0.75], axis=0).T, rtol=1e-5)
    apart = (X[:, :, None] - np.asarray(knots)) / np.ptp(X, axis=0)[None, :, None]
    expected = np.concatenate([np.maximum(s, 0).reshape(N, -1) ** 2 for s in (apart, -apart)], axis=1)
    np.testing.assert_allclose(atoms, expected, atol=1e-5)
    y = 3 * expected[:, 4]
    model, record = boost(
        losses.squared_error, learner, X, y, n_estimators=1, learning_rate=1.0, base_score=0.0
    )
    assert int(model.params.atom[0]) == 4
    assert record.train_loss[-1] < 1e-9


def test_the_length_of_a_gradient_step_is_where_the_loss_is_least(x64):
    model, record = boost(
        losses.poisson,
        learners.Tree(2),
        X,
        np.floor(np.exp(Y)),
        step="gradient",
        n_estimators=1,
        learning_rate=1.0,
    )
    base, y = float(model.base[0]), np.floor(np.exp(Y))
    direction = (np.asarray(model.predict(X)) - base) / float(record.length[0])
    risk = lambda rho: np.mean(np.exp(base + rho * direction) - y * (base + rho * direction))  # noqa: E731
    found = minimize_scalar(risk, bracket=(0.0, 1.0), tol=1e-12)
    np.testing.assert_allclose(record.length[0], found.x, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_units_of_target_and_weights_change_nothing(unit):
    for learner in (learners.Tree(2), learners.splines(4), learners.SquashedLinear(20)):
        fit = partial(boost, losses.squared_error, learner, X, n_estimators=4)
        one = np.asarray(fit(Y)[0].predict(X))
        other = np.asarray(fit(Y * unit, sample_weight=np.full(N, 1 / unit))[0].predict(X)) / unit
        np.testing.assert_allclose(other, one, rtol=2e-3, atol=1e-4)


def test_rows_without_weight_and_offsets(x64):
    fit = partial(boost, losses.logistic, learners.Linear(0.1), n_estimators=3)
    half = np.arange(N) % 2 == 0
    whole = fit(X, LABEL, sample_weight=half * 1.0)[0]
    less = fit(X[half], LABEL[half])[0]
    np.testing.assert_allclose(whole.predict(X), less.predict(X), rtol=1e-7, atol=1e-10)
    offset = RNG.normal(size=N)
    shifted, record = fit(X, LABEL, offset=offset)
    score = shifted.predict(X, offset)
    np.testing.assert_allclose(score, shifted.predict(X) + offset, rtol=1e-12)
    np.testing.assert_allclose(
        record.train_loss[-1], np.mean(np.logaddexp(0, score) - LABEL * score), rtol=1e-9
    )


def test_under_vmap_and_grad(x64):
    def last(rate, penalty):
        record = boost(
            losses.logistic, learners.Linear(penalty), X, LABEL, n_estimators=3, learning_rate=rate
        )[1]
        return record.train_loss[-1]

    rates, penalties = jnp.array([0.1, 0.4]), jnp.array([0.0, 5.0])
    both = jax.jit(jax.vmap(last))(rates, penalties)
    np.testing.assert_allclose(both, [last(*pair) for pair in zip(rates, penalties, strict=True)], rtol=1e-9)
    slope = jax.jit(jax.grad(last, argnums=(0, 1)))(0.4, 5.0)
    for i, step in enumerate((np.array([1e-5, 0]), np.array([0, 1e-4]))):
        up, down = (last(*(np.array([0.4, 5.0]) + sign * step)) for sign in (1, -1))
        np.testing.assert_allclose(slope[i], (up - down) / (2 * step.sum()), rtol=1e-5)


def test_a_second_call_compiles_nothing(caplog):
    fit = partial(boost, losses.squared_error, learners.splines(5))
    fit(X, Y, n_estimators=4)
    with jax.log_compiles(), caplog.at_level("WARNING"):
        fit(X + 1, 2 * Y, learning_rate=0.3, n_estimators=5)
    assert "run_some" not in caplog.text


# ------------------------------------------------------------------------------------------------- validation rows

OTHERS = RNG.normal(size=(60, 3))
Y_OTHERS = np.sin(2 * OTHERS[:, 0]) + OTHERS[:, 1] * OTHERS[:, 2] + 0.5 * RNG.normal(size=60)


def test_watched_trees_stop_where_fit_stops(x64):
    """Metric, offset, weights, tolerance and patience mean what they mean there."""
    weight, offset = RNG.uniform(0.5, 2, 60), 0.1 * OTHERS[:, 2]
    watching = {
        "valid": (OTHERS, Y_OTHERS, weight, offset),
        "metric": jboost.metrics.mae,
        "offset": 0.1 * X[:, 2],
    }
    spec = Spec(n_estimators=40, max_depth=2, penalties="absolute", n_iter_no_change=3)
    fit = partial(jboost.fit, losses.squared_error, X, Y, spec=spec, **watching)
    model, history = fit(hyper=Hyper(learning_rate=0.5, reg_lambda=0.0, min_child_weight=0.0, tol=1e-3))
    given = {"n_estimators": 40, "learning_rate": 0.5, "n_iter_no_change": 3, "tol": 1e-3}
    learner = learners.Tree(2, "symmetric")
    found, record = boost(losses.squared_error, learner, X, Y, **given, **watching)
    assert 3 < len(record.valid_metric) < 40
    assert (found.n_rounds, record.best_round) == (model.n_trees, history.best_round)
    np.testing.assert_allclose(record.valid_metric, history.valid_metric, rtol=1e-9)
    np.testing.assert_allclose(record.train_loss, history.train_loss, rtol=1e-9)
    score = found.predict(OTHERS, offset)
    np.testing.assert_allclose(
        np.average(np.abs(Y_OTHERS - score), weights=weight), record.valid_metric[-4], rtol=1e-9
    )


def test_under_jit_the_rounds_after_the_best_are_silent():
    def stopped(y):
        return boost(
            losses.squared_error,
            learners.Tree(2),
            X,
            y,
            n_estimators=12,
            learning_rate=1.0,
            valid=(OTHERS, Y_OTHERS),
            n_iter_no_change=2,
        )

    model, record = stopped(Y)
    silent, whole = jax.jit(stopped)(Y)
    assert 0 < (best := int(record.best_round)) < 9
    assert (int(whole.best_round), silent.n_rounds, model.n_rounds) == (best, 12, best + 1)
    assert not silent.length[best + 1 :].any()
    np.testing.assert_allclose(silent.predict(X), model.predict(X), rtol=1e-5, atol=1e-6)


def test_callbacks_are_told_and_may_stop(monkeypatch):
    seen = []

    def stop(progress):
        seen.append(progress)
        return progress.n_rounds >= 3

    fit = partial(
        boost, losses.squared_error, learners.Tree(2), X, Y, n_estimators=50, valid=(OTHERS, Y_OTHERS)
    )
    model, record = fit(callbacks=[stop], verbose=False)
    assert model.n_rounds == seen[-1].n_rounds == len(record.train_loss) < 50
    np.testing.assert_array_equal(seen[-1].history.valid_metric, record.valid_metric)
    with pytest.warns(UserWarning, match="interrupted: the model holds the first 1 rounds"):
        none, _ = fit(callbacks=[interrupt])
    assert none.n_rounds == 1
    monkeypatch.setattr(stages, "_run_some", interrupt)
    with pytest.warns(UserWarning, match="the first 0 rounds"):
        none, record = fit()
    assert (none.n_rounds, record.best_round) == (0, -1)
    np.testing.assert_array_equal(none.predict(X), np.full(N, none.base[0]))


def interrupt(*given):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_networks_of_flax_and_equinox():
    import equinox as eqx
    from flax import linen

    class Small(linen.Module):
        @linen.compact
        def __call__(self, x):
            return linen.Dense(1)(jnp.tanh(linen.Dense(8)(x)))

    module = Small()
    template = eqx.filter(eqx.nn.MLP(3, "scalar", 8, 1, key=jax.random.key(0)), eqx.is_array, inverse=True)

    def start(key, X):
        return eqx.filter(eqx.nn.MLP(3, "scalar", 8, 1, key=key), eqx.is_array)

    def apply(params, X):
        return jax.vmap(eqx.combine(params, template))(X)

    for learner in (learners.Network(module.init, module.apply), learners.Network(start, apply)):
        model, record = boost(losses.logistic, learner, X, LABEL, n_estimators=5, learning_rate=0.5)
        assert record.train_loss[-1] < record.train_loss[0] < np.log(2)
        assert float(np.mean((np.asarray(model.predict(X)) > 0) == LABEL)) > 0.8
        again = boost(losses.logistic, learner, X, LABEL, n_estimators=5, learning_rate=0.5)[0]
        np.testing.assert_array_equal(again.predict(X), model.predict(X))


class Broken:
    def init(self, key, X, known=None):
        return None, jnp.asarray(X, jnp.float32)

    def fit(self, key, known, rows, target, weight):
        return jnp.where(jnp.abs(target).sum() < 60, jnp.nan, 0.5 * target)

    def predict(self, known, params, rows):
        return params


class Wide(Broken):
    def predict(self, known, params, rows):
        return jnp.concatenate([params, params], axis=1)


def test_wrong_arguments_are_refused():
    fit = partial(boost, losses.squared_error)
    with pytest.raises(ValueError, match=r"not finite in round [1-9]"):
        fit(Broken(), X, Y, learning_rate=1.0)
    with pytest.raises(ValueError, match=r"learner.predict must return floats \[120 1\]"):
        fit(Wide(), X, Y)
    with pytest.raises(
        TypeError, match=r"learner must have the methods init, fit and predict .* the class Linear; call it"
    ):
        fit(learners.Linear, X, Y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="n_estimators must be at least 1, got 0"):
        fit(learners.Linear(), X, Y, n_estimators=0)
    with pytest.raises(ValueError, match="valid must be given with a metric"):
        fit(learners.Linear(), X, Y, metric=jboost.metrics.mae)
    with pytest.raises(ValueError, match="step must be one of"):
        fit(learners.Linear(), X, Y, step="steepest")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="learning_rate must be positive and finite"):
        fit(learners.Linear(), X, Y, learning_rate=0.0)
    with pytest.raises(ValueError, match=r"X must be finite for learners.Linear, got nan in row 0, column 1"):
        fit(learners.Linear(), np.where(np.eye(N, 3, 1) > 0, np.nan, X), Y)
    for bad in (X.astype(str), X.astype("M8[s]"), X + 1j):  # NumPy would make numbers of them
        with pytest.raises((TypeError, ValueError), match=r"X must hold (real )?numbers"):
            fit(learners.splines(3), bad, Y)
    for learner in (learners.Linear(), learners.splines(3)):
        with pytest.raises(TypeError, match=r"X must be concrete for learners\..*, got a traced array"):
            jax.eval_shape(lambda X, learner=learner: fit(learner, X, Y), X)
    with pytest.raises(ValueError, match="X must not be empty"):
        fit(learners.Linear(), X[:0], Y)
    with pytest.raises(ValueError, match="X must have 120 rows, as many as y, got 50"):
        fit(learners.Linear(), X[:50], Y, sample_weight=np.arange(N))
    with pytest.raises(TypeError, match=r"learner\.init must return a tuple, .*, got ArrayImpl"):
        fit(InitOfRows(), X, Y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="reg_lambda must be between 0"):
        fit(learners.Linear(-1.0), X, Y)
    with pytest.raises(TypeError, match=r"optimizer must be an optax\.GradientTransformation"):
        fit(learners.SquashedLinear(optimizer="adam"), X, Y)
    with pytest.raises(ValueError, match="n_knots must be at least 1"):
        learners.splines(0)
    with pytest.raises(ValueError, match="n_levels must be"):
        learners.wavelets(0)
    with pytest.raises(ValueError, match="valid must be given when n_iter_no_change"):
        fit(learners.Linear(), X, Y, n_iter_no_change=3)
    with pytest.raises(ValueError, match=r"learner failed on targets \[50 1\], .* row of valid\[1\]"):
        fit(learners.Linear(), X, Y, valid=(X, Y[:50]))
    with pytest.raises(ValueError, match=r"valid\[0\]: X must be finite"):
        fit(learners.Linear(), X, Y, valid=(X * np.nan, Y))
    with pytest.raises(ValueError, match="on_host=True"):
        fit(learners.Linear(), X, Y, valid=(X, Y), metric=jboost.Metric(lambda s, y, w: 0.0, on_host=True))
    with pytest.raises(TypeError, match="callbacks must be a list"):
        fit(learners.Linear(), X, Y, callbacks=3)
    with pytest.raises(TypeError, match="got a GroupLoss"):
        boost(jboost.GroupLoss(lambda s, y, m: jnp.sum(jnp.where(m, s, 0.0))), learners.Linear(), X, Y)
    with pytest.raises(ValueError, match=r"learner failed on targets \[50 1\]"):
        fit(learners.Linear(), X, Y[:50])
    with pytest.raises(ValueError, match="y must be 0 or 1"):
        boost(losses.logistic, learners.Linear(), X, Y)


FRAME = pd.DataFrame(np.random.default_rng(5).normal(size=(40, 3)), columns=["p", "q", "r"])


@pytest.mark.parametrize(
    "learner",
    [learners.Linear(), pytest.param(learners.splines(3), marks=pytest.mark.slow), learners.Tree(2)],
    ids=str,
)
def test_columns_of_a_frame_are_read_by_name_and_counted(learner):
    y, turned = (FRAME["p"] - 2 * FRAME["r"]).to_numpy(), FRAME[["r", "q", "p"]]
    options: dict[str, Any] = {"n_estimators": 2, "valid": (turned, y)}
    model, record = jboost.boost(losses.squared_error, learner, FRAME, y, **options)
    score = model.predict(FRAME)
    np.testing.assert_array_equal(model.predict(turned), score)
    np.testing.assert_array_equal(model.predict(FRAME.to_numpy()), score)
    np.testing.assert_allclose(record.valid_metric, record.train_loss, rtol=1e-5)
    with pytest.raises(ValueError, match=r"missing \['p'\] \(1\), unexpected \['z'\]"):
        model.predict(FRAME.rename(columns={"p": "z"}))
    with pytest.raises(ValueError, match="X must have the 3 columns of fit, got 1"):
        model.predict(FRAME.to_numpy()[:, :1])
    np.testing.assert_array_equal(model.predict(FRAME[:0]), [])
    shifted = np.asarray(model.predict(FRAME, y)) - np.asarray(score)
    np.testing.assert_allclose(shifted, y, atol=1e-5)
    for offset, wrong in ((y[:3], r"offset must have shape \(40,\)"), (np.nan * y, "offset must be finite")):
        with pytest.raises(ValueError, match=wrong):
            model.predict(FRAME, offset)
    np.testing.assert_array_equal(model.predict(csr_matrix(FRAME)), score)


def test_rows_that_count_stay_what_they_are():
    there = np.arange(40) % 2 == 0
    values = FRAME.to_numpy()[there]
    masked = np.ma.masked_greater(FRAME.to_numpy(), 1)
    assert take_rows(masked, there).count() == masked[there].count() < values.size
    assert take_rows(FRAME.to_numpy().tolist(), there) == values.tolist()
    pd.testing.assert_frame_equal(take_rows(FRAME, there), FRAME.iloc[::2])
    assert take_rows(pl.from_pandas(FRAME), there).columns == ["p", "q", "r"]
    for X in (csr_matrix(FRAME), csc_matrix(FRAME)):
        np.testing.assert_array_equal(take_rows(X, there).toarray(), values)
    for X in (pd.DataFrame(FRAME.to_numpy()), jnp.asarray(FRAME), pl.from_pandas(FRAME)):
        np.testing.assert_allclose(take_rows(X, there), values, rtol=1e-6)


def test_a_column_far_from_zero_keeps_its_digits():
    """In float32, 1e9 has a neighbour at 1e9 + 64."""
    known, rows = learners.Linear().init(jax.random.key(0), X + 1e9)
    expected = (X - X.mean(axis=0)) / X.std(axis=0)
    spread = np.ptp(np.asarray(rows) - expected, axis=0)  # a constant takes up how the mean was rounded
    assert (spread < 1e-5).all()
    np.testing.assert_array_equal(learners.Linear().init(jax.random.key(0), X + 1e9, known)[1], rows)
