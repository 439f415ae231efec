"""The C++ kernels under sanitizers: random shapes, codes beyond the contract, threads that start late or never."""

from __future__ import annotations

import native_library
import pytest

WITH_THREADS = ("fuzz_histogram", "fuzz_tree", "fuzz_sorted", "fuzz_sums", "fuzz_select", "fuzz_moves")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WITH_THREADS, "fuzz_scoring", "fuzz_bins"])
def test_addresses_and_undefined_behaviour(name, tmp_path):
    native_library.run_fuzzer(name, tmp_path, "address,undefined")


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_THREADS)
def test_threads_do_not_race(name, tmp_path):
    native_library.run_fuzzer(name, tmp_path, "thread", "60")
