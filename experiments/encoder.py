"""Ask whether a network and trees that are trained together beat either alone, on the digits of scikit-learn.

    python -m experiments.encoder [--splits 5] [--rounds 150] [--markdown FILE]

Each split divides the rows into 60 % to train on, 20 % to choose by and 20 % to test on. Each method has so many rounds
of boosting, four full-batch steps of Adam a round, or both, and the same two rates of each; setting and round are
chosen by the log loss of the middle part. "one after the other" boosts from the logits of the encoder that was chosen
alone, and "mean" averages the probabilities of the two chosen alone.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import jboost

STEPS = 4  # of the encoder, a round
TREE_RATES, ENCODER_RATES = (0.1, 0.3), (0.003, 0.01)
METHODS = ("encoder alone", "trees alone", "mean of the two", "one after the other", "trained together")


class Encoder(eqx.Module):
    """A small convolutional network with a linear head: 1,418 numbers."""

    convolution: eqx.nn.Conv2d
    embedding: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key: Any):
        first, second, third = jax.random.split(key, 3)
        self.convolution = eqx.nn.Conv2d(1, 8, kernel_size=3, stride=2, key=first)
        self.embedding = eqx.nn.Linear(8 * 9, 16, key=second)
        self.head = eqx.nn.Linear(16, 10, key=third)

    def __call__(self, image: Any) -> Any:
        """Return the logits [10] of an image [8 8]."""
        return self.head(jnp.tanh(self.embedding(jax.nn.relu(self.convolution(image[None])).ravel())))


def row_loss(score: Any, y: Any, *, encoder: Any) -> Any:
    """Return the cross entropy of a row, whose logits are those of the trees and of the encoder."""
    logits = score + encoder(y["image"])
    return jax.nn.logsumexp(logits) - logits[y["digit"]]


class Part(NamedTuple):
    """Rows: pixels for the trees, images for the encoder, digits."""

    pixels: np.ndarray
    image: np.ndarray
    digit: np.ndarray

    @property
    def y(self) -> dict[str, np.ndarray]:
        return {"image": self.image, "digit": self.digit}


class Trained(NamedTuple):
    """Log probabilities [n 10] of the parts to choose by and to test on, as of the best round, and the encoder then."""

    valid: np.ndarray
    test: np.ndarray
    encoder: Any


@jax.jit
def one_round(problem: Any, state: Any, encoder: Any, memory: Any, rate: Any) -> Any:
    """Add a tree, then move the encoder; a rate of 0 of either leaves it where it is."""
    loss = dataclasses.replace(problem.loss, function=Partial(row_loss, encoder=encoder))
    state, one = jboost.boosting.step(dataclasses.replace(problem, loss=loss), state)

    def risk(encoder: Any) -> Any:
        values = jax.vmap(Partial(row_loss, encoder=encoder))(state.score, problem.train.y)
        return jnp.average(values, weights=problem.train.weight)

    def descend(_: Any, carry: Any) -> Any:
        encoder, memory = carry
        updates, memory = optax.scale_by_adam().update(jax.grad(risk)(encoder), memory)
        return jax.tree.map(lambda x, u: x - rate * u, encoder, updates), memory

    encoder, memory = jax.lax.fori_loop(0, STEPS, descend, (encoder, memory))
    return state, one, encoder, memory


@jax.jit
def logits_of(encoder: Any, image: Any) -> Any:
    return jax.vmap(encoder)(image)


def log_loss(found: np.ndarray, digit: np.ndarray) -> float:
    """Return the mean of minus the log probability of what is true."""
    return float(-found[np.arange(len(digit)), digit].mean())


def train(parts: dict[str, Part], encoder: Any, tree_rate: float, rate: float, n_rounds: int) -> Trained:
    """Alternate rounds and steps, and keep the best round."""
    fit, others = parts["fit"], ("valid", "test")
    loss = jboost.Loss(Partial(row_loss, encoder=encoder), n_outputs=10)
    spec, hyper = jboost.Spec(max_depth=4), jboost.Hyper(learning_rate=tree_rate or 0.1)
    problem, state = jboost.boosting.init(
        loss, fit.pixels, fit.y, spec=spec, hyper=hyper, base_score=np.zeros(10)
    )
    score = {name: np.zeros((len(parts[name].digit), 10), np.float32) for name in others}
    memory, best, found = optax.scale_by_adam().init(encoder), np.inf, None
    for _ in range(n_rounds):
        before = state
        state, one, encoder, memory = one_round(problem, state, encoder, memory, rate)
        if tree_rate:
            tree = jboost.boosting.finish(problem, [one])
            score = {name: score[name] + jboost.predict(tree, parts[name].pixels) for name in others}
        else:
            state = dataclasses.replace(state, score=before.score)
        log_p = {
            name: np.asarray(jax.nn.log_softmax(score[name] + logits_of(encoder, parts[name].image)))
            for name in others
        }
        risk = log_loss(log_p["valid"], parts["valid"].digit)
        if risk < best:
            best, found = risk, Trained(log_p["valid"], log_p["test"], encoder)
    assert found is not None  # the first round beats infinity
    return found


def measure(seed: int, n_rounds: int) -> dict[str, tuple[float, float]]:
    """Return the accuracy and the log loss of the test rows by method."""
    X, digit = (np.asarray(array) for array in load_digits(return_X_y=True))
    X = X.astype(np.float32)
    images = (X / 16).reshape(-1, 8, 8)
    inner, test = train_test_split(np.arange(len(X)), test_size=0.2, stratify=digit, random_state=seed)
    fit, valid = train_test_split(inner, test_size=0.25, stratify=digit[inner], random_state=seed)
    rows = {"fit": fit, "valid": valid, "test": test}
    parts = {name: Part(X[i], images[i], digit[i]) for name, i in rows.items()}
    start = Encoder(jax.random.key(seed))
    none = jax.tree.map(jnp.zeros_like, start)

    def best(encoder: Any, tree_rates: Any, rates: Any) -> Trained:
        tried = [train(parts, encoder, tree, rate, n_rounds) for tree in tree_rates for rate in rates]
        return min(tried, key=lambda one: log_loss(one.valid, parts["valid"].digit))

    alone = best(start, (0.0,), ENCODER_RATES)
    trees = best(none, TREE_RATES, (0.0,))
    found = {
        "encoder alone": alone.test,
        "trees alone": trees.test,
        "mean of the two": np.logaddexp(alone.test, trees.test) - np.log(2.0),
        "one after the other": best(alone.encoder, TREE_RATES, (0.0,)).test,
        "trained together": best(start, TREE_RATES, ENCODER_RATES).test,
    }
    truth = parts["test"].digit
    return {
        name: (float((p.argmax(axis=1) == truth).mean()), log_loss(p, truth)) for name, p in found.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    found = []
    for seed in range(options.splits):
        found.append(measure(seed, options.rounds))
        print(seed, {name: f"{a:.4f} {b:.4f}" for name, (a, b) in found[-1].items()}, flush=True)
    together = np.array([one["trained together"][1] for one in found])
    lines = [
        "| | test accuracy | test log loss | splits in which it beats the last row |",
        "|---|---|---|---|",
    ]
    for name in METHODS:
        accuracy, loss = np.array([one[name] for one in found]).T
        lines.append(
            f"| {name} | {100 * accuracy.mean():.2f} % | {loss.mean():.4f} | {(loss < together).sum()} |"
        )
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
