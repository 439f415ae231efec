"""The search of `thresholds.py` in C++, called by XLA on a CPU; absent where it was not built."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Int32

from jboost import _native
from jboost._spec import Hyper, Spec
from jboost._split.formulas import Rules

TARGET = "jboost_search_thresholds"


def is_available() -> bool:
    """Say whether the C++ search can be used in this process."""
    return _native.is_available(TARGET, _is_right)


def _is_right() -> bool:
    """Split four rows with gradients -1, -1, 1, 1 and Hessians 1: the gain is 2."""
    histogram = np.zeros((4, 2, 1, 1), np.int32)
    histogram[1:3, 0, 0, 0] = -2, 2
    histogram[1:3, 1, 0, 0] = 2, 2
    hyper = Hyper(reg_lambda=0.0)
    rules = Rules(jax.tree.map(jnp.float32, hyper), jnp.ones(2, jnp.float32), Spec())
    gain, candidate = jax.jit(search_thresholds, static_argnums=2)(histogram, rules, True)
    return (float(gain[0, 0]), int(candidate[0, 0])) == (2.0, 2)


def search_thresholds(
    histogram: Int32[Array, "b c l f"], rules: Rules, has_missing: bool
) -> tuple[Float[Array, "l f"], Int[Array, "l f"]]:
    """Return gain and candidate of the best threshold of each node (or of the level) and feature."""
    spec, hyper = rules.spec, rules.hyper
    numbers = jnp.stack([hyper.reg_lambda, hyper.reg_alpha, hyper.gamma, hyper.min_child_weight])
    shape = (1 if spec.symmetric else histogram.shape[2], histogram.shape[3])
    call = jax.ffi.ffi_call(
        TARGET,
        [jax.ShapeDtypeStruct(shape, dtype) for dtype in (rules.scale.dtype, jnp.int32)],
        vmap_method="broadcast_all",
    )
    gain, candidate = call(
        histogram,
        rules.scale,
        numbers.astype(rules.scale.dtype),
        symmetric=np.bool_(spec.symmetric),
        has_missing=np.bool_(has_missing),
        min_child_samples=np.int32(spec.min_child_samples if spec.counts_rows else 0),
    )
    return gain, candidate
