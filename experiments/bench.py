"""Measure the speed of jboost beside XGBoost, LightGBM and CatBoost, in one run on this machine.

    python experiments/bench.py [--rows 1000000] [--trees 30] [--only jboost-255 ...] [--json FILE]

Synthetic rows with 28 features, depth 6, logistic loss, 255 and 63 bins, on a GPU if JAX finds one, else on all CPU
cores. Every case runs in a process of its own: binning, then three fits; the median of the fits gives the time per
tree. The first fit's extra time is reported apart as compilation. Libraries that are not installed are left out.
A last case times a first fit of 10,000 rows in a fresh process, compilation included.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FEATURES = 28
DEPTH = 6
LEARNING_RATE = 0.1
REPEATS = 3
BINS = (255, 63)
LIBRARIES = ("jboost", "jboost-depthwise", "xgboost", "lightgbm", "catboost")
FRESH = "fresh-10k"  # the case of a first fit in a new process
FRESH_ROWS, FRESH_TREES = 10_000, 200

Fit = Callable[[int], Any]  # fits that many trees


def make_data(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw normal features and a class that depends on some of them, with an interaction and noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, FEATURES)).astype(np.float32)
    logit = X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + X[:, 3] - 0.5 * X[:, 4] ** 2
    return X, (rng.uniform(size=n_rows) < 1 / (1 + np.exp(-logit))).astype(np.int32)


def prepare_jboost(X: np.ndarray, y: np.ndarray, bins: int, threads: int, gpu: bool, policy: str) -> Fit:
    """Bin; return how to fit."""
    import jboost

    data = jboost.bin_features(X, max_bins=bins)
    hyper = jboost.Hyper(learning_rate=LEARNING_RATE)

    def fit(n_trees: int) -> Any:
        spec = jboost.Spec(n_estimators=n_trees, max_depth=DEPTH, grow_policy=policy)  # pyright: ignore[reportArgumentType]
        return jboost.fit(jboost.losses.logistic, data, y, spec=spec, hyper=hyper, verbose=False)

    return fit


def prepare_xgboost(X: np.ndarray, y: np.ndarray, bins: int, threads: int, gpu: bool) -> Fit:
    """Bin; return how to fit."""
    import xgboost

    data = xgboost.QuantileDMatrix(X, y, max_bin=bins, nthread=threads)
    options = {
        "objective": "binary:logistic",
        "max_depth": DEPTH,
        "max_bin": bins,
        "eta": LEARNING_RATE,
        "nthread": threads,
        "device": "cuda" if gpu else "cpu",
    }
    return lambda n_trees: xgboost.train(options, data, n_trees)


def prepare_lightgbm(X: np.ndarray, y: np.ndarray, bins: int, threads: int, gpu: bool) -> Fit:
    """Bin; return how to fit. Always on the CPU, since the usual package has no CUDA build."""
    import lightgbm  # pyright: ignore[reportMissingImports]

    data = lightgbm.Dataset(X, y, params={"max_bin": bins, "num_threads": threads, "verbose": -1}).construct()
    options = {
        "objective": "binary",
        "max_depth": DEPTH,
        "num_leaves": 2**DEPTH,
        "max_bin": bins,
        "learning_rate": LEARNING_RATE,
        "num_threads": threads,
        "verbose": -1,
    }
    return lambda n_trees: lightgbm.train(options, data, n_trees)


def prepare_catboost(X: np.ndarray, y: np.ndarray, bins: int, threads: int, gpu: bool) -> Fit:
    """Bin; return how to fit."""
    import catboost  # pyright: ignore[reportMissingImports]

    data = catboost.Pool(X, y)
    data.quantize(border_count=bins)
    options = {
        "loss_function": "Logloss",
        "depth": DEPTH,
        "border_count": bins,
        "learning_rate": LEARNING_RATE,
        "thread_count": threads,
        "task_type": "GPU" if gpu else "CPU",
        "verbose": False,
        "allow_writing_files": False,
    }
    return lambda n_trees: catboost.CatBoostClassifier(iterations=n_trees, **options).fit(data)


def prepare(library: str, X: np.ndarray, y: np.ndarray, bins: int, threads: int, gpu: bool) -> Fit:
    """Bin the data for a library and return how it fits a number of trees."""
    name, _, policy = library.partition("-")
    if name == "jboost":
        return prepare_jboost(X, y, bins, threads, gpu, policy or "symmetric")
    peers = {"xgboost": prepare_xgboost, "lightgbm": prepare_lightgbm, "catboost": prepare_catboost}
    return peers[name](X, y, bins, threads, gpu)


def measure(library: str, bins: int, n_rows: int, n_trees: int, threads: int, gpu: bool) -> dict[str, Any]:
    """Time one case in this process."""
    X, y = make_data(n_rows)
    before = peak_memory()
    start = time.perf_counter()
    fit = prepare(library, X, y, bins, threads, gpu)
    binned = time.perf_counter()
    times = []
    for _ in range(REPEATS + 1):
        began = time.perf_counter()
        fit(n_trees)
        times.append(time.perf_counter() - began)
    usual = statistics.median(times[1:])
    return {
        "ms_per_tree": 1000 * usual / n_trees,
        "compile_seconds": max(times[0] - usual, 0.0),
        "bin_seconds": binned - start,
        "peak_mib": peak_memory(),
        "data_mib": before,
    }


def measure_fresh() -> dict[str, Any]:
    """Time a first fit of a small problem: import, binning, compilation and 200 trees."""
    X, y = make_data(FRESH_ROWS)
    start = time.perf_counter()
    import jboost

    imported = time.perf_counter()
    spec = jboost.Spec(n_estimators=FRESH_TREES, max_depth=DEPTH)
    jboost.fit(jboost.losses.logistic, X, y, spec=spec, verbose=False)
    first = time.perf_counter()
    jboost.fit(jboost.losses.logistic, X, y, spec=spec, verbose=False)
    return {
        "import_seconds": imported - start,
        "first_fit_seconds": first - imported,
        "second_fit_seconds": time.perf_counter() - first,
    }


def peak_memory() -> float:
    """Return the most memory that this process has used, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def run_apart(arguments: list[str]) -> dict[str, Any]:
    """Run one case in a process of its own."""
    command = [sys.executable, __file__, "--case", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        return {"error": result.stderr.strip().splitlines()[-1:]}
    return json.loads(result.stdout.splitlines()[-1])


def about(gpu: bool, threads: int) -> dict[str, Any]:
    """Say with what the figures were made."""
    import jax

    names = ("jboost", "jax", "jaxlib", "numpy", "xgboost", "lightgbm", "catboost")
    installed = [name for name in names if importlib.util.find_spec(name)]
    versions = {}
    for name in installed:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "source"
    return {
        "versions": versions | {"python": platform.python_version()},
        "machine": {"processor": processor(), "threads": threads, "device": str(jax.devices()[0])},
        "gpu": gpu,
    }


def processor() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if "model name" in line), platform.processor()
    )


