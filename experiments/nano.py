"""Gradient-boosted trees in plain NumPy: the whole method, written to be read.

`jboost` computes the same models with compiled code; its tests hold it against this file. Features come
already binned, as codes [f n] in which 0 means missing and 1, 2, ... number the value bins (or categories).

Letters: n rows, f features, b codes, k outputs, l nodes of a level, q candidate splits of a feature.
The objective is Chen & Guestrin (2016), "XGBoost: a scalable tree boosting system", equations 2-7.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class Settings:
    """Choices and numbers of a fit, under the names of `jboost.Spec` and `jboost.Hyper`."""

    n_estimators: int = 100
    max_depth: int = 6
    grow_policy: str = "symmetric"  # one split per level; "depthwise": one split per node
    learning_rate: float = 0.1
    reg_lambda: float = 1.0
    reg_alpha: float = 0.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    min_child_samples: int = 1
    max_delta_step: float = 0.0
    max_cat_to_onehot: int = 4
    cat_smooth: float = 10.0
    hessian_floor: float = 1e-6
    post_prune: bool = False  # grow without gamma, then prune by it


class Split(NamedTuple):
    """Who goes right in a node, or in a whole level."""

    feature: int
    threshold: int  # code > threshold goes right; the rank of the candidate if the feature is categorical
    right: np.ndarray  # bool [b]: which codes go right
    gain: float


class Tree(NamedTuple):
    """A tree of fixed depth: the children of node i of a level are the nodes 2 i and 2 i + 1 of the next."""

    splits: list[list[Split]]  # by level; one split in a level, or one per node
    leaf_value: np.ndarray  # [2^d k]


# A loss gives its first and second derivative by the score: (score [n k], y [n k] or [n 1]) -> g, h [n k].


def squared_error(score, y):
    """Differentiate 1/2 (score - y)^2."""
    return score - y, np.ones_like(score)


def logistic(score, y):
    """Differentiate log(1 + e^score) - y score."""
    p = 1 / (1 + np.exp(-score))
    return p - y, p * (1 - p)


def poisson(score, y):
    """Differentiate e^score - y score; the score is the log of the mean."""
    return np.exp(score) - y, np.exp(score)


def softmax(score, y):
    """Differentiate log(sum_j e^score_j) - score_y; of the second derivatives take the diagonal."""
    p = np.exp(score - score.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return p - (y == np.arange(score.shape[1])), p * (1 - p)


def base_score(loss, y, weight, k):
    """Find the best constant, argmin_c sum_i w_i L(c, y_i), by Newton's method with a numerical Hessian."""

    def gradient(c):
        return weight @ loss(np.tile(c, (len(y), 1)), y)[0] / weight.sum()

    c = np.zeros(k)
    for _ in range(100):
        hessian = np.stack([(gradient(c + e) - gradient(c - e)) / 2e-5 for e in 1e-5 * np.eye(k)])
        step = np.linalg.pinv(hessian, rcond=1e-6) @ gradient(c)  # softmax: hessian is flat along (1, ..., 1)
        c = c - step / max(1.0, abs(step).max())
    return c


def on_grid(values):
    """Round each column to multiples of a power of two: sums are exact in any order, so equal gains tie."""
    total = abs(values).sum(axis=0)
    grid = 2.0 ** np.floor(np.log2(2.0**30 / np.where(total > 0, total, 2.0**30)))
    return np.round(values * grid) / grid


def histogram(codes, node, values, n_nodes, n_codes):
    """Sum the statistics [n c] by feature, code and node: [f b l c]."""
    sums = np.zeros((len(codes), n_codes, n_nodes, values.shape[1]))
    for feature, code in enumerate(codes):
        np.add.at(sums[feature], (code, node), values)
    return sums


def soft_threshold(G, s):
    """Shorten a gradient sum by the L1 penalty."""
    return np.sign(G) * np.maximum(abs(G) - s.reg_alpha, 0)


