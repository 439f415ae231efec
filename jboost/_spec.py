"""What a fit is asked to do: `Spec` holds shapes and choices, `Hyper` holds numbers.

`Spec` is hashable and part of the compiled program; `Hyper` is a pytree of scalars that may be traced, so
another learning rate never recompiles, and a sweep or a hypergradient is a `vmap` or a `grad` over it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import jax
import numpy as np

from jboost._runtime.arguments import check_choice, whole_number
from jboost._runtime.typing import as_array, is_traced, pytree

GrowPolicy = Literal["symmetric", "depthwise"]
MultiOutput = Literal["vector", "separate"]
Penalties = Literal["relative", "absolute"]
SplitHessian = Literal["diagonal", "full"]
Sketch = Literal["projection", "top"]
BoostingType = Literal["plain", "ordered", "crossed"]
LARGEST = 2**31 - 1  # counts are int32
MAX_DEPTH = 16  # a depthwise tree of this depth has 65,535 split slots


@dataclass(frozen=True)
class Spec:
    """Shapes and choices of a fit: static and hashable.

    Parameters
    ----------
    n_estimators : int
        Rounds of boosting, at most (early stopping may end sooner). 0 gives the base score.
    max_depth : int
        Depth of every tree, 1 to 16; a tree has ``2**max_depth`` leaves, some of which may stay empty.
    grow_policy : {"symmetric", "depthwise"}
        One split per level, shared by all its nodes (oblivious trees, as in CatBoost), or one per node.
    multi_output : {"vector", "separate"}
        One tree a round with a vector in each leaf, or one tree a round for each output.
    min_child_samples : int
        Rows that each child of a split must hold. Above 1, rows are counted beside g and h.
    max_cat_to_onehot : int
        A categorical feature with at most this many categories in a node is split one against the
        rest; with more, its categories are sorted by G / (H + cat_smooth) and cut once. A tree for several
        outputs tries the order of their sums, and that of each of the four whose gradients differ most.
    n_iter_no_change : int or None
        Stop after this many rounds without a better validation metric. None never stops.
    penalties : {"relative", "absolute"}
        How the penalties of `Hyper` are read: in units of the loss where boosting starts, so that those of target, loss
        and scores do not matter, or as numbers, as in XGBoost. With ``multi_output="separate"`` and a target [n k], a
        column for each output, the units are those of each output alone; else the outputs have a share in common.
    split_hessian : {"diagonal", "full"}
        What splits of a loss with ``hessian="full"`` are chosen by: the second derivatives by each output, or the whole
        matrix that the leaves use. Histograms then hold k (k + 3) / 2 sums for k outputs instead of 2 k, and trees grow
        level by level in JAX.
    sketch_size : int or None
        Choose the splits of more outputs than these by a sketch of so many columns; leaves hold all outputs, as they
        are. A histogram then has 2 sums for each column instead of each output. None keeps all.
    sketch : {"projection", "top"}
        What the columns are: random projections of the gradients, with the mean of the second derivatives, or the
        outputs whose gradients have the largest squares; drawn anew in each round (SketchBoost: Iosipoi and Vakhrushev
        2022).
    post_prune : bool
        Whether trees grow to their depth as if `Hyper.gamma` were 0 and are pruned afterwards, from the leaves up: a
        split goes if it gains no more than gamma and none below it stays (a level of a symmetric tree, if no node of it
        gains more). False stops growing where no split gains more than gamma. `Tree.gain` then holds what splits gain
        before gamma.
    max_leaves : int or None
        Leaves of a tree, at most: growth best first, where the split of largest gain is always the next, within
        `max_depth`. For depthwise trees, which are grown to their depth first, so a tree costs what one of its depth
        does. None allows ``2**max_depth``.
    n_candidates : int or None
        Bins of a feature that are proposed anew for each tree, at least 2: bins of the data are joined to these at
        weighted quantiles, the weights being the second derivatives of the rows drawn (approximate split finding with a
        local proposal: Chen and Guestrin 2016, section 3.2). Categories are not joined. None tries every bin.
    boosting_type : {"plain", "ordered", "crossed"}
        At which score a row has the gradient that trees are grown by: that of the model ("plain"), or that of a
        supporting model which has never learned from the row: from rows before it in a random order ("ordered":
        Prokhorenkova et al. 2018, algorithm 2), or from the other four of five folds ("crossed"). Leaf values of the
        model are made of all rows, as ever. These take up to three, and five, times the memory of scores, targets and
        gradients, and are for losses of one row with `Newton` leaves, fitted anew on one device.
    n_permutations : int
        Random orders of the rows, or deals into folds, for each of which "ordered" and "crossed" keep supporting
        models, and as many times the memory. Each round takes its gradients by the next of them; 1 with "plain".

    Examples
    --------
    >>> import dataclasses
    >>> spec = Spec(n_estimators=200)
    >>> dataclasses.replace(spec, grow_policy="depthwise").max_depth
    6
    """

    n_estimators: int = 100
    max_depth: int = 6
    grow_policy: GrowPolicy = "symmetric"
    multi_output: MultiOutput = "vector"
    min_child_samples: int = 1
    max_cat_to_onehot: int = 4
    n_iter_no_change: int | None = None
    penalties: Penalties = "relative"
    split_hessian: SplitHessian = "diagonal"
    sketch_size: int | None = None
    sketch: Sketch = "projection"
    post_prune: bool = False
    max_leaves: int | None = None
    n_candidates: int | None = None
    boosting_type: BoostingType = "plain"
    n_permutations: int = 1

    def __post_init__(self) -> None:
        whole_number(self.n_estimators, "n_estimators", 0, LARGEST)
        whole_number(self.max_depth, "max_depth", 1, MAX_DEPTH)
        whole_number(self.min_child_samples, "min_child_samples", 0, LARGEST)
        whole_number(self.max_cat_to_onehot, "max_cat_to_onehot", 0, LARGEST)
        if self.n_iter_no_change is not None:
            whole_number(self.n_iter_no_change, "n_iter_no_change", 1, LARGEST)
        if self.sketch_size is not None:
            whole_number(self.sketch_size, "sketch_size", 1, LARGEST)
        if self.max_leaves is not None:
            whole_number(self.max_leaves, "max_leaves", 2, LARGEST)
        if self.n_candidates is not None:
            whole_number(self.n_candidates, "n_candidates", 2, LARGEST)
        check_choice("grow_policy", self.grow_policy, get_args(GrowPolicy))
        check_choice("penalties", self.penalties, get_args(Penalties))
        check_choice("multi_output", self.multi_output, get_args(MultiOutput))
        check_choice("split_hessian", self.split_hessian, get_args(SplitHessian))
        check_choice("sketch", self.sketch, get_args(Sketch))
        check_choice("boosting_type", self.boosting_type, get_args(BoostingType))
        whole_number(self.n_permutations, "n_permutations", 1, LARGEST)
        if self.n_permutations > 1 and self.boosting_type == "plain":
            raise ValueError(
                'n_permutations must be 1 with boosting_type="plain", which puts rows in no order, got '
                f"{self.n_permutations}"
            )
        if not isinstance(self.post_prune, bool | np.bool_):
            raise TypeError(f"post_prune must be True or False, got {self.post_prune!r}")
        if self.max_leaves is not None and self.symmetric:
            raise ValueError(
                'max_leaves must be None with grow_policy="symmetric", whose levels are split as a whole, got '
                f'{self.max_leaves}; grow_policy="depthwise" splits node by node'
            )
        if self.sketch_size is not None and (self.separate or self.split_hessian == "full"):
            raise ValueError(
                'sketch_size must be None with multi_output="separate" or split_hessian="full", which look at every '
                f"output, got {self.sketch_size}"
            )

    @property
    def symmetric(self) -> bool:
        """Whether the nodes of a level share one split."""
        return self.grow_policy == "symmetric"

    @property
    def separate(self) -> bool:
        """Whether each output has trees of its own."""
        return self.multi_output == "separate"

    @property
    def form(self) -> tuple[int, str, str]:
        """What the trees of a model have in common, as they lie in one array: depth, policy and outputs."""
        return self.max_depth, self.grow_policy, self.multi_output

    @property
    def n_splits(self) -> int:
        """Split slots of a tree."""
        return self.max_depth if self.symmetric else 2**self.max_depth - 1

    @property
    def n_leaves(self) -> int:
        """Leaves of a tree."""
        return 2**self.max_depth

    @property
    def limits_leaves(self) -> bool:
        """Whether a tree may have fewer leaves than its depth allows."""
        return self.max_leaves is not None and self.max_leaves < self.n_leaves

    @property
    def counts_rows(self) -> bool:
        """Whether histograms carry a third statistic, the number of rows."""
        return self.min_child_samples > 1

    @property
    def crosses_outputs(self) -> bool:
        """Whether histograms carry the mixed second derivatives of each pair of outputs."""
        return self.split_hessian == "full"


@pytree
class Hyper:
    """Numbers of a fit: a pytree of scalars, each of which may be traced.

    Parameters
    ----------
    learning_rate : float
        Shrinkage of every leaf value, above 0.
    reg_lambda, reg_alpha : float
        L2 and L1 penalty on leaf values; in average rows, and average gradients, unless `Spec.penalties` is "absolute".
    gamma : float
        Gain that a split must exceed; in those of an average row, as above.
    min_child_weight : float
        Hessian sum that each child of a split must reach (with k outputs, the largest of its k sums); in average
        rows, as above.
    max_delta_step : float
        Bound on a leaf value before shrinkage; 0 means none.
    subsample : float
        Probability that a row takes part in a round, in (0, 1]; no row is drawn twice.
    colsample_bytree, colsample_bylevel : float
        Share of the usable columns drawn for each tree, and of those for each level, in (0, 1].
    colsample_bynode : float
        Share of the columns of a level drawn for each node, in (0, 1]; the nodes of a symmetric tree share a draw, as
        they share a split. Below 1, or traced, trees grow level by level in JAX, which takes longer.
    cat_smooth : float
        Added to H where categories are sorted by G / (H + cat_smooth), against rare categories.
    tol : float
        How much better than before the validation metric must be for a round to count as the best one so far.

    Notes
    -----
    The objective is that of Chen and Guestrin, "XGBoost" (KDD 2016), equations 2, 6 and 7.

    Examples
    --------
    >>> import dataclasses
    >>> dataclasses.replace(Hyper(learning_rate=0.3), reg_lambda=5.0).learning_rate
    0.3
    """

    learning_rate: Any = 0.1
    reg_lambda: Any = 1.0
    reg_alpha: Any = 0.0
    gamma: Any = 0.0
    min_child_weight: Any = 1.0
    max_delta_step: Any = 0.0
    subsample: Any = 1.0
    colsample_bytree: Any = 1.0
    colsample_bylevel: Any = 1.0
    colsample_bynode: Any = 1.0
    cat_smooth: Any = 10.0
    tol: Any = 0.0

    @classmethod
    def in_axes(cls, *names: str) -> Hyper:
        """Say which numbers a `jax.vmap` runs over.

        Parameters
        ----------
        *names : str
            Numbers that come as arrays with one value for each fit; the others are shared.

        Returns
        -------
        Hyper
            An `in_axes` for `jax.vmap`: 0 for these, None for the others.

        Raises
        ------
        ValueError, TypeError
            If a name is not that of a number of `Hyper`, or there is none.

        Examples
        --------
        >>> import jax, jax.numpy as jnp
        >>> rates = Hyper(learning_rate=jnp.array([0.1, 0.3]), gamma=1.0)
        >>> def both(hyper):
        ...     return hyper.learning_rate + hyper.gamma
        >>> [round(float(one), 2) for one in jax.vmap(both, in_axes=(Hyper.in_axes("learning_rate"),))(rates)]
        [1.1, 1.3]
        """
        known = [field.name for field in dataclasses.fields(cls)]
        if not names:
            raise ValueError(f"in_axes must name at least one of {', '.join(known)}")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"in_axes must be given names of numbers of Hyper, got {name!r}")
            if name not in known:
                raise ValueError(f"in_axes must be given names among {', '.join(known)}, got {name!r}")
        return cls(**{name: 0 if name in names else None for name in known})


_SHARES = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")


def check_hyper(hyper: Hyper) -> Hyper:
    """Return the numbers as arrays of one dtype; raise on a concrete one that is out of range."""
    return Hyper(**{name: _check_number(name, value) for name, value in _numbers_of(hyper).items()})


def check_hypers(hyper: Hyper) -> list[Hyper]:
    """Return the settings of a `Hyper` whose fields are numbers or arrays [s] of one length."""
    found = Hyper(**{name: _check_numbers(name, value) for name, value in _numbers_of(hyper).items()})
    sizes = {name: array.size for name, array in vars(found).items() if array.ndim}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"hyper must have arrays of one length, a value for each setting, got {sizes}")
    n_settings = max(sizes.values(), default=1)
    every = jax.tree.map(lambda array: np.broadcast_to(array, (n_settings,)), found)
    return [jax.tree.map(lambda array, i=i: array[i], every) for i in range(n_settings)]


def _numbers_of(hyper: Any) -> dict[str, Any]:
    if not isinstance(hyper, Hyper):
        raise TypeError(f"hyper must be a jboost.Hyper, got {type(hyper).__name__}")
    return {field.name: getattr(hyper, field.name) for field in dataclasses.fields(Hyper)}


def _check_number(name: str, value: Any) -> jax.Array:
    if not isinstance(value, Real) and not hasattr(value, "dtype"):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    array = as_array(value, float)
    if array.ndim != 0:
        raise ValueError(
            f"{name} must be a scalar, got shape {array.shape}; use jboost.sweep or jax.vmap for several values"
        )
    if not is_traced(array):
        _check_range(name, np.asarray(array), value)
    return array


def _check_numbers(name: str, value: Any) -> np.ndarray:
    if is_traced(value):
        raise TypeError(
            f"{name} must be concrete, got a traced array: inside jit use jax.vmap over jboost.fit"
        )
    given = np.asarray(value)
    if given.dtype.kind not in "iuf" and not isinstance(value, Real):
        raise TypeError(f"{name} must be a number or an array of numbers, got {value!r}")
    array = np.asarray(as_array(given, float))
    if array.ndim > 1 or not array.size:
        raise ValueError(f"{name} must be a number or an array [s] of at least one, got shape {array.shape}")
    _check_range(name, array, value)
    return array


def _check_range(name: str, numbers: np.ndarray, given: Any) -> None:
    if name in _SHARES:
        valid, expected = (numbers > 0) & (numbers <= 1), "in (0, 1]"
    elif name == "learning_rate":
        valid, expected = (numbers > 0) & np.isfinite(numbers), "positive and finite"
    else:
        valid, expected = (numbers >= 0) & np.isfinite(numbers), "non-negative and finite"
    if not valid.all():
        raise ValueError(f"{name} must be {expected}, got {numbers[~valid][0] if numbers.ndim else given}")
