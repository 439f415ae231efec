"""What a derivative in reverse keeps of each round, and what it computes again (checkpointing)."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import jax
from jax.ad_checkpoint import checkpoint_name

NAME = "kept by jboost"
Arrays = TypeVar("Arrays")

# Of a function so marked, a derivative in reverse keeps the arguments and what is marked by `kept` on the way.
# In a scan nothing can be shared with the next pass, so there is no need to prevent it.
computed_again = partial(
    jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names(NAME), prevent_cse=False
)


def kept(arrays: Arrays) -> Arrays:
    """Mark arrays that take long to compute and little memory."""
    return jax.tree.map(lambda array: checkpoint_name(array, NAME), arrays)
