"""Derivatives of whole fits and of models: tuning by gradients, the worth of rows, fine-tuning, soft trees."""

from jboost.differentiable.influence import influence
from jboost.differentiable.tuned import Tuned
from jboost.differentiable.tuning import tune

__all__ = ["Tuned", "influence", "tune"]
