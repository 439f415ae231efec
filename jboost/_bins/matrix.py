"""Read any two-dimensional input as a matrix of numbers, for models that need the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins.binning import Binned
from jboost._bins.columns import HOW_TO_HAVE_CATEGORIES
from jboost._bins.order import match_names
from jboost._bins.table import read_table
from jboost._runtime.typing import is_traced

HOW_TO_ENCODE = "; encode it, for example by sklearn.preprocessing.OneHotEncoder"


def read_matrix(
    X: Any, missing: float | None = None, names: tuple[str, ...] | None = None
) -> Float[np.ndarray | Array, "n f"]:
    """Return the numbers of X: float64 on the host with NaN where one is missing, or a traced array as it is.

    Of a data frame those columns that have the names, in this order, where names are given.

    Raises
    ------
    TypeError, ValueError
        Where X is not two-dimensional, or holds categories or infinite numbers.
    """
    if isinstance(X, Binned):
        raise TypeError("X must hold the numbers themselves here, got a Binned, which holds codes of them")
    if is_traced(X):
        matrix = jnp.asarray(X, jnp.result_type(float))
        if matrix.ndim != 2:
            raise ValueError(f"X must have shape [n f], got {matrix.shape}")
        return matrix
    table = read_table(X, missing)
    for j, is_categorical in enumerate(table.categorical):
        if is_categorical:
            raise TypeError(f"X must hold numbers in {table.label(j)}, got categories{HOW_TO_ENCODE}")
    if table.matrix is not None:
        values = np.array(table.matrix, np.float64)
    else:
        order: Sequence[int] = range(table.shape[1])
        if names is not None and table.names is not None:
            order = match_names(names, table.names, "the model was fitted to")
        values = np.empty(table.shape)
        try:
            for i, j in enumerate(order):
                values[:, i] = table.numbers(j)
        except TypeError as error:  # a linear function has no other use for categories
            raise TypeError(str(error).replace(HOW_TO_HAVE_CATEGORIES, HOW_TO_ENCODE)) from error
    infinite = np.isinf(values)
    if infinite.any():
        row, j = np.argwhere(infinite)[0]
        raise ValueError(f"X must be finite or missing, got {values[row, j]} in {table.label(j)}, row {row}")
    return values
