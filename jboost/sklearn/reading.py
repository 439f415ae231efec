"""The rows of a fit, as every estimator reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from sklearn.utils import Tags, check_consistent_length

from jboost._bins import BinEdges, Binned, bin_by_target, bin_features
from jboost._objective.rows import take_rows
from jboost._runtime.arguments import check_weight
from jboost._runtime.containers import refuse_masked
from jboost.sklearn.fitted import Fitted
from jboost.sklearn.rows import GivenRows, check_targets
from jboost.sklearn.starting import check_same_missing


class ByTarget(NamedTuple):
    """What target statistics need beside the features: y as numbers, the weight of the prior, a seed, their kind."""

    y: Float[np.ndarray, "n k"]
    prior_weight: float
    max_cat_to_onehot: int
    seed: int
    encoding: Any  # of those of `bin_by_target`


class Reading(Fitted):
    """The part of an estimator that checks and bins rows, with what it has to say of them."""

    max_bins: int
    categorical_features: Any
    missing: float | None

    def _takes_gaps(self) -> bool:
        """Say whether targets may be missing; the labels need not be known."""
        return False

    def _check_rows(
        self, given: GivenRows, reset: bool
    ) -> tuple[Any, Float[np.ndarray, " m"], Bool[np.ndarray, " n"]]:
        """Return targets and weights of the m rows with weight, and which of all rows these are."""
        self._check_features(given.X, given.y, reset)
        refuse_masked(given.y, "y")
        y = check_targets(given.y, self, allow_nan=self._takes_gaps())
        check_consistent_length(given.X, *jax.tree.leaves(y))
        weight = check_weight(given.weight, len(jax.tree.leaves(y)[0]), "sample_weight")
        counted = weight > 0
        return take_rows(y, counted), weight[counted], counted

    def _bin(
        self,
        X: Any,
        weight: Float[np.ndarray, " n"],
        edges: BinEdges | None = None,
        by_target: ByTarget | None = None,
    ) -> Binned:
        try:
            if edges is not None:
                check_same_missing(self.missing, edges.features.missing)
                return bin_features(X, edges=edges)
            given = self.max_bins, weight, self.categorical_features, self.missing
            if by_target is None:
                return bin_features(X, *given[:3], missing=self.missing)
            return bin_by_target(
                X,
                by_target.y,
                *given,
                max_cat_to_onehot=by_target.max_cat_to_onehot,
                prior_weight=by_target.prior_weight,
                seed=by_target.seed,
                encoding=by_target.encoding,
            )
        except (TypeError, ValueError) as error:
            if edges is not None:
                raise type(error)(
                    f"X must have the columns of the model that is continued: {error}"
                ) from error
            message = str(error).replace("categorical must", "categorical_features must")
            if "`categorical`" in message:  # in words that scikit-learn's checks of an estimator look for
                message = message.replace("`categorical`", "`categorical_features`")
                message += " (float: argument must be a string or a number)"
            raise type(error)(message) from error

    def __sklearn_tags__(self) -> Tags:
        """Say what input is taken."""
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        return tags
