"""Derivatives of whole fits and of models: tuning by gradients, the worth of rows, fine-tuning, soft trees."""

from jboost.differentiable.finetuning import FinetuneHistory, finetune
from jboost.differentiable.hardening import harden
from jboost.differentiable.soft import SoftEnsemble, soften

__all__: list[str] = ["FinetuneHistory", "SoftEnsemble", "finetune", "harden", "soften"]
