"""Whole fits: equal to the NumPy twin, and right at the edges (no rounds, no gain, zero weights, errors)."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from experiments import nano
from jboost import Hyper, Spec, losses
from tests.twin import (
    CATEGORICAL,
    assert_same_models,
    assert_same_scores,
    assert_same_trees,
    problem,
    same_structure,
    settings,
)

POLICIES = ["symmetric", pytest.param("depthwise", marks=pytest.mark.slow)]
SMALL = Spec(n_estimators=6, max_depth=3)
SHALLOW = {"max_depth": 2}  # compiles faster
FAST = Hyper(learning_rate=0.3)

# name: (kind of problem, library's loss, twin's loss, target, outputs, weighted, Spec changes, Hyper changes)
CASES = {
    "plain": ("plain", losses.squared_error, nano.squared_error, "real", 1, False, {}, {}),
    "mixed": ("mixed", losses.squared_error, nano.squared_error, "real", 1, True, {}, {}),
    "logistic": ("mixed", losses.logistic, nano.logistic, "binary", 1, True, SHALLOW, {"reg_alpha": 0.5}),
    "softmax": (
        "mixed",
        losses.softmax(3),
        nano.softmax,
        "class",
        3,
        False,
        SHALLOW,
        {"min_child_weight": 3.0},
    ),
    "poisson": ("mixed", losses.poisson, nano.poisson, "count", 1, True, SHALLOW, {"max_delta_step": 0.2}),
    "outputs": (
        "mixed",
        losses.squared_error,
        nano.squared_error,
        "pair",
        2,
        True,
        SHALLOW,
        {"reg_lambda": 0.0},
    ),
    "strict": (
        *("mixed", losses.squared_error, nano.squared_error, "real", 1, False),
        {"min_child_samples": 20, "max_cat_to_onehot": 0, **SHALLOW},
        {"gamma": 0.5, "reg_alpha": 1.0, "min_child_weight": 15.0, "cat_smooth": 1.0},
    ),
}
CHOSEN = [
    ("plain", "symmetric"),
    pytest.param("plain", "depthwise", marks=pytest.mark.slow),  # of what is mixed
    ("mixed", "symmetric"),
    ("mixed", "depthwise"),
    ("strict", "depthwise"),
    pytest.param("strict", "symmetric", marks=pytest.mark.slow),
    ("logistic", "symmetric"),
    ("softmax", "depthwise"),
    pytest.param("poisson", "depthwise", marks=pytest.mark.slow),
    ("outputs", "symmetric"),
]


@pytest.mark.parametrize(("case", "policy"), CHOSEN)
def test_fit_equals_the_numpy_twin(case, policy, x64):
    kind, loss, twin_loss, target, k, weighted, spec_changes, hyper_changes = CASES[case]
    rows = problem(kind)
    y, weight = rows.targets[target], rows.weight if weighted else None
    spec = dataclasses.replace(SMALL, grow_policy=policy, penalties="absolute", **spec_changes)
    hyper = dataclasses.replace(FAST, **hyper_changes)
    model, history = jboost.fit(loss, rows.data, y, spec=spec, hyper=hyper, sample_weight=weight)
    base, twins = nano.fit(
        *(twin_loss, rows.codes, y, settings(spec, hyper)),
        weight=weight,
        n_outputs=k,
        n_codes=rows.data.edges.n_codes,
        categorical=CATEGORICAL if kind == "mixed" else (),
    )
    assert any(split.gain > 0 for split in twins[-1].splits[-1])  # the comparison is not of stumps
    free = np.mean(model.base - base) if case == "softmax" else 0.0  # softmax fixes scores up to a constant
    base = base + free
    np.testing.assert_allclose(model.base, base, 1e-9, 1e-9)
    assert_same_trees(model, twins, 1e-9)
    assert_same_scores(model, base, twins, rows, 1e-9)
    assert len(history.train_loss) == spec.n_estimators
    np.testing.assert_allclose(
        history.train_loss[-1],
        np.average(jax.vmap(loss)(jboost.predict(model, rows.data), jnp.asarray(y)), weights=weight),
        rtol=1e-9,
    )


@pytest.mark.slow
def test_in_single_precision_the_fit_still_equals_the_twin():
    rows = problem("mixed")
    spec, y = dataclasses.replace(SMALL, grow_policy="depthwise", max_depth=2), rows.targets["real"]
    model, _ = jboost.fit(
        losses.squared_error, rows.data, y, spec=spec, hyper=FAST, sample_weight=rows.weight
    )
    assert model.leaf_value.dtype == np.float32
    base, twins = nano.fit(
        *(nano.squared_error, rows.codes, y, settings(spec, FAST)),
        weight=rows.weight,
        n_codes=rows.data.edges.n_codes,
        categorical=CATEGORICAL,
    )
    assert_same_trees(model, twins, 1e-4)
    assert_same_scores(model, base, twins, rows, 1e-5)


def test_one_tree_per_output_is_one_fit_per_output(x64):
    rows = problem("mixed")
    spec, y = dataclasses.replace(SMALL, multi_output="separate", max_depth=2), rows.targets["pair"]
    model, _ = jboost.fit(losses.squared_error, rows.data, y, spec=spec, hyper=FAST)
    for output in range(2):
        base, twins = nano.fit(
            *(nano.squared_error, rows.codes, y[:, output], settings(spec, FAST)),
            n_codes=rows.data.edges.n_codes,
            categorical=CATEGORICAL,
        )
        one = jax.tree.map(lambda field, k=output: field[:, k], model.trees)
        assert_same_trees(dataclasses.replace(model, trees=one), twins, 1e-9)
        score = nano.predict(base, twins, rows.codes)[:, 0]
        np.testing.assert_allclose(jboost.predict(model, rows.X)[:, output], score, rtol=1e-9, atol=1e-9)


def test_missing_values_that_training_never_saw_join_the_heavier_child(x64):
    rows = problem("plain")
    spec = dataclasses.replace(SMALL, penalties="absolute")  # the program of the test above
    model, _ = jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=spec, hyper=FAST)
    base, twins = nano.fit(
        *(nano.squared_error, rows.codes, rows.targets["real"], settings(spec, FAST)),
        n_codes=rows.data.edges.n_codes,
    )
    X = rows.X.copy()
    X[:, 0] = np.nan
    codes = rows.codes.copy()
    codes[0] = 0
    expected = nano.predict(base, twins, codes)[:, 0]
    assert not np.allclose(expected, nano.predict(base, twins, rows.codes)[:, 0])
    np.testing.assert_allclose(jboost.predict(model, X), expected, rtol=1e-9)
    np.testing.assert_allclose(jboost.predict(model, jnp.asarray(X)), expected, rtol=1e-9)


def test_no_rounds_give_the_base_score():
    rows = problem("plain")
    y = rows.targets["real"]
    model, history = jboost.fit(losses.squared_error, rows.data, y, spec=Spec(n_estimators=0))
    assert model.n_trees == 0
    assert len(history.train_loss) == 0
    np.testing.assert_allclose(jboost.predict(model, rows.X), np.full(len(y), y.mean()), rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_tree_of_depth_one_has_two_leaves(policy):
    rows = problem("plain")
    spec = Spec(n_estimators=1, max_depth=1, grow_policy=policy)
    model, _ = jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=spec)
    assert model.trees.feature.shape == (1, 1)
    assert model.leaf_value.shape == (1, 2, 1)
    assert len(np.unique(jboost.predict(model, rows.X))) == 2


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("reason", ["constant target", "constant feature", "equal means (XOR)"])
def test_without_gain_nothing_is_split(reason, policy):
    """Cases of LightGBM issues 1697 and 4826.

    Greedy growth sees no gain at the root of an exclusive or and stops there, under either policy.
    """
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 10, dtype=float)
    y = np.logical_xor(X[:, 0], X[:, 1]).astype(float)
    if reason == "constant target":
        y = np.full(len(X), 3.0)
    elif reason == "constant feature":
        X = np.ones((40, 2))
    model, _ = jboost.fit(
        losses.squared_error, X, y, spec=Spec(n_estimators=3, max_depth=2, grow_policy=policy)
    )
    assert (np.asarray(model.trees.threshold) == model.edges.n_codes).all()
    assert (np.asarray(model.trees.gain) == 0).all()
    np.testing.assert_allclose(jboost.predict(model, X), y.mean(), rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_rows_of_weight_zero_are_rows_left_out(policy, x64):
    """Bins, base score, counts and the stopping round do not see them, whatever their target is."""
    rows = problem("mixed")
    kept = np.arange(400) % 27 > 0
    y = np.where(kept, rows.targets["real"], 1e6)
    X = np.where(kept[:, None], rows.X, rows.X + 100)
    X[:, CATEGORICAL] = rows.X[:, CATEGORICAL]
    weight = np.where(kept, rows.weight, 0.0)
    spec = Spec(n_estimators=40, max_depth=2, grow_policy=policy, min_child_samples=10, n_iter_no_change=3)
    fits = []
    for use in (np.ones(400, dtype=bool), kept):
        part = (X[use], y[use], weight[use])
        data = jboost.bin_features(part[0], max_bins=31, sample_weight=part[2], categorical=list(CATEGORICAL))
        valid = (jboost.bin_features(part[0], edges=data.edges), part[1] + 1, part[2])
        fits.append(
            jboost.fit(
                losses.squared_error, data, part[1], spec=spec, hyper=FAST, sample_weight=part[2], valid=valid
            )
        )
    (every, with_zeros), (fewer, without) = fits
    np.testing.assert_array_equal(every.edges.exact, fewer.edges.exact)
    assert_same_models(every, fewer, 1e-9)
    assert with_zeros.best_round == without.best_round
    np.testing.assert_allclose(with_zeros.train_loss, without.train_loss, rtol=1e-9)
    np.testing.assert_allclose(with_zeros.valid_metric, without.valid_metric, rtol=1e-9)


@pytest.mark.slow
def test_padding_has_no_influence(x64):
    """A prefix and the same rows with weight zero beyond it fall into different padded sizes."""
    rows = problem("plain")
    first = rows.take(slice(0, 190))
    y, hyper = rows.targets["real"], Hyper(subsample=0.7)
    weight = (np.arange(400) < 190).astype(float)
    key = jax.random.key(3)
    short, _ = jboost.fit(losses.squared_error, first.data, y[:190], spec=SMALL, hyper=hyper, key=key)
    long, _ = jboost.fit(
        losses.squared_error, rows.data, y, spec=SMALL, hyper=hyper, key=key, sample_weight=weight
    )
    assert_same_models(short, long)


def test_sampling_depends_on_the_key_alone(x64):
    rows = problem("plain")
    y = rows.targets["real"]
    hyper = Hyper(subsample=0.5, colsample_bytree=0.6, colsample_bylevel=0.7)

    def fitted(seed, hyper=hyper):
        return jboost.fit(
            losses.squared_error, rows.data, y, spec=SMALL, hyper=hyper, key=jax.random.key(seed)
        )[0]

    assert_same_models(fitted(0), fitted(0), rtol=0)
    assert not same_structure(fitted(0), fitted(1))
    assert_same_models(fitted(0, Hyper()), fitted(1, Hyper()), rtol=0)  # without sampling there is no chance


def test_columns_are_drawn_for_the_whole_tree(x64):
    rows = problem("plain")
    spec, hyper = Spec(n_estimators=12, max_depth=3), Hyper(colsample_bytree=0.4)
    model, _ = jboost.fit(losses.squared_error, rows.data, rows.targets["real"], spec=spec, hyper=hyper)
    used = [len(set(features)) for features in np.asarray(model.trees.feature)]
    assert max(used) == 2  # round(0.4 * 5) of them
    assert len(set(np.asarray(model.trees.feature).ravel())) > 2


@pytest.mark.filterwarnings("ignore:no tree has a split")
def test_other_rows_are_drawn_in_every_round(x64):
    """Without a split all rows share one leaf, whose value is the mean residual of the drawn rows."""
    rows = problem("plain")
    y = np.arange(400, dtype=float)
    hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=1e9, subsample=0.5)
    model, _ = jboost.fit(losses.squared_error, rows.data, y, spec=SMALL, hyper=hyper)
    shift = np.asarray(model.leaf_value)[:, 0, 0]
    assert len(np.unique(shift)) == SMALL.n_estimators
    assert (abs(shift) < 60).all()  # five standard errors of the difference of two such means


BAD_INPUT = {
    "NaN in y": (ValueError, "y", {"y": np.array([0.0, 1.0, np.nan, 1.0])}),
    "infinite y": (ValueError, "y", {"y": np.array([0.0, 1.0, np.inf, 1.0])}),
    "short y": (ValueError, "y", {"y": np.zeros(3)}),
    "negative weight": (ValueError, "sample_weight", {"sample_weight": np.array([1.0, -1.0, 1.0, 1.0])}),
    "no weight": (ValueError, "sample_weight", {"sample_weight": np.zeros(4)}),
    "NaN weight": (ValueError, "sample_weight", {"sample_weight": np.array([1.0, np.nan, 1.0, 1.0])}),
    "short weight": (ValueError, "sample_weight", {"sample_weight": np.ones(3)}),
    "label outside the domain": (ValueError, "y", {"loss": losses.logistic, "y": np.arange(4.0)}),
    "loss by name": (TypeError, "loss", {"loss": "squared_error"}),
    "spec of another type": (TypeError, "spec", {"spec": {"max_depth": 3}}),
    "hyper of another type": (TypeError, "hyper", {"hyper": {"learning_rate": 0.1}}),
    "learning rate 0": (ValueError, "learning_rate", {"hyper": Hyper(learning_rate=0.0)}),
    "validation of another width": (ValueError, "3 features", {"valid": (np.ones((2, 3)), np.ones(2))}),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_named(case):
    error, name, changes = BAD_INPUT[case]
    arguments = {"loss": losses.squared_error, "y": np.array([0.0, 1.0, 2.0, 3.0]), **changes}
    loss, y = arguments.pop("loss"), arguments.pop("y")
    with pytest.raises(error, match=name):
        jboost.fit(loss, np.arange(8.0).reshape(4, 2), y, **arguments)


def test_a_loss_or_metric_that_is_not_jax_is_refused_with_advice():
    X, y = np.arange(20.0)[:, None], np.arange(20.0)
    valid = (X, y)
    with pytest.raises(TypeError, match="loss must be written in JAX operations"):
        jboost.fit(lambda score, y: abs(score - y) if score > y else 0.0, X, y)
    with pytest.raises(TypeError, match=r"got 'squared_error': give jboost\.losses\.squared_error$"):
        jboost.fit("squared_error", X, y)
    loss = jboost.losses.squared_error
    with pytest.raises(TypeError, match=r"got 'auc': give jboost\.metrics\.roc_auc$"):
        jboost.fit(loss, X, y, valid=valid, metric="auc")
    with pytest.raises(TypeError, match=r"got 'ndcg': jboost\.metrics holds some$"):
        jboost.fit(loss, X, y, valid=valid, metric="ndcg")
    named: Any = "quantile"
    with pytest.raises(
        TypeError, match=r"leaf must be .* got 'quantile': give jboost\.losses\.Quantile\(...\)$"
    ):
        jboost.Loss(loss.function, leaf=named)
    with pytest.raises(ValueError, match="valid must be given with a metric"):
        jboost.fit(loss, X, y, metric=jboost.metrics.mae)
    with pytest.raises(TypeError, match=r"metric must be a function metric\(score, y, weight\)"):
        jboost.fit(loss, X, y, valid=valid, metric=lambda score, y: 0.0)
    with pytest.raises(TypeError, match="metric must be written in JAX operations"):
        jboost.fit(
            loss, X, y, valid=valid, metric=lambda score, y, weight: np.abs(np.asarray(score) - y).mean()
        )
    with pytest.raises(
        ValueError, match=r"metric must be a function .* -> scalar, of real numbers of shape \(\)"
    ):
        jboost.fit(loss, X, y, valid=valid, metric=lambda score, y, weight: score - y)


def test_a_batch_of_models_is_not_one_model_and_is_printed_as_such():
    X, y = np.linspace(-1, 1, 100)[:, None], np.linspace(-1, 1, 100) ** 2
    data, spec = jboost.bin_features(X, max_bins=31), jboost.Spec(n_estimators=3, max_depth=2)

    def fit(rate):
        return jboost.fit(jboost.losses.squared_error, data, y, spec=spec, hyper=Hyper(learning_rate=rate))[0]

    models = jax.jit(jax.vmap(fit))(jnp.array([0.1, 0.5]))
    assert models.n_trees == 3
    with pytest.raises(ValueError, match="batch of shape"):
        jboost.predict(models, X)
    scores = jax.vmap(jboost.predict, (0, None))(models, data)
    one = jax.tree.map(lambda array: array[1], models)
    np.testing.assert_allclose(scores[1], jboost.predict(one, data), rtol=1e-6)
    size = "n_trees=3, leaves=4, grow_policy='symmetric', n_features=1, n_outputs=1)"
    assert repr(one) == f"Ensemble({size}"
    assert repr(models) == f"Ensemble(batch=(2,), {size}"
    assert repr(jax.tree.map(lambda _: 0, one)) == "Ensemble(...)"


def test_numbers_out_of_the_range_of_float32_are_refused():
    X, y = np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 1, 40)
    for weight in (1e-13, 1e13):
        with pytest.raises(ValueError, match="sample_weight"):
            jboost.fit(losses.squared_error, X, y, sample_weight=np.full(40, weight))
    own = (
        r"value of the loss is not finite .* y reaches 1e\+20, .* divide y by 1e\+20 and multiply predictions"
    )
    with pytest.raises(ValueError, match=own):
        jboost.fit(jboost.Loss(lambda score, y: (score - y) ** 2), X, y * 1e20)
    with pytest.raises(
        ValueError, match=r"y is out of the range of .* divide the loss, or y .* by 1e\+01 or more"
    ):
        jboost.fit(lambda score, y: 1e36 * jnp.logaddexp(0.0, -y * score), X, y)


def test_models_of_other_bins_links_or_kinds_are_not_joined():
    X, y = np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 1, 40)
    spec = Spec(n_estimators=2, max_depth=2)
    model, _ = jboost.fit(losses.squared_error, X, y, spec=spec)
    other, _ = jboost.fit(losses.squared_error, 3 * X, y, spec=spec)
    with pytest.raises(ValueError, match="same columns and bins"):
        jboost.concatenate(model, other)
    with pytest.raises(ValueError, match="same inverse link"):
        jboost.fit(losses.logistic, X, y > 0, spec=spec, init_model=model)
    with pytest.raises(TypeError, match="init_model must be"):
        jboost.fit(losses.squared_error, X, y, init_model="model")  # pyright: ignore[reportArgumentType]


def test_a_metric_that_turns_nan_is_reported():
    X, y = np.linspace(-1, 1, 40)[:, None], np.linspace(-1, 1, 40)

    def metric(score, y, weight):
        error = jnp.mean((score - y) ** 2)
        return jnp.where(error < 0.25, jnp.nan, error)

    with pytest.warns(UserWarning, match="metric is NaN, first in round"):
        jboost.fit(
            losses.squared_error, X, y, spec=Spec(n_estimators=8, max_depth=2), valid=(X, y), metric=metric
        )


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e-3])
@pytest.mark.parametrize("by", ["loss", "weights"])
def test_a_fit_that_cannot_split_says_why(scale, by, rng):
    """The Hessian of all 200 rows is 200, or 0.2 where a split needs 1 on either side."""
    X = rng.normal(size=(200, 2))
    weight = np.full(200, scale if by == "weights" else 1.0)

    def loss(score, y):
        return (scale if by == "loss" else 1.0) * 0.5 * (score - y) ** 2

    def fit(y, **numbers):
        spec = jboost.Spec(n_estimators=2, max_depth=2, penalties="absolute")
        hyper = jboost.Hyper(**numbers)
        return jboost.fit(loss, X, y, spec=spec, hyper=hyper, sample_weight=weight)[0]

    if scale == 1.0:
        assert fit(X[:, 0]).trees.gain.any()
        return
    with pytest.warns(UserWarning, match=r"min_child_weight=1, and that of all rows is 0.2; lower"):
        assert not fit(X[:, 0]).trees.gain.any()
    assert fit(X[:, 0], min_child_weight=1e-3).trees.gain.any()
    fit(np.ones(200))  # nothing to learn, and nothing to say


@pytest.mark.slow
@pytest.mark.parametrize("penalties", ["relative", "absolute"])
def test_targets_whose_squares_are_no_floats_are_learned(rng, penalties):
    X = rng.normal(size=(100, 2))
    spec = dataclasses.replace(SMALL, penalties=penalties)
    known, _ = jboost.fit(losses.squared_error, X, X[:, 0], spec=spec)
    for scale in (1e-25, 1e17):
        model, _ = jboost.fit(losses.squared_error, X, scale * X[:, 0], spec=spec)
        np.testing.assert_array_equal(model.trees.threshold, known.trees.threshold)
        assert np.isfinite(model.trees.gain).all()
        assert np.asarray(model.trees.gain).any()


class TooFar:
    """A Newton step, eighty times."""

    needs_all_rows = False

    def leaf_values(self, leaves):
        return -80.0 * leaves.sum_of_g() / (leaves.sum_of_h() + 1e-6)

    def base_score(self, loss, rows, reduce):
        return jboost.best_constant(loss, rows, reduce)


@pytest.mark.slow
def test_a_fit_that_runs_away_ends_with_the_rounds_before(rng):
    X = rng.normal(size=(100, 2))
    y = rng.poisson(np.exp(2 * X[:, 0]))
    loss = dataclasses.replace(
        losses.poisson, leaf=TooFar()
    )  # steps of a rule of one's own are not shortened
    with pytest.warns(RuntimeWarning, match=r"the model holds the rounds before"):
        model, history = jboost.fit(loss, X, y, spec=Spec(n_estimators=50, max_depth=2))
    assert model.n_trees == len(history.train_loss) < 50
    assert np.isfinite(history.train_loss).all()
    assert np.isfinite(jboost.predict(model, X)).all()


def test_warnings_name_the_line_that_called(rng):
    X = rng.normal(size=(100, 2))
    heavy, stiff = Hyper(min_child_weight=80.0), {"n_estimators": 2, "max_depth": 3, "min_child_weight": 80.0}
    calls = {
        "no tree": lambda: jboost.fit(losses.squared_error, X, X[:, 0], spec=SMALL, hyper=heavy),
        "the rounds before": lambda: jboost.fit(
            dataclasses.replace(losses.poisson, leaf=TooFar()), X, rng.poisson(np.exp(3 * X[:, 0]))
        ),
        "float32 loses": lambda: jboost.fit(losses.squared_error, X, 1e9 + X[:, 0], spec=SMALL),
        "no tree has": lambda: jboost.JBoostRegressor(**stiff).fit(X, X[:, 0]),
    }
    for words, call in calls.items():
        with pytest.warns((UserWarning, RuntimeWarning), match=words) as caught:
            call()
        assert {warning.filename for warning in caught} == {__file__}


@pytest.mark.slow
def test_nothing_is_said_where_nothing_can_be_learned():
    X = (np.arange(60) % 2.0)[:, None]
    spec, hyper = Spec(n_estimators=1, max_depth=1), Hyper(learning_rate=1.0, reg_lambda=0.0)
    model, _ = jboost.fit(losses.squared_error, X, X[:, 0], spec=spec, hyper=hyper)
    heavy = Hyper(min_child_weight=50.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jboost.fit(losses.squared_error, X, X[:, 0], spec=spec, init_model=model, hyper=heavy)
        jboost.fit(losses.squared_error, X, np.full(60, 3.3), spec=spec)
