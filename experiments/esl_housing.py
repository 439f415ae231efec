"""What does a boosted model of house prices show? Four curves, one surface, and which features interact.

    python experiments/esl_housing.py FOLDER [--rounds N] [--markdown FILE] [--plot FILE]

The example of The Elements of Statistical Learning, section 10.14.1: median house values of 20,640 blocks in
California, in 100,000 dollars; 80 % to train on; Huber loss, learning rate 0.1, 800 rounds, trees of 8 leaves (6
there). FOLDER holds the loader `suite.py`. The same features as in the book are made of the columns there, and partial
dependence is that of figures 10.15 and 10.16.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import jboost
from experiments.real_data import load_suite
from jboost import Hyper, Spec, losses
from jboost.explain import importance, interaction, partial_dependence

PUBLISHED = 0.31  # mean absolute test error, in 100,000 dollars
CURVES = ("MedInc", "AveOccup", "HouseAge", "AveRooms")
PAIR = ("HouseAge", "AveOccup")


def main(arguments: list[str] | None = None) -> None:
    """Fit, print the table, draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=800)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args(arguments)
    X, y = read(options.folder)
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[: len(y) // 5], order[len(y) // 5 :]
    spec = Spec(n_estimators=options.rounds, max_depth=3, grow_policy="depthwise")
    model, _ = jboost.fit(
        losses.huber(), X.iloc[train], y[train], spec=spec, hyper=Hyper(learning_rate=0.1), verbose=False
    )
    error = np.abs(np.asarray(jboost.predict(model, X.iloc[test])) - y[test]).mean()
    print(f"mean absolute test error {error:.3f} after {options.rounds} rounds; published: {PUBLISHED}\n")
    table = compare(model, X.iloc[train[:1000]])
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n")
    if options.plot:
        draw(model, X.iloc[train], options.plot)


def read(folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Make the eight features of the book."""
    raw = load_suite(folder).load("california_housing")
    frame, n = raw.X, raw.X["households"]
    features = pd.DataFrame(
        {
            "MedInc": frame["median_income"],
            "HouseAge": frame["housing_median_age"],
            "AveRooms": frame["total_rooms"] / n,
            "AveBedrms": frame["total_bedrooms"] / n,
            "Population": frame["population"],
            "AveOccup": frame["population"] / n,
            "Latitude": frame["latitude"],
            "Longitude": frame["longitude"],
        }
    )
    return features, np.asarray(raw.y, float) / 1e5


def compare(model: jboost.Ensemble, X: pd.DataFrame) -> str:
    """List relevances, and the interactions of each feature with all others and with its strongest partner."""
    relevance, strength = importance(model, "relevance"), interaction(model, X)
    share = 100 * relevance.value / relevance.value.max()
    lines = ["| feature | relevance | H, against all | strongest pair | H |", "|---|---|---|---|---|"]
    for j in np.argsort(-share):
        partner = int(strength.pairs[j].argmax())
        names = [relevance.features[j], relevance.features[partner]]
        h = f"{strength.overall[j]:.2f} | {names[1]} | {strength.pairs[j, partner]:.2f}"
        lines.append(f"| {names[0]} | {share[j]:.0f} | {h} |")
    return "\n".join(lines)


def draw(model: jboost.Ensemble, X: Any, path: Path) -> None:
    """Draw the curves and the surface."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from jboost.plotting import plot_dependence

    figure = plt.figure(figsize=(10.0, 4.6), layout="constrained")
    axes = figure.subplot_mosaic([["0", "1", "both"], ["2", "3", "both"]], width_ratios=[1, 1, 1.7])
    limits = {"AveOccup": np.linspace(2, 5, 100), "AveRooms": np.linspace(2, 9, 100)}
    for place, name in zip(itertools.count(), CURVES, strict=False):
        found = partial_dependence(model, X, name, grid=limits.get(name, 100), centre="mean")
        plot_dependence(found, ax=axes[str(place)])
        axes[str(place)].set_ylabel("value, $100,000")
    both = partial_dependence(model, X, PAIR, grid=[np.linspace(5, 52, 60), np.linspace(2, 5, 60)])
    plot_dependence(both, ax=axes["both"])
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    main()
