"""A tree with a linear function in each leaf, as a base learner."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from jboost._bins import BinEdges, read_values
from jboost._fixed_point import sum_by_group
from jboost._objective.domains import real_argument
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import as_array, is_traced, pytree, static_field
from jboost._spec import GrowPolicy, Hyper
from jboost._split import Tree as Splits
from jboost._tree import take_leaves
from jboost.learners.tree import Grown, Tree


class Known(NamedTuple):
    """What is known of the columns: their bins, means and deviations, and which hold numbers."""

    edges: BinEdges
    center: Float[Array, " f"]
    deviation: Float[Array, " f"]
    is_number: Bool[Array, " f"]


class LinearRows(NamedTuple):
    """Rows as codes, and as numbers around the means in deviations, NaN where one is missing."""

    bins: UInt[Array, "f n"]
    values: Float[Array, "f n"]


class Path(NamedTuple):
    """The columns that lead to each leaf, each once."""

    feature: Int[Array, "leaves d"]
    is_used: Bool[Array, "leaves d"]


@pytree
class LinearLeaves:
    """A tree, and a linear function of the columns of its path in each leaf."""

    tree: Grown  # with what a leaf adds to rows that lack a value
    center: Float[Array, "leaves k d"]  # means of the columns of the path, by weights of the leaf
    constant: Float[Array, "leaves k"]
    slope: Float[Array, "leaves k d"]


@pytree
class LinearTree(ByValue):
    r"""Base learner: a tree with a ridge regression in each leaf, in the numeric columns on the path to it.

    It is grown as `Tree` is, by constants; then each leaf minimises

    .. math:: \sum_{i \in leaf} w_i (t_i - a - b^T z_i)^2 + \lambda \bar w \|b\|^2

    over the constant a and the slopes b of those columns z, in units of their mean and deviation over all rows. A row
    that lacks one of them takes no part, and is given the constant leaf of `Tree`.

    Parameters
    ----------
    max_depth, grow_policy, hyper, max_bins
        As in `Tree`.
    linear_lambda : float
        The penalty on slopes, above 0; in rows of the mean weight of all. May be traced.

    Notes
    -----
    Beyond the values that a leaf has seen, its line goes on: X far from those of `boost` may give scores of any size.

    References
    ----------
    Shi, Li and Li (2019), "Gradient Boosting with Piece-Wise Linear Regression Trees" (they choose splits by linear
    functions too); LightGBM's ``linear_tree`` grows as here.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> y, learners = np.abs(X[:, 0]), jboost.learners
    >>> options = {"n_estimators": 20, "learning_rate": 0.5}
    >>> found = [
    ...     jboost.boost(jboost.losses.squared_error, learner, X, y, **options)[1].train_loss[-1]
    ...     for learner in (learners.Tree(1), learners.LinearTree(1, linear_lambda=0.1))
    ... ]
    >>> bool(found[1] < found[0] / 2)
    True
    """

    max_depth: int = static_field(default=3)
    grow_policy: GrowPolicy = static_field(default="depthwise")
    hyper: Hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
    max_bins: int = static_field(default=255)
    linear_lambda: Any = 1.0

    @property
    def tree(self) -> Tree:
        """The tree before its leaves are made linear."""
        return Tree(self.max_depth, self.grow_policy, self.hyper, self.max_bins)

    def init(self, key: Array, X: Any, known: Known | None = None) -> tuple[Known, LinearRows]:
        """Bin the features, and keep their numbers."""
        if is_traced(X):
            raise TypeError("X must be concrete for learners.LinearTree, which reads numbers on the host")
        if known is None:
            real_argument(self.linear_lambda, "linear_lambda", 0, np.inf)
            edges, bins = self.tree.init(key, X)
            values = read_values(edges, X)[0].astype(np.float64)
            known = Known(edges, *_scale(values), _is_number(edges))
        else:
            edges, bins = self.tree.init(key, X, known.edges)
            values = read_values(edges, X)[0].astype(np.float64)
        center, deviation = (np.asarray(one, np.float64)[:, None] for one in (known.center, known.deviation))
        with np.errstate(invalid="ignore"):
            scaled = (values - center) / deviation
        return known, LinearRows(bins, as_array(np.where(np.isfinite(scaled), scaled, np.nan), float))

    def fit(
        self,
        key: Array,
        known: Known,
        rows: LinearRows,
        target: Float[Array, "n k"],
        weight: Float[Array, "n k"],
    ) -> LinearLeaves:
        """Grow the tree, and solve the normal equations of each leaf and output."""
        grown, leaf = self.tree.grown(key, known.edges, rows.bins, target, weight)
        path = _path(grown.splits, known, self.max_depth, self.grow_policy == "symmetric")
        z, there = _columns_of_path(path, rows, leaf)
        counted = jnp.maximum((weight > 0).sum(axis=0), 1).astype(weight.dtype)
        penalty = self.linear_lambda * weight.sum(axis=0) / counted
        solve = jax.vmap(_solve, in_axes=(None, None, 1, 1, 1, 0), out_axes=1)
        constants = grown.leaf_value
        center, constant, slope = solve(z, leaf, constants, target, weight * there[:, None], penalty)
        return LinearLeaves(grown, center, constant, slope)

    def predict(self, known: Known, params: LinearLeaves, rows: LinearRows) -> Float[Array, "n k"]:
        """Evaluate the function of the leaf of each row."""
        leaf = self.tree.leaf_of(known.edges, params.tree, rows.bins)
        path = _path(params.tree.splits, known, self.max_depth, self.grow_policy == "symmetric")
        z, there = _columns_of_path(path, rows, leaf)
        linear = params.constant[leaf] + jnp.sum(
            params.slope[leaf] * (z[:, None] - params.center[leaf]), axis=2
        )
        return jnp.where(there[:, None], linear, take_leaves(params.tree.leaf_value, leaf))


def _scale(values: Float[np.ndarray, "f n"]) -> tuple[Float[Array, " f"], Float[Array, " f"]]:
    """Return the mean and the deviation of the finite values of each column; 1 where they do not differ."""
    there = np.isfinite(values)
    count = np.maximum(there.sum(axis=1), 1)
    center = np.where(there, values, 0).sum(axis=1) / count
    square = np.square(np.where(there, values - center[:, None], 0)).sum(axis=1) / count
    deviation = np.sqrt(square)
    return as_array(center, float), as_array(np.where(deviation > 0, deviation, 1), float)


def _is_number(edges: BinEdges) -> Bool[Array, " f"]:
    return as_array(np.array([one is None for one in edges.features.categories]))


def _path(splits: Splits, known: Known, depth: int, symmetric: bool) -> Path:
    """Find the columns of each leaf's path: numbers alone, each once, at splits that are there."""
    leaf, level = np.arange(2**depth)[:, None], np.arange(depth)[None]
    slot = (
        np.broadcast_to(level, (2**depth, depth)) if symmetric else 2**level - 1 + (leaf >> (depth - level))
    )
    feature = splits.feature[slot]
    is_used = (splits.gain[slot] > 0) & known.is_number[feature]
    earlier = np.tril(np.ones((depth, depth), bool), -1)
    same = (feature[:, :, None] == feature[:, None]) & is_used[:, None] & earlier[None]
    return Path(feature, is_used & ~same.any(axis=2))


