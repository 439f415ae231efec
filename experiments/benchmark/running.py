"""Run cases, each in a process of its own, and gather their figures."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.benchmark.cases import Figures, Job
from experiments.benchmark.machine import is_installed
from experiments.benchmark.rows import Case, Row, libraries_of

SCRIPT = Path(__file__).resolve().parent.parent / "bench.py"
HANGS = 1800  # seconds after which a case is given up

Results = dict[str, dict[str, Figures]]  # by case and library


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user chose for all cases; `rows` and `trees` replace a case's own."""

    threads: int
    repeats: int = 3
    rounds: int = 1
    rows: int | None = None
    trees: int | None = None
    quick: bool = False


def run_apart(job: Job, device: str = "any") -> Figures:
    """Make a measurement in a new process; a failure is returned as {"error": its last line}."""
    command = [sys.executable, str(SCRIPT), "--job", json.dumps(dataclasses.asdict(job))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=HANGS, env=environment(device)
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {HANGS} s"}
    if done.returncode < 0:
        return {"error": f"killed by {signal.Signals(-done.returncode).name}"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def environment(device: str) -> dict[str, str]:
    """Make the environment of a child: everything is compiled there, on the CPU if the case is one of the CPU."""
    kept = {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}
    return kept | {"JBOOST_CACHE": "0"} | ({"JAX_PLATFORMS": "cpu"} if device == "cpu" else {})


def make_job(case: Case, library: str, options: Options, gpu: bool) -> Job:
    """Apply the user's choices to a case."""
    return Job(
        kind=case.kind,
        library=library,
        rows=options.rows or case.rows,
        trees=options.trees or case.trees,
        bins=case.bins,
        gpu=gpu and case.device != "cpu",
        threads=options.threads,
        repeats=options.repeats,
    )


def plan(rows: Sequence[Row], options: Options) -> list[tuple[Case, str]]:
    """List the processes to run: round after round of a case, so that libraries take turns."""
    cases = dict.fromkeys(row.case for row in rows)
    return [
        (case, library)
        for case in cases
        for _ in range(options.rounds)
        for library in libraries_of(rows, case)
        if not (options.quick and library == "jboost-depthwise")
    ]


def run_all(
    rows: Sequence[Row], options: Options, gpu: bool, run: Callable[..., Figures] = run_apart
) -> Results:
    """Run what the rows need. Ctrl-C ends the run and keeps what is done."""
    taken: dict[str, dict[str, list[Figures]]] = {}
    processes = plan(rows, options)
    try:
        for number, (case, library) in enumerate(processes, 1):
            _say(f"[{number}/{len(processes)}] {case.name} {library} ", end="")
            start = time.perf_counter()
            if is_installed(library):
                figures = run(make_job(case, library, options, gpu), case.device)
            else:
                figures = {"skipped": "not installed"}
            taken.setdefault(case.name, {}).setdefault(library, []).append(figures)
            _say(f"{describe(figures)} ({time.perf_counter() - start:.0f} s)")
    except KeyboardInterrupt:
        _say("interrupted: the table holds what was done")
    return {name: {library: middle(runs) for library, runs in found.items()} for name, found in taken.items()}


def middle(runs: list[Figures]) -> Figures:
    """Take the median of each figure over the runs that succeeded; without any, return the last failure."""
    good = [run for run in runs if "error" not in run and "skipped" not in run]
    if not good:
        return runs[-1]
    found = {
        name: statistics.median(run[name] for run in good) if isinstance(value, int | float) else value
        for name, value in good[-1].items()
    }
    failed = len(runs) - len(good)
    return found | ({"failed_runs": failed} if failed else {})


def describe(figures: Figures) -> str:
    """Write figures on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in figures.items())


def _number(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)
