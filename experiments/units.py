"""Does a fit depend on units? The same rows with target, loss or weights multiplied by a constant.

    python experiments/units.py [--rows N] [--markdown FILE]

jboost, XGBoost and LightGBM at their defaults, with 100 rounds, depth 6 and learning rate 0.1. Each cell is the R2 of
the training rows, or the share of them that is classified rightly; the same number along a row means that units do not
matter. "no" is what a library refuses.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from same_objective import Case, available, normal, scores
from tqdm import tqdm

from jboost import Loss, losses

FACTORS = (1e-12, 1e-6, 1e-3, 1.0, 1e3, 1e6, 1e12)
WIDE = (1e-30, *FACTORS, 1e30)  # for losses that are homogeneous in the target


def _times(function: Callable[..., Any], score: Any, y: Any, factor: Any) -> Any:
    return factor * function(score, y)


def times(loss: Loss, factor: float) -> Loss:
    """Return the loss times a factor."""
    return Loss(jax.tree_util.Partial(_times, loss.function, factor=factor), n_outputs=loss.n_outputs)


def squares(factor: float) -> Callable[..., Any]:
    """Return g and h of the squared error times a factor."""
    return lambda score, y: (factor * (score - y), np.full_like(score, factor))


def log_loss(factor: float) -> Callable[..., Any]:
    """Return g and h of the logistic loss times a factor."""

    def derivatives(score: Any, y: Any) -> tuple[Any, Any]:
        p = 1 / (1 + np.exp(-np.clip(score, -50, 50)))
        return factor * (p - y), factor * p * (1 - p)

    return derivatives


def r2(score: Any, y: Any) -> float:
    """Return the share of the variance that is explained."""
    score = score if score.ndim == 1 else score[:, 0]
    return 1 - np.mean(np.square(score - y)) / np.var(y)


def hits(score: Any, y: Any) -> float:
    """Return the share of rows on the right side."""
    return float(np.mean((score > 0) == (y > 0)))


def kinds(n: int) -> dict[str, tuple[Callable[[float], Case], Callable[..., float]]]:
    """Return what is multiplied, as a case for each factor, and how it is judged."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    y = X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=n)
    label = (y > 0).astype(float)

    def target(loss: Loss, xgboost: Any, lightgbm: Any) -> Callable[[float], Case]:
        return lambda c: Case("", loss, X, c * y, xgboost, lightgbm)

    return {
        "squared error, target x c": (target(losses.squared_error, "reg:squarederror", "regression"), r2),
        "Huber, target x c": (target(losses.huber(), "reg:pseudohubererror", "huber"), r2),
        "Normal(mean, log scale), target x c": (target(Loss(normal, n_outputs=2), None, None), r2),
        "the same, full Hessian": (target(Loss(normal, n_outputs=2, hessian="full"), None, None), r2),
        "squared error, loss x c": (
            lambda c: Case("", times(losses.squared_error, c), X, y, squares(c), squares(c)),
            r2,
        ),
        "logistic, loss x c": (
            lambda c: Case("", times(losses.logistic, c), X, label, log_loss(c), log_loss(c)),
            hits,
        ),
        "logistic, weights x c": (
            lambda c: Case("", losses.logistic, X, label, "binary:logistic", "binary", np.full(n, c)),
            hits,
        ),
    }


def figure(library: str, case: Case, judge: Callable[..., float]) -> str:
    """Fit, and judge the last scores."""
    try:
        found = scores(library, case)
    except Exception:  # a refusal is a result
        return "no"
    return "-" if found is None else f"{judge(found[-1], case.y):.3f}"


def table(n: int) -> str:
    """Return the figures as a markdown table."""
    lines = ["| | | " + " | ".join(f"c = {c:g}" for c in WIDE) + " |", "|---" * (2 + len(WIDE)) + "|"]
    every = [(name, library) for name in kinds(n) for library in available()]
    for name, library in tqdm(every, desc="units"):
        make, judge = kinds(n)[name]
        factors = WIDE if name.startswith(("squared error, target", "Huber")) else FACTORS
        cells = [figure(library, make(factor), judge) if factor in factors else "" for factor in WIDE]
        if "-" not in cells:
            lines.append(f"| {name} | {library} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    text = table(options.rows)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
