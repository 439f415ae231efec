"""What the estimators ask of a model of either kind: trees, or a linear function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxtyping import Array, Float

from jboost._model.ensemble import Ensemble, predict, staged_predict, truncate
from jboost._model.linear import LinearModel

Model = Ensemble | LinearModel


def n_rounds_of(model: Model) -> int:
    """Return the number of rounds in it."""
    return model.n_rounds if isinstance(model, LinearModel) else model.n_trees


def first_rounds(model: Model, n_rounds: int) -> Model:
    """Return the model as it was after so many rounds."""
    return model.truncate(n_rounds) if isinstance(model, LinearModel) else truncate(model, n_rounds)


def scores(model: Model, X: Any, offset: Any) -> Float[Array, "n *k"]:
    """Return the raw scores of rows."""
    if isinstance(model, LinearModel):
        return model.predict(X, offset)
    return predict(model, X, offset=offset)


def staged_scores(model: Model, X: Any, offset: Any) -> Iterator[Float[Array, "n *k"]]:
    """Yield the raw scores after one round, two rounds, and so on."""
    if isinstance(model, LinearModel):
        return model.staged_predict(X, offset)
    return staged_predict(model, X, offset=offset)
