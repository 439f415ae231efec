"""A fitted model: trees stacked over rounds, as one pytree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins import BinEdges, check_same_edges, read_bins
from jboost._model.scoring import sum_rounds
from jboost._model.scoring.xla import sum_all_rounds
from jboost._runtime.arguments import as_offset, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.dividing import check_not_explicit
from jboost._runtime.padding import bucket, pad_axis
from jboost._runtime.programs import program
from jboost._runtime.typing import (
    Layout,
    as_array,
    empty_for_device,
    identity,
    is_traced,
    kept_concrete,
    pytree,
    static_field,
)
from jboost._tree import Tree


@pytree
class Ensemble:
    """A fitted model; a pytree, so that it can be passed to `jit`, differentiated and tuned.

    Attributes
    ----------
    base : float [k]
        Score before the first tree: the best constant under the loss.
    trees : Tree
        Splits, stacked over rounds: [t s], or [t k s] with one tree per output.
    leaf_value : float [t, 2**d, k]
        What each leaf adds to the score, learning rate included.
    leaf_hessian : float [t, 2**d, k]
        Sum of h over the training rows of each leaf that took part in the round, each times its weight; NaN where it
        is not known. `jboost._model.cover.node_cover` adds the leaves up to the nodes above them.
    leaf_count : float [t, 2**d, k] or [t, 2**d, 1]
        Sum of the weights of the same rows: of each output with one tree per output, else one for all.
    tree_weight : float [t]
        What the leaf values of each round are multiplied by: 1 as fitted.
    edges : BinEdges
        How the features are binned.
    inverse_link : callable, static
        Turns a score into a prediction: `model.inverse_link(jboost.predict(model, X))`.
    scalar_output : bool, static
        Whether scores have shape [n] rather than [n k].
    symmetric : bool, static
        Whether the nodes of a level share one split.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> model.n_trees
    3
    """

    base: Float[Array, " k"]
    trees: Tree
    leaf_value: Float[Array, "t leaves k"]
    leaf_hessian: Float[Array, "t leaves k"]
    leaf_count: Float[Array, "t leaves #k"]
    tree_weight: Float[Array, " t"]
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

    def __repr__(self) -> str:
        """Say how large the model is, not what is in it."""
        if not isinstance(self.edges, BinEdges) or not hasattr(self.leaf_value, "shape"):
            return "Ensemble(...)"  # a pytree of something else, such as axes
        batch = f"batch={self.base.shape[:-1]}, " if self.base.ndim > 1 else ""
        policy = "symmetric" if self.symmetric else "depthwise"
        return (
            f"Ensemble({batch}n_trees={self.n_trees}, leaves={self.leaf_value.shape[-2]}, grow_policy={policy!r}, "
            f"n_features={self.edges.n_features}, n_outputs={self.n_outputs})"
        )

    def __getstate__(self) -> dict[str, Any]:
        """Hold NumPy arrays in a pickle: they keep their bits wherever it is read."""
        return {name: jax.tree.map(_on_host, value) for name, value in vars(self).items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make JAX arrays again, if JAX can hold them without rounding."""
        check_not_rounded(state)
        vars(self).update(jax.tree.map(lambda x: as_array(x) if isinstance(x, np.ndarray) else x, state))


@moves_arrays
def predict(model: Ensemble, X: Any, *, offset: Any = None) -> Float[Array, "n *k"]:
    """Sum the trees' leaf values: the raw score of each row.

    Parameters
    ----------
    model : Ensemble
        A fitted model; may be traced.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows to score; a JAX array may be traced. Feature names are matched where both sides have them.
        Missing and unseen values follow the side that each split learned for them.
    offset : float [n] or [n k], optional
        Added to the scores: a base margin, the logarithm of an exposure.

    Returns
    -------
    float [n] or [n k]
        Scores on the scale of the loss; `model.inverse_link` turns them into predictions.

    Raises
    ------
    ValueError, TypeError
        If X does not fit the columns of the model.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> jboost.predict(model, X).shape
    (8,)
    """
    check_model(model)
    check_not_explicit(X=X, offset=offset)
    bins = read_bins(model.edges, X)
    score = score_bins(model, bins, _as_offset(offset, model, bins))
    if is_traced(score):
        return _as_output(model, score)
    return as_array(_as_output(model, np.asarray(score)))  # on the host, a new shape costs no compilation


