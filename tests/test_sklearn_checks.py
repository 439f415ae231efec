"""scikit-learn's own checks of an estimator, without an expected failure."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from jboost import JBoostClassifier, JBoostRegressor

# Small trees and few bins: most of the time goes into compiling one program for each shape of data.
SMALL = {"n_estimators": 10, "max_depth": 2, "learning_rate": 0.5, "max_bins": 15}
REGRESSOR, CLASSIFIER = JBoostRegressor(**SMALL), JBoostClassifier(**SMALL)
MORE_CHECKS = ["check_dataframe_column_names_consistency", "check_inplace_ensure_writeable"]


def run(estimator, check):
    # This check compares whole fits to 1e-7, which is more than the rounding of float32 allows.
    with jax.enable_x64("sample_weight_equivalence" in str(check)):
        check(estimator)


@parametrize_with_checks([CLASSIFIER])
@pytest.mark.filterwarnings("ignore:no tree has a split")  # one weighs a class with 0.0001
def test_scikit_learn_checks(estimator, check):
    run(estimator, check)


def checks_of_a_regressor():
    """Mark those slow which the classifier has passed too, by the same code."""
    pairs: Any = estimator_checks_generator(REGRESSOR)
    for _, check in pairs:
        name = check.func.__name__
        marks = () if "regress" in name else pytest.mark.slow
        yield pytest.param(check, id=name, marks=marks)


@pytest.mark.parametrize("check", [*checks_of_a_regressor()])
def test_scikit_learn_checks_of_a_regressor(check):
    run(clone(REGRESSOR), check)


@pytest.mark.parametrize("name", MORE_CHECKS)
@pytest.mark.parametrize("estimator", [REGRESSOR, CLASSIFIER], ids=lambda one: type(one).__name__)
def test_checks_that_scikit_learn_runs_on_its_own_estimators(estimator, name):
    getattr(estimator_checks, name)(type(estimator).__name__, clone(estimator))
