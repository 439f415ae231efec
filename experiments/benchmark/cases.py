"""The measurements: each runs in a process of its own, for one library, and returns a dictionary of figures.

Times are medians of the calls after the first; what the first took longer is reported apart, as compilation.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.sparse

from experiments.benchmark import searches
from experiments.benchmark.estimators import make_estimator
from experiments.benchmark.fresh import time_processes
from experiments.benchmark.libraries import JBoost, XGBoost, dependence_of, load, make_data, make_zeros
from experiments.benchmark.machine import about, keep_to_cores, peak_memory

RATES = np.geomspace(0.02, 0.3, 8)
PENALTIES = np.geomspace(0.1, 30, 8)
SWEEP_SHARE = 8  # peers fit one in so many models of a sweep
PREDICT_ROWS = 50_000  # rows that the model of the prediction case is fitted to
LONG = 30.0  # seconds of measured calls after which no further one is started
COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"

Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Job:
    """One measurement of one library, as sent to the process that makes it."""

    kind: str
    library: str
    rows: int
    trees: int
    bins: int
    gpu: bool
    threads: int
    repeats: int


def measure(job: Job) -> Figures:
    """Make a measurement in this process."""
    keep_to_cores(job.threads)
    return KINDS[job.kind](job)


def seconds_of(call: Callable[[], Any]) -> float:
    """Time one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_calls(call: Callable[[], Any], repeats: int) -> tuple[float, float, int]:
    """Return the seconds of the first call, the median of those after it, and their number."""
    first = seconds_of(call)
    times: list[float] = []
    while len(times) < repeats and sum(times) < LONG:
        times.append(seconds_of(call))
    return first, statistics.median(times), len(times)


def train(job: Job, goss: bool = False) -> Figures:
    """Bin once, fit several times, with all rows or those that gradient-based one-side sampling draws."""
    return _train_on(job, *make_data(job.rows), goss)


def zeros(job: Job) -> Figures:
    """Do so on a matrix of mostly zeros, given as a dense and as a sparse one; the figures are those of the faster."""
    X, y = make_zeros(job.rows)
    found = {
        form: _train_on(job, given, y)
        for form, given in (("dense", X), ("sparse", scipy.sparse.csr_matrix(X)))
    }
    form = min(found, key=lambda name: found[name]["ms_per_tree"])
    others = {
        f"{name}_{figure}": found[name][figure] for name in found for figure in ("ms_per_tree", "bin_seconds")
    }
    return {**found[form], "form": form, **others}


def _train_on(job: Job, X: Any, y: np.ndarray, goss: bool = False) -> Figures:
    library = load(job.library, job.gpu, job.threads)
    before, start = peak_memory(), time.perf_counter()
    data = library.bin(X, y, job.bins)
    bin_seconds = time.perf_counter() - start
    fit = cast(Any, library).fit_goss if goss else library.fit
    first, usual, calls = time_calls(lambda: fit(data, job.trees), job.repeats)
    return {
        "ms_per_tree": 1000 * usual / job.trees,
        "compile_seconds": max(first - usual, 0.0),
        "bin_seconds": bin_seconds,
        "peak_mib": peak_memory(),
        "peak_before_binning_mib": before,
        "calls": calls,
    }


def call(job: Job) -> Figures:
    """Bin and fit in one go, several times."""
    X, y = make_data(job.rows)
    library = load(job.library, job.gpu, job.threads)

    def whole() -> None:
        library.fit(library.bin(X, y, job.bins), job.trees)

    first, usual, calls = time_calls(whole, job.repeats)
    return {"seconds": usual, "compile_seconds": max(first - usual, 0.0), "calls": calls}


def exact(job: Job) -> Figures:
    """Do the same with every distinct value as a candidate."""
    return call(dataclasses.replace(job, library=f"{job.library}-exact"))


def sweep(job: Job) -> Figures:
    """Fit a grid of models: in one call by jboost, one after the other by a peer, of whose fits a share is timed."""
    X, y = make_data(job.rows)
    library = load(job.library, job.gpu, job.threads)
    data = library.bin(X, y, job.bins)
    if isinstance(library, JBoost):
        rates, penalties = (axis.ravel() for axis in np.meshgrid(RATES, PENALTIES))
        first, usual, calls = time_calls(library.sweep(data, job.trees, rates, penalties), job.repeats)
        return {"seconds": usual, "compile_seconds": max(first - usual, 0.0), "calls": calls}
    library.fit(data, job.trees)
    pairs = list(zip(RATES, PENALTIES[::-1], strict=True))  # every rate and every penalty once
    times = [seconds_of(lambda: library.fit(data, job.trees, *map(float, pair))) for pair in pairs]  # noqa: B023
    n_fits = RATES.size * PENALTIES.size
    return {"seconds": n_fits * statistics.mean(times), "fits_timed": len(times), "fits": n_fits}


def search(job: Job) -> Figures:
    """Search 64 settings on 5 folds; a peer is timed on a share, jboost on all, with other numbers each time."""
    X, y = make_data(job.rows)
    if job.library in searches.PEERS:
        n = searches.N_SETTINGS // SWEEP_SHARE
        seconds = seconds_of(lambda: searches.make_search(job.library, job.trees, job.threads, n).fit(X, y))
        return {"seconds": SWEEP_SHARE * seconds, "settings_timed": n, "settings": searches.N_SETTINGS}
    shifts = (1 + 0.01 * i for i in itertools.count())

    def whole() -> None:
        searches.make_search(job.library, job.trees, job.threads, shift=next(shifts)).fit(X, y)

    first, usual, calls = time_calls(whole, job.repeats)
    return {"seconds": usual, "compile_seconds": max(first - usual, 0.0), "calls": calls}


