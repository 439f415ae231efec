"""Derivatives of whole fits and of models: tuning by gradients, the worth of rows, fine-tuning, soft trees."""

__all__: list[str] = []
