"""Compare predicted distributions with those of NGBoost and xgboost-distribution, and the time of a fit.

    python experiments/distributions.py FOLDER [--peers PATH] [--rows N] [--splits N] [--markdown FILE] [--picture FILE]

FOLDER (or the environment variable JBOOST_DATA) holds the data sets' loader `suite.py`; PATH a folder where the peers
are installed (`pip install --target PATH ngboost xgboost-distribution`), if they are not beside jboost. Mean and
deviation of a normal target on seven regression sets, categories as numbers: at most N rows to train on and half as
many to test on, learning rate 0.05, all else as each library has it by default. The negative log likelihood and the
CRPS of the test rows, medians over the splits, after 200 rounds and after those that are best for a fifth of the rows
to train on, of at most 600. Seconds of a fit of 100 rounds of 20,000 rows, without compilation.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from tqdm import tqdm

import jboost
from jboost import Hyper, JBoostDistribution, Spec, distributions

sys.path.insert(0, str(Path(__file__).resolve().parent))

from real_data import load_suite

SETS = ("california_housing", "protein_casp", "ames_housing", "concrete", "wine_quality", "bike_sharing_hour")
RATE, EQUAL, MOST, PATIENCE = 0.05, 200, 600, 30
NORMAL = distributions.normal

Scores = Callable[[np.ndarray, int], np.ndarray]  # [location, log scale] of rows, after some rounds


class Rows:
    """Rows to train on, to stop by and to test on."""

    def __init__(self, X: np.ndarray, y: np.ndarray, n_rows: int, seed: int):
        order = np.random.default_rng(seed).permutation(len(y))
        n_test = min(len(y) // 4, n_rows // 2)
        test, train = order[:n_test], order[n_test : n_test + n_rows]
        held, train = train[: len(train) // 5], train[len(train) // 5 :]
        self.train, self.held, self.test = ((X[part], y[part]) for part in (train, held, test))


def jboost_fit(rows: Rows, spec: Spec, loss: Any = None) -> tuple[Scores, int]:
    """Return the scores and the best round."""
    spec = dataclasses.replace(spec, n_estimators=MOST)
    loss = NORMAL.loss() if loss is None else loss
    model, history = jboost.fit(
        loss, *rows.train, spec=spec, hyper=Hyper(learning_rate=RATE), valid=rows.held
    )

    def scores(X: np.ndarray, n: int) -> np.ndarray:
        return np.asarray(jboost.predict(jboost.truncate(model, n), X), float)

    return scores, first_best(history.valid_metric)


def ngboost_fit(rows: Rows) -> tuple[Scores, int]:
    """Return the same of NGBoost, whose trees have depth 3."""
    from ngboost import NGBRegressor  # pyright: ignore[reportMissingImports]

    model = NGBRegressor(n_estimators=MOST, learning_rate=RATE, verbose=False)
    model.fit(*rows.train, *rows.held, early_stopping_rounds=MOST)
    losses = [-one.logpdf(rows.held[1]).mean() for one in model.staged_pred_dist(rows.held[0])]

    def scores(X: np.ndarray, n: int) -> np.ndarray:
        params = model.pred_dist(X, max_iter=n).params
        return np.stack([params["loc"], np.log(params["scale"])], axis=1)

    return scores, first_best(losses)


def xgboost_fit(rows: Rows) -> tuple[Scores, int]:
    """Return the same of xgboost-distribution."""
    from xgboost_distribution import XGBDistribution  # pyright: ignore[reportMissingImports]

    model = XGBDistribution(distribution="normal", n_estimators=MOST, learning_rate=RATE, n_jobs=1)
    model.fit(*rows.train, eval_set=[rows.held], verbose=False)
    losses = next(iter(model.evals_result()["validation_0"].values()))

    def scores(X: np.ndarray, n: int) -> np.ndarray:
        loc, scale = model.predict(X, iteration_range=(0, n))
        return np.stack([loc, np.log(scale)], axis=1).astype(float)

    return scores, first_best(losses)


OURS = Spec(min_child_samples=JBoostDistribution.min_child_samples)
SHALLOW = dataclasses.replace(OURS, max_depth=3, grow_policy="depthwise")
LIBRARIES: dict[str, Callable[[Rows], tuple[Scores, int]]] = {
    "jboost": lambda rows: jboost_fit(rows, OURS),
    "jboost, depth 3": lambda rows: jboost_fit(rows, SHALLOW),
    "jboost, second derivatives": lambda rows: jboost_fit(rows, OURS, NORMAL.loss(curvature="observed")),
    "ngboost": ngboost_fit,
    "xgboost-distribution": xgboost_fit,
}


def first_best(losses: Any) -> int:
    """Return the best round before the first PATIENCE rounds in a row without a better one, counted from 1."""
    best, place = np.inf, 0
    for i, loss in enumerate(np.asarray(losses)):
        if loss < best:
            best, place = loss, i
        elif i - place >= PATIENCE:
            break
    return place + 1


def data_sets(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Load all sets; categories become numbers, and what is missing the median, for NGBoost has no missing values."""
    suite = load_suite(folder)
    for name in SETS:
        data = suite.load(name)
        columns = [one.cat.codes if str(one.dtype) == "category" else one for _, one in data.X.items()]
        X = np.stack([np.asarray(one, float) for one in columns], axis=1)
        yield name, np.where(np.isnan(X), np.nanmedian(X, axis=0)[None], X), np.asarray(data.y, float)
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", np.asarray(X), np.asarray(y)


