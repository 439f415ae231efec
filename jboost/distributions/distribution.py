"""`Distribution`: what is known of a family of distributions, as functions of the unconstrained score of one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Float

from jboost._objective.leaf_rules import Newton
from jboost._objective.loss import Loss
from jboost._runtime.arguments import check_choice
from jboost._runtime.parametrised import ByValue, parametrised
from jboost.distributions.beginning import NewtonFrom
from jboost.distributions.fisher import check_has_fisher, fisher_matrix
from jboost.distributions.predictive import Predictive, one_number

HessianKind = Literal["diagonal", "full"]
Curvature = Literal["fisher", "observed"]

_REQUIRED = ("log_prob", "parameters")
_OPTIONAL = ("mean", "variance", "cdf", "log_sf", "quantile", "sample", "crps", "fisher", "constant", "start")
_NOT_COMPARED = ("check_target", "name")


@dataclass(frozen=True, eq=False)
class Distribution(ByValue):
    """A family of distributions, whose parameters are a function of an unconstrained score.

    All functions are of ONE row, in JAX operations: `score` is a vector [k]; `y` is one target, a scalar or a pytree.
    ``loss()`` makes a `jboost.Loss` of it; called with scores, it gives a `Predictive`, the distribution of each row.
    A `Distribution` is a pytree as a `Loss` is: numbers in its functions (those of a `jax.tree_util.Partial`) are
    operands of a compiled fit. Only `log_prob` is needed for a fit; what needs another function says so.

    Parameters
    ----------
    name : str
        Shown in messages.
    n_parameters : int
        k, the length of a score.
    log_prob : callable
        ``log_prob(score, y) -> scalar``, the logarithm of the density or of the probability of y.
    parameters : callable
        ``parameters(score) -> dict`` of the parameters by the names that they go by.
    mean, variance : callable, optional
        ``mean(score)``, of the shape of a target.
    cdf, log_sf : callable, optional
        ``cdf(score, y)``, the probability of a target of at most y; the logarithm of that of a larger one, which is
        log(1 - cdf) unless there is a formula that does not round to log(0).
    quantile : callable, optional
        ``quantile(score, q)`` for q in (0, 1): of counts, the smallest number that is not exceeded with probability q.
    sample : callable, optional
        ``sample(score, key)``; a quantile of a uniform number by default.
    crps : callable, optional
        ``crps(score, y)``, where there is a formula; else it is integrated from the cdf or the quantiles.
    fisher : callable, optional
        ``fisher(score) -> [k k]``, the Fisher matrix by the score, or one that is nowhere smaller; without it,
        `fisher_matrix` integrates over quantiles.
    constant : callable, optional
        As that of a `Loss`: ``constant(y, mean)``, the score that fits all rows best. Searched for if there is none.
    start : callable, optional
        ``start(rows, reduce) -> [k]``, the score from which boosting starts instead of that constant, where there are
        several, as of a mixture: as `LeafRule.base_score`.
    check_target : callable, optional
        ``check_target(y)`` on the host; raises ValueError where the target is no possible one.
    is_discrete : bool, default False
        Whether targets are whole numbers.
    hessian, curvature
        Defaults of `loss`. None for the curvature means "fisher" where there is a formula for it, else "observed".

    Raises
    ------
    TypeError, ValueError
        When a field is not what is listed above.

    Examples
    --------
    >>> import jax.numpy as jnp, numpy as np
    >>> from jboost.distributions import Distribution
    >>> rayleigh = Distribution(
    ...     "rayleigh", 1,
    ...     log_prob=lambda score, y: jnp.log(y) - 2 * score[0] - 0.5 * jnp.square(y * jnp.exp(-score[0])),
    ...     parameters=lambda score: {"scale": jnp.exp(score[0])},
    ...     quantile=lambda score, q: jnp.exp(score[0]) * jnp.sqrt(-2 * jnp.log1p(-q)),
    ... )
    >>> rayleigh(np.zeros((2, 1))).quantile(0.5).round(3).tolist()
    [1.177, 1.177]
    >>> round(float(rayleigh.loss()(jnp.zeros(1), 1.0)), 3)
    0.5
    """

    name: str
    n_parameters: int
    log_prob: Callable[..., Any]
    parameters: Callable[..., Any]
    mean: Callable[..., Any] | None = None
    variance: Callable[..., Any] | None = None
    cdf: Callable[..., Any] | None = None
    log_sf: Callable[..., Any] | None = None
    quantile: Callable[..., Any] | None = None
    sample: Callable[..., Any] | None = None
    crps: Callable[..., Any] | None = None
    fisher: Callable[..., Any] | None = None
    constant: Callable[..., Any] | None = None
    start: Callable[..., Any] | None = None
    check_target: Callable[[Any], None] | None = None
    is_discrete: bool = False
    hessian: HessianKind = "diagonal"
    curvature: Curvature | None = None

    def __post_init__(self) -> None:
        for name in (*_REQUIRED, *_OPTIONAL, "check_target"):
            value = getattr(self, name)
            if not (callable(value) or (value is None and name not in _REQUIRED)):
                raise TypeError(
                    f"{name} must be callable{'' if name in _REQUIRED else ' or None'}, got {value!r}"
                )
        if type(self.n_parameters) is not int or self.n_parameters < 1:
            raise ValueError(f"n_parameters must be an integer of at least 1, got {self.n_parameters!r}")
        _check_choices(self.hessian, self.curvature or "fisher")

    def __call__(self, score: Any) -> Predictive:
        """Return the distribution of each row.

        Parameters
        ----------
        score : array [n k], or [n] for one parameter
            Raw scores, as `jboost.predict` gives them. Results are NumPy arrays in float64 if the scores are NumPy
            arrays, and JAX arrays otherwise, also under transformations.

        Returns
        -------
        Predictive
        """
        return Predictive.of(self, score)

    def loss(self, hessian: HessianKind | None = None, curvature: Curvature | None = None) -> Loss:
        """Return the negative log likelihood as a loss of k outputs.

        Parameters
        ----------
        hessian : {"diagonal", "full"}, optional
            Whether leaves solve for each output alone or for all together. The default of the distribution if None.
        curvature : {"fisher", "observed"}, optional
            What steps are made of: the Fisher matrix, which is never negative, as in natural gradient boosting, or the
            second derivatives at the targets. The default of the distribution if None, which is "fisher" where there is
            a formula.

        Returns
        -------
        Loss
            With the check of targets and the base score of the distribution; its scores have no inverse link.

        Raises
        ------
        ValueError
            For another word; or for "fisher" where there is neither a formula nor a quantile or sample to integrate by.

        Examples
        --------
        >>> from jboost import distributions
        >>> natural = distributions.normal.loss(hessian="full", curvature="fisher")
        >>> natural.n_outputs
        2
        """
        hessian, curvature = hessian or self.hessian, curvature or self.curvature
        curvature = curvature or ("observed" if self.fisher is None else "fisher")
        _check_choices(hessian, curvature)
        known = None
        if curvature == "fisher":
            check_has_fisher(self)
            known = Partial(_fisher_diagonal if hessian == "diagonal" else _fisher, of=self)
        return Loss(
            Partial(_negative_log_prob, log_prob=self.log_prob),
            n_outputs=self.n_parameters,
            hessian=hessian,
            curvature=known,
            constant=self.constant,
            leaf=Newton() if self.start is None else NewtonFrom(parametrised(self.start)),
            check_target=self.check_target,
            name=self.name,
        )


@dataclass(frozen=True)
class _Static:
    """What a compiled program knows of a distribution; its name and the check on the host are none of its business."""

    fields: tuple[Any, ...]
    others: tuple[Any, ...] = field(compare=False)


_PARTS = (*_REQUIRED, *_OPTIONAL)  # which may hold numbers
_STATIC = ("n_parameters", "is_discrete", "hessian", "curvature")


def _flatten(distribution: Distribution) -> tuple[tuple[Any, ...], _Static]:
    parts = [getattr(distribution, name) for name in _PARTS]
    fields, others = (
        tuple(getattr(distribution, name) for name in names) for names in (_STATIC, _NOT_COMPARED)
    )
    return tuple(part if part is None else parametrised(part) for part in parts), _Static(fields, others)


def _unflatten(static: _Static, parts: Any) -> Distribution:
    distribution = object.__new__(
        Distribution
    )  # as it was: nothing is checked anew, and leaves may be anything
    names = (*_PARTS, *_STATIC, *_NOT_COMPARED)
    vars(distribution).update(zip(names, (*parts, *static.fields, *static.others), strict=True))
    return distribution


jax.tree_util.register_pytree_node(Distribution, _flatten, _unflatten)


def _check_choices(hessian: Any, curvature: Any) -> None:
    for name, value, kind in (("hessian", hessian, HessianKind), ("curvature", curvature, Curvature)):
        check_choice(name, value, get_args(kind))


def _negative_log_prob(score: Float[Array, " k"], y: Any, log_prob: Any) -> Array:
    return -one_number(log_prob(score, as_floats(y, score.dtype)))


def as_floats(y: Any, dtype: Any) -> Any:
    """Make whole numbers in y floats, as JAX does unless its promotion of dtypes is strict."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), y)


def _fisher(score: Float[Array, " k"], y: Any, of: Distribution) -> Float[Array, "k k"]:
    return fisher_matrix(of, score)


def _fisher_diagonal(score: Float[Array, " k"], y: Any, of: Distribution) -> Float[Array, " k"]:
    return jnp.diagonal(fisher_matrix(of, score))
