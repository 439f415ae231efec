"""`adaboost`: AdaBoost.M1 for two classes, and SAMME for more, as a function."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jboost._model.ensemble import Ensemble, truncate
from jboost._runtime.arguments import as_target, as_weight, whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.programs import program
from jboost._runtime.typing import as_array, is_traced, kept_concrete, pytree
from jboost._spec import Hyper, Spec, check_hyper
from jboost.boosting import finish, init
from jboost.losses import sigmoid, softmax_of_scores, squared_error
from jboost.textbook.voting import run, targets_of

STUMPS = Spec(n_estimators=50, max_depth=1, grow_policy="depthwise")
GINI = Hyper(learning_rate=1.0, reg_lambda=0.0, min_child_weight=0.0)


@pytree
class AdaBoostRecord:
    """What is known of the rounds of a fit, beside the model.

    Attributes
    ----------
    error : float [t]
        Weighted share of the training rows that the tree of each round gets wrong, by the weights of the round.
    n_rounds : int
        Trees that have a say. Inside `jit` and `vmap` the later ones weigh 0; elsewhere they are left out.
    weight : float [n]
        Of the rows after the last round, their mean 1: the rows that are hard have the largest.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> model, record = jboost.textbook.adaboost(X, X[:, 0] > X[:, 1], n_classes=2)
    >>> record.error.shape, int(record.n_rounds), record.weight.shape
    ((50,), 50, (500,))
    """

    error: Float[Array, " t"]
    n_rounds: Int[Array, ""]
    weight: Float[Array, " n"]


@moves_arrays
def adaboost(
    data: Any,
    y: Any,
    *,
    n_classes: int,
    spec: Spec = STUMPS,
    hyper: Hyper = GINI,
    sample_weight: Any = None,
    key: Any = None,
    feature_weights: Any = None,
) -> tuple[Ensemble, AdaBoostRecord]:
    r"""Fit trees that vote, each to the rows that those before it got wrong: AdaBoost.M1, and SAMME for K > 2 classes.

    Round m grows a tree G_m by Gini impurity and the weights w of the rows, a leaf voting for the class that weighs
    most in it. With its weighted error err it gets the say

    .. math:: \alpha_m = \log((1 - err) / err) + \log(K - 1)

    and the rows that it gets wrong are multiplied by :math:`\exp(\alpha_m)`.

    Parameters
    ----------
    data : Binned or array-like [n f]
        Features, as in `jboost.fit`; a `Binned` inside `jit` and `vmap`.
    y : int [n]
        Classes, from 0 to n_classes - 1; may be traced.
    n_classes : int
        At least 2.
    spec : Spec
        50 stumps by default. `multi_output`, `split_hessian` and `n_iter_no_change` must be as they are there.
    hyper : Hyper
        `learning_rate` multiplies each alpha. Trees by Gini impurity know no penalties, so that `reg_lambda`,
        `reg_alpha` and `max_delta_step` must be 0, as in the default. They see all rows: `subsample` must be 1. The
        others are as in `jboost.fit`.
    sample_weight : float [n], optional
        The weights of the first round, in any unit; a weight of 0 is the same as leaving the row out.
    key : JAX key or int, optional
        For columns that are drawn; `jax.random.key(0)` by default.
    feature_weights : float [f], optional
        As in `jboost.fit`.

    Returns
    -------
    Ensemble
        Its leaves hold votes: -1 or 1 for two classes, an indicator of the class for more, and 0 where no training
        row has come. `tree_weight` holds alpha, so that a score is the sum of the votes, and `inverse_link` makes
        probabilities of it.
    AdaBoostRecord
        The error of each round, the number of rounds that count and the last weights.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled; and if the first tree is no better than chance
        (inside `jit` and `vmap` the record says `n_rounds` 0 then).

    Notes
    -----
    A tree without an error ends the rounds, with an alpha of 1. One whose error is 1 - 1/K or more ends them too, and
    has no say. Both are as in scikit-learn. All rounds are one compiled scan.

    A score F of two classes is the log odds: F / 2 minimises the exponential loss stage by stage, whose minimum is
    half the log odds. For more classes the votes are log probabilities, up to a constant, for the same reason.

    References
    ----------
    Freund and Schapire (1997), "A decision-theoretic generalization of on-line learning and an application to
    boosting".
    Hastie, Tibshirani and Friedman (2009), "The Elements of Statistical Learning", Algorithm 10.1. Zhu, Zou, Rosset and
    Hastie (2009), "Multi-class AdaBoost", Algorithm 2.

    Examples
    --------
    >>> import numpy as np, jboost
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> y = (X[:, 0] + X[:, 1] > 0).astype(int)
    >>> model, record = jboost.textbook.adaboost(X, y, n_classes=2)
    >>> bool(np.mean((jboost.predict(model, X) > 0) == y) > 0.95)
    True
    """
    _check_spec(spec)
    n_classes, hyper = whole_number(n_classes, "n_classes", 2), check_hyper(hyper)
    _check_numbers(hyper)
    label = _as_label(y, n_classes)
    target = _targets(label, n_classes, hyper.learning_rate.dtype)
    weight = None
    if sample_weight is not None:
        weight = _with_mean_1(as_weight(sample_weight, label.size, "sample_weight"))
    zero = jnp.zeros_like(hyper.learning_rate)
    one = zero + 1
    of_trees = dataclasses.replace(
        hyper, learning_rate=one, reg_lambda=zero, reg_alpha=zero, max_delta_step=zero, subsample=one
    )
    problem, state = init(
        squared_error, data, target, spec=spec, hyper=of_trees, sample_weight=weight, key=key, base_score=0.0,
        feature_weights=feature_weights,
    )  # fmt: skip
    arguments = problem, state, hyper.learning_rate
    traced = is_traced(arguments)
    after, rounds, alpha, error = (run if traced else _run)(*arguments, n_classes)
    model = dataclasses.replace(
        finish(problem, rounds),
        tree_weight=alpha,
        inverse_link=sigmoid if n_classes == 2 else softmax_of_scores,
    )
    record = AdaBoostRecord(error, after.n_rounds, after.weight[: label.size])
    return (model, record) if traced else _cut(model, record, n_classes)


_run = program(run, static_argnums=3)


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    if spec.n_estimators < 1:
        raise ValueError("spec.n_estimators must be at least 1 in AdaBoost, got 0")
    for name in ("multi_output", "split_hessian", "n_iter_no_change"):
        if getattr(spec, name) != getattr(STUMPS, name):
            raise ValueError(
                f"spec.{name} must be {getattr(STUMPS, name)!r} in AdaBoost, got {getattr(spec, name)!r}"
            )


def _check_numbers(hyper: Hyper) -> None:
    for name in ("reg_lambda", "reg_alpha", "max_delta_step", "subsample"):
        number, expected = getattr(hyper, name), getattr(GINI, name)
        if not is_traced(number) and float(number) != expected:
            raise ValueError(
                f"hyper.{name} must be {expected:g} in AdaBoost, whose trees are grown by Gini impurity on all rows, "
                f"got {float(number):g}"
            )


def _as_label(y: Any, n_classes: int) -> Int[Array, " n"]:
    """Return the classes as integers; raise unless concrete ones are numbers from 0 on."""
    label = as_target(y, "y")
    if not isinstance(label, jax.Array) or label.ndim != 1:
        raise ValueError(
            f"y must have shape (n,), the class of each row, got {getattr(label, 'shape', type(label).__name__)}"
        )
    if is_traced(label):
        if not jnp.issubdtype(label.dtype, jnp.integer):
            raise TypeError(f"y must hold integers where it is traced, got {label.dtype}")
        return label
    host = np.asarray(label)
    good = (host == np.floor(host)) & (host >= 0) & (host < n_classes)
    if not good.all():
        raise ValueError(f"y must hold classes from 0 to {n_classes - 1}, got {host[~good][0]}")
    return as_array(host, jnp.int32)


def _targets(label: Int[Array, " n"], n_classes: int, dtype: Any) -> Any:
    """Return what stands for the classes; on the host, a new shape costs no compilation."""
    if is_traced(label):
        return targets_of(label, n_classes, dtype)
    host = np.asarray(label)
    return (2 * host - 1 if n_classes == 2 else host[:, None] == np.arange(n_classes)).astype(dtype)


def _with_mean_1(weight: Float[Array, " n"]) -> Float[Array, " n"]:
    """Scale the weights of the rows that count to a mean of 1."""
    numpy = jnp if is_traced(weight) else np
    given = numpy.asarray(weight)
    return as_array(given * ((given > 0).sum().astype(given.dtype) / given.sum()))


def _cut(model: Ensemble, record: AdaBoostRecord, n_classes: int) -> tuple[Ensemble, AdaBoostRecord]:
    """Leave out the trees that have no say; raise if none has."""
    n_rounds = int(record.n_rounds)
    if n_rounds == 0:
        raise ValueError(
            f"the first tree gets {float(record.error[0]):.3g} of the rows wrong by weight, where {n_classes} classes "
            f"have a chance of {1 - 1 / n_classes:.3g}: the features tell nothing that such a tree can use"
        )
    with kept_concrete():
        error = as_array(np.asarray(record.error)[:n_rounds])
        return truncate(model, n_rounds), dataclasses.replace(record, error=error)