def leaf_objective(G, H, s):
    """Twice what the best leaf value takes off the objective (equation 6), summed over outputs."""
    return np.sum(soft_threshold(G, s) ** 2 / np.maximum(H + s.reg_lambda, 1e-300), axis=-1)


def leaf_value(G, H, s):
    """Minimise G v + 1/2 (H + lambda) v^2 + alpha |v| (equation 5), then shrink."""
    value = -soft_threshold(G, s) / np.maximum(H + s.reg_lambda, 1e-300)
    limit = s.max_delta_step if s.max_delta_step > 0 else np.inf
    return s.learning_rate * np.clip(value, -limit, limit)


def split_gain(left, right, s):
    """Weigh each candidate in each node (equation 7): [q l]. An inadmissible one is worth nothing."""
    k = left.shape[-1] // 2
    sides = [(x[..., :k], x[..., k : 2 * k], x[..., -1]) for x in (left, right, left + right)]
    at_left, at_right, together = (leaf_objective(G, H, s) for G, H, _ in sides)
    gain = (at_left + at_right - together) / 2
    noise = 4 * np.finfo(float).eps * (at_left + at_right)  # what rounding alone can gain
    gain = np.where(gain > noise, gain - s.gamma, 0)
    for _, H, rows in sides[:2]:
        heavy = (H.max(axis=-1) >= s.min_child_weight) & (H.max(axis=-1) > 0)
        gain = np.where(heavy & (rows >= s.min_child_samples), gain, 0)
    return np.maximum(gain, 0)


def orders(G, H, s):
    """Order the categories by mean gradient, of all outputs together and of the four that differ most: [o b]."""
    g, h = G.sum(axis=1, keepdims=True), H.sum(axis=1, keepdims=True)
    if G.shape[1] > 1:
        most = np.argsort(-np.sum(G**2 / (H + s.cat_smooth), axis=0), kind="stable")[:4]
        g, h = np.append(g, G[:, most], axis=1), np.append(h, H[:, most], axis=1)
    return np.argsort(g / (h + s.cat_smooth), axis=0, kind="stable").T


def candidates(G, H, categorical, s):
    """List the ways [q b] to send codes right, in the order in which ties are decided. G and H are [b k]."""
    codes, total = np.arange(len(H)), H.sum(axis=1)
    n_orders = 1
    if not categorical:
        present = codes[1:]
        cuts = [codes > threshold for threshold in codes[:-1]]
    else:
        present = codes[1:][total[1:] > 0]
        if len(present) <= s.max_cat_to_onehot:  # one against the rest
            cuts = [*(codes == code for code in present), codes < 0]
        else:  # Fisher (1958): for one output the best subset is a prefix of the order by mean gradient
            found = [present[order] for order in orders(G[present], H[present], s)]
            cuts = [np.isin(codes, order[first + 1 :]) for order in found for first in range(len(order))]
            n_orders = len(found)
        # The last is nobody, but perhaps missing values (with numbers that is a threshold of 0).
    missing_sides = (False, True) if total[0] > 0 else (False,)
    ways = [np.where(np.isin(codes, present), cut, side) for cut in cuts for side in missing_sides]
    return np.array(ways), len(missing_sides), len(cuts) // n_orders


