"""What is fine-tuning good for? A shifted domain with few labels, and a metric of all rows added after training.

    python -m experiments.finetune FOLDER [--seeds N] [--markdown FILE]

FOLDER holds the loader `suite.py` of the data.

Shifted domain: a model of one domain, 50, 200 or 1,000 labelled rows of another, of which a quarter decides when to
stop; the loss on the other rows of that domain, over that of the source model, as a median over seeds. Beside
fine-tuning: a fit of these rows alone, one of both domains together, and the source model continued by `init_model`.

Metrics of all rows: a fitted classifier is given a surrogate of the AUC, or a penalty on the squared difference between
the mean predictions for two groups; test scores before and after.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax.tree_util import Partial
from sklearn.metrics import log_loss, roc_auc_score

import jboost
from experiments.real_data import load_suite
from jboost.differentiable import finetune

SIZES = (50, 200, 1000)
SPEC = jboost.Spec(n_estimators=500, max_depth=5, n_iter_no_change=30)
HYPER = jboost.Hyper(learning_rate=0.05)
HEAD = "| price | tuned: difference | AUC | log loss | s | anew: difference | AUC | log loss | s |"
TUNING: dict[str, Any] = {"steps": 300, "n_iter_no_change": 50}


class Domains(NamedTuple):
    """Two domains of a data set: the column that tells them apart, and what it holds in the second."""

    name: str
    column: str
    target: Any
    loss: jboost.Loss


DOMAINS = (
    Domains("wine_quality", "type", "red", jboost.losses.squared_error),
    Domains("california_housing", "ocean_proximity", "NEAR BAY", jboost.losses.squared_error),
    Domains("bike_sharing_hour", "yr", 1, jboost.losses.poisson),
    Domains("adult", "workclass", "Self-emp-not-inc", jboost.losses.logistic),
)


def mean_loss(loss: jboost.Loss, model: jboost.Ensemble, X: Any, y: np.ndarray) -> float:
    """Return the loss of rows; of counts their deviance, which is 0 at best."""
    score = jboost.predict(model, X)
    best = jax.vmap(loss)(jnp.log(jnp.maximum(y, 1e-9)), y) if loss is jboost.losses.poisson else 0.0
    return float((jax.vmap(loss)(score, jnp.asarray(y)) - best).mean())


def ways(
    one: Domains, source: jboost.Ensemble, of_source: Any, train: Any, valid: Any
) -> dict[str, Callable[[], Any]]:
    """Return how a model for the second domain may be made."""

    def fitted(X: Any, y: Any, **more: Any) -> jboost.Ensemble:
        return jboost.fit(one.loss, X, y, spec=SPEC, hyper=HYPER, valid=valid, **more)[0]

    def tuned(by: tuple[str, ...], **more: Any) -> jboost.Ensemble:
        return finetune(source, one.loss, *train, by=by, valid=valid, **TUNING, **more)[0]

    def both() -> jboost.Ensemble:
        return fitted(pd.concat([of_source[0], train[0]]), np.concatenate([of_source[1], train[1]]))

    return {
        "source model": lambda: source,
        "target alone": lambda: fitted(*train),
        "both together": both,
        "continued": lambda: fitted(*train, init_model=source),
        "base": lambda: tuned(("base",)),
        "leaf values": lambda: tuned(("base", "leaf_value")),
        "leaf values, decay 1": lambda: tuned(("base", "leaf_value"), decay=1.0),
        "leaf values, decay 10": lambda: tuned(("base", "leaf_value"), decay=10.0),
    }


def shifted(data: Any, one: Domains, n_seeds: int) -> list[str]:
    """Return the rows of the table of a data set."""
    is_target = np.asarray(data.X[one.column] == one.target)
    X, y = data.X.drop(columns=one.column), data.y.astype(float)
    of_source = X[~is_target], y[~is_target]
    lines = []
    rng = np.random.default_rng(0)
    watched = rng.random(len(of_source[1])) < 0.1
    source, _ = jboost.fit(
        one.loss, of_source[0][~watched], of_source[1][~watched], spec=SPEC, hyper=HYPER,
        valid=(of_source[0][watched], of_source[1][watched]),
    )  # fmt: skip
    for size in SIZES:
        found: dict[str, list[float]] = {}
        for seed in range(n_seeds):
            order = np.random.default_rng(seed).permutation(np.flatnonzero(is_target))
            few, test = order[:size], order[size:]
            quarter = size // 4
            valid, train = ((X.iloc[rows], y[rows]) for rows in (few[:quarter], few[quarter:]))
            losses = {
                way: mean_loss(one.loss, make(), X.iloc[test], y[test])
                for way, make in ways(one, source, of_source, train, valid).items()
            }
            for way, value in losses.items():
                found.setdefault(way, []).append(value / losses["source model"])
        if not lines:
            lines = ["", f"| {one.name}, {one.column} = {one.target} | " + " | ".join(found) + " |"]
            lines.append("|---" * (len(found) + 1) + "|")
        lines.append(f"| {size} rows | " + " | ".join(f"{np.median(v):.3f}" for v in found.values()) + " |")
        print(lines[-1], flush=True)
    return lines


# ---------------------------------------------------------------- metrics of all rows


def auc_surrogate(score, y, weight, first, second):
    """Return the logistic loss of pairs of a positive and a negative row; the targets are in the pairs."""
    return jnp.logaddexp(0.0, score[second] - score[first]).mean() * weight.sum()


def with_parity(score, y, weight, price):
    """Return the log loss, and a price on the squared difference of the groups' mean probabilities."""
    label, group = y["label"], y["group"]
    loss = weight * (jnp.logaddexp(0.0, score) - label * score)
    probability = jax.nn.sigmoid(score)
    means = [(probability * weight * of).sum() / (weight * of).sum() for of in (group, 1 - group)]
    return loss.sum() + price * weight.sum() * (means[0] - means[1]) ** 2


