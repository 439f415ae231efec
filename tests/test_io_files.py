"""The arguments of save and load, and the file system: a failed save changes nothing."""

from __future__ import annotations

import dataclasses
import os
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from conftest import ROOT

import jboost
from jboost.io import replacing
from tests.model_file import members, same_bits, write_zip


@pytest.fixture(scope="module")
def hand_made(tmp_path_factory):
    return jboost.load(write_zip(tmp_path_factory.mktemp("io") / "hand.jboost", members()))


# ---------------------------------------------------------------- arguments


@dataclasses.dataclass
class Unhashable:
    factor: float = 2.0

    def __call__(self, score):
        return self.factor * score


def test_arguments_of_the_wrong_kind(hand_made, tmp_path):
    with pytest.raises(TypeError, match=r"model must be a jboost\.Ensemble, got dict"):
        jboost.save({}, tmp_path / "model")  # pyright: ignore[reportArgumentType]
    for path in (3, None, object()):
        with pytest.raises(TypeError, match="path must be a str or a path-like object"):
            jboost.save(hand_made, path)  # pyright: ignore[reportArgumentType]
        with pytest.raises(TypeError, match="path must be a str or a path-like object"):
            jboost.load(path)  # pyright: ignore[reportArgumentType]
    jboost.save(hand_made, tmp_path / "model")
    with pytest.raises(TypeError, match="inverse_link must be a function of scores, got 'exp'"):
        jboost.load(tmp_path / "model", inverse_link="exp")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="inverse_link must be hashable"):
        jboost.load(tmp_path / "model", inverse_link=Unhashable())


def test_models_that_cannot_be_saved_leave_no_file(hand_made, tmp_path):
    def change(**fields):
        return dataclasses.replace(hand_made, **fields)

    batch = jax.tree.map(lambda array: jnp.stack([array, array]), hand_made)
    nan_leaf = change(leaf_value=hand_made.leaf_value.at[1, 2].set(jnp.nan))
    half = change(base=hand_made.base.astype(jnp.bfloat16))
    shorter = change(leaf_value=hand_made.leaf_value[:1])
    other_upper = change(
        edges=dataclasses.replace(hand_made.edges, rounded_bits=hand_made.edges.rounded_bits + 1)
    )
    wrong = {
        r"model must be one model, got a batch of shape \(2,\).*jax\.tree\.map": batch,
        "model cannot be saved: leaf_value: expected finite numbers, got .nan": nan_leaf,
        "model cannot be saved: base: expected float32 or float64, got 'bfloat16'": half,
        "model cannot be saved: feature: expected shape": shorter,
        r"model cannot be saved: edges\.rounded_bits": other_upper,
    }
    for message, model in wrong.items():
        with pytest.raises(ValueError, match=message):
            jboost.save(model, tmp_path / "model")
    one = jax.tree.map(lambda array: array[1], batch)  # what the message says
    assert same_bits(one, hand_made)
    with pytest.raises(TypeError, match="model must be concrete, got a traced one"):
        jax.jit(lambda model: jboost.save(model, tmp_path / "model"))(hand_made)
    assert os.listdir(tmp_path) == []


