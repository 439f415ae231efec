"""Find labels that are wrong by what a row does to other rows, and weights that make up for rows drawn elsewhere.

    python -m experiments.influence FOLDER [--only NAME ...] [--markdown FILE]

FOLDER (or JBOOST_DATA) holds the data sets and their loader. A tenth of the training labels of binary sets is flipped:
at random, or those of one class in one region (positives with a high value of the column that splits most). Rows are
ranked by `jboost.differentiable.influence` on other rows with right labels, by their own loss, and by their loss under
models of the other folds (confident learning, Northcutt et al. 2021). The shift: training rows are drawn by the same
column.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost
from experiments.real_data import load_suite
from jboost.differentiable import influence, tune

SETS = ("spambase", "adult", "agaricus", "credit_default")
N_TRAIN, N_VALID, N_TEST, SEEDS = 3000, 1500, 4000, 3
SPEC, HYPER = jboost.Spec(n_estimators=100, max_depth=4), jboost.Hyper(learning_rate=0.1)
LOSS = jboost.losses.logistic
SHARE, LOOKED_AT, FOLDS = 0.1, 0.2, 5
RANKINGS = ("influence", "influence, 8 draws", "loss", "loss of other folds")
Part = tuple[jboost.Binned, np.ndarray]


def strongest(data: Any) -> np.ndarray:
    """Return, for each row, the rank from 0 to 1 of its value in the column with the highest gain."""
    rows = data.train_index[:4000]
    model, _ = jboost.fit(LOSS, data.X.iloc[rows], np.asarray(data.y, float)[rows], spec=SPEC, hyper=HYPER)
    gain = np.bincount(np.ravel(model.trees.feature), np.ravel(model.trees.gain), data.X.shape[1])
    code = np.asarray(jboost.bin_features(data.X).bins)[int(np.argmax(gain))]
    return np.argsort(np.argsort(code + np.random.default_rng(0).random(len(code)))) / len(code)


def parts_of(data: Any, seed: int, likely: np.ndarray | None = None) -> tuple[np.ndarray, Part, Part, Part]:
    """Draw rows to train on, to judge by and to test on; `likely` says how likely a row is one to train on."""
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y, float)
    inner, test = rng.permutation(data.train_index), rng.permutation(data.test_index)[:N_TEST]
    n_valid = min(N_VALID, len(inner) // 3)
    valid, rest = inner[:n_valid], inner[n_valid:]
    if likely is not None:
        rest = rest[rng.random(len(rest)) < likely[rest]]
    train = rest[:N_TRAIN]
    first = jboost.bin_features(data.X.iloc[train])

    def part(rows: np.ndarray) -> Part:
        return jboost.bin_features(data.X.iloc[rows], edges=first.edges), y[rows]

    return train, (first, y[train]), part(valid), part(test)


def flipped(y: np.ndarray, region: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
    """Say which labels to flip: a tenth of all, at random or among the positives with the highest values."""
    n = round(SHARE * len(y))
    if region is None:
        chosen = rng.permutation(len(y))[:n]
    else:
        order = np.argsort(-region[y == 1])
        highest = np.flatnonzero(y == 1)[order][: round(1.5 * n)]
        chosen = rng.permutation(highest)[:n]
    return np.isin(np.arange(len(y)), chosen)


def losses_of(model: jboost.Ensemble, data: jboost.Binned, y: np.ndarray) -> np.ndarray:
    return np.asarray(jax.vmap(LOSS)(jboost.predict(model, data), jnp.asarray(y, jnp.float32)))


def fit(train: Part, weight: np.ndarray | None = None) -> jboost.Ensemble:
    return jboost.fit(LOSS, *train, spec=SPEC, hyper=HYPER, sample_weight=weight)[0]


def rankings(train: Part, valid: Part, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return how suspicious each row is, by each ranking."""
    data, y = train
    found = {
        "influence": influence(LOSS, *train, valid=valid, spec=SPEC, hyper=HYPER),
        "influence, 8 draws": influence(LOSS, *train, valid=valid, spec=SPEC, hyper=HYPER, draws=8),
        "loss": losses_of(fit(train), data, y),
    }
    fold, others = rng.integers(0, FOLDS, len(y)), np.empty(len(y))
    for one in range(FOLDS):
        others[fold == one] = losses_of(fit(train, (fold != one).astype(float)), data, y)[fold == one]
    return found | {"loss of other folds": others}