def classifier(data: Any) -> tuple[Any, ...]:
    """Fit a classifier; return it with the rows for training, for judging and for the test."""
    rows = np.random.default_rng(0).permutation(data.train_index)
    held = len(rows) // 5
    parts = [
        (data.X.iloc[some], data.y[some].astype(float))
        for some in (rows[held:], rows[:held], data.test_index)
    ]
    model, _ = jboost.fit(jboost.losses.logistic, *parts[0], spec=SPEC, hyper=HYPER, valid=parts[1])
    return model, *parts


def test_scores(model: jboost.Ensemble, X: Any, y: np.ndarray) -> tuple[float, float, np.ndarray]:
    """Return AUC, log loss and probabilities."""
    probability = np.asarray(jax.nn.sigmoid(jboost.predict(model, X)), float)
    return float(roc_auc_score(y, probability)), float(log_loss(y, probability)), probability


def ranked(data: Any) -> str:
    """Return the row of a data set: AUC and log loss on the test rows before and after."""
    model, train, valid, test = classifier(data)
    rng = np.random.default_rng(0)
    first, second = (rng.choice(np.flatnonzero(train[1] == label), 10 * len(train[1])) for label in (1, 0))
    loss = jboost.BatchLoss(Partial(auc_surrogate, first=first, second=second))
    start = time.perf_counter()
    how: dict[str, Any] = {"metric": jboost.metrics.roc_auc, "n_iter_no_change": 50, "steps": 100}
    after, history = finetune(model, loss, *train, valid=valid, **how)
    seconds = time.perf_counter() - start
    scores = [test_scores(one, *test)[:2] for one in (model, after)]
    cells = [f"{auc:.5f} | {loss:.4f}" for auc, loss in scores]
    return f"| {data.name} | " + " | ".join(cells) + f" | {history.best_step} | {seconds:.0f} |"


def fair(data: Any, column: str, value: Any) -> list[str]:
    """Return rows by the price of a difference: the difference, AUC, log loss on the test rows, and seconds.

    Fine-tuned, and fitted anew with the price from the start.
    """
    model, train, _, test = classifier(data)
    group = [np.asarray(part[0][column] == value).astype(float) for part in (train, test)]
    target = {"label": train[1], "group": group[0]}
    lines = [f"| 0 | {_fairness(model, test, group[1])} | | | | | |"]
    for price in (1.0, 3.0, 10.0, 100.0):
        loss = jboost.BatchLoss(Partial(with_parity, price=price), inverse_link=model.inverse_link)
        start = time.perf_counter()
        after, _ = finetune(model, loss, train[0], target, steps=100, decay=10.0)
        middle = time.perf_counter()
        spec = dataclasses.replace(SPEC, n_estimators=model.n_trees, n_iter_no_change=None)
        anew, _ = jboost.fit(loss, train[0], target, spec=spec, hyper=HYPER)
        seconds = middle - start, time.perf_counter() - middle
        cells = [
            f"{_fairness(one, test, group[1])} | {took:.1f}"
            for one, took in zip((after, anew), seconds, strict=True)
        ]
        lines.append(f"| {price:g} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines


def _fairness(model: jboost.Ensemble, test: Any, group: np.ndarray) -> str:
    auc, of_labels, probability = test_scores(model, *test)
    gap = probability[group == 1].mean() - probability[group == 0].mean()
    return f"{gap:.3f} | {auc:.4f} | {of_labels:.4f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    options = parser.parse_args()
    suite = load_suite(options.folder)
    lines: list[str] = []
    for one in DOMAINS:
        lines += shifted(suite.load(one.name), one, options.seeds)
    lines += [
        "",
        "| | AUC before | log loss | AUC after | log loss | best step | seconds |",
        "|---" * 7 + "|",
    ]
    lines += [ranked(suite.load(name)) for name in ("adult", "bank_full", "credit_default")]
    lines += ["", HEAD, "|---" * 9 + "|", *fair(suite.load("adult"), "sex", "Male")]
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
