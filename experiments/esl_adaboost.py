"""Is figure 10.2 of "The Elements of Statistical Learning" reproduced? AdaBoost, stumps and trees on nested spheres.

    python experiments/esl_adaboost.py [--draws N] [--peer] [--markdown FILE] [--plot FILE]

Ten normal features; y = 1 where the sum of their squares exceeds 9.34, its median. 2,000 rows to train on and 10,000
to judge by, drawn anew N times; all draws are fitted in one vmapped program. `--peer` fits scikit-learn's AdaBoost too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jboost
from jboost import Hyper, Spec, losses

TRAIN, TEST, FEATURES = 2000, 10_000, 10
MEDIAN = 9.34  # of chi squared with 10 degrees of freedom
ROUNDS = 400
STUMPS = Spec(n_estimators=ROUNDS, max_depth=1, grow_policy="depthwise")
# Of 243 nodes; published: 244.
TREE = Spec(n_estimators=1, max_depth=16, grow_policy="depthwise", max_leaves=122)
PLAIN = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)


class Draws(NamedTuple):
    """Rows of all draws: bins and labels to train on, and rows to judge by."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def draw(n_draws: int) -> Draws:
    """Draw the data sets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_draws, TRAIN + TEST, FEATURES)).astype(np.float32)
    y = (np.square(X).sum(axis=2) > MEDIAN).astype(np.int32)
    return Draws(X[:, :TRAIN], y[:, :TRAIN], X[:, TRAIN:], y[:, TRAIN:])


def votes(spec: Spec, data: Any, y: Any) -> Any:
    """Fit AdaBoost.M1."""
    return jboost.textbook.adaboost(data, y, n_classes=2, spec=spec)[0]


def steps(loss: Any, data: Any, y: Any) -> Any:
    """Boost stumps with real values in their leaves by Newton steps, without shrinkage."""
    return jboost.fit(loss, data, y, spec=STUMPS, hyper=PLAIN)[0]


def staged_errors(fit: Callable[..., Any], draws: Draws) -> tuple[np.ndarray, Any, float]:
    """Fit all draws in one program; return the test error [draws t], the models and the seconds of a second call."""
    data = [jboost.bin_features(X) for X in draws.X]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    together, y = jax.jit(jax.vmap(fit)), jnp.asarray(draws.y)
    jax.block_until_ready(together(stacked, y))
    start = time.perf_counter()
    models = jax.block_until_ready(together(stacked, y))
    seconds = time.perf_counter() - start
    found = []
    for i, (X, target) in enumerate(zip(draws.X_test, draws.y_test, strict=True)):
        model = jax.tree.map(lambda leaf: leaf[i], models)  # noqa: B023
        stages = jboost.staged_predict(model, jboost.bin_features(X, edges=model.edges))
        found.append([np.mean((np.asarray(score) > 0) != target) for score in stages])
    return np.array(found), models, seconds


def peer_errors(draws: Draws) -> tuple[np.ndarray, float]:
    """Do the same with scikit-learn, one draw after the other."""
    from sklearn.ensemble import AdaBoostClassifier
    from sklearn.tree import DecisionTreeClassifier

    found, seconds = [], 0.0
    for X, y, X_test, y_test in zip(*draws, strict=True):
        start = time.perf_counter()
        model = AdaBoostClassifier(DecisionTreeClassifier(max_depth=1), n_estimators=ROUNDS).fit(X, y)
        seconds += time.perf_counter() - start
        found.append([1 - score for score in model.staged_score(X_test, y_test)])
    return np.array(found), seconds


def measure(draws: Draws, peer: bool) -> tuple[list[tuple[str, str, np.ndarray]], dict[str, np.ndarray]]:
    """Return the rows of the table, each with the errors of the draws, and the curves [draws t]."""
    stumps, _, seconds = staged_errors(partial(votes, STUMPS), draws)
    tree, trees, _ = staged_errors(partial(votes, TREE), draws)
    nodes = 2 * (np.asarray(trees.trees.gain) > 0).sum(axis=(1, 2)) + 1
    gentle = staged_errors(partial(steps, losses.exponential), draws)[0]
    deviance = staged_errors(partial(steps, losses.logistic), draws)[0]
    print(f"{len(draws.y)} fits of {ROUNDS} stumps in one program: {seconds:.2f} s")
    table = [
        ("a stump", "45.8", stumps[:, 0]),
        (f"one tree, {nodes.mean():.0f} nodes (published: 244)", "24.7", tree[:, -1]),
        ("AdaBoost.M1, 400 stumps", "5.8", stumps[:, -1]),
        ("exponential loss, 400 stumps with real values", "", gentle[:, -1]),
        ("binomial deviance, 400 stumps with real values", "", deviance[:, -1]),
    ]
    if peer:
        errors, peer_seconds = peer_errors(draws)
        print(f"the same one after the other in scikit-learn: {peer_seconds:.2f} s")
        table.insert(3, ("the same by scikit-learn", "5.8", errors[:, -1]))
    curves = {
        "AdaBoost.M1": stumps,
        "exponential loss": gentle,
        "binomial deviance": deviance,
        "one tree": tree,
    }
    return table, curves


def as_markdown(table: list[tuple[str, str, np.ndarray]]) -> str:
    """Write the errors in percent."""
    lines = ["| test error in percent | published | jboost, mean | standard deviation |", "|---|---|---|---|"]
    for name, published, errors in table:
        lines.append(f"| {name} | {published} | {100 * errors.mean():.1f} | {100 * errors.std(ddof=1):.1f} |")
    return "\n".join(lines)


def plot(curves: dict[str, np.ndarray], path: Path) -> None:
    """Draw the mean test error against the rounds."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    rounds = np.arange(1, ROUNDS + 1)
    for name, colour in (
        ("AdaBoost.M1", "tab:blue"),
        ("exponential loss", "tab:orange"),
        ("binomial deviance", "tab:green"),
    ):
        mean, spread = curves[name].mean(axis=0), curves[name].std(axis=0, ddof=1)
        ax.plot(rounds, mean, color=colour, label=name)
        ax.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    ax.axhline(
        curves["one tree"].mean(), color="0.4", linestyle="--", linewidth=1, label="one tree of depth 16"
    )
    ax.axhline(curves["AdaBoost.M1"][:, 0].mean(), color="0.4", linestyle=":", linewidth=1, label="one stump")
    ax.plot(ROUNDS, 0.058, "k*", label="published for AdaBoost")
    ax.set(xlabel="stumps", ylabel="test error", ylim=(0, 0.5), title="Nested spheres (ESL, figure 10.2)")
    ax.grid(alpha=0.3)
    ax.legend(ncols=2, fontsize="small", loc="upper right", bbox_to_anchor=(1, 0.9))
    figure.savefig(path, dpi=90)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--peer", action="store_true", help="fit scikit-learn's AdaBoost too")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--plot", type=Path, help="also draw the curves into this file")
    options = parser.parse_args()
    table, curves = measure(draw(options.draws), options.peer)
    text = as_markdown(table)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.plot:
        plot(curves, options.plot)


if __name__ == "__main__":
    main()
