"""The rows of the comparison: what each measures, with which libraries, and which ratio is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PEERS = ("xgboost", "lightgbm", "catboost")
GPU_PEERS = ("xgboost", "catboost")  # the usual package of LightGBM has no CUDA build
POLICIES = ("jboost", "jboost-depthwise")  # the default, symmetric trees, and one split per node

MILLION = 1_000_000
SMALL = 10_000


@dataclass(frozen=True)
class Case:
    """What one process measures for one library."""

    name: str
    kind: str  # a function of cases.py
    rows: int
    trees: int
    bins: int = 255
    device: str = "any"  # "cpu", "gpu", or "any": where JAX runs by default
    libraries: tuple[str, ...] = ("jboost", *PEERS)


@dataclass(frozen=True)
class Row:
    """A row of the table: a figure of a case, and how it should compare."""

    name: str
    title: str
    case: Case
    figure: str
    unit: str
    wanted: float
    stretch: float
    absolute: bool = False  # wanted and stretch bound the figure itself, not a ratio
    baseline: str | None = None  # jboost's own figure to divide by, in place of the fastest peer's
    peers: tuple[str, ...] = PEERS  # whose figure to divide by


def _training(name: str, bins: int, device: str, rows: int = MILLION) -> Case:
    peers = GPU_PEERS if device == "gpu" else PEERS
    return Case(name, "train", rows, 30, bins, device, (*POLICIES, *peers))


CPU_255 = _training("cpu-255", 255, "cpu")
CPU_63 = _training("cpu-63", 63, "cpu")
CPU_10K = Case("cpu-10k", "call", SMALL, 200, device="cpu")
EXACT_10K = Case("exact-10k", "exact", SMALL, 100, device="cpu", libraries=("jboost", "xgboost"))
GPU_255 = _training("gpu-255", 255, "gpu")
GPU_63 = _training("gpu-63", 63, "gpu")
GPU_8M_63 = _training("gpu-8m-63", 63, "gpu", 2**23)
SWEEP_CPU = Case("sweep-cpu", "sweep", SMALL, 200, device="cpu")
SWEEP_GPU = Case("sweep-gpu", "sweep", SMALL, 200, device="gpu", libraries=("jboost", *GPU_PEERS))
SEARCH_CPU = Case(
    "search-cpu", "search", SMALL, 100, device="cpu", libraries=(*POLICIES, "xgboost", "lightgbm")
)
SEARCH_GPU = Case("search-gpu", "search", SMALL, 100, device="gpu", libraries=(*POLICIES, "xgboost"))
CUSTOM_LOSS = Case("custom-loss", "custom_loss", MILLION, 30, libraries=("jboost", "xgboost"))
GOSS = Case("goss", "train_goss", MILLION, 100, device="cpu", libraries=(*POLICIES, "lightgbm"))
ZEROS = Case("zeros", "zeros", MILLION, 30, device="cpu", libraries=(*POLICIES, "xgboost", "lightgbm"))
PREDICT = Case("predict", "predict", MILLION, 500, device="cpu")
FIRST_FIT = Case("first-fit", "first_fit", SMALL, 200)
ESTIMATORS = ("sklearn", "lightgbm")  # that a new user may have tried before
COLD = Case("first-minute", "first_minute", SMALL, 100, device="cpu", libraries=("jboost", *ESTIMATORS))
WARM = Case("first-warm", "first_minute_warm", SMALL, 100, device="cpu", libraries=("jboost", *ESTIMATORS))
DEPENDENCE = Case("dependence", "dependence", SMALL, 100, device="cpu", libraries=(*POLICIES, "sklearn"))
RECOMPILE = Case("recompile", "recompile", SMALL, 200, libraries=("jboost",))
ADABOOST = Case("adaboost", "adaboost", SMALL, 100, device="cpu", libraries=("jboost", "sklearn"))
GRADIENT = Case("gradient", "gradient", SMALL, 100, device="cpu", libraries=("jboost", "sklearn"))

_RATES = ("ms_per_tree", "ms/tree")
_CALL = ("seconds", "s")

ROWS = (
    Row("cpu-255", "1M x 28, 255 bins, training", CPU_255, *_RATES, 0.9, 0.6),
    Row("cpu-63", "1M x 28, 63 bins, training", CPU_63, *_RATES, 0.7, 0.5),
    Row(
        "memory",
        "peak memory of the process of cpu-255, against XGBoost",
        CPU_255,
        "peak_mib",
        "MiB",
        1.5,
        1.0,
        peers=("xgboost",),
    ),
    Row("cpu-10k", "10,000 x 28, 200 trees, raw data in, model out", CPU_10K, *_CALL, 0.7, 0.3),
    Row(
        "exact-10k",
        "10,000 x 28, 100 trees by node, every value a candidate",
        EXACT_10K,
        *_CALL,
        0.7,
        0.3,
        peers=("xgboost",),
    ),
    Row("gpu-255", "1M x 28, 255 bins, training on a GPU", GPU_255, *_RATES, 0.7, 0.4),
    Row("gpu-63", "1M x 28, 63 bins, training on a GPU", GPU_63, *_RATES, 0.45, 0.3),
    Row("gpu-8m-63", "8.4M x 28, 63 bins, training on a GPU", GPU_8M_63, *_RATES, 0.9, 0.6),
    Row("sweep-cpu", "64 fits of 10,000 rows and 200 trees as one call", SWEEP_CPU, *_CALL, 0.5, 0.25),
    Row("sweep-gpu", "the same on a GPU", SWEEP_GPU, *_CALL, 0.05, 0.02),
    Row(
        "search-cpu",
        "64 settings on 5 folds of 10,000 rows, 100 trees: JBoostSearchCV against GridSearchCV over the peers",
        SEARCH_CPU,
        *_CALL,
        0.3,
        0.2,
    ),
    Row("search-gpu", "the same on a GPU", SEARCH_GPU, *_CALL, 0.05, 0.02),
    Row(
        "custom-loss",
        "1M x 28, a loss of the user against the same loss built in",
        CUSTOM_LOSS,
        *_RATES,
        1.05,
        1.0,
        baseline="built_in_ms_per_tree",
    ),
    Row(
        "goss",
        "1M x 28, 100 trees by gradient-based one-side sampling (0.2 and 0.1 of the rows)",
        GOSS,
        *_RATES,
        0.7,
        0.5,
        peers=("lightgbm",),
    ),
    Row(
        "zeros",
        "1M x 60, independent columns of zeros and 5 % ones, training; peers given it dense and sparse",
        ZEROS,
        *_RATES,
        0.5,
        0.4,
    ),
    Row("predict", "1M x 28, 500 trees, raw data in, scores out", PREDICT, *_CALL, 0.7, 0.3),
    Row(
        "first-fit",
        "10,000 x 28, 200 trees, first fit of a process, compilation included",
        FIRST_FIT,
        *_CALL,
        3.0,
        1.5,
        absolute=True,
    ),
    Row(
        "first-minute",
        "10,000 x 28, 100 trees: a new process from the first import to a fitted estimator, nothing compiled before",
        COLD,
        *_CALL,
        1.8,
        1.2,
        peers=("sklearn",),
    ),
    Row(
        "first-warm",
        "the same where such a process ran before",
        WARM,
        *_CALL,
        1.2,
        1.0,
        peers=("sklearn",),
    ),
    Row(
        "adaboost",
        "10,000 x 28, 100 stumps of AdaBoost, against scikit-learn's AdaBoostClassifier",
        ADABOOST,
        *_CALL,
        0.1,
        0.05,
        peers=("sklearn",),
    ),
    Row(
        "gradient",
        "10,000 x 28, 100 trees of depth 3, against scikit-learn's GradientBoostingClassifier",
        GRADIENT,
        *_CALL,
        0.1,
        0.05,
        peers=("sklearn",),
    ),
    Row(
        "dependence",
        "10,000 x 28, 100 trees: partial dependence of one feature, averaged over the rows",
        DEPENDENCE,
        *_CALL,
        0.2,
        0.02,
        peers=("sklearn",),
    ),
    Row(
        "dependence-covers",
        "the same by the covers of the trees, without rows (recursion)",
        DEPENDENCE,
        "recursion_seconds",
        "s",
        2.0,
        1.0,
        peers=("sklearn",),
    ),
    Row(
        "recompile",
        "compilations in two later fits: other numbers and rounds, 10 % fewer and more rows",
        RECOMPILE,
        "compilations",
        "",
        0.0,
        0.0,
        absolute=True,
    ),
)


def check_names(names: Sequence[str]) -> None:
    """Raise a ValueError that lists the rows unless every name is one of theirs."""
    known = [row.name for row in ROWS]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no row is called {', '.join(unknown)}; the rows are {', '.join(known)}")


def select(names: Sequence[str], gpu: bool) -> list[Row]:
    """Choose rows by name, in the order of the table; without names, those of the device at hand.

    Raises
    ------
    ValueError
        If a name is not that of a row, or a row that needs a GPU is named where there is none.
    """
    check_names(names)
    if not names:
        skipped = "cpu" if gpu else "gpu"
        return [row for row in ROWS if row.case.device != skipped]
    chosen = [row for row in ROWS if row.name in names]
    without = [row.name for row in chosen if row.case.device == "gpu" and not gpu]
    if without:
        raise ValueError(f"JAX finds no GPU, which {', '.join(without)} would need")
    return chosen


def libraries_of(rows: Sequence[Row], case: Case) -> tuple[str, ...]:
    """List which libraries a case must run for these rows: a row that looks at one peer needs no other."""
    needed = [row for row in rows if row.case == case]
    if any(row.name == case.name for row in needed):
        return case.libraries
    peers = {peer for row in needed for peer in row.peers}
    return tuple(name for name in case.libraries if name == "jboost" or name in peers)
