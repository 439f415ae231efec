"""A picture of calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.stats import binom

from jboost._runtime.extras import axes_or_new


def plot_pit(pit: Float[np.ndarray, " n"], ax: Any, n_bins: int, name: str) -> Any:
    """Draw the histogram of what should be uniform, and the band in which nineteen of twenty bars lie by chance."""
    ax = axes_or_new(ax, (4.8, 3.2))
    expected = pit.size / n_bins
    low, high = binom.interval(0.95, pit.size, 1 / n_bins)
    ax.hist(
        pit, bins=n_bins, range=(0, 1), weights=np.full(pit.size, 1 / expected), color="tab:blue", alpha=0.7
    )
    ax.axhspan(low / expected, high / expected, color="0.5", alpha=0.3, linewidth=0)
    ax.axhline(1.0, color="0.3", linewidth=1.0)
    ax.set(xlim=(0, 1), xlabel="probability integral transform", ylabel="density", title=name)
    return ax
