"""Files that are no models: truncated, damaged, foreign, newer, hostile. All are refused, none is obeyed."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import jax
import numpy as np
import pytest

import jboost
from tests.model_file import ARRAYS, RECORD, ROWS, members, npy, same_bits, write_zip


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes that `save` writes for a small model."""
    path = write_zip(tmp_path_factory.mktemp("io") / "model", members())
    jboost.save(jboost.load(path), path)
    return path.read_bytes()


def load_bytes(path: Path, content: bytes):
    path.write_bytes(content)
    return jboost.load(path)


def refused(path: Path, message: str):
    """The message names the file, and says what is wrong with it."""
    return pytest.raises(ValueError, match=f"(?s)cannot load '{path}': .*{message}")


def outcome(path: Path, content: bytes) -> jboost.Ensemble | str:
    """The model, or the message of the refusal."""
    try:
        return load_bytes(path, content)
    except ValueError as error:
        return str(error)


# ---------------------------------------------------------------- truncated and damaged


def test_truncations_are_refused(sound, tmp_path):
    for length in {*range(0, len(sound), 5), *range(len(sound) - 100, len(sound))}:
        with refused(tmp_path / "model", "empty|not a jboost model|truncated"):
            load_bytes(tmp_path / "model", sound[:length])


def test_a_flipped_bit_is_refused_or_harmless(sound, tmp_path):
    model = load_bytes(tmp_path / "model", sound)
    places, n_refused = range(0, len(sound), 3), 0
    for place in places:
        content = bytearray(sound)
        content[place] ^= 1 << place % 8
        got = outcome(tmp_path / "model", bytes(content))
        if isinstance(got, str):
            assert f"cannot load '{tmp_path / 'model'}'" in got
            n_refused += 1
        else:  # it was in a date, an attribute or another field of the zip that nobody reads
            assert same_bits(got, model)
    assert n_refused > 0.7 * len(places)  # all of the content, most of the zip's own fields


def test_a_changed_entry_with_a_right_checksum_is_refused_or_makes_a_model(tmp_path):
    """What was changed on purpose cannot be told from a model, but must not crash or route out of range."""
    rng, entries, n_models = np.random.default_rng(0), members(), 0
    for name in 40 * list(entries):
        content = bytearray(entries[name])
        content[rng.integers(len(content))] = rng.integers(256)
        path = write_zip(tmp_path / "model", {**entries, name: bytes(content)})
        got = outcome(path, path.read_bytes())
        if isinstance(got, str):
            assert f"cannot load '{path}'" in got
            continue
        n_models += 1
        assert np.isin(got.trees.feature, [0, 1]).all()
        assert np.isin(got.trees.threshold, np.arange(17)).all()
        assert np.isfinite(got.leaf_value).all()
        assert np.array_equal(np.sort(got.edges.exact), got.edges.exact)
    assert n_models > 0


def with_overlapping_entries(path: Path, n: int) -> bytes:
    """Put entries into a file of which each holds the next one, and the last 64 kB."""
    content = write_zip(path, members()).read_bytes()
    end = content.rindex(b"PK\5\6")
    start = int.from_bytes(content[end + 16 : end + 20], "little")
    names = [b"a%04d.npy" % i for i in range(n)]
    heads = [struct.pack("<4s5H3I2H", b"PK\3\4", 20, *[0] * 7, len(name), 0) + name for name in names]
    body, directory, width = b"".join(heads) + bytes(2**16), content[start:end], len(heads[0])
    for i, name in enumerate(names):
        inside = body[(i + 1) * width :]
        sizes = zlib.crc32(inside), len(inside), len(inside)
        fields = b"PK\1\2", 20, 0, 20, *[0] * 5, *sizes, len(name), *[0] * 5, start + i * width
        directory += struct.pack("<4s4B4H3L5H2L", *fields) + name
    count = (len(members()) + n).to_bytes(2, "little")
    tail = struct.pack("<LLH", len(directory), start + len(body), 0)
    path.write_bytes(content[:start] + body + directory + content[end : end + 8] + 2 * count + tail)
    return body


def test_entries_that_overlap_are_refused_before_they_are_read(tmp_path):
    body = with_overlapping_entries(tmp_path / "model", 700)
    with zipfile.ZipFile(tmp_path / "model") as archive:
        assert archive.getinfo("a0000.npy").file_size > 2**16
        assert archive.read("a0699.npy") == body[-(2**16) :]  # it is a zip, as far as one can see
    size = (tmp_path / "model").stat().st_size
    tracemalloc.start()
    with refused(tmp_path / "model", f"its entries claim [0-9]* bytes of {size}"):
        jboost.load(tmp_path / "model")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * size


