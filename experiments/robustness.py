"""Which losses bear wrong labels and long tails? The claims of "The Elements of Statistical Learning", section 10.6.

    python experiments/robustness.py [--draws N] [--markdown FILE] [--plot FILE]

First, nested spheres in ten dimensions, where the labels of a share of the 2,000 training rows are flipped: the test
error in percent, on true labels, after 400 stumps; in brackets the share of the flipped rows in the last weights, or
in the sizes of the last gradients, in percent. Second, Friedman's function of ten features with noise of which a few
values are large: the mean distance to the true function after 200 trees of depth 3, as a share of that of its median.
All draws of a case are fitted in one vmapped program; medians over them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from esl_adaboost import FEATURES, MEDIAN, STUMPS
from tqdm import tqdm

import jboost
from jboost import Hyper, Spec, losses

TRAIN, TEST = 2000, 4000
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3)
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


def classify(n_draws: int) -> dict[str, np.ndarray]:
    """Return for each method the test error and the share of pull of the flipped rows, [shares 2 draws]."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_draws, TRAIN + TEST, FEATURES)).astype(np.float32)
    y = (np.square(X).sum(axis=2) > MEDIAN).astype(np.int32)
    order = rng.random((n_draws, TRAIN)).argsort(axis=1).argsort(axis=1)  # exact shares are flipped
    train, test = binned(X)
    found: dict[str, list[Any]] = {name: [] for name in CLASSIFICATIONS}
    for name, fit in tqdm(CLASSIFICATIONS.items(), desc="labels"):

        def one(data: Any, given: Any, unseen: Any, fit: Fit = fit) -> Any:
            model, pull = fit(data, given)
            return jboost.predict(model, unseen), pull

        together = jax.jit(jax.vmap(one))
        for share in SHARES:
            flipped = order < share * TRAIN
            score, pull = together(
                train, jnp.asarray(np.where(flipped, 1 - y[:, :TRAIN], y[:, :TRAIN])), test
            )
            error = np.mean((np.asarray(score) > 0) != y[:, TRAIN:], axis=1)
            pull = np.asarray(pull, np.float64)
            found[name].append((error, (pull * flipped).sum(axis=1) / pull.sum(axis=1)))
    return {name: np.array(values) for name, values in found.items()}


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


def tables(of_labels: dict[str, np.ndarray], of_tails: dict[str, np.ndarray]) -> str:
    """Write the medians."""
    lines = ["| labels that are flipped | " + " | ".join(f"{share:.0%}" for share in SHARES) + " |"]
    lines.append("|---" * (len(SHARES) + 1) + "|")
    for name, values in of_labels.items():
        middle = 100 * np.median(values, axis=2)
        lines.append(
            f"| {name} | " + " | ".join(f"{error:.1f} ({pull:.0f})" for error, pull in middle) + " |"
        )
    lines += ["", "| noise | " + " | ".join(NOISES) + " |", "|---" * (len(NOISES) + 1) + "|"]
    for name, values in of_tails.items():
        lines.append(f"| {name} | " + " | ".join(f"{one:.3f}" for one in np.median(values, axis=1)) + " |")
    return "\n".join(lines)


def plot(of_labels: dict[str, np.ndarray], of_tails: dict[str, np.ndarray], path: Path) -> None:
    """Draw medians and quartiles of both."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained")
    for (name, values), colour in zip(of_labels.items(), COLOURS, strict=True):
        low, middle, high = np.quantile(values[:, 0], [0.25, 0.5, 0.75], axis=1)
        left.plot(SHARES, middle, "o-", color=colour, label=name, markersize=4)
        left.fill_between(SHARES, low, high, color=colour, alpha=0.2, linewidth=0)
    left.set(xlabel="share of training labels flipped", ylabel="test error, true labels", ylim=(0, None))
    left.set_title("400 stumps on nested spheres")
    width = 0.25
    for i, ((name, values), colour) in enumerate(zip(of_tails.items(), COLOURS, strict=False)):
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
        place = np.arange(len(NOISES)) + (i - 1) * width
        right.bar(place, middle, width, color=colour, label=name, yerr=[middle - low, high - middle])
    right.set_xticks(range(len(NOISES)), ["normal", "Student (2)", "slash"])
    right.set(ylabel="distance to the truth / that of its median", xlabel="noise", yscale="log")
    right.set_title("200 trees on Friedman's function")
    for ax in (left, right):
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    figure.savefig(path, dpi=80)


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
