"""Which losses bear wrong labels and long tails? The claims of "The Elements of Statistical Learning", section 10.6.

    python experiments/robustness.py [--draws N] [--markdown FILE] [--plot FILE]

First, the labels of a share of the 2,000 training rows are flipped, of any rows, or of half of those that are farthest
from the boundary: the test error in percent, on true labels, after 400 stumps, and in brackets the share of the flipped
rows in the last weights, or in the sizes of the last gradients. Second, Friedman's function of ten features with noise
of which a few values are large: the mean distance to the true function after 200 trees of depth 3, as a share of that
of its median. All draws of a case are fitted in one vmapped program; medians over them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from esl_adaboost import FEATURES, MEDIAN, STUMPS
from tqdm import tqdm

import jboost
from jboost import Hyper, Spec, losses

TRAIN, TEST = 2000, 4000
SHARES = (0.0, 0.05, 0.1, 0.2)
TREES = Spec(n_estimators=200, max_depth=3)
NOISES: dict[str, Callable[[Any, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "Student, 2 degrees of freedom": lambda rng, shape: rng.standard_t(2, size=shape),
    "slash: normal / uniform": lambda rng, shape: rng.normal(size=shape) / rng.uniform(size=shape),
}
REGRESSIONS = {
    "squared error": losses.squared_error,
    "absolute error": losses.absolute_error,
    "Huber": losses.huber(),
}
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple")

Fit = Callable[[Any, Any], tuple[Any, Any]]


def adaboost(data: Any, y: Any) -> tuple[Any, Any]:
    """Fit AdaBoost.M1; return the model and the last weights of the rows."""
    model, record = jboost.textbook.adaboost(data, y, n_classes=2, spec=STUMPS)
    return model, record.weight


def boosting(loss: Any, rate: float, data: Any, y: Any) -> tuple[Any, Any]:
    """Boost stumps by a loss of classes; return the model and the sizes of the gradients of the rows at its end."""
    hyper = Hyper(learning_rate=rate, reg_lambda=0.0, min_child_weight=0.0)
    model, _ = jboost.fit(loss, data, y, spec=STUMPS, hyper=hyper)
    return model, jnp.abs(jax.vmap(jax.grad(loss.function))(jboost.predict(model, data), y.astype(float)))


CLASSIFICATIONS: dict[str, Fit] = {
    "AdaBoost.M1": adaboost,
    "exponential, rate 1": partial(boosting, losses.exponential, 1.0),
    "deviance, rate 1": partial(boosting, losses.logistic, 1.0),
    "exponential, rate 0.1": partial(boosting, losses.exponential, 0.1),
    "deviance, rate 0.1": partial(boosting, losses.logistic, 0.1),
}


def binned(X: np.ndarray) -> tuple[Any, Any]:
    """Bin the training and the test rows of every draw; stack the draws."""
    train = [jboost.bin_features(one[:TRAIN]) for one in X]
    test = [jboost.bin_features(one[TRAIN:], edges=data.edges) for one, data in zip(X, train, strict=True)]
    return tuple(jax.tree.map(lambda *leaves: jnp.stack(leaves), *sets) for sets in (train, test))


class Labels(NamedTuple):
    """True classes of all rows, and which training rows get the wrong one for each share."""

    true: np.ndarray  # [draws n]
    flipped: np.ndarray  # [shares draws train]


def label(margin: np.ndarray, far: bool, rng: np.random.Generator) -> Labels:
    """Flip exact shares of the training rows: any, or half of those that are farthest from a margin of 0."""
    size, chance = np.abs(margin[:, :TRAIN]), rng.random((len(margin), TRAIN))
    flipped = []
    for share in SHARES:
        farthest = size >= np.quantile(size, max(1 - 2 * share, 0), axis=1, keepdims=True)
        order = np.where(farthest | (not far), chance, 1 + chance).argsort(axis=1).argsort(axis=1)
        flipped.append(order < share * TRAIN)
    return Labels((margin > 0).astype(np.int32), np.array(flipped))


def classify(n_draws: int) -> dict[str, dict[str, np.ndarray]]:
    """Return for each case and method the test error and the share of pull of the flipped rows, [shares 2 draws]."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_draws, TRAIN + TEST, FEATURES)).astype(np.float32)
    spheres, line = np.square(X).sum(axis=2) - MEDIAN, X[:, :, :5].sum(axis=2)
    cases = {
        "spheres, any rows": label(spheres, False, rng),
        "spheres, rows far from the boundary": label(spheres, True, rng),
        "sum of five features, rows far from the boundary": label(line, True, rng),
    }
    train, test = binned(X)
    found: dict[str, dict[str, Any]] = {case: {} for case in cases}
    for name, fit in tqdm(CLASSIFICATIONS.items(), desc="labels"):

        def one(data: Any, given: Any, unseen: Any, fit: Fit = fit) -> Any:
            model, pull = fit(data, given)
            return jboost.predict(model, unseen), pull

        together = jax.jit(jax.vmap(one))
        for case, (true, flips) in cases.items():
            values = []
            for flipped in flips:
                given = np.where(flipped, 1 - true[:, :TRAIN], true[:, :TRAIN])
                score, pull = map(np.asarray, together(train, jnp.asarray(given), test))
                error = np.mean((score > 0) != true[:, TRAIN:], axis=1)
                values.append((error, (pull * flipped).sum(axis=1) / pull.sum(axis=1)))
            found[case][name] = np.array(values)
    return found


