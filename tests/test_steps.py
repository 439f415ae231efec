"""No round raises the training loss, whatever the loss: steps that would are shortened, leaf by leaf."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax.scipy.special import gammaln

import jboost
from jboost import Hyper, Loss, Spec, losses

ROUNDING = 1e-5  # of a mean loss in float32
FULL_STEPS = Hyper(learning_rate=1.0, min_child_weight=0.0)


def cauchy(score, y):
    return jnp.log1p(jnp.square(score - y))


def welsch(score, y):
    return 1 - jnp.exp(-0.5 * jnp.square(score - y))


def student_t(score, y):
    return 2 * jnp.log1p(jnp.square(score - y) / 3)


def normal(score, y):
    return 0.5 * jnp.square((y - score[0]) * jnp.exp(-score[1])) + score[1]


def mixture(score, y):  # of two normal distributions, and their weights
    parts = -0.5 * jnp.square(y - score[:2]) + jax.nn.log_sigmoid(score[2] * jnp.array([1.0, -1.0]))
    return -jax.nn.logsumexp(parts)


def negative_binomial(score, y):  # y = counts, scores = log mean and log size
    size, log_total = jnp.exp(score[1]), jnp.logaddexp(score[0], score[1])
    return gammaln(size) - gammaln(y + size) - size * (score[1] - log_total) - y * (score[0] - log_total)


def saddle(score, y):  # indefinite, and bounded from below
    return jnp.square(jnp.square(score[0] - y) - score[1]) + 0.1 * jnp.square(score[1])


def counts(y):
    return np.floor(np.exp(np.clip(2 * y, -5, 6)))


def positive(y):
    return np.exp(np.clip(2 * y, -20, 20))


def signs(y):
    return (y > 0).astype(float)


PAIRS = [normal, mixture, saddle]
CASES = {
    "cauchy": (Loss(cauchy), None),
    "welsch": (Loss(welsch), None),
    "student_t": (Loss(student_t), None),
    "poisson": (losses.poisson, counts),
    "gamma": (losses.gamma, positive),
    "tweedie": (losses.tweedie(1.5), counts),
    "exponential": (losses.exponential, signs),
    "normal": (Loss(normal, n_outputs=2), None),
    "full normal": (Loss(normal, n_outputs=2, hessian="full"), None),
    "full mixture": (Loss(mixture, n_outputs=3, hessian="full"), None),
    "negative binomial": (Loss(negative_binomial, n_outputs=2), counts),
    "full negative binomial": (Loss(negative_binomial, n_outputs=2, hessian="full"), counts),
    "saddle": (Loss(saddle, n_outputs=2), None),
    "full saddle": (Loss(saddle, n_outputs=2, hessian="full"), None),
}


QUICK = [("cauchy", "symmetric"), ("poisson", "depthwise")]  # test_distributions.py has one of a full Hessian
EVERY = [(name, policy) for name in CASES for policy in ("symmetric", "depthwise")]


@pytest.mark.parametrize(
    ("name", "policy"), [pytest.param(*one, marks=() if one in QUICK else pytest.mark.slow) for one in EVERY]
)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 10**6), tail=st.sampled_from([0.0, 1.0, 2.0]))
def test_no_round_raises_the_training_loss(name, policy, seed, tail):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(96, 3))
    y = X[:, 0] + 0.3 * rng.normal(size=96) * np.exp(tail * rng.normal(size=96))
    loss, made = CASES[name]
    spec = Spec(n_estimators=8, max_depth=3, grow_policy=policy)
    _, history = jboost.fit(
        loss, jboost.bin_features(X, 16), y if made is None else made(y), spec=spec, hyper=FULL_STEPS
    )
    after = history.train_loss
    assert np.isfinite(after).all()
    assert (np.diff(after) <= ROUNDING * (1 + np.abs(after[:-1]))).all()


@pytest.mark.parametrize("multi_output", [pytest.param("vector", marks=pytest.mark.slow), "separate"])
def test_trees_of_several_classes_do_not_climb_together(multi_output):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=500), [-0.5, 0.5])
    spec = Spec(n_estimators=20, max_depth=2, multi_output=multi_output)
    _, history = jboost.fit(losses.softmax(3), X, y, spec=spec, hyper=FULL_STEPS)
    assert (np.diff(history.train_loss) <= ROUNDING).all()
    assert history.train_loss[-1] < 0.5 * np.log(3)  # of the base score, about


@pytest.mark.slow
def test_losses_of_all_rows_do_not_climb():
    def all_rows(score, y, weight):
        return jnp.sum(weight * jnp.log1p(jnp.square(score - y)))

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = 3 * X[:, 0] + rng.standard_cauchy(200)
    _, history = jboost.fit(
        jboost.BatchLoss(all_rows), X, y, spec=Spec(n_estimators=20, max_depth=3), hyper=FULL_STEPS
    )
    assert (np.diff(history.train_loss) <= ROUNDING).all()


@pytest.mark.slow
def test_a_rare_class_is_not_overshot():
    """Half of a region of 1,000 rows among 200,000 is positive: Newton's first step there would be about 140."""
    n, region = 200_000, 1000
    X = np.zeros((n, 1))
    X[:region] = 1
    y = np.zeros(n)
    y[: region // 2] = 1
    model, history = jboost.fit(losses.logistic, X, y, spec=Spec(n_estimators=20, max_depth=1))
    probability = float(jax.nn.sigmoid(jboost.predict(model, np.array([[1.0]])))[0])
    assert (np.diff(history.train_loss) <= 1e-9).all()
    assert 0.1 < probability < 0.9


def test_a_rare_large_count_is_reached():
    """19,980 rows of 1 and 20 of 500: the prediction for the latter was 1.4e14 after 10 rounds."""
    X = np.zeros((20_000, 1))
    X[:20] = 1
    y = np.where(X[:, 0] > 0, 500.0, 1.0)
    model, history = jboost.fit(losses.poisson, X, y, spec=Spec(n_estimators=50, max_depth=1))
    assert (np.diff(history.train_loss) <= 1e-6).all()
    np.testing.assert_allclose(np.exp(jboost.predict(model, np.array([[1.0]]))), 500, rtol=0.05)


@pytest.mark.filterwarnings("ignore:base_score=0 lies far")  # so that a step must be shortened
def test_a_shortened_step_lowers_the_loss_by_a_quarter_of_its_slope():
    """One leaf by hand: 10 rows of y = 100 under Poisson, from a score of 0, with a learning rate of 1."""
    X = np.zeros((20, 1))
    X[:10] = 1
    y = np.where(X[:, 0] > 0, 100.0, 1.0)
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0)
    spec = Spec(n_estimators=1, max_depth=1)
    model, _ = jboost.fit(losses.poisson, X, y, spec=spec, hyper=hyper, base_score=0.0)
    step, slope = 99.0, -99.0  # -G / H and G of each row

    def lowers(share):
        u = share * step
        return np.exp(u) - 100 * u - 1 <= 0.25 * slope * u

    share = 1.0
    while not lowers(share):
        share /= 2
    assert share < 1
    np.testing.assert_allclose(np.max(model.leaf_value), share * step, rtol=1e-5)


