"""Under JAX's stricter settings: the same models, and no setting of the caller's is in the way."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import native_library
import numpy as np
import pytest
from jax.numpy import asarray

import jboost
from jboost import Hyper, Spec, losses, metrics

N = 120
SMALL = Spec(n_estimators=3, max_depth=2)
DEPTHWISE = dataclasses.replace(SMALL, grow_policy="depthwise", min_child_samples=3)
SEPARATE = dataclasses.replace(SMALL, multi_output="separate")
DRAWN = Hyper(subsample=0.7, colsample_bytree=0.6, colsample_bylevel=0.7, gamma=1e-3, max_delta_step=0.5)

_rng = np.random.default_rng(0)
X = _rng.normal(size=(N, 4))
X[::7, 1], X[:, 3] = np.nan, _rng.integers(0, 6, N)
REAL = np.nan_to_num(X[:, 1]) + X[:, 0] * X[:, 2]
COUNT, LABEL = _rng.integers(1, 5, N), _rng.integers(0, 3, N)  # whole numbers: a loss makes floats of them
BINARY = (REAL > 0).astype(int)

FITS = {
    "squared": (losses.squared_error, COUNT, SMALL, Hyper()),
    "two outputs": (losses.squared_error, np.stack([COUNT, LABEL], axis=1), SMALL, Hyper()),
    "depthwise": (losses.squared_error, REAL, DEPTHWISE, DRAWN),
    "absolute": (losses.absolute_error, COUNT, SMALL, Hyper()),
    "quantile": (losses.quantile(0.8), COUNT, SMALL, Hyper()),
    "huber": (losses.huber(1.0), COUNT, SMALL, Hyper()),
    "pseudo huber": (losses.pseudo_huber(1.0), COUNT, SMALL, Hyper()),
    "poisson": (losses.poisson, COUNT, SMALL, DRAWN),
    "gamma": (losses.gamma, COUNT, SMALL, Hyper()),
    "tweedie": (losses.tweedie(1.5), COUNT, SMALL, Hyper()),
    "logistic": (losses.logistic, BINARY, SMALL, Hyper()),
    "exponential": (losses.exponential, BINARY, SMALL, Hyper()),
    "softmax": (losses.softmax(3), LABEL, SMALL, Hyper()),
    "full": (dataclasses.replace(losses.softmax(3), hessian="full"), LABEL, SMALL, Hyper()),
    "separate": (losses.softmax(3), LABEL, SEPARATE, DRAWN),
}
QUICK = ("squared", "depthwise", "poisson", "full", "separate")
SLOW = pytest.mark.slow
GROWN = ("two outputs", "depthwise", "quantile", "full", "separate")  # growth that differs, whatever the loss
METRICS = {
    "rmse": (metrics.rmse, COUNT), "mae": (metrics.mae, COUNT), "r2": (metrics.r2, COUNT),
    "pinball": (metrics.pinball_loss(0.3), COUNT), "logloss": (metrics.logloss, BINARY),
    "accuracy": (metrics.accuracy, BINARY), "auc": (metrics.roc_auc, BINARY),
    "poisson": (metrics.poisson_deviance, COUNT), "gamma": (metrics.gamma_deviance, COUNT),
    "average precision": (metrics.average_precision, BINARY), "mape": (metrics.mape, COUNT),
    "error": (metrics.error, BINARY), "brier": (metrics.brier, BINARY),
    "classes": (metrics.brier, LABEL), "ranks of classes": (metrics.roc_auc, LABEL),
    "tweedie": (metrics.tweedie_deviance(1.2), COUNT), "mean loss": (metrics.mean_loss(losses.logistic), BINARY),
}  # fmt: skip
SETTINGS = {
    "promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "transfers": lambda: jax.transfer_guard("disallow"),
    "leaks": jax.checking_leaks,
}


def arrays_of(case: str) -> list[np.ndarray]:
    """Fit with validation rows, go on, predict, stage and bin: everything that comes of it."""
    loss, y, spec, hyper = FITS[case]
    data = jboost.bin_features(X, categorical=[3])
    weight = 1.0 + np.arange(N) % 2
    model, history = jboost.fit(loss, data, y, spec=spec, hyper=hyper, sample_weight=weight, valid=(X, y))
    longer, _ = jboost.fit(loss, data, y, spec=spec, init_model=jboost.truncate(model, 2))
    *_, last = jboost.staged_predict(longer, X[:50])
    return [
        np.asarray(leaf) for leaf in jax.tree.leaves((model, history, longer, last, jboost.predict(model, X)))
    ]


def changes_nothing(setting: str, case: str) -> None:
    expected = arrays_of(case)
    with SETTINGS[setting]():
        found = arrays_of(case)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


# Under the other settings everything is compiled anew: one case each. Promotion meets all of them below, traced.
@pytest.mark.parametrize(
    ("setting", "case"),
    [
        pytest.param("promotion", "depthwise", marks=pytest.mark.slow),
        pytest.param("leaks", "separate", marks=pytest.mark.slow),
        ("transfers", "depthwise"),
        pytest.param("transfers", "quantile", marks=pytest.mark.slow),
        pytest.param("transfers", "separate", marks=pytest.mark.slow),
    ],
)
def test_a_setting_changes_nothing(setting, case, x64):  # under which most types differ
    changes_nothing(setting, case)


def trace(case: str) -> None:
    """Trace a fit, its derivative and its scores under strict promotion; compile nothing."""
    loss, y, spec, hyper = FITS[case]
    data = jboost.bin_features(X, categorical=[3])

    def mean_score(weight: jax.Array, data: jboost.Binned) -> jax.Array:
        model, _ = jboost.fit(loss, data, y, spec=spec, hyper=hyper, sample_weight=weight, valid=(data, y))
        return jboost.predict(model, data).mean()

    with SETTINGS["promotion"]():
        slope = jax.eval_shape(jax.grad(mean_score), asarray(np.ones(N), float), data)
    assert slope.shape == (N,)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in FITS]
)
def test_every_fit_can_be_traced_under_strict_promotion(case, x64):  # where there are more types to mix
    trace(case)


@pytest.mark.parametrize("case", [pytest.param(case, marks=SLOW if case in QUICK else ()) for case in GROWN])
def test_every_way_to_grow_can_be_traced_under_strict_promotion(case):
    trace(case)


@pytest.mark.slow
def test_strict_promotion_without_the_library():
    script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    script += "from test_jax_settings import GROWN, trace\nfor case in GROWN: trace(case)\nprint('traced')"
    assert native_library.run_script(script, JBOOST_NATIVE="0", JAX_ENABLE_X64="1") == "traced"


@pytest.mark.parametrize(
    "precision", [pytest.param(False, marks=SLOW), True], ids=["x32", "x64"], indirect=True
)
@pytest.mark.parametrize("case", METRICS)
def test_metrics_of_whole_numbers_under_strict_promotion(case, precision):
    metric, y = METRICS[case]
    score, y, weight = asarray(np.linspace(-1, 1, N), float), asarray(y), asarray(np.arange(N))
    loss = losses.logistic if y.max() == 1 else losses.poisson
    if "classes" in case:
        score, loss = asarray(np.sin(np.arange(3 * N)).reshape(N, 3), float), losses.softmax(3)
    metric = metric.of_scores(loss.inverse_link)
    expected = jax.jit(metric.function)(score, y.astype(float), weight.astype(float))
    with SETTINGS["promotion"]():
        found = jax.jit(metric.function)(score, y, weight)
    np.testing.assert_array_equal(found, expected)


def test_whole_numbers_in_a_loss_become_floats_of_the_type_of_the_score(x64):
    for score, y in ((np.float32(0.3), 2), (0.3, np.int32(2)), (0, 1.7), (np.float32(0.3), np.float64(1.7))):
        half_square = 0.5 * np.square(score - y)
        np.testing.assert_array_equal(losses.squared_error(score, y), half_square)
        assert losses.squared_error(score, y).dtype == jax.numpy.result_type(score, y, 0.0)


def test_estimators_and_files_under_a_transfer_guard_which_still_guards_what_is_outside(tmp_path):
    with SETTINGS["transfers"]():
        estimator = jboost.JBoostClassifier(n_estimators=3, max_depth=2, early_stopping=True).fit(X, BINARY)
        jboost.save(estimator.model_, tmp_path / "model.jboost")
        model = jboost.load(tmp_path / "model.jboost")
        scores = np.asarray(jboost.predict(model, X))
        both = list(estimator.staged_predict_proba(X))
        with pytest.raises(Exception, match="Disallowed host-to-device transfer"):
            asarray(np.ones(3))
    np.testing.assert_array_equal(scores, estimator.decision_function(X))
    np.testing.assert_array_equal(both[-1], estimator.predict_proba(X))


TYPES = [bool, np.uint8, np.int32, np.float32]
TYPED = [(3, dtype) for dtype in TYPES] + [(300, np.uint8)]
TYPED += [pytest.param(n, dtype, marks=SLOW) for n in (7, 300) for dtype in TYPES if (n, dtype) not in TYPED]


@pytest.mark.parametrize(("n_classes", "dtype"), TYPED)
def test_labels_of_any_type_are_class_numbers(n_classes, dtype):
    label = np.array([0, 1, 1], dtype)
    score = np.random.default_rng(0).normal(size=(3, n_classes)).astype(np.float32)
    score[2, n_classes - 1] = 9
    loss = losses.softmax(n_classes)
    loss_of_all = metrics.multi_logloss.of_scores(loss.inverse_link)
    expected = np.log(np.exp(score).sum(axis=1)) - score[np.arange(3), [0, 1, 1]]
    with SETTINGS["promotion"]():
        compiled = jax.jit(loss)  # or each operation is a program
        found = [compiled(asarray(row), one) for row, one in zip(score, label, strict=True)]
        mean = jax.jit(loss_of_all)(asarray(score), asarray(label), asarray(np.ones(3, np.float32)))
        hits = jax.jit(metrics.accuracy)(asarray(score), asarray(label), asarray(np.ones(3)))
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-5)
    np.testing.assert_allclose(hits, np.mean(score.argmax(axis=1) == [0, 1, 1]), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int8", "bool"])
def test_weights_of_any_type_weigh(dtype, x64):
    score, y = asarray(np.zeros(4, np.float32)), asarray(np.array([1, 0, 1, 1]))
    with SETTINGS["promotion"]():
        weight = asarray(np.array([1, 1, 0, 1])).astype(dtype)
        assert float(jax.jit(metrics.mae)(score, y, weight)) == pytest.approx(2 / 3)
