"""Algorithms of the textbook beside gradient boosting of trees, each as one compiled scan."""

from jboost.textbook.adaboost import AdaBoostRecord, adaboost
from jboost.textbook.additive import Additive
from jboost.textbook.stagewise import BoostRecord, boost

__all__ = ["AdaBoostRecord", "Additive", "BoostRecord", "adaboost", "boost"]
