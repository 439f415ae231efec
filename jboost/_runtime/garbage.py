"""Python's garbage collector, which looks at all objects of a process, those of JAX and scikit-learn included."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected(lasting: bool = False) -> Iterator[None]:
    """Do without the collector while many objects are made: in an import, or as a program is traced.

    It would look at all of them again and again and find nothing, which takes a tenth of the time of an import.
    Reference counts free what they always do. Where the user has turned it off, it stays so.

    Parameters
    ----------
    lasting : bool
        What is made will stay. It is then old at once, instead of after one more look at all of it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if lasting and not gc.get_freeze_count():  # else the user's frozen objects would thaw
                gc.freeze()
                gc.unfreeze()
            gc.enable()
