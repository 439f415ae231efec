"""Ordered boosting against a loop over prefixes in NumPy, and what it promises: no row moves its own gradient."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from experiments import nano
from jboost import Hyper, Spec, boosting, losses
from jboost.boosting.ordered import ORDER

N = 45
SPEC = Spec(n_estimators=4, max_depth=2, boosting_type="ordered")
PLAIN = dataclasses.replace(SPEC, boosting_type="plain")
HYPER = Hyper(learning_rate=0.4)


def rows(n: int = N, n_outputs: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = np.round(rng.normal(size=(n, 3)), 1).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n).astype(np.float32)
    return X, y, rng.integers(1, 4, n).astype(np.float32)


def order_of(key: jax.Array, n: int, permutation: int = 0) -> np.ndarray:
    key = jax.random.fold_in(key, ORDER)
    key = jax.random.fold_in(key, permutation) if permutation else key
    return np.argsort(np.asarray(jax.random.bits(key, (n,))), kind="stable")


def own_scores(problem: boosting.Problem, state: boosting.State) -> jax.Array:
    """Return the scores at which the rows have their gradients, by permutation."""
    assert problem.supporting is not None
    assert state.supporting is not None
    return state.supporting[problem.supporting.own][:, :N]


def supporting(kind: str, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Say which rows each model learns from, and which model a row has its gradient at."""
    place = np.argsort(order)
    if kind == "crossed":
        return (place % 5)[None] != np.arange(5)[:, None], place % 5
    most = np.array([0, *(2**j for j in range(int(np.ceil(np.log2(len(order))))))])
    return place[None] < most[:, None], np.searchsorted(most, place, "right") - 1


def twin(codes, y, weight, loss, learns, own, base, n_rounds, settings):
    """Boost with models that each learn from some rows and score all, in plain loops (algorithm 2 of the paper).

    `own` has a line for each permutation, with the numbers of models in `learns`; rounds take it in turn.
    """
    rows = np.arange(len(y))
    models, score, trees = np.tile(base, (len(learns), len(y), 1)), np.tile(base, (len(y), 1)), []

    def derivatives(score):
        return [part * weight[:, None] for part in loss(score, y[:, None])]

    def moved(score, leaf, learned):
        (g, h), found = derivatives(score), np.zeros((2**settings.max_depth, 1))
        for one in range(len(found)):
            mine = learned & (leaf == one)
            found[one] = nano.leaf_value(g[mine].sum(axis=0), h[mine].sum(axis=0), settings)
        return found

    for i in range(n_rounds):
        g, h = derivatives(models[own[i % len(own)], rows])
        tree = nano.grow_tree(codes, g, h, weight, int(codes.max()) + 1, (), settings)
        leaf = nano.leaf_of(tree, codes)
        trees.append(nano.Tree(tree.splits, moved(score, leaf, np.ones(len(y), bool))))
        score = score + trees[-1].leaf_value[leaf]
        models = np.stack(
            [one + moved(one, leaf, mine)[leaf] for one, mine in zip(models, learns, strict=True)]
        )
    return trees, score, models[own, rows]


