"""How well are effects of a treatment found that differ from row to row? The R-learner, doubly robust, and two models.

    python experiments/causal.py FOLDER [--seeds N] [--markdown FILE]

FOLDER (or JBOOST_DATA) holds the California housing data and their loader `suite.py`. The covariates and the outcome
without treatment are real: the logarithm of a price, and what it depends on. Whether a block is treated is drawn with a
probability that depends on the covariates, and so does the effect, which is known. Printed is the root mean square
error of the effect on other rows, in units of its standard deviation there, and the error of the mean effect: medians
over seeds. Every model has the same settings, and its number of rounds from five-fold cross-validation.
"""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm import tqdm

import jboost
from jboost import Hyper, Spec, losses

FOLDS = 5
HYPER = Hyper(learning_rate=0.1)
SPEC = Spec(n_estimators=300, max_depth=4, n_iter_no_change=20)
NUISANCE = Spec(n_estimators=100, max_depth=4)
LEAST = 0.05  # as a propensity


# --- What a user writes -------------------------------------------------------------------------------------


def r_loss(score: Array, y: dict[str, Array]) -> Array:
    """Return half the square of what an effect leaves of the residual of the outcome (Nie and Wager 2021, eq. 4)."""
    return 0.5 * jnp.square(y["outcome"] - score * y["treatment"])


@partial(jax.jit, static_argnames="spec")
def out_of_fold(loss: Any, data: Any, y: Any, weight: Any, fold: Any, spec: Spec) -> Float[Array, " n"]:
    """Predict each row by a fit to the rows of other folds: those held out weigh 0, and all fits are one program."""

    def predicted(held_out: Any) -> Array:
        model, _ = jboost.fit(loss, data, y, spec=spec, hyper=HYPER, sample_weight=weight * ~held_out)
        return loss.inverse_link(jboost.predict(model, data))

    held_out = fold[None] == jnp.arange(FOLDS)[:, None]
    return jnp.sum(held_out * jax.vmap(predicted)(held_out), axis=0)


def effect_model(loss: Any, X: Any, y: Any, spec: Spec = SPEC) -> jboost.Ensemble:
    """Fit; if the spec stops early, for the number of rounds that cross-validation finds best."""
    if spec.n_iter_no_change is None:
        return jboost.fit(loss, X, y, spec=spec, hyper=HYPER)[0]
    return jboost.sweep(loss, X, y, spec=spec, hyper=HYPER, folds=FOLDS).fit()[0]


def two_models(X: Any, outcome: Any, treated: Any, spec: Spec = SPEC) -> Any:
    """Return the function X -> effect that is the difference of two models, of those treated and of the others."""
    models = [
        effect_model(losses.squared_error, X[arm], outcome[arm], spec) for arm in (treated == 0, treated == 1)
    ]
    return lambda X: jboost.predict(models[1], X) - jboost.predict(models[0], X)


def r_learner(
    X: Any, outcome: Any, treated: Any, fold: Any, spec: Spec = SPEC, nuisance: Spec = NUISANCE
) -> Any:
    """Return the function X -> effect that explains residuals of the outcome by those of the treatment."""
    data, all_rows = jboost.bin_features(X), np.ones(len(outcome))
    mean = out_of_fold(losses.squared_error, data, outcome, all_rows, fold, nuisance)
    propensity = out_of_fold(losses.logistic, data, treated, all_rows, fold, nuisance)
    y = {"outcome": outcome - np.asarray(mean), "treatment": treated - np.asarray(propensity)}
    model = effect_model(r_loss, X, y, spec)
    return lambda X: jboost.predict(model, X)


