"""Boosting: `fit`, and the loop that it is made of, to be run by hand."""

from jboost.boosting.callbacks import Progress
from jboost.boosting.fitting import fit
from jboost.boosting.loop import finish, init, step
from jboost.boosting.rounds import Problem, Round, State
from jboost.boosting.stopping import History

__all__ = ["History", "Problem", "Progress", "Round", "State", "finish", "fit", "init", "step"]
