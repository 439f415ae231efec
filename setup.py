"""Builds the optional C++ library. Everything else is declared in pyproject.toml.

It needs a C++17 compiler and the headers of the JAX in use; without either, jboost is installed without it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from glob import glob
from os import cpu_count
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# Each has a native.cpp and headers.
ROOMS = [
    "jboost/_bins",
    "jboost/_fixed_point",
    "jboost/_histogram",
    "jboost/_model/scoring",
    "jboost/_objective",
    "jboost/_random",
    "jboost/_tree",
    "jboost/_tree/sorted_columns",
]


SAME_BITS = (  # no fused multiplications, as in the plain JAX version; no traps to wait for, so loops become vectors
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
)


class BuildPlainLibrary(build_ext):
    """Build a shared library for ctypes: it knows nothing of Python, so one file serves every version."""

    def get_ext_filename(self, ext_name):
        """Leave out the tag of the Python version."""
        return super().get_ext_filename(ext_name).split(".")[0] + (
            ".pyd" if self.compiler_is_msvc() else ".so"
        )

    def get_export_symbols(self, ext):
        """Return no PyInit function: there is none."""
        return ext.export_symbols

    def compiler_is_msvc(self):
        """Say whether options are written in the way of Microsoft's compiler."""
        return getattr(self.compiler, "compiler_type", "unix") == "msvc"

    def build_extension(self, ext):
        """Add the options of the compiler that was found."""
        ext.extra_compile_args = (
            ["/std:c++17", "/O2", "/EHsc"]
            if self.compiler_is_msvc()
            else ["-std=c++17", "-O3", "-g0", "-fvisibility=hidden", *SAME_BITS]
        )
        self.compiler.compile = partial(compile_at_once, self.compiler.compile)
        super().build_extension(ext)


def compile_at_once(
    compile_all: Callable[..., list[str]], sources: Sequence[str], **options: Any
) -> list[str]:
    """Compile as many files at a time as there are processors: setuptools goes from one to the next."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        objects = pool.map(lambda source: compile_all([source], **options), sources)
        return [name for names in objects for name in names]


def extensions():
    """Return the C++ extension, or nothing without JAX."""
    try:
        from jax.ffi import include_dir
        from jaxlib import version
    except ImportError:
        return []
    return [
        Extension(
            "jboost._runtime._library",
            sources=["jboost/_runtime/library.cpp", *(f"{room}/native.cpp" for room in ROOMS)],
            depends=[
                header
                for room in ("jboost/_runtime", "jboost/_split", *ROOMS)
                for header in glob(f"{room}/*.h")
            ],
            include_dirs=[include_dir()],
            define_macros=[("JBOOST_JAXLIB", f'"{version.__version__}"')],
            language="c++",
            optional=True,
        )
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildPlainLibrary})