def doubly_robust(
    X: Any, outcome: Any, treated: Any, fold: Any, spec: Spec = SPEC, nuisance: Spec = NUISANCE
) -> tuple[Any, float]:
    """Return the function X -> effect fitted to scores whose mean is the effect if either nuisance is right, and it."""
    data = jboost.bin_features(X)
    without, with_it = (
        np.asarray(out_of_fold(losses.squared_error, data, outcome, treated == arm, fold, nuisance))
        for arm in (0, 1)
    )
    propensity = np.asarray(
        out_of_fold(losses.logistic, data, treated, np.ones(len(outcome)), fold, nuisance)
    )
    propensity = np.clip(propensity, LEAST, 1 - LEAST)
    of_treated = treated * (outcome - with_it) / propensity
    of_others = (1 - treated) * (outcome - without) / (1 - propensity)
    scores = with_it - without + of_treated - of_others  # Kennedy (2023), algorithm 1
    model = effect_model(losses.squared_error, X, scores, spec)
    return lambda X: jboost.predict(model, X), float(scores.mean())


# --- Rows whose effect is known -----------------------------------------------------------------------------


class Trial(NamedTuple):
    """Rows of a study without randomisation: covariates, outcome, treatment, and the effect on each row."""

    X: Any
    outcome: Any
    treated: Any
    effect: Any


def simulated(n: int, rng: np.random.Generator) -> Trial:
    """Return rows that are simulated: who would fare well anyway is treated more often."""
    X = rng.uniform(-1, 1, (n, 5))
    base = 2 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 2 * np.abs(X[:, 2]) + X[:, 3]
    treated = (rng.random(n) < 1 / (1 + np.exp(0.5 - 0.5 * base))).astype(float)
    effect = 1 + 0.7 * X[:, 0] - 0.5 * X[:, 4]
    return Trial(X, base + treated * effect + 0.5 * rng.normal(size=n), treated, effect)


def of_houses(data: Any, rng: np.random.Generator, n: int = 6000) -> Trial:
    """Return blocks of houses: blocks with high incomes near the coast are treated more often, and gain more."""
    rows = rng.permutation(len(data.y))[:n]
    X = data.X.iloc[rows].drop(columns="ocean_proximity").to_numpy(float)
    income, age, latitude = ((X[:, i] - X[:, i].mean()) / X[:, i].std() for i in (7, 2, 1))
    treated = (rng.random(n) < 1 / (1 + np.exp(-1.2 * income + 0.6 * latitude))).astype(float)
    effect = 0.3 + 0.15 * np.tanh(income) - 0.1 * (age > 0.5)
    return Trial(X, np.log(data.y[rows]) + treated * effect, treated, effect)


def judge(trial: Trial, seed: int) -> dict[str, tuple[float, float]]:
    """Return for each way the error of the effect on rows that were held out, and of its mean on the others."""
    n = len(trial.outcome)
    is_train = np.arange(n) < 2 * n // 3
    X, outcome, treated, effect = (part[is_train] for part in trial)
    X_test, truth = trial.X[~is_train], trial.effect[~is_train]
    fold = np.random.default_rng(seed).permutation(len(outcome)) % FOLDS
    robust, mean = doubly_robust(X, outcome, treated, fold)
    functions = {
        "two models": two_models(X, outcome, treated),
        "R-learner": r_learner(X, outcome, treated, fold),
        "doubly robust": robust,
    }
    naive = outcome[treated == 1].mean() - outcome[treated == 0].mean() - effect.mean()
    found = {"difference of means": (1.0, abs(naive))}
    for name, function in functions.items():
        error = np.sqrt(np.mean(np.square(np.asarray(function(X_test)) - truth))) / truth.std()
        of_mean = mean if name == "doubly robust" else float(np.mean(np.asarray(function(X))))
        found[name] = (float(error), abs(of_mean - effect.mean()))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    from real_data import load_suite

    houses = load_suite(Path(options.folder)).load("california_housing")
    cases = {
        "simulated, 6,000 rows": lambda rng: simulated(6000, rng),
        "houses, 6,000 rows": lambda rng: of_houses(houses, rng),
    }
    lines = ["| | error of the effect | error of the mean effect |", "|---|---|---|"]
    for name, make in cases.items():
        seeds = tqdm(range(options.seeds), desc=name, disable=None)
        found = [judge(make(np.random.default_rng(seed)), seed) for seed in seeds]
        for way in found[0]:
            error, of_mean = np.median([one[way] for one in found], axis=0)
            lines.append(
                f"| {name}: {way} | {'-' if way == 'difference of means' else f'{error:.3f}'} | {of_mean:.4f} |"
            )
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
