"""Derivatives of whole fits and of models: tuning by gradients, the worth of rows, fine-tuning, soft trees."""

from jboost.differentiable.finetuning import FinetuneHistory, finetune

__all__: list[str] = ["FinetuneHistory", "finetune"]
