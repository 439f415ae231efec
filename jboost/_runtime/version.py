"""The version of the installed package."""

from __future__ import annotations

import importlib.metadata

try:
    __version__ = importlib.metadata.version("jboost")
except importlib.metadata.PackageNotFoundError:  # run from a source tree
    __version__ = "unknown"
