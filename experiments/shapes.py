"""Compare the speed of jboost with XGBoost and LightGBM on data of other shapes than that of bench.py.

    python experiments/shapes.py [--only NAME ...] [--json FILE]

Wide, deep and shallow, missing values, categories, several classes, quantiles, rows drawn, mostly zeros, small. Every
library fits binned data to the same depth with the same learning rate; each fit is a process of its own, and the figure
is the median of three fits after the first, whole calls, divided by the number of trees. Peers come by
`pip install -e '.[peers]'`; one that is missing is left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from experiments.benchmark import machine  # noqa: E402
from experiments.benchmark.cases import time_calls  # noqa: E402
from experiments.benchmark.running import environment  # noqa: E402

LIBRARIES = ("jboost", "jboost-depthwise", "xgboost", "lightgbm")
RATE, LEVEL, CATEGORIES = 0.1, 0.9, 100
Fit = Callable[[], Any]


class Shape(NamedTuple):
    """What is fitted: rows, features, depth, bins, trees, the kind of target, and what else is special."""

    rows: int
    features: int
    depth: int = 6
    bins: int = 255
    trees: int = 20
    target: str = "binary"  # or "real", "quantile", or a number of classes
    special: str = ""  # "missing", "drawn", "categories" or "zeros"


SHAPES = {
    "wide": Shape(10_000, 1000),
    "wide, more rows": Shape(200_000, 500, bins=63, trees=6),
    "100 columns": Shape(100_000, 100, trees=30),
    "5 columns": Shape(2_000_000, 5),
    "depth 3": Shape(1_000_000, 28, depth=3, trees=30),
    "depth 8": Shape(1_000_000, 28, depth=8, trees=10),
    "depth 10, few rows": Shape(10_000, 28, depth=10),
    "1000 rows": Shape(1000, 10, trees=200, target="real"),
    "squared error": Shape(1_000_000, 10, trees=30, target="real"),
    "quantile": Shape(200_000, 28, target="quantile"),
    "5 classes": Shape(500_000, 28, bins=63, target="5"),
    "10 classes": Shape(100_000, 28, target="10"),
    "missing values": Shape(1_000_000, 28, special="missing"),
    "half the rows and columns": Shape(1_000_000, 28, special="drawn"),
    "categories": Shape(200_000, 20, special="categories"),
    "mostly zeros": Shape(1_000_000, 60, trees=10, special="zeros"),
}


def make_data(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Draw features, and a target that depends on the first of them; half the columns may be categories."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape.rows, shape.features), dtype=np.float32)
    signal = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] - 0.5 * X[:, 4] ** 2
    if shape.special == "missing":
        X[rng.random(X.shape, dtype=np.float32) < 0.2] = np.nan
    elif shape.special == "zeros":
        X = (rng.random(X.shape, dtype=np.float32) < 0.05).astype(np.float32)
        signal = X[:, :10].sum(axis=1) - 0.5
    elif shape.special == "categories":
        n = shape.features // 2
        X[:, :n] = rng.integers(0, CATEGORIES, (shape.rows, n))
        effect = rng.standard_normal((2, CATEGORIES))
        signal += effect[0][X[:, 0].astype(int)] + effect[1][X[:, 1].astype(int)]
    if shape.target in ("real", "quantile"):
        return X, (signal + rng.standard_normal(shape.rows)).astype(np.float32)
    if shape.target == "binary":
        return X, (rng.random(shape.rows) < 1 / (1 + np.exp(-signal))).astype(np.int32)
    n_classes = int(shape.target)
    return X, np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes)).astype(np.int32)


def categorical(shape: Shape) -> list[int]:
    """List the columns that hold categories."""
    return list(range(shape.features // 2)) if shape.special == "categories" else []


def prepare_jboost(shape: Shape, X: np.ndarray, y: np.ndarray, policy: str) -> Fit:
    import jax

    import jboost

    named = {
        "binary": jboost.losses.logistic,
        "real": jboost.losses.squared_error,
        "quantile": jboost.losses.quantile(LEVEL),
    }
    loss = named[shape.target] if shape.target in named else jboost.losses.softmax(int(shape.target))
    data = jboost.bin_features(X, max_bins=shape.bins, categorical=categorical(shape) or None)
    share = 0.5 if shape.special == "drawn" else 1.0
    hyper = jboost.Hyper(learning_rate=RATE, subsample=share, colsample_bytree=share)
    spec = jboost.Spec(n_estimators=shape.trees, max_depth=shape.depth, grow_policy=policy)  # pyright: ignore
    return lambda: jax.block_until_ready(jboost.fit(loss, data, y, spec=spec, hyper=hyper, verbose=False))


def prepare_xgboost(shape: Shape, X: Any, y: np.ndarray, threads: int) -> Fit:
    import xgboost

    objective = {"binary": "binary:logistic", "real": "reg:squarederror", "quantile": "reg:quantileerror"}
    options: dict[str, Any] = {"objective": objective.get(shape.target, "multi:softprob"), "eta": RATE}
    options |= {"max_depth": shape.depth, "max_bin": shape.bins, "nthread": threads}
    if shape.target.isdigit():
        options["num_class"] = int(shape.target)
    if shape.target == "quantile":
        options["quantile_alpha"] = LEVEL
    if shape.special == "drawn":
        options |= {"subsample": 0.5, "colsample_bytree": 0.5}
    kinds = ["c" if j in categorical(shape) else "float" for j in range(shape.features)]
    data = xgboost.QuantileDMatrix(
        X, y, max_bin=shape.bins, nthread=threads, feature_types=kinds, enable_categorical=True
    )
    return lambda: xgboost.train(options, data, shape.trees)


def prepare_lightgbm(shape: Shape, X: np.ndarray, y: np.ndarray, threads: int) -> Fit:
    import lightgbm  # pyright: ignore[reportMissingImports]

    objective = {"binary": "binary", "real": "regression", "quantile": "quantile"}
    options: dict[str, Any] = {"objective": objective.get(shape.target, "multiclass"), "learning_rate": RATE}
    options |= {"max_depth": shape.depth, "num_leaves": 2**shape.depth, "max_bin": shape.bins}
    options |= {"min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 1.0, "num_threads": threads, "verbose": -1}
    if shape.target.isdigit():
        options["num_class"] = int(shape.target)
    if shape.target == "quantile":
        options["alpha"] = LEVEL
    if shape.special == "drawn":
        options |= {"bagging_fraction": 0.5, "bagging_freq": 1, "feature_fraction": 0.5}
    data = lightgbm.Dataset(
        X, y, params=options, categorical_feature=categorical(shape) or "auto"
    ).construct()
    return lambda: lightgbm.train(options, data, shape.trees)


def measure(name: str, library: str) -> dict[str, float]:
    """Fit four times in this process; return the time of a tree, and what the first fit took longer."""
    shape, threads = SHAPES[name], len(machine.cores())
    X, y = make_data(shape)
    if library.startswith("jboost"):
        fit = prepare_jboost(shape, X, y, library.partition("-")[2] or "symmetric")
    else:
        fit = {"xgboost": prepare_xgboost, "lightgbm": prepare_lightgbm}[library](shape, X, y, threads)
    first, later, _ = time_calls(fit, repeats=3)
    return {"ms_per_tree": 1000 * later / shape.trees, "first_seconds": max(first - later, 0.0)}


def run_apart(name: str, library: str) -> dict[str, float]:
    """Measure in a new process, on the CPU."""
    command = [sys.executable, str(Path(__file__)), "--one", name, library]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment("cpu"))
    if done.returncode:
        raise SystemExit(f"shapes.py: {name}, {library}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def line(name: str, figures: dict[str, dict[str, float]]) -> str:
    """Write a row of the table: milliseconds a tree, and the ratio of symmetric growth to the fastest peer."""
    times = {library: found["ms_per_tree"] for library, found in figures.items()}
    peers = [times[library] for library in ("xgboost", "lightgbm") if library in times]
    ratio = f"{times['jboost'] / min(peers):.2f}" if peers else "-"
    cells = [f"{times[library]:.2f}" if library in times else "-" for library in LIBRARIES]
    return "| " + " | ".join([name, *cells, ratio]) + " |"


def main() -> None:
    """Measure what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", nargs="+", choices=SHAPES, default=list(SHAPES), metavar="NAME", help="some shapes"
    )
    parser.add_argument("--json", type=Path, help="keep the figures, with versions and machine")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    print("| shape | " + " | ".join(LIBRARIES) + " | ratio |\n|" + "---|" * (len(LIBRARIES) + 2))
    present = [library for library in LIBRARIES if machine.is_installed(library)]
    results = {}
    for name in options.only:
        results[name] = {library: run_apart(name, library) for library in present}
        print(line(name, results[name]), flush=True)
    if options.json:
        shapes = {name: SHAPES[name]._asdict() for name in options.only}
        record = {"about": machine.about(), "shapes": shapes, "results": results}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
