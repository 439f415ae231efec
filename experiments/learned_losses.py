"""A loss whose shape is learned, beside those that are given, where targets are contaminated.

    python experiments/learned_losses.py FOLDER [--only NAME ...] [--seeds N] [--markdown FILE] [--picture FILE]

FOLDER (or JBOOST_DATA) holds the regression sets and their loader `suite.py`. A share of the targets of the rows to
train on and to validate by gets noise of Student's t with 1.5 degrees of freedom, times twice the standard deviation of
y; those of the test rows stay as they are. All losses get the same settings, and stop early by their own loss on the
validation rows. Shape and scale of the general robust loss are learned by 30 steps of Adam on the mean negative log
density of the validation rows, through fits of 60 rounds. Printed are medians over seeds: mean absolute error and root
mean square error of the test rows.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from real_data import load_suite
from tqdm import tqdm

import jboost
from jboost import Hyper, Spec, losses

MOST_ROWS = 5000
SHARE, FREEDOM, SIZE = 0.15, 1.5, 2.0  # of the noise
STEPS, RATE = 30, 0.2  # of Adam
HYPER = Hyper(learning_rate=0.1)
SPEC = Spec(n_estimators=500, max_depth=5, n_iter_no_change=30)
INNER = Spec(n_estimators=60, max_depth=5)
GIVEN = {
    "squared": lambda: losses.squared_error,
    "absolute": lambda: losses.absolute_error,
    "Huber": losses.huber,
    "robust, shape 1": losses.general_robust,
}
LEARNED = "robust, learned"


class Rows(NamedTuple):
    """Rows to train on and to validate by, with noise, and to test by, without."""

    train: Any
    y: Any
    valid: Any
    y_valid: Any
    test: Any
    y_test: Any


def draw(data: Any, seed: int, share: float) -> Rows:
    """Divide the rows of the training part, and spoil a share of their targets."""
    rng = np.random.default_rng(seed)
    rows = rng.permutation(data.train_index)[:MOST_ROWS]
    test, n_valid = data.test_index, len(rows) // 4
    y = data.y.astype(float)
    spoiled = rng.random(len(rows)) < share
    noisy = y[rows] + np.where(spoiled, SIZE * y[rows].std() * rng.standard_t(FREEDOM, len(rows)), 0)
    train = jboost.bin_features(data.X.iloc[rows[n_valid:]])
    valid, held_out = (
        jboost.bin_features(data.X.iloc[part], edges=train.edges) for part in (rows[:n_valid], test)
    )
    return Rows(train, noisy[n_valid:], valid, noisy[:n_valid], held_out, y[test])


def loss_of(parameters: Any) -> jboost.Loss:
    """Return the loss of free numbers: a shape between 0 and 2, a positive scale."""
    return losses.general_robust_nll(
        2 * jax.nn.sigmoid(parameters["shape"]), jnp.exp(parameters["log_scale"])
    )


@jax.jit
@jax.value_and_grad
def valid_risk(parameters: Any, train: Any, y: Any, valid: Any, y_valid: Any) -> Any:
    """Return the mean negative log density of the validation rows after a fit, and its derivatives."""
    loss = loss_of(parameters)
    model, _ = jboost.fit(loss, train, y, spec=INNER, hyper=HYPER)
    return jnp.mean(jax.vmap(loss.function)(jboost.predict(model, valid), y_valid))


def learn(rows: Rows) -> tuple[Any, list[Any]]:
    """Descend on the validation risk by shape and scale; return the best numbers and all that were tried."""
    spread = np.median(np.abs(rows.y - np.median(rows.y)))
    parameters = {"shape": jnp.zeros(()), "log_scale": jnp.log(jnp.float32(spread))}
    optimizer = optax.adam(RATE)
    state, tried = optimizer.init(parameters), []
    given = rows.train, jnp.asarray(rows.y), rows.valid, jnp.asarray(rows.y_valid)
    for _ in range(STEPS):
        risk, slope = valid_risk(parameters, *given)
        tried.append((float(risk), parameters))
        updates, state = optimizer.update(slope, state)
        parameters = optax.apply_updates(parameters, updates)
    return min(tried, key=lambda one: one[0])[1], tried


def errors(loss: jboost.Loss, rows: Rows) -> tuple[float, float]:
    """Fit, and return the mean absolute error and the root of the mean square of the test rows."""
    model, _ = jboost.fit(
        loss, rows.train, rows.y, spec=SPEC, hyper=HYPER, valid=(rows.valid, rows.y_valid), verbose=False
    )
    residual = np.asarray(jboost.predict(model, rows.test), float) - rows.y_test
    return float(np.abs(residual).mean()), float(np.sqrt(np.square(residual).mean()))


def compare(data: Any, seed: int, share: float) -> dict[str, Any]:
    """Return the errors of each loss, and what was learned."""
    rows = draw(data, seed, share)
    found: dict[str, Any] = {name: errors(make(), rows) for name, make in GIVEN.items()}
    best, tried = learn(rows)
    found[LEARNED] = errors(loss_of(best), rows)
    shapes = [2 * float(jax.nn.sigmoid(one["shape"])) for _, one in tried]
    best_shape = 2 * float(jax.nn.sigmoid(best["shape"]))
    scale = float(jnp.exp(best["log_scale"])) / float(np.std(rows.y_test))
    return found | {"shape": best_shape, "scale": scale, "shapes": shapes}


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Lay the medians out: MAE / RMSE in units of the least of each."""
    names = [*GIVEN, LEARNED]
    lines = ["| data set | " + " | ".join(names) + " | shape | scale |", "|---" * (len(names) + 3) + "|"]
    for name, seeds in found.items():
        median = {loss: np.median([one[loss] for one in seeds], axis=0) for loss in names}
        least = np.min(list(median.values()), axis=0)
        cells = [f"{median[loss][0]:.4g} / {median[loss][1]:.4g}" for loss in names]
        for i, loss in enumerate(names):
            if median[loss][0] == least[0]:
                cells[i] = f"**{cells[i]}**"
        learned = [f"{np.median([one[what] for one in seeds]):.2f}" for what in ("shape", "scale")]
        lines.append("| " + " | ".join([name, *cells, *learned]) + " |")
    return "\n".join(lines)


