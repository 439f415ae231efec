"""`Loss`: a loss of one row, the kind from which most boosting is done."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jboost._objective.objective import Objective, register
from jboost._objective.rows import Rows
from jboost._runtime.arguments import one_by_name
from jboost._runtime.parametrised import parametrised

NOT_JAX = (
    "{} must be written in JAX operations: jnp.where instead of if, jnp.abs instead of np.abs; JAX says: {}"
)


@register
class Loss(Objective):
    """A loss of one row, with what boosting needs to know beside its formula.

    Gradients and Hessians always come from automatic differentiation of `function`, unless it brings a `curvature`.

    A `Loss` is a pytree. The arrays and floats in its function, as those in a `jax.tree_util.Partial` or an Equinox
    module, are operands of the compiled fit: another value compiles nothing, and `jax.vmap` and `jax.grad` go
    through them. It pickles when its functions do. All else that a function refers to, a global or an attribute of
    an object say, is read when it is first traced, as under `jax.jit`: what changes belongs into arrays of the pytree.

    Parameters
    ----------
    function : callable
        ``function(score, y) -> scalar`` for ONE row: no sum over rows and no weight. `score` is a scalar or,
        with k outputs, a vector [k]; `y` is one row of the target (of each leaf, when the target is a
        pytree). May be a callable pytree.
    n_outputs : int or None, default None
        Length of the score vector. None: a scalar score for a target [n] or a pytree of arrays, a vector [k]
        for a target [n k].
    inverse_link : callable, default identity
        Maps raw scores, [n] or [n k], to predictions of the same shape: a mean or a probability.
    hessian : {"diagonal", "full", "first_order"}, default "diagonal"
        "diagonal" takes the second derivative by each output; "full" the k x k matrix in the leaves;
        "first_order" takes h = 1, for a loss whose second derivative vanishes, and asks of the function
        first derivatives in reverse mode only.
    hessian_floor : float, default 1e-6
        The least diagonal second derivative of a row; smaller ones, also negative ones, are raised to it. The
        default is about eight float32 rounding units of a curvature of one: lost beside ordinary rows, yet
        enough to divide by in a leaf where every row is saturated. A full Hessian of a leaf has the magnitudes of its
        eigenvalues, and none below the floor times the weight of the rows.
    leaf : LeafRule, default Newton()
        How the value of a leaf is found: `Newton`, `Quantile` or one of your own.
    check_target : callable or None, default None
        ``check_target(y)`` with the concrete target on the host; raises ValueError naming y when the target
        is outside the domain of the loss.
    name : str or None, default None
        Shown in messages.
    curvature : callable or None, default None
        ``curvature(score, y)`` of one row, instead of the second derivative: a Fisher or Gauss-Newton matrix, say.
        Like the score, or [k k] with ``hessian="full"``.
    allow_nan : bool, default False
        Whether the target may hold NaN, which the function must then deal with: several targets with gaps.
    constant : callable or None, default None
        ``constant(y, mean)``, the constant score, scalar or [k], that minimises the weighted loss, where there is a
        formula; without one it is searched for, which takes a second to compile, and so it is beside an offset. `y` is
        the target of all rows, those of weight 0 among them, and a fit adds some: ``mean(values)`` leaves them out,
        the weighted mean over the rows of an array [n ...] made of `y`. It goes with the function: replace both.
    diagonal : callable or None, default None
        ``diagonal(score, y) -> [k]`` of one row of several outputs: the second derivative by each of them, where a
        formula takes one pass, and automatic differentiation k. It must be the true one: what is to be taken instead
        of it is a `curvature`.
    majorant : callable or None, default None
        ``majorant(a) -> c`` with L(s + u) - L(s) <= g u + c h u^2 for every row, score s and step u of at most a in
        any output, h being the second derivative: 1/2 for a quadratic loss, and (exp(a) - a - 1) / a^2 where the third
        derivative is never larger than the second. Rounds in which it shows that no step raises the loss need not look
        at the rows; it changes no model, and goes with the function: replace both. Not used beside a curvature.
    adapt : callable or None, default None
        ``adapt(function, score, y, weight) -> function``: the function with the numbers of the round that begins at
        these scores, given those of all rows, [n] or [n k]; a callable pytree of the same form. It is called before the
        base score is searched for, with scores of 0, and before each round. The loss that the training history tells is
        that of the round, the mean loss of validation rows that of the base score.
    homogeneous : bool, default False
        Whether c times score and target makes the loss c^2 times as large, for any positive c, and leaves its curvature
        as it is: what `adapt` finds must follow. `jboost.fit` then takes targets whose squares leave the range of the
        floats. It changes no other model, and goes with the function: replace both.

    Raises
    ------
    TypeError, ValueError
        When a field is not what is listed above.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from jboost.losses import Loss
    >>> def log_cosh(score, y):  # without a cosh, which overflows beyond 89
    ...     return jnp.logaddexp(score - y, y - score) - jnp.log(2.0)
    >>> log_cosh = Loss(log_cosh, name="log_cosh")
    >>> round(float(log_cosh(1.0, 3.0)), 4)
    1.325

    A loss whose best constant is known, a geometric mean:

    >>> squares_of_logs = Loss(
    ...     lambda score, y: (score - jnp.log(y)) ** 2, constant=lambda y, mean: mean(jnp.log(y)), inverse_link=jnp.exp
    ... )
    """

    def value(self, score: Float[Array, "n *k"], rows: Rows) -> Float[Array, " n"]:
        """Return the loss of each row."""
        return jax.vmap(self.function)(score, rows.y)

    def value_and_grad(
        self, score: Float[Array, "n *k"], rows: Rows
    ) -> tuple[Float[Array, " n"], Float[Array, "n *k"]]:
        """Return the loss of each row and its derivative by the score."""
        return jax.vmap(jax.value_and_grad(self.function))(score, rows.y)

    def hessian_diagonal(self, score: Float[Array, "n *k"], rows: Rows) -> tuple[Array, Array, Array]:
        """Return value, g and the second derivative by each output, a column at a time unless there is a formula."""

        def at(score: Array) -> tuple[Array, Array]:
            return self.value_and_grad(score, rows)

        if score.ndim == 1:
            # A tangent of one gives the whole derivative, and all three results fuse into one pass over the rows.
            (value, g), (_, h) = jax.jvp(at, (score,), (jnp.ones_like(score),))
            return value, g, h
        if self.diagonal is not None:
            h = jax.vmap(self.diagonal)(score, rows.y)
            return *self.value_and_grad(score, rows), h.astype(score.dtype)
        (value, g), hessian_column = jax.linearize(at, score)
        columns = jnp.arange(score.shape[1])
        return value, g, jax.lax.map(lambda j: hessian_column(_one_hot_rows(score, j))[1][:, j], columns).T

    def curvature_of(self, score: Float[Array, "n *k"], rows: Rows) -> Array:
        """Return what the loss brings instead of the second derivative."""
        return jax.vmap(self.curvature)(score, rows.y)  # pyright: ignore[reportArgumentType]

    def full_hessian(self, score: Float[Array, "n k"], rows: Rows) -> Float[Array, "n k k"]:
        """Return the k x k Hessian of each row."""
        if self.curvature is not None:
            found = self.curvature_of(score, rows)
            return (found + jnp.swapaxes(found, 1, 2)) / 2
        _, hessian_column = jax.linearize(lambda s: self.value_and_grad(s, rows)[1], score)
        columns = jax.lax.map(lambda j: hessian_column(_one_hot_rows(score, j)), jnp.arange(score.shape[1]))
        return jnp.moveaxis(columns, 0, 2)


def _one_hot_rows(score: Float[Array, "n k"], j: Array) -> Float[Array, "n k"]:
    is_hot = (jnp.arange(score.shape[1], dtype=j.dtype) == j)[None]
    # Inside shard_map both may vary over the devices, as the score does.
    return jnp.where(is_hot, jnp.ones_like(score), jnp.zeros_like(score))


def as_loss(loss: Any) -> Any:
    """Return `loss` as an objective; a plain function of one row is wrapped with the default choices."""
    if isinstance(loss, Objective):
        return loss
    if isinstance(loss, str):
        raise TypeError(
            f"loss must be a function or a Loss, got {loss!r}{one_by_name(loss, 'jboost.losses')}"
        )
    if (getattr(loss, "__module__", None) or "").startswith("jboost.losses."):
        name = f"jboost.losses.{getattr(loss, '__name__', '')}"
        raise TypeError(f"loss must be a Loss, and {name} makes one: call it, as in {name}(...)")
    maker: Any = loss.__self__ if inspect.ismethod(loss) else loss
    if type(maker).__module__.startswith("jboost.distributions.") and hasattr(maker, "loss"):
        raise TypeError(f"loss must be a Loss, and the method loss of {maker.name} makes one: call it")
    if not callable(loss) or isinstance(loss, type):
        raise TypeError(f"loss must be a Loss or a function loss(score, y) of one row, got {loss!r}")
    code = parametrised(loss).code
    try:
        hash(code)
    except TypeError as error:
        raise TypeError(f"loss must be hashable, for a compiled fit is kept by it, got {loss!r}") from error
    return Loss(loss, name=getattr(loss, "__name__", None))