@pytest.mark.parametrize("name", ["squared_error", "poisson", "gamma", "tweedie", "logistic", "exponential"])
def test_a_majorant_bounds_its_loss(name):
    """L(s + u) - L(s) <= g u + c(|u|) h u^2 at many scores, with h as boosting takes it."""
    loss = {"tweedie": losses.tweedie(1.3)}.get(name) or getattr(losses, name)
    rng = np.random.default_rng(0)
    score, u = rng.normal(size=4000) * 3, rng.normal(size=4000) * np.exp(rng.normal(size=4000))
    y = rng.integers(0, 2, 4000) if name in ("logistic", "exponential") else rng.gamma(1.0, size=4000)
    _assert_bounded(loss, jnp.asarray(score)[:, None], jnp.asarray(u)[:, None], jnp.asarray(y, float))


def test_the_majorant_of_softmax_bounds_its_loss():
    rng = np.random.default_rng(0)
    score, u = rng.normal(size=(4000, 5)) * 3, rng.normal(size=(4000, 5)) * np.exp(rng.normal(size=(4000, 1)))
    _assert_bounded(
        losses.softmax(5), jnp.asarray(score), jnp.asarray(u), jnp.asarray(rng.integers(0, 5, 4000))
    )


def _assert_bounded(loss, score, u, y):
    from jboost._objective.derivatives import derivatives_by_row
    from jboost._objective.rows import Rows

    rows = Rows(y, jnp.ones(len(score)))
    loss = dataclasses.replace(loss, hessian_floor=1e-30)
    here, there = (derivatives_by_row(loss, s, rows) for s in (score, score + u))
    bound = jax.vmap(loss.majorant)(jnp.abs(u).max(axis=1))
    expected = (here.g * u).sum(axis=1) + bound * (here.h * u**2).sum(axis=1)
    rise = np.asarray(there.value - here.value)
    slack = 1e-4 * (np.abs(here.value) + np.abs(there.value) + np.abs(score * u).sum(axis=1))
    assert (rise <= np.asarray(expected) + slack).all()


