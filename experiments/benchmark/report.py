"""From figures to the table: jboost beside the fastest peer, and beside what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.benchmark.rows import POLICIES, Row
from experiments.benchmark.running import Results, describe

HEADS = ("row", "jboost", "fastest peer", "ratio", "wanted", "stretch", "verdict")
BUSY = 0.25  # load per core before the run from which times are suspect


@dataclass(frozen=True)
class Line:
    """A line of the table. What could not be measured is None, and the verdict says why."""

    name: str
    unit: str
    value: float | None
    other: float | None  # of the fastest peer, or the row's own baseline
    other_name: str
    ratio: float | None
    wanted: float
    stretch: float
    absolute: bool
    verdict: str


def make_lines(rows: Sequence[Row], results: Results) -> list[Line]:
    """Compare each growth policy that a row measured; a row that was not reached gives no line."""
    return [
        _compare(row, policy, results[row.case.name])
        for row in rows
        if row.case.name in results
        for policy in POLICIES
        if policy in results[row.case.name] and not (row.name != row.case.name and policy != "jboost")
    ]


def _compare(row: Row, policy: str, found: dict[str, dict[str, Any]]) -> Line:
    own = found[policy]
    value = own.get(row.figure)
    other_name, other = _fastest(row, own, found)
    ratio = value / other if value is not None and other else None
    judged = value if row.absolute else ratio
    if value is None:
        verdict = own.get("error", own.get("skipped", "not measured"))
    else:
        verdict = judge(judged, row.wanted, row.stretch)
    name = row.name + policy.removeprefix("jboost").replace("-", " ")
    return Line(
        name, row.unit, value, other, other_name, ratio, row.wanted, row.stretch, row.absolute, verdict
    )


def _fastest(row: Row, own: dict[str, Any], found: dict[str, dict[str, Any]]) -> tuple[str, float | None]:
    if row.baseline is not None:
        return "built in", own.get(row.baseline)
    measured = {peer: found[peer][row.figure] for peer in row.peers if row.figure in found.get(peer, {})}
    if not measured:
        return "", None
    name = min(measured, key=lambda peer: measured[peer])
    return name, measured[name]


def judge(value: float | None, wanted: float, stretch: float) -> str:
    """Say where a ratio, or a figure with a bound of its own, stands."""
    if value is None:
        return "no peer"
    return "stretch met" if value <= stretch else "wanted met" if value <= wanted else "behind"


def table(lines: Sequence[Line]) -> str:
    """Lay the comparison out."""
    return "\n".join(_columns([HEADS, *(_cells(line) for line in lines)]))


def _cells(line: Line) -> tuple[str, ...]:
    unit = f" {line.unit}" if line.unit else ""
    bound = unit if line.absolute else ""
    return (
        line.name,
        "-" if line.value is None else f"{line.value:.4g}{unit}",
        "-" if line.other is None else f"{line.other:.4g}{unit} ({line.other_name})",
        "-" if line.ratio is None else f"{line.ratio:.2f}",
        f"{line.wanted:g}{bound}",
        f"{line.stretch:g}{bound}",
        line.verdict,
    )


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def details(results: Results) -> str:
    """List every figure of every library."""
    flat = [
        (case, library, describe(figures))
        for case, found in results.items()
        for library, figures in found.items()
    ]
    return "\n".join(_columns(flat)) if flat else "nothing was measured"


def headline(about: dict[str, Any], options: dict[str, Any]) -> str:
    """Say on what and with which options the figures were made."""
    versions = " ".join(f"{name} {version}" for name, version in about.get("versions", {}).items())
    device = f"device {about['device']}, " if about.get("gpu") else ""
    native = "" if about.get("native", True) else "; jboost without its C++ library"
    lines = [
        f"{about.get('processor', '?')}, {options['threads']} threads, {device}{versions}{native}",
        f"medians of {options['repeats']} calls after the first, {options['rounds']} round(s) of processes",
        "of a sweep, peers are timed on 8 of the 64 fits, and of a search on 8 of the 64 settings, times 8",
    ]
    if about.get("load", 0) > BUSY * about.get("cores", 1):
        lines.append(
            f"the machine was busy (load {about['load']:.1f} at the start): repeat this on a quiet one"
        )
    changed = [f"--{name} {options[name]}" for name in ("rows", "trees") if options.get(name)]
    if changed:
        lines.append(f"sizes changed by {' '.join(changed)}: what is wanted was set for the rows' own")
    return "\n".join(lines)
