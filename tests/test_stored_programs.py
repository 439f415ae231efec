"""Programs on disk: found by the same machine and version, by nobody else, and not trusted where others write."""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost._runtime import programs, stored
from jboost._runtime.programs import program

pytestmark = pytest.mark.skipif(
    not hasattr(os, "getuid"), reason="the cache is off where files have no owner"
)

FIT = """
import hashlib, sys, jax, numpy as np, jboost
compiled = []
listen = jax.monitoring.register_event_duration_secs_listener
listen(lambda event, _, **about: compiled.append(about.get("fun_name")) if "backend_compile" in event else None)
X = np.random.default_rng(0).normal(size=(200, 3))
model, _ = jboost.fit(jboost.losses.logistic, X, X[:, 0] > 0, spec=jboost.Spec(n_estimators=4, max_depth=2))
score = np.asarray(jboost.predict(model, X))
print(hashlib.sha256(score.tobytes()).hexdigest(), any("run_chunk" in str(name) for name in compiled))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Give the cache a folder, and forget programs in memory whenever one is made."""
    monkeypatch.setenv("JBOOST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stored, "_jax_stores_itself", lambda: False)
    monkeypatch.setattr(programs, "_kept", type(programs._kept)())
    return tmp_path / "cache"


@pytest.fixture
def loads(monkeypatch):
    """Tell of each program that was asked for whether it was on disk."""
    found, load = [], stored._load

    def watch(path, lowered):
        one = load(path, lowered)
        found.append(one is not None)
        return one

    monkeypatch.setattr(stored, "_load", watch)
    return found


def run(function, *arguments):
    """Call it as another process would, and compare with what it says itself."""
    programs.forget_all()
    found = program(function)(*arguments)
    np.testing.assert_array_equal(found, function(*arguments))
    return found


def cube(x, y=0.0):
    return x**3 + y


def test_another_process_compiles_nothing_and_finds_the_same_model(tmp_path):
    def fit(**more):
        off = {"JAX_ENABLE_COMPILATION_CACHE": "0", "JBOOST_CACHE": str(tmp_path / "cache")}
        return native_library.run_script(FIT, **(off | more)).split()

    model, compiled = fit()
    assert compiled == "True"
    assert fit() == [model, "False"]
    assert fit(JBOOST_CACHE="0") == [model, "True"]


def test_a_program_is_found_again(folder, loads):
    run(cube, jnp.arange(3.0))
    run(cube, jnp.arange(3.0))
    assert loads == [False, True]
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def first(a, b):
    return a


def second(a, b):
    return b


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((cube, jnp.arange(3.0)), (cube, jnp.arange(4.0))),
        ((cube, jnp.arange(3.0)), (lambda x: x**5, jnp.arange(3.0))),
        ((cube, 2.0), (cube, np.float32(2.0))),  # weakly typed or not
        ((first, jnp.zeros(2), jnp.ones(2)), (second, jnp.zeros(2), jnp.ones(2))),
    ],
    ids=["shape", "function", "weak type", "unused argument"],
)
def test_different_programs_do_not_meet(folder, loads, one, other):
    for function, *arguments in (one, other):
        found = run(function, *arguments)
        expected = jax.eval_shape(function, *arguments)
        assert (found.dtype, found.weak_type) == (expected.dtype, expected.weak_type)
    assert loads == [False, False]


def test_large_constants_tell_programs_apart(folder, loads):
    numbers = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    numbers[1, :] = numbers[0, :]
    numbers[1, 500] += 1
    for row in numbers:
        run(lambda x, row=row: x + jnp.asarray(row), jnp.zeros(1000))
    assert loads == [False, False]


def test_other_surroundings_find_nothing(folder, loads, monkeypatch):
    versions = stored._versions()
    changes = [
        lambda patch: patch.setattr(stored, "_versions", lambda: (*versions[:-1], "another processor")),
        lambda patch: patch.setattr(stored, "_versions", lambda: ("another python", *versions[1:])),
        lambda patch: patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false"),
        lambda patch: patch.setattr(os, "cpu_count", lambda: 1000),
    ]
    run(cube, jnp.arange(3.0))
    with jax.default_matmul_precision("float32"):
        run(cube, jnp.arange(3.0))
    for change in changes:
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            run(cube, jnp.arange(3.0))
    run(cube, jnp.arange(3.0))
    assert loads == [False] * (2 + len(changes)) + [True]