def test_a_majorant_of_ones_own_is_tried_and_changes_no_bit():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(float)

    def mine(score, y):
        return jnp.logaddexp(0.0, score) - y * score

    spec = Spec(n_estimators=5, max_depth=3)
    for base in (0.0, -80.0):  # from -80 a Newton step is 1e33: it is shortened, but not to nothing
        (plain, _), (told, history) = (
            jboost.fit(Loss(mine, majorant=majorant), X, y, spec=spec, base_score=base)
            for majorant in (None, losses.logistic.majorant)
        )
        for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(told), strict=True):
            np.testing.assert_array_equal(one, other)
        before = np.mean(np.logaddexp(0, base) - y * base)
        assert history.train_loss[0] < before
        assert history.train_loss[-1] < (0.6 if base else 1) * before
    with pytest.raises(ValueError, match="majorant must be a function"):
        jboost.fit(Loss(mine, majorant=lambda a: a[None]), X, y, spec=spec)
    with pytest.raises(ValueError, match="majorant must be None for a BatchLoss"):
        jboost.BatchLoss(lambda score, y, weight: jnp.sum(score), majorant=losses.logistic.majorant)


def test_a_rise_that_the_next_round_tells_of_is_taken_back():
    """The rounds of one call of a loss of one's own are those of steps that are looked at when they are taken."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.floor(np.exp(1.5 * X[:, 0]))
    given = {"spec": Spec(n_estimators=6, max_depth=3), "hyper": Hyper(learning_rate=0.5)}
    model, _ = jboost.fit(Loss(cauchy), X, y, **given)
    unseen, _ = jboost.fit(Loss(cauchy, majorant=lambda a: 0 * a), X, y, **given)  # it says that none rises
    problem, state = jboost.boosting.init(Loss(cauchy), X, y, **given)
    step, same = jax.jit(jboost.boosting.step), []
    for value, taken in zip(model.leaf_value, unseen.leaf_value, strict=True):
        state, one = step(problem, state)
        np.testing.assert_array_equal(value, one.leaf_value)
        same.append(np.array_equal(value, taken))
    assert same[:3] == [True, True, False], "the first step to be shortened is one within a call"


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_derivatives_hold_the_shortening_fixed(order):
    """Poisson with a leaf whose step is shortened: reverse mode against central differences, in float64."""
    with jax.enable_x64():
        X = np.repeat(np.arange(4.0), 8)[:, None]
        y = np.repeat([1.0, 2.0, 3.0, 400.0], 8)
        data = jboost.bin_features(X, 8)

        def risk(reg_lambda):
            hyper = Hyper(learning_rate=0.7, reg_lambda=reg_lambda)
            spec = Spec(n_estimators=3, max_depth=2)
            _, history = jboost.fit(losses.poisson, data, y, spec=spec, hyper=hyper)
            return history.train_loss[-1]

        at, step = 0.5, 1e-5
        told = jax.jit(jax.value_and_grad(risk if order == 1 else jax.grad(risk)))
        (_, slope), (high, _), (low, _) = map(told, (at, at + step, at - step))
        np.testing.assert_allclose(slope, (high - low) / (2 * step), rtol=1e-6 if order == 1 else 1e-5)


def test_derivatives_that_are_not_finite_later_are_told_of():
    """sqrt(r^2) has the derivative 0 / 0 once a residual is 0: here in the second round, of the row of X = 0."""

    def root(score, y):
        residual = score - y
        return 0.5 * jnp.square(residual) + jnp.sqrt(jnp.square(residual))

    X = np.repeat(np.arange(2.0), 4)[:, None]
    y = np.repeat([0.0, 4.0], 4)
    loss = Loss(root, curvature=lambda score, y: 2 * jnp.ones_like(score), name="root")
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0)
    spec = Spec(n_estimators=5, max_depth=1, penalties="absolute")  # whose units are powers of two
    # From a score of 1, g = 2 and h = 2 where y = 0: a step of -1.
    with pytest.warns(
        RuntimeWarning, match=r"first derivative of root was not finite in round 2 \(row 0: nan"
    ):
        model, history = jboost.fit(loss, X, y, spec=spec, hyper=hyper, base_score=1.0)
    assert model.n_trees == len(history.train_loss) == 1
    assert np.isfinite(model.leaf_value).all()
    _, traced = jax.jit(
        lambda y: jboost.fit(loss, jboost.bin_features(X), y, spec=spec, hyper=hyper, base_score=1.0)
    )(y)
    assert np.isnan(traced.train_loss).any()


@pytest.mark.slow
def test_derivatives_that_leave_the_range_of_floats_are_told_of():
    """A deviation that falls for ever: h = exp(-2 log scale) of the mean is a float, but not in units of the fit."""
    X, y = np.repeat([0.0, 1.0], 2)[:, None], np.repeat([0.0, 3.0], 2)
    with pytest.warns(
        RuntimeWarning, match=r"second .*, in units of the fit, left the range .* \(row .: \[.*e\+3[78]"
    ):
        model, _ = jboost.fit(
            Loss(normal, n_outputs=2), X, y, spec=Spec(n_estimators=40, max_depth=1), hyper=FULL_STEPS
        )
    assert np.exp(-2 * jboost.predict(model, X)[:, 1].min()) > 1e37


@pytest.mark.slow
def test_a_loss_that_rounds_off_its_value_is_learned_all_the_same():
    """s^2 - 2 s y + y^2 with y about 10,000 is off by as much as it is; its derivatives are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = 1e4 + np.sin(2 * X[:, 0])
    spec = Spec(n_estimators=100, max_depth=3)
    model, _ = jboost.fit(Loss(lambda s, y: s * s - 2 * s * y + y * y), X, y, spec=spec)
    known, _ = jboost.fit(losses.squared_error, X, y, spec=spec)
    error, least = (np.std(np.asarray(jboost.predict(one, X)) - y) for one in (model, known))
    assert error < 1.2 * least


