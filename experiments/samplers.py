"""Measure the loss on other rows against the share of rows drawn in each round, for three ways to draw them.

    python -m experiments.samplers FOLDER [--markdown FILE] [--picture FILE]

FOLDER (or JBOOST_DATA) holds the data sets and their loader. Rows are drawn alike (`Hyper.subsample`), by
gradient-based one-side sampling (two thirds of the share are the rows with the largest gradients) and by minimal
variance sampling. 200 trees of depth 6, learning rate 0.1; the figure is the mean over seeds of the loss on the test
rows after the last round, against that of all rows.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from tqdm import tqdm

import jboost
from experiments.real_data import load_suite, loss_for
from jboost import samplers

SETS = ("adult", "protein_casp", "freMTPL2freq")
SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8)
N_ROWS, SEEDS = 100_000, 3
SPEC = jboost.Spec(n_estimators=200)
WAYS = ("alike", "goss", "mvs")


def chosen(way: str, share: float) -> dict[str, Any]:
    """Return what a fit is given to draw this share of the rows."""
    if way == "alike":
        return {"hyper": jboost.Hyper(subsample=share)}
    return {"sampler": samplers.goss(2 * share / 3, share / 3) if way == "goss" else samplers.mvs(share)}


def parts_of(data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return bins, targets and weights to train on, and to judge by."""
    rng = np.random.default_rng(0)
    y, weight = data.y.astype(float), np.ones(len(data.y))
    if data.exposure is not None:
        y, weight = y / data.exposure, data.exposure
    train = rng.permutation(data.train_index)[:N_ROWS]
    test = rng.permutation(data.test_index)[:N_ROWS]
    first = jboost.bin_features(data.X.iloc[train])
    other = jboost.bin_features(data.X.iloc[test], edges=first.edges)
    return (first, y[train], weight[train]), (other, y[test], weight[test])


def curves(data: Any, progress: tqdm) -> dict[str, Any]:
    """Return the loss of all rows, and by way and share its mean and deviation over the seeds, relative to that."""
    loss, (train, y, weight), test = loss_for(data), *parts_of(data)

    def of(**options: Any) -> float:
        _, history = jboost.fit(
            loss, train, y, sample_weight=weight, spec=SPEC, valid=test, verbose=False, **options
        )
        progress.update()
        return float(history.valid_metric[-1])

    every, found = of(), {}
    for way in WAYS:
        values = [
            [of(key=jax.random.key(seed), **chosen(way, share)) for seed in range(SEEDS)] for share in SHARES
        ]
        found[way] = np.array(values) / every - 1
    return {"all": every, **found}


def markdown(results: dict[str, dict[str, Any]]) -> str:
    """Lay the curves out as a table: a line for each set and way."""
    lines = ["| rows drawn | | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"]
    lines.append("|---|---|" + "---|" * len(SHARES))
    for name, found in results.items():
        for way in WAYS:
            cells = " | ".join(f"{100 * value:+.1f}" for value in found[way].mean(axis=1))
            lines.append(f"| {name} | {way} | {cells} |")
    return "\n".join(lines)


def draw(results: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the curves."""
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(3.6 * len(results), 3.2), layout="constrained")
    for ax, (name, found) in zip(np.atleast_1d(panels), results.items(), strict=True):
        for way in WAYS:
            percent = 100 * found[way]
            (line,) = ax.plot(SHARES, percent.mean(axis=1), marker="o", markersize=3, label=way)
            ax.fill_between(
                SHARES, percent.min(axis=1), percent.max(axis=1), alpha=0.2, color=line.get_color()
            )
        ax.axhline(0, color="gray", linewidth=0.8)
        ax.set(
            title=name, xscale="log", xlabel="share of rows drawn in a round", ylim=(-5, 35)
        )  # goss runs away
        ax.set_xticks(SHARES, [f"{share:.0%}" for share in SHARES])
        ax.minorticks_off()
    first = np.atleast_1d(panels)[0]
    first.set_ylabel("test loss against all rows, %")
    first.legend(frameon=False)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--only", nargs="*", default=SETS)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    suite = load_suite(Path(options.folder))
    total = len(options.only) * (1 + len(WAYS) * len(SHARES) * SEEDS)
    with tqdm(total=total, desc="fits") as progress:
        results = {name: curves(suite.load(name), progress) for name in options.only}
    text = markdown(results)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.picture:
        draw(results, options.picture)


if __name__ == "__main__":
    main()
