"""`harden`: a soft model as a model of hard splits again, at thresholds anywhere."""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int, UInt

from jboost._bins import BinEdges, edges_from_exact
from jboost._model.ensemble import Ensemble
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import WORD, as_array, is_traced
from jboost._tree import Tree
from jboost.differentiable.routing import LEFT, SOFT
from jboost.differentiable.soft import SoftEnsemble, check_soft, edge_of_splits, thresholds_of

MOST_EDGES = 65533  # of a feature, so that all codes fit a uint16


@moves_arrays
def harden(soft: SoftEnsemble, *, snap: bool = False) -> Ensemble:
    """Make the splits of a soft model hard, at the thresholds that it has.

    Parameters
    ----------
    soft : SoftEnsemble
        Of concrete arrays.
    snap : bool, default False
        Whether a threshold that has moved goes to the nearest bin edge, so that the bins stay those of the model; else
        it becomes an edge itself, beside those there are, exactly as it is.

    Returns
    -------
    Ensemble
        A model like any other. One whose thresholds have not moved has the splits and the edges of the model that was
        softened, bit for bit. Where a threshold has moved, the covers of the leaves are no longer known: NaN.

    Raises
    ------
    ValueError
        If a threshold is not finite, or a feature would have more than 65,533 edges.

    Notes
    -----
    The leaf values are those of the soft model, which were trained with rows that go both ways: `finetune` the hard
    model afterwards, a few steps of its leaf values.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.linspace(0, 1, 64)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> again = jboost.differentiable.harden(jboost.differentiable.soften(model, 0.1))
    >>> bool((jboost.predict(again, X) == jboost.predict(model, X)).all())
    True
    """
    check_soft(soft)
    if is_traced(soft):
        raise TypeError("soft must be concrete to be hardened; harden it outside of jit")
    edge, kind = edge_of_splits(soft)
    at_start = thresholds_of(soft, soft.units)[0].astype(soft.threshold.dtype)
    threshold = np.asarray(soft.threshold)
    if not np.isfinite(threshold[kind == SOFT]).all():
        raise ValueError("soft must have finite thresholds, got one that is not")
    moved = (kind == SOFT) & (threshold != at_start)
    units = soft.units.astype(np.float64)[np.asarray(soft.trees.feature)]
    value = np.where(moved, threshold.astype(np.float64) * units[..., 1] + units[..., 0], edge)
    edges = soft.edges if snap or not moved.any() else _with_more(soft.edges, soft.trees, value, moved)
    trees = soft.trees if not moved.any() else _splits(soft, edges, value, kind)
    hessian, count = soft.leaf_hessian, soft.leaf_count
    if moved.any():
        hessian, count = (as_array(np.full(one.shape, np.nan, one.dtype)) for one in (hessian, count))
    return Ensemble(
        base=soft.base, trees=trees, leaf_value=soft.leaf_value, leaf_hessian=hessian, leaf_count=count,
        tree_weight=soft.tree_weight, edges=edges, inverse_link=soft.inverse_link, scalar_output=soft.scalar_output,
        symmetric=soft.symmetric,
    )  # fmt: skip


def _with_more(
    edges: BinEdges, trees: Tree, value: Float[np.ndarray, "*trees s"], moved: Bool[np.ndarray, "*trees s"]
) -> BinEdges:
    """Return edges that hold the thresholds that have moved, beside those there are."""
    feature, features = np.asarray(trees.feature), edges.features
    rows = []
    for j, row in enumerate(edges.exact):
        new = value[moved & (feature == j)] + 0.0  # no -0.0
        rows.append(np.unique(np.concatenate([row[row < np.inf], new])))
    most = max(row.size for row in rows)
    if most > MOST_EDGES:
        raise ValueError(
            f"soft must have at most {MOST_EDGES} different thresholds in a feature, those of the bins included, got "
            f"{most}; harden it with snap=True"
        )
    n_codes = max(edges.n_codes, -(-(most + 2) // 32) * 32)
    exact = np.full((len(rows), n_codes - 2), np.inf)
    for j, row in enumerate(rows):
        exact[j, : row.size] = row
    return edges_from_exact(exact, n_codes, max(edges.max_bins, most + 1), features)


def _splits(
    soft: SoftEnsemble,
    edges: BinEdges,
    value: Float[np.ndarray, "*trees s"],
    kind: UInt[np.ndarray, "*trees s"],
) -> Tree:
    """Return the splits in the codes of the edges: those of the nearest edges, which are the thresholds themselves."""
    old, feature = np.asarray(soft.trees.threshold), np.asarray(soft.trees.feature)
    unsplit = old >= soft.edges.n_codes
    code = np.where(unsplit, edges.n_codes, np.where(kind == LEFT, edges.n_codes - 1, old))
    for j, row in enumerate(edges.exact):
        here = (kind == SOFT) & (feature == j)
        if here.any():
            code[here] = 1 + _nearest(row[row < np.inf], value[here])
    words = soft.trees.categories_right
    if words is not None:
        more = -(-edges.n_codes // WORD) - words.shape[-1] if words.shape[-1] else 0
        words = as_array(np.pad(np.asarray(words), [(0, 0)] * (words.ndim - 1) + [(0, more)]))
    return dataclasses.replace(soft.trees, threshold=as_array(code.astype(np.int32)), categories_right=words)


def _nearest(edges: Float[np.ndarray, " e"], values: Float[np.ndarray, " s"]) -> Int[np.ndarray, " s"]:
    """Return the place of the edge next to each value; that of the edge itself, if it is one."""
    above = np.clip(np.searchsorted(edges, values), 0, edges.size - 1)
    below = np.maximum(above - 1, 0)
    with np.errstate(invalid="ignore"):  # between infinities
        is_below = values - edges[below] < edges[above] - values
    return np.where(is_below & (edges[above] != values), below, above)
