"""Numbers rounded to fixed point, plain and in C++, against rational numbers: scales, bad values, rows in parts."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import native_library
import numpy as np
import pytest

from jboost._fixed_point import Scale, find_scale, native, quantise
from jboost._fixed_point.quantise import find_scale_in_jax


@pytest.fixture(params=["plain", "native", "public"])
def twin(request):
    """Give (values) -> (integers, factor) by each way to find the scale."""
    if request.param == "native":
        native_library.require(native.scale_available)
    find = {"plain": find_scale_in_jax, "native": native.find_scale, "public": find_scale}[request.param]
    return partial(rounded, find=find)


def rounded(values, find=find_scale):
    factor = Scale(*find(values)).factor
    return quantise(values, factor), factor


def exact_scale(column):
    """2**floor(log2(2**30 / sum |v|)) in rational numbers, a power whose inverse is normal too."""
    total = sum(abs(Fraction(float(v))) for v in column)
    limit = np.finfo(column.dtype).maxexp - 2
    exponent = limit
    while Fraction(2) ** exponent * total > 2**30 and exponent > -limit:
        exponent -= 1
    return 2.0**exponent if total else 1.0


def columns_to_quantise(rng, dtype):
    n = 1000
    just_over = np.full(n, 2.0**-10)
    just_over[:24] *= 2
    just_over[0] = np.nextafter(np.float32(just_over[0]), np.float32(1))  # the sum is 1 and a bit
    columns = {
        "normal": rng.normal(size=n),
        "heavy tails": rng.standard_cauchy(n) ** 3,
        "one giant": np.r_[1e30, np.full(n - 1, 1e-3)],
        "all zero": np.zeros(n),
        "a power of two": np.r_[np.full(512, 2.0**-7), np.zeros(n - 512)],
        "just over it": just_over,
        "tiny": rng.normal(size=n) * 1e-34,
        "subnormal": np.full(n, 1e-40),
        "huge": np.full(n, 3e38),
        "negative": -rng.random(n),
    }
    return {name: column.astype(dtype) for name, column in columns.items()}


def test_quantise_gives_the_stated_scale(twin, precision, rng):
    columns = columns_to_quantise(rng, precision)
    values = np.stack(list(columns.values()), axis=1)
    integers, scale = jax.jit(twin)(values)
    assert integers.dtype == jnp.int32
    assert scale.dtype == precision
    integers, scale = np.asarray(integers).astype(np.int64), np.asarray(scale, np.float64)
    for j, (name, column) in enumerate(columns.items()):
        assert np.frexp(scale[j])[0] == 0.5, name  # an exact power of two
        assert np.abs(integers[:, j]).sum() <= 2**30 + len(column) / 2, name
        if name != "subnormal" or precision is np.float64:  # some machines flush them to zero
            assert scale[j] == exact_scale(column), name
            error = np.abs(integers[:, j] - column.astype(np.float64) * scale[j])
            assert error.max() <= 0.5, name


def test_quantise_loses_little(twin, rng):
    values = rng.normal(size=(5000, 2)).astype(np.float32)
    integers, scale = jax.jit(twin)(values)
    np.testing.assert_allclose(integers / scale[None], values, atol=5000 / 2**30 * 2)


def test_quantise_shows_bad_values_and_spares_other_columns(twin, precision):
    values = np.array([[1, np.nan, np.inf, 3], [2, 1, 1, -np.inf]], precision).T
    integers, scale = jax.jit(twin)(values)
    np.testing.assert_array_equal(scale, [np.nan, np.nan])
    np.testing.assert_array_equal(integers, 0)
    integers, scale = jax.jit(twin)(np.where(np.arange(2) == 1, 0.5, values))
    np.testing.assert_array_equal(scale, [np.nan, 2.0**29])


@pytest.mark.parametrize("seed", range(3))
def test_quantise_is_the_same_for_rows_in_parts(seed):
    """A float sum in another order could fall on the other side of a power of two."""
    rng = np.random.default_rng(seed)
    n, near_power = 4 * 40_000, np.full((4 * 40_000, 3), 1.0, np.float32)  # more than one block in each part
    values = near_power * rng.permutation(np.linspace(0.1, 1.9, n)).astype(np.float32)[:, None]
    values[:, 1] *= np.float32(2**18 / n)
    values[:, 2] = rng.standard_cauchy(n)
    whole, scale = jax.jit(rounded)(values)
    over_parts = jax.vmap(
        partial(rounded, find=partial(find_scale, reduce=lambda x: jax.lax.psum(x, "part"))), axis_name="part"
    )
    parts, scales = jax.jit(over_parts)(values.reshape(4, -1, 3))
    np.testing.assert_array_equal(parts.reshape(n, 3), whole)
    np.testing.assert_array_equal(scales, np.tile(scale, (4, 1)))
    exact = np.abs(values.astype(np.float64)).sum(axis=0)
    np.testing.assert_array_equal(scale, 2.0 ** np.floor(np.log2(2**30 / exact)))


def test_quantise_has_no_derivative():
    values = jnp.array([[1.0], [2.0]])
    slope = jax.jit(jax.grad(lambda x: jnp.sum(rounded(x)[0] * x)))(values)
    np.testing.assert_array_equal(slope, np.array(values) * 2**28)


def test_a_batch_is_each_of_its_elements(twin, rng):
    values = rng.normal(size=(5, 3, 60, 2)).astype(np.float32)
    integers, scale = jax.jit(jax.vmap(jax.vmap(twin, in_axes=2), in_axes=0))(values.swapaxes(1, 3))
    for i, j in np.ndindex(5, 3):
        own = rounded(jnp.asarray(values.swapaxes(1, 3)[i, :, :, j]))
        np.testing.assert_array_equal(integers[i, j], own[0])
        np.testing.assert_array_equal(scale[i, j], own[1])
