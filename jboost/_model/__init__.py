"""A fitted model, and the scores it gives."""
