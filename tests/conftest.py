"""What every test shares: strict numerics, the compilation cache, precision, small real data sets."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.model_selection import train_test_split

ROOT = Path(__file__).resolve().parent.parent

# With JBOOST_CHECK_TYPES=1 (as in the Makefile) calls in these rooms check the shapes and dtypes that their annotations
# state. Public functions have their own checks and messages.
INNER = ["_fixed_point", "_sampling", "_split", "_tree", "_objective", "_model.scoring", "boosting.rounds"]
INNER += ["textbook.voting"]
INNER += [
    f"differentiable.{name}" for name in ("batches", "descent", "hard", "parameters", "routing", "tasks")
]
INNER += ["explain.reach"]
INNER += [f"_histogram.{name}" for name in ("joined", "matmul", "native", "xla")]


CHECK = beartype(conf=BeartypeConf(is_pep484_tower=True))  # for which an int is a float too


def checked(function: Any) -> Any:
    """Check the calls of a function, but not how a record is made, nor functions inside of functions.

    JAX makes records anew with whatever it has for leaves: None, object(), a ShapeDtypeStruct, a PartitionSpec,
    arrays with one more axis. And those that users make (`Loss`, `Newton`) have checks and messages of their own.
    `test_annotations.py` looks at the fields of whole records. Inner functions would be wrapped anew in every call
    of the outer one, which takes longer than all other checks together.
    """
    is_checked = function.__name__ != "__init__" and "<locals>" not in function.__qualname__
    return CHECK(function) if is_checked else function


if os.environ.get("JBOOST_CHECK_TYPES") == "1":
    install_import_hook([f"jboost.{name}" for name in INNER], "conftest.checked")

# A silent broadcast of [n] against [n 1] is the classic way to a wrong loss: it must be written out.
jax.config.update("jax_numpy_rank_promotion", "raise")

# Most of a test's time is compilation, and most programs are those of the last run.
# Small ones are kept too: there are thousands, and the other worker and processes of their own (which have these
# variables) need many of them.
CACHE = os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_TRACEBACK_IN_LOCATIONS_LIMIT"] = "0"  # where an operation was written: an eighth of the time
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_traceback_in_locations_limit", 0)

# Where XLA is to compile soon rather than well, its earlier way to make loops helps too: a third of the time. A program
# in one piece takes a third of the memory maps, and less time.
FLAGS, QUICK = os.environ.get("XLA_FLAGS", ""), "--xla_backend_optimization_level=0"
if QUICK in FLAGS and jax.__version_info__ < (0, 11):
    AT_ONCE = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    os.environ["XLA_FLAGS"] = f"{FLAGS} {AT_ONCE}"

os.environ.setdefault("JBOOST_CACHE", "0")  # a test that needs the library's own cache gives it a folder


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--every`."""
    parser.addoption("--every", type=int, default=1, help="run every so many-th test only, some of each file")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `--every` leaves out."""
    kept = items[:: config.getoption("--every")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that minds last digits in a process of its own, where programs compiled soon have others."""
    if pyfuncitem.get_closest_marker("last_digits") is None or QUICK not in FLAGS:
        return None
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", pyfuncitem.nodeid]
    environment = os.environ | {"XLA_FLAGS": FLAGS.replace(QUICK, "")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def pytest_collection_finish() -> None:
    """Look for garbage seldom: tracing makes many objects and few cycles (a tenth of the time of all tests)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


MAPS = Path("/proc/self/maps")
MANY_MAPS = 20_000  # of the 65,530 that Linux gives a process; one test file takes up to 5,000
MANY_PROGRAMS = 128  # half a gigabyte, about


@pytest.fixture(autouse=True, scope="module")
def room_for_programs() -> Iterator[None]:
    """Forget compiled programs in time: without a memory map left JAX ends by a segmentation fault.

    The library forgets some at a time, and looks for garbage each time: here all go after a test file.
    """
    from jboost._runtime import programs  # after the import hook above

    programs.MAX_PROGRAMS = 2**62
    yield
    n_maps = len(MAPS.read_bytes().splitlines()) if MAPS.exists() else 0
    if n_maps > MANY_MAPS or programs.n_programs() > MANY_PROGRAMS:
        programs.forget_all()
        jax.clear_caches()


@pytest.fixture
def own_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no program, and put back those that were there: the tests to come need them."""
    from jboost._runtime import programs  # after the import hook above

    monkeypatch.setattr(programs, "_kept", type(programs._kept)())
    monkeypatch.setattr(programs, "MAX_MAPS", 2**62)  # however many the tests before have left


@dataclass(frozen=True)
class DataSet:
    """Rows to train on and rows to judge by; the arrays are read-only because tests share them."""

    X: np.ndarray
    y: np.ndarray
    X_valid: np.ndarray
    y_valid: np.ndarray


def _split(X: Any, y: Any) -> DataSet:
    X_train, X_valid, y_train, y_valid = train_test_split(X, y, test_size=0.25, random_state=0)
    arrays = [np.ascontiguousarray(array) for array in (X_train, y_train, X_valid, y_valid)]
    for array in arrays:
        array.setflags(write=False)
    return DataSet(*arrays)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test with 64-bit JAX."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=[False, True], ids=["x32", "x64"])
def precision(request: pytest.FixtureRequest) -> Iterator[type[np.floating]]:
    """Run the test in both precisions; gives JAX's default float type."""
    with jax.enable_x64(request.param):
        yield np.float64 if request.param else np.float32


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def regression_data() -> DataSet:
    """Diabetes: 442 rows, 10 features, a positive real target."""
    X, y = load_diabetes(return_X_y=True)
    return _split(X, y)


@pytest.fixture(scope="session")
def binary_data() -> DataSet:
    """Breast cancer: 569 rows, 30 features, y in {0, 1}."""
    X, y = load_breast_cancer(return_X_y=True)
    return _split(X, y)


@pytest.fixture(scope="session")
def multiclass_data() -> DataSet:
    """Wine: 178 rows, 13 features, y in {0, 1, 2}."""
    X, y = load_wine(return_X_y=True)
    return _split(X, y)


@pytest.fixture(scope="session")
def missing_data() -> DataSet:
    """400 rows, 5 features, a fifth of the cells missing, and missing cells tell something about y."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    X[rng.random(X.shape) < 0.2] = np.nan
    signal = np.where(np.isnan(X[:, 0]), 2.0, np.sin(X[:, 0])) + np.nan_to_num(X[:, 1])
    return _split(X, signal + 0.1 * rng.normal(size=len(X)))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Give the folder of real data sets (its loader is `suite.py`) that the variable JBOOST_DATA names.

    The data are not part of this repository: without the variable such tests are skipped, with a wrong one
    they fail.
    """
    folder = os.environ.get("JBOOST_DATA")
    if not folder:
        pytest.skip("JBOOST_DATA names no folder of real data sets")
    if not (Path(folder) / "suite.py").is_file():
        pytest.fail(f"JBOOST_DATA={folder!r} holds no suite.py: expected the folder of real data sets")
    return Path(folder)
