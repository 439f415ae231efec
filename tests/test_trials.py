"""Functions of the user's of another form: refused by name before anything is compiled."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import BatchLoss, GroupLoss, Loss, Spec, losses
from tests.twin import problem

SMALL = Spec(n_estimators=2, max_depth=2)
SQUARES = losses.squared_error.function


def fit(loss: Any = losses.squared_error, **options: Any) -> Any:
    rows = problem("plain")
    return jboost.fit(loss, rows.data, rows.targets["real"], spec=SMALL, **options)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda k, g, h, w: w[:1],
        lambda k, g, h, w: w[:, None],
        lambda k, g, h, w: w * h,
        lambda k, g, h, w: 0.5,
        lambda k, g, h, w: None,
        lambda k, g, h, w: w * 1j,
        lambda k, g, h, w: (w, w),
        lambda k, g, h: h,
        lambda k, g, h, w: w if w.sum() > 0 else 2 * w,
    ],
)
def test_samplers_of_another_form_are_named(sampler):
    with pytest.raises((TypeError, ValueError), match=r"^sampler must be"):
        fit(sampler=sampler)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        lambda k, g, h, w: w * jnp.nan,
        lambda k, g, h, w: w.at[0].set(jnp.inf),
        lambda k, g, h, w: -w,
        lambda k, g, h, w: w.at[:5].set(-1.0),
        lambda k, g, h, w: 0 * w,
        lambda k, g, h, w: 1e30 * w,
    ],
)
def test_weights_that_nothing_is_learned_by_are_named(sampler):
    with pytest.raises(ValueError, match=r"^sampler must return finite weights of at least 0"):
        fit(sampler=sampler)


@pytest.mark.slow
def test_a_sampler_may_answer_yes_or_no():
    """Whatever the type: a bool is a weight of 1 or 0."""
    model, _ = fit(sampler=lambda k, g, h, w: jnp.arange(w.size) % 2 == 0)
    other, _ = fit(
        sampler=lambda k, g, h, w: jnp.where(jnp.arange(w.size) % 2 == 0, 1.0, 0.0).astype(jnp.float16)
    )
    np.testing.assert_array_equal(model.leaf_value, other.leaf_value)
    assert float(model.leaf_count.sum()) < 2 * 400


def rule(leaf_values: Any = None, base_score: Any = None, needs: Any = False) -> Any:
    class Rule:
        needs_all_rows: ClassVar[Any] = needs

        def leaf_values(self, leaves: Any) -> Any:
            if leaf_values is not None:
                return leaf_values(leaves)
            return -leaves.sum_of_g() / leaves.weight_of_leaf()[:, None]  # 0 / 0 in a leaf without rows

        def base_score(self, loss: Any, rows: Any, reduce: Any) -> Any:
            return jboost.best_constant(loss, rows, reduce) if base_score is None else base_score(rows)

    return Rule()


@pytest.mark.parametrize(
    "wrong",
    [
        rule(lambda leaves: jnp.ones((1, 1))),
        rule(lambda leaves: jnp.ones(leaves.n_leaves)),
        rule(lambda leaves: jnp.ones((2 * leaves.n_leaves, 1))),
        rule(lambda leaves: None),
        rule(lambda leaves: leaves.no_such_thing),
        rule(base_score=lambda rows: 1.0),
        rule(base_score=lambda rows: jnp.ones(2)),
        rule(base_score=lambda rows: jnp.ones(1, int)),
        rule(base_score=lambda rows: None),
    ],
)
def test_leaf_rules_of_another_form_are_named(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^leaf must be"):
        fit(Loss(SQUARES, leaf=wrong))


@pytest.mark.parametrize("needs", [None, "no", 1])
def test_a_leaf_rule_says_whether_it_needs_all_rows(needs):
    with pytest.raises(TypeError, match=r"^leaf must"):
        Loss(SQUARES, leaf=rule(needs=needs))


def test_a_leaf_without_rows_is_0():
    X = np.array([0.0, 0.0, 1.0, 1.0])[:, None]
    model, _ = jboost.fit(Loss(SQUARES, leaf=rule()), X, X[:, 0], spec=Spec(n_estimators=2, max_depth=3))
    values = np.asarray(model.leaf_value)
    assert np.isfinite(values).all()
    assert (values[np.asarray(model.leaf_count)[..., 0] == 0] == 0).all()
    assert (values != 0).any()


@pytest.mark.parametrize(
    "loss",
    [
        Loss(SQUARES, curvature=lambda s, y: jnp.ones(1)),
        Loss(SQUARES, curvature=lambda s, y: None),
        Loss(SQUARES, curvature=lambda s: s),
        Loss(SQUARES, curvature=lambda s, y: 1.0 if s > 0 else 2.0),
        GroupLoss(lambda s, y, m: jnp.sum(m * (s - y) ** 2), curvature=lambda s, y, m: jnp.ones(1)),
        BatchLoss(lambda s, y, w: jnp.sum(w * (s - y) ** 2), curvature=lambda s, y, w: jnp.ones(())),
    ],
)
def test_curvatures_of_another_form_are_named(loss):
    with pytest.raises((TypeError, ValueError), match=r"^curvature must be"):
        fit(loss, groups=np.arange(400) // 4)


@pytest.mark.slow
def test_full_curvatures_are_checked_whole_and_made_symmetric():
    rows = problem("plain")

    def fitted(matrix):
        loss = Loss(
            SQUARES,
            n_outputs=2,
            hessian="full",
            curvature=lambda s, y: jnp.asarray(matrix, s.dtype) + 0 * s[0],
        )
        return jboost.fit(loss, rows.data, rows.targets["pair"], spec=SMALL)[0].leaf_value

    np.testing.assert_allclose(
        fitted([[1.0, 0.8], [0.0, 1.0]]), fitted([[1.0, 0.4], [0.4, 1.0]]), rtol=1e-5, atol=1e-7
    )
    with pytest.raises(ValueError, match=r"second derivative of .* is not finite"):
        fitted([[1.0, np.nan], [np.nan, 1.0]])
    with pytest.raises(ValueError, match="curvature must be None"):
        Loss(SQUARES, curvature=lambda s, y: 1.0, hessian="first_order")


@pytest.mark.slow
def test_groups_without_rows_do_not_spoil_derivatives(x64):
    """The mean of a group's rows: 0 / 0 in the groups that only fill a table, and in those without weight."""
    rows = problem("plain")
    ids = np.arange(400) // 5
    weight = jnp.asarray((ids % 7 > 0).astype(float))

    def centred(score, y, mask):
        residual = jnp.where(mask, score - y, 0.0)
        return jnp.sum(residual**2) + jnp.sum(residual) ** 2 / jnp.sum(mask)

    @jax.jit  # one program for values and slopes
    @jax.value_and_grad
    def total(rate):
        hyper = jboost.Hyper(learning_rate=rate)
        model, _ = fit(GroupLoss(centred), groups=ids, sample_weight=weight, hyper=hyper)
        return jboost.predict(model, rows.data).sum()

    step = 1e-6
    slope = (total(0.3 + step)[0] - total(0.3 - step)[0]) / (2 * step)
    np.testing.assert_allclose(total(0.3)[1], slope, rtol=1e-5)
