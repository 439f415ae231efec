"""Boosting of a linear function: coordinate descent on any loss, with L1 and L2 penalties, as one compiled scan."""

from jboost.linear.fitting import fit_linear

__all__ = ["fit_linear"]
