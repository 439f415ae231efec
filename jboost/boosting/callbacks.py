"""Functions of the user's that a fit calls between chunks of rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jboost.boosting.stopping import History


@dataclass(frozen=True, eq=False)
class Progress:
    """Where a fit stands: what its callbacks are given.

    Attributes
    ----------
    n_rounds : int
        Rounds run so far, those of an initial model not included.
    history : History
        Their losses and metrics, and the best of them so far.
    seconds : float
        Since the first round began.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> def stop_when_good(progress):
    ...     return bool(progress.history.train_loss[-1] < 0.5)
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], callbacks=[stop_when_good])
    >>> model.n_trees < 100
    True
    """

    n_rounds: int
    history: History
    seconds: float


Callback = Callable[[Progress], bool | None]


def check_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple; raise unless they are functions and can be called."""
    if callbacks is None:
        return ()
    if not isinstance(callbacks, Iterable) or isinstance(callbacks, str | bytes):
        raise TypeError(f"callbacks must be a list of functions of a jboost.Progress, got {callbacks!r}")
    functions = tuple(callbacks)
    for function in functions:
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"callbacks must hold functions of a jboost.Progress, got {function!r}")
    return functions


def call_all(callbacks: tuple[Callback, ...], progress: Progress) -> bool:
    """Call them all, and say whether one of them asks to stop."""
    answers = [callback(progress) for callback in callbacks]
    for answer in answers:
        if answer is not None and not isinstance(answer, bool | np.bool_):
            raise TypeError(f"callbacks must return True to stop, or False or None to go on, got {answer!r}")
    return any(answers)
