"""What is averaged: scores, predictions, log odds, or a function of the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._model.ensemble import Ensemble
from jboost._runtime.arguments import check_choice
from jboost._runtime.programs import program
from jboost._runtime.typing import is_traced

Response = Literal["score", "prediction", "log_odds"] | Callable[[Any], Any]
LINEAR = ("score", "log_odds")  # of which the mean is that of the mean score


def check_response(response: Any, model: Ensemble) -> None:
    """Refuse what is no response, and log odds of a single score."""
    if not callable(response):
        check_choice("response", response, ("score", "prediction", "log_odds"), " or a function of scores")
    if isinstance(response, str) and response == "log_odds" and model.n_outputs == 1:
        raise ValueError(
            "response='log_odds' must come with a score for each class, got a model of one output: "
            "the score of a logistic loss is its log odds"
        )


def respond(response: Any, model: Ensemble, score: Float[Any, "n k"]) -> Any:
    """Return what is asked for, of raw scores [n k]: an array [n ...]."""
    if isinstance(response, str) and response == "log_odds":
        return score - score.mean(axis=-1, keepdims=True)  # ESL 10.52: log p_k less its mean over the classes
    shown = score[:, 0] if model.scalar_output else score
    if isinstance(response, str):
        return _linked(model.inverse_link, shown) if response == "prediction" else shown
    found = response(shown)
    if np.shape(found)[:1] != (score.shape[0],):
        raise ValueError(
            f"response must return an array with {score.shape[0]} rows, as the scores have, got shape {np.shape(found)}"
        )
    found = jnp.asarray(found) if is_traced(found) else np.asarray(found)
    return (
        found if jnp.issubdtype(found.dtype, jnp.floating) else found.astype(score.dtype)
    )  # a share of the rows


@program(static_argnums=0)
def _linked(link: Callable[[Array], Array], score: Array) -> Array:
    return link(score)
