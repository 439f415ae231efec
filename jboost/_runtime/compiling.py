"""How XLA compiles the library's programs: soon where they are small, for speed where they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

MANY = 2**20  # numbers in the largest argument, beyond which what a program takes to run counts for more
# XLA's earlier way to make loops of fused operations: half the time to compile, the same bits, and loops that are as
# fast but for some that take a third longer. JAX 0.12 has it no more.
SOON = {"xla_cpu_use_fusion_emitters": False}

_refused: list[str] = []  # what XLA said of these options, once it did


def compiled(lowered: Any, arguments: tuple[Any, ...]) -> Callable[..., Any]:
    """Compile what was traced for such arguments."""
    if jax.default_backend() != "cpu" or _refused or max(map(np.size, arguments), default=0) > MANY:
        return lowered.compile()
    try:
        return lowered.compile(compiler_options=SOON)
    except jax.errors.JaxRuntimeError as error:
        if "No such compile option" not in str(error):
            raise
        _refused.append(str(error))
        return lowered.compile()
