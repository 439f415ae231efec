"""A tree, as a base learner: grown by the engine that `jboost.fit` would choose."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt

from jboost._bins import BinEdges, bin_features, read_bins
from jboost._fixed_point import find_scale, sum_by_group
from jboost._model.ensemble import edges_layout
from jboost._runtime.parametrised import ByValue
from jboost._runtime.typing import as_array, pytree, static_field
from jboost._spec import GrowPolicy, Hyper, Spec, check_hyper
from jboost._split import Rules, leaf_value
from jboost._split import Tree as Splits
from jboost._tree import Columns, GradientPairs, arrange, choose_engine, take_leaves
from jboost._tree.leaves import leaf_index


@pytree
class Grown:
    """A tree: its splits, and what it adds in each leaf."""

    splits: Splits
    leaf_value: Float[Array, "leaves k"]


@pytree
class Tree(ByValue):
    """Base learner: a tree of weighted least squares, its leaves the weighted means of the targets.

    Parameters
    ----------
    max_depth : int
        As in `jboost.Spec`.
    grow_policy : {"symmetric", "depthwise"}
        As in `jboost.Spec`.
    hyper : Hyper
        Its `reg_lambda`, `reg_alpha`, `gamma`, `min_child_weight` and `max_delta_step` hold for sums of weights as they
        are; all 0 by default. Its numbers may be traced.
    max_bins : int
        Bins of each feature.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(64.0)[:, None]
    >>> model, record = jboost.boost(jboost.losses.squared_error, jboost.learners.Tree(2), X, np.sin(X[:, 0] / 9))
    >>> bool(record.train_loss[-1] < 1e-3)
    True
    """

    max_depth: int = static_field(default=3)
    grow_policy: GrowPolicy = static_field(default="depthwise")
    hyper: Hyper = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)
    max_bins: int = static_field(default=255)

    @property
    def spec(self) -> Spec:
        """Shapes and choices of the tree."""
        return Spec(
            n_estimators=1, max_depth=self.max_depth, grow_policy=self.grow_policy, penalties="absolute"
        )

    def init(self, key: Array, X: Any, known: BinEdges | None = None) -> tuple[BinEdges, UInt[Array, "f n"]]:
        """Bin the features."""
        if known is None:
            check_hyper(self.hyper)
            data = bin_features(X, max_bins=self.max_bins)
            return data.edges, data.bins
        return known, as_array(read_bins(known, X))

    def fit(
        self,
        key: Array,
        known: BinEdges,
        rows: UInt[Array, "f n"],
        target: Float[Array, "n k"],
        weight: Float[Array, "n k"],
    ) -> Grown:
        """Grow it."""
        return self.grown(key, known, rows, target, weight)[0]

    def grown(
        self,
        key: Array,
        known: BinEdges,
        rows: UInt[Array, "f n"],
        target: Float[Array, "n k"],
        weight: Float[Array, "n k"],
    ) -> tuple[Grown, Int[Array, " n"]]:
        """Grow it, and say in which leaf each row is."""
        hyper = jax.tree.map(lambda number: jnp.asarray(number, target.dtype), self.hyper)
        pairs = GradientPairs(-weight * target, weight)
        factors = [find_scale(pair).factor for pair in pairs[:2]]
        rules = Rules(hyper, jnp.stack(factors, axis=1).reshape(-1), self.spec)
        layout = edges_layout(known)
        engine = choose_engine(self.spec, layout=layout, n_rows=rows.shape[1])
        allowed = jnp.ones((self.max_depth, rows.shape[0]), bool)
        active = (weight > 0).any(axis=1)
        columns = Columns(arrange(engine, rows), allowed, layout)
        splits, leaf = engine.grow(columns, jax.lax.stop_gradient(pairs), active, rules, None, key, None)
        g, h = (sum_by_group(pair, leaf, self.spec.n_leaves) for pair in (pairs.g, pairs.h))
        return Grown(splits, leaf_value(g, h, hyper)), leaf

    def predict(self, known: BinEdges, params: Grown, rows: UInt[Array, "f n"]) -> Float[Array, "n k"]:
        """Look up the leaf of each row."""
        return take_leaves(params.leaf_value, self.leaf_of(known, params, rows))

    def leaf_of(self, known: BinEdges, params: Grown, rows: UInt[Array, "f n"]) -> Int[Array, " n"]:
        """Find the leaf of each row."""
        return leaf_index(params.splits, rows, edges_layout(known), self.grow_policy == "symmetric")