def verdict(found: dict[str, list[dict[str, Any]]]) -> str:
    """Count the seeds of all sets in which the learned loss has the smaller error."""
    pairs = [one for seeds in found.values() for one in seeds]
    words = []
    for name in GIVEN:
        wins = [sum(one[LEARNED][i] < one[name][i] for one in pairs) for i in (0, 1)]
        words.append(f"{name}: {wins[0]} / {wins[1]}")
    return f"Of {len(pairs)} fits the learned loss has the smaller MAE / RMSE than " + ", ".join(words) + "."


def draw_picture(found: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw how the shapes were learned, and the errors beside those of the Huber loss."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, seeds in found.items():
        left.plot(np.median([one["shapes"] for one in seeds], axis=0), label=name.replace("_", " "))
    left.set(xlabel="step of Adam", ylabel="shape", ylim=(0, 2))
    left.legend(fontsize=7)
    names = [name for name in (*GIVEN, LEARNED) if name != "Huber"]
    for i, name in enumerate(names):
        ratio = [np.median([one[name][0] / one["Huber"][0] for one in seeds]) for seeds in found.values()]
        right.plot(ratio, np.arange(len(found)), "os^D"[i], label=name)
    right.axvline(1, color="gray", linewidth=0.8)
    right.set(xlabel="test MAE over that of Huber's loss", yticks=range(len(found)))
    right.set_yticklabels([name.replace("_", " ") for name in found], fontsize=7)
    right.legend(fontsize=7)
    figure.savefig(path, dpi=90)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--only", nargs="*", default=[], help="names of data sets")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--share", type=float, default=SHARE, help="of targets with noise")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    parser.add_argument("--picture", type=Path, help="draw what was learned")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    suite = load_suite(Path(options.folder))
    found: dict[str, list[dict[str, Any]]] = {}
    for name in tqdm(options.only or suite.names("regression"), desc="data sets", disable=None):
        data = suite.load(name)
        found[name] = [compare(data, seed, options.share) for seed in range(options.seeds)]
        tqdm.write(table({name: found[name]}))
    text = table(found) + "\n\n" + verdict(found)
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text + "\n")
    if options.picture is not None:
        draw_picture(found, options.picture)


if __name__ == "__main__":
    main()
