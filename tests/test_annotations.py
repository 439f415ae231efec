"""Fields of records have the shapes and dtypes that their annotations state (calls are checked by `conftest.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from beartype.door import is_bearable
from jaxtyping import jaxtyped

import jboost
from jboost._objective.leaves import Derivatives, Leaves
from jboost._split import Rules
from jboost._split.categories import order_categories
from jboost._split.thresholds import best_thresholds

N, M, K = 40, 30, 3


def is_record(value: Any) -> bool:
    return type(value).__module__.startswith("jboost") and (
        dataclasses.is_dataclass(value) or hasattr(value, "_fields")
    )


def parts_of(record: Any) -> dict[str, Any]:
    names = getattr(record, "_fields", None) or [one.name for one in dataclasses.fields(record)]
    return {name: getattr(record, name) for name in names}


def wrong_fields(record: Any) -> Iterator[str]:
    """Name the fields, here and in the records inside, that are not what they are said to be."""
    hints = get_type_hints(type(record))
    with jaxtyped("context"):  # a letter means one size in all fields of a record
        for name, value in parts_of(record).items():
            if not is_bearable(value, hints[name]):
                yield f"{type(record).__name__}.{name}: {getattr(value, 'shape', value)} is no {hints[name]}"
    for part in parts_of(record).values():
        for inner in part if isinstance(part, tuple) and not is_record(part) else [part]:
            yield from wrong_fields(inner) if is_record(inner) else ()


def problem_of(spec: jboost.Spec) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N + M, 5))
    X[:, 4] = rng.integers(6, size=N + M)
    y, weight, group = rng.normal(size=(N + M, K)), rng.uniform(1, 2, N + M), np.arange(N + M) // 4
    train = jboost.bin_features(X[:N], categorical=[4])
    held = X[N:], y[N:], weight[N:], y[N:], group[N:]
    return jboost.boosting.init(
        jboost.losses.squared_error, train, y[:N], spec=spec, valid=held, sample_weight=weight[:N],
        offset=y[:N], groups=group[:N], feature_weights=np.ones(5), metric=jboost.metrics.rmse,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("policy", "multi_output"),
    [pytest.param("symmetric", "vector", marks=pytest.mark.slow), ("depthwise", "separate")],
)
def test_the_records_of_a_fit_are_what_their_fields_say(policy, multi_output):
    spec = jboost.Spec(max_depth=2, grow_policy=policy, multi_output=multi_output)
    problem, state = problem_of(spec)
    state, one = jax.jit(jboost.boosting.step)(problem, state)
    model = jboost.boosting.finish(problem, [one, one])
    assert [*wrong_fields(problem), *wrong_fields(state), *wrong_fields(one), *wrong_fields(model)] == []


@pytest.mark.parametrize("policy", [pytest.param("symmetric", marks=pytest.mark.slow), "depthwise"])
def test_the_records_of_a_split_are_what_their_fields_say(policy, rng):
    spec = jboost.Spec(max_depth=2, grow_policy=policy)
    hyper = jax.tree.map(jnp.float32, jboost.Hyper())
    rules = Rules(hyper, jnp.ones(2, jnp.float32), spec)
    histogram = jnp.asarray(rng.integers(1, 9, size=(6, 2, 4, 3)), jnp.int32)
    records = rules, best_thresholds(histogram, rules, True), order_categories(histogram, rules)
    assert [wrong for record in records for wrong in wrong_fields(record)] == []


def test_the_records_of_leaves_are_what_their_fields_say():
    problem, state = problem_of(jboost.Spec(max_depth=2))
    rows, score = problem.train, state.score
    for leaf in (jnp.zeros(len(score), jnp.int32), jnp.zeros(score.shape, jnp.int32)):
        leaves = Leaves(
            problem.loss, score, rows, rows.weight, leaf, 4, problem.hyper, Derivatives(score, score)
        )
        assert [*wrong_fields(leaves)] == []


def test_a_field_of_another_shape_or_dtype_is_found():
    problem, state = problem_of(jboost.Spec(max_depth=2))
    assert [*wrong_fields(dataclasses.replace(state, score=state.score[:, 0]))] != []
    assert [*wrong_fields(dataclasses.replace(problem, bins=problem.bins.astype(jnp.int32)))] != []
    wrong = dataclasses.replace(problem.train, weight=problem.train.weight[:-1])
    assert [*wrong_fields(dataclasses.replace(problem, train=wrong))] != []