def regress(n_draws: int) -> dict[str, np.ndarray]:
    """Return for each loss the relative distance to the true function, [noises draws]."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(n_draws, TRAIN + TEST, FEATURES)).astype(np.float32)
    x = np.moveaxis(X, 2, 0)
    truth = 10 * np.sin(np.pi * x[0] * x[1]) + 20 * (x[2] - 0.5) ** 2 + 10 * x[3] + 5 * x[4]
    spread = np.median(np.abs(truth - np.median(truth)))
    train, test = binned(X)
    found: dict[str, list[Any]] = {name: [] for name in REGRESSIONS}
    noises = [make(rng, (n_draws, TRAIN)) for make in NOISES.values()]
    for name, loss in tqdm(REGRESSIONS.items(), desc="tails"):

        def one(data: Any, y: Any, unseen: Any, loss: Any = loss) -> Any:
            return jboost.predict(jboost.fit(loss, data, y, spec=TREES)[0], unseen)

        together = jax.jit(jax.vmap(one))
        for noise in noises:
            y = truth[:, :TRAIN] + noise * (spread / np.median(np.abs(noise)))
            unseen = truth[:, TRAIN:]
            distance = np.abs(np.asarray(together(train, jnp.asarray(y, float), test)) - unseen).mean(axis=1)
            found[name].append(
                distance / np.abs(unseen - np.median(unseen, axis=1, keepdims=True)).mean(axis=1)
            )
    return {name: np.array(values) for name, values in found.items()}


def tables(of_labels: dict[str, dict[str, np.ndarray]], of_tails: dict[str, np.ndarray]) -> str:
    """Write the medians."""
    lines = []
    for case, methods in of_labels.items():
        lines += [f"| {case} | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"]
        lines += ["|---" * (len(SHARES) + 1) + "|"]
        for name, values in methods.items():
            cells = [f"{error:.1f} ({pull:.0f})" for error, pull in 100 * np.median(values, axis=2)]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["| noise | " + " | ".join(NOISES) + " |", "|---" * (len(NOISES) + 1) + "|"]
    for name, values in of_tails.items():
        lines.append(f"| {name} | " + " | ".join(f"{one:.3f}" for one in np.median(values, axis=1)) + " |")
    return "\n".join(lines)


def plot(of_labels: dict[str, dict[str, np.ndarray]], of_tails: dict[str, np.ndarray], path: Path) -> None:
    """Draw medians and quartiles of both."""
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    first, *_, last = of_labels
    for ax, case, title in (
        (left, first, "spheres, any rows"),
        (middle, last, "sum, rows far from the boundary"),
    ):
        for (name, values), colour in zip(of_labels[case].items(), COLOURS, strict=True):
            quartiles = np.quantile(values[:, 0], [0.25, 0.5, 0.75], axis=1)
            ax.plot(SHARES, quartiles[1], "o-", color=colour, label=name, markersize=4)
            ax.fill_between(SHARES, quartiles[0], quartiles[2], color=colour, alpha=0.2, linewidth=0)
        ax.set(xlabel="share of training labels flipped", ylabel="test error, true labels", ylim=(0, 0.3))
        ax.set_title(title)
    width, ticks = 0.25, (0.3, 0.5, 1, 2, 5)
    for i, ((name, values), colour) in enumerate(zip(of_tails.items(), COLOURS, strict=False)):
        quartiles = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
        error = np.abs(quartiles[[0, 2]] - quartiles[1])
        place = np.arange(len(NOISES)) + (i - 1) * width
        right.bar(place, quartiles[1], width, color=colour, label=name, yerr=error)
    right.set_xticks(range(len(NOISES)), ["normal noise", "Student (2)", "slash"])
    right.set(ylabel="distance to the truth", yscale="log", title="200 trees on Friedman's function")
    right.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    right.minorticks_off()
    for ax in (left, middle, right):
        ax.grid(alpha=0.3)
    for ax in (left, right):
        ax.legend(fontsize="small", loc="upper left")
    figure.savefig(path, dpi=75)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--plot", type=Path, help="also draw them into this file")
    options = parser.parse_args()
    found = classify(options.draws), regress(options.draws)
    text = tables(*found)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    if options.plot:
        plot(*found, options.plot)


if __name__ == "__main__":
    main()
