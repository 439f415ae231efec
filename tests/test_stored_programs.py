"""Programs on disk: found by the same machine and version, by nobody else, and not trusted where others write."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import pickle
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

import jboost
from jboost._runtime import naming, program_files, programs, stored
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
    """Give the cache a folder, and turn off that of JAX, from which nothing could be stored."""
    monkeypatch.setenv("JBOOST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(programs, "_kept", type(programs._kept)())
    before = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield tmp_path / "cache"
    jax.config.update("jax_enable_compilation_cache", before)
    compilation_cache.reset_cache()


@pytest.fixture
def loads(monkeypatch):
    """Tell of each program that was asked for whether it was on disk."""
    found, load = [], stored._load

    def watch(*arguments):
        one = load(*arguments)
        found.append(one is not None)
        return one

    monkeypatch.setattr(stored, "_load", watch)
    return found


def run(function, *arguments):
    """Call it as another process would, and compare with what it says itself."""
    programs._kept.clear()  # those of the fixture `folder`; nothing looks for garbage
    found = program(function)(*arguments)
    np.testing.assert_array_equal(found, function(*arguments))
    return found


def cube(x, y=0.0):
    return x**3 + y


def test_another_process_compiles_nothing_and_finds_the_same_model(tmp_path):
    def fit():
        where: dict[str, Any] = {"JAX_ENABLE_COMPILATION_CACHE": "0", "JBOOST_CACHE": str(tmp_path / "cache")}
        return native_library.run_script(FIT, **where).split()

    model, compiled = fit()
    assert compiled == "True"
    assert fit() == [model, "False"]


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
    damaged = {
        "truncated": content[:-100],
        "changed": content[:500] + b"x" + content[501:],
        "empty": b"",
        "not a program": hashlib.sha256(other).digest() + other,
    }[damage]
    file.write_bytes(damaged)
    run(cube, jnp.arange(3.0))
    run(cube, jnp.arange(3.0))
    assert loads[-1]
    assert file.read_bytes() != damaged


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
    assert program_files.find_folder() is None
    run(cube, jnp.arange(3.0))
    assert list(folder.iterdir()) == []


def test_a_link_to_such_a_folder_is_not_used(folder, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    folder.symlink_to(shared)
    assert program_files.find_folder() is None


def test_a_folder_of_somebody_else_is_not_used(folder, monkeypatch):
    assert program_files.find_folder() == folder.resolve()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert program_files.find_folder() is None


@pytest.mark.parametrize("place", ["/proc/none/here", "a file"])
def test_without_a_place_to_write_it_does_without(folder, tmp_path, monkeypatch, place):
    (tmp_path / "a file").write_text("")
    home = Path(place) if place.startswith("/") else tmp_path / place
    monkeypatch.delenv("JBOOST_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert program_files.find_folder() is None
    run(cube, jnp.arange(3.0))


def test_the_usual_place(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("JBOOST_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert program_files.find_folder() == (tmp_path / "xdg" / "jboost").resolve()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert program_files.find_folder() == (tmp_path / "home" / ".cache" / "jboost").resolve()


# ------------------------------------------------------------ programs with a name


def structure_of(loss, **more):
    return jax.tree.structure((loss, more))


@pytest.mark.parametrize(
    "loss",
    [
        jboost.losses.logistic,
        jboost.losses.softmax(3),
        jboost.losses.huber(2.0),
        jboost.losses.absolute_error,
        jboost.Loss(jboost.losses.logistic.function, leaf=jboost.Newton(3)),
    ],
    ids=lambda loss: loss.name,
)
def test_programs_of_the_librarys_own_losses_have_names(loss):
    from jboost.boosting.chunks import run_chunk

    function, other = run_chunk.__wrapped__, dataclasses.replace(loss, hessian_floor=1e-3)
    name = naming.name_of(function, (), structure_of(loss))
    assert name is not None
    assert "0x" not in name  # an address
    assert name == naming.name_of(function, (), structure_of(pickle.loads(pickle.dumps(loss))))
    assert name != naming.name_of(function, (), structure_of(other))
    assert name != naming.name_of(function, ((0, 1),), structure_of(loss))


class Mine(float):
    """A number whose class is not the library's."""


@pytest.mark.parametrize(
    "part",
    [
        lambda score, y: (score - y) ** 2,
        jboost.Loss(cube),
        jboost.Loss(jboost.losses.logistic.function, inverse_link=lambda score: 2 * score),
        jboost.Loss(functools.partial(jboost.losses.logistic.function), inverse_link=functools.partial(cube)),
        jax.tree_util.Partial(cube),
        Mine(2.0),
        {1, 2},
    ],
)
def test_what_holds_something_else_has_no_name(part):
    from jboost.boosting.chunks import run_chunk

    fixed = ((0, part),)
    assert naming.name_of(run_chunk.__wrapped__, fixed, jax.tree.structure(())) is None
    assert naming.name_of(cube, (), jax.tree.structure(())) is None


