"""The records that say how features are binned: edges, names, categories."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Array, Float, Float32, UInt32

from jboost._bins.categories import Categories
from jboost._bins.device import host_words
from jboost._runtime.typing import as_array, pytree, static_field


@dataclass(frozen=True)
class Features:
    """What is known of the features besides their edges: names, the categories of some, what stands for missing.

    A name is that of the column of X which a feature reads; several may read the same.
    """

    names: tuple[str, ...] | None
    categories: tuple[Categories | None, ...]
    missing: float | None = None  # a finite number, beside NaN
    source: tuple[int, ...] | None = None  # the column that each feature reads; None: each its own

    @property
    def categorical(self) -> tuple[int, ...]:
        """The indices of the features that a split divides into subsets of categories."""
        return tuple(j for j, known in enumerate(self.categories) if known and not known.is_statistic)

    @property
    def coded(self) -> tuple[int, ...]:
        """The indices of the features whose columns hold categories."""
        return tuple(j for j, known in enumerate(self.categories) if known is not None)

    @property
    def columns(self) -> tuple[int, ...]:
        """The column that each feature reads."""
        return tuple(range(len(self.categories))) if self.source is None else self.source

    @property
    def n_columns(self) -> int:
        """The number of columns of X."""
        return max(self.columns, default=-1) + 1


@pytree
class BinEdges:
    """The bin edges of f features, e to each at most.

    Attributes
    ----------
    rounded_bits : uint32 [f, e]
        The bits of the edges, increasing along a row, each rounded down to a float32 and padded with +inf. For a
        float32 value v, `v <= upper` and `v <= exact` are the same. Words, like the next: an edge is no parameter, and
        what goes over the floats of a model, such as a norm or an optimiser, must not meet the infinities.
    upper_bits : uint32 [f, e, 2]
        The exact float64 edges as pairs of words, low word first (JAX has float64 only when it is switched
        on).
    n_codes : int
        The width of a histogram that holds every code: a multiple of 32, or 16.
    max_bins : int
        The limit that was asked for; 2^31 - 64, which is none, where every distinct value has a bin.
    features : Features
        Names and categories.

    Examples
    --------
    >>> import jboost
    >>> edges = jboost.bin_features([[1.0], [2.0], [4.0]]).edges
    >>> edges.exact[0, :3].tolist()
    [1.5, 3.0, inf]
    """

    rounded_bits: UInt32[Array, "f e"]
    upper_bits: UInt32[Array, "f e 2"]
    n_codes: int = static_field()
    max_bins: int = static_field()
    features: Features = static_field()

    @property
    def upper(self) -> Float32[np.ndarray, "f e"]:
        """The edges rounded down to float32, on the host, padded with +inf."""
        return np.asarray(self.rounded_bits).view(np.float32)

    @property
    def exact(self) -> Float[np.ndarray, "f e"]:
        """The edges in float64, on the host, padded with +inf."""
        bits = np.ascontiguousarray(np.asarray(self.upper_bits), dtype="<u4")
        return bits.view("<f8")[..., 0].astype(np.float64, copy=False)

    @property
    def n_features(self) -> int:
        """The number of features f."""
        return len(self.features.categories)

    @property
    def code_dtype(self) -> np.dtype:
        """The dtype of a bin code: uint8 up to 255 value bins, uint16 up to 65535, uint32 beyond."""
        return np.min_scalar_type(self.n_codes - 1)

    def __repr__(self) -> str:
        """Say how many there are, not where they lie."""
        n_categorical = len(self.features.categorical)
        also = f", n_categorical={n_categorical}" if n_categorical else ""
        return f"BinEdges(n_features={self.n_features}, max_bins={self.max_bins}{also})"


def edges_from_exact(
    exact: Float[np.ndarray, "f e"], n_codes: int, max_bins: int, features: Features
) -> BinEdges:
    """Make `BinEdges` from float64 edges padded with +inf (what `BinEdges.exact` returns); -0.0 becomes 0.0."""
    exact = np.asarray(exact, dtype=np.float64) + 0.0
    with np.errstate(over="ignore", under="ignore"):
        upper = exact.astype(np.float32)
        upper = np.where(upper > exact, np.nextafter(upper, np.float32(-np.inf)), upper)  # rounded down
    with jax.ensure_compile_time_eval():  # concrete also when a caller's jit is being traced
        rounded_bits, upper_bits = as_array(host_words(upper)[..., 0]), as_array(host_words(exact))
        return BinEdges(rounded_bits, upper_bits, n_codes, max_bins, features)
