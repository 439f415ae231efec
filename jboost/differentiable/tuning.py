"""`tune`: descend on the risk of a fit, by the numbers it is made with."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from jboost._model.ensemble import Ensemble
from jboost._objective.loss import as_loss
from jboost._runtime.arguments import whole_number
from jboost._runtime.caller import moves_arrays, warn
from jboost._runtime.extras import check_optimizer
from jboost._spec import Hyper, Spec
from jboost.boosting.best_round import signed
from jboost.boosting.fitting import fit
from jboost.boosting.loop import Posed
from jboost.boosting.pacing import progress_bar
from jboost.boosting.stopping import History
from jboost.differentiable.loss_numbers import with_numbers
from jboost.differentiable.optimizers import adam_in_any_unit, follow
from jboost.differentiable.risk import (
    NOT_FINITE,
    Fitted,
    fitted_of,
    posed_for_risk,
    risk_and_gradient,
)
from jboost.differentiable.scales import SCALES, check_names, moved_to, place_of
from jboost.differentiable.tuned import Tuned

RATE = 0.1  # of Adam: a step moves a positive number by a tenth or so


@moves_arrays
def tune(
    loss: Any,
    data: Any,
    y: Any,
    *,
    valid: tuple[Any, ...],
    hyper: Hyper = Hyper(),
    spec: Spec = Spec(),
    optimizer: Any = None,
    steps: int = 30,
    by: tuple[str, ...] = ("learning_rate", "reg_lambda"),
    draws: int = 0,
    metric: Any = None,
    sample_weight: Any = None,
    key: Any = None,
    offset: Any = None,
    groups: Any = None,
    sampler: Any = None,
    base_score: Any = None,
    feature_weights: Any = None,
    verbose: bool | None = None,
) -> Tuned:
    r"""Tune numbers of a fit by gradient descent on the mean loss of other rows.

    Each step fits a model and takes the derivatives of its risk, the metric of the validation rows after the last
    round, through all rounds; that takes one to two times as long as a fit, however many numbers are tuned. The numbers
    are moved on scales that have no bounds.

    Parameters
    ----------
    loss, data, y, sample_weight, key, offset, groups, sampler, base_score, feature_weights
        As in `jboost.fit`.
    valid : (X, y), optionally with more
        The rows whose risk is to fall, as in `jboost.fit`.
    hyper : Hyper
        Where to start.
    spec : Spec
        Shapes and choices, without early stopping: the number of rounds has no derivative.
    optimizer : optax.GradientTransformation, optional
        ``optax.adam(0.1)`` by default. Those with a line search are not supported.
    steps : int, default 30
        How many fits; the optimizer moves the numbers between them.
    by : tuple of str
        What is tuned: ``"learning_rate"`` (on a logit scale, between 0 and 1), ``"reg_lambda"``, ``"reg_alpha"`` and
        ``"max_delta_step"`` (on a log scale, from a value above 0); ``"loss"``, the floats and arrays that the function
        of the loss holds, in its curvature and the like too where they have the same names (as they are: let the
        loss map them to its domain); ``"sample_weight"``, the share that each row has in
        the sum of the weights (softmax).
    draws : int, default 0
        Where above 0, the risk is the mean over so many fits, each with weights drawn anew (exponential times: the
        Bayesian bootstrap, Rubin 1981) and a key of its own, the same in all steps. A step then takes as many times
        as long. Where splits change the risk of one fit jumps, and the mean of several jumps less.
    metric : callable or Metric, optional
        What to judge the validation rows by, as in `jboost.fit`, with derivatives. The mean loss by default, which also
        moves with the parameters of the loss: where these are tuned, it must be a likelihood, or give a metric.
    verbose : bool, optional
        Show a progress bar: always, never, or (None) after two seconds on a terminal.

    Returns
    -------
    Tuned
        The numbers of the step with the least risk, the way there, and a fit with them.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled; and where the risk or a derivative is not finite.

    Notes
    -----
    The derivatives are exact for the trees as grown: how splits change is not in them, though the risk jumps there. In
    what was measured they follow the slope of the risk all the same (docs/differentiable.md).

    References
    ----------
    Bengio (2000), "Gradient-based optimization of hyperparameters"; Maclaurin, Duvenaud and Adams (2015),
    "Gradient-based hyperparameter optimization through reversible learning".

    Examples
    --------
    >>> import numpy as np, jboost
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = X[:, 0] + rng.normal(size=300)
    >>> found = jboost.differentiable.tune(
    ...     jboost.losses.squared_error, X[:200], y[:200], valid=(X[200:], y[200:]), steps=8,
    ...     spec=jboost.Spec(n_estimators=20, max_depth=2), hyper=jboost.Hyper(learning_rate=0.03))
    >>> bool(found.risk[found.best] < found.risk[0]), bool(found.hyper.learning_rate > 0.03)
    (True, True)
    >>> model, _ = found.fit()
    """
    names = check_names(by)
    n_draws, n_steps = whole_number(draws, "draws", 0), whole_number(steps, "steps", 1)
    if optimizer is None:
        optimizer = adam_in_any_unit(RATE)
    check_optimizer(optimizer)
    options = {
        "sample_weight": sample_weight, "key": key, "offset": offset, "groups": groups, "sampler": sampler,
        "base_score": base_score, "feature_weights": feature_weights,
    }  # fmt: skip
    posed = posed_for_risk(loss, data, y, valid, spec, hyper, metric, options)
    fitted, place = fitted_of(posed, n_draws), place_of(posed.problem, names)
    path = _descend(place, fitted, optimizer, n_steps, verbose)
    best = int(np.argmin([one.risk for one in path]))
    values = [_values(posed, one.place) for one in path]
    given = as_loss(loss)
    tuned_loss = with_numbers(given, path[best].place["loss"]) if "loss" in names else given
    weight = values[best].get("sample_weight", sample_weight)
    numbers = {name: values[best][name] for name in names if name in SCALES}
    hyper = dataclasses.replace(hyper, **{name: float(value) for name, value in numbers.items()})
    again = partial(_fit_again, tuned_loss, data, y, spec, hyper, options | {"sample_weight": weight})
    metric, gradients = posed.problem.metric, [_by_name(one.gradient) for one in path]
    return Tuned(
        hyper=hyper,
        loss=tuned_loss,
        sample_weight=weight,
        risk=signed(np.array([one.risk for one in path]), metric),
        values={name: _stacked([one[name] for one in values]) for name in values[0]},
        gradient={name: _stacked([one[name] for one in gradients]) for name in gradients[0]},
        best=best,
        name="mean loss" if metric is None else metric.name or "metric",
        _fit=again,
    )


@dataclasses.dataclass(frozen=True)
class Step:
    """Where a step was, and what was found there."""

    place: dict[str, Any]
    risk: float  # less is better
    gradient: dict[str, Any]


def _descend(
    place: dict[str, Any],
    fitted: Fitted,
    optimizer: Any,
    n_steps: int,
    verbose: bool | None,
) -> list[Step]:
    """Take the steps; Ctrl-C ends them with a warning."""
    path: list[Step] = []
    state = optimizer.init(place)
    with progress_bar(n_steps, "tuning", verbose, unit="fit") as bar:
        try:
            while len(path) < n_steps:
                risk, gradient = risk_and_gradient(place, fitted)
                _check_step(place, risk, gradient, path)
                path.append(
                    Step(jax.tree.map(np.asarray, place), float(risk), jax.tree.map(np.asarray, gradient))
                )
                bar.update(1)
                bar.set_postfix({"risk": f"{float(risk):.5g}"}, refresh=False)
                place, state = _followed(optimizer, gradient, state, place)
        except KeyboardInterrupt:
            if not path:
                raise
            warn(f"interrupted: the best of the first {len(path)} steps is returned")
    return path


def _followed(optimizer: Any, gradient: Any, state: Any, place: Any) -> tuple[Any, Any]:
    try:
        return follow(optimizer, gradient, state, place)
    except TypeError as error:
        raise TypeError(
            f"optimizer must take its steps from the gradient alone, without a line search; it says: {error}"
        ) from error


def _check_step(place: dict[str, Any], risk: Any, gradient: dict[str, Any], path: list[Step]) -> None:
    """Raise where a step cannot be followed: say whose fault it is and what to do."""
    finite = {name: _is_finite(part) for name, part in gradient.items()}
    if np.isfinite(risk) and all(finite.values()):
        if not path:
            _check_effect(gradient)
        return
    what = "the risk"
    if np.isfinite(risk):
        what = f"its derivative by {next(name for name, sound in finite.items() if not sound)}"
    if not path:
        raise ValueError(f"loss: {what} is not finite where tuning starts (risk {float(risk)}); {NOT_FINITE}")
    best = min(path, key=lambda one: one.risk)
    raise ValueError(
        f"optimizer diverged: in step {len(path) + 1} {what} is not finite at {_said(place)}; lower its "
        "learning rate, or let the loss map its numbers to their domain. The best so far was "
        f"{_said(best.place)} with a risk of {best.risk:.5g}"
    )


def _check_effect(gradient: dict[str, Any]) -> None:
    for name, part in gradient.items():
        if not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(part)):
            raise ValueError(
                f"by: the derivative of the risk by {name} is 0 where tuning starts; leave {name} out, or look at the "
                "metric, which must have derivatives by the scores (ranks have none), and at a loss that adapts"
            )


def _by_name(place: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a place, or of a gradient, with those of the loss by names of their own."""
    of_loss = {f"loss.{name}": one for name, one in place.get("loss", {}).items()}
    return {name: one for name, one in place.items() if name != "loss"} | of_loss


