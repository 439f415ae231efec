"""Floats as integers with a common power-of-two scale, so that their sums do not depend on any order."""

from jboost._fixed_point.quantise import Scale, find_scale, quantise
from jboost._fixed_point.sums import count_by_group, mean, moments_by_group, sum_by_group, total, totals

__all__ = [
    "Scale",
    "count_by_group",
    "find_scale",
    "mean",
    "moments_by_group",
    "quantise",
    "sum_by_group",
    "total",
    "totals",
]