def show(cases: dict[str, dict[str, Any]]) -> str:
    """Lay the figures out, with each library's time relative to the fastest peer at the same bins."""
    lines = [f"{'case':26}{'ms/tree':>9}{'ratio':>8}{'compile s':>11}{'bin s':>8}{'peak MiB':>10}"]
    for name, case in cases.items():
        if "ms_per_tree" not in case:
            lines.append(f"{name:26} {case}")
            continue
        bins = name.rsplit("-", 1)[1]
        peers = [
            other["ms_per_tree"]
            for label, other in cases.items()
            if label.endswith(f"-{bins}") and not label.startswith("jboost") and "ms_per_tree" in other
        ]
        ratio = f"{case['ms_per_tree'] / min(peers):.2f}" if peers else "-"
        lines.append(
            f"{name:26}{case['ms_per_tree']:9.1f}{ratio:>8}{case['compile_seconds']:11.2f}"
            f"{case['bin_seconds']:8.2f}{case['peak_mib']:10.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--threads", type=int, default=len(_cores()))
    parser.add_argument("--only", nargs="*", default=[], help="cases such as jboost-255, or fresh-10k")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--case", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        library, bins, rows, trees, threads, gpu = options.case
        fresh = library == FRESH
        found = (
            measure_fresh()
            if fresh
            else measure(library, int(bins), int(rows), int(trees), int(threads), gpu == "True")
        )
        print(json.dumps(found))
        return
    import jax

    gpu = jax.default_backend() == "gpu"
    cases: dict[str, dict[str, Any]] = {}
    for bins in BINS:
        for library in LIBRARIES:
            name = f"{library}-{bins}"
            installed = importlib.util.find_spec(library.partition("-")[0]) is not None
            if installed and (not options.only or name in options.only):
                print(f"running {name} ...", file=sys.stderr, flush=True)
                cases[name] = run_apart(
                    [library, *map(str, (bins, options.rows, options.trees, options.threads, gpu))]
                )
    if not options.only or FRESH in options.only:
        cases[FRESH] = run_apart([FRESH, *map(str, (0, 0, 0, options.threads, gpu))])
    print(show(cases))
    if options.json is not None:
        options.json.write_text(
            json.dumps({"about": about(gpu, options.threads), "cases": cases}, indent=1) + "\n"
        )


def _cores() -> set[int]:
    import os

    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


if __name__ == "__main__":
    main()
