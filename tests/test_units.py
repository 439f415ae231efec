"""A fit does not depend on units: of the target, the loss, the scores, or the weights."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import Hyper, Loss, Spec, losses

N = 300
SPEC = Spec(n_estimators=10, max_depth=3)
POLICIES = ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)]
PENALISED = Hyper(reg_lambda=3.0, reg_alpha=0.7, gamma=0.2, min_child_weight=5.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    return jboost.bin_features(X, 32), X[:, 0] + X[:, 1] * X[:, 2] + 0.2 * rng.normal(size=N)


def normal(score, y):
    return 0.5 * jnp.square((y - score[0]) * jnp.exp(-score[1])) + score[1]


def times(loss, factor):
    """The loss times a factor that is an operand, so that all share a program."""
    return Loss(jax.tree_util.Partial(_times, loss.function, factor=float(factor)), n_outputs=loss.n_outputs)


def _times(function, score, y, factor):
    return factor * function(score, y)


def of_scaled_scores(function, factor):
    return Loss(jax.tree_util.Partial(_of_scaled, function, factor=float(factor)))


def _of_scaled(function, score, y, factor):
    return function(score * factor, y)


def assert_same_splits(one, other):
    for name in ("feature", "threshold", "missing_right"):
        np.testing.assert_array_equal(getattr(one.trees, name), getattr(other.trees, name))
    assert np.asarray(one.trees.gain).any()


@pytest.mark.parametrize("hyper", [Hyper(), PENALISED], ids=["defaults", "penalised"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_unit_of_the_target(rows, policy, hyper):
    data, y = rows
    spec = dataclasses.replace(SPEC, grow_policy=policy)
    known, _ = jboost.fit(losses.squared_error, data, y, spec=spec, hyper=hyper)
    for factor in (1e-25, 1e-12, 1e-6, 3.0, 1e6, 1e12, 1e15):
        found, _ = jboost.fit(losses.squared_error, data, factor * y, spec=spec, hyper=hyper)
        assert_same_splits(known, found)
        np.testing.assert_allclose(
            np.asarray(found.leaf_value) / factor, known.leaf_value, rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_powers_of_two_times_the_target_give_the_same_bits(rows, policy):
    """Also where squares leave the range of the floats."""
    data, y = rows
    spec, y = dataclasses.replace(SPEC, grow_policy=policy), np.float32(y)
    for loss, degree in ((losses.squared_error, 2), (losses.huber(), 2), (losses.absolute_error, 1)):
        known, history = jboost.fit(loss, data, y, spec=spec)
        for exponent in (-90, -40, 40, 90):
            found, rescaled = jboost.fit(loss, data, np.ldexp(y, exponent), spec=spec)
            expected = np.ldexp(np.asarray(jboost.predict(known, data)), exponent)
            np.testing.assert_array_equal(jboost.predict(found, data), expected)
            np.testing.assert_array_equal(found.leaf_hessian, known.leaf_hessian)
            assert np.asarray(found.trees.gain).any()
            assert np.isfinite(found.trees.gain).all()
            of_y = np.ldexp(np.float64(history.train_loss), degree * exponent)
            np.testing.assert_allclose(rescaled.train_loss, of_y, rtol=1e-6)


@pytest.mark.parametrize("exponent", [-60, 60])
def test_all_that_has_the_unit_of_the_target_follows_it(rows, exponent):
    data, y = rows
    X, y = np.asarray(data.bins).T.astype(float), np.float32(y)
    weight, offset, seen = np.float32(np.arange(N) % 3), np.float32(X[:, 3] / 50), []
    bins = jboost.bin_features(X)

    def fitted(exponent, power=2, **options):
        target = np.ldexp(y, exponent)
        target[0] = 1  # of a row without weight
        hyper = Hyper(max_delta_step=np.ldexp(0.25, exponent), tol=np.ldexp(1e-3, power * exponent))
        given = weight, np.ldexp(offset, exponent)
        return jboost.fit(
            losses.squared_error, bins, target, spec=dataclasses.replace(SPEC, n_iter_no_change=2), hyper=hyper,
            sample_weight=given[0], offset=given[1], valid=(X, target, *given), callbacks=[seen.append], **options,
        )  # fmt: skip

    def assert_follows(found, known, power):
        for part in ("base", "leaf_value"):
            expected = np.ldexp(np.asarray(getattr(known[0], part)), exponent)
            np.testing.assert_array_equal(getattr(found[0], part), expected)
        for part, degree in (("train_loss", 2), ("valid_metric", power)):
            expected = np.ldexp(np.float64(getattr(known[1], part)), degree * exponent)
            np.testing.assert_allclose(getattr(found[1], part), expected, rtol=1e-6)
        assert found[1].best_round == known[1].best_round

    known, found = fitted(0), fitted(exponent)
    assert_follows(found, known, 2)
    np.testing.assert_array_equal(seen[-1].history.train_loss, found[1].train_loss)
    continued = fitted(exponent, init_model=found[0]), fitted(0, init_model=known[0])
    assert_follows(*continued, 2)
    options = {"metric": jboost.metrics.rmse, "power": 1}
    by_rmse = (
        fitted(exponent, base_score=np.ldexp(0.5, exponent), **options),
        fitted(0, base_score=0.5, **options),
    )
    assert_follows(*by_rmse, 1)


def test_a_base_score_far_away_is_told_of_where_penalties_are_read_there(rows):
    data, y = rows
    counts = np.exp(np.clip(y, -1, 2))
    with pytest.warns(
        UserWarning, match=r"base_score=8 lies far from the best constant, 0.\d+: .* or use Spec"
    ):
        jboost.boosting.init(losses.poisson, data, counts, base_score=8.0)
    with pytest.warns(UserWarning, match=r"base_score=1000 lies far"):
        jboost.boosting.init(losses.squared_error, data, y, base_score=1e3, hyper=PENALISED)
    for given in ({"base_score": 1.0}, {"base_score": 8.0, "spec": Spec(penalties="absolute")}):
        jboost.boosting.init(losses.poisson, data, counts, **given)


@pytest.mark.parametrize("hyper", [Hyper(), PENALISED], ids=["defaults", "penalised"])
@pytest.mark.parametrize(
    "name",
    ["logistic", *(pytest.param(name, marks=pytest.mark.slow) for name in ("squared_error", "softmax"))],
)
def test_the_unit_of_the_loss(rows, name, hyper):
    data, y = rows
    loss = losses.softmax(3) if name == "softmax" else getattr(losses, name)
    target = {"logistic": y > 0, "softmax": np.digitize(y, [-0.7, 0.7])}.get(name, y)
    target = target.astype(float)
    known, _ = jboost.fit(times(loss, 1), data, target, spec=SPEC, hyper=hyper)
    for factor in (1e-12, 1e-6, 7.0, 1e12):
        found, _ = jboost.fit(times(loss, factor), data, target, spec=SPEC, hyper=hyper)
        assert_same_splits(known, found)
        np.testing.assert_allclose(found.leaf_value, known.leaf_value, rtol=1e-3, atol=1e-5)


def test_the_unit_of_the_scores(rows):
    data, y = rows
    target = (y > 0).astype(float)
    known, _ = jboost.fit(of_scaled_scores(losses.logistic.function, 1), data, target, spec=SPEC)
    for factor in (1e-6, 50.0, 1e6):
        found, _ = jboost.fit(of_scaled_scores(losses.logistic.function, factor), data, target, spec=SPEC)
        assert_same_splits(known, found)
        np.testing.assert_allclose(
            np.asarray(found.leaf_value) * factor, known.leaf_value, rtol=1e-3, atol=1e-5
        )


@pytest.mark.parametrize("hessian", ["diagonal", pytest.param("full", marks=pytest.mark.slow)])
def test_outputs_of_different_units(rows, hessian):
    """Mean and log scale: the first follows the unit of the target, the second is moved by its logarithm."""
    data, y = rows
    loss = Loss(normal, n_outputs=2, hessian=hessian)
    known, _ = jboost.fit(loss, data, y, spec=SPEC)
    for factor in (1e-6, 1e3):
        found, _ = jboost.fit(loss, data, factor * y, spec=SPEC)
        assert_same_splits(known, found)
        leaves = np.asarray(found.leaf_value) / [factor, 1]
        np.testing.assert_allclose(leaves, known.leaf_value, rtol=1e-2, atol=1e-4)
        np.testing.assert_allclose(found.base[1] - np.log(factor), known.base[1], atol=1e-4)


def test_outputs_with_trees_of_their_own_are_penalised_as_alone(rows):
    """Labels that are rare in different degrees: each column is the fit of it alone, whatever stands beside it."""
    data, y = rows
    target = np.stack([y > np.quantile(y, level) for level in (0.5, 0.8, 0.97)], axis=1).astype(float)
    hyper = Hyper(learning_rate=0.05, reg_alpha=0.3, gamma=0.2)
    separate = dataclasses.replace(SPEC, multi_output="separate")
    model, _ = jboost.fit(losses.logistic, data, target, spec=separate, hyper=hyper)
    for j, column in enumerate(target.T):
        alone, _ = jboost.fit(losses.logistic, data, column, spec=SPEC, hyper=hyper)
        assert alone.trees.gain.any()
        np.testing.assert_array_equal(model.trees.feature[:, j], alone.trees.feature)
        np.testing.assert_allclose(model.trees.gain[:, j], alone.trees.gain, rtol=1e-6)
        np.testing.assert_allclose(model.leaf_value[..., j], alone.leaf_value[..., 0], rtol=1e-6)


@pytest.mark.parametrize("grow_policy", ["symmetric", "depthwise"])
def test_outputs_with_trees_of_their_own_shorten_their_steps_as_alone(grow_policy):
    """Half of a region of one row in 40 are of a label that is rare elsewhere, at a learning rate of 1."""
    rng = np.random.default_rng(0)
    n = 4000
    X = rng.normal(size=(n, 5))
    hot, common = (X[:, 0] > 1) & (X[:, 1] > 1), X[:, 1] + rng.normal(size=n) > 0
    target = np.stack([rng.random(n) < np.where(hot, 0.5, 1e-3), common, rng.random(n) < 0.5], axis=1).astype(
        float
    )
    hyper, spec = Hyper(learning_rate=1.0), Spec(n_estimators=6, max_depth=3, grow_policy=grow_policy)
    separate = dataclasses.replace(spec, multi_output="separate")
    model, history = jboost.fit(losses.logistic, X, target, spec=separate, hyper=hyper)
    assert (np.diff(history.train_loss) < 0).all()
    for j, column in enumerate(target.T):
        alone, _ = jboost.fit(losses.logistic, X, column, spec=spec, hyper=hyper)
        np.testing.assert_array_equal(model.trees.feature[:, j], alone.trees.feature)
        np.testing.assert_allclose(model.leaf_value[..., j], alone.leaf_value[..., 0], rtol=1e-5)


def test_weights_that_sum_to_1_are_learned_from(rows):
    data, y = rows
    target = (y > 0).astype(float)
    model, _ = jboost.fit(losses.logistic, data, target, spec=SPEC, sample_weight=np.full(N, 1 / N))
    assert np.mean((np.asarray(jboost.predict(model, data)) > 0) == target) > 0.85
    by_powers = [
        jboost.fit(losses.logistic, data, target, spec=SPEC, sample_weight=np.full(N, weight))[0]
        for weight in (1.0, 0.25, 2.0**-30)
    ]
    for other in by_powers[1:]:  # powers of two round nothing
        np.testing.assert_array_equal(by_powers[0].leaf_value, other.leaf_value)


@pytest.mark.parametrize("name", ["logistic", pytest.param("squared_error", marks=pytest.mark.slow)])
def test_a_weight_of_2_is_a_row_twice(rows, name):
    data, y = rows
    loss, target = getattr(losses, name), (y > 0).astype(float) if name == "logistic" else y
    twice = jboost.bin_features(np.repeat(np.asarray(data.bins).T.astype(float), 2, axis=0), 255)
    once = jboost.bin_features(np.asarray(data.bins).T.astype(float), 255)
    weighted, _ = jboost.fit(loss, once, target, spec=SPEC, sample_weight=np.full(N, 2.0))
    repeated, _ = jboost.fit(loss, twice, np.repeat(target, 2), spec=SPEC)
    assert_same_splits(weighted, repeated)
    np.testing.assert_allclose(weighted.leaf_value, repeated.leaf_value, rtol=1e-5, atol=1e-7)


def test_penalties_in_units_by_hand():
    """One split of six rows under the logistic loss: h = 1/4 at the base score, the unit of both penalties."""
    X, y = np.array([[0.0], [0.0], [0.0], [0.0], [1.0], [1.0]]), np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    hyper = Hyper(learning_rate=1.0, reg_lambda=2.0, min_child_weight=1.0)
    spec = Spec(n_estimators=1, max_depth=1)
    g, h = [1.0, -1.0], 0.25
    relative, _ = jboost.fit(losses.logistic, X, y, spec=spec, hyper=hyper)
    expected = [-g[0] / (4 * h + 2 * h), -g[1] / (2 * h + 2 * h)]
    np.testing.assert_allclose(np.asarray(relative.leaf_value).ravel(), expected, rtol=1e-5)
    gain = 0.5 * (g[0] ** 2 / (6 * h) + g[1] ** 2 / (4 * h))
    np.testing.assert_allclose(relative.trees.gain.ravel(), gain, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(relative.leaf_hessian).ravel(), [4 * h, 2 * h], rtol=1e-5)
    absolute = Spec(n_estimators=1, max_depth=1, penalties="absolute")
    found, _ = jboost.fit(
        losses.logistic, X, y, spec=absolute, hyper=Hyper(learning_rate=1.0, min_child_weight=0.1)
    )
    expected = [-g[0] / (4 * h + 1), -g[1] / (2 * h + 1)]
    np.testing.assert_allclose(np.asarray(found.leaf_value).ravel(), expected, rtol=1e-5)
    many, target = np.repeat(X, 20, axis=0), np.repeat(y, 20)
    with pytest.warns(UserWarning, match="min_child_weight"):
        jboost.fit(losses.logistic, many, target, spec=absolute, hyper=Hyper(min_child_weight=20.0))


@pytest.mark.parametrize("rare", [0.3, 0.01, 0.0005])
def test_the_unit_of_h_where_a_class_is_rare(rare):
    """How a row bends as far as it would go: where its loss falls by 0.45 of the slope's promise or more."""
    n = 4000
    y = (np.arange(n) < rare * n).astype(float)
    h, at = rare * (1 - rare), np.log(rare / (1 - rare))

    def share(sign, g):  # of rows of log(1 + exp(-sign score))
        def excess(share):
            share = 63 / 64 * share
            moved = at + share * sign * abs(g) / h
            return np.logaddexp(0, -sign * moved) - np.logaddexp(0, -sign * at) + 0.45 * share * g * g / h

        return next(share for share in 0.5 ** np.arange(30) if excess(share) <= 0)

    more = -(np.log(share(1, 1 - rare)) + np.log(share(-1, rare))) / 2  # both kinds of rows pull as strongly
    g = np.where(y > 0, 1 - rare, rare)
    having_a_say = g.sum() ** 2 / np.square(g).sum()
    expected = h * np.exp(having_a_say / (having_a_say + 20) * more)
    problem, _ = jboost.boosting.init(losses.logistic, np.arange(n)[:, None] % 7, y)
    np.testing.assert_allclose(problem.units.h, expected, rtol=1e-4)
    assert (problem.units.h > (1.5 * h if rare < 0.1 else 0.9 * h)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss",
    [losses.gamma, losses.poisson, losses.tweedie(1.5)],
    ids=lambda loss: loss.name,
)
def test_one_huge_target_does_not_keep_the_others_from_being_learned(loss):
    """The unit is that of a typical row: as much is learned as with penalties as they are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    signal = X[:, 0] + X[:, 1] * X[:, 2]
    y = rng.poisson(np.exp(signal)) + 0.1
    y[5] = 1e5
    kept = np.arange(1000) != 5
    for penalties in ("relative", "absolute"):
        spec = Spec(n_estimators=50, max_depth=4, penalties=penalties)
        model, _ = jboost.fit(loss, X, y, spec=spec)
        assert np.corrcoef(np.asarray(jboost.predict(model, X))[kept], signal[kept])[0, 1] > 0.6


@pytest.mark.slow
def test_rows_of_different_noise_are_learned_as_with_weights():
    """A loss with a factor of its own for each row is that of weights, whatever the range of the factors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3)).astype(np.float32)
    signal, sd = X[:, 0] + X[:, 1] * X[:, 2], np.exp(2 * rng.normal(size=1000)).astype(np.float32)
    y = signal + np.minimum(sd, 3) * 0.3 * rng.normal(size=1000).astype(np.float32)
    spec = Spec(n_estimators=50, max_depth=4)
    own, _ = jboost.fit(lambda s, t: 0.5 * ((s - t["y"]) / t["sd"]) ** 2, X, {"y": y, "sd": sd}, spec=spec)
    known, _ = jboost.fit(losses.squared_error, X, y, sample_weight=sd**-2, spec=spec)
    errors = [np.std(np.asarray(jboost.predict(one, X)) - signal) for one in (own, known)]
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.slow
def test_the_unit_of_h_of_losses_of_several_rows(rows):
    """The rows of a group try their steps together: alone in it they are rows, and all at once no more vanish."""
    data, _ = rows
    y = np.zeros(N)
    y[:3] = 1

    def by_group(score, y, mask):
        return jnp.sum(jnp.where(mask, jax.vmap(losses.logistic.function)(score, y), 0.0))

    def of_all(score, y, weight):
        return jnp.sum(weight * jax.vmap(losses.logistic.function)(score, y))

    def unit(loss, **given):
        problem, _ = jboost.boosting.init(loss, data, y, base_score=-4.6, **given)
        return float(problem.units.h[0])

    of_rows, share = unit(losses.logistic), y.mean()
    np.testing.assert_allclose(unit(jboost.GroupLoss(by_group), groups=np.arange(N)), of_rows, rtol=1e-6)
    for found in (unit(jboost.GroupLoss(by_group), groups=np.arange(N) // 5), unit(jboost.BatchLoss(of_all))):
        assert of_rows / 2 < found < 0.25
    assert of_rows > 1.3 * share * (1 - share)  # which is h itself; few rows say more, so it is not much


@pytest.mark.slow
def test_a_rare_class_is_not_learned_by_heart():
    """No leaf of ten rows with one of a rare class says more of it than the rows allow."""
    rng = np.random.default_rng(0)
    n = 20_000
    X, y = (
        rng.normal(size=(n, 5)),
        (np.arange(n) % 2000 == 0).astype(float),
    )  # ten positives, by chance anywhere
    model, history = jboost.fit(losses.logistic, X, y, spec=Spec(n_estimators=50, max_depth=4))
    held_out = rng.normal(size=(n, 5))
    score = np.asarray(jboost.predict(model, held_out))
    risk = np.mean(np.logaddexp(0, score) - y * score)
    constant = -(y.mean() * np.log(y.mean()) + (1 - y.mean()) * np.log1p(-y.mean()))
    assert history.train_loss[-1] < history.train_loss[0]
    assert risk < 2 * constant


@pytest.mark.slow
def test_derivatives_go_through_the_units():
    """The units depend on weights and on the parameters of a loss: against central differences, in float64."""
    with jax.enable_x64():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, 2))
        y = np.exp(X[:, 0])
        data = jboost.bin_features(X, 8)
        spec = Spec(n_estimators=3, max_depth=2)

        def risk(weights, power):
            hyper = Hyper(reg_lambda=4.0, reg_alpha=0.3)
            loss = losses.tweedie(power)
            model, _ = jboost.fit(loss, data, y, spec=spec, hyper=hyper, sample_weight=weights)
            return jnp.sum(jnp.square(model.leaf_value)) + jnp.sum(model.base)

        weights, power, step = jnp.ones(40), jnp.asarray(1.5), 1e-6
        of_weights, of_power = jax.grad(risk, argnums=(0, 1))(weights, power)
        for row in (0, 7):
            moved = [risk(weights.at[row].add(sign * step), power) for sign in (1, -1)]
            np.testing.assert_allclose(of_weights[row], (moved[0] - moved[1]) / (2 * step), rtol=1e-5)
        moved = [risk(weights, power + sign * step) for sign in (1, -1)]
        np.testing.assert_allclose(of_power, (moved[0] - moved[1]) / (2 * step), rtol=1e-5)


@pytest.mark.slow
def test_a_continued_fit_has_the_units_of_the_first(rows):
    data, y = rows
    target = (y > 0).astype(float)
    first, _ = jboost.fit(losses.logistic, data, target, spec=SPEC)
    whole, _ = jboost.fit(losses.logistic, data, target, spec=dataclasses.replace(SPEC, n_estimators=20))
    continued, _ = jboost.fit(losses.logistic, data, target, spec=SPEC, init_model=first)
    np.testing.assert_array_equal(continued.leaf_value, whole.leaf_value)


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match="penalties must be one of 'relative', 'absolute', got 'both'"):
        Spec(penalties="both")  # pyright: ignore[reportArgumentType]