# ---------------------------------------------------------------- the file system


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_is_a_str_or_path_like(kind, hand_made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("plain", "with space.é", tmp_path / "absolute", "x" * 255):
        jboost.save(hand_made, kind(name))
        assert same_bits(jboost.load(kind(name)), hand_made)
    assert len(os.listdir(tmp_path)) == 4  # under exactly these names


def test_places_where_nothing_can_be_saved(hand_made, tmp_path):
    (tmp_path / "file").write_text("kept")
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    places = {
        "nowhere/model": (FileNotFoundError, "No such file or directory"),
        "file/model": (NotADirectoryError, "Not a directory"),
        ".": (IsADirectoryError, "got a folder"),
        "pipe": (OSError, "got a device or a pipe"),
        "x" * 256: (OSError, "too long"),
    }
    for name, (error, reason) in places.items():
        with pytest.raises(error, match=f"cannot save here: .*{reason}.*{tmp_path}"):
            jboost.save(hand_made, tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == before
    assert (tmp_path / "file").read_text() == "kept"
    for name, error in (("nowhere", FileNotFoundError), (".", IsADirectoryError)):
        with pytest.raises(error, match=str(tmp_path)):
            jboost.load(tmp_path / name)


def test_no_permission(hand_made, tmp_path):
    target = tmp_path / "model"
    target.write_text("kept")
    user = os.geteuid()
    tmp_path.chmod(0o500)
    try:
        if user == 0:  # root may write anywhere
            os.seteuid(65534)
        for name in ("model", "new"):
            with pytest.raises(PermissionError, match=str(tmp_path / name)):
                jboost.save(hand_made, tmp_path / name)
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o700)
    assert os.listdir(tmp_path) == ["model"]
    assert target.read_text() == "kept"


def test_a_write_protected_file_is_kept(hand_made, tmp_path, monkeypatch):
    (tmp_path / "model").write_text("kept")
    monkeypatch.setattr(os, "access", lambda *_: False)  # as chmod 400 does for anybody but root
    with pytest.raises(PermissionError, match="write-protected"):
        jboost.save(hand_made, tmp_path / "model")
    assert (tmp_path / "model").read_text() == "kept"


@pytest.mark.parametrize("moment", ["fsync", "replace"])
@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"]
)
def test_a_save_that_fails_changes_nothing(moment, error, hand_made, tmp_path, monkeypatch):
    jboost.save(hand_made, tmp_path / "old")
    before = (tmp_path / "old").read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, moment, fail)
    for name in ("old", "new"):
        with pytest.raises(
            type(error), match="cannot save here: No space" if isinstance(error, OSError) else None
        ):
            jboost.save(jboost.truncate(hand_made, 1), tmp_path / name)
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == before


def test_a_disk_that_fills_up_in_the_middle_changes_nothing(hand_made, tmp_path):
    resource = pytest.importorskip("resource")  # not on Windows
    jboost.save(hand_made, tmp_path / "old")
    before = (tmp_path / "old").read_bytes()
    limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="cannot save here: File too large"):
            jboost.save(hand_made, tmp_path / "old")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert os.listdir(tmp_path) == ["old"]
    assert (tmp_path / "old").read_bytes() == before


def test_a_reader_never_sees_half_a_file(hand_made, tmp_path):
    models = [hand_made, jboost.truncate(hand_made, 0)]
    jboost.save(models[0], tmp_path / "model")
    done = threading.Event()

    def write():
        for i in range(100):
            jboost.save(models[i % 2], tmp_path / "model")
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        seen.add(jboost.load(tmp_path / "model").n_trees)  # raises if anything is amiss
    writer.join()
    assert seen == {0, 2}


def test_links_stay_and_permissions_are_those_of_the_old_file(hand_made, tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    jboost.save(hand_made, target)
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask
    target.chmod(0o640)
    link.symlink_to("target")
    jboost.save(jboost.truncate(hand_made, 1), link)
    assert link.is_symlink()
    assert jboost.load(target).n_trees == 1
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_path_that_names_no_file(hand_made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("", "new/", Path("/")):
        for call in (lambda name=name: jboost.save(hand_made, name), lambda name=name: jboost.load(name)):
            with pytest.raises(ValueError, match=r"path must name a file, got '.*'"):
                call()
    assert os.listdir(tmp_path) == []


KILLED = """
import os, signal, sys
import jboost
model = jboost.load(sys.argv[1])
os.fsync = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
jboost.save(model, sys.argv[2])
"""


@pytest.mark.skipif(replacing.fcntl is None, reason="nothing is cleared without locks of files")
def test_what_a_killed_save_leaves_is_cleared_by_the_next(hand_made, tmp_path):
    jboost.save(hand_made, tmp_path / "model")
    command = [sys.executable, "-c", KILLED, tmp_path / "model", tmp_path / "other"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2
    (tmp_path / ".jboost-is-not-ours").touch()
    with replacing.replacing(str(tmp_path / "third")) as file:  # it is being written: nobody may delete it
        assert sorted(os.listdir(tmp_path))[1:] == [".jboost-is-not-ours", "model"]  # the left one is gone
        jboost.save(hand_made, tmp_path / "model")
        file.write(b"whole")
    assert (tmp_path / "third").read_bytes() == b"whole"
    assert sorted(os.listdir(tmp_path)) == [".jboost-is-not-ours", "model", "third"]


def test_many_who_save_and_clear_at_once_do_not_disturb_each_other(hand_made, tmp_path):
    def write(number):
        for _ in range(50):
            jboost.save(hand_made, tmp_path / f"model{number % 3}")

    with ThreadPoolExecutor(6) as pool:  # a lock belongs to an open file, so threads are like processes here
        list(pool.map(write, range(6)))
    assert sorted(os.listdir(tmp_path)) == ["model0", "model1", "model2"]
