"""Bin features: edges found once in float64 on the host, then a small code for every value.

A value v of a numeric feature has the code 1 + (number of edges < v), so a value equal to an edge goes left
of it; code 0 stands for a missing value or a category that was not there when the edges were found. Host and
device give the same codes.
"""

from jboost._bins.binning import (
    Binned,
    apply_edges,
    bin_features,
    check_same_edges,
    read_bins,
    read_column,
    read_values,
)
from jboost._bins.bundling import Bundles
from jboost._bins.by_target import bin_by_target
from jboost._bins.categories import Categories
from jboost._bins.columns import Factor
from jboost._bins.edges import BinEdges, Features, edges_from_exact
from jboost._bins.matrix import read_matrix
from jboost._bins.ordered import category_statistics, ordered_statistics
from jboost._bins.sketch import QuantileSketch
from jboost._bins.streaming import sketch_edges

__all__ = [
    "BinEdges",
    "Binned",
    "Bundles",
    "Categories",
    "Factor",
    "Features",
    "QuantileSketch",
    "apply_edges",
    "bin_by_target",
    "bin_features",
    "category_statistics",
    "check_same_edges",
    "edges_from_exact",
    "ordered_statistics",
    "read_bins",
    "read_column",
    "read_matrix",
    "read_values",
    "sketch_edges",
]