# ---------------------------------------------------------------- of other programs


class _Evil:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_files_of_other_programs_are_refused(tmp_path):
    path = tmp_path / "other"
    foreign = {
        b"": "is empty",
        b"P": "not a jboost model",
        b"learner = {}": "not a jboost model",
        pickle.dumps({"base": 0.5}): "not a jboost model",
        npy(np.zeros(3)): "not a jboost model",
    }
    for content, message in foreign.items():
        with refused(path, message):
            load_bytes(path, content)
    np.savez(tmp_path / "other.npz", base=np.zeros(1), leaf_value=np.zeros((1, 2, 1)))
    with refused(tmp_path / "other.npz", "no model.json"):
        jboost.load(tmp_path / "other.npz")
    for record in (b"[]", b"{}", b'{"format": "other", "version": 1}', b"3"):
        with refused(path, "expected format 'jboost model'"):
            jboost.load(write_zip(path, {"model.json": record}))


def test_nothing_in_a_file_is_executed(tmp_path):
    trap, path = tmp_path / "executed", tmp_path / "model"
    evil = pickle.dumps(_Evil(trap))
    with refused(path, "not a jboost model"):
        load_bytes(path, evil)
    objects = np.array([_Evil(trap)], dtype=object)
    with refused(path, "base.npy is not an array as jboost writes them"):
        jboost.load(write_zip(path, {**members(), "base.npy": npy(objects)}))
    with refused(path, "unexpected"):
        jboost.load(write_zip(path, {**members(), "evil.npy": npy(np.zeros(1))}))
    for name in ("os.system", "__import__", "jboost.save"):
        link = {"name": name, "built_in": True}
        with refused(path, f"inverse_link: expected one of .*got '{name}'"):
            jboost.load(write_zip(path, members({**RECORD, "inverse_link": link})))
    assert not trap.exists()
    pickle.loads(evil)
    assert trap.exists()  # the trap does work


def test_a_newer_format_says_what_to_do(tmp_path):
    record = {"format": "jboost model", "version": 7, "jboost": "9.9.1", "of the future": 1}
    path = write_zip(tmp_path / "model", {"model.json": json.dumps(record).encode(), "forest.bin": b"?"})
    with refused(path, r"version 7 .*jboost 9\.9\.1.*up to version 2; upgrade jboost"):
        jboost.load(path)


# ---------------------------------------------------------------- wrong entries


@pytest.mark.parametrize("name", [*ARRAYS])
def test_a_missing_array_is_refused(name, tmp_path):
    entries = members()
    del entries[f"{name}.npy"]
    with refused(tmp_path / "model", rf"the arrays: missing \['{name}'\], unexpected \[\]"):
        jboost.load(write_zip(tmp_path / "model", entries))


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_entries_that_do_not_belong_are_refused(tmp_path):
    path = tmp_path / "model"
    with refused(path, r"the arrays: missing \[\], unexpected \['other'\]"):
        jboost.load(write_zip(path, {**members(), "other.npy": npy(np.zeros(1))}))
    with refused(path, r"got also .*readme\.txt"):
        jboost.load(write_zip(path, {**members(), "readme.txt": b"hello"}))
    with refused(path, "an uncompressed entry"):
        jboost.load(write_zip(path, members(), zipfile.ZIP_DEFLATED))
    write_zip(path, members())
    for name in ("base.npy", "model.json"):
        with zipfile.ZipFile(write_zip(path, members()), "a") as archive:
            archive.writestr(name, members()[name])
        with refused(path, "each once"):
            jboost.load(path)


def test_arrays_that_jboost_does_not_write_are_refused(tmp_path):
    path, whole = tmp_path / "model", npy(ARRAYS["base"])
    wrong = {
        "cut": whole[:-1],
        "longer": whole + b"\0",
        "no header": b"",
        "no numpy": b"x" * 200,
        "version 2": npy(ARRAYS["base"], version=(2, 0)),
        "huge": whole.replace(b"(1,), }       ", b"(10000000,), }"),
        "negative": whole.replace(b"(1,), } ", b"(-1,), }"),
        "strings": npy(np.array(["a"])),
        "complex": npy(np.zeros(1, complex)),
        "records": npy(np.zeros(1, [("a", "f4")])),
        "Fortran": npy(np.asfortranarray(np.zeros((2, 2)))),
    }
    for content in wrong.values():
        assert content != whole
        with refused(path, "base.npy is not an array as jboost writes them"):
            jboost.load(write_zip(path, {**members(), "base.npy": content}))
    booleans = npy(ARRAYS["missing_right"])[:-1] + b"\2"
    with refused(path, "booleans other than 0 and 1"):
        jboost.load(write_zip(path, {**members(), "missing_right.npy": booleans}))


