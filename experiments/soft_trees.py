"""Do soft trees that are trained by gradients make better models? Soft, or hardened back.

    python -m experiments.soft_trees FOLDER [--seeds N] [--markdown FILE]
    python -m experiments.soft_trees --plot FILE

FOLDER holds the loader `suite.py` of the data. Of each set up to 3,000 rows: 60 % to train, 20 % to stop by and to
choose the temperature by, 20 % to test. A model is fitted with early stopping; then its leaf values are trained further
as they are, and it is softened, trained by leaf values and thresholds, hardened, and its leaf values trained once more.
The test loss over that of the fitted model, as a median over splits.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost
from experiments.real_data import load_suite, loss_for
from jboost.differentiable import finetune, harden, soften

NAMES = ("concrete", "wine_quality", "protein_casp", "spambase", "credit_default")
TEMPERATURES = (0.1, 0.03, 0.01, 0.003)
MOST_ROWS = 3000
SPEC = jboost.Spec(n_estimators=300, max_depth=4, n_iter_no_change=20)
HYPER = jboost.Hyper(learning_rate=0.1)


def parts_of(data: Any, seed: int) -> list[tuple[Any, np.ndarray]]:
    """Return rows to train, to stop and to test by."""
    y = data.y if data.task == "multiclass" else data.y.astype(float)
    rows = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    places = (0.6 * len(rows), 0.8 * len(rows))
    return [(data.X.iloc[some], y[some]) for some in np.split(rows, np.array(places, int))]


def mean_loss(loss: jboost.Loss, score: Any, y: np.ndarray) -> float:
    """Return the loss of rows; of counts their deviance, which is 0 at best."""
    best = jax.vmap(loss)(jnp.log(jnp.maximum(y, 1e-9)), y) if loss is jboost.losses.poisson else 0.0
    return float((jax.vmap(loss)(score, jnp.asarray(y)) - best).mean())


def compared(data: Any, seed: int) -> dict[str, float]:
    """Return the test losses over that of the fitted model, the temperature and how long the soft steps took."""
    loss = loss_for(data)
    train, valid, test = parts_of(data, seed)
    model, _ = jboost.fit(loss, *train, spec=SPEC, hyper=HYPER, valid=valid)
    how: dict[str, Any] = {"valid": valid, "steps": 100, "n_iter_no_change": 20}

    def of_soft(soft: Any, part: Any) -> float:
        return mean_loss(loss, soft(part[0]), part[1])

    def of_hard(model: Any) -> float:
        return mean_loss(loss, jboost.predict(model, test[0]), test[1])

    start = time.perf_counter()
    by = ("leaf_value", "threshold")
    trained = [finetune(soften(model, one), loss, *train, by=by, **how)[0] for one in TEMPERATURES]
    seconds = time.perf_counter() - start
    best = min(range(len(trained)), key=lambda i: of_soft(trained[i], valid))
    untrained = min((soften(model, one) for one in TEMPERATURES), key=lambda soft: of_soft(soft, valid))
    hard, snapped = (harden(trained[best], snap=snap) for snap in (False, True))
    found = {
        "leaf values trained": of_hard(finetune(model, loss, *train, **how)[0]),
        "soft": of_soft(untrained, test),
        "soft, trained": of_soft(trained[best], test),
        "hardened": of_hard(hard),
        "hardened, leaves trained": of_hard(finetune(hard, loss, *train, **how)[0]),
        "snapped, leaves trained": of_hard(finetune(snapped, loss, *train, **how)[0]),
    }
    found = {name: value / of_hard(model) for name, value in found.items()}
    return found | {"temperature": TEMPERATURES[best], "trees": model.n_trees, "seconds": seconds}


def plot(path: Path) -> None:
    """Draw a model of one feature, hard and soft, and its slope."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-2, 2, 200))
    y = np.sin(2 * x) + 0.2 * rng.normal(size=200)
    spec = jboost.Spec(n_estimators=30, max_depth=3)
    model, _ = jboost.fit(jboost.losses.squared_error, x[:, None], y, spec=spec)
    grid = jnp.linspace(-2, 2, 801)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    left.plot(x, y, ".", color="0.75", markersize=3)
    left.plot(grid, jboost.predict(model, grid[:, None]), color="black", linewidth=1, label="hard")
    right.plot(grid, 2 * jnp.cos(2 * grid), color="0.75", label="true")
    for temperature in (0.03, 0.1):
        soft = soften(model, temperature)
        slope = jax.vmap(jax.grad(lambda value, soft=soft: soft(value[None, None])[0]))(grid)
        left.plot(grid, soft(grid[:, None]), linewidth=1.5, label=f"soft, temperature {temperature}")
        right.plot(grid, slope, linewidth=1.5, label=f"temperature {temperature}")
    left.set(xlabel="feature", title="prediction")
    right.set(xlabel="feature", title="slope of the prediction")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--plot", type=Path, help="draw a picture to this file, and do nothing else")
    options = parser.parse_args()
    if options.plot is not None:
        plot(options.plot)
        return
    if options.folder is None:
        parser.error("name the folder of the data")
    suite = load_suite(options.folder)
    lines: list[str] = []
    for name in options.only:
        found = [compared(suite.load(name), seed) for seed in range(options.seeds)]
        if not lines:
            lines = ["| | " + " | ".join(found[0]) + " |", "|---" * (len(found[0]) + 1) + "|"]
            print("\n".join(lines))
        medians = [float(np.median([one[column] for one in found])) for column in found[0]]
        cells = [f"{value:.3f}" for value in medians[:-3]]
        cells += [f"{medians[-3]:g}", f"{medians[-2]:.0f}", f"{medians[-1]:.0f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
