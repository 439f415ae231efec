"""Boosting: `fit`, and the rounds that it is made of."""

from jboost.boosting.fitting import fit
from jboost.boosting.stopping import History

__all__ = ["History", "fit"]
