"""Save a model to a file and load it again, bit for bit and without running anything from the file."""

from jboost.io.saving import load, save

__all__ = ["load", "save"]
