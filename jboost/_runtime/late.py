"""Names of a package whose modules are imported when they are asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jboost._runtime.garbage import uncollected


def late_names(
    package: str, names: Mapping[str, Sequence[str]], rooms: Sequence[str] = ()
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Parameters
    ----------
    package : str
        Its own name.
    names : mapping
        Which names each module lends the package.
    rooms : sequence of str
        Packages inside it that are names of it themselves.
    """
    homes = {name: home for home, lent in names.items() for name in lent}
    homes |= {name: f"{package}.{name}" for name in rooms}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with uncollected(lasting=True):
            module = importlib.import_module(homes[name])
        found = module if name in rooms else getattr(module, name)
        setattr(sys.modules[package], name, found)  # asked for again, it is there
        return found

    return find
