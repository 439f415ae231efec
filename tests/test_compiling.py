"""How programs are compiled: soon where they are small, and with nothing that this XLA does not know."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jboost._runtime import compiling


class Lowered:
    """Remembers how it was compiled; an XLA that knows no such option says so."""

    def __init__(self, knows=True):
        self.knows, self.asked = knows, []

    def compile(self, compiler_options=None):
        self.asked.append(compiler_options)
        if compiler_options and not self.knows:
            raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: No such compile option: 'xla_some'")
        return "program"


@pytest.fixture(autouse=True)
def nothing_refused(monkeypatch):
    monkeypatch.setattr(compiling, "_refused", [])


def test_small_programs_are_compiled_soon_and_large_ones_well():
    small, large = Lowered(), Lowered()
    assert compiling.compiled(small, (np.zeros(8), 1.0)) == "program"
    assert compiling.compiled(large, (np.zeros(8), np.zeros(compiling.MANY + 1, np.uint8))) == "program"
    assert (small.asked, large.asked) == ([compiling.SOON], [None])


def test_an_option_that_is_not_known_is_asked_for_once():
    first, second = Lowered(knows=False), Lowered(knows=False)
    assert compiling.compiled(first, ()) == compiling.compiled(second, ()) == "program"
    assert (first.asked, second.asked) == ([compiling.SOON, None], [None])


def test_other_errors_are_not_taken_for_it(monkeypatch):
    lowered = Lowered()
    monkeypatch.setattr(
        lowered, "compile", lambda **_: (_ for _ in ()).throw(jax.errors.JaxRuntimeError("other"))
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="other"):
        compiling.compiled(lowered, ())


def test_both_ways_give_the_same_numbers(rng):
    x = jnp.asarray(rng.normal(size=500), jnp.float32)
    lowered = jax.jit(lambda x: jnp.logaddexp(0.0, x) * jax.nn.sigmoid(x) - jnp.exp(-jnp.square(x))).lower(x)
    np.testing.assert_array_equal(compiling.compiled(lowered, (x,))(x), lowered.compile()(x))
