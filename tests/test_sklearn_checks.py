"""scikit-learn's own checks of an estimator, without an expected failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator

from jboost import JBoostClassifier, JBoostRegressor

# Small trees and few bins: most of the time goes into compiling one program for each shape of data.
SMALL = {"n_estimators": 10, "max_depth": 2, "learning_rate": 0.5, "max_bins": 15}
REGRESSOR, CLASSIFIER = JBoostRegressor(**SMALL), JBoostClassifier(**SMALL)
MORE_CHECKS = ["check_dataframe_column_names_consistency", "check_inplace_ensure_writeable"]
# Our own tests of the estimators show as much, of the rows that they share; each of these makes rows of its own.
SHOWN = {
    "check_class_weight_classifiers",
    "check_classifier_data_not_an_array",
    "check_classifiers_classes",
    "check_classifiers_multilabel_output_format_decision_function",
    "check_classifiers_multilabel_output_format_predict",
    "check_classifiers_multilabel_output_format_predict_proba",
    "check_classifiers_multilabel_representation_invariance",
    "check_decision_proba_consistency",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
}


def run(estimator, check):
    # This check compares whole fits to 1e-7, which is more than the rounding of float32 allows.
    with jax.enable_x64("sample_weight_equivalence" in str(check)):
        check(estimator)


def checks_of(estimator: Any) -> Iterator[Any]:
    """Mark those slow which tests of ours show, or which the classifier has passed too by the same code."""
    pairs: Any = estimator_checks_generator(estimator)
    for _, check in pairs:
        name = check.func.__name__
        is_quick = "regress" in name if estimator is REGRESSOR else name not in SHOWN
        yield pytest.param(check, id=name, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("check", [*checks_of(CLASSIFIER)])
@pytest.mark.filterwarnings("ignore:no tree has a split")  # one weighs a class with 0.0001
def test_scikit_learn_checks(check):
    run(clone(CLASSIFIER), check)


@pytest.mark.parametrize("check", [*checks_of(REGRESSOR)])
def test_scikit_learn_checks_of_a_regressor(check):
    run(clone(REGRESSOR), check)


@pytest.mark.parametrize("name", MORE_CHECKS)
@pytest.mark.parametrize("estimator", [REGRESSOR, CLASSIFIER], ids=lambda one: type(one).__name__)
def test_checks_that_scikit_learn_runs_on_its_own_estimators(estimator, name):
    getattr(estimator_checks, name)(type(estimator).__name__, clone(estimator))