def _columns_of_path(
    path: Path, rows: LinearRows, leaf: Int[Array, " n"]
) -> tuple[Float[Array, "n d"], Bool[Array, " n"]]:
    """Return for each row the columns of the path to its leaf, 0 where there is none, and whether none is missing."""
    every = jnp.arange(leaf.size, dtype=leaf.dtype)[:, None]
    values = jnp.where(path.is_used[leaf], rows.values[path.feature[leaf], every], 0)
    missing = jnp.isnan(values)
    return jnp.where(missing, 0, values), ~missing.any(axis=1)


def _solve(
    z: Float[Array, "n d"],
    leaf: Int[Array, " n"],
    otherwise: Float[Array, " leaves"],
    target: Float[Array, " n"],
    weight: Float[Array, " n"],
    penalty: Float[Array, ""],
) -> tuple[Float[Array, "leaves d"], Float[Array, " leaves"], Float[Array, "leaves d"]]:
    """Solve weighted least squares with a ridge in each leaf, around its means: a leaf may be narrow and far away.

    A leaf without rows to solve it for has the constant that it has otherwise.
    """
    n_leaves, d = otherwise.size, z.shape[1]
    both = jnp.concatenate([jnp.ones_like(z[:, :1]), z, target[:, None]], axis=1)
    sums = sum_by_group(weight[:, None] * both, leaf, n_leaves)
    total = sums[:, :1]
    means = sums[:, 1:] / jnp.where(total > 0, total, 1)
    difference = both[:, 1:] - means[leaf]
    left, right = np.triu_indices(d + 1)
    products = sum_by_group(weight[:, None] * difference[:, left] * difference[:, right], leaf, n_leaves)
    square = jnp.zeros((n_leaves, d + 1, d + 1), z.dtype).at[:, left, right].set(products)
    normal = square[:, :d, :d] + jnp.swapaxes(jnp.triu(square[:, :d, :d], 1), 1, 2)
    slope = jnp.linalg.solve(normal + penalty * jnp.eye(d, dtype=z.dtype)[None], square[:, :d, d:])[..., 0]
    return means[:, :d], jnp.where(total[:, 0] > 0, means[:, d], otherwise), slope
