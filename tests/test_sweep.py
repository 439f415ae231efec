"""A sweep against a loop of single fits, bit for bit; its folds, its choice of the best, and what it refuses."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jboost
from jboost import GroupLoss, Hyper, Loss, Metric, Spec, losses, metrics, sweep
from jboost.tuning import sweeping
from jboost.tuning.folds import held_out

N = 300
SPEC = Spec(n_estimators=12, max_depth=3)
GROUPS = np.arange(N) // 4
TWO = Hyper(learning_rate=np.array([0.1, 0.6]), reg_lambda=np.array([1.0, 0.1]))


def rows(kind: str = "amount") -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 5)).astype(np.float32)
    signal = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=N)
    targets = {"amount": signal, "label": (signal > 0) * 1.0, "class": np.digitize(signal, [-0.5, 0.5])}
    targets["count"] = np.where(rng.random(N) < 0.02, 300.0, 1.0)
    return X, targets[kind]


def by_group(score, y, mask):
    pair = mask[:, None] & mask[None] & (y[:, None] > y[None])
    return jnp.sum(jnp.where(pair, jnp.logaddexp(0.0, score[None] - score[:, None]), 0.0))


def of_all(score, y, weight):
    return jnp.sum(weight * jnp.square(score - y)) / 2


def largest_error(score, y, weight):  # knows nothing of weights
    return jnp.max(jnp.abs(score - y))


ROWS = np.arange(N)
OFFSET = 0.1 * np.sin(ROWS)
WEIGHT = np.where(ROWS % 17 == 0, 0.0, 1.0 + ROWS % 3)
STOPPING = replace(SPEC, n_estimators=40, n_iter_no_change=3)
CASES = {
    "weights and an offset": (
        losses.squared_error,
        "amount",
        SPEC,
        {"sample_weight": WEIGHT, "offset": OFFSET},
    ),
    "early stopping": (losses.logistic, "label", STOPPING, {"metric": metrics.roc_auc}),
    "classes": (losses.softmax(3), "class", replace(SPEC, grow_policy="depthwise", max_depth=2), {}),
    "steps that are shortened": (losses.poisson, "count", SPEC, {}),
    "an own metric": (losses.squared_error, "amount", SPEC, {"metric": largest_error}),
    "a loss that adapts": (losses.huber(), "amount", SPEC, {}),
    "a loss of groups": (GroupLoss(by_group), "class", SPEC, {"groups": GROUPS}),
    "a loss of all rows": (jboost.BatchLoss(of_all), "amount", SPEC, {}),
}


def assert_equals_single_fits(
    found, mask, data, X, loss, y, spec, options, keys=(None, None), exact=True
) -> None:
    per_row = {name: options[name] for name in ("offset", "groups") if name in options}
    weight = np.asarray(options.get("sample_weight", np.ones(N)))
    for s, fold in np.ndindex(found.score.size, len(mask)):
        held = mask[fold]
        valid = (
            X[held],
            y[held],
            weight[held],
            *(per_row[n][held] if n in per_row else None for n in ("offset", "groups")),
        )
        given = {name: value for name, value in options.items() if name != "sample_weight"}
        _, history = jboost.fit(
            loss,
            data,
            y,
            spec=spec,
            hyper=found.hyper_of(s),
            sample_weight=weight * ~held,
            valid=valid,
            key=keys[s],
            **given,
        )
        t = len(history.valid_metric)
        if exact:
            np.testing.assert_array_equal(found.metric[s, fold, :t], history.valid_metric)
        np.testing.assert_allclose(found.metric[s, fold, :t], history.valid_metric, rtol=1e-6)
        assert np.isnan(found.metric[s, fold, t:]).all()
        # The history of the loss is a plain sum, whose order the compiler chooses.
        np.testing.assert_allclose(found.train_loss[s, fold, :t], history.train_loss, rtol=2e-6)
        assert found.best_round_of_fold[s, fold] == history.best_round


QUICK = ("weights and an offset", "early stopping")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in CASES]
)
@pytest.mark.filterwarnings("ignore:the training loss ended")
def test_each_member_is_the_single_fit(name):
    loss, kind, spec, options = CASES[name]
    X, y = rows(kind)
    data = jboost.bin_features(X, 32)
    groups = options.get("groups")
    mask = held_out(3, np.ones(N), groups)
    found = sweep(loss, data, y, hyper=TWO, spec=spec, folds=3, **options)
    # Ranks, and sums that the user writes, are rounded in the order of their rows.
    exact = not loss.needs_all_rows and options.get("metric") is not metrics.roc_auc
    assert_equals_single_fits(found, mask, data, X, loss, y, spec, options, exact=exact)
    if name == "early stopping":
        assert np.isnan(found.metric).any()  # some stopped sooner than others


@pytest.mark.slow
def test_members_take_turns_in_little_memory_and_draw_by_their_keys():
    """Two at a time, of unequal folds, with rows and columns drawn: places are taken over, and nothing else changes."""
    X, y = rows("label")
    data = jboost.bin_features(X, 32)
    mask = np.zeros((3, N), bool)
    mask[0, :90], mask[1, 100:220], mask[2, 230:240] = True, True, True
    keys = jax.random.split(jax.random.key(7), 3)
    hyper = Hyper(
        learning_rate=np.array([0.5, 0.2, 0.5]), subsample=np.array([0.5, 1.0, 0.5]), colsample_bytree=0.6
    )
    options = {"hyper": hyper, "spec": STOPPING, "folds": mask, "keys": keys}
    one_by_one, wide = (
        sweep(losses.logistic, data, y, memory=memory, **options) for memory in (40_000, 2**30)
    )
    np.testing.assert_array_equal(one_by_one.metric, wide.metric)
    assert not np.array_equal(wide.metric[0], wide.metric[2], equal_nan=True)  # alike but for the key
    assert_equals_single_fits(wide, mask, data, X, losses.logistic, y, STOPPING, {}, keys)


@pytest.mark.slow
def test_the_best_setting_is_fitted_for_its_best_number_of_rounds():
    X, y = rows()
    found = sweep(losses.squared_error, X, y, hyper=TWO, spec=SPEC, folds=4)
    mean = found.metric.mean(axis=1)
    np.testing.assert_array_equal(found.best_round, mean.argmin(axis=1))
    np.testing.assert_allclose(found.score, mean.min(axis=1), rtol=1e-6)
    at = found.metric[0, :, found.best_round[0]]
    np.testing.assert_allclose(found.standard_error[0], at.std(ddof=1) / 2, rtol=1e-5)
    assert found.best == found.score.argmin()
    model, history = found.fit()
    spec = replace(SPEC, n_estimators=int(found.best_round[found.best]) + 1)
    expected, _ = jboost.fit(losses.squared_error, X, y, spec=spec, hyper=found.best_hyper)
    np.testing.assert_array_equal(model.leaf_value, expected.leaf_value)
    assert len(history.train_loss) == spec.n_estimators
    assert found.varied() == ["learning_rate", "reg_lambda"]
    assert "2 settings, 4 folds" in repr(found)


def test_a_metric_of_which_more_is_better():
    X, y = rows("label")
    found = sweep(losses.logistic, X, y, hyper=TWO, spec=SPEC, folds=3, metric=metrics.roc_auc)
    assert found.maximize
    assert found.best == found.score.argmax()
    np.testing.assert_array_equal(found.best_round, found.metric.mean(axis=1).argmax(axis=1))


def test_without_folds_the_training_loss_is_judged():
    X, y = rows()
    found = sweep(losses.squared_error, X, y, hyper=TWO, spec=SPEC)
    assert np.isnan(found.metric).all()
    assert found.metric.shape == (2, 1, SPEC.n_estimators)
    np.testing.assert_array_equal(found.score, found.train_loss[:, 0].min(axis=1))
    _, history = jboost.fit(losses.squared_error, X, y, spec=SPEC, hyper=found.hyper_of(1))
    np.testing.assert_allclose(found.train_loss[1, 0], history.train_loss, rtol=2e-6)


@pytest.mark.slow
def test_derivatives_that_fail_end_their_member_alone():
    """The rounds before are kept, and the other members go on."""
    X, y = rows()

    def fails_far_out(score, y):
        return jnp.square(score - y) / 2 + 0 * jnp.sqrt(2.0 - jnp.abs(score))

    hyper = Hyper(learning_rate=np.array([0.01, 0.9]), reg_lambda=0.0)
    found = sweep(fails_far_out, X, y, hyper=hyper, spec=SPEC, folds=2)
    made = np.isfinite(found.metric).sum(axis=2)
    assert (made[0] == SPEC.n_estimators).all()
    assert (made[1] < SPEC.n_estimators).all()
    assert found.best == 0 or np.isfinite(found.score[1])


def test_other_numbers_compile_nothing(caplog):
    X, y = rows()
    sweep(losses.squared_error, X, y, hyper=TWO, spec=SPEC, folds=3)
    other = Hyper(learning_rate=np.array([0.2, 0.3]), reg_lambda=np.array([2.0, 0.5]))
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        sweep(losses.squared_error, X, y + 1, hyper=other, spec=SPEC, folds=3)
    assert not [message for message in caplog.messages if "Compiling" in message or "compilation" in message]


def test_folds_are_of_rows_or_of_whole_groups():
    mask = held_out(3, np.ones(N), None)
    np.testing.assert_array_equal(mask.sum(axis=0), 1)
    assert set(mask.sum(axis=1)) == {100}
    np.testing.assert_array_equal(mask, held_out(3, np.ones(N), None))
    whole = held_out(4, np.ones(N), GROUPS)
    np.testing.assert_array_equal(whole.sum(axis=0), 1)
    by_group = whole.reshape(4, -1, 4)  # four rows a group
    np.testing.assert_array_equal(by_group.all(axis=2), by_group.any(axis=2))


def test_the_picture_shows_the_best_and_the_others():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    X, y = rows()
    found = sweep(losses.squared_error, X, y, hyper=TWO, spec=SPEC, folds=3)
    axes = found.plot()
    best = found.metric[found.best].mean(axis=0)
    assert any(
        line.get_ydata().size == best.size and np.allclose(line.get_ydata(), best) for line in axes.lines
    )
    assert axes.get_xlabel() == "round"
    plt.close(axes.figure)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"folds": 1}, ValueError, "folds must be between 2 and 300"),
        ({"folds": np.ones((2, 3), bool)}, ValueError, r"folds must have shape \(c, 300\)"),
        ({"folds": np.ones((2, N))}, TypeError, "folds must be an integer or a mask"),
        ({"folds": np.zeros((2, N), bool)}, ValueError, "hold out a row"),
        ({"folds": np.ones((1, N), bool)}, ValueError, "leave a row"),
        ({"folds": np.tile(np.arange(N) < 9, (2, 1))}, ValueError, "row 0 is held out 2 times"),
        ({"folds": [(np.arange(9), np.arange(9, 30)), (np.arange(5), np.arange(7))]}, TypeError, "np.isin"),
        ({"folds": True}, TypeError, "folds must be an integer or a mask"),
        (
            {"folds": np.arange(N)[None] < 10, "groups": GROUPS},
            ValueError,
            "folds must hold out whole groups",
        ),
        ({"folds": 2, "metric": lambda s, y: 0.0}, TypeError, r"metric\(score, y, weight\)"),
        ({"folds": 2, "metric": lambda s, y, w: s}, ValueError, "metric must be a function"),
        ({"metric": metrics.rmse}, ValueError, "folds must be given with a metric"),
        ({"keys": 3.5}, TypeError, "key must be a JAX key"),
        ({"hyper": Hyper(reg_lambda=np.array([1.0, -1.0]))}, ValueError, "reg_lambda must be non-negative"),
        ({"hyper": Hyper(reg_lambda=np.ones(2), gamma=np.ones(3))}, ValueError, "arrays of one length"),
        ({"hyper": Hyper(reg_lambda=np.ones((2, 2)))}, ValueError, "reg_lambda must be a number or an array"),
        ({"hyper": {"reg_lambda": 1.0}}, TypeError, "hyper must be a jboost.Hyper"),
        ({"spec": STOPPING}, ValueError, "folds must be given"),
        ({"keys": jax.random.split(jax.random.key(0), 3)}, ValueError, "one for each of the 1 settings"),
        ({"memory": 0}, ValueError, "memory must be"),
        (
            {"metric": Metric(lambda s, y, w: 0.0, on_host=True), "folds": 2},
            ValueError,
            "in JAX operations in a sweep",
        ),
        ({"loss": GroupLoss(by_group)}, ValueError, "groups must be given"),
        ({"y": np.ones(3)}, ValueError, "y must have one entry"),
    ],
)
def test_what_does_not_fit_is_named(changes, error, message):
    X, y = rows()
    given = {"loss": losses.squared_error, "data": X, "y": y, "spec": SPEC, **changes}
    with pytest.raises(error, match=message):
        sweep(given.pop("loss"), given.pop("data"), given.pop("y"), **given)


def test_a_transformation_is_told_to_use_vmap():
    X, y = rows()
    with pytest.raises(TypeError, match=r"jax\.vmap"):
        jax.jit(lambda rate: sweep(losses.squared_error, X, y, hyper=Hyper(learning_rate=rate)).score)(0.1)


def test_an_offset_per_fold_needs_no_second_program_for_a_loss_of_parameters():
    """A loss that is a pytree is swept as it is."""
    X, y = rows()
    loss = Loss(jax.tree_util.Partial(lambda score, y, power: jnp.abs(score - y) ** power, power=1.7))
    found = sweep(loss, X, y, hyper=TWO, spec=SPEC, folds=3)
    assert np.isfinite(found.score).all()


def test_a_metric_that_is_undefined_in_a_fold_is_named_before_anything_runs():
    X, _ = rows()
    y = (np.arange(N) < 3) * 1.0
    with pytest.raises(ValueError, match=r"fold \d, for metric"):
        sweep(losses.logistic, X, y, spec=SPEC, folds=5, metric=metrics.roc_auc)


def test_a_metric_that_is_no_number_leaves_no_score():
    """It is not replaced by the training loss, and no model is fitted for want of a number of rounds."""
    X, y = rows()
    with pytest.warns(UserWarning, match="2 of 2 settings have no score"):
        found = sweep(
            losses.squared_error,
            X,
            y,
            hyper=TWO,
            spec=SPEC,
            folds=2,
            metric=lambda s, y, w: jnp.nan * s.sum(),
        )
    assert np.isnan(found.score).all()
    with pytest.raises(ValueError, match="has no score"):
        found.fit()


def test_what_is_fitted_may_be_other_rows():
    X, y = rows()
    found = sweep(losses.squared_error, X, y, hyper=TWO, spec=SPEC, folds=3)
    model, _ = found.fit(0, data=X[:100], y=y[:100])
    spec = replace(SPEC, n_estimators=int(found.best_round[0]) + 1)
    expected, _ = jboost.fit(losses.squared_error, X[:100], y[:100], spec=spec, hyper=found.hyper_of(0))
    np.testing.assert_array_equal(model.leaf_value, expected.leaf_value)
    with pytest.raises(ValueError, match="setting must be below 2"):
        found.fit(7)


def test_errors_of_means_do_not_depend_on_the_unit():
    X, y = rows()
    one, huge = (
        sweep(losses.squared_error, X, factor * y, hyper=TWO, spec=SPEC, folds=3).standard_error
        for factor in (1.0, 1e12)
    )
    np.testing.assert_allclose(huge, 1e24 * one, rtol=1e-3)


@pytest.mark.parametrize("metric", [None, metrics.rmse])
def test_targets_whose_squares_are_no_floats_give_the_same_bits(metric):
    X, y = rows()
    data, power = jboost.bin_features(X, 32), 2 if metric is None else 1

    def found(exponent):
        numbers = replace(TWO, max_delta_step=np.ldexp(0.5, exponent))
        options = {"sample_weight": WEIGHT, "offset": np.ldexp(OFFSET, exponent), "metric": metric}
        target = np.ldexp(np.float32(y), exponent)
        return sweep(losses.squared_error, data, target, hyper=numbers, spec=SPEC, folds=3, **options)

    known = found(0)
    for exponent in (-85, 85):
        far = found(exponent)
        assert far.best == known.best
        np.testing.assert_array_equal(far.best_round_of_fold, known.best_round_of_fold)
        of_y = np.ldexp(np.float64(known.train_loss), 2 * exponent)
        np.testing.assert_array_equal(far.train_loss, of_y)
        np.testing.assert_allclose(
            far.metric, np.ldexp(np.float64(known.metric), power * exponent), rtol=1e-6
        )


@pytest.mark.parametrize("kind", ["matrices of rows", "histograms of levels"])
def test_so_many_run_at_a_time_as_their_largest_arrays_fit(kind, monkeypatch):
    """Of a Hessian for each row and of the histograms that JAX holds, not of scores alone."""
    X, y = rows("class")
    widths = []

    def record(shared, members, width, ended, progress, keeps):
        widths.append(width)
        raise StopIteration

    monkeypatch.setattr(sweeping, "run_all", record)
    of_many = Hyper(learning_rate=np.linspace(0.1, 0.5, 16))
    spec, memory = Spec(n_estimators=2, max_depth=6), 4 * 2**20
    if kind == "matrices of rows":
        loss, largest = replace(losses.softmax(30), hessian="full"), 4 * N * 30 * 30
        context = contextlib.nullcontext()
    else:
        loss, largest = losses.softmax(3), 4 * 33 * 6 * 2**5 * X.shape[1]
        context = jboost.plain_jax()
    with context, pytest.raises(StopIteration):
        sweep(loss, jboost.bin_features(X, 32), y, hyper=of_many, spec=spec, folds=4, memory=memory)
    assert 1 <= widths[0] <= memory / largest