@moves_arrays
def staged_predict(model: Ensemble, X: Any, *, offset: Any = None) -> Iterator[Float[Array, "n *k"]]:
    """Yield the raw score after one round, two rounds, and so on.

    Parameters
    ----------
    model : Ensemble
        A fitted model.
    X : array-like [n f], data frame, sparse matrix or Binned
        Rows to score.
    offset : float [n] or [n k], optional
        Added to the scores.

    Yields
    ------
    float [n] or [n k]
        Scores; the last equals `predict(model, X)`.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> len(list(jboost.staged_predict(model, X)))
    3
    """
    check_model(model)
    _check_precision(model)
    bins = read_bins(model.edges, X)

    start = _start(model, bins.shape[1], _as_offset(offset, model, bins))
    leaf_value = _weighted_leaves(model)
    add_round = moves_arrays(_add_round_jit)

    def scores() -> Iterator[Array]:
        score = start
        for i in range(model.n_trees):
            score = add_round(
                edges_layout(model.edges), model.symmetric, model.trees, leaf_value, bins, score, i
            )
            yield _as_output(model, score)

    return scores()


@moves_arrays
def truncate(model: Ensemble, n_trees: int) -> Ensemble:
    """Keep the first rounds of a model.

    Parameters
    ----------
    model : Ensemble
        A fitted model.
    n_trees : int
        Rounds to keep, 0 to `model.n_trees`.

    Returns
    -------
    Ensemble
        The shorter model.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> jboost.truncate(model, 2).n_trees
    2
    """
    check_model(model)
    n_trees = whole_number(n_trees, "n_trees", 0, model.n_trees)
    return dataclasses.replace(model, **jax.tree.map(lambda array: array[:n_trees], _rounds(model)))


@moves_arrays
def concatenate(first: Ensemble, second: Ensemble) -> Ensemble:
    """Append the trees of a second model, whose own base score is dropped.

    Parameters
    ----------
    first, second : Ensemble
        Models of the same columns, outputs, depth and growth policy; the second continues the first.

    Returns
    -------
    Ensemble
        A model with the trees of both and the base score of the first.

    Raises
    ------
    ValueError
        If the two differ in columns, bins, shape or growth policy.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> jboost.concatenate(model, model).n_trees
    6
    """
    for model in (first, second):
        check_model(model)
    try:
        check_same_edges(first.edges, second.edges)
    except ValueError:
        raise ValueError("the models must have the same columns and bins") from None
    rounds = [_rounds(model) for model in (first, second)]
    shapes = [[(x.shape[1:], x.dtype) for x in jax.tree.leaves(one)] for one in rounds]
    if shapes[0] != shapes[1] or first.symmetric != second.symmetric:
        raise ValueError("the models must have the same depth, growth policy, outputs and kind of columns")
    return dataclasses.replace(first, **jax.tree.map(_joined, *rounds))


def _joined(first: Array, second: Array) -> Array:
    """Put arrays one after the other: on the host, where the growing ones of a stream compile nothing."""
    if is_traced(first, second):
        return jnp.concatenate([first, second])
    return as_array(np.concatenate([np.asarray(first), np.asarray(second)]))