def spread(score, y, mask):
    residual = jnp.where(mask, score - y, 0)
    return jnp.log1p(jnp.sum(residual**2)) + 0.1 * jnp.square(jnp.sum(jnp.where(mask, score, 0)))


@pytest.mark.parametrize("seed", [0, 1])
def test_losses_of_groups_do_not_climb(seed):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = 3 * X[:, 0] + rng.standard_cauchy(120)
    rng = np.random.default_rng(seed)
    weight = np.where(rng.random(120) < 0.3, 0, rng.lognormal(size=120) * 3)
    weight[:20] = 0
    _, history = jboost.fit(
        jboost.GroupLoss(spread), X, y, groups=np.repeat(np.arange(30), 4), sample_weight=weight,
        spec=Spec(n_estimators=40, max_depth=3), hyper=dataclasses.replace(FULL_STEPS, reg_lambda=0.0), base_score=0.0,
    )  # fmt: skip
    assert (np.diff(history.train_loss) <= ROUNDING * np.abs(history.train_loss[:-1])).all()


@pytest.mark.slow
@pytest.mark.parametrize("far", [0.0, 1e3])
def test_a_loss_that_has_fallen_far_does_not_climb(far):
    def rippled(score, y):
        return 1e-3 * jnp.square(score - y) + jnp.sin(3 * (score - y)) ** 2

    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = far * np.sign(X[:, 0]) + 3 * X[:, 1]
    loss = Loss(rippled, curvature=lambda score, y: 2e-3 * jnp.ones_like(score))
    spec = Spec(n_estimators=40, max_depth=4, grow_policy="depthwise")
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
    _, history = jboost.fit(loss, X, y, spec=spec, hyper=hyper)
    assert (np.diff(history.train_loss) <= 1e-4 * np.abs(history.train_loss[:-1])).all()


@pytest.mark.parametrize(
    "loss",
    [
        dataclasses.replace(losses.squared_error, curvature=lambda score, y: 0.1 * jnp.ones_like(score)),
        pytest.param(
            dataclasses.replace(losses.pseudo_huber(1.0), hessian="diagonal"), marks=pytest.mark.slow
        ),
        pytest.param(dataclasses.replace(losses.poisson, hessian="first_order"), marks=pytest.mark.slow),
    ],
    ids=["curvature", "diagonal", "first_order"],
)
def test_a_majorant_of_another_hessian_is_not_believed(loss):
    X = np.repeat(np.arange(4.0), 8)[:, None]
    y = np.repeat([1.0, 2.0, 3.0, 100.0], 8)
    hyper = Hyper(learning_rate=1.0, min_child_weight=0.0)
    _, history = jboost.fit(loss, X, y, spec=Spec(n_estimators=20, max_depth=2), hyper=hyper, base_score=1.0)
    assert (np.diff(history.train_loss) <= ROUNDING * (1 + np.abs(history.train_loss[:-1]))).all()


