"""`plain_jax`: the same bits without the C++ library, in the same process, thread by thread."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

import jboost
from jboost import Spec, losses
from jboost._runtime import library, programs
from tests.twin import problem

SMALL = Spec(n_estimators=3, max_depth=2)


@pytest.fixture(autouse=True)
def _needs_native() -> None:
    native_library.require(lambda: not isinstance(library.load(), str))


def fitted():
    rows = problem("mixed")
    model, _ = jboost.fit(losses.logistic, rows.data, rows.targets["binary"], spec=SMALL)
    return model, np.asarray(jboost.predict(model, rows.X)), jboost.bin_features(rows.X, max_bins=31).bins


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_same_bits_by_programs_of_its_own(own_programs):
    native = fitted()
    n_native = programs.n_programs()
    with jboost.plain_jax():
        plain = fitted()
    n_both = programs.n_programs()
    same(plain, native)
    assert n_both == 2 * n_native
    again = fitted()
    with jboost.plain_jax():
        fitted()
    same(again, native)
    assert programs.n_programs() == n_both


def calls_the_library(function, *arguments):
    return "jboost_" in jax.jit(function).lower(*arguments).as_text()


def test_what_is_traced_inside_calls_nothing_of_the_library():
    model, _, _ = fitted()
    X = jnp.zeros((5, 5))

    def predict(X):
        return jboost.predict(model, X)

    assert calls_the_library(predict, X)
    with jboost.plain_jax():
        assert not calls_the_library(lambda X: predict(X), X)
        with jboost.plain_jax(False):
            assert calls_the_library(lambda X: predict(X) + 0, X)
    assert library.in_use()


def test_other_threads_do_not_see_it():
    seen = []
    with jboost.plain_jax():
        thread = threading.Thread(target=lambda: seen.append(library.in_use()))
        thread.start()
        thread.join()
        assert not library.in_use()
    assert seen == [True]


def test_an_error_inside_leaves_it():
    with pytest.raises(RuntimeError, match="mine"), jboost.plain_jax():
        raise RuntimeError("mine")
    assert library.in_use()
