"""Algorithms of the textbook that are no gradient boosting, on the same compiled trees."""

from jboost.textbook.adaboost import AdaBoostRecord, adaboost

__all__ = ["AdaBoostRecord", "adaboost"]
