"""Inverse links, from raw scores to predictions: those that the built-in losses have, and other names for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jboost._runtime.typing import identity


def sigmoid(score: jax.Array) -> jax.Array:
    """Return 1 / (1 + exp(-score)): the probability of y = 1 from its log odds."""
    return jax.nn.sigmoid(score)


def sigmoid_of_double(score: jax.Array) -> jax.Array:
    """Return 1 / (1 + exp(-2 score)): the probability of y = 1 from half its log odds."""
    return jax.nn.sigmoid(2 * score)


def softmax_of_scores(score: jax.Array) -> jax.Array:
    """Return exp(score_k) / sum_j exp(score_j): the probability of each class."""
    return jax.nn.softmax(score, axis=-1)


def exp(score: jax.Array) -> jax.Array:
    """Return exp(score): the mean from its logarithm."""
    return jnp.exp(score)


INVERSE_LINKS = {
    link.__name__: link for link in (identity, sigmoid, sigmoid_of_double, softmax_of_scores, exp)
}

_SAME: dict[Any, Callable[[jax.Array], jax.Array]] = {
    jnp.exp: exp,
    jax.nn.sigmoid: sigmoid,
    jax.scipy.special.expit: sigmoid,
    jax.nn.softmax: softmax_of_scores,
}


def built_in(link: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the built-in link that this function of JAX's is, or the function itself."""
    try:
        return _SAME.get(link, link)
    except TypeError:  # it cannot be hashed
        return link
