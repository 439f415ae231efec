"""A model in a file, bit for bit and without running anything from it, or as a function for where jboost is not."""

from jboost.io.exporting import export
from jboost.io.saving import load, save

__all__ = ["export", "load", "save"]
