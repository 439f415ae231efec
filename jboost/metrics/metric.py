"""What a metric is: a function of predictions or raw scores, and how it reads the scores of a loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from jboost._objective.links import built_in
from jboost._runtime.arguments import check_choice, one_by_name
from jboost._runtime.parametrised import ByValue, parametrised
from jboost._runtime.typing import identity
from jboost.metrics.targets import EachClass

Of = Literal["score", "prediction"]
# What XGBoost, LightGBM and scikit-learn call the same. Not "map" or "aucpr", which mean something else there.
ALIASES = {
    "auc": "roc_auc",
    "binary_error": "error",
    "binary_logloss": "logloss",
    "l1": "mae",
    "l2": "mse",
    "log_loss": "logloss",
    "mean_absolute_error": "mae",
    "mean_absolute_percentage_error": "mape",
    "mean_squared_error": "mse",
    "merror": "error",
    "mlogloss": "multi_logloss",
    "multi_error": "error",
    "root_mean_squared_error": "rmse",
}


@dataclass(frozen=True, eq=False)
class Metric(ByValue):
    """A function of scores or predictions, target and weights, and which way is better.

    A pytree, as a `Loss` is: the arrays and floats in its function are operands of a compiled fit.

    Parameters
    ----------
    function : callable
        ``function(score, y, weight) -> scalar`` in JAX operations, of arrays with one entry per row.
    maximize : bool, default False
        Whether more is better.
    check_target : callable or None, default None
        ``check_target(y)`` with the concrete target of the rows with weight; raises ValueError naming y when
        the metric is undefined there.
    name : str or None, default None
        Shown in messages and histories.
    pads : bool, default False
        Whether rows of weight 0 may be added, so that other numbers of rows compile nothing: they must not count then,
        whatever their y.
    of : {"score", "prediction"}, default "score"
        What the function is given first: raw scores, or predictions, which are the scores through the inverse link of
        the loss. Those in `jboost.metrics` take predictions, but for `mean_loss`.
    from_score : mapping or None, default None
        For ``of="prediction"``, functions of raw scores that compute the same more precisely, by inverse link: log loss
        from log odds, for one. A fit takes that of its loss if it is there.
    on_host : bool, default False
        Whether the function takes NumPy arrays and is no JAX: a fit then calls it between its compiled rounds. Rows of
        weight 0 are left out.

    Raises
    ------
    TypeError, ValueError
        When a field is not what is listed above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost.metrics import Metric
    >>> def bias_of(prediction, y, weight):
    ...     return jnp.abs(jnp.average(prediction - y, weights=weight))
    >>> bias = Metric(bias_of, of="prediction", name="bias", pads=True)
    >>> float(bias(jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0]), jnp.ones(2)))
    1.0

    The same of raw scores, for a loss with the exponential function as inverse link:

    >>> float(bias.of_scores(jnp.exp)(jnp.zeros(2), jnp.array([0.0, 1.0]), jnp.ones(2)))
    0.5
    """

    function: Callable[[Any, Any, Any], Any]
    maximize: bool = False
    check_target: Callable[[Any], None] | None = None
    name: str | None = None
    pads: bool = False
    of: Of = "score"
    from_score: Mapping[Callable[..., Any], Callable[[Any, Any, Any], Any]] | None = None
    on_host: bool = False

    def __post_init__(self) -> None:
        check_choice("of", self.of, get_args(Of))
        if self.from_score is None:
            return
        if not isinstance(self.from_score, Mapping) or not all(map(callable, self.from_score.values())):
            raise TypeError(
                "from_score must be a mapping of inverse links to functions of (score, y, weight), got "
                f"{self.from_score!r}"
            )
        if self.of == "score":
            raise ValueError('from_score must be None with of="score": the function takes scores itself')

    def __call__(self, score: Any, y: Any, weight: Any) -> jax.Array:
        """Return the metric of scores or predictions, as `of` says."""
        return self.function(score, y, weight)

    def of_scores(self, inverse_link: Callable[..., Any] = identity, n_outputs: int | None = None) -> Metric:
        """Return the same metric as a function of raw scores.

        Parameters
        ----------
        inverse_link : callable, default identity
            That of the loss, which makes predictions of the scores.
        n_outputs : int or None, default None
            That of the loss; metrics of several classes check that each occurs.

        Returns
        -------
        Metric
            With ``of="score"``.
        """
        check = self.check_target.among(n_outputs) if isinstance(self.check_target, EachClass) else None
        known = dataclasses.replace(self, check_target=check or self.check_target)
        if self.of == "score":
            return known
        link = built_in(inverse_link)
        function = {built_in(one): of_score for one, of_score in (self.from_score or {}).items()}.get(link)
        if function is None and link is identity:
            function = self.function
        elif function is None:
            through = _through_on_host if self.on_host else _through
            function = Partial(through, function=self.function, link=link)
        return dataclasses.replace(known, function=function, of="score", from_score=None)


def _through(score: Any, y: Any, weight: Any, function: Any, link: Any) -> Any:
    return function(link(score), y, weight)


def _through_on_host(score: Any, y: Any, weight: Any, function: Any, link: Any) -> Any:
    return function(np.asarray(link(jnp.asarray(score))), y, weight)


@dataclass(frozen=True)
class _Static:
    """What a compiled program knows of a metric."""

    maximize: bool
    pads: bool
    of: Of
    links: tuple[Any, ...] | None
    on_host: bool
    others: tuple[Any, ...] = field(compare=False)  # check_target and name


def _flatten(metric: Metric) -> tuple[tuple[Any, ...], _Static]:
    forms = metric.from_score
    others = (metric.check_target, metric.name)
    links = None if forms is None else tuple(forms)
    static = _Static(metric.maximize, metric.pads, metric.of, links, metric.on_host, others)
    return tuple(map(parametrised, (metric.function, *(forms or {}).values()))), static


def _unflatten(static: _Static, parts: Any) -> Metric:
    metric = object.__new__(Metric)  # as it was: nothing is checked anew, and leaves may be anything
    function, *of_score = parts
    check_target, name = static.others
    forms = None if static.links is None else dict(zip(static.links, of_score, strict=True))
    vars(metric).update(
        function=function, maximize=static.maximize, check_target=check_target, name=name, pads=static.pads,
        of=static.of, from_score=forms, on_host=static.on_host,
    )  # fmt: skip
    return metric


jax.tree_util.register_pytree_node(Metric, _flatten, _unflatten)


def as_metric(metric: Any) -> Metric:
    """Return `metric` as a `Metric`; a plain function is one of raw scores, and better when less."""
    if isinstance(metric, Metric):
        return metric
    if not callable(metric) or isinstance(metric, type):
        hint = one_by_name(
            ALIASES.get(metric, metric) if isinstance(metric, str) else metric, "jboost.metrics"
        )
        raise TypeError(
            f"metric must be a Metric or a function metric(score, y, weight); got {metric!r}{hint}"
        )
    return Metric(metric, name=getattr(metric, "__name__", None))
