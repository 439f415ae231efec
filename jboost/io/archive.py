"""The file of a model: a zip of one JSON record and of NumPy arrays (.npy), all uncompressed.

Nothing in it can hold code, and `numpy.load` opens it too. The record begins with the name and the version of
the format. Reading takes memory in proportion to the file, whatever its headers claim.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import reprlib
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from jboost._runtime.version import __version__
from jboost.io.replacing import replacing

FORMAT = "jboost model"
VERSION = 2  # raised when an older jboost would misread the file; every version from 1 on is read
_RECORD = "model.json"
_NUMBERS = "biuf"  # kinds of dtype that an array may have: no objects, which NumPy would unpickle

Record = dict[str, Any]
Arrays = dict[str, np.ndarray]


def write_archive(path: str, record: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file as a whole, or else leave what was there; OSError says why it cannot be written."""
    head = {"format": FORMAT, "version": VERSION, "jboost": __version__}
    members = {_RECORD: _to_json({**head, **record})}
    members |= {f"{name}.npy": _to_npy(array) for name, array in arrays.items()}
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)  # without the time: equal models, equal files


def read_archive(content: bytes) -> tuple[int, Record, Arrays]:
    """Return the version, the record without its head, and the arrays; ValueError says what is wrong with the bytes."""
    if not content.startswith(b"PK\3\4"):
        raise ValueError("the file is not a jboost model: no zip archive" if content else "the file is empty")
    with _damage("the file is truncated or damaged"):
        archive = zipfile.ZipFile(io.BytesIO(content))
    claimed = sum(member.file_size for member in archive.infolist())
    if claimed > len(content):  # entries that overlap, each of which would be read
        raise ValueError(f"the file is damaged: its entries claim {claimed} bytes of {len(content)}")
    names = Counter(archive.namelist())
    if _RECORD not in names:
        raise ValueError(f"the file is a zip, but not a jboost model: it has no {_RECORD}")
    version, record = _without_head(_from_json(_read(archive, _RECORD)))
    arrays = [name for name, count in names.items() if count == 1 and name.endswith(".npy")]
    others = sorted(set(names) - {_RECORD, *arrays})
    if others or names[_RECORD] > 1:
        got = reprlib.repr(others or [_RECORD])
        raise ValueError(f"expected {_RECORD} and arrays (.npy), each once, got also {got}")
    return (
        version,
        record,
        {name.removesuffix(".npy"): _from_npy(name, _read(archive, name)) for name in arrays},
    )


# ---------------------------------------------------------------- its members


@contextlib.contextmanager
def _damage(what: str) -> Iterator[None]:
    """Report as ValueError whatever a damaged or hostile file makes zipfile, json or NumPy raise."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"{what}: {error}") from error


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    with _damage(f"the file is damaged at {name}"):
        member = archive.getinfo(name)
        if member.compress_type != zipfile.ZIP_STORED:  # a small file could claim to hold any amount
            raise ValueError("expected an uncompressed entry")
        return archive.read(member)  # which compares the checksum


def _to_json(record: Mapping[str, Any]) -> bytes:
    # Every string comes back, half of a surrogate pair too, and every float: its shortest digits are exact.
    return json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _from_json(content: bytes) -> Any:
    with _damage(f"the file is damaged at {_RECORD}"):
        return json.loads(content.decode("utf-8", "surrogatepass"))


def _without_head(record: Any) -> tuple[int, Record]:
    found = record.pop("format", None) if isinstance(record, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"the file is not a jboost model: expected format {FORMAT!r}, got {reprlib.repr(found)}"
        )
    version, writer = record.pop("version", None), record.pop("jboost", None)
    if type(version) is not int or version < 1 or not isinstance(writer, str):
        got = reprlib.repr((version, writer))
        raise ValueError(f"expected the versions of the format and of jboost, got {got}")
    if version > VERSION:
        raise ValueError(
            f"the file has version {version} of the format and was written by jboost {writer}, but this is "
            f"jboost {__version__}, which reads up to version {VERSION}; upgrade jboost to load it"
        )
    return version, record


def _to_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    np.lib.format.write_array(file, little_endian, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _from_npy(name: str, content: bytes) -> np.ndarray:
    with _damage(f"{name} is not an array as jboost writes them"):
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
        body = np.frombuffer(content, np.uint8, offset=file.tell())
        if version != (1, 0) or fortran_order or dtype.kind not in _NUMBERS:
            raise ValueError(f"version {version}, Fortran order {fortran_order}, dtype {dtype}")
        if math.prod(shape) * dtype.itemsize != body.size:
            raise ValueError(f"shape {shape} of {dtype} needs another size than {body.size} bytes")
        if dtype.kind == "b" and body.max(initial=0) > 1:
            raise ValueError("booleans other than 0 and 1")
        return body.view(dtype).reshape(shape).astype(dtype.newbyteorder("="))
