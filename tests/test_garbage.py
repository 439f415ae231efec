"""Python's garbage collector is left as the user has it."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from jboost._runtime.garbage import uncollected


@pytest.fixture
def collector():
    """Put the collector back as it was."""
    was_on = gc.isenabled()
    yield
    gc.enable() if was_on else gc.disable()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_collector_pauses_and_is_then_as_before(collector, is_on, fails, lasting):
    gc.enable() if is_on else gc.disable()
    try:
        with uncollected(lasting):
            assert not gc.isenabled()
            if fails:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert fails
    assert gc.isenabled() == is_on


SCRIPT = """
import gc, sys
runs = []
gc.callbacks.append(lambda phase, info: runs.append(info["generation"]))
if sys.argv[1] == "frozen":
    gc.freeze()
frozen = gc.get_freeze_count()
import jboost
from jboost import JBoostClassifier
assert gc.isenabled() and 0.9 * frozen <= gc.get_freeze_count() <= frozen, (frozen, gc.get_freeze_count())
assert 2 not in runs, runs  # a look at all objects
class Knot: pass
one = Knot(); one.self = one
del one
assert any(type(found) is Knot for found in gc.get_objects())
gc.collect()
assert not any(type(found) is Knot for found in gc.get_objects())
print("as before")
"""


@pytest.mark.parametrize("state", [pytest.param("usual", marks=pytest.mark.slow), "frozen"])
def test_an_import_looks_at_no_old_objects_and_thaws_none(state):
    done = subprocess.run([sys.executable, "-c", SCRIPT, state], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "as before", done.stderr
