"""Measure what a sketch of the gradients saves where outputs are many, and what it costs in loss.

    python experiments/sketch.py [--rows N] [--outputs K]

Rows of 50 features with K targets, and with labels of K classes. Every fit has 50 rounds of depth 6; the time is the
best of three after the first, against that of one target; the loss is that of as many other rows after the last round.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import jboost

N_FEATURES, ROUNDS, REPEATS = 50, 50, 3
SKETCHES = (None, ("projection", 1), ("projection", 2), ("projection", 5), ("projection", 10), ("top", 5))


def made(n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, targets that bend, and labels that are drawn by them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    signal = np.sin(X) @ rng.normal(size=(N_FEATURES, k)) / 3
    return X, signal + 0.3 * rng.normal(size=(n, k)), (2 * signal + rng.gumbel(size=(n, k))).argmax(axis=1)


def measure(loss: Any, X: np.ndarray, y: np.ndarray, spec: jboost.Spec) -> tuple[float, float]:
    """Return the seconds of a fit of one half, and the loss on the other."""
    half = len(X) // 2
    data = jboost.bin_features(X[:half])
    valid = (jboost.bin_features(X[half:], edges=data.edges), y[half:])
    _, history = jboost.fit(loss, data, y[:half], spec=spec, valid=valid)
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        jboost.fit(loss, data, y[:half], spec=spec)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:]), float(history.valid_metric[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--outputs", type=int, default=50)
    options = parser.parse_args()
    X, targets, labels = made(2 * options.rows, options.outputs)
    print(
        "| trees | sketch | targets: time of one, loss | classes: time of one target, loss |\n|---|---|---|---|"
    )
    for policy in ("symmetric", "depthwise"):
        plain: dict[str, Any] = {"n_estimators": ROUNDS, "max_depth": 6, "grow_policy": policy}
        one, _ = measure(jboost.losses.squared_error, X, targets[:, 0], jboost.Spec(**plain))
        for sketch in SKETCHES:
            chosen = {} if sketch is None else {"sketch": sketch[0], "sketch_size": sketch[1]}
            cells = []
            for loss, y in (
                (jboost.losses.squared_error, targets),
                (jboost.losses.softmax(options.outputs), labels),
            ):
                seconds, value = measure(loss, X, y, jboost.Spec(**plain, **chosen))
                cells.append(f"{seconds / one:.1f}, {value:.4f}")
            name = "none" if sketch is None else f"{sketch[0]} {sketch[1]}"
            print(f"| {policy} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