def test_big_endian_arrays_are_read(tmp_path):
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in ARRAYS.items()}
    model = jboost.load(write_zip(tmp_path / "model", members(arrays=swapped)))
    np.testing.assert_array_equal(model.leaf_value, ARRAYS["leaf_value"])


# ---------------------------------------------------------------- wrong content

NAN, INF = float("nan"), float("inf")
WRONG_RECORDS = {
    "version": [None, "1", 1.0, True, 0, -1],
    "jboost": [None, 1],
    "names": [3, "ab", ["a"], ["a", "a"], ["a", 1], ["a", None], {"a": 1, "b": 2}],
    "categories": [None, [], 3, [None], [None, 1], [None, {}], [None, ["a", "b"]]],
    "n_codes": [None, 16.0, "16", True, 0, -32, 15, 33, 32, 65568, 10**30],
    "max_bins": [None, 10.0, True, 1, 65535],
    "inverse_link": [None, "sigmoid", {}, {"name": "sigmoid"}, {"name": 1, "built_in": True}],
    "scalar_output": [None, 1, "true"],
    "symmetric": [None, 0, [], False],
    "multi_output": [None, 1, [], "separate", "other"],
}


@pytest.mark.parametrize("name", [*WRONG_RECORDS])
def test_a_record_of_other_types_or_values_is_refused(name, tmp_path):
    without = {key: value for key, value in RECORD.items() if key != name}
    with refused(tmp_path / "model", name):
        jboost.load(write_zip(tmp_path / "model", members(without)))
    for value in WRONG_RECORDS[name]:
        about = "shape" if name in ("n_codes", "symmetric", "multi_output") else ".*"  # or its consequence
        with refused(tmp_path / "model", f"({name}|version|{about})"):
            jboost.load(write_zip(tmp_path / "model", members({**RECORD, name: value})))


@pytest.mark.parametrize("missing", [None, 1, "1", True, INF, NAN, [1.0]])
def test_a_value_for_missing_that_is_no_number_is_refused(missing, tmp_path):
    jboost.load(write_zip(tmp_path / "model", members({**RECORD, "missing": -1.0})))
    with refused(tmp_path / "model", "missing: expected a finite number"):
        jboost.load(write_zip(tmp_path / "model", members({**RECORD, "missing": missing})))


WRONG_CATEGORIES = {
    "null or values": [{"values": ["a"]}, {"values": "ab", "codes": [1, 2]}, {"values": ["a"], "codes": 1}],
    "a code for each": [{"values": ["a", "b"], "codes": [1]}],
    "strings, numbers": [{"values": [v], "codes": [1]} for v in (None, ["a"], {}, NAN)],
    "increasing": [
        {"values": v, "codes": [1, 2]} for v in (["b", "a"], ["a", "a"], [2, 1], [1, True], ["a", 1])
    ],
    "codes from 1 to 15": [{"values": ["a"], "codes": [c]} for c in (0, 16, -1, 1.0, True, None, "1")],
}


@pytest.mark.parametrize("message", [*WRONG_CATEGORIES])
def test_categories_that_cannot_be_are_refused(message, tmp_path):
    for known in WRONG_CATEGORIES[message]:
        with refused(tmp_path / "model", f"categories of feature 1: expected .*{message}"):
            jboost.load(write_zip(tmp_path / "model", members({**RECORD, "categories": [None, known]})))


def test_a_record_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "model"
    sound = members()["model.json"]
    for content in (b"", b"\xff\xfe", sound[:-1], sound + b"}", b"[" * 100_000, b"1" * 10_000):
        with refused(path, "damaged at model.json"):
            jboost.load(write_zip(path, {**members(), "model.json": content}))
    with refused(path, "unexpected"):
        jboost.load(write_zip(path, members({**RECORD, "new": 1})))


