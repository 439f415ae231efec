"""Derivatives of whole fits and of models: tuning by gradients, the worth of rows, fine-tuning, soft trees."""

from jboost.differentiable.finetuning import FinetuneHistory, finetune
from jboost.differentiable.hardening import harden
from jboost.differentiable.influence import influence
from jboost.differentiable.soft import SoftEnsemble, soften
from jboost.differentiable.tuned import Tuned
from jboost.differentiable.tuning import tune

__all__ = ["FinetuneHistory", "SoftEnsemble", "Tuned", "finetune", "harden", "influence", "soften", "tune"]