@pytest.mark.parametrize(
    ("kind", "name", "policy", "n_permutations"),
    [
        ("ordered", "squared_error", "symmetric", 3),
        pytest.param("crossed", "logistic", "depthwise", 2, marks=pytest.mark.slow),
        pytest.param("ordered", "logistic", "depthwise", 1, marks=pytest.mark.slow),
    ],
)
def test_equals_a_loop_over_models(kind, name, policy, n_permutations):
    X, y, weight = rows()
    y = (y > 0).astype(np.float32) if name == "logistic" else y
    data, key = jboost.bin_features(X), jax.random.key(5)
    chosen = {"boosting_type": kind, "n_permutations": n_permutations}
    spec = dataclasses.replace(SPEC, grow_policy=policy, penalties="absolute", **chosen)
    problem, state = boosting.init(
        getattr(losses, name), data, y, spec=spec, hyper=HYPER, sample_weight=weight, key=key
    )
    settings = nano.Settings(max_depth=2, grow_policy=policy, learning_rate=0.4)
    sides = [supporting(kind, order_of(key, N, permutation)) for permutation in range(n_permutations)]
    learns, own = np.concatenate([learns for learns, _ in sides]), np.stack([own for _, own in sides])
    own += len(sides[0][0]) * np.arange(n_permutations)[:, None]
    trees, score, unseen = twin(
        np.asarray(data.bins).astype(int), y.astype(float), weight, getattr(nano, name),
        learns, own, np.asarray(problem.base, float), 4, settings,
    )  # fmt: skip
    step, made = jax.jit(boosting.step), []
    for _ in trees:
        state, one = step(problem, state)
        made.append(one)
    for one, expected in zip(made, trees, strict=True):
        splits = [split for level in expected.splits for split in level if split.gain > 0]
        chosen = np.asarray(one.tree.feature)[np.asarray(one.tree.gain) > 0]
        np.testing.assert_array_equal(chosen, [split.feature for split in splits])
        np.testing.assert_allclose(one.leaf_value, expected.leaf_value, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(state.score[:N], score, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(own_scores(problem, state), unseen, rtol=2e-5, atol=2e-6)


def test_no_row_moves_the_scores_at_which_it_and_those_before_it_are_differentiated():
    """The trees held fixed, which see all gradients: one tree here, so that the first scores are the base score."""
    X, y, _ = rows()
    data, key = jboost.bin_features(X), jax.random.key(5)
    problem, state = boosting.init(
        losses.squared_error, data, y, spec=SPEC, hyper=HYPER, key=key, base_score=0.0
    )
    order = order_of(key, N)

    @jax.jit
    def scores(y):
        moved = dataclasses.replace(problem, train=dataclasses.replace(problem.train, y=y))
        return own_scores(problem, boosting.step(moved, state)[0])[0, :, 0]

    slope = np.asarray(jax.jit(jax.jacobian(scores))(problem.train.y))[:, :N]  # splits carry no derivative
    assert slope.shape == (N, N)
    in_order = slope[np.ix_(order, order)]
    assert (np.triu(in_order) == 0).all()  # neither its own target nor a later one
    assert (np.abs(in_order[1:]).sum(axis=1) > 0).mean() > 0.8


@pytest.mark.slow
def test_the_rest_of_a_fit_goes_with_it():
    """Early stopping, drawn rows, classes, jit: the same model each time; and weights of 0 after the last row."""
    X, y, weight = rows(120)
    label = np.digitize(y, [-0.5, 0.5])
    spec = dataclasses.replace(SPEC, n_estimators=12, n_iter_no_change=3, n_permutations=2)
    data = jboost.bin_features(X)
    hyper = dataclasses.replace(HYPER, subsample=0.8)
    given = {"spec": spec, "hyper": hyper, "valid": (data, label), "key": jax.random.key(1)}
    model, history = jboost.fit(losses.softmax(3), data, label, sample_weight=weight, **given)
    again = jax.jit(
        lambda weight: jboost.fit(losses.softmax(3), data, label, sample_weight=weight, **given)[0].trees
    )(weight)
    n = model.n_trees
    np.testing.assert_array_equal(model.trees.threshold, again.threshold[:n])
    assert (np.diff(history.train_loss) <= 1e-6).sum() >= len(history.train_loss) - 2


@pytest.mark.slow
def test_steps_of_the_supporting_models_are_shortened():
    """One count of 500 among ones makes a Newton step of a model of few rows overshoot by far."""
    X, _, _ = rows(120)
    y = np.where(np.arange(120) % 40 == 7, 500.0, 1.0)
    spec = dataclasses.replace(SPEC, n_estimators=12)
    model, history = jboost.fit(
        losses.poisson, X, y, spec=spec, hyper=Hyper(learning_rate=1.0, reg_lambda=0.01)
    )
    assert model.n_trees == 12
    assert (np.diff(history.train_loss) <= 1e-5).all()
    assert np.isfinite(np.asarray(model.leaf_value)).all()


def test_what_cannot_be_in_order_is_refused():
    X, y, _ = rows(60)
    with pytest.raises(ValueError, match="is for leaves of Newton steps, got Quantile"):
        jboost.fit(losses.absolute_error, X, y, spec=SPEC)
    batch = jboost.BatchLoss(lambda score, y, weight: jnp.sum(weight * (score - y) ** 2))
    with pytest.raises(ValueError, match="for a loss of one row, got a BatchLoss"):
        jboost.fit(batch, X, y, spec=SPEC)
    model, _ = jboost.fit(losses.squared_error, X, y, spec=PLAIN)
    with pytest.raises(ValueError, match="is without init_model"):
        jboost.fit(losses.squared_error, X, y, spec=SPEC, init_model=model)
    with pytest.raises(ValueError, match='n_permutations must be 1 with boosting_type="plain"'):
        dataclasses.replace(PLAIN, n_permutations=2)
    with pytest.raises(ValueError, match="for 60 rows, whose scores have numbers of 32 bits, got 1073741824"):
        jboost.fit(losses.squared_error, X, y, spec=dataclasses.replace(SPEC, n_permutations=2**30))
    with pytest.raises(ValueError, match="'plain' where fits run side by side"):
        jboost.sweep(losses.squared_error, X, y, spec=SPEC, folds=2)


def test_one_row():
    model, _ = jboost.fit(losses.squared_error, [[1.0]], [2.0], spec=SPEC)
    assert np.asarray(jboost.predict(model, [[1.0]])) == 2.0
