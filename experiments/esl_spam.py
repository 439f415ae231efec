"""Does gradient boosting reach the published test error on spam? And its importances and partial dependence.

    python experiments/esl_spam.py FOLDER [--splits N] [--markdown FILE] [--plot FILE]

The example of The Elements of Statistical Learning, section 10.8 and figures 10.6 to 10.8: 4,601 mails, 57 features,
1,536 mails held out.
FOLDER holds the loader `suite.py`. The rounds are chosen by cross-validation within the first training part, and each
of N random splits is fitted for as many. Trees of depth 3 (8 leaves), learning rate 0.1.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

import jboost
from experiments.real_data import load_suite
from jboost import Hyper, Spec, losses, metrics
from jboost.explain import importance, interaction, partial_dependence

TEST_ROWS, FOLDS = 1536, 5
PUBLISHED = 4.5  # per cent, with a standard error of about 0.5 on 1,536 rows
SHOWN = ("char_freq_!", "word_freq_remove")
PAIR = ("word_freq_hp", "char_freq_!")
HYPER = Hyper(learning_rate=0.1)


def main(arguments: list[str] | None = None) -> None:
    """Fit, print the table, draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    data = load_suite(options.folder).load("spambase")
    X, y = data.X, data.y.astype(float)
    lines = [
        "| trees of depth 3 | rounds | test error, % | smallest and largest | published |",
        "|---|---|---|---|---|",
    ]
    kept: Any = None
    for policy in ("symmetric", "depthwise"):
        spec = Spec(n_estimators=options.rounds, max_depth=3, grow_policy=policy)
        rounds = best_rounds(X, y, spec)
        spec = dataclasses.replace(spec, n_estimators=rounds)
        found = [fit(X, y, spec, seed) for seed in range(options.splits)]
        errors = 100 * np.array([error for *_, error in found])
        spread = f"{errors.mean():.1f} ± {errors.std(ddof=1):.1f} | {errors.min():.1f} to {errors.max():.1f}"
        lines.append(f"| {policy} | {rounds} | {spread} | {PUBLISHED} |")
        kept = found[0]
    table = "\n".join(lines)
    model, train, _ = kept
    print(table, "", describe(model, train), sep="\n")
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.plot:
        draw(model, train, options.plot)


def split(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the rows to train on and those held out."""
    order = np.random.default_rng(seed).permutation(n_rows)
    return order[TEST_ROWS:], order[:TEST_ROWS]


def best_rounds(X: Any, y: np.ndarray, spec: Spec) -> int:
    """Choose the number of rounds by cross-validated error within the first training part."""
    train, _ = split(len(y), 0)
    found = jboost.sweep(
        losses.logistic, X.iloc[train], y[train], hyper=HYPER, spec=spec, folds=FOLDS, metric=metrics.logloss
    )
    return int(found.best_round[0]) + 1


def fit(X: Any, y: np.ndarray, spec: Spec, seed: int) -> tuple[jboost.Ensemble, Any, float]:
    """Fit to the training part of a split: the model, its rows, and its error on the others."""
    train, test = split(len(y), seed)
    model, _ = jboost.fit(losses.logistic, X.iloc[train], y[train], spec=spec, hyper=HYPER, verbose=False)
    wrong = (np.asarray(jboost.predict(model, X.iloc[test])) > 0) != (y[test] > 0.5)
    return model, X.iloc[train], float(wrong.mean())


def describe(model: jboost.Ensemble, X: Any) -> str:
    """Name the most important features, and how the two of the book interact."""
    found = importance(model, "relevance")
    share = 100 * found.value / found.value.max()
    order = np.argsort(-share)[:10]
    names = ", ".join(f"{found.features[j]} {share[j]:.0f}" for j in order)
    strength = interaction(model, X.iloc[:500], list(PAIR)).pairs[0, 1]
    return f"relevance, of the largest = 100: {names}\nH of {PAIR[0]} and {PAIR[1]}: {strength:.2f}"


def draw(model: jboost.Ensemble, X: Any, path: Path) -> None:
    """Draw importances, two curves and one surface."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from jboost.plotting import plot_dependence, plot_importance

    figure = plt.figure(figsize=(9.6, 6.4), layout="constrained")
    axes = figure.subplot_mosaic(
        [["bars", "!"], ["bars", "remove"], ["bars", "both"]], height_ratios=[1, 1, 1.25]
    )
    plot_importance(importance(model, "relevance"), top=25, ax=axes["bars"])
    for name, place in zip(SHOWN, ("!", "remove"), strict=True):
        plot_dependence(
            partial_dependence(model, X, name, centre="mean", percentiles=(0.02, 0.98)), ax=axes[place]
        )
        axes[place].set_ylabel("log odds")
    both = partial_dependence(model, X, PAIR, percentiles=(0.02, 0.98), grid=60)
    plot_dependence(both, ax=axes["both"])
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    main()
