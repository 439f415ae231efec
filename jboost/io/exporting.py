"""A model as a compiled function that runs where jboost is not installed."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax import export as jax_export
from jaxtyping import Array, Float, Float32

from jboost._bins import read_bins
from jboost._model.ensemble import Ensemble, check_type, score_in_jax
from jboost._runtime.arguments import check_choice
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import is_traced

Output = Literal["score", "prediction"]


@moves_arrays
def export(model: Ensemble, output: Output = "score") -> Any:
    """Make a function of raw features that needs JAX alone: for other processes, machines and runtimes of StableHLO.

    Parameters
    ----------
    model : Ensemble
        A fitted model, or a batch of them as `vmap` over fits gives it.
    output : {"score", "prediction"}
        Whether the function returns raw scores, as `jboost.predict` does, or what `model.inverse_link` makes of them.

    Returns
    -------
    jax.export.Exported
        `exported.call(X)` takes float32 [n, f], any number of rows from 1, and returns [n] or [n, k], with a leading
        axis for each of a batch of models. It is lowered for CPU, CUDA and TPU. NaN is missing; a category is given as
        its number. `exported.serialize()` (which needs flatbuffers) gives bytes for `jax.export.deserialize`; JAX reads
        those of its versions of the last six months.

    Raises
    ------
    TypeError
        If the model is none or is traced, or a category is a string: those exist on the host only.
    ValueError
        If `output` is another word, or the model is in float64 and JAX's x64 is off.
    RuntimeError
        If predictions are asked for and the inverse link was left behind when the model was saved.

    Notes
    -----
    The features are compared in float32, so a float64 value may fall on the other side of an edge that lies between
    it and the nearest float32. Scores are those of `jboost.predict` on the same float32 rows.

    References
    ----------
    https://docs.jax.dev/en/latest/export/export.html

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.arange(8.0, dtype=np.float32)[:, None]
    >>> model, _ = jboost.fit(jboost.losses.squared_error, X, X[:, 0], spec=jboost.Spec(n_estimators=3))
    >>> exported = jboost.io.export(model)
    >>> score = exported.call(X)
    >>> bool((score == jboost.predict(model, X)).all())
    True
    """
    _check(model, output)
    function = partial(_outputs, output)
    for _ in range(model.base.ndim - 1):
        function = jax.vmap(function, in_axes=(0, None))
    shape = jax_export.symbolic_shape(f"n, {model.edges.features.n_columns}")
    X = jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax_export.export(jax.jit(partial(function, model)), platforms=("cpu", "cuda", "tpu"))(X)


def _outputs(output: Output, model: Ensemble, X: Float32[Array, "n f"]) -> Float[Array, "n *k"]:
    score = score_in_jax(model, read_bins(model.edges, X))
    return score if output == "score" else model.inverse_link(score)


def _check(model: Any, output: Any) -> None:
    check_type(model)
    if is_traced(model):
        raise TypeError("model must be concrete, got a traced one; export it outside of jit, vmap and grad")
    check_choice("output", output, get_args(Output))
    for j, known in enumerate(model.edges.features.categories):
        if known is not None and "strings" in known.kinds:
            names = model.edges.features.names
            column = f"column {j}" if names is None else f"column {names[j]!r}"
            raise TypeError(
                f"model must have numbers as categories to be exported, got {known.values[-1]!r} in {column}: "
                "fit it on codes of the categories"
            )
