"""Base learners for `jboost.boost`: what is fitted to the residuals of each round."""

from jboost.learners.atoms import Atoms, splines, wavelets
from jboost.learners.learner import Learner
from jboost.learners.linear import Linear
from jboost.learners.linear_tree import LinearTree
from jboost.learners.network import Network, SquashedLinear
from jboost.learners.tree import Tree

__all__ = [
    "Atoms",
    "Learner",
    "Linear",
    "LinearTree",
    "Network",
    "SquashedLinear",
    "Tree",
    "splines",
    "wavelets",
]