def set_to(value, *place):
    def change(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return change


WRONG_ARRAYS = [
    ("base", lambda a: a.astype(np.float64)[:, None], "base: expected shape"),
    ("base", lambda a: a[:0], "base: expected shape"),
    ("base", lambda a: a.repeat(2), "scalar output"),
    ("base", lambda a: a.astype(np.float16), "base: expected float32 or float64, got 'float16'"),
    ("base", set_to(NAN, 0), "base: expected finite numbers"),
    ("leaf_value", lambda a: a[:1], "shape"),
    ("leaf_value", lambda a: a[:, :3], "leaf_value: expected shape"),
    ("leaf_value", lambda a: a[:, :1], "leaf_value: expected shape"),
    ("leaf_value", lambda a: a[..., 0], "leaf_value: expected shape"),
    ("leaf_value", lambda a: a.repeat(2, axis=2), "leaf_value: expected shape"),
    ("leaf_value", lambda a: a.astype(np.float64), "leaf_value: expected no wider numbers"),
    ("leaf_value", lambda a: a.astype(np.int32), "leaf_value: expected float32 or float64, got 'int32'"),
    ("leaf_value", set_to(NAN, 0, 0), "leaf_value: expected finite numbers, got .nan"),
    ("leaf_value", set_to(-INF, 1, 3), "leaf_value: expected finite numbers, got .-inf"),
    (
        "leaf_value",
        lambda a: np.zeros((0, 2**20, 1), np.float32),
        "leaf_value: expected .* depth from 1 to 16",
    ),
    ("leaf_hessian", lambda a: a[:, :2], "leaf_hessian: expected shape"),
    ("leaf_hessian", set_to(INF, 0, 0), "leaf_hessian: expected finite numbers, or NaN where unknown"),
    ("leaf_count", lambda a: a.repeat(2, axis=2), "leaf_count: expected shape"),
    ("leaf_count", lambda a: a.astype(np.int32), "leaf_count: expected float32 or float64"),
    ("tree_weight", set_to(NAN, 0), "tree_weight: expected finite numbers"),
    ("tree_weight", lambda a: a[:1], "tree_weight: expected shape"),
    ("feature", set_to(2, 0, 1), "feature: expected numbers from 0 to 1, got .2"),
    ("feature", set_to(-1, 1, 0), "feature: expected numbers from 0 to 1, got .-1"),
    ("feature", lambda a: a.astype(np.int64), "feature: expected int32, got 'int64'"),
    ("feature", lambda a: a[:, :1], "feature: expected shape"),
    ("threshold", set_to(17, 0, 0), "threshold: expected numbers from 0 to 16, got .17"),
    ("threshold", set_to(-1, 0, 0), "threshold: expected numbers from 0 to 16, got .-1"),
    ("threshold", lambda a: a.astype(np.float32), "threshold: expected int32"),
    ("missing_right", lambda a: a.astype(np.uint8), "missing_right: expected bool"),
    ("missing_right", lambda a: a[0], "missing_right: expected shape"),
    ("categories_right", lambda a: a[..., :0], "categories_right: expected shape"),
    ("categories_right", lambda a: a.repeat(2, axis=2), "categories_right: expected shape"),
    ("categories_right", lambda a: a.astype(np.int32), "categories_right: expected uint32"),
    ("gain", lambda a: a[:1], "gain: expected shape"),
    ("gain", set_to(NAN, 0, 0), "gain: expected numbers"),
    ("edges", lambda a: a[:1], "edges: expected shape"),
    ("edges", lambda a: a[:, :13], "edges: expected shape"),
    ("edges", lambda a: a.astype(np.float32), "edges: expected float64"),
    ("edges", set_to(NAN, 0, 3), "edges: expected increasing rows without NaN"),
    ("edges", set_to(NAN, 1), "edges: expected increasing rows without NaN"),
    ("edges", set_to(0.25, 0, 1), "edges: expected increasing rows"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG_ARRAYS)
def test_arrays_that_do_not_make_a_model_are_refused(name, change, message, tmp_path):
    arrays = copy.deepcopy(ARRAYS)
    with jax.enable_x64(True), refused(tmp_path / "model", message):
        jboost.load(write_zip(tmp_path / "model", members(arrays={**arrays, name: change(arrays[name])})))


def test_the_unchanged_file_is_sound(tmp_path):
    model = jboost.load(write_zip(tmp_path / "model", members()))  # or the refusals above would show nothing
    assert np.isfinite(jboost.predict(model, ROWS)).all()
