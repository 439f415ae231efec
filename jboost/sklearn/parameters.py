"""The parameters that the estimators share, and what they ask of a fit."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator

from jboost._bins.ordered import check_prior_weight
from jboost._runtime.arguments import check_choice
from jboost._spec import Hyper, Spec, check_hyper


@dataclass(eq=False, repr=False, kw_only=True)
class Parameters(BaseEstimator):
    """A dataclass, as scikit-learn reads parameters off a constructor."""

    booster: str = "tree"
    feature_selector: str = "cyclic"
    top_k: int | None = None
    n_estimators: int = Spec.n_estimators
    max_depth: int = Spec.max_depth
    grow_policy: str = Spec.grow_policy
    multi_output: str = Spec.multi_output
    min_child_samples: int = Spec.min_child_samples
    max_cat_to_onehot: int = Spec.max_cat_to_onehot
    penalties: str = Spec.penalties
    split_hessian: str = Spec.split_hessian
    sketch_size: int | None = Spec.sketch_size
    sketch: str = Spec.sketch
    post_prune: bool = Spec.post_prune
    max_leaves: int | None = Spec.max_leaves
    n_candidates: int | None = Spec.n_candidates
    boosting_type: str = Spec.boosting_type
    n_permutations: int = Spec.n_permutations
    learning_rate: float = Hyper.learning_rate
    reg_lambda: float = Hyper.reg_lambda
    reg_alpha: float = Hyper.reg_alpha
    gamma: float = Hyper.gamma
    min_child_weight: float = Hyper.min_child_weight
    max_delta_step: float = Hyper.max_delta_step
    subsample: float = Hyper.subsample
    sampler: Any = None
    colsample_bytree: float = Hyper.colsample_bytree
    colsample_bylevel: float = Hyper.colsample_bylevel
    colsample_bynode: float = Hyper.colsample_bynode
    cat_smooth: float = Hyper.cat_smooth
    base_score: Any = None
    max_bins: int | Literal["exact"] = 255
    categorical_features: Any = None
    categorical_encoding: Literal["subsets", "ordered", "crossed"] = "subsets"
    categorical_prior: float = 1.0
    missing: float | None = np.nan
    early_stopping: bool | str = "auto"
    validation_fraction: float | int = 0.1
    n_iter_no_change: int = 10
    tol: float = Hyper.tol
    eval_metric: Any = None
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int | bool | None = 0

    def _stops_early(self, has_eval_set: bool) -> bool:
        if isinstance(self.early_stopping, bool | np.bool_):
            return bool(self.early_stopping)
        if not isinstance(self.early_stopping, str) or self.early_stopping != "auto":
            raise ValueError(f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}")
        return has_eval_set

    def _encodes_by_target(self) -> bool:
        encodings = ("subsets", "ordered", "crossed")
        check_choice("categorical_encoding", self.categorical_encoding, encodings)
        check_prior_weight(self.categorical_prior, "categorical_prior")
        return self.categorical_encoding != "subsets"

    def _spec(self, stops: bool) -> Spec:
        named: dict[str, Any] = {one.name: getattr(self, one.name) for one in dataclasses.fields(Spec)}
        spec = Spec(**named)  # checks n_iter_no_change also where nothing stops early
        return spec if stops else dataclasses.replace(spec, n_iter_no_change=None)

    def _hyper(self) -> Hyper:
        hyper = check_hyper(Hyper(**{one.name: getattr(self, one.name) for one in dataclasses.fields(Hyper)}))
        named = isinstance(self.sampler, str)  # then `subsample` is the share that the sampler draws
        return dataclasses.replace(hyper, subsample=check_hyper(Hyper()).subsample) if named else hyper