def test_versions_name_all_that_is_installed():
    assert jax.__version__ in stored._versions()
    assert len(stored._processor()) > 0


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "not a program"])
def test_a_damaged_file_is_replaced(folder, loads, damage):
    run(cube, jnp.arange(3.0))
    (file,) = folder.iterdir()
    content = file.read_bytes()
    other = b"something else"
    file.write_bytes(
        {
            "truncated": content[:-100],
            "changed": content[:500] + b"x" + content[501:],
            "empty": b"",
            "not a program": hashlib.sha256(other).digest() + other,
        }[damage]
    )
    run(cube, jnp.arange(3.0))
    run(cube, jnp.arange(3.0))
    assert loads[-1]
    assert file.stat().st_size == len(content)


def test_a_program_that_calls_back_stays_out(folder):
    seen = []

    def called(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x.sum())
        return jax.pure_callback(np.cos, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    found = program(called)(jnp.arange(3.0, dtype=jnp.float32))
    np.testing.assert_allclose(found, np.cos(np.arange(3.0)), rtol=1e-6)
    jax.effects_barrier()
    assert seen == [3.0]
    assert list(folder.iterdir()) == []


# ------------------------------------------------------------ folders


def test_it_can_be_turned_off(folder, monkeypatch):
    monkeypatch.setenv("JBOOST_CACHE", "0")
    run(cube, jnp.arange(3.0))
    assert not folder.exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
@pytest.mark.parametrize("level", ["folder", "parent"])
def test_a_folder_that_others_can_write_to_is_not_used(folder, mode, level):
    folder.mkdir(mode=0o700)
    (folder if level == "folder" else folder.parent).chmod(mode)
    assert stored.find_folder() is None
    run(cube, jnp.arange(3.0))
    assert list(folder.iterdir()) == []


def test_a_link_to_such_a_folder_is_not_used(folder, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    folder.symlink_to(shared)
    assert stored.find_folder() is None


def test_a_folder_of_somebody_else_is_not_used(folder, monkeypatch):
    assert stored.find_folder() == folder.resolve()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert stored.find_folder() is None


@pytest.mark.parametrize("place", ["/proc/none/here", "a file"])
def test_without_a_place_to_write_it_does_without(folder, tmp_path, monkeypatch, place):
    (tmp_path / "a file").write_text("")
    home = Path(place) if place.startswith("/") else tmp_path / place
    monkeypatch.delenv("JBOOST_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert stored.find_folder() is None
    run(cube, jnp.arange(3.0))


def test_the_usual_place(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("JBOOST_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert stored.find_folder() == (tmp_path / "xdg" / "jboost").resolve()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert stored.find_folder() == (tmp_path / "home" / ".cache" / "jboost").resolve()


def test_it_stays_small_and_keeps_what_was_used_last(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(stored, "MAX_BYTES", 1000)
    for i in range(8):
        stored._write(folder / f"{i}{stored.SUFFIX}", bytes(200))
        os.utime(folder / f"{i}{stored.SUFFIX}", (i, i))
        os.utime(folder / f"0{stored.SUFFIX}")  # in use
    assert sorted(file.name[0] for file in folder.iterdir()) == ["0", "4", "5", "6", "7"]
    stored._write(folder / f"large{stored.SUFFIX}", bytes(300))  # more than a quarter of all
    assert len(list(folder.iterdir())) == 5


def test_what_a_killed_process_left_goes_away(folder):
    folder.mkdir(mode=0o700)
    for name, age in (("old.part", 2 * stored.STALE_SECONDS), ("new.part", 0)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (0, (folder / name).stat().st_mtime - age))
    stored._write(folder / f"a{stored.SUFFIX}", b"whole")
    assert sorted(file.name for file in folder.iterdir()) == [f"a{stored.SUFFIX}", "new.part"]


def test_many_writers_and_readers_at_once(folder):
    """Every reader sees a whole file, whoever wrote it, while others make room."""
    folder.mkdir(mode=0o700)
    path = folder / f"one{stored.SUFFIX}"
    contents = [bytes([i]) * 100_000 for i in range(4)]

    def write(i):
        for _ in range(20):
            stored._write(path, contents[i])

    def read(_):
        seen = set()
        for _ in range(50):
            if path.exists():
                seen.add(path.read_bytes())
        return seen

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, i) for i in range(4)]
        seen = set().union(*pool.map(read, range(4)))
        for one in writing:
            one.result()
    assert seen <= set(contents)
    assert [file.name for file in folder.iterdir()] == [path.name]
