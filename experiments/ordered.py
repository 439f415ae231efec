"""Compare what can be done with categories: subsets, plain, cross-fitted and ordered target statistics.

    python -m experiments.ordered FOLDER [--splits N] [--markdown FILE] [--picture FILE]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py`. Three sets with many
categories (20,000 rows of the largest at most) are fitted as they are, with one column more that combines several of
theirs, and with one of random categories, of four rows each, that say nothing. The columns of the table:

- subsets: the categories themselves, which splits divide (the default);
- plain: the mean target of all training rows of a category, a row's own target included ("greedy" statistics);
- cross-fitted: scikit-learn's TargetEncoder with its defaults, whose five folds encode each other;
- ordered: `categorical_encoding="ordered"`, where a row is encoded by those before it in a permutation;
- crossed: `categorical_encoding="crossed"`, where it is encoded by those of four other folds;
- CatBoost, if it is installed, at its defaults but for rounds, rate and depth; not for several classes, where it takes
  longer than all others together.

All have at most 300 rounds of depth 6 at a rate of 0.1, and stop 30 rounds after the best of a fifth of the training
rows. The loss is that of the test rows: log loss, or root mean squared error of the logarithm of a price. A number is
the median over random splits of the rows; the random column is also given as a difference to what is there without it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import TargetEncoder
from tqdm import tqdm

import jboost
from experiments.real_data import load_suite

COMBINED = {
    "adult": ["workclass", "education", "occupation", "relationship", "native_country"],
    "ames_housing": ["Neighborhood", "MS.SubClass", "Exterior.1st"],
    "fars": ["CASE_STATE", "SEATING_POSITION", "RESTRAINT_SYSTEM-USE", "RELATED_FACTOR_(1)-PERSON_LEVEL"],
}
VARIANTS = ("as it is", "combined", "random")
MOST_ROWS = 20000
ROWS_OF_RANDOM = 4
FIT = {"n_estimators": 300, "learning_rate": 0.1, "max_depth": 6}
PATIENCE = 30


class Part(NamedTuple):
    """Rows."""

    X: pd.DataFrame
    y: np.ndarray


class Split(NamedTuple):
    """Rows to train on, to stop by and to test on."""

    train: Part
    valid: Part
    test: Part

    def map(self, of_X: Callable[[Part], pd.DataFrame]) -> Split:
        """Replace the features."""
        return Split(*(Part(of_X(part), part.y) for part in self))


def table_of(suite: Any, name: str, variant: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Read a set, with a column more or not."""
    data, rng = suite.load(name), np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(data.y))[:MOST_ROWS])
    X, y = data.X.iloc[rows].reset_index(drop=True), data.y[rows]
    if variant == "combined":
        X["combined"] = texts(X, COMBINED[name]).agg("|".join, axis=1).astype("category")
    if variant == "random":
        number = rng.integers(0, len(X) // ROWS_OF_RANDOM, len(X))
        X["random"] = pd.Series([f"r{one}" for one in number]).astype("category")
    if data.task == "multiclass":  # of classes that are in every split
        common = np.isin(y, np.flatnonzero(np.bincount(y) >= 50))
        return X[common].reset_index(drop=True), np.unique(y[common], return_inverse=True)[1]
    return X, np.log(y) if data.task == "regression" else y


def split_of(X: pd.DataFrame, y: np.ndarray, seed: int) -> Split:
    """Divide rows at random: 60, 15 and 25 percent of them."""
    strata = y if y.dtype.kind in "iu" else None
    known, test = train_test_split(np.arange(len(y)), test_size=0.25, random_state=seed, stratify=strata)
    of_known = None if strata is None else strata[known]
    train, valid = train_test_split(known, test_size=0.2, random_state=seed, stratify=of_known)
    return Split(*(Part(X.iloc[rows], y[rows]) for rows in (train, valid, test)))


def many(X: pd.DataFrame) -> list[str]:
    """Name the columns of more categories than are split one against the rest."""
    return [name for name in categories(X) if len(set(X[name].astype(object).dropna())) > 4]


def texts(X: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return columns as strings, missing values too."""
    return pd.DataFrame(X[names].astype(object).fillna("missing").astype(str))


def encoded(split: Split, encoder: Any, fits_apart: bool) -> Split:
    """Replace columns of many categories by the numbers of an encoder."""
    names = many(pd.concat([part.X for part in split]))
    X, y = texts(split.train.X, names), split.train.y
    of_train = encoder.fit(X, y).transform(X) if fits_apart else encoder.fit_transform(X, y)

    def replace(part: Part) -> pd.DataFrame:
        is_train = part.X is split.train.X
        numbers = of_train if is_train else encoder.transform(texts(part.X, names))
        named = pd.DataFrame(np.asarray(numbers), index=part.X.index).add_prefix("statistic ")
        return pd.concat([part.X.drop(columns=names), named], axis=1)

    return split.map(replace)


def loss_of(predicted: np.ndarray, y: np.ndarray) -> float:
    """Take the loss of probabilities, or of predictions."""
    return log_loss(y, predicted) if y.dtype.kind in "iu" else float(np.sqrt(np.mean((predicted - y) ** 2)))


def fitted(split: Split, **choices: Any) -> float:
    """Fit jboost and return its test loss."""
    is_class = split.train.y.dtype.kind in "iu"
    kind: Any = jboost.JBoostClassifier if is_class else jboost.JBoostRegressor
    model = kind(**FIT, n_iter_no_change=PATIENCE, random_state=0, **choices)
    model.fit(*split.train, eval_set=[tuple(split.valid)])
    return loss_of(
        model.predict_proba(split.test.X) if is_class else model.predict(split.test.X), split.test.y
    )


def by_subsets(split: Split) -> float:
    """Let splits divide the categories."""
    return fitted(split)


def by_plain(split: Split) -> float:
    """Encode the training rows by all of them."""
    return fitted(encoded(split, jboost.OrderedTargetEncoder(), True))


def by_cross_fitting(split: Split) -> float:
    """Encode by the other folds."""
    encoder = TargetEncoder(random_state=0)  # pyright: ignore[reportArgumentType]
    return fitted(encoded(split, encoder, False))


def by_order(split: Split) -> float:
    """Encode by the rows before."""
    return fitted(split, categorical_encoding="ordered")


def by_folds(split: Split) -> float:
    """Encode by the other folds, within the model."""
    return fitted(split, categorical_encoding="crossed")


def by_catboost(split: Split) -> float:
    """Fit CatBoost and return its test loss."""
    import catboost  # pyright: ignore[reportMissingImports]

    is_class = split.train.y.dtype.kind in "iu"
    if is_class and split.train.y.max() > 1:
        return np.nan
    kind: Any = catboost.CatBoostClassifier if is_class else catboost.CatBoostRegressor
    names = categories(split.train.X)
    text = split.map(lambda part: part.X.assign(**{name: texts(part.X, [name])[name] for name in names}))
    model = kind(
        iterations=FIT["n_estimators"], learning_rate=FIT["learning_rate"], depth=FIT["max_depth"],
        early_stopping_rounds=PATIENCE, cat_features=names, random_seed=0, thread_count=2,
        verbose=False, allow_writing_files=False,
    )  # fmt: skip
    model.fit(*text.train, eval_set=tuple(text.valid))
    return loss_of(model.predict_proba(text.test.X) if is_class else model.predict(text.test.X), text.test.y)


def categories(X: pd.DataFrame) -> list[str]:
    """Name the categorical columns."""
    return [name for name in X if isinstance(X[name].dtype, pd.CategoricalDtype)]


def ways() -> dict[str, Callable[[Split], float]]:
    """Name what is compared."""
    found = {
        "subsets": by_subsets,
        "plain": by_plain,
        "cross-fitted": by_cross_fitting,
        "ordered": by_order,
        "crossed": by_folds,
    }
    try:
        import catboost  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return found
    return found | {"CatBoost": by_catboost}


def markdown(found: dict[tuple[str, str], dict[str, np.ndarray]]) -> str:
    """Lay the medians out."""
    names = list(next(iter(found.values())))
    lines = ["| | columns | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for (name, variant), losses in found.items():
        cells = [f"{np.median(losses[way]):.4f}" for way in names]
        if variant == "random":
            apart = [np.median(losses[way] / found[name, VARIANTS[0]][way] - 1) for way in names]
            cells = [f"{cell} ({100 * rise:+.1f} %)" for cell, rise in zip(cells, apart, strict=True)]
        cells = ["-" if "nan" in cell else cell for cell in cells]
        lines.append(f"| {name} | {variant} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(found: dict[tuple[str, str], dict[str, np.ndarray]], path: Path) -> None:
    """Draw each split's loss beside that of the subsets on the set as it is."""
    from matplotlib import pyplot as plt

    names = list(COMBINED)
    figure, panels = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.0), layout="constrained")
    for ax, name in zip(np.atleast_1d(panels), names, strict=True):
        if (name, VARIANTS[0]) not in found:
            continue
        base = found[name, VARIANTS[0]]["subsets"]
        for i, way in enumerate(found[name, VARIANTS[0]]):
            rises = np.array([100 * (found[name, one][way] / base - 1) for one in VARIANTS])
            place = np.arange(len(VARIANTS)) + 0.13 * (i - 2.5)
            ax.plot(place, np.median(rises, axis=1), "o", color=f"C{i}", label=way, markersize=4)
            ax.vlines(place, rises.min(axis=1), rises.max(axis=1), color=f"C{i}", linewidth=1)
        ax.axhline(0, color="gray", linewidth=0.8)
        ax.set(title=name, ylim=(-10, 40), xlim=(-0.5, len(VARIANTS) - 0.5))
        ax.set_xticks(range(len(VARIANTS)), VARIANTS)
    np.atleast_1d(panels)[0].set_ylabel("test loss against subsets as it is, %")
    np.atleast_1d(panels)[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", default=os.environ.get("JBOOST_DATA"))
    parser.add_argument("--only", nargs="*", default=list(COMBINED))
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--ways", nargs="*", choices=list(ways()), default=list(ways()))
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    suite = load_suite(Path(options.folder))
    compared = {name: way for name, way in ways().items() if name in options.ways}
    found = {}
    total = len(options.only) * len(VARIANTS) * options.splits * len(compared)
    with tqdm(total=total, desc="fits") as progress:
        for name in options.only:
            for variant in VARIANTS:
                X, y = table_of(suite, name, variant)
                splits = [split_of(X, y, seed) for seed in range(options.splits)]
                losses: dict[str, list[float]] = {way: [] for way in compared}
                for split in splits:
                    for way, run in compared.items():
                        losses[way].append(run(split))
                        progress.update()
                found[name, variant] = {way: np.array(values) for way, values in losses.items()}
                tqdm.write(f"{name}, {variant}: {losses}")
    text = markdown(found)
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n")
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
