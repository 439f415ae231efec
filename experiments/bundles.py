"""What do bundles of features save? The time of a tree with and without them, by kind of columns and number of rows.

    python experiments/bundles.py [--depth 6] [--rows 16384 262144 1048576]

Processor time of the C++ call that grows a tree, both cores together, the least of several; and of finding the bundles,
which happens once for the rows. Both ways give the same tree, which is checked.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import jboost  # noqa: E402
from jboost._bins.bundling import find_bundles  # noqa: E402
from jboost._model.ensemble import edges_layout  # noqa: E402
from jboost._split import Rules  # noqa: E402
from jboost._tree import Columns, GradientPairs, arrange_on_host, bundled_on_host, native  # noqa: E402
from jboost._tree.engines import WHOLE_TREE  # noqa: E402

COLUMNS = 60
KINDS: dict[str, Callable[[Any, int], np.ndarray]] = {
    "one-hot": lambda rng, n: np.eye(COLUMNS)[rng.integers(COLUMNS, size=n)],
    "5 % ones": lambda rng, n: rng.random((n, COLUMNS)) < 0.05,
    "50 % ones": lambda rng, n: rng.random((n, COLUMNS)) < 0.5,
    "20 numbers, 40 with 5 % ones": lambda rng, n: np.hstack(
        [rng.normal(size=(n, 20)), rng.random((n, 40)) < 0.05]
    ),
    "numbers": lambda rng, n: rng.normal(size=(n, COLUMNS)),
}


def cpu_ms(call: Callable[[], Any], repeats: int) -> float:
    """Return the least processor time of a call, after a first one."""
    call()
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            call()
        times.append(1000 * (time.process_time() - start) / repeats)
    return min(times)


def measure(X: np.ndarray, depth: int, rng: Any) -> tuple[float, float | None, float, int]:
    """Return the times of a tree without and with bundles, that of finding them, and the number of columns then."""
    n, f = X.shape
    data = jboost.bin_features(X.astype(np.float32))
    bins, repeats = np.asarray(data.bins), max(1, 200_000 // n)
    gradient = jnp.asarray(rng.normal(size=(n, 1)) - X[:, :1] - X[:, -1:], jnp.float32)
    layout, spec = edges_layout(data.edges, data.has_missing), jboost.Spec(max_depth=depth)
    hyper = jax.tree.map(jnp.float32, jboost.Hyper())
    rules = Rules(hyper, jnp.full(2, 2.0**30 / (8 * n), jnp.float32), spec)

    @jax.jit
    def grow(bins: Any, bundling: Any) -> Any:
        columns = Columns(bins, jnp.ones((depth, f), bool), layout, bundling)
        pairs = GradientPairs(gradient, jnp.ones_like(gradient))
        return WHOLE_TREE.grow(columns, pairs, jnp.ones(n, bool), rules)

    def time_of(*given: Any) -> tuple[float, Any]:
        return cpu_ms(lambda: jax.block_until_ready(grow(*given)), repeats), grow(*given)

    plain, wanted = time_of(arrange_on_host(WHOLE_TREE, bins, n), None)
    finding = cpu_ms(lambda: find_bundles(bins, data.edges.n_codes), 1)
    if data.bundles is None:
        return plain, None, finding, f
    bundled, found = time_of(*bundled_on_host(data.bundles, n, grouped=True))
    assert all(map(np.array_equal, jax.tree.leaves(wanted), jax.tree.leaves(found)))
    return plain, bundled, finding, len(data.bundles.n_joint)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--rows", type=int, nargs="+", default=[16_384, 262_144, 1_048_576])
    options = parser.parse_args()
    if not native.is_available():
        raise SystemExit("bundles.py: the C++ library is not there")
    rng = np.random.default_rng(0)
    print(
        f"| {COLUMNS} columns | rows | columns then | a tree, ms | with bundles | ratio | finding them, ms |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind, draw in KINDS.items():
        for n in options.rows:
            plain, bundled, finding, m = measure(draw(rng, n), options.depth, rng)
            cells = ("-", "-") if bundled is None else (f"{bundled:.2f}", f"{bundled / plain:.2f}")
            print(
                f"| {kind} | {n:,} | {m} | {plain:.2f} | {cells[0]} | {cells[1]} | {finding:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
