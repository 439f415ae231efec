"""A tree of fixed depth as arrays: how it grows from gradients, and how rows find their leaf."""

from jboost._split import Tree
from jboost._tree.bundles import bundled_on_host, bundles_that_pay
from jboost._tree.columns import Columns, GradientPairs
from jboost._tree.engines import Engine, arrange, arrange_on_host, choose_engine
from jboost._tree.growth import Growth
from jboost._tree.leaves import category_words, leaf_index, take_leaves, tree_depth
from jboost._tree.pruning import grow_and_prune

__all__ = [
    "Columns",
    "Engine",
    "GradientPairs",
    "Growth",
    "Tree",
    "arrange",
    "arrange_on_host",
    "bundled_on_host",
    "bundles_that_pay",
    "category_words",
    "choose_engine",
    "grow_and_prune",
    "leaf_index",
    "take_leaves",
    "tree_depth",
]
