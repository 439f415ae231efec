"""Compare plain boosting with gradients at scores that have not seen the row: in order, or by folds.

    python -m experiments.ordered_boosting FOLDER [--draws N] [--permutations N] [--markdown FILE]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py`; three sets are simulated, of
x_0 + x_1 x_2 and noise. Of the numeric columns of a set so many rows are drawn to train on, a quarter as many to stop
by (50 rounds after the best, 1,000 at most), and up to 5,000 others to test. Trees of depth 6, rate 0.1, all on
the same rows; the loss is that of the test rows at the best round. A number is the median over draws of the rows of the
loss against that of plain boosting; in brackets, in how many draws it was less, and the median number of trees.
CatBoost, if it is installed, is compared with its own plain boosting at the same numbers. A second table has the
processor time of a fit in that of plain boosting.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from tqdm import tqdm

import jboost
from experiments.real_data import load_suite, loss_for

NOISE = {"simulated, noise 0.1": 0.1, "simulated, noise 1": 1.0, "simulated, noise 3": 3.0}
SETS = (*NOISE, "concrete", "california_housing", "protein_casp", "adult", "bank_full", "satimage")
SIZES = (500, 2000, 8000)
MOST_TEST = 5000
KINDS = ("plain", "ordered", "crossed")
SPEC = jboost.Spec(n_estimators=1000, n_iter_no_change=50)
TIMED_ROWS = (10_000, 200_000)


class Part(NamedTuple):
    """Rows."""

    X: np.ndarray
    y: np.ndarray


def simulated(name: str) -> Any:
    """Make rows of ten normal columns, of which three say something, and normal noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20000, 10))
    y = X[:, 0] + X[:, 1] * X[:, 2] + NOISE[name] * rng.normal(size=len(X))
    return SimpleNamespace(name=name, X=pd.DataFrame(X), y=y, task="regression")


def drawn(data: Any, n: int, seed: int) -> tuple[Part, Part, Part] | None:
    """Draw rows to train on, to stop by and to test; None where there are too few."""
    n_stop = n // 4
    if n + n_stop + 200 > len(data.y):
        return None
    rows = np.random.default_rng(seed).permutation(len(data.y))[: n + n_stop + MOST_TEST]
    X = data.X.select_dtypes("number").to_numpy(np.float32)
    y = data.y if data.task == "multiclass" else data.y.astype(float)
    y = y / np.std(y) if data.task == "regression" else y
    return tuple(Part(X[part], y[part]) for part in np.split(rows, [n, n + n_stop]))  # type: ignore[return-value]


def by_jboost(
    data: Any, parts: tuple[Part, Part, Part], kind: str, n_permutations: int = 1
) -> tuple[float, int]:
    """Fit; return the loss of the test rows and the number of trees."""
    train, stop, test = parts
    n_permutations = 1 if kind == "plain" else n_permutations
    loss, spec = loss_for(data), dataclasses.replace(SPEC, boosting_type=kind, n_permutations=n_permutations)
    model, _ = jboost.fit(loss, *train, spec=spec, valid=tuple(stop), verbose=False)
    score = jboost.predict(model, test.X)
    mean = jboost.metrics.mean_loss(loss)(score, jnp.asarray(test.y), jnp.ones(len(test.y)))
    return float(mean), model.n_trees


def by_catboost(data: Any, parts: tuple[Part, Part, Part], kind: str) -> tuple[float, int]:
    """Do the same with CatBoost."""
    import catboost  # pyright: ignore[reportMissingImports]

    train, stop, test = parts
    is_class = data.task != "regression"
    kind_of_model: Any = catboost.CatBoostClassifier if is_class else catboost.CatBoostRegressor
    model = kind_of_model(
        iterations=1000, learning_rate=0.1, depth=6, boosting_type=kind.capitalize(), early_stopping_rounds=50,
        random_seed=0, thread_count=2, verbose=False, allow_writing_files=False,
    )  # fmt: skip
    model.fit(train.X, train.y, eval_set=tuple(stop))
    if is_class:
        return log_loss(test.y, model.predict_proba(test.X), labels=model.classes_), model.tree_count_
    return float(np.mean((model.predict(test.X) - test.y) ** 2) / 2), model.tree_count_


def times() -> str:
    """Say how many times as long a round takes as one of plain boosting, in processor time: least of three fits."""
    lines = ["| rows | growth | ordered | crossed |", "|---|---|---|---|"]
    for n in TIMED_ROWS:
        X = np.random.default_rng(0).normal(size=(n, 28)).astype(np.float32)
        data, y = jboost.bin_features(X), (X[:, 0] + X[:, 1] * X[:, 2] > 0).astype(np.float32)
        for policy in ("symmetric", "depthwise"):
            seconds = []
            for kind in KINDS:
                spec = jboost.Spec(n_estimators=20, grow_policy=policy, boosting_type=kind)
                taken = []
                for _ in range(4):  # the first one compiles
                    began = time.process_time()
                    jboost.fit(jboost.losses.logistic, data, y, spec=spec, verbose=False)
                    taken.append(time.process_time() - began)
                seconds.append(min(taken[1:]))
            lines.append(
                f"| {n} | {policy} | {seconds[1] / seconds[0]:.1f} | {seconds[2] / seconds[0]:.1f} |"
            )
    return "\n".join(lines)


def line(
    data: Any, n: int, n_draws: int, n_permutations: int, has_catboost: bool, progress: tqdm
) -> str | None:
    """Compare all on so many rows of a set."""
    runs = {kind: partial(by_jboost, kind=kind, n_permutations=n_permutations) for kind in KINDS}
    if has_catboost:
        runs |= {f"CatBoost {kind}": partial(by_catboost, kind=kind) for kind in KINDS[:2]}
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in runs}
    draws = [drawn(data, n, seed) for seed in range(n_draws)]
    for parts in draws:
        progress.update()
        if parts is not None:
            for name, run in runs.items():
                found[name].append(run(data, parts))
    if draws[0] is None:
        return None
    losses = {name: np.array([loss for loss, _ in values]) for name, values in found.items()}

    def against(name: str, plain: str) -> str:
        ratio = losses[name] / losses[plain]
        trees = np.median([n_trees for _, n_trees in found[name]])
        return f"{100 * (np.median(ratio) - 1):+.1f} % ({(ratio < 1).sum()} of {n_draws}; {trees:.0f})"

    trees = np.median([n_trees for _, n_trees in found["plain"]])
    cells = [
        f"{np.median(losses['plain']):.4f} ({trees:.0f})",
        *(against(kind, "plain") for kind in KINDS[1:]),
    ]
    cells += [against("CatBoost ordered", "CatBoost plain")] if has_catboost else []
    return f"| {data.name} | {n} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--only", nargs="*", default=list(SETS))
    parser.add_argument("--sizes", nargs="*", type=int, default=list(SIZES))
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--permutations", type=int, default=1, help="of the rows, in ours")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    suite, has_catboost = load_suite(Path(options.folder)), find_spec("catboost") is not None
    names = ["", "rows", "plain", "ordered", "crossed", *["CatBoost, ordered"] * has_catboost]
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    with tqdm(total=len(options.only) * len(options.sizes) * options.draws, desc="draws") as progress:
        for name in options.only:
            data = simulated(name) if name in NOISE else suite.load(name)
            for n in options.sizes:
                found = line(data, n, options.draws, options.permutations, has_catboost, progress)
                lines += [] if found is None else [found]
                tqdm.write(str(found))
    text = "\n".join([*lines, "", times()])
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")


if __name__ == "__main__":
    main()
