"""`OrderedTargetEncoder`: categories as numbers, for models that know none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from jaxtyping import Float
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from jboost._bins import category_statistics, ordered_statistics
from jboost._bins.categories import Categories, category_numbers, find_categories
from jboost._bins.columns import Factor
from jboost._bins.ordered import check_prior_weight, in_average_rows
from jboost._bins.table import check_not_empty, read_table
from jboost._runtime.arguments import check_choice, check_weight, first_bad, on_host
from jboost._runtime.caller import moves_arrays
from jboost._runtime.containers import refuse_masked, refuse_no_array
from jboost.sklearn.labels import labels_of, number_labels, one_column


@dataclass(eq=False, repr=False)
class OrderedTargetEncoder(TransformerMixin, BaseEstimator):
    """Encode each category by its mean target, without showing a row its own.

    `fit_transform(X, y)` gives a row the mean of the rows of its category that come before it in a random permutation;
    `transform(X)` that of all rows of `fit`, and is for other rows. So `fit(X, y).transform(X)` is not
    `fit_transform(X, y)`: what it gives the rows of `fit` knows their targets, and a model that is trained on it learns
    them by heart.

    Parameters
    ----------
    prior_weight : float, default 1
        For how many rows the prior counts, against rare categories. Where weights are below 1 on average, a row of
        average weight is taken for one, to the nearest power of two.
    prior : float or float [k], optional
        The statistic of a category of which no row is known; a missing or unseen category has it too. The mean target
        by default, which is the same for all rows.
    n_permutations : int, default 1
        Over how many permutations `fit_transform` takes the mean. With several, values vary less, but come near the
        mean of all other rows of the category, which tells trees the target after all: see Notes.
    target_type : {"auto", "continuous", "classes"}, default "auto"
        What y holds: numbers, or labels. By default `sklearn.utils.multiclass.type_of_target` decides, which takes
        whole numbers, such as counts, for labels.
    random_state : int, RandomState or None
        Of the permutations.

    Attributes
    ----------
    categories_ : list of array
        The known categories of each column.
    encodings_ : list of float64 [c k]
        Their statistics.
    classes_ : array or None
        The labels of y, if it holds labels.
    prior_ : float64 [k]
        The prior.
    n_features_in_, feature_names_in_
        Columns of `fit`; the names only if X had string names.

    Notes
    -----
    Each column of X becomes one column, or k of them beside each other: for k > 2 classes the share of each, for k
    columns of y the mean of each.

    For a permutation, the value of a row depends neither on its own target nor on those of later rows, but by the
    prior. The mean over all permutations is a function of the other rows of the category: the larger the target of a
    row, the smaller its value, compared to the rest of the category.

    References
    ----------
    Prokhorenkova et al. (2018), "CatBoost: unbiased boosting with categorical features", section 3.2.

    Examples
    --------
    >>> import jboost
    >>> X, y = [["a"], ["b"], ["a"], ["a"]], [1.0, 0.5, 0.0, 2.0]
    >>> encoder = jboost.OrderedTargetEncoder(random_state=0)
    >>> encoder.fit_transform(X, y).shape
    (4, 1)
    >>> encoder.transform([["a"], ["b"], ["new"]]).ravel().tolist()
    [0.96875, 0.6875, 0.875]
    """

    prior_weight: float = 1.0
    prior: Any = None
    n_permutations: int = 1
    target_type: Literal["auto", "continuous", "classes"] = "auto"
    random_state: Any = None

    @moves_arrays
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the statistics of all rows.

        Parameters
        ----------
        X : array-like or data frame [n f]
            Categories: strings, numbers, bools; NaN, None and NA are missing.
        y : array-like [n] or [n k]
            Targets or labels.
        sample_weight : array-like [n], optional
            Non-negative; a row of weight 0 says nothing.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            For data or parameters that do not fit.
        """
        self._learn(X, y, sample_weight)
        return self

    @moves_arrays
    def fit_transform(self, X: Any, y: Any, sample_weight: Any = None) -> Float[np.ndarray, "n fk"]:
        """Learn the statistics, and encode the rows to train a model on: each by the rows before it.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        float64 [n, f k]
        """
        factors, target, weight = self._learn(X, y, sample_weight)
        generator = check_random_state(self.random_state)
        orders = [generator.permutation(len(weight)) for _ in range(self.n_permutations)]
        beside = {"prior": self.prior_, "sample_weight": weight, "prior_weight": self.prior_weight}
        found = []
        for factor, known in zip(factors, self._known, strict=True):
            number = category_numbers(known, factor)
            of_each = [ordered_statistics(number, target, order, **beside) for order in orders]
            found.append(np.mean(of_each, axis=0))
        return np.hstack(found)

    @moves_arrays
    def transform(self, X: Any) -> Float[np.ndarray, "n fk"]:
        """Encode rows that were not trained on, by all rows of `fit`.

        Parameters
        ----------
        X : array-like or data frame [n f]
            The columns of `fit`.

        Returns
        -------
        float64 [n, f k]
        """
        check_is_fitted(self)
        factors = self._read(X, reset=False)
        with_prior = [np.vstack([one, self.prior_]) for one in self.encodings_]
        numbers = [
            category_numbers(known, factor) for factor, known in zip(factors, self._known, strict=True)
        ]
        return np.hstack([table[number] for table, number in zip(with_prior, numbers, strict=True)])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Name the columns that come out: as those of X, with the class or the number of the target behind.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the columns of X; those of `fit` by default.

        Returns
        -------
        array of str [f k]
        """
        check_is_fitted(self)
        if input_features is None:
            given = getattr(self, "feature_names_in_", [f"x{j}" for j in range(len(self.categories_))])
        else:
            given = list(input_features)
        if len(given) != len(self.categories_):
            raise ValueError(
                f"input_features must have length {len(self.categories_)}, that of the columns of fit, got {len(given)}"
            )
        k = self.prior_.size
        of_each = range(k) if self.classes_ is None else self.classes_
        ends = [""] if k == 1 else [f"_{one}" for one in of_each]
        return np.array([f"{name}{end}" for name in given for end in ends], object)

    # ------------------------------------------------------------ what these do

    def _learn(self, X: Any, y: Any, sample_weight: Any) -> tuple[list[Factor], np.ndarray, np.ndarray]:
        """Set the attributes; return the columns, the targets as numbers [n k] and the weights."""
        self._check_parameters()
        factors = self._read(X, reset=True)
        if y is not None:  # of which scikit-learn speaks in its own words
            refuse_no_array(y, "y", "an array with one value for each row")
            refuse_masked(y, "y")
        check_consistent_length(X, y)
        target, self.classes_ = _as_numbers(y, self.target_type)
        weight = check_weight(sample_weight, len(target), "sample_weight")
        weight = in_average_rows(weight)
        self.prior_ = self._prior(target, weight)
        self._known = [_known(factor, weight) for factor in factors]
        self.categories_ = [np.array(known.values, object) for known in self._known]
        pairs = zip(factors, self._known, strict=True)
        beside = target, weight, self.prior_, float(self.prior_weight)
        self.encodings_ = [
            category_statistics(category_numbers(known, factor), len(known.values), *beside)
            for factor, known in pairs
        ]
        return factors, target, weight

    def _check_parameters(self) -> None:
        n = self.n_permutations
        check_prior_weight(self.prior_weight)
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise ValueError(f"n_permutations must be an integer of at least 1, got {n!r}")
        check_choice("target_type", self.target_type, ("auto", "continuous", "classes"))

    def _read(self, X: Any, reset: bool) -> list[Factor]:
        table = read_table(X)
        if reset:
            check_not_empty(table.shape)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return [table.factor(j) for j in range(table.shape[1])]

    def _prior(self, target: np.ndarray, weight: np.ndarray) -> Float[np.ndarray, " k"]:
        if self.prior is None:
            return np.average(target, axis=0, weights=weight)
        prior = np.asarray(self.prior, np.float64)
        k = target.shape[1]
        if prior.shape not in ((), (k,)) or not np.isfinite(prior).all():
            raise ValueError(f"prior must be a finite number, or {k} of them, got {self.prior!r}")
        return np.broadcast_to(prior, (k,)).copy()

    def __sklearn_tags__(self) -> Tags:
        """Say what input is taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags


def _as_numbers(y: Any, kind: str) -> tuple[Float[np.ndarray, "n k"], np.ndarray | None]:
    """Return targets as numbers, and the labels if they are classes."""
    found = type_of_target(y, input_name="y")
    if kind == "classes" or (kind == "auto" and found in ("binary", "multiclass")):
        column = one_column(np.asarray(y))
        labels = labels_of(column)
        number = number_labels(column, labels)
        return (np.eye(len(labels))[number] if len(labels) > 2 else number[:, None].astype(float)), labels
    target = on_host(y, "y").astype(np.float64)
    if target.ndim not in (1, 2):
        raise ValueError(f"y must have shape [n] or [n k], got {target.shape}")
    if not (good := np.isfinite(target)).all():
        raise ValueError(f"y must hold finite numbers or labels, got {first_bad(target, good)}")
    return target.reshape(len(target), -1), None


def _known(factor: Factor, weight: Float[np.ndarray, " n"]) -> Categories:
    """Return the categories that a row of weight above 0 has."""
    counted = weight > 0
    return find_categories(factor.values, factor.index[counted], weight[counted], len(factor.values) + 1)