def test_a_function_that_was_replaced_has_no_name(monkeypatch):
    from jboost.boosting.chunks import run_chunk
    from jboost.losses import standard

    structure = structure_of(jboost.losses.logistic)
    assert naming.name_of(run_chunk.__wrapped__, (), structure) is not None
    monkeypatch.setattr(standard, "_logistic", cube)
    assert naming.name_of(run_chunk.__wrapped__, (), structure) is None


def fit_once(loss=jboost.losses.logistic, **options):
    programs._kept.clear()
    X = np.random.default_rng(0).normal(size=(100, 3))
    spec = jboost.Spec(n_estimators=4, max_depth=2)
    return jboost.fit(loss, X, X[:, 0] > 0, spec=spec, **options)[0]


@pytest.mark.slow
def test_a_named_program_is_not_traced(folder, monkeypatch):
    first = fit_once()
    traces, by_text = [], stored._compiled_by_text
    monkeypatch.setattr(stored, "_compiled_by_text", lambda *given: traces.append(given) or by_text(*given))
    again = fit_once()
    assert traces == []
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    monkeypatch.setattr(stored, "_library_files", lambda: "edited")
    fit_once()
    assert len(traces) == 2
    fit_once(jboost.losses.huber(1.0))
    assert len(traces) == 4


@pytest.mark.slow
def test_settings_tell_named_programs_apart(folder):
    """A draw depends on one of JAX's settings, and on the library: each finds its own program."""
    hyper = jboost.Hyper(subsample=0.5, colsample_bytree=0.5)
    expected = {}
    for _ in range(2):
        for partitionable, plain in ((True, False), (False, False), (True, True)):
            with jax.threefry_partitionable(partitionable), jboost.plain_jax(plain):
                found = np.asarray(fit_once(hyper=hyper).leaf_value).tobytes()
            assert found == expected.setdefault((partitionable, plain), found)
    assert expected[True, False] != expected[False, False]


def test_a_named_program_whose_file_is_gone_is_made_again(folder):
    first = fit_once()
    for file in folder.iterdir():
        if file.stat().st_size > 4000:  # a program; what a name leads to is small
            file.unlink()
    np.testing.assert_array_equal(fit_once().leaf_value, first.leaf_value)
    assert sum(file.stat().st_size > 4000 for file in folder.iterdir()) == 2


def test_it_stays_small_and_keeps_what_was_used_last(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(program_files, "MAX_BYTES", 1000)
    for i in range(8):
        program_files.write(folder / f"{i}{program_files.SUFFIX}", bytes(200 - program_files.DIGEST))
        os.utime(folder / f"{i}{program_files.SUFFIX}", (i, i))
        os.utime(folder / f"0{program_files.SUFFIX}")  # in use
    assert sorted(file.name[0] for file in folder.iterdir()) == ["0", "4", "5", "6", "7"]
    program_files.write(folder / f"large{program_files.SUFFIX}", bytes(300))  # more than a quarter of all
    assert len(list(folder.iterdir())) == 5


def test_what_a_killed_process_left_goes_away(folder):
    folder.mkdir(mode=0o700)
    for name, age in (("old.part", 2 * program_files.STALE_SECONDS), ("new.part", 0)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (0, (folder / name).stat().st_mtime - age))
    program_files.write(folder / f"a{program_files.SUFFIX}", b"whole")
    assert sorted(file.name for file in folder.iterdir()) == [f"a{program_files.SUFFIX}", "new.part"]


def test_many_writers_and_readers_at_once(folder):
    """Every reader sees a whole file, whoever wrote it, while others make room."""
    folder.mkdir(mode=0o700)
    path = folder / f"one{program_files.SUFFIX}"
    contents = [bytes([i]) * 100_000 for i in range(4)]

    def write(i):
        for _ in range(20):
            program_files.write(path, contents[i])

    def read(_):
        seen = set()
        for _ in range(50):
            if path.exists():
                seen.add(program_files.read(path))
        return seen

    with ThreadPoolExecutor(8) as pool:
        writing = [pool.submit(write, i) for i in range(4)]
        seen = set().union(*pool.map(read, range(4)))
        for one in writing:
            one.result()
    assert seen <= set(contents)
    assert [file.name for file in folder.iterdir()] == [path.name]