def custom_loss(job: Job) -> Figures:
    """Fit by a loss of the user and by the same loss built in, in turn."""
    X, y = make_data(job.rows)
    library = load(job.library, job.gpu, job.threads)
    assert isinstance(library, JBoost | XGBoost)
    data = library.bin(X, y, job.bins)
    ways = {"built_in": library.fit, "custom": library.fit_custom}
    times = {name: [seconds_of(lambda: fit(data, job.trees))] for name, fit in ways.items()}  # noqa: B023
    for _ in range(max(job.repeats, 5)):
        for name, fit in ways.items():
            times[name].append(seconds_of(lambda: fit(data, job.trees)))  # noqa: B023
    usual = {name: statistics.median(seconds[1:]) for name, seconds in times.items()}
    return {
        "ms_per_tree": 1000 * usual["custom"] / job.trees,
        "built_in_ms_per_tree": 1000 * usual["built_in"] / job.trees,
        "compile_seconds": max(times["custom"][0] - usual["custom"], 0.0),
        "calls": len(times["custom"]) - 1,
    }


def predict(job: Job) -> Figures:
    """Score raw rows in the fastest public way."""
    X, y = make_data(max(job.rows, PREDICT_ROWS))
    library = load(job.library, job.gpu, job.threads)
    few = slice(min(job.rows, PREDICT_ROWS))
    model = library.fit(library.bin(X[few], y[few], job.bins), job.trees)
    ways = library.predictors(model, X[: job.rows])
    found = {name: time_calls(way, job.repeats) for name, way in ways.items()}
    fastest = min(found, key=lambda name: found[name][1])
    first, usual, calls = found[fastest]
    return {
        "seconds": usual,
        "compile_seconds": max(first - usual, 0.0),
        "calls": calls,
        "way": fastest,
    }


def dependence(job: Job) -> Figures:
    """Compute the partial dependence of one feature at 100 points: over the rows, and by the covers of the trees."""
    X, y = make_data(job.rows)
    of_feature = dependence_of(job.library, X, y, job.trees)
    found = {method: time_calls(lambda: of_feature(method), job.repeats) for method in ("brute", "recursion")}  # noqa: B023
    first, usual, calls = found["brute"]
    return {
        "seconds": usual,
        "recursion_seconds": found["recursion"][1],
        "compile_seconds": max(first - usual, 0.0),
        "calls": calls,
    }


def first_fit(job: Job) -> Figures:
    """Time what a new process waits for: the import, the first fit, and for comparison the second."""
    X, y = make_data(job.rows)
    start = time.perf_counter()
    library = load(job.library, job.gpu, job.threads)
    imported = time.perf_counter() - start

    def whole() -> None:
        library.fit(library.bin(X, y, job.bins), job.trees)

    first = seconds_of(whole)
    return {"seconds": first, "import_seconds": imported, "second_fit_seconds": seconds_of(whole)}


def first_minute(job: Job, warm: bool = False) -> Figures:
    """Time a new process from the first import to a fitted estimator, with nothing compiled before or a warm cache."""
    return {**time_processes(job.library, *make_data(job.rows), job.trees, job.bins, warm)}


def textbook(job: Job) -> Figures:
    """Fit an estimator of the textbook to raw rows, several times."""
    X, y = make_data(job.rows)
    estimator = make_estimator(job.kind, job.library, job.trees, job.threads)
    first, usual, calls = time_calls(lambda: estimator.fit(X, y), job.repeats)
    return {"seconds": usual, "compile_seconds": max(first - usual, 0.0), "calls": calls}


def recompile(job: Job) -> Figures:
    """Count the programs that JAX compiles in later fits, which differ in numbers, rounds and rows."""
    import jax

    compiled: list[str] = []

    def note(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILE_EVENT:
            compiled.append(str(kwargs.get("fun_name")))

    jax.monitoring.register_event_duration_secs_listener(note)
    library = load(job.library, job.gpu, job.threads)

    def compiled_by(rows: int, trees: int, rate: float, penalty: float) -> list[str]:
        before = len(compiled)
        library.fit(library.bin(*make_data(rows), job.bins), trees, rate, penalty)
        return compiled[before:]

    first = compiled_by(job.rows, job.trees, 0.1, 1.0)
    fewer = compiled_by(job.rows * 9 // 10, job.trees // 2, 0.2, 0.5)
    more = compiled_by(job.rows * 11 // 10, job.trees * 3 // 4, 0.05, 2.0)
    return {
        "compilations": len(fewer) + len(more),
        "in_the_first_fit": len(first),
        "programs": ", ".join(f"{n} x {name}" for name, n in Counter(fewer + more).most_common()),
    }


KINDS: dict[str, Callable[[Job], Figures]] = {
    "train": train,
    "train_goss": lambda job: train(job, goss=True),
    "zeros": zeros,
    "call": call,
    "exact": exact,
    "sweep": sweep,
    "search": search,
    "custom_loss": custom_loss,
    "predict": predict,
    "dependence": dependence,
    "first_fit": first_fit,
    "first_minute": first_minute,
    "first_minute_warm": lambda job: first_minute(job, warm=True),
    "adaboost": textbook,
    "gradient": textbook,
    "recompile": recompile,
    "about": lambda job: about(),
}
