"""The table of the textbook: every line of it runs, and what it claims is true."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "textbook.md"
ROW = re.compile(
    r"^\| (?P<name>.+?) \| (?P<where>.+) \| `(?P<line>[^`]+)` \| `(?P<claim>[^`]+)` \|$", re.MULTILINE
)
SETUP = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [match.groupdict() for match in ROW.finditer(TEXT)]


def test_every_row_has_a_line_that_is_used_by_its_claim():
    rows = [line for line in TEXT.splitlines() if line.startswith("| ") and "in the notes" not in line]
    assert len(rows) == len(ROWS) > 40
    assert len({row["name"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        (statement,) = ast.parse(row["line"]).body
        assert isinstance(statement, ast.Assign), row["line"]
        stored = {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        claim = ast.parse(row["claim"], mode="eval")
        used = {n.id for n in ast.walk(claim) if isinstance(n, ast.Name)}
        assert stored & used, f"{row['name']}: the claim must be about what the line makes"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """Run the set-up of the page."""
    found: dict[str, Any] = {}
    for block in SETUP.findall(TEXT):
        exec(compile(block, str(PAGE), "exec"), found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_line_of_the_table(row, names):
    here = dict(names)
    exec(compile(row["line"], row["name"], "exec"), here)
    assert np.all(eval(row["claim"], here)), row["claim"]
