"""How long does a search take? 64 settings on 5 folds, by JBoostSearchCV and by GridSearchCV over the peers.

    python experiments/search.py [--rows N] [--trees N] [--peer-settings N] [--markdown FILE]

10,000 rows of 28 features, 100 trees of depth 6, learning rates and L2 penalties, logistic loss, scored by log loss;
each library on all cores, in this process. Peers are timed on some of the settings, times what is missing. The second
search of jboost has other numbers: it compiles nothing.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:  # as a script: find this checkout, which need not be installed
    sys.path.insert(0, str(ROOT))

from experiments.benchmark.searches import N_SETTINGS, PEERS, make_search  # noqa: E402


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels that depend on some of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 28)).astype(np.float32)
    signal = X[:, 0] + X[:, 1] * X[:, 2] + np.sin(2 * X[:, 3])
    return X, (signal + rng.normal(size=n) > 0).astype(int)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--peer-settings", type=int, default=8, choices=[8, 64])
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    X, y = rows(options.rows)
    lines = ["| | seconds | best log loss |", "|---|---|---|"]

    def add(name: str, seconds: float, search: Any) -> None:
        lines.append(f"| {name} | {seconds:.1f} | {-search.cv_results_['mean_test_score'].max():.4f} |")
        print(lines[-1], flush=True)

    print("\n".join(lines))
    for library, policy in (("jboost", "symmetric"), ("jboost-depthwise", "depthwise")):
        for which, shift in (("first", 1.0), ("second", 1.01)):
            start = time.perf_counter()
            search = make_search(library, options.trees, None, shift=shift).fit(X, y)
            add(f"JBoostSearchCV, {policy}, {which}", time.perf_counter() - start, search)
    for name, (kind, _) in PEERS.items():
        n_settings = options.peer_settings
        try:
            search = make_search(name, options.trees, None, n_settings)
        except ImportError:
            continue
        start = time.perf_counter()
        search.fit(X, y)
        seconds = (time.perf_counter() - start) * N_SETTINGS / n_settings
        add(f"GridSearchCV over {kind}, {n_settings} settings x {N_SETTINGS // n_settings}", seconds, search)
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
