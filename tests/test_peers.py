"""XGBoost (`hist`, depthwise) on the same bins: same objective, same trees, same scores.

XGBoost reads the bin codes as feature values, so that both see the same cuts. It starts from our base score
(`base_margin`), for it finds its own differently. What then still differs, and why the tests avoid it:

- XGBoost sums gradients in float32 and rounds leaf values to float32: scores agree to about 1e-6.
- Equal gains: XGBoost does not promise the same order, so targets are real-valued or weighted.
- Nodes without a missing value to learn from: XGBoost has a fixed side for them, here they join the heavier
  child. Such splits agree on the training rows, which are the rows compared.
- gamma: `hist` stops at a weak split, as here, but its gain has no factor of 1/2; `exact` grows first and prunes from
  the leaves up, so that a weak split above a strong one survives. gamma is 0; tests/test_pruning.py compares both.
- Poisson: XGBoost bounds steps by 0.7 unless told otherwise; here max_delta_step is 0 in both.
- Softmax: XGBoost grows one tree per class and doubles the Hessian. Halving its learning rate, lambda and
  min_child_weight here makes up for that exactly.
- Categories: XGBoost sorts them by another key (no cat_smooth) and is not compared.
- Vector leaves: XGBoost holds min_child_weight against the outputs' Hessians by another rule; it is 0.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import jboost
from experiments import nano
from jboost import Hyper, Spec, losses
from tests.twin import problem, settings

xgboost = pytest.importorskip("xgboost", reason="the peer is not installed")

SPEC = Spec(penalties="absolute", n_estimators=8, max_depth=3, grow_policy="depthwise")
HYPER = {"learning_rate": 0.3, "reg_lambda": 1.0, "reg_alpha": 0.5, "min_child_weight": 2.0}

# name: (library's loss, twin's loss, XGBoost's objective, target, outputs)
CASES = {
    "squared error": (losses.squared_error, nano.squared_error, "reg:squarederror", "real", 1),
    "logistic": (losses.logistic, nano.logistic, "binary:logistic", "binary", 1),
    "poisson": (losses.poisson, nano.poisson, "count:poisson", "count", 1),
    "gamma": (losses.gamma, None, "reg:gamma", "positive", 1),
    "two outputs": (losses.squared_error, nano.squared_error, "reg:squarederror", "pair", 2),
}


def xgboost_scores(codes, y, weight, base, objective, rounds, **parameters):
    features = np.where(codes == 0, np.nan, codes).T.astype(np.float32)
    margin = np.broadcast_to(base, (len(weight), len(base)))
    data = xgboost.DMatrix(features, y, weight=weight, base_margin=margin if len(base) > 1 else margin[:, 0])
    fixed = {
        "tree_method": "hist",
        "grow_policy": "depthwise",
        "max_bin": 256,
        "max_delta_step": 0,
        "nthread": 1,
    }
    booster = xgboost.train({"objective": objective, **fixed, **parameters}, data, rounds)
    return booster.predict(data, output_margin=True).reshape(len(weight), -1)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.slow if i else ()) for i, case in enumerate(CASES)]
)
def test_scores_equal_those_of_xgboost(case, x64):
    loss, twin_loss, objective, target, k = CASES[case]
    rows = problem("missing")
    y = rows.targets[target]
    changes = {"min_child_weight": 0.0, "multi_strategy": "multi_output_tree"} if k > 1 else {}
    numbers = {**HYPER, **{name: value for name, value in changes.items() if name in HYPER}}
    model, _ = jboost.fit(loss, rows.data, y, spec=SPEC, hyper=Hyper(**numbers), sample_weight=rows.weight)
    base = np.asarray(model.base)
    peer = xgboost_scores(
        *(rows.codes, y, rows.weight, base, objective, SPEC.n_estimators),
        **{"max_depth": 3, **HYPER, **changes},
    )
    score = np.asarray(jboost.predict(model, rows.data)).reshape(peer.shape)
    assert np.std(score - base) > 0.1
    np.testing.assert_allclose(score, peer, rtol=1e-5, atol=1e-5)
    if twin_loss is not None:  # so the oracle of the other tests is itself held against a peer
        twin = nano.fit(
            *(twin_loss, rows.codes, y, settings(SPEC, Hyper(**numbers))),
            weight=rows.weight,
            n_outputs=k,
            n_codes=rows.data.edges.n_codes,
        )
        np.testing.assert_allclose(nano.predict(*twin, rows.codes), peer, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_one_tree_per_class_equals_xgboosts_softmax(x64):
    rows = problem("missing")
    y = rows.targets["class"]
    halved = {
        **HYPER,
        **{name: HYPER[name] / 2 for name in ("learning_rate", "reg_lambda", "min_child_weight")},
    }
    spec = dataclasses.replace(SPEC, n_estimators=8, multi_output="separate")
    model, _ = jboost.fit(
        losses.softmax(3), rows.data, y, spec=spec, hyper=Hyper(**halved), sample_weight=rows.weight
    )
    peer = xgboost_scores(
        *(rows.codes, y, rows.weight, np.asarray(model.base), "multi:softprob", 8),
        **{"max_depth": 3, "num_class": 3, **HYPER},
    )
    np.testing.assert_allclose(jboost.predict(model, rows.data), peer, rtol=1e-5, atol=1e-5)
