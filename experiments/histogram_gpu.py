"""Find which histogram is fastest on this GPU, at each level of a tree.

    python experiments/histogram_gpu.py [--rows 1000000 8000000] [--json FILE]

Times every implementation on random rows of 28 features, level by level as a fit of depth 6 asks for them: all rows at
the root, then half of them, spread over the nodes of the level. Codes are uniform or skewed (most rows share a
few codes, so that additions meet). Checks that all give the bits of the definition; ends with status 1 if not. Of
what jboost needs, JAX and jaxtyping are enough here. Without a GPU it runs too, if asked for few rows; the times then
mean nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # as a script: find this checkout, which need not be installed
    sys.path.insert(0, str(ROOT))

try:
    import jboost as _jboost
except ModuleNotFoundError:  # without scikit-learn, say, parts of the package can still be imported
    _jboost = ModuleType("jboost")
    _jboost.__path__ = [str(ROOT / "jboost")]
    sys.modules["jboost"] = _jboost

from experiments import histogram_pallas  # noqa: E402 (the path was needed first)
from jboost._histogram import joined, xla  # noqa: E402

FEATURES = 28
DEPTH = 6
CODES = (256, 64)  # of 255 and 63 bins and the missing values
DATA = ("uniform", "skewed")
REPEATS = 10

Build = Callable[..., jax.Array]


class Result(NamedTuple):
    """One line of the JSON file."""

    rows: int
    codes: int
    data: str
    level: int
    implementation: str
    ms: float  # 0 where it failed
    fault: str  # what went wrong


def implementations(n_codes: int) -> dict[str, Build]:
    """Name what can be tried: joined features with several bounds on the memory of tables and copies."""
    pallas = partial(histogram_pallas.build_histogram, interpret=jax.default_backend() == "cpu")
    found: dict[str, Build] = {"copies": xla.scatter_into_copies}
    if n_codes**2 <= joined.MAX_JOINED_CODES:
        for bits in (20, 22, 24):
            found[f"pairs, 2**{bits} cells"] = partial(joined.scatter_tables, 2, max_copied_cells=2**bits)
    return found | {"pallas": pallas}


def make_rows(rows: int, n_codes: int, data: str) -> tuple[jax.Array, jax.Array]:
    """Draw bin codes [f, n] and statistics [n, 2] whose sums fit in an int32."""
    codes_key, values_key = jax.random.split(jax.random.key(0))
    uniform = jax.random.uniform(codes_key, (FEATURES, rows))
    codes = n_codes * (uniform if data == "uniform" else uniform**6)
    limit = 2**30 // rows
    values = jax.random.randint(values_key, (rows, 2), -limit, limit + 1, jnp.int32)
    return jnp.minimum(codes, n_codes - 1).astype(jnp.uint8), values


def make_slots(rows: int, level: int) -> tuple[jax.Array, int]:
    """Draw the slot of each row and say how many there are: half of the rows are ignored below the root."""
    if level == 0:
        return jnp.zeros(rows, jnp.uint32), 1
    n_slots = 2 ** (level - 1)
    return jax.random.bits(jax.random.key(level), (rows,), jnp.uint32) % (2 * n_slots), n_slots


def try_out(program: Build, arrays: tuple[jax.Array, ...], expected: np.ndarray) -> tuple[float, str]:
    """Return the milliseconds of one call after the first, and what is wrong, if anything."""
    try:
        found = np.asarray(program(*arrays))
        start = time.perf_counter()
        jax.block_until_ready([program(*arrays) for _ in range(REPEATS)])
    except Exception as error:  # a kernel that does not compile here is no reason not to measure the others
        return 0.0, f"{type(error).__name__}: {error}"
    ms = 1e3 * (time.perf_counter() - start) / REPEATS
    return ms, "" if np.array_equal(found, expected) else "not the bits of the definition"


def measure(rows: int, n_codes: int) -> Iterator[Result]:
    """Time all implementations on all levels. Programs are compiled once for both kinds of data."""
    tables = {data: jax.jit(make_rows, static_argnums=(0, 1, 2))(rows, n_codes, data) for data in DATA}
    for level in range(DEPTH):
        slot, n_slots = make_slots(rows, level)
        sizes = {"n_slots": n_slots, "n_codes": n_codes}
        definition = jax.jit(partial(xla.scatter_in_blocks, **sizes))
        expected = {
            data: np.asarray(definition(bins, slot, values)) for data, (bins, values) in tables.items()
        }
        for name, build in implementations(n_codes).items():
            program = jax.jit(partial(build, **sizes))
            for data, (bins, values) in tables.items():
                ms, fault = try_out(program, (bins, slot, values), expected[data])
                yield Result(rows, n_codes, data, level, name, ms, fault)


def print_table(results: list[Result]) -> None:
    """Print milliseconds: a line for each implementation, a column for each level, and their sum."""
    columns = [f"level {level}" for level in range(DEPTH)]
    for data in DATA:
        first = results[0]
        print(f"\n{first.rows:,} rows, {first.codes} codes, {data}: ms")
        print(f"{'':24}" + "".join(f"{column:>10}" for column in [*columns, "tree"]))
        mine = [result for result in results if result.data == data]
        for name in dict.fromkeys(result.implementation for result in mine):
            ms = {result.level: result.ms for result in mine if result.implementation == name and result.ms}
            cells = [f"{ms[level]:10.3f}" if level in ms else f"{'-':>10}" for level in range(DEPTH)]
            total = f"{sum(ms.values()):10.3f}" if len(ms) == DEPTH else f"{'-':>10}"
            print(f"{name:24}" + "".join(cells) + total, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 8_000_000])
    parser.add_argument("--json", type=Path, help="where to write the results")
    options = parser.parse_args(arguments)
    device = jax.devices()[0]
    print(f"{device.device_kind} ({device.platform}), JAX {jax.__version__}")
    results: list[Result] = []
    for rows in options.rows:
        for n_codes in CODES:
            found = list(measure(rows, n_codes))
            print_table(found)
            results += found
    if options.json is not None:
        record: dict[str, Any] = {"device": device.device_kind, "jax": jax.__version__}
        record["results"] = [result._asdict() for result in results]
        options.json.write_text(json.dumps(record, indent=1))
    wrong = [result for result in results if result.fault]
    for result in wrong:
        print(result, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
