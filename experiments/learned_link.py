"""When does a learned link help? Targets that are a rising function of a sum, which is not known, and one that is none.

    python experiments/learned_link.py [--seeds N] [--markdown FILE]

600 rows to train on, 300 to validate by, 600 to test; noise of a third of the standard deviation. Five slopes of a
monotone link under the squared error are learned by 30 steps of Adam on the validation error of fits of 60 rounds; then
both losses are fitted with early stopping. Printed is the root mean square error of the test rows: medians over seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

import jboost
from jboost import Spec, losses

INNER = Spec(n_estimators=60, max_depth=3)
SPEC = Spec(n_estimators=400, max_depth=3, n_iter_no_change=30)
KNOTS, STEPS, RATE = 5, 30, 0.1
KINDS = {
    "exp(0.8 s)": lambda s: np.exp(0.8 * s),
    "sign(s) s^2": lambda s: s * np.abs(s),
    "tanh(1.5 s)": lambda s: np.tanh(1.5 * s),
    "s": lambda s: s,
}


def draw(kind: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of one kind."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 6))
    y = kind(X[:, 0] + np.sin(2 * X[:, 1]) + 0.5 * X[:, 2] * (X[:, 3] > 0) - 0.5 * np.abs(X[:, 4]))
    return X, y + 0.3 * y.std() * rng.normal(size=len(y))


@jax.jit
@jax.value_and_grad
def valid_risk(log_slopes: Any, low: Any, high: Any, train: Any, y: Any, valid: Any, y_valid: Any) -> Any:
    """Return the mean squared error of the validation rows after a fit, and its derivatives by the slopes."""
    link = losses.monotone_link(log_slopes, low, high)
    model, _ = jboost.fit(losses.with_link(losses.squared_error, link), train, y, spec=INNER)
    return jnp.mean(jnp.square(link(jboost.predict(model, valid)) - y_valid))


def compare(kind: Any, seed: int) -> tuple[float, float]:
    """Return the test errors without and with a link."""
    X, y = draw(kind, seed)
    y = y.astype(np.float32)
    train = jboost.bin_features(X[:600])
    valid = jboost.bin_features(X[600:900], edges=train.edges)
    low, high = np.quantile(y[:600], [0.01, 0.99]).astype(np.float32)
    optimizer, log_slopes, tried = optax.adam(RATE), jnp.zeros(KNOTS), []
    state = optimizer.init(log_slopes)
    for _ in range(STEPS):
        risk, slope = valid_risk(log_slopes, low, high, train, y[:600], valid, y[600:900])
        tried.append((float(risk), log_slopes))
        updates, state = optimizer.update(slope, state)
        log_slopes = optax.apply_updates(log_slopes, updates)
    link = losses.monotone_link(min(tried, key=lambda one: one[0])[1], low, high)
    found = []
    for loss, inverse in (
        (losses.squared_error, lambda s: s),
        (losses.with_link(losses.squared_error, link), link),
    ):
        model, _ = jboost.fit(loss, train, y[:600], spec=SPEC, valid=(valid, y[600:900]), verbose=False)
        error = np.asarray(inverse(jboost.predict(model, X[900:]))) - y[900:]
        found.append(float(np.sqrt(np.mean(np.square(error)))))
    return found[0], found[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    lines = ["| target | without a link | with a learned one | better with it |", "|---|---|---|---|"]
    for name, kind in tqdm(KINDS.items(), desc="links", disable=None):
        found = np.array([compare(kind, seed) for seed in range(options.seeds)])
        without, learned = np.median(found, axis=0)
        wins = int((found[:, 1] < found[:, 0]).sum())
        lines.append(f"| {name} | {without:.3f} | {learned:.3f} | {wins} of {options.seeds} seeds |")
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
