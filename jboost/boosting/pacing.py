"""Work in compiled calls of half a second or so: progress, Ctrl-C and a word of the caller's come between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from jboost._runtime.caller import warn

CHUNK_SECONDS = 0.5  # what a call should take: the pace of progress and of Ctrl-C
QUIET_SECONDS = 2.0  # work shorter than this shows no progress bar unless asked to

Advance = Callable[[int], tuple[int, dict[str, str], bool]]


def in_chunks(
    advance: Advance,
    total: int,
    most: int,
    bar: Any,
    stops: Callable[[], bool] | None = None,
    interrupted: str = "interrupted: the model holds the first {} rounds",
) -> None:
    """Do `total` units of work, some at a time, until it is done or enough. Ctrl-C ends it with a warning.

    Parameters
    ----------
    advance : function
        ``advance(n) -> (count, figures, is_enough)``: does up to n units; says how many it did, what the bar is to
        show, and whether that is enough.
    total, most : int
        Units in all, and in one call.
    bar : progress_bar
        Shows them.
    stops : function, optional
        Asked after each call whether to stop.
    interrupted : str
        The warning, with a place for the number of units.
    """
    done, size = 0, 1
    with bar:
        try:
            while done < total:
                began = time.perf_counter()
                count, figures, is_enough = advance(min(size, total - done))
                if count:  # or it comes again, in another way
                    done += count
                    bar.update(count)
                    bar.set_postfix(figures, refresh=False)
                    is_enough |= stops is not None and stops()
                    size = min(_next_size(size, count, time.perf_counter() - began), most)
                if is_enough:
                    return
        except KeyboardInterrupt:
            warn(interrupted.format(done))


def progress_bar(total: int, name: str, verbose: bool | None, unit: str = "round") -> Any:
    """Make a bar of rounds or other units: shown always, never, or (None) on a terminal if it takes long."""
    hidden = None if verbose is None else not verbose  # None: hidden unless on a terminal
    delay = QUIET_SECONDS if verbose is None else 0.0
    return tqdm(total=total, desc=name, unit=unit, disable=hidden, delay=delay)


def _next_size(size: int, count: int, seconds: float) -> int:
    """Choose how many units to ask for next, at most four times as many (the first call also compiles)."""
    return int(np.clip(count * CHUNK_SECONDS / seconds, 1, 4 * size))
