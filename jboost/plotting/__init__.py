"""Pictures of models and fits: trees, learning curves, importances, dependence.

They need matplotlib, ``pip install "jboost[plot]"``, which is imported when something is drawn; `to_text` and
`to_graphviz` need nothing. Each function draws on the axes it is given, or on new ones, and returns them.
"""

from jboost.plotting.dependence import plot_dependence
from jboost.plotting.history import plot_history
from jboost.plotting.importances import plot_importance
from jboost.plotting.text import to_graphviz, to_text
from jboost.plotting.trees import plot_tree

__all__ = ["plot_dependence", "plot_history", "plot_importance", "plot_tree", "to_graphviz", "to_text"]
