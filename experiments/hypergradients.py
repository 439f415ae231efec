"""Ask whether descent by derivatives of the risk finds numbers as good as a random sweep does, and where it misleads.

    python -m experiments.hypergradients FOLDER [--only NAME ...] [--markdown FILE] [--picture FILE]

FOLDER (or JBOOST_DATA) holds the data sets and their loader. Some rows of each set are drawn and split: to train on, to
tune on and to test on. Tuned are the learning rate, L2 and L1: by a sweep over 64 random settings, the best of them by
the tuning rows, and by `jboost.differentiable.tune` from the defaults. The picture shows the risk along the learning
rate of the first set, with its derivative.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jboost
from experiments.real_data import load_suite, loss_for
from jboost.differentiable import tune

SETS = (
    "california_housing",
    "protein_casp",
    "wine_quality",
    "concrete",
    "spambase",
    "adult",
    "bank_full",
    "credit_default",
)
N_TRAIN, N_VALID, N_TEST = 2000, 1000, 4000
SPEC = jboost.Spec(n_estimators=100, max_depth=5)
START = jboost.Hyper(learning_rate=0.1, reg_lambda=1.0, reg_alpha=0.1)
BY = ("learning_rate", "reg_lambda", "reg_alpha")
SETTINGS, STEPS, DRAWS, SEEDS = 64, 20, 4, 3


@dataclasses.dataclass(frozen=True)
class Parts:
    """Rows to train on, to tune on and to test on."""

    loss: jboost.Loss
    train: tuple[jboost.Binned, np.ndarray]
    valid: tuple[jboost.Binned, np.ndarray]
    test: tuple[jboost.Binned, np.ndarray]


def parts_of(data: Any, seed: int) -> Parts:
    """Draw the parts; a target that is a number is brought to a mean of 0 and a deviation of 1."""
    rng = np.random.default_rng(seed)
    y = np.asarray(data.y, float)
    if data.task == "regression":
        y = (y - y[data.train_index].mean()) / y[data.train_index].std()
    inner, test = rng.permutation(data.train_index), rng.permutation(data.test_index)[:N_TEST]
    n_train = min(N_TRAIN, len(inner) * 2 // 3)
    train, valid = inner[:n_train], inner[n_train : n_train + N_VALID]
    first = jboost.bin_features(data.X.iloc[train])

    def part(rows: np.ndarray) -> tuple[jboost.Binned, np.ndarray]:
        return jboost.bin_features(data.X.iloc[rows], edges=first.edges), y[rows]

    return Parts(loss_for(data), (first, y[train]), part(valid), part(test))


def risk(parts: Parts, hyper: jboost.Hyper) -> float:
    """Return the mean loss of the test rows."""
    _, history = jboost.fit(parts.loss, *parts.train, spec=SPEC, hyper=hyper, valid=parts.test)
    return float(history.valid_metric[-1])


def best_of_sweep(parts: Parts, seed: int) -> dict[int, jboost.Hyper]:
    """Return the best of so many random settings by the tuning rows, all fits in one program."""
    rng = np.random.default_rng(seed)
    hyper = jboost.Hyper(
        learning_rate=np.exp(rng.uniform(np.log(0.01), np.log(0.5), SETTINGS)),
        reg_lambda=np.exp(rng.uniform(np.log(0.1), np.log(100), SETTINGS)),
        reg_alpha=np.exp(rng.uniform(np.log(0.01), np.log(10), SETTINGS)),
    )

    @jax.jit
    def risks(hyper: Any) -> Any:
        def of_setting(hyper: jboost.Hyper) -> Any:
            return jboost.fit(parts.loss, *parts.train, spec=SPEC, hyper=hyper, valid=parts.valid)[
                1
            ].valid_metric[-1]

        return jax.vmap(of_setting, in_axes=(jboost.Hyper.in_axes(*BY),))(hyper)

    found = np.asarray(risks(hyper))
    best = {n: int(np.argmin(found[:n])) for n in (STEPS, SETTINGS)}
    return {
        n: dataclasses.replace(START, **{name: float(getattr(hyper, name)[i]) for name in BY})
        for n, i in best.items()
    }


def measure(suite: Any, name: str) -> dict[str, Any]:
    """Return test losses by method and seed, and seconds without compilation."""
    found: dict[str, Any] = {key: [] for key in ("start", "few", "sweep", "tune", "draws", "seconds")}
    data = suite.load(name)
    for seed in range(SEEDS):
        parts = parts_of(data, seed)
        found["start"].append(risk(parts, START))
        swept = best_of_sweep(parts, seed)
        found["few"].append(risk(parts, swept[STEPS]))
        found["sweep"].append(risk(parts, swept[SETTINGS]))
        options = {"valid": parts.valid, "hyper": START, "spec": SPEC, "by": BY, "steps": STEPS}
        for key, draws in (("tune", 0), ("draws", DRAWS)):
            tuned = tune(parts.loss, *parts.train, draws=draws, **options)
            found[key].append(risk(parts, tuned.hyper))
        start = time.perf_counter()
        tune(parts.loss, *parts.train, **options)
        middle = time.perf_counter()
        for _ in range(STEPS):
            jboost.fit(parts.loss, *parts.train, spec=SPEC, hyper=START, valid=parts.valid)
        found["seconds"].append((middle - start) / (time.perf_counter() - middle))
    return found


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the losses against those of the start, in per cent, medians over the seeds."""
    of_tune = "tune, 20 steps | tune, 20 steps of 4 draws | a step, in fits"
    lines = [
        f"| set | start | sweep, 20 fits | sweep, 64 fits | {of_tune} |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        start = np.array(one["start"])
        ratios = [
            f"{np.median(100 * (np.array(one[key]) / start - 1)):+.1f} %"
            for key in ("few", "sweep", "tune", "draws")
        ]
        lines.append(
            f"| {name} | {np.median(start):.4f} | {' | '.join(ratios)} | {np.median(one['seconds']):.1f} |"
        )
    return "\n".join(lines)


def curve(parts: Parts, draws: int, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return risk and derivative by the logarithm of the learning rate, the mean over draws of the weights."""
    n = len(parts.train[1])
    rng = np.random.default_rng(0)
    times = jnp.asarray(rng.exponential(size=(draws, n)) if draws else np.ones((1, n)), jnp.float32)

    @jax.jit
    @jax.value_and_grad
    def mean_risk(place: Any) -> Any:
        def of_draw(weight: Any) -> Any:
            hyper = jboost.Hyper(learning_rate=jnp.exp(place), reg_lambda=1.0)
            options = {"spec": SPEC, "hyper": hyper, "sample_weight": weight, "valid": parts.valid}
            return jboost.fit(parts.loss, *parts.train, **options)[1].valid_metric[-1]

        return jnp.mean(jax.lax.map(of_draw, times))

    found = [mean_risk(jnp.asarray(np.log(rate), jnp.float32)) for rate in rates]
    return np.array([float(value) for value, _ in found]), np.array([float(slope) for _, slope in found])


def draw(suite: Any, name: str, path: Path) -> None:
    """Draw the risk along the learning rate with a short line of its derivative at each point."""
    import matplotlib.pyplot as plt

    parts = parts_of(suite.load(name), 0)
    rates = np.geomspace(0.01, 0.6, 41)
    places, reach = np.log(rates), 0.5 * np.log(rates[1] / rates[0])
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
    for ax, draws in zip(axes, (0, 16), strict=True):
        risks, slopes = curve(parts, draws, rates)
        ax.plot(rates, risks, ".", color="tab:blue", markersize=4)
        for place, value, slope in zip(places, risks, slopes, strict=True):
            ends = np.array([-1.6, 1.6]) * reach
            ax.plot(np.exp(place + ends), value + slope * ends, color="tab:orange", linewidth=1.2)
        ax.set(
            xscale="log", xlabel="learning rate", title="one fit" if not draws else f"mean of {draws} draws"
        )
        ax.grid(alpha=0.3)
        smooth = [
            np.polyfit(places[max(i - 4, 0) : i + 5], risks[max(i - 4, 0) : i + 5], 1)[0]
            for i in range(len(rates))
        ]
        agreement = np.corrcoef(slopes, smooth)[0, 1]
        print(f"{name}, {draws} draws: correlation of derivative and slope over nine points {agreement:.2f}")
        jumps = np.diff(risks) - np.diff(places) * (slopes[1:] + slopes[:-1]) / 2
        print(
            f"  steps from point to point that no derivative tells, root mean square: {np.sqrt(np.mean(jumps**2)):.5f}"
        )
    axes[0].set(ylabel=f"mean loss, {name}")
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--only", nargs="+", default=SETS)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    suite = load_suite(Path(options.folder))
    if options.picture is not None:
        draw(suite, options.only[0], options.picture)
        return
    found = {}
    for name in options.only:
        found[name] = measure(suite, name)
        print(table({name: found[name]}).splitlines()[-1], flush=True)
    if options.markdown is not None:
        options.markdown.write_text(table(found) + "\n")


if __name__ == "__main__":
    main()
