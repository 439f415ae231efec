"""How large should trees be? Test error by round of trees of 2, 6 and 100 leaves, with interactions and without.

    python experiments/esl_interaction_order.py [--draws N] [--rounds N] [--rate X] [--markdown FILE] [--plot FILE]

The simulation of The Elements of Statistical Learning, section 10.11 and figure 10.9: ten normal features, 2,000 rows
to train on and 10,000 to test. In its problem (10.2), Y = 1 if the sum of the squares exceeds 9.34, the log odds are a
function of a sum of functions of one feature each. Beside it one of pairs: Y = 1 if x1 x2 + x3 x4 + x5 x6 > 0. Binomial
deviance, without shrinkage, which the book comes to later, unless `--rate` asks for it. All draws of a case are fitted
in one vmapped program.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost
from jboost import Binned, Hyper, Spec, losses, metrics

TRAIN, TEST, FEATURES = 2000, 10_000, 10
DEPTHS = {2: 1, 6: 5, 100: 9}  # leaves, and the depth within which they are grown, the best first
PROBLEMS = {
    "additive (10.2)": lambda X: np.square(X).sum(axis=-1) > 9.34,
    "pairs": lambda X: X[..., 0] * X[..., 1] + X[..., 2] * X[..., 3] + X[..., 4] * X[..., 5] > 0,
}


def main(arguments: list[str] | None = None) -> None:
    """Fit, print the table, draw the curves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--rate", type=float, default=1.0, help="learning rate")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    X = np.random.default_rng(0).normal(size=(options.draws, TRAIN + TEST, FEATURES)).astype(np.float32)
    curves = {
        (name, leaves): errors(X, rule(X).astype(np.float32), leaves, options.rounds, options.rate)
        for name, rule in PROBLEMS.items()
        for leaves in DEPTHS
    }
    table = lay_out(curves)
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.plot:
        draw(curves, options.plot)


def errors(X: np.ndarray, y: np.ndarray, leaves: int, rounds: int, rate: float) -> np.ndarray:
    """Return the test error of each draw after each round, in per cent."""
    first = jboost.bin_features(X[0, :TRAIN])  # the same edges for all: the features are alike
    bins = np.stack([np.asarray(jboost.bin_features(one, edges=first.edges).bins) for one in X])
    spec = Spec(n_estimators=rounds, max_depth=DEPTHS[leaves], grow_policy="depthwise", max_leaves=leaves)

    def of_draw(bins: Any, y: Any, edges: Any) -> Any:
        train, test = (Binned(part, edges, False) for part in (bins[:, :TRAIN], bins[:, TRAIN:]))
        _, history = jboost.fit(
            losses.logistic,
            train,
            y[:TRAIN],
            spec=spec,
            hyper=Hyper(learning_rate=rate),
            valid=(test, y[TRAIN:]),
            metric=metrics.error,
        )
        return history.valid_metric

    together = jax.jit(jax.vmap(of_draw, in_axes=(0, 0, None)))
    return 100 * np.asarray(together(jnp.asarray(bins), jnp.asarray(y), first.edges))


def lay_out(curves: dict[tuple[str, int], np.ndarray]) -> str:
    """Compare the mean errors after the last round, and the best of all rounds."""
    lines = [
        "| problem | leaves | error after the last round, % | best round | error there, % |",
        "|---|---|---|---|---|",
    ]
    for (name, leaves), of_draws in curves.items():
        mean, deviation = of_draws.mean(axis=0), of_draws.std(axis=0)
        best = int(mean.argmin())
        last = f"{mean[-1]:.1f} ± {deviation[-1]:.1f}"
        lines.append(f"| {name} | {leaves} | {last} | {best + 1} | {mean[best]:.1f} |")
    return "\n".join(lines)


def draw(curves: dict[tuple[str, int], np.ndarray], path: Path) -> None:
    """Draw the errors by round."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(PROBLEMS), figsize=(9.0, 3.4), layout="constrained")
    for ax, problem in zip(axes, PROBLEMS, strict=True):
        for (name, leaves), of_draws in curves.items():
            if name == problem:
                rounds, mean = np.arange(1, of_draws.shape[1] + 1), of_draws.mean(axis=0)
                ax.plot(rounds, mean, label=f"{leaves} leaves", linewidth=1.6)
                low, high = np.quantile(of_draws, [0.1, 0.9], axis=0)
                ax.fill_between(rounds, low, high, alpha=0.15, linewidth=0)
        ax.set(title=problem, xlabel="round", ylabel="test error, %", ylim=(0, 55))
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    main()
