"""Where the time of a tree goes: a trace of JAX's profiler, its operations grouped by the code they came from.

The trace names operations; the compiled program, which XLA writes out, says for each of them which lines of Python
it stands for. A fusion counts as what its last operation is for. Times are summed over threads or streams.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from experiments.benchmark.rows import Case
from experiments.benchmark.running import SCRIPT, environment

PROGRAM = "run_chunk"  # the compiled rounds
OTHER = "other"
TOP = 10

# By the file under jboost/ and the function; the first rule that fits a call counts.
GROUPS = (
    (r"derivatives_by_row|^_objective/(?!leaf_rules|leaves)|^losses", "derivatives"),
    (r"quantise|^_fixed_point|fixed_point\.py", "fixed point"),
    (r"^_histogram", "histograms"),
    (r"^_split", "split search"),
    (r"^_tree/native", "whole tree in C++"),
    (r"^_tree", "routing"),
    (r"^_model|^_objective/(leaf_rules|leaves)", "leaves"),
    (r"^_sampling", "sampling"),
    (r"train_loss|plain_mean", "training loss"),
)
# Whatever it calls, sums in fixed point say, serves the leaves.
LEAVES = r"^_objective/(leaf_rules|leaves)(?!.*moved_by)"

_STACK_TABLE = re.compile(r"^(FileNames|FunctionNames|FileLocations|StackFrames)$")
_OPERATION = re.compile(r"^\s*(?:ROOT )?%?([\w.\-]+) = .*?stack_frame_id=(\d+)")
_TARGET = re.compile(r'custom_call_target="([^"]+)"')


class Span(NamedTuple):
    """An operation in a trace, in nanoseconds."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Source:
    """What an operation stands for: a group, a custom call's target or the innermost call in jboost."""

    group: str
    call: str


def profile(case: Case, growth: str, rows: int, trees: int) -> str:
    """Fit as a case of training does, in a process of its own under the profiler; return the report."""
    with tempfile.TemporaryDirectory() as folder:
        flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*{PROGRAM}.*"
        # JAX's default, whatever the caller's: lines of Python are what operations are told apart by.
        frames = {"JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "100"}
        flags = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"} | frames
        asked = {"growth": growth, "rows": rows, "trees": trees, "bins": case.bins, "folder": folder}
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--trace", json.dumps(asked)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(case.device) | flags,
        )
    if done.returncode:
        raise SystemExit(f"bench.py: the process to profile ended with status {done.returncode}")
    return done.stdout


def trace(growth: str, rows: int, trees: int, bins: int, folder: str) -> str:
    """Trace a fit in this process, for whose programs XLA has been told to leave its text in the folder."""
    import jax

    from experiments.benchmark.libraries import JBoost, make_data

    library = JBoost(gpu=False, threads=0, policy=growth)
    data = library.bin(*make_data(rows), bins)
    library.fit(data, trees)
    start = time.perf_counter()
    library.fit(data, trees)
    wall = time.perf_counter() - start
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(folder, profiler_options=options):
        library.fit(data, trees)
    read = jax.profiler.ProfileData.from_file(str(next(Path(folder).rglob("*.xplane.pb"))))
    texts = [path.read_text() for path in Path(folder).glob("*after_optimizations.txt")]
    sources = {name: source for text in texts for name, source in read_sources(text).items()}
    title = f"{growth}, {rows} x 28, {bins} bins, {trees} trees on {jax.devices()[0].device_kind}"
    title += f": {1000 * wall / trees:.2f} ms a tree by the clock\n"
    return title + report(own_times(operations(read)), sources, trees)


def operations(read: Any) -> Iterator[list[Span]]:
    """Pick the operations of the compiled rounds out of a trace, one list for each thread or stream."""
    planes = [plane for plane in read.planes if plane.name.startswith("/device:")] or list(read.planes)
    for plane in planes:
        lines = [line for line in plane.lines if line.name == "XLA Ops"] or list(plane.lines)
        for line in lines:
            spans = []
            for event in line.events:
                stats = dict(event.stats)
                if "hlo_op" in stats and PROGRAM in str(stats.get("hlo_module")):
                    spans.append(
                        Span(str(stats["hlo_op"]), event.start_ns, event.start_ns + event.duration_ns)
                    )
            if spans:
                yield spans


def own_times(threads: Iterable[list[Span]]) -> Counter[str]:
    """Sum each operation's nanoseconds, less those of the operations that ran inside of it on its thread."""
    total: Counter[str] = Counter()
    for spans in threads:
        around: list[Span] = []
        for span in sorted(spans, key=lambda span: (span.start, -span.end)):
            while around and around[-1].end <= span.start:
                around.pop()
            if around:
                total[around[-1].name] -= round(min(span.end, around[-1].end) - span.start)
            total[span.name] += round(span.end - span.start)
            around.append(span)
    return total


def read_sources(text: str) -> dict[str, Source]:
    """Find, in the text of a compiled program, what each operation stands for."""
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] = {}
    found = {}
    for line in text.splitlines():
        if _STACK_TABLE.match(line):
            table = tables.setdefault(line, {})
        elif match := re.match(r"^(\d+) (.*)$", line):
            table[int(match[1])] = match[2]
        elif match := _OPERATION.match(line):
            target, calls = _TARGET.search(line), list(_calls(tables, int(match[2])))
            found[match[1]] = Source(group_of(calls), target[1] if target else next(iter(calls), ""))
    return found


def _calls(tables: dict[str, dict[int, str]], frame: int) -> Iterator[str]:
    """Yield "file under jboost/:function" of a stack, the innermost call first."""
    while frame > 0 and (entry := tables["StackFrames"].get(frame)):
        location, parent = (int(number) for number in re.findall(r"_id=(\d+)", entry))
        file, function = re.findall(r"_name_id=(\d+)", tables["FileLocations"][location])
        name = tables["FileNames"][int(file)].strip('"')
        _, package, inside = name.rpartition("/jboost/")
        if package:
            yield f"{inside}:{tables['FunctionNames'][int(function)].strip(chr(34))}"
        frame = parent - 1 if parent <= frame else 0  # XLA counts parents from 1, for none


def group_of(calls: Sequence[str]) -> str:
    """Choose the group of an operation by the calls that led to it, the innermost first."""
    if any(re.search(LEAVES, call) for call in calls):
        return "leaves"
    named = (group for call in calls for pattern, group in GROUPS if re.search(pattern, call))
    return next(named, OTHER)


def report(nanoseconds: Counter[str], sources: dict[str, Source], trees: int) -> str:
    """Lay out milliseconds a tree by group, then the operations that take longest."""
    unknown = Source(OTHER, "")
    groups: Counter[str] = Counter()
    for name, time_ in nanoseconds.items():
        groups[sources.get(name, unknown).group] += time_
    groups["sum"] = max(sum(groups.values()), 1)
    lines = [f"{'group':24}{'ms/tree':>10}{'share':>8}"]
    lines += [
        f"{group:24}{time_ / 1e6 / trees:10.3f}{time_ / groups['sum']:8.0%}"
        for group, time_ in sorted(groups.items(), key=lambda pair: (pair[0] == "sum", -pair[1]))
    ]
    lines += ["", f"{'operation':36}{'ms/tree':>10}  {'group':18}from"]
    for name, time_ in nanoseconds.most_common(TOP):
        source = sources.get(name, unknown)
        lines.append(f"{name:36}{time_ / 1e6 / trees:10.3f}  {source.group:18}{source.call}")
    return "\n".join(lines)
