"""Gains and leaf values: equations (5) to (7) of Chen and Guestrin, "XGBoost" (KDD 2016), with an L1 penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from jboost._runtime.typing import pytree, static_field
from jboost._spec import Hyper, Spec
from jboost._split.quadratic import quadratic_form


@pytree
class Rules:
    """What makes a split good: the regularisation, how the statistics are kept in fixed point, and further conditions.

    `weigh` and `combine` are those of a `Growth`, and `carry` what its nodes were given; None: there are none.
    """

    hyper: Hyper
    factor: Float[Array, " c"]  # what each statistic was multiplied by before it was rounded; a power of two
    spec: Spec = static_field()
    weigh: Callable[..., Array] | None = static_field(default=None)
    combine: Callable[[Array], Array] | None = static_field(default=None)
    carry: Any = None

    @property
    def unit(self) -> Float[Array, " c"]:
        """The value of one unit of each fixed-point statistic."""
        return 1 / self.factor

    @property
    def n_outputs(self) -> int:
        """How many outputs the statistics are of: g and h of each, perhaps h of each two, perhaps a count of rows."""
        if not self.spec.crosses_outputs:
            return self.factor.size // 2
        return (math.isqrt(8 * (self.factor.size - self.spec.counts_rows) + 9) - 3) // 2  # of k (k + 3) / 2

    @property
    def n_pairs(self) -> int:
        """How many of the statistics are g and h of the outputs, in turn; those of two outputs follow them."""
        return 2 * self.n_outputs


def soft_threshold(g: Float[Array, "..."], reg_alpha: Float[Array, "*#any"] | float) -> Float[Array, "..."]:
    """T(g) = sign(g) max(|g| - alpha, 0): what the L1 penalty leaves of a gradient sum."""
    return g - jnp.clip(g, -reg_alpha, reg_alpha)


def leaf_value(g: Float[Array, "..."], h: Float[Array, "..."], hyper: Hyper) -> Float[Array, "..."]:
    """w* = -T(G) / (H + lambda), equation (5) with L1, before shrinkage; 0 where H + lambda is 0."""
    denominator = h + hyper.reg_lambda
    usable = denominator > 0
    value = jnp.where(usable, -soft_threshold(g, hyper.reg_alpha) / jnp.where(usable, denominator, 1.0), 0.0)
    return limit_step(value, hyper)


def limit_step(value: Float[Array, "..."], hyper: Hyper) -> Float[Array, "..."]:
    """Bound a leaf value by max_delta_step, unless that is 0."""
    bound = jnp.where(hyper.max_delta_step > 0, hyper.max_delta_step, jnp.inf)
    return jnp.clip(value, -bound, bound)


def node_gain(left: Int[Array, "c l f"], total: Int[Array, "c l 1"], rules: Rules) -> Float[Array, "l f"]:
    """Equation (7): half the score of both children less the parent's, minus gamma; -inf if inadmissible."""
    hyper, spec = rules.hyper, rules.spec
    n_pairs, scale = rules.n_pairs, rules.unit[:, None, None]
    sides = (left, total - left)  # exact integers: both children sum to the parent

    def score(sums: Int[Array, "c l f"]) -> Float[Array, "l f"]:
        g, h = (real(sums[c:n_pairs:2], scale[c:n_pairs:2]) for c in (0, 1))
        slope, denominator = soft_threshold(g, hyper.reg_alpha), h + hyper.reg_lambda
        if spec.crosses_outputs:
            crossed = slice(n_pairs, n_pairs + rules.n_outputs * (rules.n_outputs - 1) // 2)
            return quadratic_form(slope, denominator, real(sums[crossed], scale[crossed]))
        squared = jnp.square(slope)
        return sum_in_pairs(
            jnp.where(denominator > 0, squared / jnp.where(denominator > 0, denominator, 1.0), 0.0)
        )

    def admissible(sums: Int[Array, "c l f"]) -> Bool[Array, "l f"]:
        h = real(sums[1:n_pairs:2], scale[1:n_pairs:2]).max(axis=0)
        enough = (h > 0) & (h >= hyper.min_child_weight)
        return enough & (sums[-1] >= spec.min_child_samples) if spec.counts_rows else enough

    children, parent = score(sides[0]) + score(sides[1]), score(total)
    gain = 0.5 * (children - parent)
    noise = 4 * jnp.finfo(gain.dtype).eps * children  # what rounding alone can gain
    gain = jnp.where(gain > noise, gain - hyper.gamma, -jnp.inf)
    return jnp.where(admissible(sides[0]) & admissible(sides[1]), gain, -jnp.inf)


def candidate_gain(
    left: Int[Array, "c l f"], total: Int[Array, "c l 1"], columns: Int[Array, " f"], rules: Rules
) -> Float[Array, "s f"]:
    """The gain of a candidate in each of these columns: of each node, or of all together (symmetric growth, s = 1)."""
    gain = node_gain(left, total, rules)
    if rules.weigh is not None:
        gain = rules.weigh(rules.carry, gain, left, total - left, columns, rules)
    if not rules.spec.symmetric:
        return gain
    return (rules.combine or sum_of_gains)(gain)[None]


def sum_of_gains(gain: Float[Array, "l f"]) -> Float[Array, " f"]:
    """Sum over the nodes that a split helps; the others do without it at no cost."""
    return sum_in_pairs(jnp.maximum(gain, 0.0))


def real(sums: Int[Array, "..."], scale: Float[Array, "..."]) -> Float[Array, "..."]:
    """Return fixed-point sums in real units."""
    return sums.astype(scale.dtype) * scale


def sum_in_pairs(x: Float[Array, "m ..."]) -> Float[Array, "..."]:
    """Sum over the first axis in a fixed order, neighbours first: the same bits on every platform."""
    while x.shape[0] > 1:
        last = x[x.shape[0] // 2 * 2 :]
        x = jnp.concatenate([x[0:-1:2] + x[1::2], last])
    return x[0]