def _said(place: dict[str, Any]) -> str:
    """Say where a place is: numbers, and how many there are where they are several."""
    said = []
    for name, one in _by_name(place).items():
        flat = np.ravel(SCALES[name].value(one) if name in SCALES else one)
        said.append(f"{name}={flat[0]:.4g}" if flat.size == 1 else f"{name} ({flat.size} numbers)")
    return ", ".join(said)


def _is_finite(part: Any) -> bool:
    return all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves(part))


def _values(posed: Posed, place: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of a place; weights of the rows that were given."""
    problem = moved_to(posed.problem, place)
    values = {name: getattr(problem.hyper, name) for name in place if name in SCALES}
    if "sample_weight" in place:
        values["sample_weight"] = np.asarray(problem.train.weight)[: posed.n_rows]
    return _by_name(place) | values


def _stacked(parts: list[Any]) -> Float[np.ndarray, "steps ..."]:
    return np.stack([np.asarray(one) for one in parts])


def _fit_again(
    loss: Any, data: Any, y: Any, spec: Spec, hyper: Hyper, options: dict[str, Any], changes: dict[str, Any]
) -> tuple[Ensemble, History]:
    given = {"loss": loss, "data": data, "y": y, "spec": spec, "hyper": hyper}
    return fit(**(given | options | changes))
