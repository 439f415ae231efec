"""Compiled programs kept on disk for the next process of the same user, on a CPU.

A file holds what XLA made of one program. Its name is a hash of the program's text and of all that the machine code
depends on: versions, the C++ library, processor, flags and settings. So another machine or version finds nothing.
Where a program is made of the library's own code alone, a second file, found by the program's name, says where it is:
so it need not be traced to be found. Whatever goes wrong, the program is compiled as if there were no folder.

The environment variable JBOOST_CACHE=0 turns the cache off; a path there is used instead of the default folder.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import pickle
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jaxlib.version

from jboost._runtime import library
from jboost._runtime.program_files import SUFFIX, find_folder, read, write

# Functions outside of the program that it may call, found by name; others may be addresses in this process.
OWN_CALL = re.compile(r"custom_call\s*@(jboost_\w+)\b")
KNOWN_CALL = re.compile(r"custom_call\s*@(?:jboost_|lapack_)\w+\b")
NOT_FOR_STORING = re.compile(r"custom_call|stablehlo\.(?:infeed|outfeed|send|recv)\b")

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Alias(NamedTuple):
    """Where the program of a name is, and what else would be known if it had been traced."""

    file: str
    called: tuple[str, ...]  # functions of the C++ library
    results: Any  # what the program returns, with numbers in place of the arrays


def begun(
    lower: Callable[[], Any], arguments: tuple[Any, ...], about: Any, name: str | None
) -> Callable[[], Callable[..., Any]]:
    """Find a program on disk, or trace it; return the function that compiles and stores what was not found by name.

    That function runs in any thread, while tracing belongs to the one whose settings are meant.

    Parameters
    ----------
    lower : function
        Makes the `jax.stages.Lowered` of the program.
    arguments : tuple
        What it will be called with.
    about : object
        What else it depends on: types and places of the arguments, settings; by its `repr`.
    name : str or None
        What tells it from others, if that is known: then a program on disk is found without being traced.
    """
    folder = _or_none(find_folder)
    if folder is None or jax.default_backend() != "cpu" or len(jax.devices()) > 1:
        return lower().compile
    files = None if name is None else _or_none(_library_files)
    alias = None if files is None else _file_of((name, files), about)
    found = None if alias is None else _or_none(lambda: _load_named(folder / alias, arguments))
    if found is not None:
        return lambda: found
    return functools.partial(_compiled_by_text, lower(), folder, alias, about)


def _compiled_by_text(lowered: Any, folder: Path, alias: str | None, about: Any) -> Callable[..., Any]:
    text = lowered.as_text()
    taken = _or_none(lambda: _taken(lowered))
    # It may refer to this process, or not be told from others.
    if len(KNOWN_CALL.findall(text)) != len(NOT_FOR_STORING.findall(text)) or taken is None:
        return lowered.compile()
    # Types of results beside the text: it does not say which numbers are weakly typed or keys.
    results = [(one.shape, one.dtype, one.weak_type) for one in jax.tree.leaves(lowered.out_info)]
    path = folder / _file_of((text, taken, results), about)
    made = _or_none(lambda: _load(path, lowered.in_tree, lowered.out_tree))
    if made is None:
        made = lowered.compile()
        # What JAX has read from a file cannot be written to another.
        if _jax_stores_itself() or not _or_none(lambda: _store(path, made)):
            return made
    if alias is not None:
        _or_none(lambda: _store_alias(folder / alias, path.name, text, lowered.out_tree))
    return made


def _or_none(function: Callable[[], _T]) -> _T | None:
    """Call it; whatever goes wrong, the program can be compiled."""
    try:
        return function()
    except Exception as error:
        _log.info("stored programs: %s: %s", type(error).__name__, error)
        return None


# ------------------------------------------------------------ which program


def _taken(lowered: Any) -> list[str] | None:
    """Name the arguments on which anything depends: JAX leaves out the others, and the text does not say which.

    None if JAX does not tell their names.
    """
    operations = lowered.compiler_ir().body.operations
    main = next(one for one in operations if getattr(one.name, "value", None) == "main")
    names = [str(argument.location) for argument in main.arguments]
    return names if len(set(names)) == len(names) and not any("unknown" in name for name in names) else None


def _file_of(program: tuple[Any, ...], about: Any) -> str:
    parts = (*program, about, *_surroundings())
    return hashlib.sha256("\0".join(map(repr, parts)).encode()).hexdigest() + SUFFIX


def _surroundings() -> tuple[Any, ...]:
    """Return what machine code depends on beside the program."""
    device = jax.devices()[0]
    return (
        *_versions(),
        device.client.platform_version,
        device.device_kind,
        os.environ.get("XLA_FLAGS", ""),
        os.cpu_count(),
        library.n_threads(None),
    )


@functools.cache
def _versions() -> tuple[Any, ...]:
    """Return what stays the same in a process: versions, the C++ library, the processor."""
    path = library.path()
    native = "" if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    return (
        sys.version,
        jax.__version__,
        jaxlib.version.__version__,
        native,
        platform.machine(),
        _processor(),
    )


@functools.cache
def _library_files() -> str | None:
    """Return a hash of the library's code, of which a program with a name is made; None if it came without."""
    package = Path(__file__).parent.parent
    files = sorted(package.rglob("*.py"))
    content = (
        part for file in files for part in (str(file.relative_to(package)).encode(), file.read_bytes())
    )
    return hashlib.sha256(b"\0".join(content)).hexdigest() if files else None


def _processor() -> str:
    """Name the processor and what it can do."""
    try:
        with open("/proc/cpuinfo") as lines:
            about = [line for line in iter(lines.readline, "\n") if line.strip()]
    except OSError:
        return f"{platform.processor()} {platform.version()}"
    named = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")
    return "".join(line for line in about if line.startswith(named) and "MHz" not in line)


def _jax_stores_itself() -> bool:
    values = jax.config.values
    return bool(values["jax_enable_compilation_cache"] and values["jax_compilation_cache_dir"])


# ------------------------------------------------------------ files


def _load(path: Path, in_tree: Any, out_tree: Any) -> Callable[..., Any] | None:
    """Read a program; None if there is none, or it is not what was written."""
    from jax.experimental import serialize_executable

    held = read(path)
    return None if held is None else serialize_executable.deserialize_and_load(held, in_tree, out_tree)


def _load_named(path: Path, arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    held = read(path)
    if held is None:
        return None
    alias: _Alias = pickle.loads(held)
    if not library.provides(alias.called):
        return None
    return _load(path.parent / alias.file, *map(jax.tree.structure, ((arguments, {}), alias.results)))


def _store(path: Path, made: Any) -> bool:
    from jax.experimental import serialize_executable

    write(path, serialize_executable.serialize(made)[0])
    return True


def _store_alias(path: Path, program: str, text: str, out_tree: Any) -> None:
    if (
        "@lapack_" in text
    ):  # JAX makes these functions known as it lowers a program, so such a program must be
        return
    results = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    write(path, pickle.dumps(_Alias(program, tuple(sorted(set(OWN_CALL.findall(text)))), results)))
