"""How much each feature is worth to a model: by gains, covers and counts of its splits."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from jboost._model.cover import node_cover
from jboost._model.ensemble import Ensemble
from jboost._runtime.arguments import check_choice
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.explain.subject import Feature, Subject, is_split

Worth = Literal["gain", "total_gain", "cover", "total_cover", "count", "squared_relevance", "relevance"]


@dataclasses.dataclass(frozen=True, eq=False)
class Importance:
    """The importance of each of f features, or groups of them.

    Attributes
    ----------
    value : float64 [f], or [f k] for each of k outputs
        In the units of `kind`.
    features : tuple
        Names, or numbers where there are none; tuples of these for groups.
    kind : str
        What is measured.
    repeats : float64 [f r]
        Of a permutation importance, that of each of r permutations; none otherwise.
    outputs : tuple of str, or None
        The classes of a classifier, where there is a value for each.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 1], spec=jboost.Spec(n_estimators=5))
    >>> jboost.explain.importance(model, kind="total_gain").ranking()[0]
    1
    """

    value: Float[np.ndarray, "f *k"]
    features: tuple[Any, ...]
    kind: str
    repeats: Float[np.ndarray, "f r"]
    outputs: tuple[str, ...] | None = None

    def ranking(self) -> tuple[Any, ...]:
        """Return the features, the most important first; of several outputs, by the sum over them."""
        total = self.value.reshape(len(self.value), -1).sum(axis=1)
        return tuple(self.features[j] for j in np.argsort(-total, kind="stable"))

    def share(self) -> Float[np.ndarray, "f *k"]:
        """Return the values divided by their sum over the features; all 0 if that is 0."""
        total = self.value.sum(axis=0)
        return np.divide(self.value, total, out=np.zeros_like(self.value), where=total != 0)

    def standard_error(self) -> Float[np.ndarray, " f"]:
        """Return the standard error of the mean over the permutations."""
        if self.repeats.shape[1] < 2:
            raise ValueError("standard_error must be asked of two permutations at least")
        return self.repeats.std(axis=1, ddof=1) / np.sqrt(self.repeats.shape[1])

    def __repr__(self) -> str:
        """Name the first few."""
        return f"Importance(kind={self.kind!r}, {len(self.features)} features, first: {list(self.ranking()[:3])})"


@moves_arrays
def importance(model: Any, kind: Worth = "gain", *, per_class: bool = False) -> Importance:
    """Measure the features by the splits that use them.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        What is explained.
    kind : str, default "gain"
        - "gain", "cover": mean gain and mean cover of a feature's splits; "total_gain", "total_cover": their sums;
          "count": how many there are, which XGBoost calls weight;
        - "squared_relevance": the total gain divided by the number of rounds, I^2 of ESL 10.43, and "relevance", its
          square root. A gain is what a full Newton step takes off the loss that was fitted: for squared error, which is
          (score - y)^2 / 2, without penalties, half of the improvement i^2 of ESL 10.42.

        The gain is half of what XGBoost reports for the same derivatives (its equation 7 has the half, its program has
        not), less gamma. A cover is the sum of h over the rows that reach the split. A level of a symmetric tree is one
        split of all rows.
    per_class : bool, default False
        Whether to measure for each output (ESL 10.45), which needs a tree for each, as
        ``Spec(multi_output="separate")`` grows. Without it, relevances of such trees are averaged over the outputs (ESL
        10.46), and the others are sums, or means, over all splits.

    Returns
    -------
    Importance
        Values [f], or [f k] with `per_class`.

    Raises
    ------
    ValueError
        For another kind; for covers where the model does not know them; for `per_class` without a tree for each
        output.

    References
    ----------
    Breiman et al. (1984). Hastie, Tibshirani and Friedman, The Elements of Statistical Learning, 10.13.1, equations
    10.42 to 10.46.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> estimator = jboost.JBoostRegressor(n_estimators=5).fit(X, X[:, 1] > 0.5)
    >>> jboost.explain.importance(estimator, "count").value.argmax()
    np.int64(1)
    """
    subject = Subject.of(model)
    ensemble = subject.model
    check_choice("kind", kind, get_args(Worth))
    if is_traced(ensemble.trees):
        raise TypeError("model must hold concrete trees, got traced ones")
    if per_class and ensemble.trees.feature.ndim != 3:
        raise ValueError(
            "per_class must come with a tree for each output, as Spec(multi_output='separate') grows; the trees of "
            "this model are shared by its outputs"
        )
    splits = np.asarray(is_split(ensemble))
    count = _by_feature(ensemble, splits.astype(np.float64), per_class)
    worth = count if kind == "count" else _by_feature(ensemble, _worth(ensemble, kind) * splits, per_class)
    value = _scaled(worth, count, kind, ensemble, per_class)
    outputs = subject.outputs() if per_class else None
    return Importance(value, subject.names(), kind, np.zeros((len(value), 0)), outputs)


def _worth(model: Ensemble, kind: Worth) -> Float[np.ndarray, "*t s"]:
    if "cover" not in kind:
        return np.asarray(model.trees.gain, np.float64)
    cover = _cover_of_slots(model)
    if np.isnan(cover).any():
        raise ValueError(f"kind must need no cover for a model that does not know them, got {kind!r}")
    return cover


def _cover_of_slots(model: Ensemble) -> Float[np.ndarray, "*t s"]:
    """Return the sum of h, over the outputs too, of the rows that each split divides."""
    of_leaves: Any = np.moveaxis(np.asarray(model.leaf_hessian, np.float64), 2, 1)  # [t k leaves]
    if model.trees.feature.ndim == 2:
        of_leaves = of_leaves.sum(axis=1)
    if model.symmetric:
        every = of_leaves.sum(axis=-1, keepdims=True)
        return np.broadcast_to(every, model.trees.feature.shape)
    return np.asarray(node_cover(of_leaves[..., None]))[..., : model.trees.feature.shape[-1], 0]


def _by_feature(
    model: Ensemble, worth: Float[np.ndarray, "*t s"], per_class: bool
) -> Float[np.ndarray, "f *k"]:
    """Sum over the splits of each feature."""
    feature, n_features = np.asarray(model.trees.feature), model.edges.n_features
    if not per_class:
        return np.bincount(feature.ravel(), worth.ravel(), n_features)
    of_class = [
        np.bincount(feature[:, k].ravel(), worth[:, k].ravel(), n_features) for k in range(feature.shape[1])
    ]
    return np.stack(of_class, axis=1)


def _scaled(
    worth: Any, count: Any, kind: Worth, model: Ensemble, per_class: bool
) -> Float[np.ndarray, "f *k"]:
    if kind in ("gain", "cover"):
        return np.divide(worth, count, out=np.zeros_like(worth), where=count > 0)
    if kind not in ("squared_relevance", "relevance"):
        return worth
    n_trees = model.n_trees
    if model.trees.feature.ndim == 3 and not per_class:
        n_trees *= model.n_outputs
    squared = worth / max(n_trees, 1)
    return np.sqrt(squared) if kind == "relevance" else squared


def name_of_group(names: tuple[Feature, ...], group: tuple[int, ...]) -> Any:
    """Return the name of a feature, or the names of several."""
    return names[group[0]] if len(group) == 1 else tuple(names[j] for j in group)
