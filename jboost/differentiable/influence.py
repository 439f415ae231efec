"""`influence`: what each training row does to the risk of other rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from jboost._runtime.arguments import whole_number
from jboost._runtime.caller import moves_arrays
from jboost._runtime.typing import as_array
from jboost._spec import Hyper, Spec
from jboost.boosting.best_round import signed
from jboost.differentiable.risk import NOT_FINITE, fitted_of, posed_for_risk, risk_and_gradient
from jboost.differentiable.scales import TIMES


@moves_arrays
def influence(
    loss: Any,
    data: Any,
    y: Any,
    *,
    valid: tuple[Any, ...],
    spec: Spec = Spec(),
    hyper: Hyper = Hyper(),
    draws: int = 0,
    metric: Any = None,
    sample_weight: Any = None,
    key: Any = None,
    offset: Any = None,
    groups: Any = None,
    sampler: Any = None,
    base_score: Any = None,
    feature_weights: Any = None,
) -> Float[np.ndarray, " n"]:
    r"""Return how the risk of a fit changes with the weight of each training row.

    It is :math:`w_i \, \partial R / \partial w_i`: by how much the metric of the validation rows would change, to first
    order and with the splits as they are, if the row counted twice; minus it if the row were left out. Positive is
    harmful where the metric is a loss. It takes one to two fits.

    Parameters
    ----------
    loss, data, y, hyper, sample_weight, key, offset, groups, sampler, base_score, feature_weights
        As in `jboost.fit`.
    valid : (X, y), optionally with more
        Rows that can be trusted, as in `jboost.fit`.
    spec : Spec
        Shapes and choices, without early stopping.
    draws : int, default 0
        Where above 0, the mean over so many fits with weights drawn anew and keys of their own, as in `tune`.
    metric : callable or Metric, optional
        What to judge the validation rows by, with derivatives. The mean loss by default.

    Returns
    -------
    float [n]
        In units of the metric; 0 for rows of weight 0.

    Raises
    ------
    ValueError, TypeError
        For arguments that do not fit, before anything is compiled, and where the risk or a derivative is not finite.

    References
    ----------
    Koh and Liang (2017), "Understanding black-box predictions via influence functions", for the question; Sharchilev
    et al. (2018), "Finding influential training samples for gradient boosted decision trees", for trees whose splits
    stay. Here the derivative runs through all rounds.

    Examples
    --------
    A row whose target is far off is the most harmful:

    >>> import numpy as np, jboost
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> y = X[:, 0].copy()
    >>> y[30] = 5.0
    >>> found = jboost.differentiable.influence(
    ...     jboost.losses.squared_error, X, y, valid=(X, X[:, 0]), spec=jboost.Spec(n_estimators=20, max_depth=2))
    >>> int(np.argmax(found))
    30
    """
    n_draws = whole_number(draws, "draws", 0)
    options = {
        "sample_weight": sample_weight, "key": key, "offset": offset, "groups": groups, "sampler": sampler,
        "base_score": base_score, "feature_weights": feature_weights,
    }  # fmt: skip
    posed = posed_for_risk(loss, data, y, valid, spec, hyper, metric, options)
    times = as_array(np.ones(posed.problem.train.weight.size), float)
    risk, gradient = risk_and_gradient({TIMES: times}, fitted_of(posed, n_draws))
    found = np.asarray(gradient[TIMES])[: posed.n_rows]
    if not np.isfinite(risk) or not np.isfinite(found).all():
        what = (
            f"the risk is {float(risk)}"
            if not np.isfinite(risk)
            else "its derivative by a weight is not finite"
        )
        raise ValueError(f"loss: {what}; {NOT_FINITE}")
    return signed(found, posed.problem.metric)
