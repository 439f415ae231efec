"""Built-in losses against closed forms, finite differences and scikit-learn; their records and checks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit
from scipy.special import softmax as scipy_softmax
from sklearn._loss import loss as peer

import jboost
from jboost import losses
from jboost._objective.loss import as_loss
from jboost.losses import Loss, Newton, Quantile
from tests.of_rows import raw_value_grad_hess, resolve_outputs, value_grad_hess

N = 60
RNG = np.random.default_rng(0)
REAL = RNG.normal(size=N)
BINARY = RNG.integers(0, 2, N).astype(float)
SHARE = RNG.uniform(size=N)
COUNT = RNG.poisson(1.5, N).astype(float)
AMOUNT = RNG.gamma(2.0, size=N)
LABEL = RNG.integers(0, 3, N)
SCORE = RNG.normal(size=N) * 2
SCORES = RNG.normal(size=(N, 3)) * 2


def _huber(s, y, d):
    return np.clip(s - y, -d, d), (np.abs(s - y) <= d).astype(float)


def _pseudo_huber(s, y, d):
    q = np.sqrt(1 + ((s - y) / d) ** 2)
    return (s - y) / q, q**-3


def _exponential(s, y):
    z = 2 * y - 1
    return -z * np.exp(-z * s), np.exp(-z * s)


def _tweedie(s, y, p):
    a, b = np.exp((2 - p) * s), y * np.exp((1 - p) * s)
    return a - b, (2 - p) * a - (1 - p) * b


def _softmax(s, y):
    p = scipy_softmax(s, axis=1)
    return p - (np.arange(3) == y[:, None]), p * (1 - p)


# loss, y, score, closed form (s, y) -> (g, h), scikit-learn's loss where it has one
CASES: dict[str, tuple[Loss, np.ndarray, np.ndarray, Any, Any]] = {
    "squared_error": (
        losses.squared_error,
        REAL,
        SCORE,
        lambda s, y: (s - y, np.ones(N)),
        peer.HalfSquaredError(),
    ),
    "absolute_error": (
        losses.absolute_error,
        REAL,
        SCORE,
        lambda s, y: (np.sign(s - y), np.zeros(N)),
        peer.AbsoluteError(),
    ),
    "quantile": (
        losses.quantile(0.9),
        REAL,
        SCORE,
        lambda s, y: (np.where(y > s, -0.9, 0.1), np.zeros(N)),
        peer.PinballLoss(quantile=0.9),
    ),
    "huber": (losses.huber(0.7), REAL, SCORE, lambda s, y: _huber(s, y, 0.7), peer.HuberLoss(delta=0.7)),
    "pseudo_huber": (losses.pseudo_huber(0.7), REAL, SCORE, lambda s, y: _pseudo_huber(s, y, 0.7), None),
    "logistic": (
        losses.logistic,
        BINARY,
        SCORE,
        lambda s, y: (expit(s) - y, expit(s) * expit(-s)),
        peer.HalfBinomialLoss(),
    ),
    "soft_labels": (
        losses.logistic,
        SHARE,
        SCORE,
        lambda s, y: (expit(s) - y, expit(s) * expit(-s)),
        peer.HalfBinomialLoss(),
    ),
    "exponential": (losses.exponential, BINARY, SCORE, _exponential, peer.ExponentialLoss()),
    "poisson": (
        losses.poisson,
        COUNT,
        SCORE,
        lambda s, y: (np.exp(s) - y, np.exp(s)),
        peer.HalfPoissonLoss(),
    ),
    "gamma": (
        losses.gamma,
        AMOUNT,
        SCORE,
        lambda s, y: (1 - y * np.exp(-s), y * np.exp(-s)),
        peer.HalfGammaLoss(),
    ),
    "tweedie": (
        losses.tweedie(1.3),
        COUNT,
        SCORE,
        lambda s, y: _tweedie(s, y, 1.3),
        peer.HalfTweedieLoss(power=1.3),
    ),
    "softmax": (losses.softmax(3), LABEL, SCORES, _softmax, peer.HalfMultinomialLoss(n_classes=3)),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
each_loss = pytest.mark.parametrize("loss", [case[0] for case in CASES.values()], ids=CASES)


@each_case
def test_derivatives_match_the_closed_form(case, precision):
    loss, y, score, closed_form, _ = case
    rtol, atol = (1e-12, 1e-13) if precision is np.float64 else (2e-5, 2e-6)
    _, g, h = raw_value_grad_hess(replace(loss, hessian="diagonal"), jnp.asarray(score), jnp.asarray(y))
    expected_g, expected_h = closed_form(score, y)
    assert g.dtype == h.dtype == precision
    np.testing.assert_allclose(g, expected_g, rtol=rtol, atol=atol)
    np.testing.assert_allclose(h, expected_h, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    "loss",
    [case[0] for case in CASES.values() if case[2].ndim == 1 and case[0].diagonal is not None]
    + [losses.linex(-0.7), losses.expectile(0.8)],
    ids=lambda loss: loss.name,
)
def test_one_pass_takes_the_second_derivatives_of_several_outputs(loss, x64):
    """The formula a loss brings for them, and those of one output each, by automatic differentiation."""
    score, y = jnp.asarray(SCORES), jnp.asarray(np.stack([BINARY, 1 - BINARY, BINARY], axis=1))
    y = y + (loss is losses.gamma)
    _, g, h = raw_value_grad_hess(replace(loss, n_outputs=3), score, y)
    for j in range(3):
        _, slope, curvature = raw_value_grad_hess(loss, score[:, j], y[:, j])
        np.testing.assert_allclose(g[:, j], slope, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(h[:, j], curvature, rtol=1e-12, atol=1e-14)
    program = jax.make_jaxpr(raw_value_grad_hess)(replace(loss, n_outputs=3), score, y)
    assert "scan[" not in str(program)


@each_case
def test_derivatives_match_finite_differences(case, x64):
    loss, y, score, _, _ = case
    loss, y, step = replace(loss, hessian="diagonal"), jnp.asarray(y), 1e-5
    value, g, h = raw_value_grad_hess(loss, jnp.asarray(score), y)
    for j in range(1 if score.ndim == 1 else 3):
        shift = np.full(N, step) if score.ndim == 1 else step * np.tile(np.arange(3) == j, (N, 1))
        up, g_up, _ = raw_value_grad_hess(loss, jnp.asarray(score + shift), y)
        down, g_down, _ = raw_value_grad_hess(loss, jnp.asarray(score - shift), y)
        column = (lambda a: a) if score.ndim == 1 else (lambda a, j=j: a[:, j])
        np.testing.assert_allclose((up - down) / (2 * step), column(g), rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(column(g_up - g_down) / (2 * step), column(h), rtol=1e-6, atol=1e-6)
    assert value.shape == (N,)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[4] is not None])
def test_value_and_derivatives_match_scikit_learn(name, x64):
    loss, y, score, _, theirs = CASES[name]
    y_true, raw = y.astype(float), np.ascontiguousarray(score)
    value, g, h = raw_value_grad_hess(replace(loss, hessian="diagonal"), jnp.asarray(score), jnp.asarray(y))
    their_value = theirs.loss(y_true=y_true, raw_prediction=raw)
    their_g, their_h = theirs.gradient_hessian(y_true=y_true, raw_prediction=raw)
    np.testing.assert_allclose(value, their_value, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(g, their_g, rtol=1e-9, atol=1e-11)
    if loss.hessian != "first_order" or name == "huber":  # else scikit-learn's h is a placeholder of 1
        np.testing.assert_allclose(h, their_h, rtol=1e-9, atol=1e-11)


@each_case
def test_extreme_scores_give_no_nan(case):
    loss, y, score, _, _ = case
    for size in (0.0, 30.0, 1e2, 1e4):
        for sign in (-1, 1):
            extreme = jnp.full(score.shape, sign * size, jnp.float32)
            if score.ndim == 2:
                extreme = extreme.at[:, 1].multiply(-1)
            for kind in ("diagonal", loss.hessian):
                for result in value_grad_hess(replace(loss, hessian=kind), extreme, jnp.asarray(y)):
                    assert not np.isnan(result).any()
                    if (
                        loss.inverse_link is not losses.exp and loss is not losses.exponential
                    ):  # e^s overflows
                        assert np.isfinite(result).all()


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_saturated_logistic_keeps_the_exact_value(y):
    value, g, _ = value_grad_hess(losses.logistic, jnp.array([1e4, -1e4]), jnp.array([y, y]))
    np.testing.assert_array_equal(value, [1e4 * (1 - y), 1e4 * y])
    np.testing.assert_array_equal(g, [1 - y, -y])


@pytest.mark.parametrize(
    "loss",
    [
        losses.squared_error,
        losses.absolute_error,
        losses.quantile(0.2),
        losses.huber(1.0),
        losses.pseudo_huber(1.0),
        losses.logistic,
        losses.poisson,
        losses.gamma,
        losses.tweedie(1.5),
        losses.exponential,
    ],
    ids=lambda loss: loss.name,
)
def test_outputs_are_summed(loss):
    y = np.stack([BINARY, 1 - BINARY], axis=1)
    scores = SCORES[:, :2]
    value, g, h = value_grad_hess(loss, jnp.asarray(scores), jnp.asarray(y))
    columns = [value_grad_hess(loss, jnp.asarray(scores[:, j]), jnp.asarray(y[:, j])) for j in range(2)]
    np.testing.assert_allclose(value, columns[0][0] + columns[1][0], rtol=1e-5)
    for together, apart in ((g, 1), (h, 2)):
        np.testing.assert_allclose(
            together, np.stack([columns[0][apart], columns[1][apart]], 1), rtol=1e-5, atol=1e-7
        )


def test_quantile_at_one_half_is_half_the_absolute_error():
    residuals = jnp.array([-2.0, 0.0, 3.0])
    half = value_grad_hess(losses.quantile(0.5), residuals, jnp.zeros(3))
    whole = value_grad_hess(losses.absolute_error, residuals, jnp.zeros(3))
    np.testing.assert_allclose(half[0], whole[0] / 2)
    np.testing.assert_array_equal(half[1], whole[1] / 2)
    np.testing.assert_array_equal(whole[1], [-1, 0, 1])


@pytest.mark.parametrize(
    ("link", "score", "expected"),
    [
        (losses.logistic, SCORE, expit(SCORE)),
        (losses.exponential, SCORE, expit(2 * SCORE)),
        (losses.softmax(3), SCORES, scipy_softmax(SCORES, axis=1)),
        (losses.poisson, SCORE, np.exp(SCORE)),
        (losses.gamma, SCORE, np.exp(SCORE)),
        (losses.tweedie(1.5), SCORE, np.exp(SCORE)),
        (losses.huber(1.0), SCORE, SCORE),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_inverse_links(link, score, expected):
    np.testing.assert_allclose(link.inverse_link(jnp.asarray(score)), expected, rtol=1e-5)
    assert link.inverse_link in losses.INVERSE_LINKS.values()


# --- Records ------------------------------------------------------------------------------------------------


@each_loss
def test_losses_pickle_to_equal_ones(loss):
    restored = pickle.loads(pickle.dumps(loss))
    assert restored == loss
    assert hash(restored) == hash(loss)


@pytest.mark.parametrize(
    ("factory", "argument", "other"),
    [
        (losses.huber, 1, 2.0),
        (losses.pseudo_huber, 1, 2.0),
        (losses.quantile, 0.5, 0.9),
        (losses.tweedie, 1.5, 1.6),
        (losses.softmax, 3, 4),
    ],
)
def test_factories_compare_by_argument_and_share_a_program(factory, argument, other):
    traces = []
    run = jax.jit(lambda score, loss: (traces.append(None), score)[1], static_argnames="loss")
    same = factory(np.float64(argument) if factory is not losses.softmax else np.int64(argument))
    assert factory(argument) == same
    run(jnp.zeros(3), loss=factory(argument))
    run(jnp.zeros(3), loss=same)
    assert len(traces) == 1
    run(jnp.zeros(3), loss=factory(other))
    assert len(traces) == 2
    assert factory(argument) != factory(other)


@pytest.mark.parametrize(
    ("factory", "argument"),
    [
        (losses.huber, 0.0),
        (losses.huber, -1),
        (losses.huber, float("inf")),
        (losses.pseudo_huber, float("nan")),
        (losses.quantile, 0.0),
        (losses.quantile, 1.0),
        (losses.tweedie, 1),
        (losses.tweedie, 2.0),
        (losses.softmax, 1),
    ],
)
def test_factories_refuse_arguments_out_of_range(factory, argument):
    name = {"huber": "delta", "pseudo_huber": "delta", "quantile": "level", "tweedie": "power"}
    with pytest.raises(ValueError, match=f"^{name.get(factory.__name__, 'n_classes')} must be"):
        factory(argument)


@pytest.mark.parametrize("factory", [losses.huber, losses.quantile, losses.tweedie, losses.softmax])
@pytest.mark.parametrize("argument", ["1.5", (), True])
def test_factories_refuse_other_types(factory, argument):
    with pytest.raises(TypeError, match="must be"):
        factory(argument)


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("function", 3, TypeError),
        ("inverse_link", "sigmoid", TypeError),
        ("check_target", 1, TypeError),
        ("n_outputs", 0, ValueError),
        ("n_outputs", 2.0, ValueError),
        ("hessian", "exact", ValueError),
        ("hessian_floor", 0.0, ValueError),
        ("hessian_floor", float("nan"), ValueError),
        ("leaf", "newton", TypeError),
    ],
)
def test_loss_refuses_bad_fields_by_name(field, value, error):
    with pytest.raises(error, match=f"^{field} must be"):
        Loss(**{"function": lambda s, y: s, field: value})


def test_leaf_rules_refuse_bad_numbers():
    steps: Any
    for steps in (0, -1, 1.5, True):
        with pytest.raises((ValueError, TypeError), match="steps must be"):
            Newton(steps)
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="level must"):
            Quantile(level)


def test_as_loss_wraps_functions_and_refuses_the_rest():
    def mine(score, y):
        return (score - y) ** 2

    assert as_loss(losses.logistic) is losses.logistic
    structures = [
        jax.tree.structure(loss) for loss in (as_loss(mine), as_loss(mine), Loss(mine, name="mine"))
    ]
    assert structures[0] == structures[1] == structures[2]
    for other in ("logistic", None, 3, Loss):
        with pytest.raises(TypeError, match="loss must be"):
            as_loss(other)

    class Unhashable:
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, score, y):
            return score

    with pytest.raises(TypeError, match="hashable"):
        as_loss(Unhashable())


def test_resolve_outputs():
    plain = Loss(lambda s, y: jnp.sum((s - y) ** 2))
    assert resolve_outputs(plain, np.zeros(4)) is None
    assert resolve_outputs(plain, np.zeros((4, 1))) == 1
    assert resolve_outputs(plain, jnp.zeros((4, 3))) == 3
    assert resolve_outputs(losses.softmax(5), np.zeros(4, int)) == 5
    with_exposure = Loss(lambda s, y: jnp.exp(s) * y["exposure"] - y["count"] * s)
    assert resolve_outputs(with_exposure, {"exposure": np.ones(4), "count": np.ones(4)}) is None


@pytest.mark.parametrize(
    ("function", "y"),
    [
        (lambda s, y: s - y, np.zeros((4, 2))),
        (lambda s, y: jnp.stack([s, y]), np.zeros(4)),
        (lambda s, y: s > y, np.zeros(4)),
        (lambda s, y: (s, y), np.zeros(4)),
    ],
)
def test_a_loss_of_a_row_must_be_a_real_scalar(function, y):
    with pytest.raises(ValueError, match="loss must return a real scalar for one row"):
        resolve_outputs(Loss(function), y)


def test_one_column_for_each_class_is_told_to_be_numbers():
    with pytest.raises(ValueError, match="for classes let y hold their numbers, not a column of each"):
        resolve_outputs(losses.softmax(3), np.eye(3))


@pytest.mark.parametrize(
    "y", [np.float64(3.0), (), (np.zeros(3), np.zeros(4)), np.zeros((2, 2, 2)), np.zeros((2, 0))]
)
def test_resolve_outputs_refuses_other_shapes_of_y(y):
    with pytest.raises(ValueError, match=r"^y must"):
        resolve_outputs(Loss(lambda s, y: jnp.sum(s)), y)


# --- Targets ------------------------------------------------------------------------------------------------


def check_target(loss: Loss, y: np.ndarray) -> None:
    assert loss.check_target is not None
    loss.check_target(y)


@each_loss
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_every_loss_refuses_a_target_that_is_not_finite(loss, bad):
    with pytest.raises(ValueError, match=r"^y must be finite; got .* at row 2"):
        check_target(loss, np.array([0.0, 1.0, bad]))


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (losses.logistic, [0, 2]),
        (losses.logistic, [-1, 1]),
        (losses.exponential, [0, 0.5]),
        (losses.poisson, [0, -1]),
        (losses.gamma, [1, 0]),
        (losses.tweedie(1.5), [1, -0.1]),
        (losses.softmax(3), [0, 3]),
        (losses.softmax(3), [0, -1]),
        (losses.softmax(3), [0, 1.5]),
    ],
    ids=lambda value: value.name if isinstance(value, Loss) else str(value),
)
def test_targets_outside_the_domain_name_y_and_the_row(loss, y):
    with pytest.raises(ValueError, match=r"^y must be .*; got .* at row 1|^y must be .*; got -1 at row 0"):
        check_target(loss, np.asarray(y))


def test_targets_of_other_kinds_are_refused():
    with pytest.raises(ValueError, match=r"y must have shape \[n\]"):
        check_target(losses.softmax(3), np.zeros((4, 3)))
    for y in (np.array(["a", "b"]), np.array([1j]), np.array([None, 1], dtype=object)):
        with pytest.raises(ValueError, match=r"^y must hold real numbers"):
            check_target(losses.squared_error, y)


@each_case
def test_targets_inside_the_domain_pass(case):
    loss, y, *_ = case
    check_target(loss, y)
    check_target(loss, y.astype(np.float32))
    if np.all(y == np.floor(y)):
        check_target(loss, y.astype(bool) if loss in (losses.logistic, losses.exponential) else y.astype(int))


def test_what_makes_a_loss_is_to_be_called():
    with pytest.raises(TypeError, match=r"jboost.losses.softmax makes one: call it"):
        jboost.fit(losses.softmax, np.zeros((4, 1)), np.arange(4) % 3)


def test_a_loss_of_one_array_is_told_of_a_dict():
    for loss in (losses.squared_error, losses.logistic):
        with pytest.raises(
            TypeError, match=r"reads y as it is, a dict of arrays; or give y as an array \[n\]"
        ):
            resolve_outputs(loss, {"a": np.zeros(4)})


def test_a_loss_that_wants_a_vector_is_told_how():
    def cross_entropy(score, y):
        return -jax.nn.log_softmax(score)[y]

    with pytest.raises(ValueError, match=r"loss failed on a score of shape \(\).*n_outputs=k"):
        jboost.fit(cross_entropy, np.zeros((4, 1)), np.arange(4) % 3)
