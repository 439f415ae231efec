"""What a fit is given, checked and made into a `Problem`: bins, targets, weights, validation rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jboost._bins import BinEdges, Binned, bin_features, read_bins
from jboost._devices import mesh_for
from jboost._model.ensemble import Ensemble, check_model, edges_layout, name_kind, score_bins
from jboost._objective.group import GroupLoss
from jboost._objective.resolve import Resolved
from jboost._objective.rows import Groups, Rows, make_groups
from jboost._objective.units import units_of_one
from jboost._runtime.arguments import as_group_ids, as_offset, as_target, as_weight, one_by_name, restated
from jboost._runtime.padding import pad_axis, reusable_size
from jboost._runtime.parametrised import parametrised
from jboost._runtime.typing import as_array, is_traced
from jboost._sampling import columns_by_node
from jboost._spec import Hyper, Spec
from jboost._tree import (
    Growth,
    arrange,
    arrange_on_host,
    bundled_on_host,
    bundles_that_pay,
    choose_engine,
    tree_depth,
)
from jboost._tree.columns import Bins
from jboost.boosting.on_host import placeholder
from jboost.boosting.rounds import Problem
from jboost.metrics.metric import Metric, as_metric


class Handed:
    """Binned rows for one fit, which lets go of their bins once it has laid them out anew."""

    def __init__(self, data: Binned) -> None:
        self._data: Binned | None = data

    def take(self) -> Binned:
        """Return the rows, and keep nothing of them."""
        taken, self._data = self._data, None
        assert taken is not None  # they are taken once
        return taken


class RowArguments(NamedTuple):
    """Arguments of a fit that belong to rows, and what they are called in messages."""

    data: Any  # Binned, or a matrix [n f]
    y: Any
    weight: Any
    offset: Any
    groups: Any
    names: tuple[str, str, str, str, str]

    @property
    def n_rows(self) -> int:
        """Rows of the features."""
        return self.data.bins.shape[1] if isinstance(self.data, Binned) else self.data.shape[0]


OF_TRAINING = ("data", "y", "sample_weight", "offset", "groups")
OF_VALID = ("valid[0]", "valid[1]", "valid[2]", "valid[3]", "valid[4]")


def bin_for(data: Any, sample_weight: Any, init_model: Ensemble | None, traced: bool) -> Binned:
    """Bin the features, unless they are, by the edges of the model that is continued if there is one."""
    if isinstance(data, Handed):
        data = data.take()
    if init_model is not None:
        if not isinstance(init_model, Ensemble):
            raise TypeError(f"init_model must be a jboost.Ensemble, got {name_kind(init_model)}")
        check_model(init_model)
        try:
            read_bins(init_model.edges, data) if isinstance(data, Binned) else None
            return data if isinstance(data, Binned) else bin_features(data, edges=init_model.edges)
        except (TypeError, ValueError) as error:
            raise type(error)(f"data does not fit init_model: {error}") from None
    if isinstance(data, Binned):
        return data
    if traced:
        raise TypeError("data must be a Binned inside jit, vmap or grad; call jboost.bin_features before")
    return bin_features(data, sample_weight=sample_weight)


def make_problem(
    resolved: Resolved,
    given: RowArguments,
    spec: Spec,
    hyper: Hyper,
    valid: tuple[Any, ...] | None,
    metric: Any,
    sampler: Any = None,
    growth: Growth | None = None,
) -> Problem:
    """Check the arguments of a fit against each other, and put them together."""
    loss, binned = resolved.loss, given.data
    if not isinstance(spec, Spec):
        raise TypeError(f"spec must be a jboost.Spec, got {type(spec).__name__}")
    train = rows_of(given, loss)
    check_domain(loss.check_target, train)
    _check_combination(loss, spec)
    _check_sampler(sampler, hyper, binned.bins.shape[1])
    watched = None if valid is None else _valid_rows(valid, binned.edges, given.y, loss)
    if spec.n_iter_no_change is not None and watched is None:
        raise ValueError("valid must be given when spec.n_iter_no_change asks for early stopping")
    chosen = chosen_metric(metric, loss, None if watched is None else watched[1])
    if chosen is not None and chosen.on_host:
        chosen, spec = placeholder(chosen), dataclasses.replace(spec, n_iter_no_change=None)
    bins = as_array(binned.bins)
    if growth is None and (is_traced(hyper.colsample_bynode) or float(hyper.colsample_bynode) < 1):
        growth = columns_by_node
    layout = edges_layout(binned.edges, binned.has_missing)
    return Problem(
        bins=bins,
        train=train,
        valid_bins=None if watched is None else watched[0],
        valid=None if watched is None else watched[1],
        usable=usable_columns(bins, train.weight),
        hyper=hyper,
        loss=loss,
        metric=chosen,
        sampler=None if sampler is None else parametrised(sampler),
        units=units_of_one(loss.n_outputs or 1, train, spec.separate),  # until the base score is known
        spec=spec,
        layout=layout,
        engine=choose_engine(spec, growth, layout=layout, n_rows=train.weight.size),
        growth=growth,
    )


def chosen_metric(metric: Any, loss: Any, valid: Rows | None) -> Metric | None:
    """Return a metric of raw scores, None for the mean loss; raise on targets that it or the loss refuses."""
    chosen = None if metric is None else as_metric(metric).of_scores(loss.inverse_link, loss.n_outputs)
    if chosen is not None and valid is None:
        raise ValueError("valid must be given with a metric, which judges its rows")
    if valid is not None:
        check_domain(loss.check_target, valid, "valid[1]")
        if chosen is not None:
            check_domain(chosen.check_target, valid, f"valid[1], for metric {chosen.name}")
    return chosen


def as_feature_weight(weights: Any, problem: Problem) -> Float[Array, " f"] | None:
    """Return the weights of the columns as floats; raise unless some column with anything to split has one."""
    if weights is None:
        return None
    weight = as_weight(weights, problem.usable.size, "feature_weights", "feature")
    if not is_traced(weight, problem.usable):
        usable = np.asarray(problem.usable)
        if usable.any() and not np.asarray(weight)[usable].any():
            raise ValueError("feature_weights must not be 0 for every feature that has two values")
    return weight


def rows_of(given: RowArguments, loss: Any) -> Rows:
    """Check what belongs to rows against their number, and put it together."""
    n_rows, names = given.n_rows, given.names
    n_targets = jax.tree.leaves(given.y)[0].shape[0]
    if n_targets != n_rows:
        raise ValueError(
            f"{names[1]} must have one entry for each of the {n_rows} rows of {names[0]}, got {n_targets}"
        )
    y, weight = _without_absent(given.y, as_weight(given.weight, n_rows, names[2]))
    offset = None if given.offset is None else as_offset(given.offset, n_rows, loss.n_outputs or 1, names[3])
    return Rows(y, weight, offset, _groups(given, loss, n_rows))


def _groups(given: RowArguments, loss: Any, n_rows: int) -> Groups | None:
    """Lay out the groups; a loss that knows none may have them all the same, to be drawn together."""
    name = given.names[4]
    if given.groups is None:
        if isinstance(loss, GroupLoss):
            raise ValueError(f"{name} must be given for a GroupLoss: the number of the group of each row")
        return None
    return make_groups(as_group_ids(given.groups, n_rows, name))


def _without_absent(y: Any, weight: Float[Array, " n"]) -> tuple[Any, Float[Array, " n"]]:
    """Give rows of weight 0 the target of a row that counts, in case the loss is not finite at theirs.

    Such a row is absent: nothing depends on it, and the derivative by its weight is 0.
    """
    if not is_traced(weight) and np.asarray(weight).all():
        return y, weight
    numpy = jnp if is_traced(y, weight) else np  # on the host, a new shape costs no compilation
    present = numpy.asarray(weight) > 0
    source = numpy.argmax(present)

    def fill(array: Array) -> Array:
        shaped = present.reshape(-1, *[1] * (array.ndim - 1))
        return as_array(numpy.where(shaped, array, numpy.asarray(array)[source][None]))

    return jax.tree.map(fill, y), as_array(numpy.where(present, weight, numpy.zeros_like(weight)))


def check_domain(check: Callable[[Any], None] | None, rows: Rows, name: str = "y") -> None:
    """Let a loss or a metric refuse the targets of the rows that count."""
    if check is None or is_traced(rows):
        return
    present = np.asarray(rows.weight) > 0
    try:
        check(jax.tree.map(lambda array: np.asarray(array)[present], rows.y))
    except ValueError as error:
        raise ValueError(str(error) if name == "y" else f"{name}: {error}") from None


def _valid_rows(valid: Any, edges: BinEdges, y: Any, loss: Any) -> tuple[Array, Rows]:
    given = valid_arguments(valid, lambda X: Binned(as_array(read_bins(edges, X)), edges, True), y, loss)
    return given.data.bins, rows_of(given, loss)


def valid_arguments(valid: Any, read: Callable[[Any], Any], y: Any, loss: Any) -> RowArguments:
    """Check the validation rows against the training targets, and read their features."""
    if not isinstance(valid, tuple) or not 2 <= len(valid) <= 5:
        raise TypeError(
            f"valid must be a tuple (X, y), (X, y, weight), (X, y, weight, offset) or (X, y, weight, offset, groups), "
            f"got {type(valid).__name__}{f' of {len(valid)}' if isinstance(valid, tuple) else ''}"
        )
    X, y_valid, weight, offset, groups = (*valid, None, None, None)[:5]
    y_valid = as_target(y_valid, "valid[1]", loss.allow_nan)
    if jax.tree.structure(y_valid) != jax.tree.structure(y):
        raise ValueError("valid[1] must have the structure of y")
    for one, other in zip(jax.tree.leaves(y_valid), jax.tree.leaves(y), strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise ValueError(
                f"valid[1] must have rows of shape {other.shape[1:]} as y has, got {one.shape[1:]}"
            )
    y_valid = jax.tree.map(lambda one, other: one.astype(other.dtype), y_valid, y)
    try:
        data = read(X)
    except (TypeError, ValueError) as error:
        raise restated(error, f"valid[0]: {error}") from error
    return RowArguments(data, y_valid, weight, offset, groups, OF_VALID)


def _check_combination(loss: Any, spec: Spec) -> None:
    if loss.hessian == "full" and (loss.n_outputs is None or spec.separate):
        raise ValueError('hessian="full" needs several outputs that share a tree (multi_output="vector")')
    if spec.split_hessian == "full" and loss.hessian != "full":
        way_out = '; jboost.Loss(..., hessian="full") makes one' if (loss.n_outputs or 1) > 1 else ""
        raise ValueError(
            'spec.split_hessian="full" needs a loss of several outputs with hessian="full", whose leaves use the whole '
            f"matrix too, got one of {loss.n_outputs or 1} with hessian={loss.hessian!r}{way_out}"
        )


def _check_sampler(sampler: Any, hyper: Hyper, n_rows: int) -> None:
    if sampler is None:
        return
    if not callable(sampler) or isinstance(sampler, type):
        raise TypeError(
            f"sampler must be a function sampler(key, g, h, weight) -> weight, got {sampler!r}"
            f"{one_by_name(sampler, 'jboost.samplers')}"
        )
    known = getattr(sampler, "n_rows", n_rows)  # one that knows something of each row
    if known != n_rows:
        raise ValueError(f"sampler must be for the {n_rows} training rows, got one for {known} rows")
    if not is_traced(hyper.subsample) and float(hyper.subsample) < 1:
        raise ValueError("hyper.subsample must be 1 beside a sampler, which draws the rows instead")


def pad(problem: Problem, data: Binned, numbers_per_row: int) -> Problem:
    """Pad the rows by weightless copies of the first row that counts, so that other numbers reuse the program.

    What may not look at weights, such as a metric of the user's, gets the rows as they are.
    """
    train, valid, metric = problem.train, problem.valid, problem.metric
    n_rows = reusable_size(train.weight.size, numbers_per_row) if problem.loss.pads else train.weight.size
    divided = mesh_for(n_rows) is not None
    engine = choose_engine(problem.spec, problem.growth, divided, problem.layout, n_rows)
    reads_bundles = engine.bundled and not divided and jax.default_backend() == "cpu"
    bundles = bundles_that_pay(data, problem.spec.max_depth) if reads_bundles else None
    bins, bundling = (
        (arrange_on_host(engine, problem.bins, n_rows), None)
        if bundles is None
        else bundled_on_host(bundles, n_rows, engine.grouped)
    )
    train = pad_rows(train, n_rows)
    problem = dataclasses.replace(problem, engine=engine, bins=bins, bundling=bundling, train=train)
    if valid is not None and (problem.loss.pads if metric is None else metric.pads):
        n_rows = reusable_size(valid.weight.size, numbers_per_row)
        bins = as_array(pad_axis(np.asarray(problem.valid_bins), n_rows, axis=1))
        problem = dataclasses.replace(problem, valid_bins=bins, valid=pad_rows(valid, n_rows))
    return problem


def arranged(problem: Problem) -> Problem:
    """Lay traced bins out for all rounds, as the engine reads them."""
    return dataclasses.replace(problem, bins=arrange(problem.engine, problem.bins))


def pad_rows(rows: Rows, n_rows: int) -> Rows:
    """Pad on the host, where a new shape costs no compilation; the rows added are in no group."""
    weight = np.asarray(rows.weight)
    filler = np.full(n_rows - weight.size, np.argmax(weight > 0))
    if not filler.size:
        return rows

    def extend(array: Array) -> Array:
        host = np.asarray(array)
        return as_array(np.concatenate([host, host[filler]]))

    groups = (
        None if rows.groups is None else dataclasses.replace(rows.groups, number=extend(rows.groups.number))
    )
    y, offset = jax.tree.map(extend, (rows.y, rows.offset))
    return Rows(y, as_array(pad_axis(weight, n_rows)), offset, groups)


def usable_columns(bins: Any, weight: Any) -> Array:
    """Say which columns hold two different codes in the rows that count."""
    if is_traced(bins, weight):
        counted = weight > 0
        largest = jnp.where(counted, bins, 0).max(axis=1)
        return jnp.where(counted, bins, jnp.iinfo(bins.dtype).max).min(axis=1) < largest
    host, counted = np.asarray(bins), np.asarray(weight) > 0
    if not counted.all():
        host = host[:, counted]
    return as_array(host.min(axis=1) < host.max(axis=1))


def check_continues(model: Ensemble, problem: Problem) -> None:
    """Refuse to continue a model with a fit of another kind."""
    k = problem.loss.n_outputs
    if model.base.dtype != problem.train.weight.dtype:
        raise ValueError(
            f"init_model holds {model.base.dtype}, but JAX computes in {problem.train.weight.dtype} now"
        )
    if (model.n_outputs, model.scalar_output) != (k or 1, k is None):
        raise ValueError(f"init_model has {model.n_outputs} output(s), but the loss and y ask for {k or 1}")
    if model.inverse_link != problem.loss.inverse_link:
        raise ValueError("init_model must come from a loss with the same inverse link")
    spec = problem.spec
    found = form_of_trees(model)
    if found != spec.form:
        raise ValueError(
            f"init_model must have the max_depth={spec.max_depth}, grow_policy={spec.grow_policy!r} and "
            f"multi_output={spec.multi_output!r} of spec, since all trees of a model lie in one array, got "
            "{}, {!r} and {!r}".format(*found)
        )


def form_of_trees(model: Ensemble) -> tuple[int, str, str]:
    """Return the max_depth, grow_policy and multi_output of a model."""
    return (
        tree_depth(model.trees, model.symmetric),
        "symmetric" if model.symmetric else "depthwise",
        "separate" if model.trees.feature.ndim == 3 else "vector",
    )


def start_scores(
    problem: Problem, base: Float[Array, " k"], init_model: Ensemble | None, bins: Bins | None
) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
    """Score the training and the validation rows before the first round; only a model needs the bins."""
    traced = is_traced(problem, base, init_model)
    numpy = jnp if traced else np  # on the host, a new shape costs no compilation

    def scores(rows: Rows, bins: Any) -> Array:
        if init_model is None:
            score = numpy.broadcast_to(base, (rows.weight.size, base.size))
        else:
            # The offset comes before the trees, as in one longer fit: so the last digits are the same.
            offset = None if rows.offset is None else rows.offset[: bins.shape[1]]
            score = score_bins(init_model, bins, offset)
            return score if traced else as_array(pad_axis(np.asarray(score), rows.weight.size))
        return as_array(score if rows.offset is None else score + numpy.asarray(rows.offset))

    if problem.valid is None:
        return scores(problem.train, bins), as_array(numpy.zeros((0, base.size), base.dtype))
    return scores(problem.train, bins), scores(problem.valid, problem.valid_bins)
