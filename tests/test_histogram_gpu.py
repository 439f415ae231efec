"""The benchmark of GPU histograms, in small: it runs, checks and writes what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import histogram_gpu
from jboost._histogram import xla


@pytest.mark.slow
def test_small_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(histogram_gpu, "DEPTH", 2)
    file = tmp_path / "results.json"
    assert histogram_gpu.main(["--rows", "400", "--json", str(file)]) == 0
    results = json.loads(file.read_text())["results"]
    names = {result["implementation"] for result in results}
    assert {"copies", "pallas", "pairs, 2**22 cells"} <= names
    assert len(results) == histogram_gpu.DEPTH * len(histogram_gpu.DATA) * (2 + 5)  # of 256 and of 64 codes
    assert all(result["ms"] > 0 and result["fault"] == "" for result in results)
    assert "400 rows, 64 codes, skewed" in capsys.readouterr().out


@pytest.mark.slow
def test_finds_what_is_wrong():
    """A twin that loses a row, and one that does not run."""
    bins, values = histogram_gpu.make_rows(50, 64, "uniform")
    slot, n_slots = histogram_gpu.make_slots(50, 2)
    assert (n_slots, 0 < int((slot < n_slots).sum()) < 50) == (2, True)
    arrays = bins, slot, values
    expected = np.asarray(xla.scatter_in_blocks(*arrays, n_slots, 64))

    def loses_a_row(bins, slot, values):
        first = jnp.argmax(slot < n_slots)
        return xla.scatter_in_blocks(bins, slot.at[first].set(n_slots), values, n_slots, 64)

    def fails(*_arrays):
        raise NotImplementedError("not here")

    definition = partial(xla.scatter_in_blocks, n_slots=n_slots, n_codes=64)
    right = histogram_gpu.try_out(definition, arrays, expected)
    assert right[1] == ""
    assert right[0] > 0
    assert histogram_gpu.try_out(loses_a_row, arrays, expected)[1] == "not the bits of the definition"
    assert histogram_gpu.try_out(fails, arrays, expected) == (0.0, "NotImplementedError: not here")


def test_needs_little_beside_jax():
    missing = ["narwhals", "optax", "sklearn", "tqdm"]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); from experiments import histogram_gpu as h; "
    code += "print(h.make_slots(3, 0)[1], 'jboost.sklearn' in sys.modules)"
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.split() == ["1", "False"]
