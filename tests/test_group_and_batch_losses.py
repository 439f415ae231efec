"""Losses of groups and of all rows: against losses of one row, closed forms and NumPy."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import BatchLoss, GroupLoss, Hyper, Loss, Spec, losses
from jboost._objective.curvature import exact_diagonal, probed_diagonal
from jboost._objective.rows import Rows, make_groups
from tests.twin import assert_same_models, problem

SMALL = Spec(n_estimators=3, max_depth=2)
N = 400
MANY_SIZES = np.random.default_rng(5).integers(0, 90, N)  # groups of 1 to 12 rows, in no order
# Each power of two is a table, and derivatives of its own to compile: fits have two of them.
IDS = np.random.default_rng(5).permutation(np.repeat(np.arange(80), np.resize([3, 4, 6, 7], 80)))


def of_rows(function):
    """Make a function of groups that sums one of rows."""

    def total(score, y, mask):
        return jnp.sum(jnp.where(mask, jax.vmap(function)(score, y), 0.0))

    return total


def of_batch(function):
    def total(score, y, weight):
        return jnp.sum(weight * jax.vmap(function)(score, y))

    return total


def fit(loss: Any, target: str = "binary", weight: Any = None, **options: Any) -> Any:
    rows = problem("plain")
    given: dict[str, Any] = {"spec": SMALL} | options
    return jboost.fit(loss, rows.data, rows.targets[target], sample_weight=weight, **given)


OF_GROUPS = GroupLoss(of_rows(losses.logistic.function))
OF_ALL = BatchLoss(of_batch(losses.logistic.function))


@jax.jit  # operation by operation it would be 150 programs
def hessian_diagonal(loss, score, rows):
    return loss.hessian_diagonal(score, rows)


# --- A loss of one row in another coat ----------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [pytest.param("group", marks=pytest.mark.slow), "batch"])
def test_a_loss_of_one_row_gives_the_same_model(kind, weighted, x64):
    """Its Hessian is diagonal, so that products with random signs are exact too."""
    rows = problem("plain")
    weight = np.where(np.arange(N) % 7 == 0, 0.0, rows.weight) if weighted else None
    wrapped = OF_GROUPS if kind == "group" else OF_ALL
    groups: dict[str, Any] = {"groups": MANY_SIZES} if kind == "group" else {}
    expected, history = fit(Loss(losses.logistic.function), weight=weight)
    model, other = fit(wrapped, weight=weight, **groups)
    assert_same_models(model, expected, rtol=1e-9)
    assert (np.asarray(model.trees.gain) > 0).any()
    if kind == "batch" or not weighted:  # a group's value counts with the mean weight of its rows
        np.testing.assert_allclose(other.train_loss, history.train_loss, rtol=1e-9)


@pytest.mark.slow
def test_several_outputs_and_a_pytree_of_targets(x64):
    """Two outputs with a shared tree; the target of a group is a pytree."""
    rows = problem("plain")

    def row_loss(score, y):
        return jnp.sum((score - y["pair"]) ** 2) + 0.3 * score[0] * score[1] * y["share"]

    y = {"pair": rows.targets["pair"], "share": rows.weight / rows.weight.max()}

    def by_group(score, y, mask):
        return jnp.sum(jnp.where(mask, jax.vmap(row_loss)(score, y), 0.0))

    spec = dataclasses.replace(
        SMALL, penalties="absolute"
    )  # the unit looks along the steps of rows, not of groups
    expected, _ = jboost.fit(Loss(row_loss, n_outputs=2), rows.data, y, spec=spec)
    model, _ = jboost.fit(GroupLoss(by_group, n_outputs=2), rows.data, y, spec=spec, groups=IDS)
    assert_same_models(model, expected, rtol=1e-9)


@pytest.mark.slow
def test_a_curvature_replaces_the_second_derivative(x64):
    def p(score):
        return jax.nn.sigmoid(score)

    fisher = GroupLoss(
        of_rows(losses.logistic.function), curvature=lambda score, y, mask: p(score) * (1 - p(score))
    )
    expected, _ = fit(losses.logistic)
    assert_same_models(fit(fisher, groups=IDS)[0], expected, rtol=1e-7)
    row = Loss(losses.logistic.function, curvature=lambda score, y: p(score) * (1 - p(score)))
    assert_same_models(fit(row)[0], expected, rtol=1e-7)


# --- Closed forms -------------------------------------------------------------------------------------------


def pairwise(score, y, mask):
    pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
    return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))


def naive_pairwise(score, y, ids):
    """Lambdas of all pairs, one after the other: Burges (2010), equations 1 to 3 with sigma = 1."""
    g, h = np.zeros_like(score), np.zeros_like(score)
    for i in range(len(score)):
        for j in range(len(score)):
            if ids[i] == ids[j] and y[i] > y[j]:
                share = 1 / (1 + np.exp(score[i] - score[j]))
                g[i] -= share
                g[j] += share
                h[[i, j]] += share * (1 - share)
    return g, h


def test_pairwise_logistic_against_a_loop_over_pairs(rng, x64):
    n = 60
    score, y, ids = rng.normal(size=n), rng.integers(0, 3, n).astype(float), rng.integers(0, 9, n)
    rows = Rows(jnp.asarray(y), jnp.ones(n), groups=make_groups(ids))
    value, g, h = hessian_diagonal(GroupLoss(pairwise), jnp.asarray(score), rows)
    expected_g, expected_h = naive_pairwise(score, y, ids)
    np.testing.assert_allclose(g, expected_g, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(h, expected_h, rtol=1e-10, atol=1e-12)
    total = sum(
        np.log1p(np.exp(score[j] - score[i]))
        for i in range(n)
        for j in range(n)
        if ids[i] == ids[j] and y[i] > y[j]
    )
    np.testing.assert_allclose(value.sum(), total, rtol=1e-10)


@pytest.mark.slow
def test_a_ranking_is_learned_and_starts_from_nothing():
    """The order within groups, whose levels tell nothing: a third of the pairs are wrong at first, few in the end."""
    rng = np.random.default_rng(0)
    X, level = rng.normal(size=(N, 3)), rng.normal(size=90)[IDS]
    y = X[:, 0] + level
    model, history = jboost.fit(
        GroupLoss(pairwise),
        X,
        y,
        groups=IDS,
        spec=Spec(n_estimators=20, max_depth=2),
        hyper=Hyper(learning_rate=0.3),
    )
    assert model.base[0] == 0
    score = np.asarray(jboost.predict(model, X))
    pair = (IDS[:, None] == IDS[None]) & (y[:, None] > y[None])
    assert (score[:, None] > score[None])[pair].mean() > 0.93
    assert history.train_loss[-1] < 0.5 * history.train_loss[0]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6, 1e9])
def test_a_batch_loss_starts_where_a_loss_of_rows_does(unit):
    """Far from 0 in units of a first step, and near it in those of its spread."""
    rng = np.random.default_rng(0)
    y = unit * (0.04 + rng.normal(size=300))
    loss = jboost.BatchLoss(lambda score, y, weight: jnp.sum(weight * jnp.square(score - y)))
    model, _ = jboost.fit(loss, np.zeros((300, 1)), y, spec=jboost.Spec(n_estimators=0))
    np.testing.assert_allclose(model.base, [y.mean()], rtol=1e-4)


@pytest.mark.parametrize("n", [48, *(pytest.param(n, marks=pytest.mark.slow) for n in (60, 300))])
def test_a_ranking_starts_from_nothing_whatever_the_weights(n):
    rng = np.random.default_rng(n)
    X, y, ids = rng.normal(size=(n, 2)), rng.integers(0, 4, n), np.arange(n) // 6
    weight = rng.uniform(0, 3, n) * (rng.random(n) < 0.9)
    model, history = jboost.fit(GroupLoss(pairwise), X, y, groups=ids, sample_weight=weight, spec=SMALL)
    assert abs(float(model.base[0])) < 1e-3
    assert np.isfinite(history.train_loss).all()


def cox(score, y, weight):
    """Negative log partial likelihood (Cox 1972), of times that all differ: y is the time, negative if censored."""
    order = jnp.argsort(-jnp.abs(y))
    at_risk = jax.lax.associative_scan(jnp.logaddexp, (score + jnp.log(weight))[order])
    return jnp.sum(jnp.where(y[order] > 0, weight[order] * (at_risk - score[order]), 0.0))


def naive_cox(score, y):
    g, h = np.zeros_like(score), np.zeros_like(score)
    for i in np.flatnonzero(y > 0):
        at_risk = np.abs(y) >= y[i]
        share = np.where(at_risk, np.exp(score), 0) / np.exp(score[at_risk]).sum()
        g += share
        h += share * (1 - share)
        g[i] -= 1
    return g, h


def test_cox_partial_likelihood_against_its_closed_form(rng, x64):
    n = 30  # of which the diagonal is exact
    score, time = rng.normal(size=n), rng.permutation(n) + 1.0
    y = np.where(rng.random(n) < 0.3, -time, time)
    value, g, h = hessian_diagonal(BatchLoss(cox), jnp.asarray(score), Rows(jnp.asarray(y), jnp.ones(n)))
    expected_g, expected_h = naive_cox(score, y)
    np.testing.assert_allclose(g, expected_g, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(h, expected_h, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        value.sum(), jax.jit(cox)(jnp.asarray(score), jnp.asarray(y), jnp.ones(n)), rtol=1e-12
    )


@pytest.mark.slow
def test_cox_with_many_rows_lowers_the_partial_likelihood():
    rng = np.random.default_rng(1)
    n = 100  # of which the diagonal is an estimate
    X = rng.normal(size=(n, 3))
    time = rng.exponential(np.exp(-X[:, 0]))
    y = np.where(rng.random(n) < 0.3, -time, time)
    model, history = jboost.fit(BatchLoss(cox), X, y, spec=Spec(n_estimators=20, max_depth=2))
    assert (np.diff(history.train_loss) < 0).all()
    assert np.corrcoef(jboost.predict(model, X), X[:, 0])[0, 1] > 0.8


@pytest.mark.slow
def test_a_penalty_on_the_difference_between_two_groups_of_people(x64):
    """Demographic parity: squares, and strength times the square of the difference of mean scores, in closed form."""
    rows = problem("plain")
    y, strength = rows.targets["real"], 50.0
    person = np.arange(N) % 2

    def fair(score, y, weight):
        share = [weight * (y["person"] == j) for j in (0, 1)]
        means = [jnp.sum(one * score) / jnp.sum(one) for one in share]
        return jnp.sum(weight * (score - y["y"]) ** 2) / 2 + strength * (means[0] - means[1]) ** 2

    target = {"y": y, "person": person}
    score = np.asarray(np.random.default_rng(2).normal(size=N))
    unit = Rows(jax.tree.map(jnp.asarray, target), jnp.ones(N))
    _, g = BatchLoss(fair).value_and_grad(jnp.asarray(score), unit)
    difference = score[person == 0].mean() - score[person == 1].mean()
    expected = score - y + 2 * strength * difference * np.where(person == 0, 1, -1) / (N / 2)
    np.testing.assert_allclose(g, expected, rtol=1e-9)
    found = {}
    for name, loss in (("fair", BatchLoss(fair)), ("plain", losses.squared_error)):
        model, _ = jboost.fit(
            loss, rows.data, target if name == "fair" else y, spec=SMALL, hyper=Hyper(learning_rate=0.5)
        )
        score = np.asarray(jboost.predict(model, rows.data))
        found[name] = abs(score[person == 0].mean() - score[person == 1].mean())
    assert found["fair"] <= found["plain"]


# --- The diagonal of a Hessian ------------------------------------------------------------------------------


def test_diagonals_exact_and_estimated(rng, x64):
    A = rng.normal(size=(20, 20))
    A = A @ A.T + 30 * np.eye(20)

    def at(score):
        return 0.5 * score @ A @ score, A @ score

    score = jnp.asarray(rng.normal(size=20))
    for diagonal, tolerance in ((exact_diagonal, 1e-12), (probed_diagonal, 0.5)):
        value, g, h = diagonal(at, score)
        np.testing.assert_allclose(value, 0.5 * score @ A @ score)
        np.testing.assert_allclose(g, A @ score)
        np.testing.assert_allclose(h, np.diag(A), rtol=tolerance)
    _, _, h = probed_diagonal(lambda s: (jnp.sum(s**3), 3 * s**2), score)
    np.testing.assert_allclose(h, 6 * score, rtol=1e-12)  # no other entries, no error


# --- Groups -------------------------------------------------------------------------------------------------


def test_groups_are_laid_out_once_each_row():
    groups = make_groups(MANY_SIZES)
    seen = np.concatenate([np.asarray(table.row)[np.asarray(table.is_row)] for table in groups.tables])
    assert sorted(seen) == list(range(N))
    for table in groups.tables:
        row, is_row = np.asarray(table.row), np.asarray(table.is_row)
        assert row.shape[1] & (row.shape[1] - 1) == 0  # a power of two
        for one, here in zip(row, is_row, strict=True):
            assert len(set(MANY_SIZES[one[here]])) <= 1
            assert here.sum() in (0, *range(row.shape[1] // 2 + 1, row.shape[1] + 1))
    number = np.asarray(groups.number)
    assert all(len(set(number[one == MANY_SIZES])) == 1 for one in set(MANY_SIZES))
    assert number.max() + 1 == len(set(MANY_SIZES))


def test_whole_groups_are_drawn():
    from jboost.boosting.rounds import _draw

    rows = problem("plain")
    y, half = rows.targets["real"], Hyper(subsample=0.5)
    fair, state = jboost.boosting.init(losses.squared_error, rows.data, y, groups=IDS, hyper=half)
    g = h = jnp.ones_like(state.score)
    weight = np.asarray(_draw(fair, jax.random.key(9), g, h))[:N]
    per_group = {one: set(weight[one == IDS]) for one in set(IDS)}
    assert all(len(found) == 1 for found in per_group.values())
    drawn = np.mean([found == {1.0} for found in per_group.values()])
    assert 0.3 < drawn < 0.7


@pytest.mark.slow
def test_validation_groups_are_watched():
    rows = problem("plain")
    y = rows.targets["real"]
    _, history = jboost.fit(
        GroupLoss(pairwise), rows.data, y, groups=IDS, spec=SMALL, valid=(rows.X, y, None, None, IDS)
    )
    np.testing.assert_allclose(history.valid_metric, history.train_loss, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ValueError, "groups must be given for a GroupLoss"),
        ({"groups": IDS[:-1]}, ValueError, r"groups must have shape \(400,\)"),
        ({"groups": np.full(N, np.nan)}, TypeError, "groups must hold numbers or strings"),
        (
            {"groups": [*map(str, IDS[:-1]), None]},
            ValueError,
            "groups must hold a group .*, got None in row 399",
        ),
        ({"groups": np.array(["a", np.nan] * 200, object)}, ValueError, "groups must .*, got nan in row 1"),
        ({"groups": IDS, "valid": (np.zeros((3, 5)), np.zeros(3))}, ValueError, r"valid\[4\] must be given"),
    ],
)
def test_wrong_groups_are_named(options, error, message):
    with pytest.raises(error, match=message):
        fit(GroupLoss(pairwise), **options)


def test_wrong_losses_are_told_what_they_should_be():
    with pytest.raises(TypeError, match=r"loss must be a function loss\(score \[m\], y, mask\) -> scalar"):
        fit(GroupLoss(lambda score, y: jnp.sum(score)), groups=IDS)
    with pytest.raises(
        ValueError, match=r"loss must return a real scalar .* a sum over the rows \(jnp.sum\)$"
    ):
        fit(BatchLoss(lambda score, y, weight: score))
    for number in (0.0, np.nan):
        flat = BatchLoss(lambda s, y, w: jnp.sum(w * (s - y) ** 2), curvature=lambda s, y, w, c=number: c * s)
        with pytest.raises(ValueError, match="here it is the curvature that the loss brings"):
            fit(flat)
    with pytest.raises(ValueError, match=r"hessian must be .* for a GroupLoss"):
        GroupLoss(lambda s, y, mask: jnp.sum(s), n_outputs=2, hessian="full")
    assert dataclasses.replace(BatchLoss(of_batch(losses.logistic.function)), name="x").name == "x"