def test_what_is_made_of_newton_is_looked_at():
    class Threefold(jboost.Newton):
        def leaf_values(self, leaves):
            return 3 * super().leaf_values(leaves)

    X = np.arange(32.0)[:, None]
    loss = dataclasses.replace(losses.squared_error, leaf=Threefold())
    hyper = Hyper(learning_rate=0.9)
    _, history = jboost.fit(loss, X, X[:, 0], spec=Spec(n_estimators=6, max_depth=2), hyper=hyper)
    assert (np.diff(history.train_loss) <= 0).all()


def test_an_l1_penalty_does_not_stop_a_shortened_step():
    """Poisson counts of 1 and 100 from a score of 0: with alpha = 55 the optimum of the second leaf is log(45)."""
    X, y = np.repeat(np.arange(2.0), 10)[:, None], np.repeat([1.0, 100.0], 10)
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, reg_alpha=55.0 * 10)
    spec = Spec(n_estimators=30, max_depth=1, penalties="absolute")
    model, _ = jboost.fit(losses.poisson, X, y, spec=spec, hyper=hyper, base_score=0.0)
    assert np.exp(np.asarray(jboost.predict(model, X))[-1]) > 20


@pytest.mark.slow
def test_rounds_before_a_derivative_that_is_not_finite_are_kept_beside_validation_rows():
    def root(score, y):
        return 0.5 * jnp.square(score - y) + jnp.sqrt(jnp.square(score - y))

    X, y, seen = np.repeat(np.arange(2.0), 4)[:, None], np.repeat([0.0, 4.0], 4), []
    with pytest.warns(RuntimeWarning, match="not finite in round 2"):
        model, _ = jboost.fit(
            Loss(root, curvature=lambda score, y: 2 * jnp.ones_like(score)), X, y, valid=(X, y), base_score=1.0,
            spec=Spec(n_estimators=5, max_depth=1, penalties="absolute"),
            hyper=Hyper(learning_rate=1.0, reg_lambda=0.0), callbacks=[lambda one: bool(seen.append(one.n_rounds))],
        )  # fmt: skip
    assert model.n_trees == 1
    assert len(seen) == 1


@pytest.mark.slow
@pytest.mark.last_digits
def test_a_loss_without_a_minimum_stops_where_scores_are_rounded():
    """A scale that falls for ever ends where the next float of the mean is a cliff: told by the loss in float64."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = X[:, 0] + np.exp(0.7 * X[:, 1]) * rng.normal(size=600)
    loss = Loss(normal, n_outputs=2, hessian="full")
    spec = Spec(n_estimators=100, grow_policy="depthwise")
    model, history = jboost.fit(loss, X, y, spec=spec, hyper=FULL_STEPS)
    mean, log_scale = np.asarray(jboost.predict(model, X), np.float64).T
    exact = np.mean(0.5 * np.square((y - mean) * np.exp(-log_scale)) + log_scale)
    before = np.concatenate([[np.log(y.std()) + 0.5], history.train_loss[:-1]])
    assert len(history.train_loss) == 100
    assert np.all(history.train_loss <= before + ROUNDING * (1 + np.abs(before)))
    np.testing.assert_allclose(exact, history.train_loss[-1], atol=1e-3 * abs(exact))


class TooFar:
    """A leaf rule of one's own, which nothing shortens."""

    needs_all_rows: ClassVar[bool] = False

    def leaf_values(self, leaves):
        return -3.0 * leaves.sum_of_g() / (leaves.sum_of_h() + 1e-6)

    def base_score(self, loss, rows, reduce):
        return jboost.best_constant(loss, rows, reduce)


def test_a_training_loss_that_ends_above_its_start_is_told_of():
    X = np.arange(64.0)[:, None]
    loss = Loss(losses.squared_error.function, leaf=TooFar())
    with pytest.warns(
        UserWarning, match=r"the training loss ended at .*, above the .* that the base score has"
    ):
        jboost.fit(loss, X, X[:, 0] ** 2, spec=Spec(n_estimators=5), hyper=Hyper(learning_rate=1.0))
