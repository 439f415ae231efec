"""What row, group and batch losses have in common: their fields, their checks, and how JAX takes them apart."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Float

from jboost._objective.leaf_rules import LeafRule, Newton
from jboost._objective.rows import Rows, gathered
from jboost._runtime.arguments import check_choice, one_by_name
from jboost._runtime.dividing import all_rows
from jboost._runtime.parametrised import ByValue, Parametrised, parametrised
from jboost._runtime.typing import identity

HessianKind = Literal["diagonal", "full", "first_order"]

_FUNCTIONS = ("curvature", "constant", "diagonal", "majorant", "adapt")  # that a loss may bring
_PARTS = ("function", "leaf", *_FUNCTIONS)  # which may hold numbers


@dataclass(frozen=True, eq=False)
class Objective(ByValue):
    """Fields of `Loss`, `GroupLoss` and `BatchLoss`, which say what they mean.

    JAX sees a pytree: the arrays and floats in its functions and its leaf rule are its leaves, all else is static.
    """

    function: Callable[..., Any]
    n_outputs: int | None = None
    inverse_link: Callable[[jax.Array], jax.Array] = identity
    hessian: HessianKind = "diagonal"
    hessian_floor: float = 1e-6
    leaf: LeafRule = field(default_factory=Newton)
    check_target: Callable[[Any], None] | None = None
    name: str | None = None
    curvature: Callable[..., Any] | None = None
    allow_nan: bool = False
    constant: Callable[..., Any] | None = None
    diagonal: Callable[..., Any] | None = None
    majorant: Callable[..., Any] | None = None
    adapt: Callable[..., Any] | None = None
    homogeneous: bool = False

    needs_all_rows: ClassVar[bool] = False  # whether the rows depend on each other
    pads: ClassVar[bool] = True  # whether rows of weight 0 may be added

    def __post_init__(self) -> None:
        for name in ("function", "inverse_link"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable, got {getattr(self, name)!r}")
        for name in ("check_target", *_FUNCTIONS):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise TypeError(f"{name} must be callable or None, got {getattr(self, name)!r}")
        if self.n_outputs is not None and (type(self.n_outputs) is not int or self.n_outputs < 1):
            raise ValueError(f"n_outputs must be None or an integer of at least 1, got {self.n_outputs!r}")
        check_choice("hessian", self.hessian, get_args(HessianKind))
        if not (math.isfinite(self.hessian_floor) and self.hessian_floor > 0):
            raise ValueError(f"hessian_floor must be positive and finite, got {self.hessian_floor!r}")
        if not isinstance(self.homogeneous, bool):
            raise TypeError(f"homogeneous must be True or False, got {self.homogeneous!r}")
        for name in ("leaf_values", "base_score"):
            if not callable(getattr(self.leaf, name, None)) or isinstance(self.leaf, type):
                raise TypeError(
                    f"leaf must be Newton(...), Quantile(...) or another LeafRule, got {self.leaf!r}"
                    f"{one_by_name(self.leaf, 'jboost.losses')}"
                )
        if not isinstance(getattr(self.leaf, "needs_all_rows", None), bool):
            raise TypeError(f"leaf must have needs_all_rows, True or False, got {self.leaf!r}")
        if self.needs_all_rows and getattr(self.leaf, "of_one_row", False):
            raise ValueError(
                f"leaf must be Newton(...) or LineSearch(...) for a {type(self).__name__}, whose leaves depend on each "
                f"other, got {self.leaf!r}"
            )
        if self.curvature is not None and self.hessian == "first_order":
            raise ValueError('curvature must be None with hessian="first_order", which takes 1 instead')
        for name in ("diagonal", "majorant", "adapt"):
            if getattr(self, name) is not None and self.needs_all_rows:
                raise ValueError(
                    f"{name} must be None for a {type(self).__name__}: it is about a loss of one row"
                )
        if self.hessian == "full" and self.needs_all_rows:
            raise ValueError(
                f'hessian must be "diagonal" or "first_order" for a {type(self).__name__}, got "full"'
            )

    def __call__(self, *args: Any) -> jax.Array:
        """Return the loss."""
        return self.function(*args)

    def joined(self, values: Float[jax.Array, " n"], rows: Rows) -> Float[jax.Array, " n"]:
        """Return for each row the sum over the rows that its loss depends on: itself, its group, or all of them.

        `values` are of rows as `value` gives them, which counts a row of a group once and one of a batch by its weight.
        """
        return values

    def adapted(self, score: Float[jax.Array, "n k"], rows: Rows) -> Any:
        """Return the loss of the round that begins at these scores: itself, unless it adapts to them."""
        if self.adapt is None:
            return self
        if rows.axis is not None:
            score, rows = all_rows(score, rows.axis), gathered(rows)
        shaped = score[:, 0] if self.n_outputs is None else score
        function = self.function.whole if isinstance(self.function, Parametrised) else self.function
        weight = jnp.asarray(rows.weight, score.dtype)
        return dataclasses.replace(self, function=self.adapt(function, shaped, rows.y, weight))


@dataclass(frozen=True)
class _Static:
    """What a compiled program knows of a loss; names and checks on the host are none of its business."""

    fields: tuple[Any, ...]
    others: tuple[Any, ...] = field(compare=False)  # name and check_target


_NOT_COMPARED = ("check_target", "name")
_Kind = TypeVar("_Kind", bound=Objective)


def register(kind: type[_Kind]) -> type[_Kind]:
    """Tell JAX how to take a kind of loss apart."""
    compared = [one.name for one in dataclasses.fields(kind) if one.name not in (*_PARTS, *_NOT_COMPARED)]

    def flatten(loss: Objective) -> tuple[Any, _Static]:
        parts = tuple(_as_part(getattr(loss, name)) for name in _PARTS)
        others = tuple(getattr(loss, name) for name in _NOT_COMPARED)
        return parts, _Static(tuple(getattr(loss, name) for name in compared), others)

    def unflatten(static: _Static, parts: Any) -> Any:
        loss = object.__new__(kind)  # as it was: nothing is checked anew, and leaves may be anything
        named = zip(
            (*_PARTS, *compared, *_NOT_COMPARED),
            (*map(_whole_rule, parts), *static.fields, *static.others),
            strict=True,
        )
        vars(loss).update(named)
        return loss

    jax.tree_util.register_pytree_node(kind, flatten, unflatten)
    return kind


@dataclass(frozen=True)
class _Rule:
    """A leaf rule without arrays, whose class JAX does not know."""

    rule: Any


jax.tree_util.register_pytree_node(_Rule, lambda one: ((), one.rule), lambda rule, _: _Rule(rule))


def _as_part(part: Any) -> Any:
    if part is None or isinstance(part, Parametrised):
        return part
    if callable(part):
        return parametrised(part)
    # What is no rule stands in for one, as the names that a checkpoint gives to parts without arrays.
    return _Rule(part) if jax.tree_util.all_leaves([part]) and isinstance(part, LeafRule) else part


def _whole_rule(part: Any) -> Any:
    return part.rule if isinstance(part, _Rule) else part
