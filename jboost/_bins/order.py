"""Columns of later rows, in the order of those that a model was fitted to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse

from jboost._runtime.typing import is_traced


def match_names(known: Sequence[str], got: Sequence[str], whose: str) -> list[int]:
    """Return the place that each known name has among those of X; raise where these are others."""
    place, wanted = {name: j for j, name in enumerate(got)}, set(known)
    missing = [name for name in known if name not in place]
    extra = [name for name in got if name not in wanted]
    if missing or extra:
        raise ValueError(
            f"X must have the column names that {whose}, got "
            f"missing {missing[:5]} ({len(missing)}), unexpected {extra[:5]} ({len(extra)})"
        )
    return [place[name] for name in known]


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the names that a data frame has for its columns; None of what has none."""
    if is_traced(X) or isinstance(X, np.ndarray | jax.Array | list | tuple) or scipy.sparse.issparse(X):
        return None
    if not hasattr(X, "columns") and not hasattr(X, "column_names"):
        return None
    from jboost._bins.frames import table_of_frame  # imports a library that arrays do not need

    table = table_of_frame(X, "a matrix")
    return None if table is None else table.names


def width_of(X: Any) -> int | None:
    """Return the number of columns of what has rows and columns."""
    shape = getattr(X, "shape", None) if not isinstance(X, list | tuple) else np.shape(X)
    return shape[1] if isinstance(shape, tuple) and len(shape) == 2 else None


def in_order(X: Any, names: tuple[str, ...] | None, width: int | None) -> Any:
    """Return X with its columns as they were when their names and number were these; by place where it has no names."""
    got, found = names_of(X), width_of(X)
    if names is not None and got is not None:
        places = match_names(names, got, "the model was fitted to")
        if places == list(range(len(names))):
            return X
        import narwhals.stable.v2 as nw

        return nw.from_native(X).select(*names).to_native()
    if None not in (width, found) and width != found:
        raise ValueError(f"X must have the {width} columns of fit, got {found}")
    return X


def take_rows(X: Any, there: np.ndarray) -> Any:
    """Return the rows of a matrix or a data frame where it is true, as what they are."""
    if isinstance(X, list | tuple):
        return [row for row, counts in zip(X, there, strict=True) if counts]
    if names_of(X) is not None:
        import narwhals.stable.v2 as nw

        return nw.from_native(X).filter(there.tolist()).to_native()
    if scipy.sparse.issparse(X):
        return X.tocsr()[there]
    return (X if isinstance(X, np.ndarray) or hasattr(X, "columns") else np.asarray(X))[there]