def judge(scores: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return negative log likelihood and CRPS."""
    known = NORMAL(scores)
    return -known.log_prob(y).mean(), known.crps(y).mean()


def accuracy(folder: Path, options: Any) -> list[str]:
    """Return a table: a row for each set and each of the two ways to stop."""
    chosen = {name: fit for name, fit in LIBRARIES.items() if name in (options.only or LIBRARIES)}
    lines = ["| set | rounds | " + " | ".join(chosen) + " |", "|---" * (2 + len(chosen)) + "|"]
    sets = list(data_sets(folder))
    for name, X, y in tqdm(sets, desc="sets"):
        found: dict[str, list[Any]] = {library: [] for library in chosen}
        for seed in range(options.splits):
            rows = Rows(X, y, options.rows, seed)
            for library, fit in chosen.items():
                scores, best = fit(rows)
                both = [(*judge(scores(rows.test[0], n), rows.test[1]), n) for n in (EQUAL, best)]
                found[library].append(both)
        for i, way in enumerate(("200", "best")):
            cells = []
            for library in chosen:
                loss, crps, rounds = np.median(np.array(found[library])[:, i], axis=0)
                cells.append(f"{loss:.3f}; {crps:.4g}" + (f" ({rounds:.0f})" if way == "best" else ""))
            lines.append(f"| {name} | {way} | " + " | ".join(cells) + " |")
            tqdm.write(lines[-1])
    return lines


def curvatures(folder: Path, options: Any) -> list[str]:
    """Return a table of what steps are made of: a row for each distribution and set."""
    ways = {
        "second derivatives": ("diagonal", "observed"),
        "Fisher": ("diagonal", "fisher"),
        "full": ("full", "fisher"),
    }
    sets = {name: (X, y) for name, X, y in data_sets(folder) if name in ("concrete", "bike_sharing_hour")}
    X, y = sets["concrete"]
    sets["concrete, a share"] = X, y / 83
    lines = ["| distribution | set | " + " | ".join(ways) + " |", "|---" * (2 + len(ways)) + "|"]
    for name, data, of in (
        ("normal", "concrete", NORMAL),
        ("logistic", "concrete", distributions.logistic),
        ("student_t()", "concrete", distributions.student_t()),
        ("student_t(4)", "concrete", distributions.student_t(4.0)),
        ("gamma", "concrete", distributions.gamma),
        ("weibull", "concrete", distributions.weibull),
        ("inverse_gaussian", "concrete", distributions.inverse_gaussian),
        ("beta", "concrete, a share", distributions.beta),
        ("negative_binomial", "bike_sharing_hour", distributions.negative_binomial),
    ):
        cells = []
        for hessian, curvature in ways.values():
            loss = of.loss(hessian, curvature)  # pyright: ignore[reportArgumentType]
            found = []
            for seed in range(options.splits):
                rows = Rows(*sets[data], options.rows, seed)
                scores, best = jboost_fit(rows, OURS, loss)
                found.append((-of(scores(rows.test[0], best)).log_prob(rows.test[1]).mean(), best))
            cells.append("{:.3f} ({:.0f})".format(*np.median(found, axis=0)))
        lines.append(f"| {name} | {data} | " + " | ".join(cells) + " |")
        tqdm.write(lines[-1])
    return lines


def seconds() -> list[str]:
    """Return how long a fit takes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 10))
    y = X[:, 0] + X[:, 1] * X[:, 2] + np.exp(0.5 * X[:, 3]) * rng.normal(size=20_000)
    found = {}
    for name, of_trees in (("jboost", OURS), ("jboost, depth 3", SHALLOW)):
        spec, times = dataclasses.replace(of_trees, n_estimators=100), []
        for _ in range(4):
            start = time.perf_counter()
            jboost.fit(NORMAL.loss(), X, y, spec=spec)
            times.append(time.perf_counter() - start)
        found[name] = min(times[1:])
        found[f"{name}, first fit"] = times[0]
    from ngboost import NGBRegressor  # pyright: ignore[reportMissingImports]
    from xgboost_distribution import XGBDistribution  # pyright: ignore[reportMissingImports]

    for name, model in (
        ("ngboost", NGBRegressor(n_estimators=100, verbose=False)),
        ("xgboost-distribution", XGBDistribution(distribution="normal", n_estimators=100)),
    ):
        times = []
        for _ in range(2):
            start = time.perf_counter()
            model.fit(X, y)
            times.append(time.perf_counter() - start)
        found[name] = min(times)
    lines = ["| | seconds | of jboost's |", "|---|---|---|"]
    return lines + [f"| {name} | {one:.2f} | {one / found['jboost']:.1f} |" for name, one in found.items()]


