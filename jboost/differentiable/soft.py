"""`soften`: a fitted model whose rows go both ways at every split, by shares that are smooth in X and thresholds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, UInt, UInt32

from jboost._bins import BinEdges
from jboost._bins.device import host_words
from jboost._model.ensemble import Ensemble, check_model
from jboost._runtime.arguments import as_offset
from jboost._runtime.caller import moves_arrays
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, identity, is_traced, kept_concrete, pytree, static_field
from jboost._tree import Tree
from jboost.differentiable.routing import (
    CATEGORY,
    LARGEST,
    LEFT,
    RIGHT,
    SOFT,
    SoftRows,
    feature_units,
    in_units,
    read_rows,
    score_of_rows,
)


@pytree
class SoftEnsemble:
    """A model of soft trees: a pytree, differentiable by X, thresholds, leaf values and temperature.

    At a split on a number a row goes right by the share ``sigmoid((value - threshold) / temperature)``, both in
    spreads of the feature from its centre; at a split on a category, and where the value is missing, it goes one way as
    in the hard model. A leaf has the product of the shares on the way to it. Calling the model gives raw scores.

    Attributes
    ----------
    base, leaf_value, leaf_hessian, leaf_count, tree_weight, edges, inverse_link, scalar_output, symmetric
        As in `Ensemble`.
    trees : Tree
        The splits of the hard model. The codes in `trees.threshold` are those that `threshold` was made of.
    threshold : float [t s] or [t k s]
        Of each split, in spreads of its feature from its centre.
    kind : uint8, of the same shape
        Where a split sends what is not missing: 0 all left, 1 by a sigmoid, 2 all right, 3 by a set of categories.
    temperature : float
        In spreads: how far from a threshold rows still go both ways.
    unit_bits : uint32 [f 2]
        The bits of the centre and the spread of each feature in float32, from its bin edges: the median, and the
        interquartile range over 1.349. A single edge has its magnitude for a spread.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np, jboost
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=20))
    >>> soft = jboost.differentiable.soften(model, 0.1)
    >>> slope = jax.grad(lambda x: soft(x[None])[0])(jnp.array([0.5]))
    >>> bool(0.5 < slope[0] < 1.5)
    True
    """

    base: Float[Array, " k"]
    trees: Tree
    threshold: Float[Array, "*trees s"]
    kind: UInt[Array, "*trees s"]
    temperature: Float[Array, ""]
    leaf_value: Float[Array, "t leaves k"]
    leaf_hessian: Float[Array, "t leaves k"]
    leaf_count: Float[Array, "t leaves #k"]
    tree_weight: Float[Array, " t"]
    unit_bits: UInt32[Array, "f 2"]
    edges: BinEdges
    inverse_link: Callable[[Array], Array] = static_field(default=identity)
    scalar_output: bool = static_field(default=True)
    symmetric: bool = static_field(default=True)

    @property
    def n_trees(self) -> int:
        """Rounds in the model."""
        return self.leaf_value.shape[-3]

    @property
    def n_outputs(self) -> int:
        """Values of a score."""
        return self.base.shape[-1]

    @property
    def units(self) -> Float[np.ndarray, "f 2"]:
        """The centre and the spread of each feature, on the host."""
        return np.asarray(self.unit_bits).view(np.float32)

    def __repr__(self) -> str:
        """Say how large the model is, not what is in it."""
        if not isinstance(self.edges, BinEdges) or not isinstance(self.leaf_value, (jax.Array, np.ndarray)):
            return "SoftEnsemble(...)"  # a pytree of something else, such as axes
        return (
            f"SoftEnsemble(n_trees={self.n_trees}, leaves={self.leaf_value.shape[-2]}, "
            f"n_features={self.edges.n_features}, n_outputs={self.n_outputs})"
        )

    @moves_arrays
    def __call__(self, X: Any, *, offset: Any = None) -> Float[Array, "n *k"]:
        """Score rows.

        Parameters
        ----------
        X : array-like [n f], data frame or sparse matrix
            Rows as they are, not binned; a JAX array may be traced. Columns are matched as by `predict`.
        offset : float [n] or [n k], optional
            Added to the scores.

        Returns
        -------
        float [n] or [n k]
            Raw scores; `inverse_link` turns them into predictions.

        Raises
        ------
        ValueError, TypeError
            If X does not fit the columns of the model, or is binned.
        """
        check_soft(self)
        rows = read_rows(self.edges, self.unit_bits, X, self.base.dtype)
        n_rows = rows.value.shape[1]
        more = None if offset is None else as_offset(offset, n_rows, self.n_outputs, "offset")
        if is_traced(self, rows, more):
            score = score_of_rows(self, rows)
            score = score if more is None else score + more
        else:
            with kept_concrete():
                score = np.asarray(_scored(self, padded_rows(rows, bucket(n_rows))))[:n_rows]
                score = as_array(score if more is None else score + np.asarray(more))
        return score[:, 0] if self.scalar_output else score


@moves_arrays
def soften(model: Ensemble, temperature: Any) -> SoftEnsemble:
    """Make the splits of a model soft.

    Parameters
    ----------
    model : Ensemble
        A fitted model; its leaf values, weights and base score may be traced.
    temperature : float
        How far from a threshold rows go both ways, in spreads of the feature: about standard deviations, from the bin
        edges, so that the units of X do not matter. As it goes to 0 the scores become those of the model, for every row
        that lies on no threshold. May be traced.

    Returns
    -------
    SoftEnsemble
        Call it with raw features for raw scores. `finetune` trains it, by `threshold` too, and `harden` makes it an
        `Ensemble` again.

    Raises
    ------
    ValueError, TypeError
        For a temperature that is not above 0, features beyond the range of float32, or categories that were binned by
        target statistics.

    References
    ----------
    Jordan and Jacobs (1994), "Hierarchical mixtures of experts and the EM algorithm". Kontschieder et al. (2015), "Deep
    Neural Decision Forests".

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0] > 0.4, spec=jboost.Spec(n_estimators=20))
    >>> soft = jboost.differentiable.soften(model, 1e-4)
    >>> bool(abs(soft(X) - jboost.predict(model, X)).max() < 1e-5)
    True
    """
    check_model(model)
    if is_traced(model.trees, model.edges):
        raise TypeError("model must have concrete splits and edges to be softened; soften it outside of jit")
    if model.edges.features.coded != model.edges.features.categorical:
        raise ValueError(
            "model must have no target statistics of categories to be softened: their values follow from no feature"
        )
    dtype, units = model.base.dtype, feature_units(model.edges)
    threshold, kind = thresholds_of(model, units)
    return SoftEnsemble(
        base=model.base, trees=model.trees, threshold=as_array(threshold.astype(dtype)), kind=as_array(kind),
        temperature=_checked_temperature(temperature, dtype), leaf_value=model.leaf_value,
        leaf_hessian=model.leaf_hessian, leaf_count=model.leaf_count, tree_weight=model.tree_weight,
        unit_bits=as_array(host_words(units)[..., 0]), edges=model.edges, inverse_link=model.inverse_link,
        scalar_output=model.scalar_output, symmetric=model.symmetric,
    )  # fmt: skip


def check_soft(soft: Any) -> None:
    """Raise unless the argument is one soft model."""
    if not isinstance(soft, SoftEnsemble):
        raise TypeError(f"soft must be a jboost.differentiable.SoftEnsemble, got {type(soft).__name__}")
    if soft.base.ndim != 1:
        raise ValueError(f"soft must be one model, got a batch of shape {soft.base.shape[:-1]}: use jax.vmap")


def padded_rows(rows: SoftRows, size: int) -> SoftRows:
    """Add rows, on the host."""
    return jax.tree.map(lambda array: as_array(pad_axis(np.asarray(array), size, axis=1)), rows)


def edge_of_splits(model: Any) -> tuple[Float[np.ndarray, "*trees s"], UInt[np.ndarray, "*trees s"]]:
    """Return the edge at which each split cuts its feature, 0 where there is none, and the kind of the split."""
    feature, code = np.asarray(model.trees.feature), np.asarray(model.trees.threshold)
    exact = model.edges.exact
    is_split = code < model.edges.n_codes
    edge = exact[feature, np.clip(code - 1, 0, exact.shape[1] - 1)]
    kind = np.where(code == 0, RIGHT, SOFT)
    kind = np.where(is_split & ~np.isposinf(edge), kind, LEFT)
    kind = np.where(is_split & (code == 0), RIGHT, kind)
    kind = np.where(is_split & np.isin(feature, model.edges.features.categorical), CATEGORY, kind)
    return np.where(kind == SOFT, edge, 0.0), kind.astype(np.uint8)


def thresholds_of(model: Any, units: Float[np.ndarray, "f 2"]) -> tuple[np.ndarray, np.ndarray]:
    """Return the thresholds of the splits in spreads from the centre, in float64, and their kinds."""
    edge, kind = edge_of_splits(model)
    of_slot = units.astype(np.float64)[np.asarray(model.trees.feature).ravel()]
    threshold = in_units(edge.reshape(-1, 1), of_slot).reshape(edge.shape)
    threshold = np.clip(threshold, -LARGEST / 2, LARGEST / 2)  # an edge at -inf has -inf alone on its left
    return np.where(kind == SOFT, threshold, 0.0), kind


def _checked_temperature(temperature: Any, dtype: Any) -> Float[Array, ""]:
    if np.ndim(temperature) or isinstance(temperature, (bool, str)) or temperature is None:
        raise TypeError(f"temperature must be a number, got {temperature!r}")
    if not is_traced(temperature) and not 0 < float(temperature) < np.inf:
        raise ValueError(f"temperature must be positive and finite, got {temperature!r}")
    return as_array(temperature, dtype)


_scored = program(score_of_rows)
