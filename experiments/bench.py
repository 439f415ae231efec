"""Measure jboost beside XGBoost, LightGBM and CatBoost, in one run on this machine.

    python experiments/bench.py [--only ROW ...] [--rounds N] [--json FILE] [--plot FILE]
    python experiments/bench.py --list
    python experiments/bench.py --profile cpu-255

Prints a table of ratios to the fastest peer, beside what is wanted, and then every figure of every library. Synthetic
rows with 28 features, trees of depth 6, logistic loss. Every case runs in a process of its own; libraries that are not
installed are left out; a case that fails shows its error. With a GPU that JAX can use, the rows of the GPU are run in
place of those of the CPU, which can still be named. Ctrl-C keeps what is done. Measure on a quiet machine: work beside
it slows some libraries much more than others. Several rounds help.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # as a script: find this checkout, which need not be installed
    sys.path.insert(0, str(ROOT))

from experiments.benchmark import machine, profiling, report, rows, running  # noqa: E402
from experiments.benchmark.cases import Job, measure  # noqa: E402


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", help="rows to run")
    parser.add_argument("--repeats", type=_positive, default=3, help="calls after the first in a process")
    parser.add_argument("--rounds", type=_positive, default=1, help="processes of each case and library")
    parser.add_argument("--threads", type=_positive, default=len(machine.cores()))
    parser.add_argument("--rows", type=_positive, help="so many rows in every case, instead of its own")
    parser.add_argument("--trees", type=_positive, help="so many trees in every case, instead of its own")
    parser.add_argument("--quick", action="store_true", help="one call after the first, symmetric trees only")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--load", type=Path, help="show the figures of such a file instead of measuring")
    parser.add_argument("--plot", type=Path, help="also draw the ratios into this file")
    training = [row.name for row in rows.ROWS if row.case.kind == "train" and row.name == row.case.name]
    parser.add_argument("--profile", choices=training, help="show where the time of a tree goes")
    parser.add_argument(
        "--growth", choices=("symmetric", "depthwise"), default="symmetric", help="to profile"
    )
    parser.add_argument("--trace", help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.repeats = 1 if options.quick else options.repeats
    try:
        rows.check_names(options.only)
    except ValueError as error:
        parser.error(str(error))
    return options


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text}")
    return int(text)


def collect(options: argparse.Namespace) -> dict[str, Any]:
    """Run the chosen rows; return all there is to say about them."""
    chosen = running.Options(
        **{field.name: getattr(options, field.name) for field in dataclasses.fields(running.Options)}
    )
    about = running.run_apart(Job("about", "", 0, 0, 0, False, options.threads, 0))
    gpu = about.get("gpu", False)
    try:
        selected = rows.select(options.only, gpu)
    except ValueError as error:
        raise SystemExit(f"bench.py: {error}") from None
    return {
        "about": about,
        "options": dataclasses.asdict(chosen),
        "rows": [row.name for row in selected],
        "cases": running.run_all(selected, chosen, gpu),
    }


def show(record: dict[str, Any], plot: Path | None = None) -> None:
    """Print the table and all figures; draw the ratios."""
    selected = [row for row in rows.ROWS if row.name in record["rows"]]
    lines = report.make_lines(selected, record["cases"])
    parts = (
        report.headline(record["about"], record["options"]),
        report.table(lines),
        report.details(record["cases"]),
    )
    print("\n\n".join(parts))
    if plot is not None:
        from experiments.benchmark import plotting

        try:
            plotting.draw(lines, plot)
        except ValueError as error:
            raise SystemExit(f"bench.py: {error}") from None


def main(arguments: list[str] | None = None) -> None:
    """Do what the command line asks for."""
    options = parse(arguments)
    if options.list:
        for row in rows.ROWS:
            print(f"{row.name:12} {row.title}")
    elif options.job:
        print(json.dumps(measure(Job(**json.loads(options.job)))))
    elif options.trace:
        print(profiling.trace(**json.loads(options.trace)))
    elif options.profile:
        case = next(row.case for row in rows.ROWS if row.name == options.profile)
        print(profiling.profile(case, options.growth, options.rows or case.rows, options.trees or case.trees))
    else:
        record = json.loads(options.load.read_text()) if options.load else collect(options)
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")
        show(record, options.plot)


if __name__ == "__main__":
    main()
