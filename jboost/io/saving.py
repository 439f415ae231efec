"""`save` and `load`: check the arguments, then go from a model to a record, an archive, a file, and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jboost._bins import edges_from_exact
from jboost._model.ensemble import Ensemble, check_model, check_not_rounded
from jboost._model.linear import LinearModel
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced
from jboost.io.archive import VERSION, read_archive, write_archive
from jboost.io.checks import check_record
from jboost.io.linear import BOOSTER, check_linear_record, linear_to_record, record_to_linear
from jboost.io.record import to_model, to_record


@moves_arrays
def save(model: Ensemble | LinearModel, path: str | os.PathLike[str]) -> None:
    """Write a model to a file.

    The file is replaced as a whole: whatever goes wrong, the old one stays and no partial one is left. Equal
    models give equal bytes.

    Parameters
    ----------
    model : Ensemble or LinearModel
        A fitted model.
    path : str or path-like
        Where to; its folder must exist. Any ending will do, `.jboost` is a good one.

    Raises
    ------
    TypeError
        If the model is none, or is traced, or `path` is not a path.
    ValueError
        If the arrays of the model do not fit together (it was changed by hand, or is a batch from `vmap`).
    OSError
        If the file cannot be written: no such folder, no permission, no space.

    Notes
    -----
    The file is a zip archive that `numpy.load` opens too: the arrays as .npy, and `model.json` with names,
    categories, choices and the version of the format. The inverse link of a built-in loss is stored by name;
    one of your own is code, which the file does not hold: give it to `load`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jboost.save(model, os.path.join(folder, "line.jboost"))
    ...     again = jboost.load(os.path.join(folder, "line.jboost"))
    >>> bool((jboost.predict(again, X) == jboost.predict(model, X)).all())
    True
    """
    if (
        not isinstance(model, Ensemble | LinearModel)
        and hasattr(model, "predict")
        and not hasattr(model, "model_")
    ):
        raise TypeError(
            f"model must be a jboost.Ensemble or LinearModel, got {type(model).__name__}: pickle it instead"
        )
    if not isinstance(model, LinearModel):
        check_model(model)
    name = _path_name(path)
    if is_traced(model):
        raise TypeError("model must be concrete, got a traced one; save it outside of jit, vmap and grad")
    is_linear = isinstance(model, LinearModel)
    record, arrays = linear_to_record(model) if is_linear else to_record(model)
    try:  # what is saved can be loaded
        if is_linear:
            check_linear_record(record, arrays)
        else:
            check_record(VERSION, record, arrays)
            _check_upper(model)
    except ValueError as error:
        raise ValueError(f"model cannot be saved: {error}") from error
    write_archive(name, record, arrays)


@moves_arrays
def load(
    path: str | os.PathLike[str], *, inverse_link: Callable[[jax.Array], jax.Array] | None = None
) -> Any:
    """Read a model from a file that `save` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.
    inverse_link : callable, optional
        Takes the place of the stored inverse link. A model saved with one of your own needs it, raw scores
        apart: without it, `model.inverse_link` raises RuntimeError when it is called.

    Returns
    -------
    Ensemble or LinearModel
        The model, every array as it was.

    Raises
    ------
    ValueError
        If the file is truncated, damaged, of another program or of a newer format, or holds what cannot be a
        model; if the model is in float64 and JAX's x64 is off. The message names the file and what is wrong.
    TypeError
        If `path` is not a path, or `inverse_link` no hashable function.
    OSError
        If the file cannot be read.

    Notes
    -----
    No code from the file is run, and nothing is unpickled.

    A model in float64 is never rounded silently, since it would predict something else: load and use it with
    x64 on. To round it on purpose, load it under ``jax.enable_x64(True)`` and apply there
    ``jax.tree.map(lambda a: a.astype("float32") if a.dtype == "float64" else a, model)``.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     jboost.save(model, os.path.join(folder, "line.jboost"))
    ...     jboost.load(os.path.join(folder, "line.jboost")).n_trees
    3
    """
    name = _path_name(path)
    _check_link(inverse_link)
    with open(name, "rb") as file:
        content = file.read()
    try:
        version, record, arrays = read_archive(content)
        is_linear = record.get("booster") == BOOSTER
        if is_linear:
            check_linear_record(record, arrays)
        else:
            check_record(version, record, arrays)
        check_not_rounded({name: array for name, array in arrays.items() if name != "edges"})
        return (record_to_linear if is_linear else to_model)(record, arrays, inverse_link)
    except ValueError as error:
        raise ValueError(f"cannot load {name!r}: {error}") from error


def _path_name(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"path must be a str or a path-like object, got {type(path).__name__}")
    name = os.fsdecode(path)
    if not os.path.basename(name):
        raise ValueError(f"path must name a file, got {name!r}")
    return name


def _check_link(link: Any) -> None:
    if link is None:
        return
    if not callable(link):
        raise TypeError(f"inverse_link must be a function of scores, got {link!r}")
    try:
        hash(link)
    except TypeError as error:
        raise TypeError(f"inverse_link must be hashable, as programs are kept by it, got {link!r}") from error


def _check_upper(model: Ensemble) -> None:
    """Raise unless the edges rounded to float32 follow from the exact ones: the file holds only these."""
    edges = model.edges
    derived = edges_from_exact(edges.exact, edges.n_codes, edges.max_bins, edges.features)
    if not np.array_equal(derived.rounded_bits, edges.rounded_bits):
        raise ValueError("edges.rounded_bits: expected edges.exact rounded down to float32")
