"""Many fits at once: a sweep over numbers, held-out rows and seeds in one compiled program."""

from jboost.tuning.result import Sweep
from jboost.tuning.sweeping import sweep

__all__ = ["Sweep", "sweep"]
