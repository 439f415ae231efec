"""Random histograms, and the best split of each by a loop over every candidate in float64."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jboost import Hyper, Spec
from jboost._runtime.typing import Layout
from jboost._split import Rules

N_CODES, N_NODES, N_FEATURES = 8, 2, 4


def make_rules(scale: Any, dtype: Any = None, **choices: Any) -> Rules:
    spec_names = ("grow_policy", "min_child_samples", "max_cat_to_onehot", "split_hessian")
    spec = Spec(**{name: value for name, value in choices.items() if name in spec_names})
    hyper = Hyper(**{name: value for name, value in choices.items() if name not in spec_names})
    dtype = dtype or jnp.result_type(float)
    return Rules(jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper), 1 / jnp.asarray(scale, dtype), spec)


def random_histogram(
    seed: int, k: int, counts: bool, missing: bool = True, f: int = N_FEATURES, crosses: bool = False
) -> Any:
    """Make a histogram [b c l f] of 40 rows and the scales; a feature has codes that no row of a node has."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 9, (40, 2 * k))
    values[:, ::2] = rng.integers(-20, 21, (40, k))
    scale = np.array([0.5, 1.0, 0.25, 2.0, 1.0, 0.5])[: 2 * k]
    if (
        crosses
    ):  # of matrices that are positive definite: half of the smallest of a diagonal, over the outputs
        above = np.triu_indices(k, 1)
        smallest = (values[:, 1::2] * scale[1::2]).min(axis=1, keepdims=True)
        wanted = rng.uniform(-1, 1, (40, len(above[0]))) * smallest / k
        values = np.column_stack([values, np.round(wanted * 64).astype(int)])
        scale = np.append(scale, np.full(len(above[0]), 1 / 64))
    values = np.column_stack([values, np.ones(40, int)]) if counts else values
    histogram = np.zeros((N_CODES, values.shape[1], N_NODES, f), np.int32)
    node = rng.integers(0, N_NODES, 40)
    for feature in range(f):
        codes = rng.choice(np.arange(0 if missing else 1, 7), 5, replace=False)[rng.integers(0, 5, 40)]
        for row in range(40):
            histogram[codes[row], :, node[row], feature] += values[row]
    return histogram, np.append(scale, 1.0) if counts else scale


def naive_gain(left: np.ndarray, right: np.ndarray, rules: Rules) -> float:
    """Gain of a node from the statistics [c] of its children; -inf where the split is not allowed."""
    hyper, pairs = rules.hyper, rules.n_pairs

    def score(sums: np.ndarray) -> float:
        if rules.spec.crosses_outputs:
            return score_of_matrix(sums)
        total = 0.0
        for g, h in zip(sums[0:pairs:2], sums[1:pairs:2], strict=True):
            shrunk = np.sign(g) * max(abs(g) - float(hyper.reg_alpha), 0)
            total += shrunk**2 / (h + float(hyper.reg_lambda)) if h + float(hyper.reg_lambda) > 0 else 0.0
        return total

    def score_of_matrix(sums: np.ndarray) -> float:
        k = rules.n_outputs
        matrix, above = np.diag(sums[1:pairs:2] + float(hyper.reg_lambda)), np.triu_indices(k, 1)
        matrix[above] = matrix.T[above] = sums[pairs : pairs + len(above[0])]
        g = sums[0:pairs:2]
        shrunk = np.sign(g) * np.maximum(np.abs(g) - float(hyper.reg_alpha), 0)
        return float(shrunk @ np.linalg.solve(matrix, shrunk)) if matrix.any() else 0.0

    for child in (left, right):
        h = child[1:pairs:2].max()
        if h <= 0 or h < float(hyper.min_child_weight):
            return -np.inf
        if rules.spec.min_child_samples > 1 and child[-1] < rules.spec.min_child_samples:
            return -np.inf
    children = score(left) + score(right)
    gain = 0.5 * (children - score(left + right))
    return gain - float(hyper.gamma) if gain > 1e-15 * children else -np.inf


def candidates(sums: np.ndarray, is_category: bool, rules: Rules, layout: Layout) -> Any:
    """Give, in the order of ties, the set of codes that go right; code 0 are the missing values."""
    codes = np.arange(layout.n_codes)
    if is_category:
        pairs = rules.n_pairs
        by_output, smooth = sums[:, :pairs].T.reshape(-1, 2, len(sums)), float(rules.hyper.cat_smooth)
        all_outputs = by_output.sum(axis=0)
        present = [code for code in range(1, layout.n_category_codes) if all_outputs[1, code] > 0]
        spread = [sum(g[code] ** 2 / (h[code] + smooth) for code in present) for g, h in by_output]
        most = np.argsort(-np.array(spread), kind="stable")[:4]
        if len(present) <= rules.spec.max_cat_to_onehot:
            sets = [[code] for code in present] + [[]]
        else:
            sorts_by = [all_outputs, *by_output[most]] if len(by_output) > 1 else [all_outputs]
            orders = [sorted(present, key=lambda code: g[code] / (h[code] + smooth)) for g, h in sorts_by]
            sets = [order[i + 1 :] for order in orders for i in range(len(present))]
        rights = [np.isin(codes, chosen) for chosen in sets]
    else:
        rights = [codes > threshold for threshold in range(layout.n_codes - 1)]
    for right in rights:
        for side in (False, True) if layout.has_missing else (False,):
            yield np.where(codes == 0, side, right)


def naive_split(values: np.ndarray, rules: Rules, layout: Layout, allowed: np.ndarray) -> tuple[Any, ...]:
    """Find gain, feature and the codes that go right for the nodes of `values` [b c l f] together."""
    best: tuple[Any, ...] = (0.0, None, np.zeros(layout.n_codes, bool), False)
    for feature in np.flatnonzero(allowed):
        column = values[..., feature]
        is_category = feature in layout.categorical
        for right in candidates(column.sum(axis=2), is_category, rules, layout):
            gains = [
                naive_gain(node[~right].sum(0), node[right].sum(0), rules) for node in column.T.swapaxes(1, 2)
            ]
            gain = sum(max(gain, 0.0) for gain in gains) if rules.spec.symmetric else gains[0]
            if gain > best[0]:
                best = gain, feature, right, is_category
    gain, feature, right, is_category = best
    if feature is None:
        return best[:3]
    pairs = rules.n_pairs
    h = values[:, 1:pairs:2, :, feature].sum(axis=(1, 2))
    right = right.copy()
    if h[0] == 0:
        right[0] = h[1:][right[1:]].sum() > h[1:][~right[1:]].sum()
    if is_category:
        right[h == 0] = right[0]
    return gain, feature, right