def best_split(sums, categorical, s):
    """Find the split that gains most in all nodes of `sums` [f b l c] together; the first of equals."""
    n_codes, k = sums.shape[1], sums.shape[-1] // 2
    best = Split(0, n_codes, np.zeros(n_codes, bool), 0.0)  # nobody goes right
    for feature, by_code in enumerate(sums):
        G, H = by_code[..., :k].sum(axis=1), by_code[..., k : 2 * k].sum(axis=1)
        ways, n_sides, n_cuts = candidates(G, H, feature in categorical, s)
        H = H.sum(axis=1)
        right = np.tensordot(ways.astype(float), by_code, 1)
        gain = split_gain(by_code.sum(axis=0) - right, right, s).sum(axis=1)
        if gain.max() > best.gain:
            first = int(np.argmax(gain >= (1 - 1e-12) * gain.max()))  # the same two parts may be found twice
            way = ways[first].copy()
            if H[0] == 0:  # no missing row to learn from: missing (and unseen) codes join the heavier child
                way[H == 0 if feature in categorical else 0] = H[way].sum() > H[~way].sum()
            best = Split(feature, first // n_sides % n_cuts, way, float(gain[first]))
    return best


def route(codes, node, level):
    """Take each row one level further down: its node number [n] becomes 2 node + goes_right."""
    split = [level[i] if len(level) > 1 else level[0] for i in range(node.max(initial=0) + 1)]
    right = [split[i].right[codes[split[i].feature, row]] for row, i in enumerate(node)]
    return 2 * node + np.array(right, dtype=int)


def grow_tree(codes, g, h, weight, n_codes, categorical, s):
    """Grow one tree level by level; a node without a worthwhile split passes its rows through to the left."""
    values = on_grid(np.column_stack([g, h, weight > 0]))
    node, splits, pay = np.zeros(codes.shape[1], dtype=int), [], []
    growing = replace(s, gamma=0.0) if s.post_prune else s
    for depth in range(s.max_depth):
        sums = histogram(codes, node, values, 2**depth, n_codes)
        nodes = np.split(sums, 2**depth, axis=2) if s.grow_policy == "depthwise" else [sums]
        splits.append([best_split(x, categorical, growing) for x in nodes])
        pay.append([pays(x, split, s) for x, split in zip(nodes, splits[-1], strict=True)])
        node = route(codes, node, splits[-1])
    if s.post_prune:
        splits = prune(splits, pay)
        node = leaf_of(Tree(splits, np.zeros((0, 0))), codes)
    in_leaf = np.arange(2**s.max_depth)[:, None] == node
    return Tree(splits, leaf_value(in_leaf @ g, in_leaf @ h, s))


def pays(sums, split, s):
    """Say whether a split gains more than gamma in any of the nodes of `sums` [f b l c]."""
    by_code = sums[split.feature]
    right = np.tensordot(split.right.astype(float), by_code, 1)
    return bool(split_gain(by_code.sum(axis=0) - right, right, s).max() > 0)


def prune(splits, pay):
    """Take back, from the last level up, each split that does not pay and has none below it that stays."""
    kept, below = [], [False] * len(splits[-1])
    for level, worth in zip(reversed(splits), reversed(pay), strict=True):
        n_children = len(below) // len(level)
        below = [own or any(below[i * n_children : (i + 1) * n_children]) for i, own in enumerate(worth)]
        nothing = [Split(0, len(split.right), np.zeros(len(split.right), bool), 0.0) for split in level]
        kept.append([one if stays else none for one, none, stays in zip(level, nothing, below, strict=True)])
    return kept[::-1]


def leaf_of(tree, codes):
    """Find the leaf number [n] of each row."""
    node = np.zeros(codes.shape[1], dtype=int)
    for level in tree.splits:
        node = route(codes, node, level)
    return node


def fit(loss, codes, y, s=None, *, weight=None, n_outputs=1, n_codes=None, categorical=()):
    """Boost: add trees, each one Newton step on the loss at the current scores. Returns (base [k], trees)."""
    s, n_codes = s or Settings(), n_codes or int(codes.max()) + 1
    y = np.asarray(y).reshape(len(y), -1)
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, dtype=float)
    base = base_score(loss, y, weight, n_outputs)
    score, trees = np.tile(base, (len(y), 1)), []
    for _ in range(s.n_estimators):
        g, h = loss(score, y)
        g, h = g * weight[:, None], np.maximum(h, s.hessian_floor) * weight[:, None]
        trees.append(grow_tree(codes, g, h, weight, n_codes, categorical, s))
        score = score + trees[-1].leaf_value[leaf_of(trees[-1], codes)]
    return base, trees


def predict(base, trees, codes):
    """Add up the raw scores [n k]: the base score and one leaf value of every tree."""
    return base + sum(tree.leaf_value[leaf_of(tree, codes)] for tree in trees) + np.zeros((codes.shape[1], 1))
