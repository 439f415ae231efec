"""What a user waits for the first time: a new process, from the first import to a fitted estimator.

Each is a process of its own, whose wall-clock and processor seconds are taken from outside. Warm, a process with the
same work ran before it with the same cache of compiled programs; cold, the cache is a new folder.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

# The fitting process reads its rows from a file, so that it imports nothing else before the library.
SCRIPT = """
import sys
import numpy as np
rows = np.load(sys.argv[1])
{statement}
estimator.fit(rows["X"], rows["y"])
"""
STATEMENTS = {
    "jboost": "from jboost import JBoostClassifier\n"
    "estimator = JBoostClassifier(n_estimators={trees}, max_bins={bins})",
    "sklearn": "from sklearn.ensemble import HistGradientBoostingClassifier\n"
    "estimator = HistGradientBoostingClassifier(max_iter={trees}, max_bins={bins}, early_stopping=False)",
    "lightgbm": "from lightgbm import LGBMClassifier\n"
    "estimator = LGBMClassifier(n_estimators={trees}, max_bin={bins}, verbose=-1)",
}
ROOT = Path(__file__).resolve().parent.parent.parent


def time_processes(
    library: str, X: np.ndarray, y: np.ndarray, trees: int, bins: int, warm: bool
) -> dict[str, float]:
    """Return the seconds of a process that imports the library and fits its estimator as it comes."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        np.savez(rows, X=X, y=y)
        script = SCRIPT.format(statement=STATEMENTS[library].format(trees=trees, bins=bins))
        command = [sys.executable, "-c", script, str(rows)]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"JBOOST_CACHE": str(Path(folder) / "cache"), "PYTHONPATH": path}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        # pip has compiled the Python files of the others; ours are where they are edited.
        _time([sys.executable, "-c", STATEMENTS[library].partition("\n")[0]], environment)
        if warm:
            _time(command, environment)
        return _time(command, environment)


def _time(command: list[str], environment: dict[str, str]) -> dict[str, float]:
    before, start = _cpu_seconds(), time.perf_counter()
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it failed"])[-1])
    return {"seconds": time.perf_counter() - start, "cpu_seconds": _cpu_seconds() - before}


def _cpu_seconds() -> float:
    """Return the processor seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
