"""What the figures were made on: processor, cores, devices, versions, memory."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any

PACKAGES = ("jboost", "jax", "jaxlib", "numpy", "scikit-learn", "xgboost", "lightgbm", "catboost")


def is_installed(library: str) -> bool:
    """Say whether a library of the comparison can be imported."""
    return importlib.util.find_spec(library.replace("scikit-learn", "sklearn").partition("-")[0]) is not None


def cores() -> list[int]:
    """List the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def keep_to_cores(n: int) -> None:
    """Leave this process n cores, where the system can: JAX has no argument for it."""
    if hasattr(os, "sched_setaffinity") and n < len(cores()):
        os.sched_setaffinity(0, cores()[:n])


def peak_memory() -> float:
    """Return the most memory that this process has used, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss may hold the peak of the parent
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def about() -> dict[str, Any]:
    """Name versions and machine. Initialises JAX, which may take most of a GPU's memory: call it in a child."""
    import jax

    return {
        "versions": {"python": platform.python_version()}
        | {name: _version(name) for name in PACKAGES if is_installed(name)},
        "processor": _processor(),
        "cores": len(cores()),
        "device": jax.devices()[0].device_kind,
        "gpu": jax.default_backend() == "gpu",
        "native": _is_native(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0,
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "source"


def _is_native() -> bool:
    """Say whether the C++ library of jboost was built."""
    spec = importlib.util.find_spec("jboost")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    return any(folder.glob("_runtime/_library*"))


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    return next(named, platform.processor())