def draw(path: Path) -> None:
    """Draw intervals of a target whose spread and shape vary, and their calibration on other rows."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, 6000)
    y = np.exp(np.sin(x) + (0.2 + 0.6 / (1 + np.exp(-2 * x))) * rng.normal(size=6000))
    train, test = slice(0, 3000), slice(3000, None)
    options = {
        "early_stopping": True,
        "random_state": 0,
        "max_depth": 3,
        "learning_rate": 0.05,
        "n_estimators": 500,
    }
    _, axes = plt.subplots(1, 3, figsize=(10.5, 3.2), layout="constrained", width_ratios=(3, 2, 2))
    for name, ax in zip(("lognormal", "normal"), axes[1:], strict=True):
        estimator = jboost.JBoostDistribution(name, **options).fit(x[train, None], y[train])
        estimator.predict_dist(x[test, None]).plot_calibration(y[test], ax)
        ax.set_ylim(0, 2.2)
        if name == "lognormal":
            draw_intervals(axes[0], estimator, x[:1000], y[:1000])
    plt.savefig(path, dpi=80)


def draw_intervals(ax: Any, estimator: Any, x: np.ndarray, y: np.ndarray) -> None:
    """Draw what is predicted over the targets."""
    grid = np.linspace(-3, 3, 400)
    known = estimator.predict_dist(grid[:, None])
    ax.plot(x, y, ".", color="0.6", markersize=2)
    for level, alpha in ((0.9, 0.25), (0.5, 0.45)):
        ends, look = known.interval(level), {"color": "tab:blue", "alpha": alpha, "linewidth": 0}
        ax.fill_between(grid, *ends, **look, label=f"{level:.0%}")
    ax.plot(grid, known.mean(), color="tab:blue", label="mean")
    ax.set(ylim=(0, 12), xlabel="x", ylabel="y", title="lognormal: intervals")
    ax.legend()


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folder", nargs="?", default=os.environ.get("JBOOST_DATA"), help="where suite.py lies"
    )
    parser.add_argument("--peers", type=Path, help="where the peers are installed")
    parser.add_argument("--rows", type=int, default=3000, help="to train on, at most")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument(
        "--only", nargs="*", choices=LIBRARIES, help="columns of the table; no times are taken then"
    )
    parser.add_argument(
        "--curvatures", action="store_true", help="compare what steps are made of, and nothing else"
    )
    parser.add_argument("--markdown", type=Path, help="also write the tables to this file")
    parser.add_argument("--picture", type=Path, help="draw intervals, and nothing else")
    options = parser.parse_args()
    if options.picture is not None:
        draw(options.picture)
        return
    if options.folder is None:
        parser.error("name the folder of the data, or set JBOOST_DATA")
    if options.peers is not None:
        sys.path.append(str(options.peers))
    warnings.filterwarnings("ignore")
    if options.curvatures:
        lines = curvatures(Path(options.folder), options)
    else:
        lines = [] if options.only else [*seconds(), ""]
        lines += accuracy(Path(options.folder), options)
    print("\n".join(lines))
    if options.markdown is not None:
        options.markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
