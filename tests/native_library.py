"""What tests of the C++ library share: whether it is there, and how its headers are compiled for a fuzzer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jboost._runtime import library

ROOT = Path(__file__).parent.parent


def require(is_available: Callable[[], bool]) -> None:
    """Skip without the library, since a compiler is optional; fail if JBOOST_REQUIRE_NATIVE=1 demands it."""
    if not is_available():
        say = pytest.fail if os.environ.get("JBOOST_REQUIRE_NATIVE") == "1" else pytest.skip
        say(f"the C++ library was not tested: {library.load()}")


def run_fuzzer(name: str, folder: Path, sanitizers: str, *arguments: str) -> None:
    """Compile tests/NAME.cpp with sanitizers and run it: it prints ok, or what is wrong."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip(f"{name} was not fuzzed: no compiler found")
    program = folder / f"{name}_{sanitizers.replace(',', '_')}"
    # The sanitizers know nothing of functions that the loader chooses among. Optimising takes longer than it saves.
    options = ["-std=c++17", "-O0", "-g1", "-pthread", "-ffp-contract=off", "-DJBOOST_NO_CLONES"]
    options += [f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all", f"-I{ROOT / 'jboost'}"]
    subprocess.run([compiler, *options, str(ROOT / "tests" / f"{name}.cpp"), "-o", str(program)], check=True)
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stdout + done.stderr


def run_script(script: str, *arguments: str, devices: int = 1, **variables: str) -> str:
    """Run Python code in a process of its own, on so many devices of a CPU, and return what it prints.

    XLA's other flags are those of this process, unless `XLA_FLAGS` is given, but LLVM optimises: else last digits
    depend on how many rows a device has.
    """
    flags = os.environ.get("XLA_FLAGS", "").replace("--xla_backend_optimization_level=0", "")
    flags = variables.pop("XLA_FLAGS", flags)
    if devices > 1:
        flags += f" --xla_force_host_platform_device_count={devices}"
    variables |= {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "XLA_FLAGS": flags,
    }
    environment = os.environ | variables
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