def measure_flips(data: Any, region: np.ndarray | None) -> dict[str, list[list[float]]]:
    """Return, by ranking and seed, the share found in the worst fifth, and the test loss without the worst tenth."""
    found: dict[str, list[list[float]]] = {name: [] for name in (*RANKINGS, "all rows", "right labels")}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        train, (bins, y), valid, test = parts_of(data, seed)
        wrong = flipped(y, None if region is None else region[train], rng)
        noisy = bins, np.where(wrong, 1 - y, y)
        for name, suspicion in rankings(noisy, valid, rng).items():
            order = np.argsort(-suspicion, kind="stable")
            share = wrong[order[: round(LOOKED_AT * len(y))]].sum() / wrong.sum()
            kept = ~np.isin(np.arange(len(y)), order[: round(SHARE * len(y))])
            found[name].append([share, losses_of(fit(noisy, kept.astype(float)), *test).mean()])
        found["all rows"].append([0, losses_of(fit(noisy), *test).mean()])
        found["right labels"].append([0, losses_of(fit((bins, y)), *test).mean()])
    return found


def measure_shift(data: Any, rank: np.ndarray) -> dict[str, float]:
    """Return median test losses where few training rows have a high rank and those to judge by are like the test."""
    likely = np.where(rank > 0.5, 0.1, 1.0)
    found: dict[str, list[float]] = {
        "as drawn": [],
        "learned weights": [],
        "rows to judge by": [],
        "both": [],
    }
    for seed in range(SEEDS):
        _, train, valid, test = parts_of(data, seed, likely)
        tuned = tune(LOSS, *train, valid=valid, by=("sample_weight",), spec=SPEC, hyper=HYPER, steps=15)
        edges = train[0].edges
        both = jboost.Binned(jnp.concatenate([train[0].bins, valid[0].bins], axis=1), edges, True)
        models = {
            "as drawn": fit(train),
            "learned weights": tuned.fit()[0],
            "rows to judge by": fit(valid),
            "both": fit((both, np.concatenate([train[1], valid[1]]))),
        }
        for name, model in models.items():
            found[name].append(float(losses_of(model, *test).mean()))
    return {name: float(np.median(values)) for name, values in found.items()}


def table_of_flips(found: dict[str, dict[str, list[list[float]]]]) -> str:
    names = [*RANKINGS]
    lines = [
        "| set | found in the worst fifth: "
        + " | ".join(names)
        + " | test loss with all rows | without the worst tenth: "
        + " | ".join(names)
        + " | with right labels |",
        "|---" * (4 + 2 * len(names) - 1) + "|",
    ]
    for name, one in found.items():
        cells = {key: np.median(np.array(values), axis=0) for key, values in one.items()}
        shares = " | ".join(f"{cells[key][0]:.2f}" for key in names)
        tests = " | ".join(f"{cells[key][1]:.3f}" for key in names)
        lines.append(
            f"| {name} | {shares} | {cells['all rows'][1]:.3f} | {tests} | {cells['right labels'][1]:.3f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--only", nargs="+", default=SETS)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    suite = load_suite(Path(options.folder))
    flips, shifts = (
        {},
        ["| set | as drawn | learned weights | rows to judge by | both |", "|---|---|---|---|---|"],
    )
    for name in options.only:
        data = suite.load(name)
        rank = strongest(data)
        for kind, region in (("at random", None), ("in a region", rank)):
            label = f"{name}, {kind}"
            flips[label] = measure_flips(data, region)
            print(table_of_flips({label: flips[label]}).splitlines()[-1], flush=True)
        cells = measure_shift(data, rank)
        shifts.append(f"| {name} | " + " | ".join(f"{value:.4f}" for value in cells.values()) + " |")
        print(shifts[-1], flush=True)
    if options.markdown is not None:
        options.markdown.write_text(table_of_flips(flips) + "\n\n" + "\n".join(shifts) + "\n")


if __name__ == "__main__":
    main()
