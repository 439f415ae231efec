"""What does demographic parity cost? A penalty on the difference between two groups, within a loss of all rows.

    python experiments/fairness.py FOLDER [--rows N] [--seeds N] [--markdown FILE]

FOLDER (or JBOOST_DATA) holds the census data (adult) and their loader `suite.py`: is an income above 50,000, and how
many women and men are said to have one? All penalties are fits of one program. Printed are, of the test rows, the gap
between the mean predicted probabilities of the groups, that between the shares of decisions above 1/2, log loss,
accuracy and the area under the ROC curve: means over random draws of the rows to train on.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import jboost
from jboost import Hyper, Spec, losses

HYPER = Hyper(learning_rate=0.1)
SPEC = Spec(n_estimators=200, max_depth=4)
PENALTIES = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0)


# --- What a user writes -------------------------------------------------------------------------------------


def mean_of_group(values: Float[Array, " n"], weight: Float[Array, " n"]) -> Float[Array, ""]:
    """Return the weighted mean of the rows of a group."""
    return jnp.sum(weight * values) / jnp.maximum(jnp.sum(weight), 1e-12)


def parity_loss(score: Array, y: dict[str, Array], weight: Array, *, penalty: Any) -> Array:
    """Return the log loss, and the squared gap between the mean probabilities of two groups, 0 and 1."""
    probability = jax.nn.sigmoid(score)
    means = [mean_of_group(probability, weight * (y["group"] == group)) for group in (0, 1)]
    log_losses = jax.vmap(losses.logistic.function)(score, y["label"])
    return jnp.sum(weight * log_losses) + penalty * jnp.sum(weight) * jnp.square(means[1] - means[0])


def parity(penalty: Any) -> jboost.BatchLoss:
    """Return that loss; the penalty is an operand."""
    return jboost.BatchLoss(Partial(parity_loss, penalty=penalty), inverse_link=losses.sigmoid, name="parity")


def fits(data: Any, y: dict[str, Any], penalties: Any, test: Any, spec: Spec = SPEC) -> Float[Array, "p n"]:
    """Return the probabilities of test rows for each penalty: as many fits, one program."""

    def predicted(penalty: Any, data: Any, y: Any, test: Any) -> Array:
        model, _ = jboost.fit(parity(penalty), data, y, spec=spec, hyper=HYPER)
        return jax.nn.sigmoid(jboost.predict(model, test))

    return jax.jit(jax.vmap(predicted, (0, None, None, None)))(jnp.asarray(penalties), data, y, test)


def gaps(probability: Any, group: Any) -> tuple[float, float]:
    """Return by how much mean probabilities, and shares of decisions above 1/2, of the groups differ."""
    probability, in_1 = np.asarray(probability), np.asarray(group) == 1
    return tuple(abs(one[in_1].mean() - one[~in_1].mean()) for one in (probability, probability > 0.5))


# --- The census ---------------------------------------------------------------------------------------------


def judge(data: Any, seed: int, n_rows: int) -> np.ndarray:
    """Return the numbers of a row of the table for each penalty."""
    rows = np.random.default_rng(seed).permutation(data.train_index)[:n_rows]
    group = (data.X["sex"] == "Male").to_numpy().astype(int)
    X = data.X.drop(columns="sex")  # which others tell all the same: husband, wife
    train = jboost.bin_features(X.iloc[rows])
    test = jboost.bin_features(X.iloc[data.test_index], edges=train.edges)
    label, of_test = data.y.astype(float), data.test_index
    y = {"label": jnp.asarray(label[rows]), "group": jnp.asarray(group[rows])}
    found = []
    for probability in np.asarray(fits(train, y, PENALTIES, test), float):
        scores = [score(label[of_test], probability) for score in (log_loss, roc_auc_score)]
        accuracy = accuracy_score(label[of_test], probability > 0.5)
        found.append([*gaps(probability, group[of_test]), scores[0], accuracy, scores[1]])
    return np.array(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    from real_data import load_suite

    data = load_suite(Path(options.folder)).load("adult")
    means = np.mean([judge(data, seed, options.rows) for seed in range(options.seeds)], axis=0)
    heads = ["penalty", "gap of probabilities", "gap of decisions", "log loss", "accuracy", "AUC"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for penalty, row in zip(PENALTIES, means, strict=True):
        lines.append("| " + " | ".join([f"{penalty:g}", *(f"{number:.3f}" for number in row)]) + " |")
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
