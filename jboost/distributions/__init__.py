"""Losses of whole distributions: the score of a row gives the parameters of that of its target."""

__all__: list[str] = []
