"""What a model has learned: importances, partial dependence, interactions, components.

Each function takes a `jboost.Ensemble` or a fitted estimator; none knows how the model was fitted.
"""

from jboost.explain.components import Components, components
from jboost.explain.dependence import PartialDependence, partial_dependence
from jboost.explain.importances import Importance, importance
from jboost.explain.interactions import Interaction, interaction
from jboost.explain.paths import interaction_order
from jboost.explain.permuting import permutation_importance

__all__ = [
    "Components",
    "Importance",
    "Interaction",
    "PartialDependence",
    "components",
    "importance",
    "interaction",
    "interaction_order",
    "partial_dependence",
    "permutation_importance",
]
