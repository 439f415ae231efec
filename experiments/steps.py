"""Does the training loss climb? Losses that are far from a parabola, in jboost, XGBoost and LightGBM.

    python experiments/steps.py [--rows N] [--markdown FILE] [--plot FILE]

100 rounds of depth 6, learning rate 0.1, all else each library's default but where the name of a case says otherwise.
Each cell is the mean training loss after the last round and, in brackets, in how many rounds it rose.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from same_objective import Case, available, normal, scores
from tqdm import tqdm

from jboost import Loss, losses

UNBOUNDED = {"xgboost": {"max_delta_step": 0}}  # XGBoost's default for counts is 0.7
RISE = 1e-5  # relative: less is rounding
COLOURS = {"jboost": "tab:blue", "xgboost": "tab:orange", "lightgbm": "tab:green"}


def cauchy(score: Any, y: Any) -> Any:
    """Return the negative log density of a Cauchy variable, but for a constant."""
    return jnp.log1p(jnp.square(score - y))


def of_cauchy(score: Any, y: Any) -> tuple[Any, Any]:
    """Return g and h of the same."""
    square = np.square(score - y)
    return 2 * (score - y) / (1 + square), np.maximum(2 * (1 - square) / np.square(1 + square), 1e-6)


def cases(n: int) -> list[Case]:
    """Return losses with rows in which a Newton step goes too far."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 3))
    counts, rare = np.ones(n), np.zeros(n)
    some = rng.choice(n, n // 1000, replace=False)
    X[some, 0] += 5
    counts[some], rare[some[::2]] = 500, 1
    Z = rng.normal(size=(n, 4))
    heavy = np.minimum(np.floor(rng.pareto(0.9, n) * np.exp(Z[:, 0])), 20_000)
    noisy = Z[:, 0] + np.exp(0.7 * Z[:, 1]) * rng.normal(size=n)
    tails = 3 * Z[:, 0] + rng.standard_cauchy(n)
    poisson = ("count:poisson", "poisson")
    both: dict[str, Any] = {"learning_rate": 1.0}
    return [
        Case("Poisson: one row in 1,000 is 500", losses.poisson, X, counts, *poisson),
        Case(
            "Poisson: one row in 1,000 is 500, max_delta_step 0",
            losses.poisson,
            X,
            counts,
            *poisson,
            options=UNBOUNDED,
        ),
        Case("Poisson, heavy tail", losses.poisson, Z, heavy, *poisson),
        Case("Poisson, heavy tail, max_delta_step 0", losses.poisson, Z, heavy, *poisson, options=UNBOUNDED),
        Case("logistic, half of one row in 1,000", losses.logistic, X, rare, "binary:logistic", "binary"),
        Case("Cauchy, learning rate 1", cauchy, Z, tails, of_cauchy, of_cauchy, **both),
        Case("Normal(mean, log scale), learning rate 1", Loss(normal, n_outputs=2), Z, noisy, **both),
        Case("the same, full Hessian", Loss(normal, n_outputs=2, hessian="full"), Z, noisy, **both),
    ]


def losses_of(library: str, case: Case) -> Any:
    """Return the mean training loss before the first round and after each."""
    found = scores(library, case)
    if found is None:
        return None
    function = case.loss.function if isinstance(case.loss, Loss) else case.loss
    with jax.enable_x64(True):  # what a loss of 1e300 is, float32 cannot say
        mean = jax.jit(lambda score: jnp.mean(jax.vmap(function)(score, jnp.asarray(case.y, float))))
        return np.array([float(mean(jnp.asarray(score, float))) for score in found])


def cell(history: Any) -> str:
    """Say where the loss ended, and how often it rose."""
    if history is None:
        return "-"
    rises = int(np.sum(~(np.diff(history) <= RISE * np.abs(history[:-1]))))
    return f"{history[-1]:.4g} ({rises})"


def plot(path: Path, case: Case, histories: dict[str, Any]) -> None:
    """Draw the Poisson losses of one case, less that of a mean of y in each row, the least possible."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    least = np.mean(case.y - case.y * np.log(np.maximum(case.y, 1)))
    for library, history in histories.items():
        axes.plot(history - least, label=library, color=COLOURS[library])
    axes.set(yscale="log", xlabel="round", ylabel="training loss above the least possible", title=case.name)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Print the table, and draw the second case."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--plot", type=Path, help="draw the second case into this file")
    options = parser.parse_args()
    found = available()
    lines = ["| case | before | " + " | ".join(found) + " |", "|---" * (2 + len(found)) + "|"]
    for i, case in enumerate(tqdm(cases(options.rows), desc="steps")):
        histories = {library: losses_of(library, case) for library in found}
        before = histories["jboost"][0]
        lines.append(f"| {case.name} | {before:.4g} | " + " | ".join(map(cell, histories.values())) + " |")
        if i == 1 and options.plot:
            plot(options.plot, case, {name: one for name, one in histories.items() if one is not None})
    text = "\n".join(lines)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
