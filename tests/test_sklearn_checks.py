"""scikit-learn's own checks of an estimator, without an expected failure."""

from __future__ import annotations

import jax
import pytest
from sklearn.base import clone
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from jboost import JBoostClassifier, JBoostRegressor

# Small trees and few bins: most of the time goes into compiling one program for each shape of data.
ESTIMATORS = [
    kind(n_estimators=10, max_depth=2, learning_rate=0.5, max_bins=15)
    for kind in (JBoostRegressor, JBoostClassifier)
]
MORE_CHECKS = ["check_dataframe_column_names_consistency", "check_inplace_ensure_writeable"]


@parametrize_with_checks(ESTIMATORS)
@pytest.mark.filterwarnings("ignore:no tree has a split")  # one weighs a class with 0.0001
def test_scikit_learn_checks(estimator, check):
    # This check compares whole fits to 1e-7, which is more than the rounding of float32 allows.
    with jax.enable_x64("sample_weight_equivalence" in str(check)):
        check(estimator)


@pytest.mark.parametrize("name", MORE_CHECKS)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
def test_checks_that_scikit_learn_runs_on_its_own_estimators(estimator, name):
    getattr(estimator_checks, name)(type(estimator).__name__, clone(estimator))
