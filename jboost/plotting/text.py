"""A tree as text, and as a graph for graphviz."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jboost.plotting.nodes import Node, number_text, read_tree, value_text


def to_text(model: Any, number: int, *, output: int | None = None) -> str:
    """Write a tree as indented text.

    Parameters
    ----------
    model : Ensemble or fitted estimator
        Where the tree is.
    number : int
        The round, from 0; negative ones count from the last.
    output : int, optional
        Which output: needed where each has a tree of its own, and otherwise all are shown.

    Returns
    -------
    str
        A line for each split, with its gain, its cover and where missing values go, and for each leaf.

    Raises
    ------
    ValueError, TypeError
        If there is no such tree.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> spec, hyper = jboost.Spec(n_estimators=1, max_depth=1), jboost.Hyper(reg_lambda=0.0, learning_rate=1.0)
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0] > 2.5, spec=spec, hyper=hyper)
    >>> print(jboost.plotting.to_text(model, 0))
    f0 ≤ 2.5 (gain 0.9375, cover 8, missing: no)
    ├─ yes: -0.625 (cover 3)
    └─ no: 0.375 (cover 5)
    """
    return "\n".join(_lines(read_tree(model, number, output), "", ""))


def _lines(node: Node, label: str, indent: str) -> Iterator[str]:
    if not node.children:
        yield f"{label}{value_text(node.value)} (cover {number_text(node.cover)})"
        return
    facts = f"gain {number_text(node.gain)}, cover {number_text(node.cover)}"
    yield f"{label}{node.question} ({facts}, missing: {'no' if node.missing_right else 'yes'})"
    for answer, child, branch, below in zip(("yes", "no"), node.children, "├└", "│ ", strict=True):
        yield from _lines(child, f"{indent}{branch}─ {answer}: ", f"{indent}{below}  ")


def to_graphviz(model: Any, number: int, *, output: int | None = None) -> str:
    """Write a tree in the language of graphviz, which need not be installed.

    Parameters
    ----------
    model, number, output
        As in `to_text`.

    Returns
    -------
    str
        Source for `dot`: ``graphviz.Source(text)``, or a file for ``dot -Tsvg``.

    Raises
    ------
    ValueError, TypeError
        If there is no such tree.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> spec = jboost.Spec(n_estimators=1, max_depth=1)
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0] > 2.5, spec=spec)
    >>> jboost.plotting.to_graphviz(model, 0).splitlines()[0]
    'digraph tree {'
    """
    lines = [
        "digraph tree {",
        '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica];',
    ]
    lines += [
        "  edge [fontname=Helvetica, fontsize=10];",
        *_statements(read_tree(model, number, output), [0]),
        "}",
    ]
    return "\n".join(lines)


def _statements(node: Node, counter: list[int]) -> Iterator[str]:
    """Yield the statements of a node and those below; `counter` holds the next free number."""
    own = counter[0]
    counter[0] += 1
    cover = f"cover {number_text(node.cover)}"
    if not node.children:
        yield f'  n{own} [label="{value_text(node.value)}\\n{cover}", fillcolor="#e8eef7"];'
        return
    yield f'  n{own} [label="{_escaped(node.question)}\\ngain {number_text(node.gain)}, {cover}"];'
    for is_right, child in enumerate(node.children):
        label = ("yes", "no")[is_right] + (", missing" if node.missing_right == bool(is_right) else "")
        yield f'  n{own} -> n{counter[0]} [label="{label}"];'
        yield from _statements(child, counter)


def _escaped(text: str | None) -> str:
    return (text or "").replace("\\", "\\\\").replace('"', '\\"')