def edges_layout(edges: BinEdges, has_missing: bool = True) -> Layout:
    """Say what a compiled program must know of the columns."""
    categorical = edges.features.categorical
    known = [edges.features.categories[column] for column in categorical]
    largest = max((max(one.codes, default=0) for one in known if one is not None), default=0)
    n_category_codes = min(-(-(largest + 1) // 8) * 8, edges.n_codes)  # few sizes, few programs
    return Layout(edges.n_codes, has_missing, categorical, n_category_codes if categorical else 0)


def check_type(model: Any) -> None:
    """Raise unless the argument is a model, or a batch of them."""
    if not isinstance(model, Ensemble):
        raise TypeError(f"model must be a jboost.Ensemble, got {name_kind(model)}")


def name_kind(given: Any) -> str:
    """Name the type of what is no model of trees, and say what it is instead, or where the model is."""
    name = type(given).__name__
    if hasattr(given, "model_"):
        return f"{name}: pass its attribute model_"
    if hasattr(given, "get_params"):
        return f"{name} that was not fitted"
    if hasattr(given, "temperature"):
        return f"{name}: call it with X for its scores, or make it hard by jboost.differentiable.harden"
    if hasattr(given, "predict"):
        return f"{name}, a model of another kind with a method predict of its own"
    return name


def check_model(model: Any) -> None:
    """Raise unless the argument is one model."""
    check_type(model)
    if model.base.ndim != 1:
        raise ValueError(
            f"model must be one model, got a batch of shape {model.base.shape[:-1]}: use jax.vmap, or pick one with "
            "jax.tree.map(lambda array: array[i], model)"
        )


def check_not_rounded(arrays: dict[str, Any]) -> None:
    """Raise if JAX would round any of the arrays on the host."""
    wide = [
        name
        for name, value in arrays.items()
        if any(getattr(leaf, "dtype", None) == np.float64 for leaf in jax.tree.leaves(value))
    ]
    if wide and jnp.result_type(float) != np.float64:
        raise ValueError(
            f"the model is in float64 ({', '.join(wide)}), but JAX's x64 is off, which would round it to "
            "float32 and change what it predicts; switch x64 on first: "
            'jax.config.update("jax_enable_x64", True)'
        )


def _check_precision(model: Ensemble) -> None:
    if model.base.dtype == jnp.float64 and jnp.result_type(float) != jnp.float64:
        raise ValueError("model holds float64 numbers and needs jax_enable_x64, under which it was fitted")


def score_bins(model: Ensemble, bins: Any, offset: Any = None) -> Float[Array, "n k"]:
    """Score rows given by their bin codes [f n], and what is added to their scores [n k].

    Outside of a transformation rows and rounds are padded, so that other sizes reuse the compiled program.
    """
    _check_precision(model)
    layout, n_rows = edges_layout(model.edges), bins.shape[1]
    if is_traced(model, bins, offset):
        start = _start(model, n_rows, offset)
        # The compiler divides the rows of plain JAX among devices as they come, but gathers them for a call of C++.
        add = sum_all_rounds if jax.device_count() > 1 else sum_rounds
        return add(layout, model.symmetric, model.trees, _weighted_leaves(model), bins, start)
    with kept_concrete():
        return _score_in_buckets(model, layout, np.asarray(bins), offset)


def score_in_jax(model: Ensemble, bins: Any) -> Float[Array, "n *k"]:
    """Score rows given by their bin codes [f n] without the C++ library, which other processes may not have."""
    _check_precision(model)
    start, leaf_value = _start(model, bins.shape[1]), _weighted_leaves(model)
    arrays = model.trees, leaf_value, bins, start
    return _as_output(model, sum_all_rounds(edges_layout(model.edges), model.symmetric, *arrays))


def _score_in_buckets(model: Ensemble, layout: Layout, bins: np.ndarray, offset: Any) -> Float[Array, "n k"]:
    n_rows = bins.shape[1]
    padded = pad_axis(bins, bucket(n_rows), axis=1)
    trees, leaf_value = jax.tree.map(
        lambda array: pad_axis(np.asarray(array), bucket(model.n_trees)),
        (model.trees, _weighted_leaves(model)),
    )
    start = empty_for_device((padded.shape[1], model.n_outputs), model.base.dtype)
    start[:] = model.base
    if offset is not None:
        start[:n_rows] += np.asarray(offset)
    score = _sum_rounds_jit(layout, model.symmetric, trees, leaf_value, padded, start, model.n_trees)
    return as_array(np.asarray(score)[:n_rows])  # on the host, a new shape costs no compilation


@program(static_argnums=(0, 1))
def _add_round_jit(
    layout: Layout, symmetric: bool, trees: Tree, leaf_value: Array, bins: Array, score: Array, i: Any
) -> Float[Array, "n k"]:
    one, value = jax.tree.map(lambda array: array[i][None], (trees, leaf_value))
    return sum_rounds(layout, symmetric, one, value, bins, score)


_sum_rounds_jit = program(sum_rounds, static_argnums=(0, 1))


def _start(model: Ensemble, n_rows: int, offset: Any = None) -> Float[Array, "n k"]:
    base = jnp.broadcast_to(model.base, (n_rows, model.n_outputs))
    return base if offset is None else base + jnp.asarray(offset, base.dtype)


def _as_offset(offset: Any, model: Ensemble, bins: Any) -> Float[Array, "n k"] | None:
    return None if offset is None else as_offset(offset, bins.shape[1], model.n_outputs, "offset")


def _as_output(model: Ensemble, score: Any) -> Any:
    return score[:, 0] if model.scalar_output else score


def _weighted_leaves(model: Ensemble) -> Any:
    """Return what each leaf adds to the score.

    On the host, unless it is traced: in one program with the sum it goes into, the product would not be rounded.
    """
    leaf_value, weight = model.leaf_value, model.tree_weight
    if is_traced(leaf_value, weight):
        return leaf_value * weight.astype(leaf_value.dtype)[:, None, None]
    weight = np.asarray(weight, leaf_value.dtype)
    return leaf_value if (weight == 1).all() else np.asarray(leaf_value) * weight[:, None, None]


def _rounds(model: Ensemble) -> dict[str, Any]:
    """Return the fields that have an entry for each round."""
    names = ("trees", "leaf_value", "leaf_hessian", "leaf_count", "tree_weight")
    return {name: getattr(model, name) for name in names}


def _on_host(leaf: Any) -> Any:
    return jax.device_get(leaf) if isinstance(leaf, jax.Array) and not is_traced(leaf) else leaf
